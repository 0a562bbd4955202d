"""Eager mode: an op call to a launch, by way of its signature.

This is the path that every op of an eager step takes. What a signature holds is exactly what a
program depends on: each tensor's shape, dtype and layout, and every argument that is compiled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import torch

from backend.embedded.buffer import buffer_of, launched, rebind
from backend.embedded.cache import COUNTERS
from backend.embedded.errors import DevicesDiffer
from backend.embedded.lower import TABLE
from backend.embedded.program import Program, RuntimeNumber, Targets

Tensor = torch.Tensor
#: How often the mode waits: eager-blocking after each launch.
BLOCKING = False


#: How free an argument is: its floats, or all its numbers, reach the program as inputs.
_FLOATS, _NUMBERS = 1, 2


def _is_free(value: Any, freedom: int) -> bool:
    """Whether ``value`` is an input of the program: 0 and 1 are compiled in, they spare work."""
    if freedom == 0 or value.__class__ not in (float, int) or (freedom == _FLOATS and value.__class__ is int):
        return False
    return bool(value != 0 and value != 1)


def block_after_each_launch(blocking: bool) -> None:
    """Wait for every op (``eager-blocking``), so that an error names the op that made it."""
    global BLOCKING
    BLOCKING = blocking


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
                self.freedom[i] = self.freedom[argument.name] = _FLOATS
            elif self.mixes and "Tensor" in str(argument.type):
                # `x + 2.5` comes as a number where the schema has a tensor.
                self.freedom[i] = self.freedom[argument.name] = _NUMBERS
        self.programs: dict[tuple[Any, ...], Program] = {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Targets = ()) -> Any:
        """Run on device tensors. Results for which there is a target go there, and come back as None."""
        key: list[Any] = []
        inputs: list[Any] = []
        freedom = self.freedom.get
        for i, value in enumerate(args):
            self._sign(value, freedom(i, 0), key, inputs)
        for name, value in kwargs.items():
            key.append(name)
            self._sign(value, freedom(name, 0), key, inputs)
        for target in targets:
            if target is None:
                key.append(None)
            else:
                self._sign(target, 0, key, inputs)
        signature = tuple(key)
        COUNTERS.requests += 1
        program = self.programs.get(signature)
        if program is None:
            program = self._compile(signature, args, kwargs, targets)
        COUNTERS.launches += 1
        arrays = program.launch(inputs)
        launched(arrays)
        if BLOCKING:
            jax.block_until_ready(arrays)
        return self._deliver(program, iter(arrays), targets)

    def _sign(self, value: Any, freedom: int, key: list[Any], inputs: list[Any]) -> None:
        """Add what the program depends on to ``key``, and what it takes to ``inputs``."""
        if isinstance(value, Tensor):
            try:
                array = value.untyped_storage().buffer.array
            except AttributeError:
                if value.device.type != "pjrt":
                    self._sign_foreign(value, key, inputs)
                    return
                array = buffer_of(value).array
            inputs.append(array)
            shape = array.shape
            key.append(shape)
            key.append(array.dtype)
            if value.shape != shape or not value.is_contiguous() or value.storage_offset():
                key.append((value.shape, value.stride(), value.storage_offset()))
            key.append(value.dtype)
        elif isinstance(value, float):
            if _is_free(value, freedom):
                key.append(float)
                inputs.append(value)
            else:
                key.append(value.hex())  # 0.0 and -0.0 are two programs, a NaN is one
        elif isinstance(value, list | tuple):
            key.append(len(value))
            for entry in value:
                self._sign(entry, freedom, key, inputs)
        elif isinstance(value, torch.Generator):
            raise NotImplementedError("a torch.Generator cannot drive the pjrt device: seed it with torch.manual_seed")
        elif _is_free(value, freedom):
            key.append(int)
            inputs.append(value)
        else:
            key.append(value.__class__)  # True, 1 and 1.0 are equal
            key.append(value)

    def _sign_foreign(self, value: Tensor, key: list[Any], inputs: list[Any]) -> None:
        """A 0-d CPU tensor counts as a number where PyTorch lets it; no other foreign tensor is taken."""
        if value.device.type != "cpu" or value.ndim or not self.mixes:
            raise DevicesDiffer(self.called, value.device)
        key.append(value.dtype)
        inputs.append(value.item())

    def _compile(
        self, signature: tuple[Any, ...], args: Sequence[Any], kwargs: Mapping[str, Any], targets: Targets
    ) -> Program:
        def number(value: Any, freedom: int) -> Any:
            if isinstance(value, list | tuple):
                return [number(v, freedom) for v in value]
            foreign = isinstance(value, Tensor) and value.device.type != "pjrt"
            return RuntimeNumber(value) if foreign or _is_free(value, freedom) else value

        program = self.programs[signature] = Program(
            self.op,
            self.called,
            [number(a, self.freedom.get(i, 0)) for i, a in enumerate(args)],
            {k: number(v, self.freedom.get(k, 0)) for k, v in kwargs.items()},
            targets,
        )
        return program

    def _deliver(self, program: Program, arrays: Any, targets: Targets) -> Any:
        results = []
        for i, make in enumerate(program.outputs):
            if make is None:
                results.append(None)
            elif i < len(targets) and targets[i] is not None:
                rebind(targets[i], next(arrays))
                results.append(None)
            else:
                results.append(make(next(arrays)))
        return results[0] if program.single else tuple(results)


_conjugate = Op(torch.ops.aten._conj_physical.default)
_negate = Op(torch.ops.aten.neg.default)

#: Ops that PyTorch hands a noted conjugation to: its own kernels carry it out as they go.
TAKES_NOTES = {"_conj_physical", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot"}


def resolved(value: Any) -> Any:
    """A tensor with a conjugation or negation that PyTorch only noted on it carried out; else ``value``.

    Programs read the buffer, which knows nothing of the note.
    """
    if isinstance(value, Tensor) and value.device.type == "pjrt":
        value = _conjugate((value,), {}) if value.is_conj() else value
        value = _negate((value,), {}) if value.is_neg() else value
    return value
