"""One call of one op as one traceable function: reads through views, the lowering, writes through views."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from backend.embedded.buffer import Form, Pending, buffer_of, form_of, is_dense, is_whole, make, make_strided
from backend.embedded.decompose import decomposed, ingredients
from backend.embedded.dtype import to_jax
from backend.embedded.errors import LoweringMismatch
from backend.embedded.executable import Executable, Launch
from backend.embedded.identity import key as disk_key
from backend.embedded.identity import known
from backend.embedded.layout import Layout, fills_storage, layout_of, memory_order, read, refuse_overlap, write
from backend.embedded.lower import TABLE
from backend.embedded.meta import expected_of, to_meta
from backend.embedded.number import RuntimeNumber, held_number_type, number_array
from backend.embedded.promotion import Weak
from backend.embedded.seed import GENERATOR, key_of

Targets = Sequence[torch.Tensor | None]


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    """Where an input goes in the template of an op's arguments."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Input:
    """One input: an array read through ``layout``, or a number of Python type ``kind``."""

    layout: Layout | None = None
    kind: type | None = None


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    """``function`` over every leaf of nested lists and tuples; tuples come out as lists do in a schema."""
    if isinstance(value, list | tuple):
        return [_map(v, function) for v in value]
    return function(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """One result: an array of ``form``, seen through ``size`` and ``stride`` where ``stride`` is not row-major."""

    form: Form
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] | None = None

    def tensor(self, value: jax.Array | Pending) -> torch.Tensor:
        """The result tensor over ``value``."""
        if self.stride is None:
            return make(value, self.form)
        return make_strided(value, self.form, self.size, self.stride)


class Program:
    """One signature of one op: a traceable function, its executable, and what its inputs and outputs are.

    Attributes:
        function: takes and returns flat arrays: the key where it draws, then inputs, then what is written into.
        key: gives the program's name on disk.
        count: how many arrays come out.
        numbers: ``(position, dtype)`` of each input that is a number, to be put on the device.
        outputs: one for every result, None where PyTorch says None.
        plain: the form of the only output, where that output is row-major and only the op's own inputs go in.
        quick: launches a ``plain`` program that has been compiled; else None.
        random: whether a key comes first.
    """

    __slots__ = (
        "_arguments", "_donated", "_executable", "count", "function", "identity", "key", "name", "numbers", "outputs",
        "plain", "quick", "random", "single",
    )  # fmt: skip

    def __init__(
        self, op: torch._ops.OpOverload, called: torch._ops.OpOverload, args: Sequence[Any],
        kwargs: Mapping[str, Any], targets: Targets, alone: bool = False,
    ) -> None:  # fmt: skip
        inputs: list[_Input] = []
        arrays: list[Any] = []
        written: list[int] = []

        def leaf(value: Any) -> Any:
            if isinstance(value, RuntimeNumber):
                inputs.append(_Input(kind=value.kind))
                arrays.append(None)
                return _Slot(len(inputs) - 1)
            if isinstance(value, torch.Tensor):
                form = buffer_of(value).form
                inputs.append(_Input(layout=None if is_whole(value, form) else layout_of(value)))
                arrays.append(form.struct())
                if alone and any(value is target for target in targets):
                    written.append(len(arrays) - 1)
                return _Slot(len(inputs) - 1)
            return value

        template = [_map(a, leaf) for a in args]
        named = {k: _map(v, leaf) for k, v in kwargs.items()}
        operands = [
            a if one.layout is None else one.layout.seen()
            for a, one in zip(arrays, inputs, strict=True)
            if a is not None
        ]
        kinds = {i: one.kind for i, one in enumerate(inputs) if one.kind is not None}
        self.numbers = tuple(held_number_type(operands, kinds).items())
        for i, dtype in self.numbers:
            arrays[i] = jax.ShapeDtypeStruct((), dtype)

        if called._schema.is_mutable:
            for target in targets:
                refuse_overlap(called, target)
        expected = expected_of(called, args, kwargs)
        if expected is None:  # an in-place list op returns nothing
            expected = [None if t is None else to_meta(t) for t in targets]
        lowering = TABLE.get(op)
        function = lowering.function if lowering else decomposed(op, args, kwargs)
        self.random = lowering.random if lowering else torch.Tag.nondeterministic_seeded in op.tags
        self.single = not isinstance(expected, tuple | list)
        expect = [expected] if self.single else list(expected)

        places = [None if t is None else layout_of(t) for t in targets]
        bases = [None if t is None or fills_storage(t) else buffer_of(t).form for t in targets]
        given_bases = [form.struct() for form in bases if form is not None]
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
            held = iter(given[count:])
            base = [None if form is None else next(held) for form in bases]
            out = []
            for i, value in enumerate(results):
                if value is None or (i < len(expect) and expect[i] is None):
                    continue
                value = _conformed(op, value, expect[i])
                place = places[i] if i < len(places) else None
                if place is None:
                    out.append(_in_memory_order(value, expect[i]))
                elif bases[i] is None:
                    whole = jnp.broadcast_to(value, place.size).astype(place.dtype)
                    out.append(_in_memory_order(whole, place))
                else:
                    out.append(write(base[i], place, jnp.broadcast_to(value, place.size)))
            return out

        self.function = traced
        self.name = _name(op)
        self.identity = next(_identities)
        self._arguments = ([_KEY] if self.random else []) + arrays + given_bases
        # In-place: the memory of what is overwritten is the result's.
        self._donated = [position + self.random for position in written]
        self._executable: Executable | None = None

        def key() -> str:
            known(*((lowering.function,) if lowering else ingredients(op)))
            held = [None if form is None else form.struct() for form in bases]
            return disk_key(
                "op", op, called, template, named, inputs, places, held, self._arguments, to_meta(expect), self._donated
            )

        self.key = key
        self.quick: Launch | None = None
        self.outputs = self._results(expect, places, bases)
        self.count = sum(output is not None for output in self.outputs)
        only = self.outputs[0] if self.single and not self.random and not given_bases else None
        self.plain = only.form if only is not None and only.stride is None else None

    def _results(
        self, expect: Sequence[Any], places: Sequence[Layout | None], bases: Sequence[Form | None]
    ) -> tuple[Output | None, ...]:
        if not all(e is None or isinstance(e, torch.Tensor) for e in expect):
            # A number where an op promises one: only the lowering says as what it comes out.
            found = [Output(form_of(a.shape, a.dtype)) for a in jax.eval_shape(self.function, *self._arguments)]
            made = iter(found)
            return tuple(None if e is None else next(made) for e in expect)
        outputs: list[Output | None] = []
        for i, one in enumerate(expect):
            if one is None:
                outputs.append(None)
            elif i < len(places) and (place := places[i]) is not None:
                base = bases[i]
                outputs.append(_output(place) if base is None else Output(base))
            else:
                outputs.append(_output(layout_of(one)))
        return tuple(outputs)

    def check(self) -> None:
        """Trace the function once, so that what it refuses is refused now.

        Raises:
            OpNotLowered: the lowering or the decomposition cannot do this.
        """
        jax.eval_shape(self.function, *self._arguments)

    @property
    def executable(self) -> Executable:
        """The program compiled; compiles at its first use."""
        if self._executable is None:
            self._executable = Executable(self.function, self._arguments, self.name, self.key, donated=self._donated)
            self.quick = self._executable.launch if self.plain is not None else None
        return self._executable

    def launch(self, arrays: list[Any]) -> Sequence[jax.Array]:
        """Run on ``arrays``, in which numbers are still numbers."""
        for position, dtype in self.numbers:
            arrays[position] = number_array(arrays[position], dtype)
        if self.random:
            arrays.insert(0, jax.device_put(GENERATOR.next_key()))
        return self.executable.launch(arrays)


_identities = itertools.count()
_KEY = jax.ShapeDtypeStruct((3,), jnp.uint32)


def _output(layout: Layout) -> Output:
    """A result of its own, in memory order under the strides of ``layout``."""
    if not is_dense(layout.size, layout.stride):
        order = memory_order(layout.size, layout.stride)
        if order is not None:
            form = form_of(tuple(layout.size[i] for i in order), layout.dtype)
            return Output(form, layout.size, layout.stride)
    return Output(form_of(layout.size, layout.dtype))


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


def _in_memory_order(value: jax.Array, layout: Any) -> jax.Array:
    """``value`` as it lies in memory under the strides of a tensor or a layout."""
    if isinstance(layout, torch.Tensor):
        layout = layout_of(layout)
    if isinstance(layout, Layout) and not is_dense(layout.size, layout.stride):
        order = memory_order(layout.size, layout.stride)
        if order is not None:
            return value.transpose(order)
    return value
