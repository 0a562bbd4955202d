"""Records side by side: rows of the same work share a baseline. Data only; ``table`` and ``plot`` show it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from tpubench.errors import BadValue, BaselineNotFound
from tpubench.record import Record
from tpubench.stats import Interval, instability, median_ci, ratio_ci

#: Rows that agree in these did the same work, and may be held against one another.
WORK = ("workload", "size", "phase", "batch", "seq_len", "dtype", "chips", "mesh")
#: Runs that agree in these besides the fingerprint are repetitions of one cell.
_PLACE = ("host", "device_name", "torch_version", "jax_version", "tpubench_version")
#: What makes rows of a table unlike each other beyond backend and mode, as far as it differs.
_UNLIKE = (
    "device",
    "device_name",
    "cpu_model",
    "host",
    "threads",
    "matmul_precision",
    "compile_scope",
    "cache",
    "cpu_fallbacks",
    "graph_breaks",
    "peak_memory_kind",
    "seed",
    "steps",
    "torch_version",
    "jax_version",
    "tpubench_version",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One cell: one run, or several of the same fingerprint on the same machine.

    ``ratio`` is this cell's median step time over the baseline's; ``record`` is the cell's latest run.
    """

    name: str  # backend:mode
    record: Record
    runs: tuple[Record, ...]
    step: Interval | None
    ratio: Interval | None
    is_baseline: bool

    @property
    def hit_rate(self) -> float | None:
        """Share of look-ups that found their executable in memory; None where none were counted."""
        requests, hits = self.record.compile_requests, self.record.compile_hits
        return hits / requests if requests and hits is not None else None

    @property
    def undecided(self) -> bool:
        """Whether the ratio's interval holds 1: no claim of a difference can be made."""
        return self.ratio is not None and not self.is_baseline and self.ratio.holds(1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """The rows of one piece of work, fastest first, those without numbers last; and what to know of them."""

    work: dict[str, Any]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def baseline(self) -> Row | None:
        """The row that the ratios are taken to."""
        return next((row for row in self.rows if row.is_baseline), None)

    @property
    def title(self) -> str:
        """The work in one line."""
        w = self.work
        parts = [f"{w['workload']}/{w['size']}", w["phase"], f"batch {w['batch']}"]
        if w["seq_len"]:
            parts.append(f"sequence {w['seq_len']}")
        parts.append(w["dtype"])
        if w["chips"] not in (None, 1):
            parts.append(f"{w['chips']} chips")
        if w["mesh"]:
            parts.append(f"mesh {w['mesh']}")
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Groups in the order in which their first record came."""

    groups: tuple[Group, ...]

    @classmethod
    def of(cls, records: Iterable[Record], baseline: str | None = None) -> Comparison:
        """Compare accounted records. ``baseline`` is ``backend:mode``, or ``field=value,...``.

        Raises:
            BadValue: ``baseline`` cannot be read.
            BaselineNotFound: it matches no row of any group.
        """
        wanted = _parse_filter(baseline) if baseline else None
        works: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Record]]] = {}
        for record in records:
            # A cell that never opened its device does not know its chips: one, like its neighbours.
            work = tuple(getattr(record, f) or (1 if f == "chips" else None) for f in WORK)
            place = (record.fingerprint, *(getattr(record, f) if record.ok else None for f in _PLACE))
            works.setdefault(work, {}).setdefault(place, []).append(record)
        groups = tuple(
            _group(dict(zip(WORK, work, strict=True)), list(cells.values()), wanted) for work, cells in works.items()
        )
        if wanted is not None and not any(g.baseline for g in groups):
            raise BaselineNotFound(baseline or "", sorted({r.name for g in groups for r in g.rows if r.record.ok}))
        return cls(groups)


def _parse_filter(text: str) -> dict[str, str]:
    """``torch:eager`` or ``backend=torch,mode=eager`` as field values."""
    if "=" not in text:
        backend, colon, mode = text.partition(":")
        if not backend or (colon and not mode):
            raise BadValue("--baseline", text, "give backend:mode, or field=value pairs separated by commas")
        return {"backend": backend, "mode": mode} if colon else {"backend": backend}
    fields = {f.name for f in dataclasses.fields(Record)}
    wanted = {}
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        if name.strip() not in fields or not value:
            raise BadValue("--baseline", pair, "give field=value pairs of a record's fields: backend=torch,mode=eager")
        wanted[name.strip()] = value.strip()
    return wanted


def _matches(record: Record, wanted: dict[str, str]) -> bool:
    return all(str(getattr(record, name)) == value for name, value in wanted.items())


def _pick_baseline(cells: Sequence[Sequence[Record]], wanted: dict[str, str] | None) -> int | None:
    """The index of the baseline: the first that matches; by default plain PyTorch, eager, where it ran."""
    ok = [i for i, runs in enumerate(cells) if any(r.ok for r in runs)]
    if wanted is not None:
        return next((i for i in ok if _matches(cells[i][-1], wanted)), None)
    plain = [i for i in ok if (cells[i][-1].backend, cells[i][-1].mode) == ("torch", "eager")]
    return next(iter(plain or ok), None)


def _group(work: dict[str, Any], cells: list[list[Record]], wanted: dict[str, str] | None) -> Group:
    chosen = _pick_baseline(cells, wanted)
    base = [r.step_s for r in cells[chosen] if r.ok] if chosen is not None else []
    rows = []
    for i, runs in enumerate(cells):
        record = runs[-1]
        samples = [r.step_s for r in runs if r.ok]
        step = ratio = None
        if samples:
            record = next(r for r in reversed(runs) if r.ok)
            step = median_ci([s for run in samples for s in run])
            if i == chosen:
                ratio = Interval(1.0, 1.0, 1.0)
            elif base:
                ratio = ratio_ci(samples, base)
        name = f"{record.backend}:{record.mode}"
        rows.append(Row(name, record, tuple(runs), step, ratio, is_baseline=i == chosen))
    rows.sort(key=lambda row: row.step.value if row.step else float("inf"))
    return Group(work, tuple(rows), tuple(_notes(rows)))


def _notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must know before a ratio of this table is believed."""
    measured = [row for row in rows if row.step is not None]
    notes = []
    for field in _UNLIKE:
        values: dict[Any, list[str]] = {}
        for row in measured:
            values.setdefault(getattr(row.record, field), []).append(row.name)
        if len(values) > 1:
            text = "; ".join(f"{_shown(v)} [{', '.join(dict.fromkeys(names))}]" for v, names in values.items())
            notes.append(f"differs: {field}: {text}")
    for row in measured:
        record = row.record
        if record.correctness != "matched":
            why = f": {record.correctness_detail}" if record.correctness_detail else ""
            notes.append(f"{row.name}: correctness {record.correctness or 'not checked'}{why}")
        if record.cpu_fallback_ops:
            notes.append(f"{row.name}: ran on the CPU: {', '.join(record.cpu_fallback_ops)}")
        samples = [s for run in row.runs if run.ok for s in run.step_s]
        notes += [f"{row.name}: {text}" for text in [*instability(samples), *record.warnings]]
    notes += _shared(measured, "mfu_reason", "no MFU")
    notes += _shared(measured, "peak_source", "peak")
    notes += _shared(measured, "cost_reason", "no cost")
    notes += _shared(measured, "price_source", "price")
    if measured and all(len(row.runs) == 1 for row in measured):
        notes.append("one process a cell: how much processes differ was not measured")
    return notes


def _shared(rows: Sequence[Row], field: str, title: str) -> list[str]:
    """``field`` of every row, each text once, with the rows it holds for unless it holds for all."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        text = getattr(row.record, field)
        if text:
            texts.setdefault(text, []).append(row.name)
    notes = []
    for text, names in texts.items():
        whose = "" if len(names) == len(rows) else f" [{', '.join(dict.fromkeys(names))}]"
        notes.append(f"{title}{whose}: {text}")
    return notes


def _shown(value: Any) -> str:
    return "unknown" if value is None else str(value)
