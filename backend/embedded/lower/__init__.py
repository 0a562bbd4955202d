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
order           sorting, order statistics, running extrema, search in sorted arrays
scattering      scatters that combine what meets in one place
linalg          factorisations and solvers
fourier         Fourier transforms
special         special functions
transposed      gradients of upsampling and of other linear ops
bag             bags of embeddings
creation        arrays from nothing
random          what draws from the device's generator
foreach         the list ops that optimizers use
scaling         what a gradient scaler runs
shift           shifts by bits
recurrent       the cells of LSTM and GRU, and weight norm
"""

from backend.embedded.lower import (
    activation,
    bag,
    convolution,
    creation,
    elementwise,
    foreach,
    fourier,
    indexing,
    linalg,
    loss,
    matmul,
    normalization,
    order,
    pooling,
    random,
    recurrent,
    reduction,
    scaling,
    scattering,
    shape,
    shift,
    special,
    transposed,
)
from backend.embedded.lower.table import TABLE, Lowering, find

__all__ = [
    "TABLE",
    "Lowering",
    "activation",
    "bag",
    "convolution",
    "creation",
    "elementwise",
    "find",
    "foreach",
    "fourier",
    "indexing",
    "linalg",
    "loss",
    "matmul",
    "normalization",
    "order",
    "pooling",
    "random",
    "recurrent",
    "reduction",
    "scaling",
    "scattering",
    "shape",
    "shift",
    "special",
    "transposed",
]
