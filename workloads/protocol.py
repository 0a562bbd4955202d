"""What a workload is: a model, its data and its step, in plain PyTorch that any backend runs unmodified.

A third party's workload is a class of this shape, announced under the entry point group
``tpubench.workloads``. Its module must import without torch (the command line lists sizes in a
process that has none); :meth:`Workload.build` imports it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """A named size of a workload."""

    summary: str  # "ResNet-18, 64x64"
    batch: int  # the default batch
    seq_len: int | None = None  # the default sequence length, where there is one
    longest: int | None = None  # the longest sequence that can be asked for, where there is a bound


class MakeBatch(Protocol):
    """Makes the tensors of one batch, seeded."""

    def __call__(
        self, batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu", /
    ) -> tuple[torch.Tensor, ...]:
        """The inputs on ``device``, made there: nothing crosses from the host.

        The same seed gives the same values on every device but ``meta``, which has none
        (:class:`workloads.synthetic.Synthetic`).
        """


class Compute(Protocol):
    """The forward of a step."""

    def __call__(self, module: torch.nn.Module, /, *batch: torch.Tensor) -> torch.Tensor:
        """The scalar loss (phase train) or the output (any other phase). Reads no value on the host."""


@dataclasses.dataclass(frozen=True, slots=True)
class Built:
    """A workload at a size, its weights where torch puts new tensors; ``streamed`` is how many of a batch's
    tensors, from the first, come anew with each step from a data loader; None: all of them."""

    module: torch.nn.Module
    make_batch: MakeBatch
    compute: Compute
    streamed: int | None = None


class Workload(Protocol):
    """A model, its data and its step."""

    name: str
    summary: str  # one line, for `tpubench list`
    item: str  # what throughput counts, singular: image, token, sample
    sizes: Mapping[str, Size]  # "tiny" and "small" always among them
    published: str  # the size that is the default off the CPU
    phases: tuple[str, ...]  # the first is the default; every phase but train is run without gradients
    optimizer: str  # what phase train steps by default: a name of workloads.optimizers.NAMES
    flops_convention: str  # one line: what the count holds and leaves out

    def build(self, size: str, phase: str, dtype: torch.dtype, seed: int) -> Built:
        """The module with seeded random weights at ``dtype``, and what makes a step of it.

        The same size, dtype and seed give the same weights and batches on every machine's CPU. Under
        ``torch.device("meta")`` the module has shapes only, and no memory is taken.
        """

    def flops(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Model FLOPs of one step by formula (2 a multiply-add; no recomputation counted)."""

    def items(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """How many items one step works through."""


@runtime_checkable
class Moving(Protocol):
    """A workload that knows the bytes a step must move between memory and the arithmetic units."""

    def bytes_moved(self, size: str, phase: str, batch: int, seq_len: int | None, itemsize: int) -> float:
        """Bytes read and written by one step whose elements take ``itemsize`` bytes each, every operand once."""


@runtime_checkable
class Shaped(Protocol):
    """A workload whose sizes may be written out, beside its named ones."""

    shape_form: str  # how a shape is written: "MxKxN"

    def shaped(self, text: str) -> Size:
        """The size that ``text`` writes; its name is ``text``.

        Raises:
            ValueError: ``text`` is no shape of this workload; the message says what is wrong with it.
        """
