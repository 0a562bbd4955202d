"""Statistics of step times. Pure functions; nothing is filtered and no distribution is assumed."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
#: Bootstrap resamples. The interval's ends move by about a hundredth of its width from seed to seed.
RESAMPLES = 4000

#: Fewer samples than these have no 95 % interval of their median.
_FEWEST = 6

Samples = Sequence[float]
Runs = Sequence[Samples]  # the samples of each process
_Indices = npt.NDArray[np.intp]


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A value with its confidence interval; the ends are None where there are too few samples for one."""

    value: float
    low: float | None
    high: float | None

    def holds(self, value: float) -> bool:
        """Whether ``value`` lies in the interval; an unknown interval holds everything."""
        return self.low is None or self.high is None or self.low <= value <= self.high


def median_ci(samples: Samples, confidence: float = CONFIDENCE) -> Interval:
    """The median and its distribution-free confidence interval, by order statistics.

    The number of samples below the true median is binomial(n, 1/2); the interval lies between the
    two order statistics that leave less than half of ``1 - confidence`` outside on each side (Hoefler
    & Belli, SC15, doi 10.1145/2807591.2807644, section 3.1.3; Conover, Practical Nonparametric
    Statistics). At 95 % it takes 6 samples.

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        raise ValueError("a median takes at least one sample")
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    rank = _rank(len(ordered), confidence)
    if rank == 0:
        return Interval(_middle(ordered), None, None)
    return Interval(_middle(ordered), float(ordered[rank - 1]), float(ordered[len(ordered) - rank]))


@functools.lru_cache(maxsize=256)
def _rank(n: int, confidence: float) -> int:
    """The largest rank k with P(fewer than k of n below the median) <= (1 - confidence) / 2; 0: there is none."""
    tail, rank = 0.0, 0
    while True:
        # In logarithms: from about a thousand samples on the binomial coefficient is no float.
        chosen = math.lgamma(n + 1) - math.lgamma(rank + 1) - math.lgamma(n - rank + 1)
        tail += math.exp(chosen - n * math.log(2))
        if tail > (1 - confidence) / 2:
            return rank
        rank += 1


def _middle(ordered: npt.NDArray[np.float64]) -> float:
    """The median of sorted samples."""
    n = len(ordered)
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2


@functools.lru_cache(maxsize=64)
def _drawn(lengths: tuple[int, ...], seed: int) -> tuple[_Indices, _Indices, _Indices]:
    """Bootstrap draws for runs of these lengths, each (RESAMPLES, runs): a run, and two ranks in it.

    The mean of the values at both ranks is the median of as many steps drawn with replacement, without
    drawing them: drawn ranks are uniforms times n rounded down, the k-th smallest of n uniforms is
    Beta(k, n - k + 1), and given it the next one is the smallest of n - k uniforms above it (David &
    Nagaraja, Order Statistics, 3rd ed., sections 2.1 and 2.5).
    """
    generator = np.random.default_rng(seed)
    runs = generator.integers(len(lengths), size=(RESAMPLES, len(lengths)))
    n = np.asarray(lengths)[runs]
    k = (n + 1) // 2
    below = generator.beta(k, n - k + 1)
    above = below + (1 - below) * generator.beta(1, np.maximum(n - k, 1))
    first = np.minimum((below * n).astype(np.intp), n - 1)
    second = np.where(n % 2, first, np.minimum((above * n).astype(np.intp), n - 1))
    return runs, first, second


def _medians(runs: Runs, seed: int) -> npt.NDArray[np.float64]:
    """:func:`pooled_median` of runs drawn with replacement, then of steps within each: (RESAMPLES,)."""
    ordered = [np.sort(np.asarray(run, dtype=np.float64)) for run in runs]
    chosen, first, second = _drawn(tuple(map(len, ordered)), seed)
    starts = np.cumsum([0, *map(len, ordered[:-1])])[chosen]
    flat = np.concatenate(ordered)
    drawn = (flat[starts + first] + flat[starts + second]) / 2
    return drawn[:, 0] if len(ordered) == 1 else np.asarray(np.median(drawn, axis=1))


def pooled_median(runs: Runs) -> float:
    """The median over runs of each run's median: every process counts alike, however many steps it took.

    Raises:
        ValueError: there is no run, or one has no samples.
    """
    if not runs or not all(len(run) for run in runs):
        raise ValueError("a median takes at least one sample of each run")
    return statistics.median(statistics.median(run) for run in runs)


def pooled_median_ci(runs: Runs, confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """:func:`pooled_median` with its interval: by order statistics of one run, by bootstrap of several.

    The bootstrap has two levels, processes first, then the steps within (Kalibera & Jones, ISMM'13, doi
    10.1145/2464157.2464160). From fewer than about five processes such an interval is too narrow.

    Raises:
        ValueError: as :func:`pooled_median`.
    """
    if len(runs) == 1:
        return median_ci(runs[0], confidence)
    return _percentiles(pooled_median(runs), _medians(runs, seed), confidence)


def ratio_ci(runs: Runs, baseline: Runs, confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """``pooled_median(runs) / pooled_median(baseline)`` with a percentile bootstrap interval.

    Two levels where a side has several runs, as in :func:`pooled_median_ci`. With one run a side the
    interval says nothing of how much processes differ. The seed is fixed: the same files give the same
    interval. A side with fewer than 6 samples gives none.

    Raises:
        ValueError: a side has no samples.
    """
    value = pooled_median(runs) / pooled_median(baseline)
    if min(sum(map(len, side)) for side in (runs, baseline)) < _FEWEST:
        return Interval(value, None, None)
    return _percentiles(value, _medians(runs, 2 * seed + 1) / _medians(baseline, 2 * seed), confidence)


def _percentiles(value: float, drawn: npt.NDArray[np.float64], confidence: float) -> Interval:
    edge = (1 - confidence) / 2
    low, high = np.quantile(drawn, [edge, 1 - edge])
    return Interval(value, float(low), float(high))


def instability(samples: Samples) -> list[str]:
    """What makes these step times (seconds) doubtful, each with its number and a remedy.

    The rules are those of ``pyperf check`` (https://pyperf.readthedocs.io/en/latest/cli.html#check-cmd): a
    standard deviation of 10 % of the mean, an extreme 50 % off the mean, a raw value under a
    millisecond. For too few samples the bar is an interval of the median to show at all: how far a
    value may be off is then seen from the interval.
    """
    if len(samples) < 2:
        return ["only one timed step: raise --steps"]
    values = np.asarray(samples, dtype=np.float64)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    shortest, longest = float(values.min()), float(values.max())
    found = []
    if deviation >= 0.1 * mean:
        found.append(
            f"the standard deviation is {deviation / mean:.0%} of the mean: close what else runs, or raise --steps"
        )
    for name, extreme, side in (("fastest", shortest, "below"), ("slowest", longest, "above")):
        if abs(extreme - mean) >= 0.5 * mean:
            off = f"{abs(extreme - mean) / mean:.0%} {side} the mean"
            found.append(f"the {name} step is {off}: run the cell again, and look for it in a trace if it stays")
    if len(samples) < _FEWEST:
        found.append(f"{len(samples)} timed steps are too few for a 95 % interval: raise --steps to 6 or more")
    if shortest < 1e-3:
        found.append(f"the fastest step took {shortest * 1e6:.0f} us: too little work to time well, raise --batch")
    return found
