"""Micro workloads whose arithmetic is products of matrices: matmul, attention, conv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workloads.micro.micro import Micro, Shape
from workloads.synthetic import Synthetic

if TYPE_CHECKING:
    import torch


class Matmul(Micro):
    """Matrices of M x K by one of K x N."""

    name = "matmul"
    summary = "A product of matrices"
    shape_form = "MxKxN"
    shapes = {"tiny": (64, 64, 64), "small": (1024, 1024, 1024), "large": (8192, 8192, 8192)}  # noqa: RUF012
    flops_convention = "2 FLOPs a multiply-add"

    def module(self, shape: Shape) -> torch.nn.Module:
        """See :class:`workloads.micro.micro.Micro`."""
        from workloads.models import micro

        return micro.Matmul()

    def operands(self, shape: Shape, batch: int, data: Synthetic, dtype: torch.dtype) -> Sequence[torch.Tensor]:
        """(batch, M, K) and (K, N)."""
        m, k, n = shape
        return data.noise(batch, m, k, dtype=dtype), data.noise(k, n, dtype=dtype)

    def work(self, shape: Shape) -> float:
        """2 M K N."""
        m, k, n = shape
        return 2.0 * m * k * n

    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """Both factors and the product."""
        m, k, n = shape
        return float(batch * (m * k + m * n) + k * n) * itemsize


class Attention(Micro):
    """Causal attention of heads of width d over L tokens."""

    name = "attention"
    summary = "Causal scaled dot-product attention"
    shape_form = "HEADSxLENGTHxWIDTH"
    shapes = {"tiny": (2, 32, 16), "small": (8, 512, 64), "large": (32, 4096, 128)}  # noqa: RUF012
    flops_convention = "both products, 2 FLOPs a multiply-add, causal halved; softmax left out"

    def module(self, shape: Shape) -> torch.nn.Module:
        """See :class:`workloads.micro.micro.Micro`."""
        from workloads.models import micro

        return micro.Attention()

    def operands(self, shape: Shape, batch: int, data: Synthetic, dtype: torch.dtype) -> Sequence[torch.Tensor]:
        """(batch, heads, L, d) thrice."""
        return [data.noise(batch, *shape, dtype=dtype) for _ in range(3)]

    def work(self, shape: Shape) -> float:
        """4 L**2 d a head, halved: Dao et al. 2022, arXiv 2205.14135, counts the same."""
        heads, length, width = shape
        return 2.0 * heads * length * length * width

    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """Queries, keys, values and the result; scores never leave the chip where the kernel is fused."""
        heads, length, width = shape
        return 4.0 * batch * heads * length * width * itemsize


class Conv(Micro):
    """A k x k convolution over square images, stride 1, padded to keep their size."""

    name = "conv"
    summary = "A 2-d convolution, stride 1, the size kept"
    shape_form = "CHANNELSxSIDExOUTxKERNEL"
    shapes = {"tiny": (4, 8, 8, 3), "small": (64, 56, 64, 3), "large": (256, 56, 256, 3)}  # noqa: RUF012
    flops_convention = "2 FLOPs a multiply-add, padding counted as full windows"

    def check(self, shape: Shape) -> None:
        """An even kernel has no middle.

        Raises:
            ValueError: the kernel is even.
        """
        if shape[3] % 2 == 0:
            raise ValueError(f"a kernel of {shape[3]} is even, and keeps no size")

    def module(self, shape: Shape) -> torch.nn.Module:
        """See :class:`workloads.micro.micro.Micro`."""
        from workloads.models import micro

        return micro.Conv()

    def operands(self, shape: Shape, batch: int, data: Synthetic, dtype: torch.dtype) -> Sequence[torch.Tensor]:
        """(batch, channels, side, side) and (out, channels, kernel, kernel)."""
        channels, side, out, kernel = shape
        return data.noise(batch, channels, side, side, dtype=dtype), data.noise(
            out, channels, kernel, kernel, dtype=dtype
        )

    def work(self, shape: Shape) -> float:
        """2 x kernel area x channels in x channels out x pixels."""
        channels, side, out, kernel = shape
        return 2.0 * channels * side * side * out * kernel * kernel

    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """Images, weights and the result."""
        channels, side, out, kernel = shape
        return float(batch * (channels + out) * side * side + out * channels * kernel * kernel) * itemsize
