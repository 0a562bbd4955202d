"""tpubench: benchmarks and profiles the ways of running a PyTorch model on a TPU.

Importing this package costs nothing: neither torch nor jax is imported in the process that a user
types commands into. Both live in worker processes, one a cell.
"""

__version__ = "0.1.0"
