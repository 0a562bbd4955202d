"""Reductions and cumulative ops. Half precision is accumulated in float32, like PyTorch's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from backend.embedded.dtype import to_jax
from backend.embedded.lower.elementwise import is_integer
from backend.embedded.lower.table import aten, lowers

Dims = int | Sequence[int] | None


def axes(dim: Dims) -> tuple[int, ...] | None:
    """PyTorch's ``dim``: an empty list reduces everything, like None."""
    if dim is None:
        return None
    if isinstance(dim, int):
        return (dim,)
    return tuple(dim) or None


def accumulated(x: jax.Array) -> jax.Array:
    """``x`` in the dtype that sums of it are taken in."""
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


def _summed_as(x: jax.Array, dtype: torch.dtype | None) -> jax.Array:
    if dtype is not None:
        return x.astype(to_jax(dtype))
    return x.astype(jnp.int64) if is_integer(x) else x


@lowers(aten.sum.default, aten.sum.dim_IntList)
def total(x: jax.Array, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> jax.Array:
    """The sum; integers are summed as int64."""
    if x.ndim == 0:
        return _summed_as(x, dtype)
    return jnp.sum(accumulated(_summed_as(x, dtype)), axis=axes(dim), keepdims=keepdim)


@lowers(aten.mean.default, aten.mean.dim)
def mean(x: jax.Array, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> jax.Array:
    """The arithmetic mean."""
    x = x if dtype is None else x.astype(to_jax(dtype))
    return x if x.ndim == 0 else jnp.mean(accumulated(x), axis=axes(dim), keepdims=keepdim)


@lowers(aten.prod.default, aten.prod.dim_int)
def product(x: jax.Array, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> jax.Array:
    """The product; integers are multiplied as int64."""
    if x.ndim == 0:
        return _summed_as(x, dtype)
    return jnp.prod(accumulated(_summed_as(x, dtype)), axis=axes(dim), keepdims=keepdim)


def _extremum(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def lowering(x: jax.Array, dim: Dims = (), keepdim: bool = False) -> jax.Array:
        return x if x.ndim == 0 else function(x, axis=axes(dim), keepdims=keepdim)

    return lowering


lowers(aten.amax.default)(_extremum(jnp.max))
lowers(aten.amin.default)(_extremum(jnp.min))
lowers(aten.max.default)(lambda x: jnp.max(x))
lowers(aten.min.default)(lambda x: jnp.min(x))


def _position(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def lowering(x: jax.Array, dim: int | None = None, keepdim: bool = False) -> jax.Array:
        if x.ndim == 0:
            return jnp.zeros((), jnp.int64)
        if dim is None:
            index = function(x.reshape(-1)).astype(jnp.int64)
            return index.reshape((1,) * x.ndim) if keepdim else index
        return function(x, axis=dim, keepdims=keepdim).astype(jnp.int64)

    return lowering


argmax, argmin = _position(jnp.argmax), _position(jnp.argmin)
lowers(aten.argmax.default)(argmax)
lowers(aten.argmin.default)(argmin)


def _with_position(
    value: Callable[..., jax.Array], position: Callable[..., jax.Array]
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    def lowering(x: jax.Array, dim: int, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
        if x.ndim == 0:
            return x, jnp.zeros((), jnp.int64)
        return value(x, axis=dim, keepdims=keepdim), position(x, dim, keepdim)

    return lowering


lowers(aten.max.dim)(_with_position(jnp.max, argmax))
lowers(aten.min.dim)(_with_position(jnp.min, argmin))


def _truth(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def lowering(x: jax.Array, dim: Dims = None, keepdim: bool = False) -> jax.Array:
        # uint8 is PyTorch's oldest boolean: its any() and all() stay uint8, which the caller casts to.
        truth = x.astype(jnp.bool_)
        return truth if x.ndim == 0 else function(truth, axis=axes(dim), keepdims=keepdim)

    return lowering


lowers(aten.any.default, aten.any.dim, aten.any.dims)(_truth(jnp.any))
lowers(aten.all.default, aten.all.dim, aten.all.dims)(_truth(jnp.all))


def _spread(x: jax.Array, dim: Dims, correction: Any, keepdim: bool) -> tuple[jax.Array, jax.Array]:
    x = accumulated(x)
    ddof = 1 if correction is None else correction
    over = axes(dim) if x.ndim else None
    centre = jnp.mean(x, axis=over, keepdims=True)
    deviation = jnp.abs(x - centre)
    count = x.size if over is None else 1
    for axis in over or ():
        count *= x.shape[axis]
    # Two passes: PyTorch's Welford is as exact, the one-pass form is not.
    squares = jnp.sum(deviation * deviation, axis=over, keepdims=keepdim)
    variance = squares / max(count - ddof, 0) if count != ddof else squares / jnp.zeros((), squares.dtype)
    return variance, centre if keepdim else jnp.mean(x, axis=over)


@lowers(aten.var.correction)
def variance(x: jax.Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> jax.Array:
    """The variance with ``correction`` degrees of freedom taken off."""
    return _spread(x, dim, correction, keepdim)[0]


@lowers(aten.std.correction)
def deviation(x: jax.Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> jax.Array:
    """The standard deviation."""
    return jnp.sqrt(_spread(x, dim, correction, keepdim)[0])


@lowers(aten.var_mean.correction)
def variance_mean(
    x: jax.Array, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    """The variance and the mean."""
    return _spread(x, dim, correction, keepdim)


@lowers(aten.cumsum.default)
def cumulative_sum(x: jax.Array, dim: int, dtype: torch.dtype | None = None) -> jax.Array:
    """The running sum along ``dim``."""
    x = _summed_as(x, dtype)
    return x if x.ndim == 0 else jnp.cumsum(accumulated(x), axis=dim)


@lowers(aten.cumprod.default)
def cumulative_product(x: jax.Array, dim: int, dtype: torch.dtype | None = None) -> jax.Array:
    """The running product along ``dim``."""
    x = _summed_as(x, dtype)
    return x if x.ndim == 0 else jnp.cumprod(accumulated(x), axis=dim)


@lowers(aten.linalg_vector_norm.default)
def vector_norm(
    x: jax.Array, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> jax.Array:
    """The vector norm of order ``ord`` over ``dim``."""
    x = accumulated(x if dtype is None else x.astype(to_jax(dtype)))
    over = axes(dim)
    if x.ndim == 0:
        return (x != 0).astype(x.dtype) if ord == 0 else jnp.abs(x)
    if over is None:
        value = jnp.linalg.norm(x.reshape(-1), ord=ord)
        return value.reshape((1,) * x.ndim) if keepdim else value
    size = jnp.abs(x)
    if ord == 0:
        return jnp.sum(size != 0, axis=over, keepdims=keepdim).astype(size.dtype)
    if ord in (float("inf"), float("-inf")):
        return (jnp.max if ord > 0 else jnp.min)(size, axis=over, keepdims=keepdim)
    if ord == 2:
        return jnp.sqrt(jnp.sum(size * size, axis=over, keepdims=keepdim))
    return jnp.sum(size**ord, axis=over, keepdims=keepdim) ** (1 / ord)
