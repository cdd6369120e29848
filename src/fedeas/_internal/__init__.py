"""Small tools without an idea of federated learning: files, locks, seeds, specs."""
