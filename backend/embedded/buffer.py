"""The values behind a storage: a ``jax.Array`` that hangs on torch's own storage object.

Every tensor that shares a storage shares its :class:`Buffer`; an in-place op rebinds the buffer's
array, so that all of them see it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import jax
import numpy as np
import torch

from backend.embedded.dtype import TO_TORCH, to_jax

_create = torch._C._acc.create_empty_tensor
_set_storage = torch.ops.aten.set_.source_Storage_storage_offset
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)


class _Pending:
    """Weak references to every buffer given values since the last synchronise, each once."""

    __slots__ = ("last", "limit", "references", "round")

    def __init__(self) -> None:
        self.last: Sequence[jax.Array] = ()
        self.references: list[weakref.ref[Buffer]] = []
        self.round = 0
        self.limit = 4096

    def prune(self) -> None:
        """Drop the dead; the limit doubles with the living, so that the cost a buffer stays constant."""
        self.references = [ref for ref in self.references if ref() is not None]
        self.limit = max(4096, 2 * len(self.references))

    def take(self) -> list[jax.Array]:
        """The values of the living, and start again."""
        arrays = [buffer.array for ref in self.references if (buffer := ref()) is not None]
        self.references, self.round = [], self.round + 1
        return arrays


_pending = _Pending()


class Buffer:
    """A storage's values: ``array`` in the shape in which it was made; the layout is the tensor's."""

    __slots__ = ("__weakref__", "_round", "array")

    def __init__(self, array: jax.Array) -> None:
        self.array = array
        self._round = _pending.round
        references = _pending.references
        references.append(weakref.ref(self))
        if len(references) > _pending.limit:
            _pending.prune()

    def rebind(self, array: jax.Array) -> None:
        """Take new values."""
        self.array = array
        if self._round != _pending.round:
            self._round = _pending.round
            _pending.references.append(weakref.ref(self))


def is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether ``stride`` is the row-major stride of ``shape`` (strides of length-1 dimensions are free)."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True


def wrap(array: jax.Array) -> torch.Tensor:
    """A new row-major tensor over ``array``."""
    tensor = _create(array.shape, TO_TORCH[array.dtype])
    tensor.untyped_storage().buffer = Buffer(array)
    return tensor


def wrap_strided(array: jax.Array, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """A new tensor of ``size`` and ``stride`` over ``array``, which holds its elements in memory order."""
    tensor = _create((0,), TO_TORCH[array.dtype])
    storage = tensor.untyped_storage()
    _set_storage.redispatch(_META, tensor, storage, 0, size, stride)
    storage.buffer = Buffer(array)
    return tensor


def size_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Tell torch how many bytes the storage holds: it is born with none, and ``as_strided`` looks."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0 and tensor.numel():
        _set_storage.redispatch(_META, tensor, storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return tensor


def buffer_of(tensor: torch.Tensor) -> Buffer:
    """The buffer behind a device tensor; uninitialised memory becomes zeros when it is first read."""
    storage = tensor.untyped_storage()
    try:
        return storage.buffer  # type: ignore[no-any-return]
    except AttributeError:
        pass
    if tensor.device.type != "pjrt":
        raise TypeError(f"a tensor on {tensor.device} has no buffer")
    dtype = to_jax(tensor.dtype)
    count = storage.nbytes() // tensor.element_size() or tensor.numel()
    shape = tuple(tensor.shape)
    if tensor.numel() != count or not is_dense(shape, tensor.stride()):
        shape = (count,)
    storage.buffer = buffer = Buffer(jax.device_put(np.zeros(shape, dtype)))
    return buffer


def rebind(tensor: torch.Tensor, array: jax.Array) -> None:
    """Give the storage behind ``tensor`` new values."""
    storage = tensor.untyped_storage()
    try:
        storage.buffer.rebind(array)
    except AttributeError:
        storage.buffer = Buffer(array)


def is_whole(tensor: torch.Tensor, array: jax.Array) -> bool:
    """Whether ``tensor`` is all of ``array``, in the same shape and row-major."""
    return (
        tensor.shape == array.shape
        and tensor.is_contiguous()
        and tensor.storage_offset() == 0
        and TO_TORCH[array.dtype] is tensor.dtype
    )


def synchronize() -> None:
    """Return once the values of every live buffer are there, and the last launch is done.

    Work whose results nobody holds is waited for by way of the last launch: a device runs its
    programs in order.
    """
    jax.block_until_ready((_pending.take(), _pending.last))
    _pending.last = ()


def launched(outputs: Sequence[jax.Array]) -> None:
    """Note the outputs of the latest launch."""
    _pending.last = outputs
