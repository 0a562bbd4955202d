"""Records side by side: rows of the same work share a baseline. Data only; ``table`` and ``plots`` show it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from tpubench.accounting import pooled
from tpubench.errors import BadValue, BaselineNotFound, DifferentWork, NothingToCompare, UnknownName
from tpubench.filters import Filter
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
    best: bool = False  # the fastest of its group, or so near that the ratio's interval holds 1
    base: Record | None = None  # what ``ratio`` is to
    p_value: float | None = None  # of the Mann-Whitney test against it; see Pool.p_value

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

    @property
    def ratio_per_item(self) -> Interval | None:
        """``ratio`` of the times an item, where the baseline's steps hold another number of the same items."""
        ratio, base = self.ratio, self.base
        if ratio is None or base is None or base.item != self.record.item:
            return None
        here, there = self.record.items_per_step, base.items_per_step
        return ratio.times(there / here) if here and there else None


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """The rows of one piece of work, fastest first, those without numbers last; and what to know of them."""

    work: dict[str, Any]  # without the fields that rows were compared across
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
        named = [str(w[field]) for field in ("workload", "size") if field in w]
        parts = ["/".join(named)] if named else []
        if "phase" in w:
            parts.append(f"{w['phase']} ({w['optimizer']})" if w.get("optimizer") else w["phase"])
        if "batch" in w:
            parts.append(f"batch {w['batch']}")
        if w.get("seq_len"):
            parts.append(f"sequence {w['seq_len']}")
        if "dtype" in w:
            parts.append(w["dtype"])
        if w.get("data") == "host":
            parts.append("fed from the host")
        if w.get("chips") not in (None, 1):
            parts.append(f"{w['chips']} chips")
        if w.get("mesh"):
            parts.append(f"mesh {w['mesh']}")
        return ", ".join(parts) or "any work"


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Groups in the order in which their first record came."""

    groups: tuple[Group, ...]
    across: tuple[str, ...] = ()  # fields of WORK in which rows of one group may differ

    @classmethod
    def of(
        cls,
        records: Iterable[Record],
        baseline: str | None = None,
        across: Sequence[str] = (),
        against: Sequence[Record] | None = None,
    ) -> Comparison:
        """Compare accounted records.

        ``baseline`` is a :class:`Filter`. Rows whose work differs are held against one another only where it does so in
        fields of ``across``. With ``against`` every cell is held against the same cell of those records instead.

        Raises:
            BadValue: ``baseline`` cannot be read.
            UnknownName: a field is none.
            BaselineNotFound: it matches no row of any group.
            DifferentWork: it asks for work that other rows did not do.
            NothingToCompare: no cell is among ``against``.
        """
        for field in across:
            if field not in WORK:
                raise UnknownName("field of the work in --across", field, WORK)
        wanted = Filter.parse("--baseline", baseline) if baseline else None
        if wanted is not None and against is not None:
            raise BadValue("--baseline", wanted.text, "with --against each cell is held against itself: leave it out")
        fields = tuple(f for f in WORK if f not in across)
        works: dict[tuple[Any, ...], dict[tuple[Any, ...], list[Record]]] = {}
        for record in records:
            # A cell that never opened its device does not know its chips: one, like its neighbours.
            work = tuple(getattr(record, f) or (1 if f == "chips" else None) for f in fields)
            works.setdefault(work, {}).setdefault(_cell(record), []).append(record)
        earlier = None if against is None else _by_fingerprint(against)
        if wanted is not None:
            _refuse_different_work(wanted, fields, list(works))
        groups = tuple(
            _group(dict(zip(fields, work, strict=True)), list(cells.values()), wanted, across, earlier)
            for work, cells in works.items()
        )
        if wanted is not None and not any(g.baseline for g in groups):
            raise BaselineNotFound(baseline or "", sorted({_name(r.record) for g in groups for r in g.rows if r.step}))
        if earlier is not None and not any(r.ratio for g in groups for r in g.rows):
            raise NothingToCompare("no cell with numbers is in both", "name records of the same cells with --against")
        return cls(groups, tuple(across))

    @property
    def differing(self) -> dict[str, list[Any]]:
        """The fields in which the groups' work differs, with their values: rows of two groups are not compared."""
        values = {
            field: list(dict.fromkeys(group.work[field] for group in self.groups))
            for field in WORK
            if field not in self.across
        }
        return {field: given for field, given in values.items() if len(given) > 1}


def _cell(record: Record) -> tuple[Any, ...]:
    """What the runs of one cell share. A run that failed early knows no place."""
    return (record.fingerprint, *(getattr(record, f) if record.ok else None for f in _PLACE))


def _by_fingerprint(records: Sequence[Record]) -> dict[str, list[list[Record]]]:
    """The cells with numbers, by fingerprint: one for each place where it ran, in the order in which they came."""
    cells: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record.ok and record.step_s:
            cells.setdefault(_cell(record), []).append(record)
    found: dict[str, list[list[Record]]] = {}
    for (fingerprint, *_), runs in cells.items():
        found.setdefault(fingerprint, []).append(runs)
    return found


def _refuse_different_work(wanted: Filter, fields: Sequence[str], works: Sequence[tuple[Any, ...]]) -> None:
    for field in wanted.fields:
        if field in fields:
            place = fields.index(field)
            values = list(dict.fromkeys(work[place] for work in works))
            if len(values) > 1:
                raise DifferentWork(field, values, wanted.text)


def _pick_baseline(cells: Sequence[Sequence[Record]], wanted: Filter | None) -> int | None:
    """The index of the baseline: the first that matches; by default plain PyTorch, eager, where it ran."""
    ok = [i for i, runs in enumerate(cells) if any(r.ok and r.step_s for r in runs)]
    if wanted is not None:
        return next((i for i in ok if wanted.matches(cells[i][-1])), None)
    plain = [i for i in ok if _name(cells[i][-1]) == "torch:eager"]
    return next(iter(plain or ok), None)


def _name(record: Record) -> str:
    return f"{record.backend}:{record.mode}"


def _names(records: Sequence[Record], across: Sequence[str]) -> list[str]:
    """A name for each, with the fields that tell it from others of the same backend and mode."""
    alike: dict[str, list[Record]] = {}
    for record in records:
        alike.setdefault(_name(record), []).append(record)
    # Fields of the work come first, and stand with every row: whatever they are called, their work differs.
    differ = [field for field in across if len({getattr(r, field) for r in records}) > 1]
    telling = {
        name: [*differ, *(field for field in _TELLING if len({getattr(r, field) for r in same}) > 1)]
        for name, same in alike.items()
    }
    return [" ".join((_name(r), *(f"{field}={getattr(r, field)}" for field in telling[_name(r)]))) for r in records]


def _pool(runs: Sequence[Record]) -> Pool | None:
    """The steps of the runs whose numbers count."""
    samples = [r.step_s for r in runs if r.ok and r.step_s]
    return Pool(samples) if samples else None


def _summed_up(runs: Sequence[Record], step: Interval) -> Record:
    good = [r for r in runs if r.ok and r.step_s]
    return pooled(good, step) if len(good) > 1 else good[0]


def _counterpart(runs: Sequence[Record], earlier: dict[str, list[list[Record]]]) -> list[Record] | None:
    """The same cell's runs: those on the same machine where there are any, else the latest."""
    found = earlier.get(runs[-1].fingerprint, [])
    here = [c for c in found if (c[-1].host, c[-1].device_name) == (runs[-1].host, runs[-1].device_name)]
    return next(iter((here or found)[-1:]), None)


def _best(pools: Sequence[Pool | None]) -> set[int]:
    """The fastest, and those whose ratio to it has an interval that holds 1; none where only one has numbers."""
    known = [(pool.value, i) for i, pool in enumerate(pools) if pool is not None]
    if len(known) < 2:
        return set()
    first = min(known)[1]
    fastest = pools[first]
    assert fastest is not None
    return {i for i, pool in enumerate(pools) if i == first or (pool and pool.over(fastest).known_to_hold(1.0))}


def _group(
    work: dict[str, Any],
    cells: list[list[Record]],
    wanted: Filter | None,
    across: Sequence[str],
    earlier: dict[str, list[list[Record]]] | None,
) -> Group:
    chosen = _pick_baseline(cells, wanted) if earlier is None else None
    pools = [_pool(runs) for runs in cells]
    best = set() if across else _best(pools)
    rows = []
    for i, (name, runs) in enumerate(zip(_names([runs[-1] for runs in cells], across), cells, strict=True)):
        record, pool, base, ratio, p = runs[-1], pools[i], None, None, None
        step = None if pool is None else pool.interval()
        held = cells[chosen] if chosen is not None else _counterpart(runs, earlier) if earlier is not None else None
        if pool is not None and step is not None:
            record = _summed_up(runs, step)
            if held is not None:
                other = pools[chosen] if chosen is not None else _pool(held)
                assert other is not None
                base = _summed_up(held, other.interval())
                ratio = Interval(1.0, 1.0, 1.0) if i == chosen else pool.over(other)
                p = None if i == chosen else pool.p_value(other)
        rows.append(Row(name, record, tuple(runs), step, ratio, i == chosen, i in best, base, p))
    rows.sort(key=lambda row: row.step.value if row.step else float("inf"))
    lines = notes(rows)
    if wanted is not None and chosen is None:
        lines.insert(0, f"no ratios: no row with numbers matches the baseline {wanted.text}")
    return Group(work, tuple(rows), tuple(lines))
