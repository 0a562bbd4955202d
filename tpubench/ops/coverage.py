"""What a survey found: a row an op and dtype, their summary, and the CSV file they are kept in."""

from __future__ import annotations

import csv
import dataclasses
import enum
import io
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tpubench.errors import NotASurvey, UnwritableDirectory


class Outcome(enum.StrEnum):
    """What became of an entry."""

    PASSED = "passed"
    WRONG = "wrong"  # another value, shape or dtype than the CPU's
    NOT_LOWERED = "not lowered"  # refused by name
    ERROR = "error"  # refused otherwise
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    UNTESTED = "untested"


@dataclasses.dataclass(slots=True)
class Row:
    """One entry of OpInfo's database in one dtype.

    ``compared`` is ``values``, ``shapes`` for samples that draw random numbers or promise none, or both. ``forward``,
    ``backward`` and ``in_place`` count samples that agreed. ``absolute`` and ``relative`` are the largest
    differences of the sample that did not.
    """

    op: str
    dtype: str
    outcome: str = ""
    compared: str = ""
    forward: int = 0
    backward: int = 0
    in_place: int = 0
    absolute: float | None = None
    relative: float | None = None
    detail: str = ""

    def ended(self, outcome: Outcome, detail: str) -> Row:
        """The row with its outcome."""
        self.outcome, self.detail = str(outcome), detail
        return self


FIELDS = [field.name for field in dataclasses.fields(Row)]


def summary(rows: Sequence[Row]) -> list[str]:
    """Counts by outcome, a line a dtype; an op name may have several entries (variants)."""
    lines = []
    for dtype in dict.fromkeys(r.dtype for r in rows):
        own = [r for r in rows if r.dtype == dtype]
        counts = Counter(r.outcome for r in own)
        names = {
            r.op.split(".")[0] if not r.op.startswith(_DOTTED) else r.op for r in own if r.outcome == Outcome.PASSED
        }
        passed = counts.pop(str(Outcome.PASSED), 0)
        rest = ", ".join(f"{n} {outcome}" for outcome, n in counts.most_common())
        lines.append(f"{dtype}: {passed} of {len(own)} entries pass ({len(names)} ops)" + (f"; {rest}" if rest else ""))
    return lines


#: Families whose names have dots of their own.
_DOTTED = ("nn.functional.", "linalg.", "fft.", "special.", "torch.ops.aten.", "masked.", "signal.windows.")


def _name(entry: str) -> str:
    """An entry without its variant."""
    family = next((f for f in _DOTTED if entry.startswith(f)), "")
    return family + entry.removeprefix(family).split(".")[0]


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of text under a heading."""
    cells = [["op", "dtype", "outcome", "compared", "forward", "backward", "in-place", "detail"]]
    cells += [
        [r.op, r.dtype, r.outcome, r.compared, str(r.forward), str(r.backward), str(r.in_place), r.detail] for r in rows
    ]
    widths = [max(len(c[i]) for c in cells) for i in range(len(cells[0]) - 1)]
    lines = ["  ".join([*(v.ljust(w) for v, w in zip(c, widths, strict=False)), c[-1]]).rstrip() for c in cells]
    return [lines[0], "  ".join("-" * w for w in [*widths, 6]), *lines[1:]]


def to_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV, sorted by dtype and op."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in sorted(rows, key=lambda r: (r.dtype, r.op)):
        fields = dataclasses.asdict(row)
        for name in ("absolute", "relative"):
            fields[name] = "" if fields[name] is None else f"{fields[name]:.3g}"
        writer.writerow(fields)
    return text.getvalue()


def write(rows: Sequence[Row], path: Path) -> None:
    """Keep the rows in ``path``, whole or not at all.

    Raises:
        UnwritableDirectory: it cannot be written.
    """
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(to_csv(rows))
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UnwritableDirectory(path.parent, error.strerror or str(error), "--out") from error


def read(path: Path) -> list[Row]:
    """The rows that :func:`write` kept.

    Raises:
        NotASurvey: the file is none of ours.
    """
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            found = list(reader)
            if reader.fieldnames != FIELDS:
                raise ValueError("its heading is another")
        return [
            Row(
                r["op"], r["dtype"], r["outcome"], r["compared"], int(r["forward"]), int(r["backward"]),
                int(r["in_place"]), float(r["absolute"]) if r["absolute"] else None,
                float(r["relative"]) if r["relative"] else None, r["detail"],
            )
            for r in found
        ]  # fmt: skip
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise NotASurvey(path, str(error) or type(error).__name__) from error


def lost(before: Sequence[Row], now: Sequence[Row]) -> list[Row]:
    """What passed before, was run again, and does not pass now."""
    passed = {(r.op, r.dtype) for r in before if r.outcome == Outcome.PASSED}
    return [r for r in now if (r.op, r.dtype) in passed and r.outcome != Outcome.PASSED]
