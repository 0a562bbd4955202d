"""What the micro workloads share: one op as a module, its shapes written out, its FLOPs and bytes by formula."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workloads.protocol import Built, Size
from workloads.synthetic import Synthetic

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]
#: Larger numbers in a shape are a slip of the hand: no tensor has so many elements on a side.
_MOST_DIGITS = 12


class Micro(ABC):
    """One op, run once a step and without gradients.

    The op's operands are its batch: the module holds no weights, or those that :meth:`module` makes. A shape's first
    number is the batch where :attr:`batched`; otherwise the batch repeats the op along a leading axis.
    """

    name: str
    summary: str
    shape_form: str  # "MxKxN": one number a letter
    published: str = "large"
    item = "call"
    phases: tuple[str, ...] = ("infer",)
    optimizer = "sgd"
    flops_convention: str
    shapes: Mapping[str, Shape]  # by name; "tiny", "small" and "large" among them

    @property
    def sizes(self) -> Mapping[str, Size]:
        """The named shapes."""
        return {name: Size(self.written(shape), batch=1) for name, shape in self.shapes.items()}

    def written(self, shape: Shape) -> str:
        """``shape`` as a user writes it."""
        return "x".join(map(str, shape))

    def shaped(self, text: str) -> Size:
        """The size that ``text`` writes.

        Raises:
            ValueError: it is not as many whole numbers of 1 or more as :attr:`shape_form` has, or they do not fit.
        """
        return Size(self.written(self._read(text)), batch=1)

    def _read(self, text: str) -> Shape:
        numbers = text.split("x")
        wanted = len(self.shape_form.split("x"))
        if len(numbers) != wanted or not all(re.fullmatch(f"[1-9][0-9]{{0,{_MOST_DIGITS - 1}}}", n) for n in numbers):
            raise ValueError(f"not {wanted} whole numbers of 1 or more with x between them")
        shape = tuple(map(int, numbers))
        self.check(shape)
        return shape

    def shape(self, size: str) -> Shape:
        """The numbers of a size: a name, or a shape written out."""
        return self.shapes[size] if size in self.shapes else self._read(size)

    def check(self, shape: Shape) -> None:  # noqa: B027 - most ops take any numbers
        """Refuse numbers that do not fit one another.

        Raises:
            ValueError: they do not; the message says why.
        """

    def build(self, size: str, phase: str, dtype: torch.dtype, seed: int) -> Built:
        """The op and its seeded operands; see :class:`workloads.protocol.Workload`."""
        shape = self.shape(size)

        def make_batch(
            batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
        ) -> tuple[torch.Tensor, ...]:
            return tuple(self.operands(shape, batch, Synthetic(seed, device), dtype))

        return Built(self.module(shape), make_batch, _output)

    @abstractmethod
    def module(self, shape: Shape) -> torch.nn.Module:
        """The op."""

    @abstractmethod
    def operands(self, shape: Shape, batch: int, data: Synthetic, dtype: torch.dtype) -> Sequence[torch.Tensor]:
        """What it works on."""

    @abstractmethod
    def work(self, shape: Shape) -> float:
        """FLOPs of one call of one batch element, as :mod:`tpubench` counts them: products only."""

    @abstractmethod
    def traffic(self, shape: Shape, batch: int, itemsize: int) -> float:
        """Bytes of every operand read once and every result written once."""

    def flops(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Model FLOPs of one step: 2 a multiply-add, 0 where the op multiplies no matrices."""
        return batch * self.work(self.shape(size))

    def bytes_moved(self, size: str, phase: str, batch: int, seq_len: int | None, itemsize: int) -> float:
        """See :class:`workloads.protocol.Moving`."""
        return self.traffic(self.shape(size), batch, itemsize)

    def items(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Calls a step; a batch is one call."""
        return 1


def _output(module: torch.nn.Module, *operands: torch.Tensor) -> torch.Tensor:
    return module(*operands)  # type: ignore[no-any-return]
