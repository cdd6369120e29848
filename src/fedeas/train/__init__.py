"""Training on one machine: models, samples, one loop."""
