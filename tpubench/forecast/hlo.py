"""The text of an optimised HLO module as computations and instructions. Only what a forecast reads is kept.

The grammar is XLA's: https://openxla.org/xla/hlo_dumps and xla/hlo/parser. Of a layout, bytes and memory are kept.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """One array shape: an HLO element type (``bf16``) and its dimensions, elements each.

    ``nbytes`` is what it takes in memory, its tiles filled up (https://openxla.org/xla/tiled_layout); ``space`` is the
    memory it lies in: 0 is HBM, on a TPU the others are on the chip.
    """

    dtype: str
    dims: tuple[int, ...]
    nbytes: float = 0.0
    space: int = 0


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

    @property
    def target(self) -> str | None:
        """What a custom call calls; None for any other opcode."""
        found = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return found[1] if found else None

    @property
    def source(self) -> str:
        """The op that the instruction comes from, as the program's maker named it; "" where it has no name."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found[1] if found else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """The computations by name, each its instructions by name, and which of them is the entry."""

    computations: dict[str, dict[str, Instruction]]
    entry: str


_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_ARRAY = re.compile(r"\b(pred|token|bf16|[fsuc]\d+\w*)\[([\d,]*)\](\{[^}]*\})?")
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
    for dtype, dims, layout in _ARRAY.findall(text):
        sizes = tuple(int(d) for d in dims.split(",") if d)
        space = re.search(r"S\((\d+)\)", layout)
        yield Array(dtype, sizes, _elements(sizes, layout) * bits(dtype) / 8, int(space[1]) if space else 0)


def bits(dtype: str) -> int:
    """Bits of an element of an HLO type."""
    if dtype in ("pred", "token"):
        return 8 if dtype == "pred" else 0
    return int(re.sub(r"\D", " ", dtype).split()[0])


def _elements(sizes: tuple[int, ...], layout: str) -> int:
    """How many elements have room: the most minor dimensions are rounded up to whole tiles."""
    order = re.match(r"\{([\d,]*)", layout)
    tile = re.search(r"T\(([\d,]*)\)", layout)
    if order is None or tile is None or not order[1]:
        return math.prod(sizes)
    minor_first = [sizes[int(d)] for d in order[1].split(",")]
    for place, step in enumerate(int(t) for t in reversed(tile[1].split(",")) if t):
        if place < len(minor_first):
            minor_first[place] = -(-minor_first[place] // step) * step
    return math.prod(minor_first)


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
