"""Single ops as modules."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Matmul(nn.Module):
    """A product of matrices."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """(N, M, K) by (K, N') to (N, M, N')."""
        return torch.matmul(a, b)


class Attention(nn.Module):
    """Scaled dot-product attention, causal."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """(N, heads, L, d) thrice to the same."""
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class Conv(nn.Module):
    """A convolution that keeps the size of the image."""

    def forward(self, images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) and (out, C, k, k), k odd, to (N, out, H, W)."""
        return functional.conv2d(images, weight, padding=weight.shape[-1] // 2)


class Elementwise(nn.Module):
    """A chain of ops that a compiler makes one loop of: gelu(x) * y + x."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Two of one shape to the same."""
        return functional.gelu(x) * y + x


class Softmax(nn.Module):
    """Softmax over the last axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, rows, width) to the same."""
        return functional.softmax(x, dim=-1)


class LayerNorm(nn.Module):
    """Layer norm over the last axis, with scale and shift."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """(N, rows, width), (width,) and (width,) to (N, rows, width)."""
        return functional.layer_norm(x, x.shape[-1:], weight, bias)


class Embedding(nn.Module):
    """Rows of a table, by number."""

    def forward(self, indices: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """int64 (N, lookups) and (rows, width) to (N, lookups, width)."""
        return functional.embedding(indices, table)


class Copy(nn.Module):
    """A copy from memory to memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape to the same."""
        return x.clone()


class Dispatch(nn.Module):
    """One tiny op, called again and again, each on the last one's result."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape to the same."""
        for _ in range(self.calls):
            x = x + 1
        return x
