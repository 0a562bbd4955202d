"""ATen ops as JAX functions. One table serves eager and compile alike.

table           the table, and how an op gets into it
elementwise     unary, binary and ternary ops, with PyTorch's type promotion
activation      activations and their gradients
reduction       sums, means, extrema, cumulative ops
matmul          matrix products
convolution     convolution and its gradients
pooling         max, average and adaptive pooling, with gradients
normalization   batch, layer and group norm, with gradients
loss            softmax, log-softmax, negative log-likelihood
shape           what changes the shape and not the values
indexing        gather, scatter, index, embedding
creation        arrays from nothing
random          what draws from the device's generator
foreach         the list ops that optimizers use
scaling         what a gradient scaler runs
recurrent       the cells of LSTM and GRU, and weight norm
"""

from backend.embedded.lower import (
    activation,
    convolution,
    creation,
    elementwise,
    foreach,
    indexing,
    loss,
    matmul,
    normalization,
    pooling,
    random,
    recurrent,
    reduction,
    scaling,
    shape,
)
from backend.embedded.lower.table import TABLE, Lowering, find

__all__ = [
    "TABLE",
    "Lowering",
    "activation",
    "convolution",
    "creation",
    "elementwise",
    "find",
    "foreach",
    "indexing",
    "loss",
    "matmul",
    "normalization",
    "pooling",
    "random",
    "recurrent",
    "reduction",
    "scaling",
    "shape",
]
