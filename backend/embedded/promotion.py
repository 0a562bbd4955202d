"""PyTorch's type promotion over JAX arrays and Python numbers.

PyTorch ranks operands: a tensor with dimensions decides; a 0-d tensor, and below it a Python number,
only changes the result where its category (bool < integer < float < complex) is higher. Rules:
https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import jax
import torch

from backend.embedded.dtype import to_torch


class Weak:
    """A Python number that reaches the program as an input, a 0-d array of the compute dtype.

    It promotes like the Python number it stands for; ``kind`` is that number's type.
    """

    __slots__ = ("kind", "value")

    def __init__(self, value: Any, kind: type) -> None:
        self.value = value
        self.kind = kind


class Kind(Enum):
    """How an elementwise op's result dtype follows from the promoted one."""

    DEFAULT = "the promoted dtype"
    INT_TO_FLOAT = "integers become the default float dtype"
    BOOL = "the result is bool"


def _number_dtype(kind: type) -> torch.dtype:
    if kind is bool:
        return torch.bool
    if kind is int:
        return torch.int64
    if kind is complex:
        return torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    return torch.get_default_dtype()


def _combine(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    if high is None or low is None:
        return high if low is None else low
    if high.is_complex:
        return high
    if high.is_floating_point:
        return high.to_complex() if low.is_complex else high
    if high is torch.bool or low.is_floating_point or low.is_complex:
        return torch.promote_types(high, low)
    return high


def result_type(operands: Iterable[Any]) -> torch.dtype:
    """The promoted dtype of arrays, :class:`Weak` numbers and plain Python numbers."""
    ranks: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, jax.Array | jax.ShapeDtypeStruct):
            rank, dtype = (0 if operand.ndim else 1), to_torch(operand.dtype)
        elif isinstance(operand, Weak):
            rank, dtype = 2, _number_dtype(operand.kind)
        elif isinstance(operand, bool | int | float | complex):
            rank, dtype = 2, _number_dtype(type(operand))
        else:
            continue
        held = ranks[rank]
        ranks[rank] = dtype if held is None else torch.promote_types(held, dtype)
    result = _combine(ranks[0], _combine(ranks[1], ranks[2]))
    assert result is not None, "an elementwise op has at least one operand"
    return result


def compute_type(promoted: torch.dtype, kind: Kind) -> tuple[torch.dtype, torch.dtype]:
    """``(compute, result)``: half precision is computed in float32, as PyTorch's kernels do (opmath)."""
    if kind is Kind.INT_TO_FLOAT and not (promoted.is_floating_point or promoted.is_complex):
        promoted = torch.get_default_dtype()
    result = torch.bool if kind is Kind.BOOL else promoted
    compute = torch.float32 if promoted in (torch.float16, torch.bfloat16) else promoted
    return compute, result
