"""Small diffusion models of digits and of Fashion-MNIST, for the demo and the examples."""
