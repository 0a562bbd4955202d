"""Sizes that a graph knows by name only, made numbers from the inputs of one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


class Symbols:
    """The value of every symbol that ``placeholders`` show, at inputs of given sizes."""

    def __init__(self, placeholders: Sequence[torch.fx.Node], inputs: Sequence[Any]) -> None:
        self._values: dict[Any, int] = {}
        for node, given in zip(placeholders, inputs, strict=True):
            meta = node.meta.get("val")
            if given is None:
                continue
            if isinstance(meta, torch.SymInt):
                self._bind(meta, int(given))
            elif isinstance(meta, torch.Tensor):
                for size, actual in zip(meta.shape, given, strict=True):
                    self._bind(size, actual)

    def _bind(self, size: Any, actual: int) -> None:
        if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
            self._values[size.node.expr] = actual

    def number(self, size: Any) -> int:
        """``size`` as a number."""
        return int(size.node.expr.subs(self._values)) if isinstance(size, torch.SymInt) else int(size)

    def numbers(self, sizes: Iterable[Any]) -> tuple[int, ...]:
        """A shape or stride as numbers."""
        return tuple(self.number(s) for s in sizes)
