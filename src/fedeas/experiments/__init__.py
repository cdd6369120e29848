"""What the paper claims, beside what this package finds."""
