"""Micro workloads that memory bounds: elementwise, softmax, layernorm, embedding, hbm-copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workloads.micro.micro import Micro, Shape
from workloads.synthetic import Synthetic

if TYPE_CHECKING:
    import torch

_NO_PRODUCTS = "no products of matrices, no FLOPs: the bytes are what counts"


class _Rows(Micro):
    """An op over rows of a width, read once and written once."""

    shape_form = "ROWSxWIDTH"
    shapes = {"tiny": (16, 64), "small": (1024, 1024), "large": (32768, 8192)}  # noqa: RUF012
    flops_convention = _NO_PRODUCTS
    _module: str  # of workloads.models.micro
    _reads = 1  # operands of the full shape

    def module(self, shape: Shape) -> torch.nn.Module:
        """See :class:`workloads.micro.micro.Micro`."""
        from workloads.models import micro

        made: torch.nn.Module = getattr(micro, self._module)()
        return made

    def operands(self, shape: Shape, batch: int, data: Synthetic, dtype: torch.dtype) -> Sequence[torch.Tensor]:
        """(batch, rows, width), once or twice."""
        return [data.noise(batch, *shape, dtype=dtype) for _ in range(self._reads)]

    def work(self, shape: Shape) -> float:
        """None."""
        return 0.0

    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """What is read, and as much as one operand written."""
        return float((self._reads + 1) * batch * shape[0] * shape[1] * itemsize)


class Elementwise(_Rows):
    """gelu(x) * y + x."""

    name = "elementwise"
    summary = "gelu(x) * y + x, three ops that a compiler fuses"
    _module = "Elementwise"
    _reads = 2


class Softmax(_Rows):
    """Softmax of rows."""

    name = "softmax"
    summary = "Softmax over rows"
    _module = "Softmax"


class LayerNorm(_Rows):
    """Layer norm of rows."""

    name = "layernorm"
    summary = "Layer norm over rows, with scale and shift"
    _module = "LayerNorm"

    def operands(self, shape: Shape, batch: int, data: Synthetic, dtype: torch.dtype) -> Sequence[torch.Tensor]:
        """(batch, rows, width), (width,) and (width,)."""
        return [data.noise(*dims, dtype=dtype) for dims in ((batch, *shape), shape[1:], shape[1:])]

    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """Rows read and written, scale and shift read."""
        return float((2 * batch * shape[0] + 2) * shape[1] * itemsize)


class HbmCopy(_Rows):
    """A copy from memory to memory: the bandwidth that a step can hope for."""

    name = "hbm-copy"
    summary = "A copy from memory to memory"
    shape_form = "ELEMENTS"
    shapes = {"tiny": (4096,), "small": (16777216,), "large": (536870912,)}  # noqa: RUF012
    _module = "Copy"

    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """Read once, written once."""
        return float(2 * batch * shape[0] * itemsize)


class Embedding(Micro):
    """Rows of a table, looked up by Zipf-distributed numbers."""

    name = "embedding"
    summary = "Rows looked up in a table, by Zipf's law"
    shape_form = "ROWSxWIDTHxLOOKUPS"
    shapes = {"tiny": (100, 16, 32), "small": (100000, 64, 4096), "large": (10000000, 128, 262144)}  # noqa: RUF012
    flops_convention = _NO_PRODUCTS

    def module(self, shape: Shape) -> torch.nn.Module:
        """See :class:`workloads.micro.micro.Micro`."""
        from workloads.models import micro

        return micro.Embedding()

    def operands(self, shape: Shape, batch: int, data: Synthetic, dtype: torch.dtype) -> Sequence[torch.Tensor]:
        """int64 (batch, lookups) and (rows, width)."""
        rows, width, lookups = shape
        return data.zipf(rows, batch, lookups), data.noise(rows, width, dtype=dtype)

    def work(self, shape: Shape) -> float:
        """None."""
        return 0.0

    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """Numbers of 8 bytes read, their rows read and written; a popular row may come from a cache instead."""
        _, width, lookups = shape
        return float(batch * lookups * (8 + 2 * width * itemsize))
