"""The micro workload of launching: one tiny op, many times, whose time on the host is the question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workloads.micro.micro import Micro, Shape
from workloads.synthetic import Synthetic

if TYPE_CHECKING:
    import torch


class Dispatch(Micro):
    """x + 1, N times over 8 numbers: eager modes launch N programs, compiled ones a single program."""

    name = "dispatch"
    summary = "One tiny op launched N times: the host's time an op"
    item = "op"
    shape_form = "CALLS"
    shapes = {"tiny": (20,), "small": (1000,), "large": (1000,)}  # noqa: RUF012
    flops_convention = "no products of matrices, no FLOPs: the time an op is what counts"

    def module(self, shape: Shape) -> torch.nn.Module:
        """See :class:`workloads.micro.micro.Micro`."""
        from workloads.models import micro

        return micro.Dispatch(shape[0])

    def operands(self, shape: Shape, batch: int, data: Synthetic, dtype: torch.dtype) -> Sequence[torch.Tensor]:
        """(batch, 8)."""
        return (data.noise(batch, 8, dtype=dtype),)

    def work(self, shape: Shape) -> float:
        """None."""
        return 0.0

    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """What one program needs: 8 numbers read and written; a launch an op moves them every time."""
        return float(2 * batch * 8 * itemsize)

    def items(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Ops a step."""
        return self.shape(size)[0]
