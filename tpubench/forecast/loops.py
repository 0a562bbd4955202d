"""How often each computation of a program runs: loops multiplied by their trip count."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from tpubench.forecast.hlo import Instruction, Module

Computation = Mapping[str, Instruction]
#: Opcodes that hand a value on as it is.
_SAME = ("copy", "bitcast", "convert", "copy-start", "copy-done")


@dataclasses.dataclass(frozen=True, slots=True)
class Runs:
    """How often computations run in one launch: ``scheduled`` (the entry, loop bodies: what has cycles of its own),
    ``fused`` (what lies inside fusions and async calls). ``unknown`` names loops whose trip count cannot be read
    (counted once) and conditionals (every branch counted): a sum over such a program is no number to show."""

    scheduled: dict[str, int]
    fused: dict[str, int]
    unknown: tuple[str, ...]


def runs(module: Module) -> Runs:
    """How often each computation of ``module`` runs."""
    scheduled: dict[str, int] = {}
    fused: dict[str, int] = {}
    unknown: list[str] = []

    def visit(name: str, times: int, into: dict[str, int]) -> None:
        into[name] = into.get(name, 0) + times
        computation = module.computations[name]
        for instruction in computation.values():
            if instruction.opcode == "while":
                trips = trip_count(module, computation, instruction)
                if trips is None:
                    unknown.append(instruction.name)
                body, condition = instruction.called("body"), instruction.called("condition")
                assert body is not None and condition is not None, "XLA writes both of every while"
                visit(body, times * (1 if trips is None else trips), into)
                visit(condition, times * (1 if trips is None else trips + 1), into)
            elif instruction.opcode == "conditional":
                unknown.append(instruction.name)
                for branch in _branches(instruction):
                    visit(branch, times, into)
            elif instruction.opcode == "call" and (callee := instruction.called("to_apply")):
                visit(callee, times, into)
            elif callee := instruction.called("calls"):
                visit(callee, times, fused)

    visit(module.entry, 1, scheduled)
    return Runs(scheduled, fused, tuple(unknown))


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """How often the body of ``loop``, a while of ``computation``, runs; None where the text does not say.

    The text has no trip count. It is read where one counter of the loop's state starts at a constant, grows by a
    constant, and is compared with a constant.
    """
    condition = module.computations[loop.called("condition") or ""]
    body = module.computations[loop.called("body") or ""]
    compare = next(i for i in condition.values() if i.root)
    direction = re.search(r"direction=(\w+)", compare.attributes)
    if compare.opcode != "compare" or direction is None or direction[1] != "LT":
        return None
    index = _element(condition, compare.operands[0])
    limit = _constant(condition, compare.operands[1])
    if index is None or limit is None:
        return None
    state = computation.get(loop.operands[0])
    root = next(i for i in body.values() if i.root)
    if state is None or state.opcode != "tuple" or root.opcode != "tuple":
        return None
    start = _constant(computation, state.operands[index])
    step = _step(body, root.operands[index], index)
    if start is None or step is None or step <= 0:
        return None
    return max(0, -((start - limit) // step))


def _step(body: Computation, name: str, index: int) -> int | None:
    """What the body adds to element ``index`` of its state, where it adds a constant."""
    add = _followed(body, name)
    if add is None or add.opcode != "add":
        return None
    for mine, other in (add.operands, reversed(add.operands)):
        if _element(body, mine) == index:
            return _constant(body, other)
    return None


def _followed(computation: Computation, name: str) -> Instruction | None:
    instruction = computation.get(name)
    while instruction is not None and instruction.opcode in _SAME:
        instruction = computation.get(instruction.operands[0])
    return instruction


def _element(computation: Computation, name: str) -> int | None:
    """Which element of the computation's parameter ``name`` is."""
    found = _followed(computation, name)
    if found is None or found.opcode != "get-tuple-element":
        return None
    source = _followed(computation, found.operands[0])
    index = re.search(r"index=(\d+)", found.attributes)
    return int(index[1]) if index and source is not None and source.opcode == "parameter" else None


def _constant(computation: Computation, name: str) -> int | None:
    found = _followed(computation, name)
    if found is None or found.opcode != "constant" or not re.fullmatch(r"-?\d+", found.literal):
        return None
    return int(found.literal)


def _branches(instruction: Instruction) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", instruction.attributes)
    if listed:
        return re.findall(r"%?([\w.\-]+)", listed[1])
    named = (instruction.called("true_computation"), instruction.called("false_computation"))
    return [name for name in named if name is not None]
