"""Everything that only reproduces the paper: its numbers, its claims and the recorded runs."""
