"""What a workload is: a model, its data and its step, in plain PyTorch that any backend runs unmodified.

A third party's workload is a class of this shape, announced under the entry point group
``tpubench.workloads``. Its module must import without torch (the command line lists sizes in a
process that has none); :meth:`Workload.build` imports it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """A named size of a workload."""

    summary: str  # "ResNet-18, 64x64"
    batch: int  # the default batch
    seq_len: int | None = None  # the default sequence length, where there is one


@dataclasses.dataclass(frozen=True, slots=True)
class Built:
    """A workload at a size, on the CPU, seeded.

    ``make_batch(batch, seq_len, seed)`` gives the tensors of one batch, on the CPU;
    ``compute(module, *batch)`` gives the scalar loss (phase train) or the output (phase infer);
    ``make_optimizer(module)`` gives the optimizer that phase train steps.
    """

    module: torch.nn.Module
    make_batch: Callable[[int, int | None, int], tuple[torch.Tensor, ...]]
    compute: Callable[..., torch.Tensor]
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer]


class Workload(Protocol):
    """A model, its data and its step."""

    name: str
    summary: str  # one line, for `tpubench list`
    item: str  # what throughput counts, singular: image, token, sample
    sizes: Mapping[str, Size]  # "tiny" and "small" always among them
    phases: tuple[str, ...]
    flops_convention: str  # one line: what the count holds and leaves out

    def build(self, size: str, phase: str, dtype: torch.dtype, seed: int) -> Built:
        """The module with seeded random weights at ``dtype``, and what makes a step of it.

        The same size, dtype and seed give the same weights and batches on every machine's CPU.
        """

    def flops(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Model FLOPs of one step by formula (2 a multiply-add; no recomputation counted)."""

    def items(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """How many items one step works through."""
