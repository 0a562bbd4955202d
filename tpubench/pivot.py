"""A comparison as a table of two axes, one number a place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tpubench.compare import Comparison, Group, Row
from tpubench.digits import mebibytes, milli, number, rate, ratio, share, with_interval
from tpubench.errors import BadValue, SeveralCells, UnknownName
from tpubench.filters import FIELDS, TELLING
from tpubench.grid import NOTHING, Column
from tpubench.overall import geometric_mean

#: What a place may show: its title, the number for programs, and its text for people.
_Show = tuple[str, Callable[[Row], float | None], Callable[[Row], str]]
SHOWN: dict[str, _Show] = {
    "step": ("step ms [95% CI]", lambda r: r.step.value if r.step else None,
             lambda r: with_interval(r.step, 4, 1e3) if r.step else NOTHING),
    "ratio": ("x baseline [95% CI]", lambda r: r.ratio.value if r.ratio else None,
              lambda r: "baseline" if r.is_baseline else ratio(r.ratio) if r.ratio else NOTHING),
    "rate": ("items/s", lambda r: r.record.items_per_s, lambda r: rate(r.record.items_per_s)),
    "first": ("first step s", lambda r: r.record.first_step_s, lambda r: number(r.record.first_step_s)),
    "compile": ("compile s", lambda r: r.record.compile_s, lambda r: number(r.record.compile_s)),
    "device": ("device ms", lambda r: r.record.device_s, lambda r: number(milli(r.record.device_s), ".4g")),
    "hits": ("cache hits", lambda r: r.hit_rate, lambda r: share(r.hit_rate)),
    "mfu": ("MFU", lambda r: r.record.mfu, lambda r: share(r.record.mfu, ".3g")),
    "roofline": ("roofline", lambda r: r.record.roofline, lambda r: share(r.record.roofline, ".3g")),
    "memory": ("peak MiB", lambda r: r.record.peak_memory_bytes,
               lambda r: number(mebibytes(r.record.peak_memory_bytes), ".0f")),
    "usd": ("USD/1M items", lambda r: r.record.usd_per_million_items,
            lambda r: number(r.record.usd_per_million_items)),
}  # fmt: skip
#: Axes that are no fields of a record.
_MADE = ("cell", "work")


@dataclasses.dataclass(frozen=True, slots=True)
class Pivot:
    """Rows and columns by the values of two axes; ``places`` holds the one row of each pair that has one."""

    axes: tuple[str, str]
    shown: str
    down: tuple[str, ...]
    along: tuple[str, ...]
    places: dict[tuple[str, str], Row]

    @classmethod
    def of(cls, comparison: Comparison, by: str, shown: str) -> Pivot:
        """``by`` names two axes, ``workload,backend+mode``: fields of a record joined with +, ``cell``, ``work``.

        Raises:
            BadValue: these are not two axes.
            UnknownName: an axis or a number is none.
            SeveralCells: two rows fall into one place.
        """
        if shown not in SHOWN:
            raise UnknownName("number to show", shown, SHOWN)
        axes = tuple(axis.strip() for axis in by.split(","))
        if len(axes) != 2 or not all(axes):
            raise BadValue("--by", by, "name two axes: workload,mode, or work,cell")
        for name in (name for axis in axes for name in axis.split("+")):
            if name not in FIELDS and name not in _MADE:
                raise UnknownName("axis of --by", name, (*_MADE, *TELLING))
        found: dict[tuple[str, str], list[tuple[Group, Row]]] = {}
        for group in comparison.groups:
            for row in group.rows:
                found.setdefault((_value(axes[0], group, row), _value(axes[1], group, row)), []).append((group, row))
        places = {place: _only(axes, place, here) for place, here in found.items()}
        down, along = (tuple(dict.fromkeys(place[i] for place in places)) for i in (0, 1))
        return cls((axes[0], axes[1]), shown, down, along, places)

    @property
    def title(self) -> str:
        """What the places show, and by what."""
        return f"{SHOWN[self.shown][0]} by {self.axes[0]} and {self.axes[1]}"

    def columns(self) -> list[Column]:
        """Text of each place; a ratio's columns end in their geometric mean, where each has one in every line."""
        down = list(self.down)
        cells = [[self._text(a, b) for a in down] for b in self.along]
        if self.shown == "ratio":
            means = [self._mean(b) for b in self.along]
            if any(means):
                down.append("geometric mean")
                cells = [[*column, mean or NOTHING] for column, mean in zip(cells, means, strict=True)]
        return [(self.axes[0], down, True), *((b, column, True) for b, column in zip(self.along, cells, strict=True))]

    def data(self) -> list[dict[str, Any]]:
        """A line a row for programs: the first axis and the number of each column, null where there is none."""
        measure = SHOWN[self.shown][1]
        return [
            {
                self.axes[0]: a,
                **{b: measure(row) if (row := self.places.get((a, b))) and row.step else None for b in self.along},
            }
            for a in self.down
        ]

    def _text(self, a: str, b: str) -> str:
        row = self.places.get((a, b))
        if row is None:
            return NOTHING
        if row.step is None:
            return row.record.status
        text = SHOWN[self.shown][2](row)
        # What is marked is the step time's best, which says nothing of another number.
        return f"{text} *" if row.best and self.shown in ("step", "ratio") else text

    def _mean(self, along: str) -> str | None:
        ratios = [row.ratio for a in self.down if (row := self.places.get((a, along))) and row.ratio]
        if len(ratios) < max(2, len(self.down)) or all(r.value == r.low == 1 for r in ratios):
            return None
        return ratio(geometric_mean(ratios))


def _value(axis: str, group: Group, row: Row) -> str:
    values = [
        row.name if name == "cell" else group.title if name == "work" else str(getattr(row.record, name))
        for name in axis.split("+")
    ]
    return " ".join(values)


def _only(axes: tuple[str, ...], place: tuple[str, str], here: list[tuple[Group, Row]]) -> Row:
    if len(here) > 1:
        named = [name for axis in axes for name in axis.split("+")]
        differ = [
            field
            for field in FIELDS
            if field not in (*named, "run_id", "created", "fingerprint")
            and _hashable(here[0][1].record, field)
            and len({getattr(row.record, field) for _, row in here}) > 1
        ]
        asked = [f for f in differ if f in TELLING] or differ
        where = ", ".join(f"{axis} {value}" for axis, value in zip(axes, place, strict=True))
        raise SeveralCells(where, [f"{row.name} of {group.title}" for group, row in here[:3]], asked[:6])
    return here[0][1]


def _hashable(record: Any, field: str) -> bool:
    return not isinstance(getattr(record, field), list)
