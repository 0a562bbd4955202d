"""The text of an optimised HLO module as computations and instructions. Only what a forecast reads is kept.

The grammar is XLA's: https://openxla.org/xla/hlo_dumps and xla/hlo/parser. Shapes lose their layouts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """One array shape: an HLO element type (``bf16``) and its dimensions, elements each."""

    dtype: str
    dims: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``shape`` has an entry an array of its result, a tuple's in order; ``attributes`` is the text
    after the operands."""

    name: str
    opcode: str
    shape: tuple[Array, ...]
    operands: tuple[str, ...]
    literal: str  # what stands between the parentheses of a constant or parameter
    attributes: str
    root: bool

    def called(self, attribute: str) -> str | None:
        """The computation that ``attribute`` (``calls``, ``body``, ``condition``, ``to_apply``) names."""
        found = re.search(rf"(?:^|[ ,]){attribute}=%?([\w.\-]+)", self.attributes)
        return found[1] if found else None

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate of clock cycles; None where it gives none."""
        found = re.search(r'"estimated_cycles":"(-?\d+)"', self.attributes)
        return int(found[1]) if found else None


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """The computations by name, each its instructions by name, and which of them is the entry."""

    computations: dict[str, dict[str, Instruction]]
    entry: str


_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_ARRAY = re.compile(r"\b(pred|token|bf16|[fsuc]\d+\w*)\[([\d,]*)\]")
_OPCODE = re.compile(r" ?([a-z][a-z0-9\-]*)\(")


def parse(text: str) -> Module:
    """The module that ``text`` (``Compiled.as_text()``) writes out.

    Raises:
        ValueError: there is no entry computation in it, or an instruction cannot be read.
    """
    computations: dict[str, dict[str, Instruction]] = {}
    entry, current = None, None
    for line in text.splitlines():
        if head := _HEAD.match(line):
            current = computations.setdefault(head[2], {})
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := _LINE.match(line)):
            instruction = _instruction(found[2], line[found.end() :], bool(found[1]))
            current[instruction.name] = instruction
    if entry is None:
        raise ValueError("no entry computation in the HLO text")
    return Module(computations, entry)


def _instruction(name: str, rest: str, root: bool) -> Instruction:
    # A tuple's shape and a layout hold parentheses too: the opcode follows the shape.
    end = _closing(rest, 0) + 1 if rest.startswith("(") else _shape_end(rest)
    opcode = _OPCODE.match(rest, end)
    if opcode is None:
        raise ValueError(f"an instruction of the HLO text cannot be read: {name}")
    opened = opcode.end() - 1
    closed = _closing(rest, opened)
    inner = rest[opened + 1 : closed]
    return Instruction(
        name=name,
        opcode=opcode[1],
        shape=tuple(_arrays(rest[:end])),
        operands=tuple(re.findall(r"%([\w.\-]+)", inner)),
        literal=inner,
        attributes=rest[closed + 1 :].lstrip(", "),
        root=root,
    )


def _arrays(text: str) -> Iterator[Array]:
    for dtype, dims in _ARRAY.findall(text):
        yield Array(dtype, tuple(int(d) for d in dims.split(",") if d))


def _shape_end(text: str) -> int:
    """Where the shape of a single array ends: the first space outside the braces of its layout."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == " " and depth == 0:
            return position
    return len(text)


def _closing(text: str, opened: int) -> int:
    """The place of the parenthesis that closes the one at ``opened``."""
    depth = 0
    for position in range(opened, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position
    return len(text)
