"""A forecast: what one step of a cell would take on a chip, put together from its programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tpubench import catalog
from tpubench.forecast import hlo
from tpubench.forecast.compiled import Compiler, Outcome
from tpubench.forecast.estimate import Estimate, Op, estimate, roofline
from tpubench.forecast.programs import Program, Step
from tpubench.record import Status
from tpubench.spec import Spec

#: How a program's numbers were found: compiled as ever, with the least effort, or not at all.
COMPILED, LEAST, NOT_COMPILED = "compiled", "compiled with the least effort", "not compiled"
#: Programs that a note names.
_NAMES = 3
#: Ops that a forecast names.
_OPS = 10


@dataclasses.dataclass(slots=True)
class Part:
    """One program of the step: what became of its compile, and one launch of it."""

    program: Program
    outcome: Outcome  # of the compiler's usual effort
    estimate: Estimate | None = None
    memory: dict[str, int] | None = None  # as in Outcome
    least_bytes: float = 0.0  # where memory is not known
    how: str = COMPILED


@dataclasses.dataclass(slots=True)
class Forecast:
    """One cell on one device of a chip. Seconds and US dollars a step, bytes a device; None: not known, see notes.

    ``low_s`` is the roofline's: no less is possible. ``high_s`` is the compiler's, program after program, with
    ``launch_s`` for each launch: an estimate that nothing overlaps in, no upper bound.
    """

    spec: Spec
    chip: str
    status: str
    reason: str | None = None
    programs: int = 0
    launches: int = 0
    launch_s: float = 0.0
    low_s: float | None = None
    high_s: float | None = None
    bound_by: str | None = None  # compute | memory | launches: what most of high_s is
    bound_share: float | None = None  # how much of it
    memory_bytes: int | None = None  # at the step's peak
    memory_whole: bool = True  # else it is what is held at least
    capacity_bytes: int | None = None  # what the compiler lets a program have
    fits: bool | None = None
    flops: float | None = None  # of the compiled programs
    hbm_bytes: float | None = None
    model_flops: float | None = None
    mfu_low: float | None = None
    mfu_high: float | None = None
    item: str | None = None
    items: float | None = None
    usd_per_chip_hour: float | None = None
    price_source: str | None = None
    usd_low: float | None = None  # a step
    usd_high: float | None = None
    compile_s: float | None = None
    jax_version: str | None = None
    libtpu_version: str | None = None
    clock_ghz: float | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    ops: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    parts: list[Part] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is a time."""
        return self.status == Status.OK

    def rate(self, seconds: float | None) -> float | None:
        """Items a second at that step time."""
        return self.items / seconds if self.items and seconds else None

    def usd_per_million(self, usd: float | None) -> float | None:
        """USD per million items at that price a step."""
        return usd / self.items * 1e6 if self.items and usd is not None else None


#: Told the program's number (from 1), how many there are, the program, and whether it has to be compiled.
OnProgram = Callable[[int, int, Program, bool], None]


def forecast(
    spec: Spec, step: Step, compiler: Compiler, *, timeout: float, launch_s: float, price: str | None,
    quick: bool = False,
    on_program: OnProgram = lambda number, total, program, compiles: None,
) -> Forecast:  # fmt: skip
    """The forecast of ``step``; what a compile does becomes a row, never an exception.

    A program that libtpu does not get done is compiled with its least effort instead, which tells memory and least
    time; where that fails too, its roofline is taken from what was to be compiled. ``quick`` compiles nothing: it takes
    what was compiled before, and the roofline of the rest.
    """
    target = compiler.target
    made = Forecast(
        spec, target.chip, Status.OK, programs=len(step.programs), launches=step.launches, launch_s=launch_s,
        model_flops=step.model_flops, item=step.item, items=step.items, clock_ghz=target.clock_ghz,
        jax_version=compiler.versions[0], libtpu_version=compiler.versions[1],
        notes=list(step.warnings),
    )  # fmt: skip
    made.capacity_bytes = compiler.capacity()
    for number, program in enumerate(step.programs, 1):
        known = compiler.known(program.digest)
        on_program(number, len(step.programs), program, known is None and not quick)
        part = _part(program, compiler, timeout, quick)
        made.parts.append(part)
        if part.outcome.status == Status.OOM:
            made.status, made.reason, made.fits = Status.OOM, f"{program.name}: {part.outcome.reason}", False
            break
    made.compile_s = sum(part.outcome.seconds or 0.0 for part in made.parts)
    if made.status == Status.OK:
        _weigh(made)
        _time(made, target.devices)
        _pay(made, target.devices, price)
    made.notes += _caveats(made, target.clock_reason, target.devices)
    return made


def _part(program: Program, compiler: Compiler, timeout: float, quick: bool) -> Part:
    outcome = compiler.known(program.digest) if quick else compiler.compile(program.digest, timeout)
    part = Part(program, outcome or Outcome(Status.SKIPPED, "--quick"))
    least = None
    if part.outcome.status in (Status.ERROR, Status.TIMEOUT):
        least = compiler.known(program.digest, least=True) if quick else compiler.compile(program.digest, timeout, True)
    for made, how in ((part.outcome, COMPILED), (least, LEAST)):
        if made is not None and made.status == Status.OK:
            assert made.memory is not None
            part.memory, part.how = made.memory, how
            boundary = made.memory["arguments"] + made.memory["outputs"]
            part.estimate = estimate(hlo.parse(made.text()), compiler.target, boundary)
            if how == LEAST:  # its cycles are several times those of the program that would run
                part.estimate = dataclasses.replace(part.estimate, high_s=None, cycles_s=None, ops=(), uncounted={})
            return part
    if part.outcome.status != Status.OOM:
        part.how = NOT_COMPILED
        part.estimate, part.least_bytes = roofline(hlo.parse(compiler.before(program.digest)), compiler.target)
    return part


def _weigh(made: Forecast) -> None:
    """The memory at the step's peak: a program's own, and what else is held while it runs."""
    peaks = []
    for part in made.parts:
        memory, own = part.memory, part.least_bytes
        if memory is not None:
            own = memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temporaries"] + memory["code"]
        peaks.append(int(own) + part.program.beside_bytes)
    made.memory_bytes = max(peaks, default=0)
    made.memory_whole = all(part.memory is not None for part in made.parts)
    if made.capacity_bytes is None:
        return
    if made.memory_bytes > made.capacity_bytes:
        over = (made.memory_bytes - made.capacity_bytes) / 2**30
        made.fits, made.status = False, Status.OOM
        made.reason = f"the step holds {over:.2f} GiB more than a program can have: take a smaller --batch"
    elif made.memory_whole:
        made.fits = True


def _time(made: Forecast, devices: int) -> None:
    low = high = flops = moved = computing = 0.0
    reasons: list[str] = []
    whole_low = whole_high = True
    for part in made.parts:
        one, launches = part.estimate, part.program.launches
        assert one is not None, "every program that is not too large has one"
        if one.reason:
            reasons.append(f"{part.program.name}: {one.reason}")
        whole_low = whole_low and one.low_s is not None
        whole_high = whole_high and one.high_s is not None
        low += launches * (one.low_s or 0.0)
        high += launches * (one.high_s or 0.0)
        computing += launches * one.compute_s
        flops += launches * sum(one.flops.values())
        moved += launches * one.hbm_bytes
    made.flops, made.hbm_bytes = flops, moved
    made.notes += [f"no time: {reason}" for reason in dict.fromkeys(reasons)]
    made.low_s = low if whole_low else None
    made.high_s = high + made.launches * made.launch_s if whole_high else None
    if made.high_s:
        shares = {"compute": computing, "memory": high - computing, "launches": made.launches * made.launch_s}
        made.bound_by = max(shares, key=lambda name: shares[name])
        made.bound_share = shares[made.bound_by] / made.high_s
    elif made.low_s:
        made.bound_by = "compute" if computing >= low / 2 else "memory"
    made.ops = _heaviest(made.parts)
    peak = catalog.peak(made.chip, made.spec.dtype, "bfloat16")
    if peak is not None and made.model_flops:
        most = peak.tflops * 1e12 / devices
        # The model's count holds what the compiler leaves out, as products with padding: no more than all is possible.
        made.mfu_high = min(1.0, made.model_flops / made.low_s / most) if made.low_s else None
        made.mfu_low = min(1.0, made.model_flops / made.high_s / most) if made.high_s else None


def _heaviest(parts: Sequence[Part]) -> list[dict[str, Any]]:
    found: list[tuple[float, str, Op]] = [
        (part.program.launches * op.seconds, part.program.name, op)
        for part in parts
        if part.estimate
        for op in part.estimate.ops
    ]
    total = sum(
        part.program.launches * part.estimate.high_s for part in parts if part.estimate and part.estimate.high_s
    )
    found.sort(key=lambda one: -one[0])
    return [
        {"op": op.name, "program": name, "seconds": seconds, "share": seconds / total if total else None,
         "product": op.product, "source": op.source}
        for seconds, name, op in found[:_OPS]
    ]  # fmt: skip


def _pay(made: Forecast, devices: int, wanted: str | None) -> None:
    price = catalog.price(wanted or "gcp", made.chip)
    if price is None:
        made.notes.append(f"no cost: {wanted or 'the catalogue'} has no price for {made.chip}: give --price")
        return
    made.usd_per_chip_hour, made.price_source = price.usd_per_chip_hour, price.source
    a_second = price.usd_per_chip_hour / 3600 / devices
    made.usd_low = None if made.low_s is None else made.low_s * a_second
    made.usd_high = None if made.high_s is None else made.high_s * a_second


def _caveats(made: Forecast, clock_reason: str, devices: int) -> list[str]:
    notes = []
    failed = [part for part in made.parts if part.how != COMPILED]
    for how in (LEAST, NOT_COMPILED):
        for reason in dict.fromkeys(part.outcome.reason for part in failed if part.how == how):
            same = [part.program.name for part in failed if part.how == how and part.outcome.reason == reason]
            names = ", ".join(same[:_NAMES]) + (f" and {len(same) - _NAMES} more" if len(same) > _NAMES else "")
            what = "memory and least time are that program's" if how == LEAST else "its least time is its roofline's"
            notes.append(f"{names}: {reason}; {how}: {what}")
    uncounted: dict[str, int] = {}
    for part in made.parts:
        for opcode, count in (part.estimate.uncounted if part.estimate else {}).items():
            uncounted[opcode] = uncounted.get(opcode, 0) + count * part.program.launches
    if uncounted:
        which = ", ".join(f"{count} {opcode}" for opcode, count in sorted(uncounted.items()))
        notes.append(f"the compiler says no cycles of {which}: counted by the bytes they move alone")
    if made.high_s is not None:
        notes.append(f"cycles read at {made.clock_ghz:g} GHz, {clock_reason}")
    if devices > 1:
        notes.append(f"one of the chip's {devices} devices: half its peak, memory and price")
    return notes
