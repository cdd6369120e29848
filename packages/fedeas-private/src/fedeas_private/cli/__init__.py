"""Commands that this package adds to `fedeas`."""
