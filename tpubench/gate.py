"""A limit on slowdown that a comparison passes or fails: what ``--fail-if-slower`` decides."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from tpubench.errors import BadValue, NothingToCompare

if TYPE_CHECKING:
    from tpubench.compare import Comparison, Group, Row


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The rows held against the limit, each with its piece of work."""

    limit: float  # the largest ratio allowed
    slower: tuple[tuple[Group, Row], ...]  # the whole interval lies above the limit
    undecided: tuple[tuple[Group, Row], ...]  # the value does, or there is no interval: no claim
    passed: int

    def lines(self) -> list[str]:
        """What to tell, a line each."""
        share = f"{(self.limit - 1) * 100:g} %"
        told = [f"slower by more than {share}: {_row(group, row)}" for group, row in self.slower]
        told += [
            f"not shown to be slower by more than {share}: {_row(group, row)}: measure in more processes"
            for group, row in self.undecided
        ]
        if not told:
            told = [f"none of {self.passed} is slower by more than {share}"]
        return told


def parse(text: str) -> float:
    """The largest ratio that ``5%`` allows: 1.05.

    Raises:
        BadValue: it is no percentage of 0 or more.
    """
    number, sign, rest = text.partition("%")
    try:
        share = float(number) if sign and not rest.strip() else math.nan
    except ValueError:
        share = math.nan
    if not 0 <= share < math.inf:
        raise BadValue("--fail-if-slower", text, "give a percentage with its sign: 5%")
    return 1 + share / 100


def judge(comparison: Comparison, limit: float) -> Verdict:
    """Hold every ratio against ``limit``: slower is what the whole 95 % interval is above it.

    Raises:
        NothingToCompare: there is no ratio.
    """
    slower, undecided, passed = [], [], 0
    for group in comparison.groups:
        for row in group.rows:
            if row.ratio is None or row.is_baseline:
                continue
            if row.ratio.low is not None and row.ratio.low > limit:
                slower.append((group, row))
            elif row.ratio.value > limit or row.ratio.low is None:
                undecided.append((group, row))
            else:
                passed += 1
    if not slower and not undecided and not passed:
        raise NothingToCompare(
            "--fail-if-slower has no ratio to judge", "name a --baseline or --against that rows of the same work have"
        )
    return Verdict(limit, tuple(slower), tuple(undecided), passed)


def _row(group: Group, row: Row) -> str:
    assert row.ratio is not None
    ends = "no interval" if row.ratio.low is None else f"[{row.ratio.low:.3f}, {row.ratio.high:.3f}]"
    return f"{row.name} of {group.title}: {row.ratio.value:.3f} x {ends}"
