"""Python numbers among an op's arguments: which reach a program as inputs, and how.

A learning rate that moves must not make a new program each step, so numbers are inputs; a zero or a
one is compiled in, because it spares work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch

from backend.embedded.dtype import to_jax
from backend.embedded.promotion import Kind as PromotionKind
from backend.embedded.promotion import Weak, compute_type, result_type


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimeNumber:
    """A number that reaches the program as an input: ``value`` is a Python number or a 0-d CPU tensor."""

    value: Any

    @property
    def kind(self) -> type:
        """The Python type of the number."""
        if not isinstance(self.value, torch.Tensor):
            return type(self.value)
        dtype = self.value.dtype
        if dtype.is_complex:
            return complex
        return float if dtype.is_floating_point else bool if dtype is torch.bool else int


_numbers: dict[tuple[Any, ...], jax.Array] = {}
_NUMBERS_LIMIT = 4096


def number_array(value: Any, dtype: np.dtype) -> jax.Array:
    """``value`` on the device as a 0-d array; numbers that come back (a learning rate) are kept."""
    # A zero has a sign, and a NaN equals nothing: their text finds them again.
    key = (value if value == value and value != 0 else repr(value), dtype)
    array = _numbers.get(key)
    if array is None:
        if len(_numbers) >= _NUMBERS_LIMIT:
            _numbers.clear()
        array = _numbers[key] = jax.device_put(np.asarray(value).astype(dtype))
    return array


def held_number_type(operands: Sequence[jax.ShapeDtypeStruct], kinds: Mapping[int, type]) -> dict[int, np.dtype]:
    """The dtype in which each number reaches the program: the one the op computes in.

    ``operands`` are the op's tensors; ``kinds`` the numbers' Python types by position.
    """
    mixed = len({t.dtype for t in operands}) > 1
    held = {}
    for index, kind in kinds.items():
        promoted = result_type([*operands, Weak(None, kind)])
        compute, _ = compute_type(promoted, PromotionKind.DEFAULT)
        # A list op may mix dtypes: the widest of a kind holds a number for all of them.
        held[index] = np.dtype(np.float64) if mixed and compute.is_floating_point else to_jax(compute)
    return held
