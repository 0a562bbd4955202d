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


def block_after_each_launch(blocking: bool) -> None:
    """Wait for every op (``eager-blocking``), so that an error names the op that made it."""
    global BLOCKING
    BLOCKING = blocking


class Op:
    """One ATen op and the programs it has been compiled to, by signature.

    ``op`` is the functional op whose lowering is used; ``called`` is what the user called (``add_``
    for ``add``), whose shape function checks the arguments.
    """

    __slots__ = ("called", "mixes", "name", "op", "programs", "runtime_names", "runtime_places")

    def __init__(self, op: torch._ops.OpOverload, called: torch._ops.OpOverload | None = None) -> None:
        self.op = op
        self.called = called or op
        lowering = TABLE.get(op)
        self.mixes = lowering.mixes if lowering else True
        self.runtime_names = lowering.runtime if lowering else frozenset()
        self.runtime_places = frozenset(i for i, a in enumerate(op._schema.arguments) if a.name in self.runtime_names)
        self.programs: dict[tuple[Any, ...], Program] = {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], targets: Targets = ()) -> Any:
        """Run on device tensors. Results for which there is a target go there, and come back as None."""
        key: list[Any] = []
        inputs: list[Any] = []
        places = self.runtime_places
        for i, value in enumerate(args):
            self._sign(value, i in places, key, inputs)
        for name, value in kwargs.items():
            key.append(name)
            self._sign(value, name in self.runtime_names, key, inputs)
        for target in targets:
            if target is None:
                key.append(None)
            else:
                self._sign(target, False, key, inputs)
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

    def _sign(self, value: Any, runtime: bool, key: list[Any], inputs: list[Any]) -> None:
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
            if runtime and value != 0.0 and value != 1.0:
                key.append(float)
                inputs.append(value)
            else:
                key.append(value.hex())  # 0.0 and -0.0 are two programs, a NaN is one
        elif isinstance(value, list | tuple):
            key.append(len(value))
            for entry in value:
                self._sign(entry, runtime, key, inputs)
        elif isinstance(value, torch.Generator):
            raise NotImplementedError("a torch.Generator cannot drive the pjrt device: seed it with torch.manual_seed")
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
        def number(value: Any, runtime: bool) -> Any:
            if isinstance(value, list | tuple):
                return [number(v, runtime) for v in value]
            foreign = isinstance(value, Tensor) and value.device.type != "pjrt"
            if foreign or (runtime and isinstance(value, float) and value not in (0.0, 1.0)):
                return RuntimeNumber(value)
            return value

        program = self.programs[signature] = Program(
            self.op,
            self.called,
            [number(a, i in self.runtime_places) for i, a in enumerate(args)],
            {k: number(v, k in self.runtime_names) for k, v in kwargs.items()},
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
