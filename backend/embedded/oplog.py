"""Every launch as a line, for a person who asks what runs: ``TPUBENCH_TRACE_OPS=1``.

    add_Tensor f32[4,4] f32[4,4] -> f32[4,4] compiled 31.07 ms, launch 0.058 ms
    add_Tensor f32[4,4] f32[4,4] -> f32[4,4] hit, launch 0.013 ms

Arrays are the buffers that the program takes: a view is its base. Launching is asynchronous, so that the time is the
host's, not the device's. Whether to trace is settled when a program is made: without the variable a launch costs what
it always did.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

#: ``1`` traces. A worker's lines go to the descriptor in the second variable, others to standard error.
VARIABLE = "TPUBENCH_TRACE_OPS"
DESCRIPTOR_VARIABLE = "TPUBENCH_TRACE_FD"

#: Arrays that a line names before it counts the rest.
_MOST = 6
_SHORT = {"float": "f", "bfloat": "bf", "complex": "c", "int": "s", "uint": "u", "bool": "pred"}

Launch = Callable[[list[Any]], Sequence[Any]]


def wanted() -> bool:
    """Whether launches are to be traced."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def traced(launch: Launch, name: str, origin: str) -> Launch:
    """``launch`` that tells of itself; ``origin`` says how the program came about, for its first line."""
    first = True

    def run(arrays: list[Any]) -> Sequence[Any]:
        nonlocal first
        how, first = (origin if first else "hit"), False
        given = listed(arrays)
        start = time.perf_counter()
        results = launch(arrays)
        seconds = time.perf_counter() - start
        _say(f"{name} {given}-> {listed(results)}{how}, launch {seconds * 1e3:.3f} ms")
        return results

    return run


def listed(arrays: Sequence[Any]) -> str:
    """Dtypes and shapes as XLA writes them, each followed by a space; of many the first few."""
    shown = "".join(f"{_dtype(a.dtype)}[{','.join(map(str, a.shape))}] " for a in arrays[:_MOST])
    more = len(arrays) - _MOST
    return f"{shown}and {more} more " if more > 0 else shown


def _dtype(dtype: Any) -> str:
    name = str(dtype)
    letters = name.rstrip("0123456789")
    return _SHORT.get(letters, letters) + name[len(letters) :]


def _say(line: str) -> None:
    descriptor = os.environ.get(DESCRIPTOR_VARIABLE)
    with contextlib.suppress(OSError, ValueError):  # whoever reads is gone
        if descriptor:
            os.write(int(descriptor), f"{line}\n".encode())
        else:
            print(line, file=sys.stderr, flush=True)
