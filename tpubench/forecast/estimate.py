"""How long one launch of a compiled program takes on a chip, from below and as the compiler has it.

From below: the roofline, which no chip can beat. As the compiler has it: every scheduled instruction after the other;
a matrix product or convolution takes the compiler's cycles or its bytes' time, whichever is longer, and anything else
its bytes' time, for the compiler's cycles of elementwise programs are 1.5 to 4 times what the bandwidth gives. Neither
was held against a TPU.
"""

from __future__ import annotations

import dataclasses

from tpubench import catalog
from tpubench.forecast.hlo import Instruction, Module
from tpubench.forecast.loops import Computation, runs
from tpubench.forecast.roofline import bound
from tpubench.forecast.target import Target
from tpubench.forecast.traffic import NAMING, STILL, traffic
from tpubench.forecast.work import work


@dataclasses.dataclass(frozen=True, slots=True)
class Op:
    """One scheduled instruction: how often it runs in a launch, and seconds and HBM bytes of all its runs."""

    name: str
    opcode: str
    runs: int
    seconds: float
    bytes: float
    product: bool
    source: str  # where the program says it comes from


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """One launch, on one device: seconds, FLOPs and bytes. Times are None where ``reason`` says why."""

    low_s: float | None
    high_s: float | None
    compute_s: float  # of high_s, what the compiler's cycles make; bytes make the rest
    flops: dict[str, float]
    hbm_bytes: float  # what the scheduled instructions move
    cycles_s: float | None  # the compiler's cycles alone, as they are
    uncounted: dict[str, int]  # instructions of which the compiler says no cycles, and neither bytes nor they do
    ops: tuple[Op, ...]  # the heaviest first
    reason: str | None


#: Instructions that an estimate keeps.
_HEAVIEST = 50
#: Opcodes whose time neither bytes nor the compiler tell.
_UNKNOWN = frozenset(
    """sort custom-call all-reduce all-gather reduce-scatter all-to-all collective-permute all-reduce-start
    all-gather-start collective-permute-start rng""".split()
)


def estimate(module: Module, target: Target, boundary_bytes: float) -> Estimate:
    """The estimate of ``module``, compiled for ``target``; its arguments and outputs take ``boundary_bytes``."""
    found = work(module)
    lower = bound(target.chip, found.flops, boundary_bytes)
    memory = catalog.memory(target.chip)
    bandwidth = None if memory is None else memory.gbps * 1e9 / target.devices
    clock = target.clock_ghz * 1e9
    ops: list[Op] = []
    serial = moved = computing = 0.0
    uncounted: dict[str, int] = {}
    for name, times in runs(module).scheduled.items():
        computation = module.computations[name]
        for instruction in computation.values():
            if instruction.opcode in STILL:
                continue
            product = _multiplies(module, instruction)
            nbytes = traffic(module, computation, instruction)
            one = nbytes / bandwidth if bandwidth else 0.0
            cycles = instruction.cycles
            if cycles is not None and (product or not nbytes):
                computing += times * (cycles / clock if cycles / clock > one else 0.0)
                one = max(one, cycles / clock)
            if cycles is None and instruction.opcode in _UNKNOWN and _runs_code(instruction):
                kind = instruction.target or instruction.opcode
                uncounted[kind] = uncounted.get(kind, 0) + times
            moved += times * nbytes
            if instruction.opcode.endswith("-start"):
                continue  # it goes on beside what follows: its bytes count in the sum
            serial += times * one
            ops.append(
                Op(instruction.name, instruction.opcode, times, times * one, times * nbytes, product,
                   instruction.source)
            )  # fmt: skip
    ops.sort(key=lambda op: -op.seconds)
    reason = lower.reason
    if found.unknown:
        reason = f"how often {', '.join(found.unknown[:3])} runs is not known before it runs"
    high = None if bandwidth is None or found.unknown else max(serial, moved / bandwidth)
    low = None if found.unknown else lower.seconds
    if low is not None and high is not None and low > high:
        high, computing = low, low if lower.bound_by == "compute" else 0.0
    cycles_s = None if found.unknown else found.cycles / clock
    return Estimate(low, high, computing, found.flops, moved, cycles_s, uncounted, tuple(ops[:_HEAVIEST]), reason)


def roofline(before: Module, target: Target) -> tuple[Estimate, float]:
    """What can be said of a program that was not compiled, from its HLO ``before`` anything is optimised: the least
    time, no greatest one; and the bytes of its arguments or outputs, which it cannot do without."""
    entry = before.computations[before.entry]
    given = sum(a.nbytes for i in entry.values() if i.opcode == "parameter" for a in i.shape)
    made = sum(a.nbytes for i in entry.values() if i.root for a in i.shape)
    found = work(before)
    lower = bound(target.chip, found.flops, given + made)
    reason, low = lower.reason, lower.seconds
    if found.unknown:
        reason, low = f"how often {', '.join(found.unknown[:3])} runs is not known before it runs", None
    computing = (low or 0.0) if lower.bound_by == "compute" else 0.0
    return Estimate(low, None, computing, found.flops, given + made, None, {}, (), reason), max(given, made)


def _multiplies(module: Module, instruction: Instruction) -> bool:
    """Whether a matrix product or convolution is in ``instruction`` or what it fuses."""
    if instruction.opcode in ("dot", "convolution"):
        return True
    inside: Computation = module.computations.get(instruction.called("calls") or "", {})
    return any(_multiplies(module, inner) for inner in inside.values())


def _runs_code(instruction: Instruction) -> bool:
    return instruction.target not in NAMING
