"""``x <<= n`` and ``x >>= n``: ops of older names, whose functional twins PyTorch calls otherwise."""

from __future__ import annotations

from typing import Any

import torch

from backend.embedded.kernels import kernel

aten = torch.ops.aten
Tensor = torch.Tensor


@kernel(aten.__ilshift__.Tensor, aten.__ilshift__.Scalar)
def shift_left_in_place(x: Tensor, count: Any) -> Tensor:
    """``x <<= count``."""
    return x.bitwise_left_shift_(count)


@kernel(aten.__irshift__.Tensor, aten.__irshift__.Scalar)
def shift_right_in_place(x: Tensor, count: Any) -> Tensor:
    """``x >>= count``."""
    return x.bitwise_right_shift_(count)
