"""What a program depends on: each tensor's form and layout, and every argument that is compiled in.

A signature is a flat list of hashable parts, to be read only in the order in which it was written.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

import torch

from backend.embedded.buffer import buffer_of, is_whole
from backend.embedded.errors import DevicesDiffer

Tensor = torch.Tensor


class Signed(Protocol):
    """What a signature asks of an op."""

    called: torch._ops.OpOverload
    mixes: bool


#: How free an argument is: its floats, or all its numbers, reach the program as inputs.
FLOATS, NUMBERS = 1, 2


class _Free(Enum):
    """What stands in a signature for a number that is an input."""

    FLOAT = float
    INT = int


def is_free(value: Any, freedom: int) -> bool:
    """Whether ``value`` is an input of the program: 0 and 1 are compiled in, they spare work."""
    if freedom == 0 or value.__class__ not in (float, int) or (freedom == FLOATS and value.__class__ is int):
        return False
    return bool(value != 0 and value != 1)


def sign(op: Signed, value: Any, freedom: int, key: list[Any], inputs: list[Any]) -> None:
    """Add what the program depends on to ``key``, and what it takes to ``inputs``."""
    if isinstance(value, Tensor):
        try:
            buffer = value.untyped_storage().buffer
        except AttributeError:
            if value.device.type != "pjrt":
                _sign_foreign(op, value, key, inputs)
                return
            buffer = buffer_of(value)
        form = buffer.form
        inputs.append(buffer.value)
        key.append(form)
        if not is_whole(value, form):
            key.append((value.shape, value.stride(), value.storage_offset(), value.dtype))
    elif isinstance(value, float):
        if is_free(value, freedom):
            key.append(_Free.FLOAT)
            inputs.append(value)
        else:
            key.append(value.hex())  # 0.0 and -0.0 are two programs, a NaN is one
    elif isinstance(value, list | tuple):
        key.append(len(value))
        for entry in value:
            sign(op, entry, freedom, key, inputs)
    elif is_free(value, freedom):
        key.append(_Free.INT)
        inputs.append(value)
    else:
        key.append(value.__class__)  # True, 1 and 1.0 are equal
        key.append(value)


def _sign_foreign(op: Signed, value: Tensor, key: list[Any], inputs: list[Any]) -> None:
    """A 0-d CPU tensor counts as a number where PyTorch lets it; no other foreign tensor is taken."""
    if value.device.type != "cpu" or value.ndim or not op.mixes:
        raise DevicesDiffer(op.called, value.device)
    key.append(value.dtype)
    inputs.append(value.item())
