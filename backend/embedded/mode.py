"""The mode that op calls run in, which is the process's."""

from __future__ import annotations

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from backend.embedded.buffer import before_synchronize
from backend.embedded.recording import FLUSH_LIMIT, Recording


class Mode:
    """How calls become launches; see :func:`set_mode`."""

    __slots__ = ("blocking", "direct", "hook", "recording")

    def __init__(self) -> None:
        self.direct = True  # launched as it is called, and not waited for
        self.blocking = False
        self.recording: Recording | None = None
        self.hook: torch.utils.hooks.RemovableHandle | None = None


MODE = Mode()


def set_mode(mode: str, limit: int = FLUSH_LIMIT) -> None:
    """``eager`` launches each op as it is called, ``eager-blocking`` waits for it, so that an error names the op.

    ``eager-fused`` records ops, and launches up to ``limit`` of them as one program when values are
    asked for, and at the end of an optimizer's step, so that every step of a loop is cut alike. What was
    recorded under the mode before is launched.
    """
    if MODE.recording is not None:
        MODE.recording.flush()
    if MODE.hook is not None:
        MODE.hook.remove()
        MODE.hook = None
    MODE.direct = mode not in ("eager-blocking", "eager-fused")
    MODE.blocking = mode == "eager-blocking"
    MODE.recording = Recording(limit) if mode == "eager-fused" else None
    if MODE.recording is not None:
        flush = MODE.recording.flush
        MODE.hook = register_optimizer_step_post_hook(lambda *_: flush())
    before_synchronize(MODE.recording.flush if MODE.recording is not None else None)
