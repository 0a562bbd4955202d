"""Eager-fused mode: op calls are recorded, and launched together as one program when a value is asked for.

A recording is a list of programs in single assignment: an in-place op makes a new value and rebinds
the buffer, so the order of calls is the only hazard, and the list keeps it. What is held by a tensor
when the recording is launched is an output; everything else lives and dies inside the program.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from backend.embedded.buffer import Pending, launched
from backend.embedded.cache import COUNTERS
from backend.embedded.executable import Executable
from backend.embedded.identity import key as disk_key
from backend.embedded.number import number_array
from backend.embedded.program import Program
from backend.embedded.seed import GENERATOR

#: Ops in one program at most: XLA's compile time grows faster than a program's length.
FLUSH_LIMIT = int(os.environ.get("TPUBENCH_FUSE_LIMIT", "4096"))

#: Where a program's input comes from, in the low bits of its reference.
_VALUE, _ARRAY, _FLOAT, _INT, _KEY = range(5)
_BITS = 3
_INT64 = range(-(2**63), 2**63)


#: What was launched before, by structure: a mode that is left and entered again finds it.
_executables: dict[tuple[Any, ...], Executable] = {}


class Recording:
    """Op calls that wait to be launched.

    Not reentrant by accident: ``backward()`` records from autograd's own thread, so every change is
    made under one lock.
    """

    def __init__(self, limit: int = FLUSH_LIMIT) -> None:
        self.limit = limit
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._programs: list[Program] = []
        self._references: list[tuple[int, ...]] = []
        self._values: list[Pending] = []
        self._arrays: list[jax.Array] = []
        self._places: dict[int, int] = {}
        self._floats: list[float] = []
        self._ints: list[int] = []
        self._keys: list[np.ndarray] = []

    def __len__(self) -> int:
        return len(self._programs)

    def record(self, program: Program, inputs: Sequence[Any]) -> list[Pending]:
        """Note a call of ``program`` on arrays, pending values and numbers; returns what stands for its outputs."""
        with self._lock:
            numbers = program.numbers
            references = [((len(self._keys)) << _BITS) | _KEY] if program.random else []
            if program.random:
                self._keys.append(GENERATOR.next_key())
            typed = dict(numbers) if numbers else None
            for position, value in enumerate(inputs):
                if typed is not None and position in typed:
                    references.append(self._number(value, typed[position]))
                    continue
                if value.__class__ is Pending:
                    if value.array is None and value.recording is self:
                        references.append(value.number << _BITS)
                        continue
                    value = value.resolve()
                references.append(self._array(value))
            first = len(self._values)
            made = [Pending(self, first + i) for i in range(program.count)]
            self._programs.append(program)
            self._references.append(tuple(references))
            self._values.extend(made)
            full = len(self._programs) >= self.limit
        if full:
            self.flush()
        return made

    def _array(self, array: jax.Array) -> int:
        place = self._places.get(id(array))
        if place is None:
            place = self._places[id(array)] = len(self._arrays)
            self._arrays.append(array)
        return (place << _BITS) | _ARRAY

    def _number(self, value: Any, dtype: np.dtype) -> int:
        # Each number has a place of its own: two that happen to be equal must not change the structure.
        if isinstance(value, float):
            self._floats.append(value)
            return ((len(self._floats) - 1) << _BITS) | _FLOAT
        if isinstance(value, int) and value in _INT64:
            self._ints.append(value)
            return ((len(self._ints) - 1) << _BITS) | _INT
        self._arrays.append(number_array(value, dtype))
        return ((len(self._arrays) - 1) << _BITS) | _ARRAY

    def flush(self) -> None:
        """Launch what was recorded, as one program. Asynchronous, as every launch is."""
        with self._lock:
            if not self._programs:
                return
            programs, references, values = self._programs, self._references, self._values
            arrays, floats, ints, keys = self._arrays, self._floats, self._ints, self._keys
            self._clear()
            live = [i for i in range(len(values)) if _count(values, i) > _UNHELD]
            if not live:
                return
            # Arrays that only the recording still holds: their memory may be the outputs'.
            launched(())
            free = [i for i in range(len(arrays)) if _count(arrays, i) <= _UNHELD]
            # Forms of the arrays are part of the programs' signatures, where they are used.
            structure = (tuple(p.identity for p in programs), tuple(references), tuple(live), tuple(free), len(arrays))
            given = [*arrays, *_packed(floats, ints, keys)]
            arrays_count = len(arrays)
            del arrays
            COUNTERS.requests += 1
            executable = _executables.get(structure)
            if executable is None:
                function = _replay(programs, references, live, arrays_count, bool(floats), bool(ints), bool(keys))

                def key() -> str:
                    return disk_key("fused", [p.key() for p in programs], references, live, free, given)

                executable = Executable(function, given, f"fused_{len(programs)}_ops", key, donated=free)
                _executables[structure] = executable
            outputs = executable.launch(given)
            COUNTERS.launches += 1
            for i, array in zip(live, outputs, strict=True):
                values[i].array = array


def _count(values: Sequence[Any], index: int) -> int:
    """References to one of ``values``, those of this look among them."""
    return sys.getrefcount(values[index])


#: What :func:`_count` finds where nothing but the list holds the value; it differs between versions of Python.
_UNHELD = _count([Pending(None, 0)], 0)


def _packed(floats: Sequence[float], ints: Sequence[int], keys: Sequence[np.ndarray]) -> list[jax.Array]:
    """The numbers of a recording, a vector a type: one transfer instead of one each."""
    packed = []
    if floats:
        packed.append(np.asarray(floats, np.float64))
    if ints:
        packed.append(np.asarray(ints, np.int64))
    if keys:
        packed.append(np.stack(keys))
    return [jax.device_put(p) for p in packed]


def _replay(
    programs: Sequence[Program], references: Sequence[Sequence[int]], live: Sequence[int], arrays: int,
    floats: bool, ints: bool, keys: bool,
) -> Any:  # fmt: skip
    """The recording as one function of its arrays and packed numbers; returns the values in ``live``."""

    def fused(*given: jax.Array) -> list[jax.Array]:
        packed = iter(given[arrays:])
        by_kind: dict[int, Any] = {_ARRAY: given[:arrays]}
        for kind, there in ((_FLOAT, floats), (_INT, ints), (_KEY, keys)):
            if there:
                by_kind[kind] = next(packed)
        values: list[jax.Array] = []
        by_kind[_VALUE] = values
        for program, sources in zip(programs, references, strict=True):
            typed = {position + program.random: dtype for position, dtype in program.numbers}
            inputs = []
            for position, source in enumerate(sources):
                value = by_kind[source & ((1 << _BITS) - 1)][source >> _BITS]
                inputs.append(value.astype(typed[position]) if position in typed else value)
            values.extend(program.function(*inputs))
        return [values[i] for i in live]

    return fused
