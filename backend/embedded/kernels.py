"""The ops that are about storage rather than values: allocating, viewing, copying, reading to the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch

from backend.embedded.buffer import buffer_of, is_whole, put, rebind, size_storage, wrap
from backend.embedded.conjugation import resolved
from backend.embedded.dispatch import Op
from backend.embedded.dtype import from_numpy, to_jax, to_numpy
from backend.embedded.errors import DevicesDiffer, refuse_index
from backend.embedded.layout import fills_storage, refuse_overlap
from backend.embedded.number import number_array
from backend.embedded.shadow import on_device, on_host

aten = torch.ops.aten
Tensor = torch.Tensor
_create = torch._C._acc.create_empty_tensor
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_set_strided = aten.set_.source_Storage_storage_offset

#: Kernels by the op they implement.
KERNELS: dict[torch._ops.OpOverload, Callable[..., Any]] = {}


def kernel(*ops: torch._ops.OpOverload) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated function as the kernel of ``ops``."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            KERNELS[op] = function
        return function

    return enter


# -- allocating ---------------------------------------------------------------------------------------
@kernel(aten.empty.memory_format)
def empty(
    size: Sequence[int], *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, memory_format: torch.memory_format | None = None,
) -> Tensor:  # fmt: skip
    """Uninitialised memory; nothing is allocated before something is written."""
    dtype = dtype or torch.get_default_dtype()
    to_jax(dtype)  # refuse here what cannot be held
    if device is not None:
        refuse_index(device.index)
    if memory_format in (None, torch.contiguous_format, torch.preserve_format):
        return size_storage(_create(tuple(size), dtype))
    stride = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format).stride()
    return empty_strided(size, stride, dtype=dtype)


@kernel(aten.empty_strided.default)
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """Uninitialised memory under given strides."""
    dtype = dtype or torch.get_default_dtype()
    to_jax(dtype)
    if device is not None:
        refuse_index(device.index)
    tensor = _create((0,), dtype)
    _set_strided.redispatch(_META, tensor, tensor.untyped_storage(), 0, size, stride)
    return tensor


@kernel(aten._efficientzerotensor.default)
def zero_tensor(size: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """Zeros: the tangent of what does not move."""
    return torch.zeros(size, dtype=dtype, device="pjrt")


# -- viewing: torch's own CPU kernels for these touch sizes and strides only ---------------------------
@kernel(aten.as_strided.default)
def as_strided(x: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A strided window on the storage."""
    return aten.as_strided.default.redispatch(_CPU, size_storage(x), size, stride, storage_offset)


@kernel(aten.as_strided_.default)
def as_strided_in_place(x: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """``x`` becomes another window on its storage."""
    offset = x.storage_offset() if storage_offset is None else storage_offset
    return set_storage(size_storage(x), x.untyped_storage(), offset, size, stride)


@kernel(aten.view.default)
def view(x: Tensor, size: Any) -> Tensor:
    """The same elements in another shape."""
    return aten.view.default.redispatch(_CPU, x, size)


@kernel(aten._reshape_alias.default)
def reshape_alias(x: Tensor, size: Any, stride: Any) -> Tensor:
    """A view whose strides are worked out already."""
    return as_strided(x, size, stride, x.storage_offset())


@kernel(aten.unfold.default)
def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along a dimension."""
    return aten.unfold.default.redispatch(_CPU, size_storage(x), dimension, size, step)


@kernel(aten.view_as_real.default)
def view_as_real(x: Tensor) -> Tensor:
    """Complex numbers as pairs, (..., 2)."""
    return aten.view_as_real.default.redispatch(_CPU, size_storage(x))


@kernel(aten.view_as_complex.default)
def view_as_complex(x: Tensor) -> Tensor:
    """Pairs, (..., 2), as complex numbers."""
    return aten.view_as_complex.default.redispatch(_CPU, size_storage(x))


@kernel(aten.set_.source_Storage_storage_offset)
def set_storage(x: Tensor, source: Any, storage_offset: int, size: Any, stride: Any = ()) -> Tensor:
    """``x`` becomes a window on ``source``."""
    if getattr(source, "bytes_only", False):
        # Bytes from a file: the first tensor over them says what they are.
        source.buffer.array = on_device(on_host(source.buffer.array).view(to_jax(x.dtype)))
        source.bytes_only = False
    return _set_strided.redispatch(_META, x, source, storage_offset, size, stride)


@kernel(aten.set_.source_Storage)
def set_whole_storage(x: Tensor, source: Any) -> Tensor:
    """``x`` becomes all of ``source``."""
    return set_storage(x, source, 0, (source.nbytes() // x.element_size(),), (1,))


@kernel(aten.set_.source_Tensor)
def set_tensor(x: Tensor, source: Tensor) -> Tensor:
    """``x`` becomes what ``source`` is."""
    size_storage(source)
    return set_storage(x, source.untyped_storage(), source.storage_offset(), source.shape, source.stride())


@kernel(aten._new_zeros_with_same_feature_meta.default)
def zeros_like_base(x: Tensor, base: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Zeros that lie in memory as ``base`` does: a tangent before it is filled."""
    op, keywords = aten._new_zeros_with_same_feature_meta.default, {"self_num_batch_dims": self_num_batch_dims}
    return op.redispatch(_CPU, size_storage(x), size_storage(base), **keywords)


@kernel(aten._has_same_storage_numel.default)
def has_same_storage(x: Tensor, other: Tensor) -> bool:
    """Whether as many elements lie behind both."""
    sizes = [size_storage(one).untyped_storage().nbytes() // one.element_size() for one in (x, other)]
    return sizes[0] == sizes[1]


@kernel(aten._to_copy.default)
def to_copy(x: Tensor, *, device: Any = None, pin_memory: Any = None, non_blocking: bool = False, **how: Any) -> Tensor:
    """A copy elsewhere or in another dtype. PyTorch would pin the host's side of an asynchronous one: jax does not."""
    waits = device is not None and torch.device(device).type == "cpu"
    return aten._to_copy.default.redispatch(_CPU, x, device=device, non_blocking=non_blocking and not waits, **how)


@kernel(aten.resize_.default)
def resize(x: Tensor, size: Sequence[int], *, memory_format: Any = None) -> Tensor:
    """Another size, row-major; the elements stay in memory order, and memory grows where it must."""
    if tuple(x.shape) == tuple(size):
        return x
    needed = math.prod(size) + x.storage_offset()
    storage = x.untyped_storage()
    held = getattr(storage, "buffer", None)
    if held is not None and math.prod(held.form.shape) < needed:
        grown = np.zeros((needed,), held.array.dtype)
        grown[: held.array.size] = on_host(held.array).reshape(-1)
        held.array = on_device(grown)
    stride = [math.prod(size[i + 1 :]) for i in range(len(size))]
    return set_storage(x, storage, x.storage_offset(), size, stride)


# -- copying ------------------------------------------------------------------------------------------
_alias = Op(aten.alias.default)
_clone = Op(aten.clone.default)
_copy = Op(aten.expand.default)


def dense(x: Tensor) -> jax.Array:
    """The values of ``x`` as an array of its shape, read through its layout where it is a view."""
    array = buffer_of(x).array
    if is_whole(x, array):
        return array
    return buffer_of(_clone((x,), {"memory_format": torch.contiguous_format})).array


@kernel(aten._copy_from.default)
def copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """``target`` takes the values of ``source``: host to device, device to host, or on the device."""
    refuse_overlap(aten.copy_.default, target)
    source = resolved(source)
    if source.device.type == "cpu":
        values = source.to(target.dtype).expand(target.shape)
        array = on_device(to_numpy(values))
        if fills_storage(target) and target.is_contiguous():
            rebind(target, array)
        else:
            _alias((wrap(array),), {}, (target,))
    elif target.device.type == "cpu":
        target.copy_(from_numpy(on_host(dense(source))))
    elif source.device.type == target.device.type:
        _copy((source, list(target.shape)), {}, (target,))
    else:
        raise DevicesDiffer(aten._copy_from.default, target.device)
    return target


@kernel(aten._copy_from_and_resize.default)
def copy_from_and_resize(source: Tensor, target: Tensor) -> Tensor:
    """:func:`copy_from`, with the target made to fit."""
    if target.shape != source.shape:
        target.resize_(source.shape)
    return copy_from(source, target)


@kernel(aten._local_scalar_dense.default)
def local_scalar(x: Tensor) -> Any:
    """A tensor of one element as a Python number: waits for it."""
    return on_host(dense(x)).reshape(()).item()


@kernel(aten.equal.default)
def equal(a: Tensor, b: Tensor) -> bool:
    """Whether shape and values agree: waits for them."""
    return a.shape == b.shape and bool((a == b).all().item())


# -- writing ------------------------------------------------------------------------------------------
@kernel(aten.fill_.Scalar)
def fill(x: Tensor, value: Any) -> Tensor:
    """A number everywhere. The number is an input: another one makes no new program."""
    if x.ndim == 0 and fills_storage(x):
        # The gradient that backward() starts from: the number's own array, and no launch.
        rebind(x, number_array(value, to_jax(x.dtype)))
        return x
    return fill_tensor(x, wrap(number_array(value, to_jax(x.dtype)))) if x.numel() else x


@kernel(aten.zero_.default)
def zero(x: Tensor) -> Tensor:
    """Zeros everywhere."""
    return fill(x, 0)


@kernel(aten.fill_.Tensor)
def fill_tensor(x: Tensor, value: Tensor) -> Tensor:
    """A 0-d tensor's value everywhere."""
    if value.device.type == "cpu":
        return fill(x, value.item())
    if fills_storage(x) and x.is_contiguous() and value.dtype is x.dtype:
        # Nothing that was there is read: the array need not exist before.
        made = buffer_of(_copy((value, list(x.shape)), {}))
        put(x, made.value, made.form)
    else:
        _copy((value, list(x.shape)), {}, (x,))
    return x


def _factory_out(op: torch._ops.OpOverload) -> Callable[..., Tensor]:
    make = Op(op)

    def run(*args: Any, out: Tensor) -> Tensor:
        result = make(
            args, {"dtype": out.dtype, "device": out.device}
        )  # else PyTorch makes the values to see the shape
        if out.shape != result.shape:
            out.resize_(result.shape)
        if out.numel():
            _alias((result,), {}, (out,))
        return out

    return run


# The out= forms of these take no dtype where the others do: it is that of `out`.
for _out, _op in {
    aten.arange.start_out: aten.arange.start_step,
    aten.linspace.out: aten.linspace.default,
    aten.eye.out: aten.eye.default,
    aten.eye.m_out: aten.eye.m,
}.items():
    KERNELS[_out] = _factory_out(_op)
