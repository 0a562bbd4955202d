"""Layers whose weights are drawn once, by us: constructors that draw none, and the drawing."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import skip_init


def linear(features: int, out: int, dtype: torch.dtype, bias: bool = False) -> nn.Linear:
    """A linear layer on torch's default device, its weights not yet drawn."""
    device = torch.get_default_device()
    return skip_init(nn.Linear, features, out, bias=bias, device=device, dtype=dtype)  # type: ignore[return-value]


def embedding(rows: int, width: int, dtype: torch.dtype) -> nn.Embedding:
    """A table on torch's default device, its weights not yet drawn."""
    return skip_init(nn.Embedding, rows, width, device=torch.get_default_device(), dtype=dtype)  # type: ignore[return-value]


@torch.no_grad()
def draw_normal(tensor: torch.Tensor, std: float) -> None:
    """Fill ``tensor`` from N(0, std**2), drawn in float32: every dtype gets the same numbers, rounded.

    One tensor is drawn at a time, so that a model in bfloat16 never stands in float32 as a whole.
    """
    tensor.copy_(torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device).normal_(std=std))


def embedding_bag(rows: int, width: int, dtype: torch.dtype) -> nn.EmbeddingBag:
    """A table whose looked-up rows are summed, on torch's default device, its weights not yet drawn."""
    device = torch.get_default_device()
    return skip_init(nn.EmbeddingBag, rows, width, mode="sum", device=device, dtype=dtype)  # type: ignore[return-value]


@torch.no_grad()
def draw_uniform(tensor: torch.Tensor, bound: float) -> None:
    """Fill ``tensor`` from [-bound, bound), drawn in float32 as :func:`draw_normal` does."""
    tensor.copy_(torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device).uniform_(-bound, bound))
