"""Runs and sweeps, and the tables of their results."""
