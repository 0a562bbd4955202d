"""What a profile holds: steps, busy and idle time, and time by op. From the ``.xplane.pb`` alone."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from backend.xspace import Event, Line, Plane
from tpubench.errors import TraceIncomplete
from tpubench.trace.source import planes_of

Span = tuple[float, float]

#: Category by what the name of an op or its program says, first match.
_CATEGORIES = (
    # XLA's CPU compiler hands matrix products, reductions and what surrounds them to a library.
    ("library", r"ynn_fusion"),
    ("collective", r"all-?reduce|all-?gather|reduce-?scatter|all-?to-?all|collective|nccl"),
    ("convolution", r"conv"),
    ("matmul", r"\bdot\b|dot[._]|matmul|gemm|addmm|\bb?mm\b|_mm\b|linear|attention"),
    ("reduction", r"reduce|sum|mean|norm|softmax|argmax|amax|pool|nll_loss"),
    ("copy", r"copy|transpose|reshape|bitcast|concatenate|\bcat\b|slice|pad|broadcast|memcpy|memset|convert"),
    (
        "elementwise",
        r"fusion|add|sub|mul|div|relu|exp|log|tanh|sigmoid|where|select|compare|maximum|foreach|threshold|sqrt|fill",
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class OpTime:
    """One op of one program. ``total_ns`` is its own time, without that of ops inside it."""

    name: str
    module: str
    category: str
    count: int
    total_ns: float
    share: float  # of the time of all ops of its plane


@dataclasses.dataclass(frozen=True, slots=True)
class PlaneSummary:
    """A device, or a host that runs ops. ``window_ns`` is from the first step's start to the last's end."""

    name: str
    is_device: bool
    step_ns: tuple[float, ...]
    window_ns: float
    busy_ns: float  # when at least one op ran, within the window
    ops: tuple[OpTime, ...]  # heaviest first

    @property
    def idle_share(self) -> float:
        """The part of the window in which no op ran."""
        return 1 - self.busy_ns / self.window_ns if self.window_ns else 0.0

    @property
    def step_median_ns(self) -> float | None:
        """The median of the marked steps."""
        return statistics.median(self.step_ns) if self.step_ns else None


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """The planes of a profile on which ops ran."""

    path: Path
    size_bytes: int
    steps: int
    planes: tuple[PlaneSummary, ...]


def summarize(path: Path) -> Summary:
    """The summary of a ``.xplane.pb`` of ours.

    Raises:
        TraceIncomplete: it cannot be read, or holds no steps, or no ops.
    """
    summary = summed(path, planes_of(path))
    if not summary.steps:
        raise TraceIncomplete(f"'{path}' marks no steps", "capture it with `tpubench trace`, which marks them")
    return summary


def summed(path: Path, planes: Sequence[Plane]) -> Summary:
    """The summary of the ``planes`` that are in the trace ``path``; steps need not be marked in it.

    Raises:
        TraceIncomplete: it holds no ops.
    """
    host_steps = [e for p in planes for line in p.lines for e in line.events if _is_step(e)]
    summaries = tuple(s for p in planes if (s := _plane(p, host_steps)) is not None)
    if not summaries:
        raise TraceIncomplete(f"'{path}' holds no ops", _no_ops(planes, bool(host_steps)))
    steps = max(len(s.step_ns) for s in summaries)
    return Summary(path, path.stat().st_size, steps, summaries)


def _no_ops(planes: Sequence[Plane], steps: bool) -> str:
    """What to do about a trace without ops, by what is in it."""
    device = next((p.name for p in planes if _is_device(p)), None)
    if device is not None:
        return f"nothing ran on {device} while it was captured: start the capture once the steps run"
    if steps:
        return "the host alone was captured: take host_tracer_level 2 or more, on the machine that has the device"
    return "capture more steps, after the warm-up: tpubench trace captures, marks and checks them"


def _is_step(event: Event) -> bool:
    return "step_num" in event.stats and "_r" in event.stats


def _is_device(plane: Plane) -> bool:
    return plane.name.startswith("/device:")


def _is_op(event: Event, line: Line, on_device: bool) -> bool:
    if on_device:
        # XLA's streams are named "Stream #13(Compute)", those of a Chrome trace "stream 7".
        return line.name in ("XLA Ops", "Sparse Core Ops") or line.name.lower().startswith("stream ")
    return "hlo_op" in event.stats or "tf_op" in event.stats


def _plane(plane: Plane, host_steps: Sequence[Event]) -> PlaneSummary | None:
    on_device = _is_device(plane)
    ops = {line.name: [e for e in line.events if _is_op(e, line, on_device)] for line in plane.lines}
    if not any(ops.values()):
        return None
    marked = [e for line in plane.lines if line.name == "Steps" for e in line.events] if on_device else []
    steps = sorted(marked, key=lambda e: e.start_ns) or _in_order(host_steps)
    start, end = _window(steps, [e for events in ops.values() for e in events])
    inside = [[e for e in events if start <= e.start_ns < end] for events in ops.values()]
    return PlaneSummary(
        name=plane.name,
        is_device=on_device,
        step_ns=tuple(e.duration_ns for e in steps),
        window_ns=end - start,
        busy_ns=_covered((max(e.start_ns, start), min(e.end_ns, end)) for line in inside for e in line),
        ops=_by_op(inside),
    )


def _in_order(steps: Iterable[Event]) -> list[Event]:
    """Steps by start; a step marked on several threads counts once."""
    first: dict[object, Event] = {}
    for event in sorted(steps, key=lambda e: e.start_ns):
        first.setdefault(event.stats.get("step_num", event.name), event)
    return list(first.values())


def _window(steps: Sequence[Event], ops: Sequence[Event]) -> Span:
    events = steps or ops
    return min(e.start_ns for e in events), max(e.end_ns for e in events)


def _covered(spans: Iterable[Span]) -> float:
    """The length of the union of ``spans``."""
    total, reach = 0.0, float("-inf")
    for start, end in sorted(spans):
        if end > reach:
            total += end - max(start, reach)
            reach = end
    return total


def self_times(events: Iterable[Event]) -> list[tuple[Event, float]]:
    """Each event of one line with its own time: less that of the events nested in it."""
    own: list[tuple[Event, float]] = []
    open_: list[tuple[Event, int]] = []  # events that have not ended, with their place in `own`
    for event in sorted(events, key=lambda e: (e.start_ns, -e.duration_ns)):
        while open_ and open_[-1][0].end_ns <= event.start_ns:
            open_.pop()
        if open_:
            outer, place = open_[-1]
            inner = min(event.end_ns, outer.end_ns) - event.start_ns
            own[place] = (outer, own[place][1] - inner)
        own.append((event, event.duration_ns))
        open_.append((event, len(own) - 1))
    return own


def _by_op(lines: Iterable[list[Event]]) -> tuple[OpTime, ...]:
    totals: dict[tuple[str, str, str], tuple[int, float]] = {}
    for events in lines:
        for event, own in self_times(events):
            name = str(event.stats.get("hlo_op") or event.name)
            module = str(event.stats.get("hlo_module") or "")
            category = str(event.stats.get("hlo_category") or categorise(name, module))
            count, total = totals.get((name, module, category), (0, 0.0))
            totals[name, module, category] = (count + 1, total + own)
    everything = sum(total for _, total in totals.values()) or 1.0
    ops = [
        OpTime(name, module, category, count, total, total / everything)
        for (name, module, category), (count, total) in totals.items()
    ]
    return tuple(sorted(ops, key=lambda op: (-op.total_ns, op.name)))


def categorise(name: str, module: str) -> str:
    """The kind of work that an op's own name tells of, else its program's."""
    for text in (name, module):
        if text == name and re.fullmatch(r"(loop_|wrapped_)?fusion[.\d]*", name) and module:
            continue  # says nothing; the program's name may
        for category, pattern in _CATEGORIES:
            if re.search(pattern, text.lower()):
                return category
    return "other"
