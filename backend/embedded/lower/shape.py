"""Ops that change the shape and not the values. Eager mode seldom sees them: there a view is metadata of torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from backend.embedded.dtype import to_jax
from backend.embedded.layout import Layout, read, write
from backend.embedded.lower.table import LATE, Lowering, aten, lowers

Sizes = Sequence[int]


@lowers(
    aten.alias.default,
    aten.detach.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
)
def same(x: jax.Array) -> jax.Array:
    """The values as they are."""
    return x


@lowers(aten.clone.default)
def clone(x: jax.Array, *, memory_format: Any = None) -> jax.Array:
    """The values as they are; the layout is the caller's."""
    return x


@lowers(aten.copy.default)
def copy(x: jax.Array, src: jax.Array, non_blocking: bool = False) -> jax.Array:
    """The values of ``src`` in the shape and dtype of ``x``."""
    return jnp.broadcast_to(src, x.shape).astype(x.dtype)


@lowers(aten._to_copy.default)
def to_copy(x: jax.Array, *, dtype: torch.dtype | None = None, **_: Any) -> jax.Array:
    """The values as ``dtype``; device and layout are the caller's."""
    return x if dtype is None else x.astype(to_jax(dtype))


@lowers(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def view(x: jax.Array, size: Sizes) -> jax.Array:
    """The values, row-major, in another shape; one -1 is worked out."""
    return x.reshape(tuple(size))


@lowers(aten.permute.default)
def permute(x: jax.Array, dims: Sizes) -> jax.Array:
    """The dimensions in another order."""
    return x.transpose([d % x.ndim for d in dims])


@lowers(aten.t.default)
def transpose_matrix(x: jax.Array) -> jax.Array:
    """A matrix transposed; fewer dimensions stay."""
    return x.T


@lowers(aten.transpose.int)
def transpose(x: jax.Array, first: int, second: int) -> jax.Array:
    """Two dimensions swapped."""
    return x if x.ndim == 0 else jnp.swapaxes(x, first, second)


@lowers(aten.expand.default)
def expand(x: jax.Array, size: Sizes, *, implicit: bool = False) -> jax.Array:
    """Broadcast; -1 keeps a dimension."""
    lead = len(size) - x.ndim
    shape = [x.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    return jnp.broadcast_to(x, shape)


@lowers(aten.unsqueeze.default)
def unsqueeze(x: jax.Array, dim: int) -> jax.Array:
    """A dimension of length 1 put in."""
    return jnp.expand_dims(x, dim)


@lowers(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(x: jax.Array, dim: int | Sizes | None = None) -> jax.Array:
    """Dimensions of length 1 taken out, all or those named."""
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return jnp.squeeze(x, tuple({d % x.ndim for d in dims if x.ndim and x.shape[d] == 1}))


def _slices(x: jax.Array, dim: int, start: int | None, end: int | None, step: int) -> tuple[slice, ...]:
    index = [slice(None)] * x.ndim
    index[dim] = slice(start, end, step)
    return tuple(index)


@lowers(aten.slice.Tensor)
def slice_(x: jax.Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> jax.Array:
    """Every ``step``-th element of ``dim`` from ``start`` to ``end``."""
    return x[_slices(x, dim, start, end, step)]


@lowers(aten.slice_scatter.default)
def slice_scatter(
    x: jax.Array,
    src: jax.Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> jax.Array:
    """``x`` with ``src`` put where :func:`slice_` reads."""
    return x.at[_slices(x, dim, start, end, step)].set(src.astype(x.dtype))


@lowers(aten.select.int)
def select(x: jax.Array, dim: int, index: int) -> jax.Array:
    """One index of ``dim``."""
    return lax.index_in_dim(x, index % x.shape[dim], dim % x.ndim, keepdims=False)


@lowers(aten.select_scatter.default)
def select_scatter(x: jax.Array, src: jax.Array, dim: int, index: int) -> jax.Array:
    """``x`` with ``src`` put where :func:`select` reads."""
    place: list[Any] = [slice(None)] * x.ndim
    place[dim] = index
    return x.at[tuple(place)].set(src.astype(x.dtype))


@lowers(aten.as_strided.default)
def as_strided(x: jax.Array, size: Sizes, stride: Sizes, storage_offset: int | None = None) -> jax.Array:
    """A strided window on the values in row-major order."""
    return read(x, Layout(tuple(size), tuple(stride), storage_offset or 0, x.dtype))


@lowers(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: jax.Array, src: jax.Array, size: Sizes, stride: Sizes, storage_offset: int | None = None
) -> jax.Array:
    """``x`` with ``src`` put where :func:`as_strided` reads."""
    return write(x, Layout(tuple(size), tuple(stride), storage_offset or 0, x.dtype), src)


@lowers(aten.cat.default)
def concatenate(tensors: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    """Arrays joined along ``dim``; PyTorch passes over empty vectors."""
    kept = [t for t in tensors if t.shape != (0,)] or [tensors[0]]
    return jnp.concatenate(kept, axis=dim)


@lowers(aten.stack.default)
def stack(tensors: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    """Arrays joined along a new dimension."""
    return jnp.stack(tensors, axis=dim)


@lowers(aten.split.Tensor)
def split(x: jax.Array, split_size: int, dim: int = 0) -> list[jax.Array]:
    """Pieces of ``split_size`` along ``dim``, the last one shorter."""
    return list(jnp.split(x, list(range(split_size, x.shape[dim], split_size)), axis=dim))


@lowers(aten.split_with_sizes.default)
def split_with_sizes(x: jax.Array, split_sizes: Sizes, dim: int = 0) -> list[jax.Array]:
    """Pieces of the sizes given along ``dim``."""
    ends = [sum(split_sizes[: i + 1]) for i in range(len(split_sizes) - 1)]
    return list(jnp.split(x, ends, axis=dim))


@lowers(aten.unbind.int)
def unbind(x: jax.Array, dim: int = 0) -> list[jax.Array]:
    """Every index of ``dim``."""
    return [select(x, dim, i) for i in range(x.shape[dim])]


@lowers(aten.flip.default)
def flip(x: jax.Array, dims: Sizes) -> jax.Array:
    """The named dimensions backwards."""
    return jnp.flip(x, tuple(dims)) if x.ndim else x


@lowers(aten.repeat.default)
def repeat(x: jax.Array, repeats: Sizes) -> jax.Array:
    """The array laid side by side."""
    return jnp.tile(x, tuple(repeats))


@lowers(aten.roll.default)
def roll(x: jax.Array, shifts: Sizes, dims: Sizes = ()) -> jax.Array:
    """Elements moved round."""
    return jnp.roll(x, tuple(shifts), tuple(dims)) if dims else jnp.roll(x, shifts[0])


@lowers(aten.constant_pad_nd.default)
def constant_pad(x: jax.Array, pad: Sizes, value: Any = 0) -> jax.Array:
    """Constants round the last dimensions, innermost pair first; a negative pad cuts."""
    config = [(0, 0, 0)] * (x.ndim - len(pad) // 2)
    config += [(pad[2 * i], pad[2 * i + 1], 0) for i in range(len(pad) // 2 - 1, -1, -1)]
    return lax.pad(x, jnp.asarray(value, x.dtype), config)


def _triangle(x: jax.Array, keep: Any) -> jax.Array:
    rows = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 2)
    columns = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    return jnp.where(keep(columns - rows), x, jnp.zeros((), x.dtype))


@lowers(aten.tril.default)
def lower_triangle(x: jax.Array, diagonal: int = 0) -> jax.Array:
    """What lies on and below a diagonal."""
    return _triangle(x, lambda offset: offset <= diagonal)


@lowers(aten.triu.default)
def upper_triangle(x: jax.Array, diagonal: int = 0) -> jax.Array:
    """What lies on and above a diagonal."""
    return _triangle(x, lambda offset: offset >= diagonal)


def _size(x: jax.Array, dim: int) -> int:
    return x.shape[dim]


# Graphs over symbolic sizes ask for them; a program knows them as numbers.
LATE["aten.sym_size.int"] = Lowering(_size)
LATE["aten.sym_numel.default"] = Lowering(lambda x: x.size)
