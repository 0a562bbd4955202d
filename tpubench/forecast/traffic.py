"""What an instruction of an optimised program moves between HBM and the chip."""

from __future__ import annotations

from tpubench.forecast.hlo import Array, Instruction, Module
from tpubench.forecast.loops import Computation

#: Opcodes that move nothing themselves: they name values, or what they call is counted where it stands.
STILL = frozenset(
    """parameter constant tuple get-tuple-element bitcast while conditional call after-all copy-done slice-done
    async-done async-update opt-barrier partition-id replica-id add-dependency""".split()
)
#: Custom calls that only name memory.
NAMING = ("AllocateBuffer", "ConcatBitcast", "Sharding")
#: Reads of a part of their first operand.
_PARTIAL = ("slice", "dynamic-slice", "gather")


def traffic(module: Module, computation: Computation, instruction: Instruction) -> float:
    """Bytes that ``instruction`` reads from HBM and writes to it, each operand and result once, tiles filled up.

    Of an operand of which a fusion reads only a slice, the slice is counted; of a buffer that it updates in place,
    the update. What lies on the chip (a memory other than 0) is not counted.
    """
    if instruction.opcode in STILL:
        return 0.0
    if instruction.target in NAMING:
        return 0.0
    if instruction.opcode in ("copy-start", "slice-start", "async-start"):
        # Its result is a tuple: source, destination, and a flag on the chip.
        arrays = [a for a in instruction.shape if a.nbytes > 4]
        moved = min((a.nbytes for a in arrays), default=0.0)
        return moved * sum(a.space == 0 for a in arrays[:2])
    inside = module.computations.get(instruction.called("calls") or "") if instruction.opcode == "fusion" else None
    read = sum(_read(computation, instruction, place, inside) for place in range(len(instruction.operands)))
    return read + _written(instruction, inside)


def _read(computation: Computation, instruction: Instruction, place: int, inside: Computation | None) -> float:
    name = instruction.operands[place]
    if name not in computation or name in instruction.operands[:place]:
        return 0.0
    whole = _in_hbm(computation[name].shape)
    if inside is None:
        if instruction.opcode in _PARTIAL and place == 0:
            return min(whole, _in_hbm(instruction.shape))
        return 0.0 if instruction.opcode == "dynamic-update-slice" and place == 0 else whole
    parameter = next((i for i in inside.values() if i.opcode == "parameter" and i.literal == str(place)), None)
    if parameter is None:
        return whole
    part = 0.0
    for user in _users(inside, parameter.name):
        first = inside[user.operands[0]].name if user.operands else ""
        direct = first == parameter.name or first in _renamed(inside, parameter.name)
        if direct and user.opcode in _PARTIAL:
            part += sum(a.nbytes for a in user.shape)
        elif not (direct and user.opcode == "dynamic-update-slice"):
            return whole
    return min(whole, part)


def _written(instruction: Instruction, inside: Computation | None) -> float:
    whole = _in_hbm(instruction.shape)
    if inside is None:
        return whole
    root = next((i for i in inside.values() if i.root), None)
    while root is not None and root.opcode == "bitcast":
        root = inside.get(root.operands[0])
    if root is None or root.opcode != "dynamic-update-slice":
        return whole
    return min(whole, sum(a.nbytes for a in inside[root.operands[1]].shape))


def _renamed(inside: Computation, name: str) -> set[str]:
    """``name`` and the bitcasts of it."""
    names = {name}
    for instruction in inside.values():  # written in the order of their use
        if instruction.opcode == "bitcast" and instruction.operands[0] in names:
            names.add(instruction.name)
    return names


def _users(inside: Computation, name: str) -> list[Instruction]:
    names = _renamed(inside, name)
    return [i for i in inside.values() if i.opcode != "bitcast" and names & set(i.operands)]


def _in_hbm(arrays: tuple[Array, ...]) -> float:
    return sum(array.nbytes for array in arrays if array.space == 0)
