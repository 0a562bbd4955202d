"""Softmax, log-softmax and the negative log-likelihood, with their gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from backend.embedded.lower.reduction import accumulated
from backend.embedded.lower.table import aten, lowers

_MEAN, _SUM = 1, 2  # at::Reduction


def _over(x: jax.Array, dim: int) -> int | None:
    return dim if x.ndim else None


@lowers(aten._softmax.default)
def softmax(x: jax.Array, dim: int, half_to_float: bool) -> jax.Array:
    """``exp(x)`` over its sum along ``dim``."""
    return jax.nn.softmax(accumulated(x), axis=_over(x, dim))


@lowers(aten._log_softmax.default)
def log_softmax(x: jax.Array, dim: int, half_to_float: bool) -> jax.Array:
    """The logarithm of :func:`softmax`, without its overflow."""
    return jax.nn.log_softmax(accumulated(x), axis=_over(x, dim))


@lowers(aten._softmax_backward_data.default)
def softmax_backward(grad: jax.Array, y: jax.Array, dim: int, input_dtype: torch.dtype) -> jax.Array:
    """The gradient of softmax, from its output ``y``."""
    product = accumulated(grad) * accumulated(y)
    return product - y * jnp.sum(product, axis=_over(y, dim), keepdims=True)


@lowers(aten._log_softmax_backward_data.default)
def log_softmax_backward(grad: jax.Array, y: jax.Array, dim: int, input_dtype: torch.dtype) -> jax.Array:
    """The gradient of log-softmax, from its output ``y``."""
    g = accumulated(grad)
    return g - jnp.exp(accumulated(y)) * jnp.sum(g, axis=_over(y, dim), keepdims=True)


def _picked(
    x: jax.Array, target: jax.Array, weight: jax.Array | None, ignore_index: int
) -> tuple[int, jax.Array, jax.Array]:
    """The class axis, the index with that axis kept, and each target's weight (0 where ignored)."""
    axis = 0 if x.ndim == 1 else 1
    index = jnp.expand_dims(target.astype(jnp.int64), axis)
    kept = index != ignore_index
    index = jnp.where(kept, index, 0)
    scale = jnp.ones((), x.dtype) if weight is None else jnp.take(weight, index, axis=0)
    return axis, index, jnp.where(kept, scale, jnp.zeros((), x.dtype))


@lowers(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(
    x: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: int, ignore_index: int
) -> tuple[jax.Array, jax.Array]:
    """``(loss, total weight)`` of log-probabilities ``x``, classes on axis 1 (or 0 without a batch)."""
    axis, index, scale = _picked(x, target, weight, ignore_index)
    loss = -jnp.take_along_axis(x, index, axis=axis) * scale
    total = jnp.sum(scale)
    if reduction == _MEAN:
        return jnp.sum(accumulated(loss)) / total, total
    if reduction == _SUM:
        return jnp.sum(accumulated(loss)), total
    return jnp.squeeze(loss, axis), jnp.zeros((), x.dtype)


@lowers(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    grad: jax.Array,
    x: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: jax.Array,
) -> jax.Array:
    """The gradient of :func:`nll_loss`: minus the weight at each target, zero elsewhere. A comparison, no scatter."""
    axis, index, scale = _picked(x, target, weight, ignore_index)
    if reduction == _MEAN:
        scale = scale / total_weight
    upstream = grad if reduction in (_MEAN, _SUM) else jnp.expand_dims(grad, axis)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    classes = jnp.arange(x.shape[axis], dtype=jnp.int64).reshape(shape)
    return jnp.where(classes == index, -upstream * scale, jnp.zeros((), x.dtype))


@lowers(aten.mse_loss.default)
def mse_loss(x: jax.Array, target: jax.Array, reduction: int = _MEAN) -> jax.Array:
    """The squared difference, its mean, or its sum."""
    square = jnp.square(accumulated(x) - accumulated(target))
    return jnp.mean(square) if reduction == _MEAN else jnp.sum(square) if reduction == _SUM else square


@lowers(aten.mse_loss_backward.default)
def mse_loss_backward(grad: jax.Array, x: jax.Array, target: jax.Array, reduction: int) -> jax.Array:
    """The gradient of :func:`mse_loss`."""
    slope = 2 * (accumulated(x) - accumulated(target)) * grad
    return slope / x.size if reduction == _MEAN else slope
