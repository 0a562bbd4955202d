"""Hand-written JAX training steps with the same maths as PyTorch ones, and the PyTorch decoder."""
