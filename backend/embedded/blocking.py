"""Eager-blocking mode: a launch that is waited for, so that an error names the op and the user's line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import torch

from backend.embedded.errors import OpFailed

_OURS = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)


def user_line() -> str:
    """``file:line`` of the innermost frame outside PyTorch and this package; the backward pass has none."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OURS, _TORCH, "<")):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "the backward pass"


def launch_and_wait(op: object, launch: Callable[[], Sequence[jax.Array]]) -> Sequence[jax.Array]:
    """What ``launch`` gives, once it is there.

    Raises:
        OpFailed: XLA could not compile or run it.
    """
    try:
        values = launch()
        jax.block_until_ready(values)
    except jax.errors.JaxRuntimeError as error:
        raise OpFailed(op, user_line(), error) from error
    return values
