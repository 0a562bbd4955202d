"""Eager mode: an op call to a launch, by way of its signature.

This is the path that every op of an eager step takes. What a signature holds is exactly what a
program depends on: each tensor's shape, dtype and layout, and every argument that is compiled in.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from backend.embedded.blocking import launch_and_wait
from backend.embedded.buffer import LAST, Buffer, Pending, buffer_of, create, is_whole, put
from backend.embedded.cache import COUNTERS
from backend.embedded.layout import fills_storage
from backend.embedded.lower import TABLE
from backend.embedded.mode import MODE
from backend.embedded.number import RuntimeNumber, number_array
from backend.embedded.program import Program, Targets
from backend.embedded.signature import FLOATS, NUMBERS, is_free, sign

Tensor = torch.Tensor

#: What stands in a signature for a target that is written as a whole, and for targets whose values nothing else holds.
_FILLED, _ALONE = object(), object()


def _is_alone(target: Tensor) -> bool:
    """Whether ``target``, which is among the inputs of a call, is all that holds its values.

    Its buffer and the list of inputs hold them, and the look itself.
    """
    try:
        return sys.getrefcount(target.untyped_storage().buffer.value) <= 3
    except AttributeError:
        return False


def _settled(args: Sequence[Any]) -> bool:
    """Whether an earlier mode had left arguments pending, which are settled now."""
    buffers = [buffer_of(a) for a in args if isinstance(a, Tensor) and a.device.type == "pjrt"]
    pending = [b for b in buffers if b.value.__class__ is Pending]
    for buffer in pending:
        buffer.value = buffer.array
    return bool(pending)


class Op:
    """One ATen op and the programs it has been compiled to, by signature.

    ``op`` is the functional op whose lowering is used; ``called`` is what the user called (``add_``
    for ``add``), whose shape function checks the arguments.
    """

    __slots__ = ("called", "freedom", "mixes", "op", "programs")

    def __init__(self, op: torch._ops.OpOverload, called: torch._ops.OpOverload | None = None) -> None:
        self.op = op
        self.called = called or op
        lowering = TABLE.get(op)
        self.mixes = lowering.mixes if lowering else True
        #: By place and by name: which numbers reach the program as inputs.
        self.freedom: dict[int | str, int] = {}
        for i, argument in enumerate(op._schema.arguments):
            if lowering and argument.name in lowering.runtime:
                self.freedom[i] = self.freedom[argument.name] = FLOATS
            elif self.mixes and "Tensor" in str(argument.type):
                # `x + 2.5` comes as a number where the schema has a tensor.
                self.freedom[i] = self.freedom[argument.name] = NUMBERS
        self.programs: dict[tuple[Any, ...], Program] = {}

    def functional(self, *args: Any, **kwargs: Any) -> Any:
        """Run on device tensors, by the way that most calls take: one result, nothing written."""
        if len(args) == 2 and not kwargs:
            # Two whole tensors, the most frequent call: a look-up by their forms, and nothing else.
            x, y = args
            if isinstance(x, Tensor) and isinstance(y, Tensor):
                try:
                    a, b = x.untyped_storage().buffer, y.untyped_storage().buffer
                    program = self.programs.get((a.form, b.form))
                except AttributeError:
                    program = None
                if (
                    program is not None
                    and (quick := program.quick) is not None
                    and MODE.direct
                    and x.shape == a.form.shape
                    and y.shape == b.form.shape
                    and x.dtype is a.form.torch_dtype
                    and y.dtype is b.form.torch_dtype
                    and x.is_contiguous()
                    and y.is_contiguous()
                    and not x.storage_offset()
                    and not y.storage_offset()
                    and a.value.__class__ is not Pending
                    and b.value.__class__ is not Pending
                ):
                    arrays = quick([a.value, b.value])
                    COUNTERS.requests += 1
                    COUNTERS.launches += 1
                    LAST.outputs = arrays
                    form = program.plain
                    tensor = create(form.shape, form.torch_dtype)
                    tensor.untyped_storage().buffer = Buffer(arrays[0], form)
                    return tensor
        key, inputs = self._signature(args, kwargs)
        signature = tuple(key)
        COUNTERS.requests += 1
        program = self.programs.get(signature)
        if program is None:
            program = self._compile(signature, args, kwargs, ())
        quick = program.quick
        if quick is None or not MODE.direct:
            return self._run(program, inputs, ())
        for position, dtype in program.numbers:
            inputs[position] = number_array(inputs[position], dtype)
        try:
            arrays = quick(inputs)
        except TypeError:
            if not _settled(args):
                raise
            return self.functional(*args, **kwargs)
        COUNTERS.launches += 1
        LAST.outputs = arrays
        form = program.plain
        tensor = create(form.shape, form.torch_dtype)
        tensor.untyped_storage().buffer = Buffer(arrays[0], form)
        return tensor

    def in_place(self, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Run on device tensors, and give ``target`` the result; the quick way is for one that is all of its buffer."""
        if not target.numel():
            return target
        held = getattr(target.untyped_storage(), "buffer", None)
        if held is None or not MODE.direct or not is_whole(target, held.form):
            self((target, *args), kwargs, (target,))
            return target
        given = (target, *args)
        key, inputs = self._signature(given, kwargs)
        LAST.outputs = ()
        # The buffer and the list of inputs hold the values, and the look itself.
        alone = sys.getrefcount(held.value) <= 3
        key.append(_ALONE if alone else _FILLED)
        signature = tuple(key)
        COUNTERS.requests += 1
        program = self.programs.get(signature)
        if program is None:
            program = self._compile(signature, given, kwargs, (target,), alone)
        quick = program.quick
        if quick is None:
            self._run(program, inputs, (target,))
            return target
        for position, dtype in program.numbers:
            inputs[position] = number_array(inputs[position], dtype)
        try:
            arrays = quick(inputs)
        except TypeError:
            if not _settled(given):
                raise
            return self.in_place(target, *args, **kwargs)
        COUNTERS.launches += 1
        LAST.outputs = arrays
        held.value = arrays[0]
        return target

    def _signature(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        """What a program depends on, and what it takes: :meth:`_sign` over the arguments, the common case at once."""
        key: list[Any] = []
        inputs: list[Any] = []
        for i, value in enumerate(args):
            if isinstance(value, Tensor):
                try:
                    buffer = value.untyped_storage().buffer
                except AttributeError:
                    sign(self, value, 0, key, inputs)
                    continue
                form = buffer.form
                key.append(form)
                inputs.append(buffer.value)
                if (
                    value.shape != form.shape
                    or value.dtype is not form.torch_dtype
                    or not value.is_contiguous()
                    or value.storage_offset()
                ):
                    key.append((value.shape, value.stride(), value.storage_offset(), value.dtype))
            else:
                sign(self, value, self.freedom.get(i, 0), key, inputs)
        for name, value in kwargs.items():
            key.append(name)
            sign(self, value, self.freedom.get(name, 0), key, inputs)
        return key, inputs

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Targets = ()) -> Any:
        """Run on device tensors. Results for which there is a target go there, and come back as None."""
        key, inputs = self._signature(args, kwargs)
        alone = bool(targets) and MODE.recording is None
        if alone:
            LAST.outputs = ()  # what the launch before gave is not held on its account
        for target in targets:
            if target is None:
                key.append(None)
            elif fills_storage(target):
                alone = alone and _is_alone(target)
                key.append(_FILLED)  # what was there is not read: the program only depends on the target's layout
                key.append((target.shape, target.stride(), target.dtype))
            else:
                alone = False
                sign(self, target, 0, key, inputs)
        if alone:
            key.append(_ALONE)
        signature = tuple(key)
        COUNTERS.requests += 1
        program = self.programs.get(signature)
        if program is None:
            program = self._compile(signature, args, kwargs, targets, alone)
        return self._run(program, inputs, targets)

    def _run(self, program: Program, inputs: list[Any], targets: Targets) -> Any:
        values: Sequence[Any]
        if MODE.recording is not None:
            values = MODE.recording.record(program, inputs)
        else:
            # Values that an earlier mode left pending.
            inputs = [v.resolve() if v.__class__ is Pending else v for v in inputs]
            if MODE.blocking:
                values = launch_and_wait(self.called, lambda: program.launch(inputs))
            else:
                values = program.launch(inputs)
            COUNTERS.launches += 1
            LAST.outputs = values
        results = []
        found = iter(values)
        for i, output in enumerate(program.outputs):
            if output is None:
                results.append(None)
            elif i < len(targets) and (target := targets[i]) is not None:
                put(target, next(found), output.form)
                results.append(None)
            else:
                results.append(output.tensor(next(found)))
        return results[0] if program.single else tuple(results)

    def _compile(
        self, signature: tuple[Any, ...], args: Sequence[Any], kwargs: Mapping[str, Any], targets: Targets,
        alone: bool = False,
    ) -> Program:  # fmt: skip
        def number(value: Any, freedom: int) -> Any:
            if isinstance(value, list | tuple):
                return [number(v, freedom) for v in value]
            foreign = isinstance(value, Tensor) and value.device.type != "pjrt"
            return RuntimeNumber(value) if foreign or is_free(value, freedom) else value

        program = Program(
            self.op,
            self.called,
            [number(a, self.freedom.get(i, 0)) for i, a in enumerate(args)],
            {k: number(v, self.freedom.get(k, 0)) for k, v in kwargs.items()},
            targets,
            alone,
        )
        if MODE.recording is not None:
            program.check()
        self.programs[signature] = program
        return program
