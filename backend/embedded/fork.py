"""A forked process has no device: PJRT's threads stay with the parent, and a launch would wait for them for ever."""

from __future__ import annotations

import os
from typing import Any

import jax

from backend.embedded.compiler import GraphProgram
from backend.embedded.errors import DeviceAfterFork
from backend.embedded.mode import MODE

_forked = False


def in_fork() -> bool:
    """Whether this process was forked from one that uses the device."""
    return _forked


def _refuse(*_: Any, **__: Any) -> Any:
    raise DeviceAfterFork


class _Refusing:
    """Stands where a recording would: every op call comes by it."""

    record = _refuse
    flush = staticmethod(lambda: None)


def _after_fork() -> None:
    global _forked
    _forked = True
    MODE.direct, MODE.recording = False, _Refusing()  # type: ignore[assignment]
    # This process is only ever refused: what moves values goes too.
    jax.device_put = _refuse
    GraphProgram.__call__ = _refuse  # type: ignore[method-assign]


def install() -> None:
    """Have a forked child refuse the device by name."""
    os.register_at_fork(after_in_child=_after_fork)
