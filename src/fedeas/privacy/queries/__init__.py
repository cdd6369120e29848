"""What sites may be asked: queries whose answers are summed under noise."""
