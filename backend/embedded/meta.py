"""PyTorch's own shape functions: what an op gives, without its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from backend.embedded.errors import OpNotLowered, refuse_index
from backend.embedded.number import RuntimeNumber


def to_meta(value: Any) -> Any:
    """Arguments as PyTorch's shape functions take them."""
    if isinstance(value, RuntimeNumber):
        return value.value
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, torch.device):
        if value.type == "pjrt":
            refuse_index(value.index)
        return torch.device("meta")
    if isinstance(value, list | tuple):
        return type(value)([to_meta(v) for v in value])
    return value


def _number_first(op: torch._ops.OpOverload, args: Sequence[Any]) -> bool:
    """Whether a number stands where the schema has its first tensor: of 3 & x, which PyTorch has as an overload."""
    first = args[0] if args else None
    number = isinstance(first, RuntimeNumber) and not isinstance(first.value, torch.Tensor)
    return number and str(op._schema.arguments[0].type) == "Tensor"


def expected_of(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What PyTorch says the result is, as meta tensors: this is also its check of the arguments.

    Raises:
        OpNotLowered: PyTorch cannot say it without the values.
    """
    with torch.no_grad():
        try:
            called = op.overloadpacket if _number_first(op, args) else op
            result = called(*map(to_meta, args), **{k: to_meta(v) for k, v in kwargs.items()})
        except NotImplementedError as error:
            raise OpNotLowered(op, "its result's shape depends on values") from error
    return result
