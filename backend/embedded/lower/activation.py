"""Activations and their gradients. The rarer ones come from PyTorch's decompositions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from backend.embedded.lower.elementwise import promoted
from backend.embedded.lower.table import aten, lowers
from backend.embedded.promotion import Kind


@lowers(aten.relu.default)
def relu(x: jax.Array) -> jax.Array:
    """``max(x, 0)``; a NaN stays."""
    return jnp.maximum(x, jnp.zeros((), x.dtype))


@lowers(aten.threshold_backward.default)
def threshold_backward(grad: jax.Array, x: jax.Array, threshold: Any) -> jax.Array:
    """The gradient where ``x`` is above ``threshold``, zero elsewhere (a NaN lets it through)."""
    return jnp.where(x <= threshold, jnp.zeros((), grad.dtype), grad)


lowers(aten.sigmoid_backward.default)(promoted(lambda grad, y: grad * (1 - y) * y))
lowers(aten.tanh_backward.default)(promoted(lambda grad, y: grad * (1 - y * y)))
lowers(aten.silu.default)(promoted(jax.nn.silu, Kind.INT_TO_FLOAT))


@lowers(aten.silu_backward.default)
def silu_backward(grad: jax.Array, x: jax.Array) -> jax.Array:
    """The gradient of ``x * sigmoid(x)``."""

    def gradient(g: jax.Array, value: jax.Array) -> jax.Array:
        s = jax.nn.sigmoid(value)
        return g * s * (1 + value * (1 - s))

    return promoted(gradient)(grad, x)


@lowers(aten.gelu.default)
def gelu(x: jax.Array, approximate: str = "none") -> jax.Array:
    """The Gaussian error linear unit (Hendrycks & Gimpel, arXiv 1606.08415), exact or by tanh."""
    return promoted(lambda value: jax.nn.gelu(value, approximate=approximate == "tanh"))(x)


@lowers(aten.gelu_backward.default)
def gelu_backward(grad: jax.Array, x: jax.Array, approximate: str = "none") -> jax.Array:
    """The gradient of :func:`gelu`."""

    def gradient(g: jax.Array, value: jax.Array) -> jax.Array:
        return jax.vjp(lambda v: jax.nn.gelu(v, approximate=approximate == "tanh"), value)[1](g)[0]

    return promoted(gradient)(grad, x)


@lowers(aten.leaky_relu.default)
def leaky_relu(x: jax.Array, negative_slope: Any = 0.01) -> jax.Array:
    """``x`` where positive, else ``negative_slope * x``."""
    return jnp.where(x > 0, x, lax.mul(x, jnp.asarray(negative_slope, x.dtype)))


@lowers(aten.hardtanh.default)
def hardtanh(x: jax.Array, low: Any = -1.0, high: Any = 1.0) -> jax.Array:
    """``x`` held between ``low`` and ``high``."""
    return jnp.clip(x, jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype))
