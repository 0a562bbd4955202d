"""The values behind a storage: a ``jax.Array`` that hangs on torch's own storage object.

Every tensor that shares a storage shares its :class:`Buffer`; an in-place op rebinds the buffer's
array, so that all of them see it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch

from backend.embedded.dtype import TO_TORCH, to_jax, to_torch
from backend.embedded.shadow import zeros

create = torch._C._acc.create_empty_tensor
_set_storage = torch.ops.aten.set_.source_Storage_storage_offset
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)


class Form:
    """The shape and dtype of an array, one object for each: programs are found by it.

    ``torch_dtype`` is the dtype of a tensor that is all of such an array.
    """

    __slots__ = ("dtype", "shape", "torch_dtype")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape = shape
        self.dtype = dtype
        self.torch_dtype = to_torch(dtype)

    def struct(self) -> jax.ShapeDtypeStruct:
        """The form as jax takes it in an array's place."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype)


_forms: dict[tuple[tuple[int, ...], np.dtype], Form] = {}


def form_of(shape: tuple[int, ...], dtype: np.dtype) -> Form:
    """The one :class:`Form` of a shape and a dtype.

    Raises:
        DtypeNotSupported: torch has no such dtype.
    """
    form = _forms.get((shape, dtype))
    if form is None:
        form = _forms[shape, dtype] = Form(shape, dtype)
    return form


class Pending:
    """A value that a recorded op will have: ``array`` once the recording was launched.

    ``number`` is its place among the values of ``recording``.
    """

    __slots__ = ("array", "number", "recording")

    def __init__(self, recording: Any, number: int) -> None:
        self.array: jax.Array | None = None
        self.recording = recording
        self.number = number

    def resolve(self) -> jax.Array:
        """The array; launches what was recorded where that has not been done."""
        if self.array is None:
            self.recording.flush()
        assert self.array is not None, "a value that is held is an output of its recording"
        return self.array


class Buffer:
    """A storage's values, in the shape in which they were made (``form``); the layout is the tensor's.

    ``value`` is an array, or what stands for one in eager-fused mode. :attr:`array` is always the array.
    """

    __slots__ = ("form", "value")

    def __init__(self, value: jax.Array | Pending, form: Form) -> None:
        self.value = value
        self.form = form

    @property
    def array(self) -> jax.Array:
        """The values; launches what was recorded where they depend on it."""
        value = self.value
        if value.__class__ is Pending:
            value = self.value = value.resolve()
        return value  # type: ignore[return-value]

    @array.setter
    def array(self, array: jax.Array) -> None:
        self.value = array
        self.form = form_of(array.shape, array.dtype)


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
    return make(array, form_of(array.shape, array.dtype))


def make(value: jax.Array | Pending, form: Form) -> torch.Tensor:
    """A new row-major tensor over ``value``, of ``form``."""
    tensor = create(form.shape, form.torch_dtype)
    tensor.untyped_storage().buffer = Buffer(value, form)
    return tensor


def wrap_strided(array: jax.Array, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """A new tensor of ``size`` and ``stride`` over ``array``, which holds its elements in memory order."""
    return make_strided(array, form_of(array.shape, array.dtype), size, stride)


def make_strided(
    value: jax.Array | Pending, form: Form, size: tuple[int, ...], stride: tuple[int, ...]
) -> torch.Tensor:
    """A new tensor of ``size`` and ``stride`` over ``value``, of ``form``, which holds its elements in memory order."""
    tensor = create((0,), form.torch_dtype)
    storage = tensor.untyped_storage()
    _set_storage.redispatch(_META, tensor, storage, 0, size, stride)
    storage.buffer = Buffer(value, form)
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
    storage.buffer = buffer = Buffer(zeros(shape, dtype), form_of(shape, dtype))
    return buffer


def rebind(tensor: torch.Tensor, array: jax.Array) -> None:
    """Give the storage behind ``tensor`` new values."""
    put(tensor, array, form_of(array.shape, array.dtype))


def put(tensor: torch.Tensor, value: jax.Array | Pending, form: Form) -> None:
    """Give the storage behind ``tensor`` new values, of ``form``."""
    storage = tensor.untyped_storage()
    try:
        buffer = storage.buffer
    except AttributeError:
        storage.buffer = Buffer(value, form)
    else:
        buffer.value, buffer.form = value, form


def is_whole(tensor: torch.Tensor, array: jax.Array | Form) -> bool:
    """Whether ``tensor`` is all of ``array``, in the same shape and row-major."""
    return (
        tensor.shape == array.shape
        and tensor.is_contiguous()
        and tensor.storage_offset() == 0
        and TO_TORCH[array.dtype] is tensor.dtype
    )


class _Last:
    """The outputs of the latest launch, held until the next: what nobody else holds is waited for all the same."""

    __slots__ = ("outputs",)

    def __init__(self) -> None:
        self.outputs: Sequence[jax.Array] = ()


LAST = _Last()
_flush: Callable[[], None] | None = None


def launched(outputs: Sequence[jax.Array]) -> None:
    """Note the outputs of the latest launch."""
    LAST.outputs = outputs


def before_synchronize(flush: Callable[[], None] | None) -> None:
    """Have ``flush`` called before every wait: what has only been recorded is launched then."""
    global _flush
    _flush = flush


def synchronize() -> None:
    """Return once the values of every live array are there, and the last launch is done.

    Work whose results nobody holds is waited for by way of the last launch: a device runs its
    programs in order.
    """
    if _flush is not None:
        _flush()
    jax.block_until_ready((jax.live_arrays(), LAST.outputs))
    LAST.outputs = ()
