"""Gather, scatter, indexing by tensors, embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from backend.embedded.errors import OpNotLowered
from backend.embedded.lower.table import aten, lowers


@lowers(aten.gather.default)
def gather(x: jax.Array, dim: int, index: jax.Array, *, sparse_grad: bool = False) -> jax.Array:
    """``x`` at ``index`` along ``dim``."""
    if x.ndim == 0 or 0 in index.shape:
        return jnp.broadcast_to(x.reshape(-1)[:1].reshape(()), index.shape)
    if index.ndim == 0:
        return jnp.take(x, index, axis=dim)
    # PyTorch lets the index be smaller than the array in the other dimensions.
    bounds = tuple(slice(None) if d == dim % x.ndim else slice(0, n) for d, n in enumerate(index.shape))
    return jnp.take_along_axis(x[bounds], index, axis=dim)


def places(index: jax.Array, dim: int) -> tuple[jax.Array, ...]:
    """Where the entries of ``index`` point: its values along ``dim``, their own position elsewhere."""
    grid = list(jnp.ogrid[tuple(slice(0, n) for n in index.shape)])
    grid[dim] = index
    return tuple(grid)


def _scattered(x: jax.Array, dim: int, index: jax.Array, src: Any, how: str) -> jax.Array:
    if 0 in index.shape:
        return x
    if x.ndim == 0 or index.ndim == 0:
        shape = x.shape or (1,)
        flat = _scattered(x.reshape(shape), dim, index.reshape(-1), jnp.asarray(src, x.dtype).reshape(-1), how)
        return flat.reshape(x.shape)
    if isinstance(src, jax.Array) and src.ndim:
        src = src[tuple(slice(0, n) for n in index.shape)].astype(x.dtype)
    else:
        src = jnp.asarray(src, x.dtype)
    return getattr(x.at[places(index, dim % x.ndim)], how)(src)


@lowers(aten.scatter.src, aten.scatter.value)
def scatter(x: jax.Array, dim: int, index: jax.Array, src: Any) -> jax.Array:
    """``x`` with ``src`` put at ``index`` along ``dim``."""
    return _scattered(x, dim, index, src, "set")


@lowers(aten.scatter_add.default)
def scatter_add(x: jax.Array, dim: int, index: jax.Array, src: jax.Array) -> jax.Array:
    """``x`` with ``src`` added at ``index`` along ``dim``."""
    return _scattered(x, dim, index, src, "add")


@lowers(aten.index_select.default)
def index_select(x: jax.Array, dim: int, index: jax.Array) -> jax.Array:
    """The entries of ``dim`` that ``index`` names."""
    return x if x.ndim == 0 else jnp.take(x, index.reshape(-1), axis=dim)


@lowers(aten.index_add.default)
def index_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array, *, alpha: Any = 1) -> jax.Array:
    """``x`` with ``alpha * source`` added at the entries of ``dim`` that ``index`` names."""
    if x.ndim == 0:
        return x + (source * alpha).astype(x.dtype).sum()
    place: list[Any] = [slice(None)] * x.ndim
    place[dim] = index
    return x.at[tuple(place)].add((source * alpha).astype(x.dtype))


def _tuple(indices: Sequence[jax.Array | None]) -> tuple[Any, ...]:
    if any(i is not None and i.dtype in (jnp.bool_, jnp.uint8) for i in indices):
        # How many elements a mask keeps is only known when it is read.
        raise OpNotLowered("aten.index with a mask", "the result's shape depends on values")
    return tuple(slice(None) if i is None else i for i in indices)


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(x: jax.Array, indices: Sequence[jax.Array | None]) -> jax.Array:
    """``x[i, :, j]``."""
    return x[_tuple(indices)]


@lowers(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    x: jax.Array, indices: Sequence[jax.Array | None], values: jax.Array, accumulate: bool = False
) -> jax.Array:
    """``x`` with ``values`` put or added at ``x[i, :, j]``; a mask that covers ``x`` selects."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == jnp.bool_ and values.size == 1:
        mask = indices[0].reshape(indices[0].shape + (1,) * (x.ndim - indices[0].ndim))
        value = values.reshape(()).astype(x.dtype)
        return jnp.where(mask, x + value if accumulate else value, x)
    place = x.at[_tuple(indices)]
    values = values.astype(x.dtype)
    return place.add(values) if accumulate else place.set(values)


@lowers(aten._index_put_impl.default)
def index_put_implementation(
    x: jax.Array,
    indices: Sequence[jax.Array | None],
    values: jax.Array,
    accumulate: bool = False,
    unsafe: bool = False,
) -> jax.Array:
    """:func:`index_put` by its inner name."""
    return index_put(x, indices, values, accumulate)


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor, mixes=True)
def masked_fill(x: jax.Array, mask: jax.Array, value: Any) -> jax.Array:
    """``value`` where ``mask``, else ``x``; the dtype stays ``x``'s."""
    value = getattr(value, "value", value)
    return jnp.where(mask, jnp.asarray(value).astype(x.dtype), x)


@lowers(aten.embedding.default)
def embedding(
    weight: jax.Array,
    indices: jax.Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> jax.Array:
    """The rows of ``weight`` that ``indices`` name."""
    return jnp.take(weight, indices, axis=0)


@lowers(aten.embedding_dense_backward.default)
def embedding_backward(
    grad: jax.Array, indices: jax.Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> jax.Array:
    """Each row's gradients added up; ``padding_idx`` gets none."""
    rows, flat = grad.reshape(-1, grad.shape[-1]), indices.reshape(-1)
    if scale_grad_by_freq:
        counts = jnp.zeros((num_weights,), rows.dtype).at[flat].add(1)
        rows = rows / counts[flat][:, None]
    kept = (flat != padding_idx)[:, None]
    zeros = jnp.zeros((num_weights, rows.shape[1]), rows.dtype)
    return zeros.at[flat].add(jnp.where(kept, rows, jnp.zeros((), rows.dtype)))
