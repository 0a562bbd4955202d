"""Arrays from nothing: constants and ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from backend.embedded.dtype import to_jax
from backend.embedded.lower.table import aten, lowers

Dtype = torch.dtype | None


def _default(dtype: Dtype) -> np.dtype:
    return to_jax(dtype or torch.get_default_dtype())


def _of_value(dtype: Dtype, value: Any) -> np.dtype:
    if dtype is not None:
        return to_jax(dtype)
    if isinstance(value, bool):
        return to_jax(torch.bool)
    return to_jax(torch.int64 if isinstance(value, int) else torch.get_default_dtype())


@lowers(aten.full.default)
def full(size: Sequence[int], value: Any, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """``value`` everywhere."""
    return jnp.full(tuple(size), value, _of_value(dtype, value))


@lowers(aten.full_like.default)
def full_like(x: jax.Array, value: Any, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """``value`` everywhere, in the shape of ``x``."""
    return jnp.full(x.shape, value, x.dtype if dtype is None else to_jax(dtype))


@lowers(aten.zeros.default, aten.empty.memory_format)
def zeros(size: Sequence[int], *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """Zeros; also where PyTorch promises nothing."""
    return jnp.zeros(tuple(size), _default(dtype))


@lowers(aten.ones.default)
def ones(size: Sequence[int], *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """Ones."""
    return jnp.ones(tuple(size), _default(dtype))


@lowers(aten.zeros_like.default, aten.empty_like.default)
def zeros_like(x: jax.Array, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """Zeros in the shape of ``x``; also where PyTorch promises nothing."""
    return full_like(x, 0, dtype=dtype)


@lowers(aten.ones_like.default)
def ones_like(x: jax.Array, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """Ones in the shape of ``x``."""
    return full_like(x, 1, dtype=dtype)


@lowers(aten.scalar_tensor.default)
def scalar_tensor(value: Any, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """A number as a 0-d array."""
    return jnp.asarray(value, _default(dtype))


@lowers(aten.fill.Scalar, aten.fill.Tensor, mixes=True)
def fill(x: jax.Array, value: Any) -> jax.Array:
    """``value`` everywhere, in the shape and dtype of ``x``."""
    value = getattr(value, "value", value)
    return jnp.broadcast_to(jnp.asarray(value).astype(x.dtype), x.shape)


@lowers(aten.arange.start_step)
def arange(start: Any, end: Any, step: Any = 1, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """``start``, ``start + step``, … up to ``end``, without it."""
    count = max(0, int(np.ceil((end - start) / step)))
    integral = all(isinstance(v, int) for v in (start, end, step))
    target = to_jax(dtype) if dtype is not None else to_jax(torch.int64) if integral else _default(None)
    work = jnp.int64 if integral else jnp.float64
    return (jnp.asarray(start, work) + jnp.arange(count, dtype=work) * jnp.asarray(step, work)).astype(target)


@lowers(aten.linspace.default)
def linspace(start: Any, end: Any, steps: int, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """``steps`` numbers from ``start`` to ``end``, both of them there; the second half counts from the end."""
    target = _default(dtype)
    work = target if jnp.issubdtype(target, jnp.inexact) else jnp.dtype(jnp.float64)
    step = (end - start) / max(steps - 1, 1)
    index = jnp.arange(steps, dtype=work)
    values = jnp.where(index < steps // 2, start + step * index, end - step * (steps - 1 - index))
    return (jnp.full((1,), start, work) if steps == 1 else values).astype(target)


@lowers(aten.eye.default, aten.eye.m)
def eye(n: int, m: int | None = None, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """Ones on the diagonal."""
    return jnp.eye(n, m, dtype=_default(dtype))


@lowers(aten.tril_indices.default)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """The row and column of each place on and below a diagonal, (2, n)."""
    return jnp.asarray(np.stack(np.tril_indices(row, offset, col)), to_jax(dtype or torch.int64))


@lowers(aten.triu_indices.default)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Dtype = None, **_: Any) -> jax.Array:
    """The row and column of each place on and above a diagonal, (2, n)."""
    return jnp.asarray(np.stack(np.triu_indices(row, offset, col)), to_jax(dtype or torch.int64))
