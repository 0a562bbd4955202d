"""Keeping Dynamo out of this device's own code.

After a graph break PyTorch runs the user's function eagerly with Dynamo still looking at every Python
frame below it. Kernels are such frames, and what they do with arrays is not the user's program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which Dynamo now skips together with all that it calls. Costs nothing at a call."""
    from torch._C._dynamo.eval_frame import set_code_exec_strategy
    from torch._dynamo.types import FrameAction, FrameExecStrategy

    code = getattr(function, "__code__", None)
    if code is None:
        code = type(function).__call__.__code__  # type: ignore[attr-defined]
    set_code_exec_strategy(code, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
    return function
