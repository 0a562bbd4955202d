"""Reading and writing a buffer through a tensor's sizes, strides and offset, inside a traced program.

A view costs nothing when it is made. Where it is used, the read becomes part of the op's own
program: slices, transposes and broadcasts that XLA fuses.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from backend.embedded.buffer import is_dense
from backend.embedded.dtype import to_jax
from backend.embedded.errors import MemoryOverlaps


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies in its buffer: ``size`` and ``stride`` in elements of ``dtype``, and ``offset``."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: np.dtype

    def covers(self, buffer: jax.Array | jax.ShapeDtypeStruct) -> bool:
        """Whether reading through this layout gives ``buffer`` itself."""
        return (
            self.size == tuple(buffer.shape)
            and self.offset == 0
            and self.dtype == buffer.dtype
            and is_dense(self.size, self.stride)
        )

    def seen(self) -> jax.ShapeDtypeStruct:
        """The shape and dtype of what is read through this layout."""
        return jax.ShapeDtypeStruct(self.size, self.dtype)


def layout_of(tensor: torch.Tensor) -> Layout:
    """How ``tensor`` lies in its buffer."""
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), to_jax(tensor.dtype))


@dataclasses.dataclass(frozen=True, slots=True)
class _Box:
    """A view as a box cut from the flat buffer: reshape to ``grid``, slice, permute, reshape, broadcast.

    ``grid`` may reach past the buffer's end: it is padded to ``math.prod(grid)`` elements.
    """

    grid: tuple[int, ...]
    start: tuple[int, ...]
    extent: tuple[int, ...]
    permutation: tuple[int, ...]  # of the extents, to the view's order
    kept: tuple[int, ...]  # the view's sizes, 1 where it is broadcast


def _box(layout: Layout, count: int) -> _Box | None:
    """The box that ``layout`` cuts from ``count`` elements, None where the view is no box."""
    axes = [i for i, (n, s) in enumerate(zip(layout.size, layout.stride, strict=True)) if n != 1 and s != 0]
    order = sorted(axes, key=lambda i: (-layout.stride[i], i))
    strides = [layout.stride[i] for i in order] + [1]
    if any(outer % inner for outer, inner in itertools.pairwise(strides)):
        return None
    if any(outer == inner for outer, inner in itertools.pairwise(strides[:-1])):
        return None
    start, rest = [], layout.offset
    for stride in strides:
        start.append(rest // stride)
        rest %= stride
    extent = [layout.size[i] for i in order] + [1]
    # Each grid dimension is as long as the strides leave room for; the outermost takes what is left.
    grid = [max(-(-count // strides[0]), start[0] + extent[0])]
    grid += [outer // inner for outer, inner in itertools.pairwise(strides)]
    if any(s + e > g for s, e, g in zip(start, extent, grid, strict=True)):
        return None
    place = {axis: position for position, axis in enumerate(order)}
    return _Box(
        grid=tuple(grid),
        start=tuple(start),
        extent=tuple(extent),
        permutation=(*(place[i] for i in axes), len(order)),
        kept=tuple(n if i in place else 1 for i, n in enumerate(layout.size)),
    )


def _indices(layout: Layout) -> jax.Array:
    """The flat index of every element of the view, computed in the program rather than stored in it."""
    index = jnp.full(layout.size, layout.offset, jnp.int64)
    for axis, stride in enumerate(layout.stride):
        index = index + lax.broadcasted_iota(jnp.int64, layout.size, axis) * stride
    return index


def _flat(buffer: jax.Array, dtype: np.dtype) -> jax.Array:
    """The buffer's memory as a vector of ``dtype``: ``Tensor.view(dtype)``."""
    flat = buffer.reshape(-1)
    if flat.dtype == dtype:
        return flat
    complex_to_real = jnp.issubdtype(flat.dtype, jnp.complexfloating)
    if complex_to_real and flat.real.dtype == dtype:
        return jnp.stack([flat.real, flat.imag], axis=-1).reshape(-1)
    if jnp.issubdtype(dtype, jnp.complexfloating) and not complex_to_real:
        return lax.complex(flat[0::2], flat[1::2])
    ratio = flat.dtype.itemsize / np.dtype(dtype).itemsize
    if ratio < 1:
        flat = flat.reshape(-1, round(1 / ratio))
    return lax.bitcast_convert_type(flat, dtype).reshape(-1)


def _padded(flat: jax.Array, grid: tuple[int, ...]) -> jax.Array:
    return jnp.pad(flat, (0, math.prod(grid) - flat.shape[0])).reshape(grid)


def read(buffer: jax.Array, layout: Layout) -> jax.Array:
    """The values that ``layout`` sees, an array of shape ``layout.size``."""
    if layout.covers(buffer):
        return buffer
    if 0 in layout.size:
        return jnp.zeros(layout.size, layout.dtype)
    flat = _flat(buffer, layout.dtype)
    if math.prod(layout.size) == flat.shape[0] and layout.offset == 0 and is_dense(layout.size, layout.stride):
        return flat.reshape(layout.size)
    box = _box(layout, flat.shape[0])
    if box is None:
        return flat[_indices(layout)]
    end = [s + e for s, e in zip(box.start, box.extent, strict=True)]
    cut = lax.slice(_padded(flat, box.grid), box.start, end)
    return jnp.broadcast_to(cut.transpose(box.permutation).reshape(box.kept), layout.size)


def write(buffer: jax.Array, layout: Layout, value: jax.Array) -> jax.Array:
    """``buffer`` with ``value``, of shape ``layout.size``, put where ``layout`` sees it."""
    value = value.astype(layout.dtype)
    if layout.covers(buffer):
        return value
    if 0 in layout.size:
        return buffer
    flat = _flat(buffer, layout.dtype)
    count = flat.shape[0]
    box = _box(layout, count)
    if box is None or 0 in layout.stride:
        flat = flat.at[_indices(layout)].set(value)
    else:
        ordered = value.reshape([box.extent[p] for p in box.permutation])
        cut = ordered.transpose(np.argsort(box.permutation))
        flat = lax.dynamic_update_slice(_padded(flat, box.grid), cut, box.start).reshape(-1)[:count]
    return _flat(flat, buffer.dtype).reshape(buffer.shape)


@functools.lru_cache(maxsize=4096)
def memory_order(size: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...] | None:
    """The permutation that puts a dense view's dimensions in memory order, None where the view has gaps.

    ``value.transpose(order)``, row-major, is then the storage of a tensor of ``size`` and ``stride``.
    """
    order = tuple(sorted(range(len(size)), key=lambda i: (-stride[i], size[i] == 1, i)))
    if is_dense(tuple(size[i] for i in order), tuple(stride[i] for i in order)):
        return order
    return None


def refuse_overlap(op: torch._ops.OpOverload, target: torch.Tensor | None) -> None:
    """Refuse to write where two elements share memory for certain: a broadcast dimension (at::has_internal_overlap).

    PyTorch still lets ``index_put_`` and ``masked_fill_`` do it, and warns; what is read back then depends on the
    order of the writes, which a device does not promise.

    Raises:
        MemoryOverlaps: they do.
    """
    if target is None or not target.numel():
        return
    if any(n > 1 and s == 0 for n, s in zip(target.shape, target.stride(), strict=True)):
        raise MemoryOverlaps(op)


def fills_storage(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is all of its storage, without gaps and in whatever order: a write needs no base."""
    if tensor.storage_offset() or 0 in tensor.shape:
        return False
    storage = tensor.untyped_storage()
    try:
        form = storage.buffer.form
        held = math.prod(form.shape) * form.dtype.itemsize
    except AttributeError:
        held = storage.nbytes()
    if tensor.numel() * tensor.element_size() != held:
        return False
    return memory_order(tuple(tensor.shape), tensor.stride()) is not None
