"""Flower's quick-start with PyTorch: Fashion-MNIST, shared out with skewed labels."""
