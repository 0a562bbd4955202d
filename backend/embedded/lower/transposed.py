"""Gradients of linear ops: the transpose of PyTorch's own decomposition of the forward op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from backend.embedded.lower.table import aten, lowers


def _transpose(op: torch._ops.OpOverload, shape: Sequence[int], grad: jax.Array, *args: Any) -> jax.Array:
    """The gradient of ``op(x, *args)``, linear in an ``x`` of ``shape``, for the gradient ``grad`` of its result."""
    from backend.embedded.decompose import decomposed

    half = grad.dtype in (jnp.float16, jnp.bfloat16)
    wide = grad.astype(jnp.float32) if half else grad
    zeros = jnp.zeros(tuple(shape), wide.dtype)
    forward = decomposed(op, (zeros, *args), {})
    _, pull = jax.vjp(lambda x: forward(x, *args).astype(wide.dtype), zeros)
    return pull(wide)[0].astype(grad.dtype)


def _upsample(backward: torch._ops.OpOverload, forward: torch._ops.OpOverload) -> None:
    @lowers(backward)
    def lowering(grad: jax.Array, output_size: Sequence[int], input_size: Sequence[int], *rest: Any) -> jax.Array:
        return _transpose(forward, input_size, grad, list(output_size), *rest)


for _name in (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d",
):  # fmt: skip
    _upsample(getattr(aten, f"{_name}_backward").default, getattr(aten, _name).default)


@lowers(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(grad: jax.Array, x: jax.Array, lambd: Any) -> jax.Array:
    """The gradient of hardshrink and of softshrink: none within ``lambd`` of zero."""
    return jnp.where((x >= -lambd) & (x <= lambd), jnp.zeros((), grad.dtype), grad)
