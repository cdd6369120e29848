"""Runs, sweeps and their tables, and what the paper claims beside them."""
