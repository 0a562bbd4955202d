"""Records side by side: rows of the same work share a baseline. Data only; ``table`` and ``plot`` show it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from tpubench.accounting import pooled
from tpubench.errors import BadValue, BaselineNotFound
from tpubench.notes import notes
from tpubench.record import Record
from tpubench.spec import Spec
from tpubench.stats import Interval, Pool

#: Rows that agree in these did the same work, and may be held against one another.
WORK = ("workload", "size", "phase", "optimizer", "batch", "seq_len", "dtype", "data", "chips", "mesh")
#: Runs that agree in these besides the fingerprint are repetitions of one cell.
_PLACE = ("host", "device_name", "torch_version", "jax_version", "tpubench_version")
#: What tells cells of one work, backend and mode apart: the rest of the Spec, and the place.
_TELLING = (*(f.name for f in dataclasses.fields(Spec) if f.name not in (*WORK, "backend", "mode")), *_PLACE)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One cell: one run, or several of the same fingerprint on the same machine.

    ``step`` is the median step time and ``ratio`` that over the baseline's, both None where no run is
    ok; ``record`` holds every other number of the cell, pooled where several runs are ok.
    """

    name: str  # backend:mode, and what tells it from another row of that name
    record: Record
    runs: tuple[Record, ...]
    step: Interval | None
    ratio: Interval | None
    is_baseline: bool

    @property
    def measured(self) -> tuple[Record, ...]:
        """The runs whose numbers count."""
        return tuple(r for r in self.runs if r.ok and r.step_s)

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
        phase = f"{w['phase']} ({w['optimizer']})" if w["optimizer"] else w["phase"]
        parts = [f"{w['workload']}/{w['size']}", phase, f"batch {w['batch']}"]
        if w["seq_len"]:
            parts.append(f"sequence {w['seq_len']}")
        parts.append(w["dtype"])
        if w["data"] == "host":
            parts.append("fed from the host")
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
            raise BaselineNotFound(baseline or "", sorted({_name(r.record) for g in groups for r in g.rows if r.step}))
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
    ok = [i for i, runs in enumerate(cells) if any(r.ok and r.step_s for r in runs)]
    if wanted is not None:
        return next((i for i in ok if _matches(cells[i][-1], wanted)), None)
    plain = [i for i in ok if _name(cells[i][-1]) == "torch:eager"]
    return next(iter(plain or ok), None)


def _name(record: Record) -> str:
    return f"{record.backend}:{record.mode}"


def _names(records: Sequence[Record]) -> list[str]:
    """A name for each, with the fields that tell it from others of the same backend and mode."""
    alike: dict[str, list[Record]] = {}
    for record in records:
        alike.setdefault(_name(record), []).append(record)
    telling = {
        name: [field for field in _TELLING if len({getattr(r, field) for r in same}) > 1]
        for name, same in alike.items()
    }
    return [" ".join((_name(r), *(f"{field}={getattr(r, field)}" for field in telling[_name(r)]))) for r in records]


def _pool(runs: Sequence[Record]) -> Pool | None:
    """The steps of the runs whose numbers count."""
    samples = [r.step_s for r in runs if r.ok and r.step_s]
    return Pool(samples) if samples else None


def _group(work: dict[str, Any], cells: list[list[Record]], wanted: dict[str, str] | None) -> Group:
    chosen = _pick_baseline(cells, wanted)
    pools = [_pool(runs) for runs in cells]
    base = pools[chosen] if chosen is not None else None
    rows = []
    for i, (name, runs) in enumerate(zip(_names([runs[-1] for runs in cells]), cells, strict=True)):
        record = runs[-1]
        step = ratio = None
        pool = pools[i]
        if pool is not None:
            step = pool.interval()
            good = [r for r in runs if r.ok and r.step_s]
            record = pooled(good, step) if len(good) > 1 else good[0]
            if i == chosen:
                ratio = Interval(1.0, 1.0, 1.0)
            elif base is not None:
                ratio = pool.over(base)
        rows.append(Row(name, record, tuple(runs), step, ratio, is_baseline=i == chosen))
    rows.sort(key=lambda row: row.step.value if row.step else float("inf"))
    lines = notes(rows)
    if wanted is not None and chosen is None:
        asked = ", ".join(f"{name}={value}" for name, value in wanted.items())
        lines.insert(0, f"no ratios: no row with numbers matches the baseline {asked}")
    return Group(work, tuple(rows), tuple(lines))
