"""Scatters that combine what meets in one place."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from backend.embedded.lower.indexing import places
from backend.embedded.lower.table import aten, lowers

_START = {"sum": 0, "mean": 0, "prod": 1}


def _extreme(dtype: jnp.dtype, reduce: str) -> jax.Array:
    """What loses against every value of ``dtype``."""
    if dtype == jnp.bool_:
        return jnp.asarray(reduce == "amin", dtype)
    info = jnp.finfo(dtype) if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(jnp.inf if reduce == "amin" else -jnp.inf, dtype)
    return jnp.asarray(info.max if reduce == "amin" else info.min, dtype)


@lowers(aten.scatter_reduce.two)
def scatter_reduce(
    x: jax.Array, dim: int, index: jax.Array, src: jax.Array, reduce: str, *, include_self: bool = True
) -> jax.Array:
    """``x`` with the entries of ``src`` combined at ``index`` along ``dim``: sum, prod, mean, amax or amin."""
    if 0 in index.shape:
        return x
    shape = x.shape
    x, index, src = (a.reshape(1) if a.ndim == 0 else a for a in (x, index, src))
    where = places(index, dim % x.ndim)
    src = src[tuple(slice(0, n) for n in index.shape)].astype(x.dtype)
    hit = jnp.zeros(x.shape, jnp.bool_).at[where].set(True)
    base = x
    if not include_self:
        start = jnp.asarray(_START[reduce], x.dtype) if reduce in _START else _extreme(x.dtype, reduce)
        base = jnp.where(hit, start, x)
    at = base.at[where]
    if reduce == "sum":
        found = at.add(src)
    elif reduce == "prod":
        found = at.multiply(src)
    elif reduce == "amax":
        found = at.max(src)
    elif reduce == "amin":
        found = at.min(src)
    elif reduce == "mean":
        count = jnp.full(x.shape, int(include_self), jnp.int64).at[where].add(1)
        total = at.add(src)
        count = jnp.where(hit, jnp.maximum(count, 1), 1)
        integral = jnp.issubdtype(x.dtype, jnp.integer)
        found = jnp.floor_divide(total, count.astype(x.dtype)) if integral else total / count.astype(x.dtype)
    else:
        raise ValueError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    return found.astype(x.dtype).reshape(shape)
