"""What every command and function does unless it is told otherwise."""

SEED = 42  # of generated samples
