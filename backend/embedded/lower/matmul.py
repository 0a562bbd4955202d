"""Matrix products. Half precision is accumulated in float32 and rounded once, like PyTorch's kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from backend.embedded.dtype import to_torch
from backend.embedded.lower.elementwise import cast, is_number
from backend.embedded.lower.table import aten, lowers


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """``a @ b``, accumulated in at least float32."""
    half = a.dtype in (jnp.float16, jnp.bfloat16)
    return jnp.matmul(a, b, preferred_element_type=jnp.float32 if half else None)


lowers(aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)(matmul)


def _scale(value: jax.Array, factor: Any) -> jax.Array:
    if is_number(factor) and factor == 1:
        return value
    return value * cast(factor, to_torch(value.dtype))


@lowers(aten.addmm.default, aten.baddbmm.default, aten.addmv.default, runtime=("beta", "alpha"))
def added_matmul(bias: jax.Array, a: jax.Array, b: jax.Array, *, beta: Any = 1, alpha: Any = 1) -> jax.Array:
    """``beta * bias + alpha * (a @ b)``; a ``beta`` of 0 ignores ``bias``, NaNs included."""
    product = _scale(matmul(a, b), alpha)
    if is_number(beta) and beta == 0:
        return product
    return product + _scale(bias.astype(product.dtype), beta)


@lowers(aten.addr.default, runtime=("beta", "alpha"))
def added_outer(bias: jax.Array, a: jax.Array, b: jax.Array, *, beta: Any = 1, alpha: Any = 1) -> jax.Array:
    """``beta * bias + alpha * outer(a, b)``; a ``beta`` of 0 ignores ``bias``."""
    half = a.dtype in (jnp.float16, jnp.bfloat16)
    bias, a, b = (x.astype(jnp.float32) if half else x for x in (bias, a, b))
    product = _scale(jnp.logical_and(a[:, None], b) if a.dtype == jnp.bool_ else a[:, None] * b, alpha)
    if is_number(beta) and beta == 0:
        return product
    return jnp.logical_or(product, bias) if a.dtype == jnp.bool_ else product + _scale(bias, beta)


@lowers(aten.addbmm.default, runtime=("beta", "alpha"))
def added_sum_of_matmuls(bias: jax.Array, a: jax.Array, b: jax.Array, *, beta: Any = 1, alpha: Any = 1) -> jax.Array:
    """``beta * bias + alpha * (a @ b).sum(0)``."""
    rows, columns = jnp.swapaxes(a, 0, 1).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2])
    return added_matmul(bias, rows, columns, beta=beta, alpha=alpha)
