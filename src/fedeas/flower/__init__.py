"""Federated training on Flower: one algorithm, whatever the grid that carries its messages."""
