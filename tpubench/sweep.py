"""A sweep: which runs of which cells, in which order, and which of them have become pointless."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence

from tpubench.record import Record, Status
from tpubench.spec import Spec

#: What ``Spec.label`` says.
_LABELLED = ("workload", "size", "backend", "mode", "cache")
#: The error class of a worker that ended without an answer.
DIED = "WorkerDied"


class Sweep:
    """Cells, each to be run in ``processes`` processes, and the rows there are of them so far.

    The order is drawn anew for each repetition of the cells, from a seed that the cells themselves give: a machine
    that drifts does so under all of them, and the same command draws the same order. One repetition keeps the order
    in which the cells were given.
    """

    def __init__(self, specs: Iterable[Spec], processes: int = 1, past: Iterable[Record] = ()) -> None:
        self.cells = tuple({spec.fingerprint: spec for spec in specs}.values())
        self.processes = processes
        self._rows: dict[str, list[Record]] = {spec.fingerprint: [] for spec in self.cells}
        self._names = dict(zip(self._rows, _names(self.cells), strict=True))
        for record in past:
            self.add(record)

    def add(self, record: Record) -> None:
        """Take a row of one of the cells into account."""
        self._rows[record.fingerprint].append(record)

    def missing(self, spec: Spec) -> int:
        """How many runs of ``spec`` are still to be made.

        A cell that has failed for a reason of its own is not repeated. A worker that was ended, or died, may have been
        out of luck: that run counts, and the others are made.
        """
        rows = self._rows[spec.fingerprint]
        return 0 if any(_settles(row) for row in rows) else max(0, self.processes - len(rows))

    @property
    def left(self) -> int:
        """How many runs are still to be made."""
        return sum(self.missing(spec) for spec in self.cells)

    def name(self, spec: Spec) -> str:
        """How a person names the next run of ``spec`` among the others."""
        nth = len(self._rows[spec.fingerprint]) + 1
        process = f", process {nth} of {self.processes}" if self.processes > 1 else ""
        return self._names[spec.fingerprint] + process

    def runs(self) -> Iterator[Spec]:
        """The cells to run, one after the other, as far as they are still missing when their turn comes."""
        for spec in self._order():
            if self.missing(spec):
                yield spec

    def _order(self) -> list[Spec]:
        draw = random.Random("".join(self._rows))
        order = []
        for n in range(self.processes):
            cells = [spec for spec in self.cells if self.missing(spec) > n]
            if self.processes > 1:
                draw.shuffle(cells)
            order += cells
        return order


def _settles(record: Record) -> bool:
    """Whether more runs of the cell would end as this one did."""
    return not record.ok and not (record.status == Status.ERROR and record.error_class == DIED)


def _names(specs: Sequence[Spec]) -> list[str]:
    """The label of each, with the fields that tell it from others of the same label."""
    alike: dict[str, list[Spec]] = {}
    for spec in specs:
        alike.setdefault(spec.label, []).append(spec)
    fields = [field.name for field in dataclasses.fields(Spec) if field.name not in _LABELLED]
    telling = {
        label: [name for name in fields if len({getattr(spec, name) for spec in same}) > 1]
        for label, same in alike.items()
    }
    return [" ".join((spec.label, *(f"{n}={getattr(spec, n)}" for n in telling[spec.label]))) for spec in specs]
