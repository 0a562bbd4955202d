"""What an exception says of a run: a status and one line."""

from __future__ import annotations

from typing import Any

from tpubench.record import Status

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "OutOfMemory", "can't allocate memory")
#: Where torch's C++ errors go on with the frames of their stack.
_STACK = "Exception raised from"
_LONGEST = 500


def one_line(error: BaseException) -> str:
    """The message of ``error`` on one line; its class where it has none."""
    text = " ".join(str(error).partition(_STACK)[0].split())
    if isinstance(error, SystemExit):
        text = f"the step asked to leave the process (exit code {text or 0})"
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + " ..."
    return text or type(error).__name__


def failure(error: BaseException) -> dict[str, str]:
    """``status, reason, error_class`` of what a cell raised."""
    from backend.protocol import Unsupported

    # torch.compile wraps what its backend raises.
    cause: BaseException = getattr(error, "inner_exception", None) or error
    status = Status.ERROR
    if isinstance(cause, Unsupported):
        status = Status.UNSUPPORTED
    elif isinstance(cause, MemoryError) or any(sign in str(cause) for sign in _OUT_OF_MEMORY):
        status = Status.OOM
    return {"status": str(status), "reason": one_line(cause), "error_class": type(cause).__name__}


def plain(value: Any) -> Any:
    """What JSON has no word for as what it has: a number of numpy's or torch's as Python's, else its text."""
    return value.item() if hasattr(value, "item") else str(value)
