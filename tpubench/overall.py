"""Cells over all pieces of work: the geometric mean of their ratios, and how often each is the fastest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpubench.stats import Interval

if TYPE_CHECKING:
    from tpubench.compare import Comparison


@dataclasses.dataclass(frozen=True, slots=True)
class Overall:
    """One cell over several pieces of work, held against the same baseline in each."""

    name: str
    baseline: str
    ratio: Interval
    works: int
    fastest: int  # in so many of them, ties counted


def geometric_mean(ratios: Sequence[Interval]) -> Interval:
    """The geometric mean of independent ratios, with its interval.

    Of ratios no other mean is the same whichever side is called the baseline (Fleming & Wallace, CACM 29(3), 1986, doi
    10.1145/5666.5673). In logarithms it is a plain mean, so its half-widths are the root of the sum of squares of the
    ratios', over their number. A ratio without an interval leaves the mean without one.

    Raises:
        ValueError: there are no ratios.
    """
    if not ratios:
        raise ValueError("a mean takes at least one ratio")
    n = len(ratios)
    value = math.exp(sum(math.log(r.value) for r in ratios) / n)
    below = above = 0.0
    for r in ratios:
        if r.low is None or r.high is None:
            return Interval(value, None, None)
        below += math.log(r.value / r.low) ** 2
        above += math.log(r.high / r.value) ** 2
    return Interval(value, value * math.exp(-math.sqrt(below) / n), value * math.exp(math.sqrt(above) / n))


def overall(comparison: Comparison) -> list[Overall]:
    """Every cell that has a ratio in two pieces of work or more, the least first."""
    found: dict[tuple[str, str], list[tuple[Interval, bool]]] = {}
    for group in comparison.groups:
        baseline = group.baseline
        for row in group.rows:
            if row.ratio is not None and not row.is_baseline:
                whose = baseline.name if baseline is not None else row.name
                found.setdefault((row.name, whose), []).append((row.ratio, row.best))
    means = [
        Overall(name, baseline, geometric_mean([r for r, _ in ratios]), len(ratios), sum(best for _, best in ratios))
        for (name, baseline), ratios in found.items()
        if len(ratios) > 1
    ]
    return sorted(means, key=lambda mean: (mean.baseline, mean.ratio.value))
