"""One call of one op as one traceable function: reads through views, the lowering, writes through views."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from backend.embedded.buffer import buffer_of, is_dense, is_whole, wrap, wrap_strided
from backend.embedded.decompose import decomposed, ingredients
from backend.embedded.dtype import to_jax
from backend.embedded.errors import LoweringMismatch, OpNotLowered
from backend.embedded.executable import Executable
from backend.embedded.identity import key as disk_key
from backend.embedded.identity import known
from backend.embedded.layout import Layout, memory_order, read, write
from backend.embedded.lower import TABLE
from backend.embedded.promotion import Kind as PromotionKind
from backend.embedded.promotion import Weak, compute_type, result_type
from backend.embedded.seed import GENERATOR, key_of

Targets = Sequence[torch.Tensor | None]


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimeNumber:
    """A number that reaches the program as an input: ``value`` is a Python number or a 0-d CPU tensor."""

    value: Any

    @property
    def kind(self) -> type:
        """The Python type of the number."""
        if not isinstance(self.value, torch.Tensor):
            return type(self.value)
        dtype = self.value.dtype
        if dtype.is_complex:
            return complex
        return float if dtype.is_floating_point else bool if dtype is torch.bool else int


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    """Where an input goes in the template of an op's arguments."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Input:
    """One input: an array read through ``layout``, or a number of Python type ``kind``."""

    layout: Layout | None = None
    kind: type | None = None


def layout_of(tensor: torch.Tensor) -> Layout:
    """How ``tensor`` lies in its buffer."""
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), to_jax(tensor.dtype))


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    """``function`` over every leaf of nested lists and tuples; tuples come out as lists do in a schema."""
    if isinstance(value, list | tuple):
        return [_map(v, function) for v in value]
    return function(value)


class Program:
    """One signature of one op: its executable, and what its inputs and outputs are.

    Attributes:
        numbers: ``(position, dtype)`` of each input that is a number, to be put on the device.
        random: whether a key comes first.
    """

    __slots__ = ("executable", "numbers", "outputs", "random", "single")

    def __init__(
        self, op: torch._ops.OpOverload, called: torch._ops.OpOverload, args: Sequence[Any],
        kwargs: Mapping[str, Any], targets: Targets,
    ) -> None:  # fmt: skip
        inputs: list[_Input] = []
        arrays: list[Any] = []

        def leaf(value: Any) -> Any:
            if isinstance(value, RuntimeNumber):
                inputs.append(_Input(kind=value.kind))
                arrays.append(None)
                return _Slot(len(inputs) - 1)
            if isinstance(value, torch.Tensor):
                array = buffer_of(value).array
                inputs.append(_Input(layout=None if is_whole(value, array) else layout_of(value)))
                arrays.append(array)
                return _Slot(len(inputs) - 1)
            return value

        template = [_map(a, leaf) for a in args]
        named = {k: _map(v, leaf) for k, v in kwargs.items()}
        held = _held_number_type(arrays, inputs)
        self.numbers = tuple((i, held[i]) for i, one in enumerate(inputs) if one.kind is not None)
        for i, dtype in self.numbers:
            arrays[i] = jax.ShapeDtypeStruct((), dtype)

        expected = _expected(called, args, kwargs)
        if expected is None:  # an in-place list op returns nothing
            expected = [None if t is None else to_meta(t) for t in targets]
        lowering = TABLE.get(op)
        function = lowering.function if lowering else decomposed(op, args, kwargs)
        self.random = lowering.random if lowering else torch.Tag.nondeterministic_seeded in op.tags
        self.single = not isinstance(expected, tuple | list)
        expect = [expected] if self.single else list(expected)

        places = [None if t is None else layout_of(t) for t in targets]
        bases = [buffer_of(t).array for t in targets if t is not None]
        count = len(arrays)

        def traced(*given: jax.Array) -> list[jax.Array]:
            key = None
            if self.random:
                key, given = key_of(given[0]), given[1:]
            values = [
                Weak(g, one.kind) if one.kind else g if one.layout is None else read(g, one.layout)
                for g, one in zip(given, inputs, strict=False)
            ]

            def fill(value: Any) -> Any:
                return values[value.index] if isinstance(value, _Slot) else value

            extra = {"key": key} if self.random else {}
            result = function(
                *(_map(a, fill) for a in template), **{k: _map(v, fill) for k, v in named.items()}, **extra
            )
            results = list(result) if isinstance(result, tuple | list) else [result]
            base = iter(given[count:])
            out = []
            for i, value in enumerate(results):
                if value is None or (i < len(expect) and expect[i] is None):
                    continue
                value = _conformed(op, value, expect[i])
                place = places[i] if i < len(places) else None
                if place is None:
                    out.append(_in_memory_order(value, expect[i]))
                else:
                    out.append(write(next(base), place, jnp.broadcast_to(value, place.size)))
            return out

        arguments = ([jax.ShapeDtypeStruct((3,), jnp.uint32)] if self.random else []) + arrays + bases

        def key() -> str:
            known(*((lowering.function,) if lowering else ingredients(op)))
            return disk_key("op", op, called, template, named, inputs, places, arguments, to_meta(expect))

        self.executable = Executable(traced, arguments, _name(op), key)
        self.outputs = tuple(_maker(e) for e in expect)

    def launch(self, arrays: list[Any]) -> Sequence[jax.Array]:
        """Run on ``arrays``, in which numbers are still numbers."""
        for position, dtype in self.numbers:
            arrays[position] = number_array(arrays[position], dtype)
        if self.random:
            arrays.insert(0, jax.device_put(GENERATOR.next_key()))
        return self.executable.launch(arrays)


_numbers: dict[tuple[Any, ...], jax.Array] = {}
_NUMBERS_LIMIT = 4096


def number_array(value: Any, dtype: np.dtype) -> jax.Array:
    """``value`` on the device as a 0-d array; numbers that come back (a learning rate) are kept."""
    # repr tells 0.0 from -0.0 and 1 from True, and finds a NaN again.
    key = (repr(value), dtype)
    array = _numbers.get(key)
    if array is None:
        if len(_numbers) >= _NUMBERS_LIMIT:
            _numbers.clear()
        array = _numbers[key] = jax.device_put(np.asarray(value).astype(dtype))
    return array


def _held_number_type(arrays: Sequence[Any], inputs: Sequence[_Input]) -> dict[int, np.dtype]:
    """The dtype in which each number reaches the program: the one the op computes in."""
    tensors = [
        jax.ShapeDtypeStruct(a.shape, a.dtype) if one.layout is None else one.layout.seen()
        for a, one in zip(arrays, inputs, strict=True)
        if a is not None
    ]
    held = {}
    for index, one in enumerate(inputs):
        if one.kind is None:
            continue
        promoted = result_type([*tensors, Weak(None, one.kind)])
        compute, _ = compute_type(promoted, PromotionKind.DEFAULT)
        # A list op may mix dtypes: the widest of a kind holds a number for all of them.
        mixed = len({t.dtype for t in tensors}) > 1
        held[index] = np.dtype(np.float64) if mixed and compute.is_floating_point else to_jax(compute)
    return held


def _name(op: torch._ops.OpOverload) -> str:
    name = str(op).removesuffix(".default")
    return re.sub(r"\.", "_", name)


def _conformed(op: object, value: Any, expected: Any) -> jax.Array:
    """``value`` in the dtype PyTorch says, refused in another shape."""
    array = jnp.asarray(value)
    if not isinstance(expected, torch.Tensor):
        return array
    if expected.numel() == 0 and array.size == 0:
        return jnp.zeros(tuple(expected.shape), to_jax(expected.dtype))
    if array.shape != tuple(expected.shape):
        raise LoweringMismatch(op, array.shape, tuple(expected.shape))
    return array.astype(to_jax(expected.dtype))


def _in_memory_order(value: jax.Array, expected: Any) -> jax.Array:
    """``value`` as it will lie in memory under the strides PyTorch gives the result."""
    if isinstance(expected, torch.Tensor) and not is_dense(tuple(expected.shape), expected.stride()):
        order = memory_order(tuple(expected.shape), expected.stride())
        if order is not None:
            return value.transpose(order)
    return value


def _maker(expected: Any) -> Callable[[jax.Array], torch.Tensor] | None:
    """What makes the result tensor of an output array."""
    if expected is None:
        return None
    if isinstance(expected, torch.Tensor):
        size, stride = tuple(expected.shape), tuple(expected.stride())
        if not is_dense(size, stride) and memory_order(size, stride) is not None:
            return lambda array: wrap_strided(array, size, stride)
    return wrap


def to_meta(value: Any) -> Any:
    """Arguments as PyTorch's shape functions take them."""
    if isinstance(value, RuntimeNumber):
        return value.value
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, list | tuple):
        return type(value)([to_meta(v) for v in value])
    return value


def _expected(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What PyTorch says the result is, as meta tensors: this is also its check of the arguments.

    Raises:
        OpNotLowered: PyTorch cannot say it without the values.
    """
    with torch.no_grad():
        try:
            result = op(*map(to_meta, args), **{k: to_meta(v) for k, v in kwargs.items()})
        except NotImplementedError as error:
            raise OpNotLowered(op, "its result's shape depends on values") from error
    return result
