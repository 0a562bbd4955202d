"""Statistics of step times. Pure functions; nothing is filtered and no distribution is assumed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
#: Bootstrap resamples. The interval's ends move by about a hundredth of its width from seed to seed.
RESAMPLES = 4000

Samples = Sequence[float]
Runs = Sequence[Samples]


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
    n = len(ordered)
    tail, rank = 0.0, 0
    # The largest rank k with P(fewer than k below the median) <= (1 - confidence) / 2.
    while (tail := tail + math.comb(n, rank) * 0.5**n) <= (1 - confidence) / 2:
        rank += 1
    value = float(np.median(ordered))
    if rank == 0:
        return Interval(value, None, None)
    return Interval(value, float(ordered[rank - 1]), float(ordered[n - rank]))


def _medians(runs: Runs, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """The median over all steps, (RESAMPLES,), of runs drawn with replacement, then steps within each."""
    arrays = [np.asarray(r, dtype=np.float64) for r in runs if len(r)]
    if len(arrays) == 1:
        drawn = generator.choice(arrays[0], (RESAMPLES, len(arrays[0])))
        return np.asarray(np.median(drawn, axis=1))
    if len({len(a) for a in arrays}) == 1:
        table = np.stack(arrays)
        count, steps = table.shape
        process = generator.integers(count, size=(RESAMPLES, count, 1))
        step = generator.integers(steps, size=(RESAMPLES, count, steps))
        return np.asarray(np.median(table[process, step].reshape(RESAMPLES, -1), axis=1))
    out = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        chosen = generator.integers(len(arrays), size=len(arrays))
        parts = [generator.choice(arrays[c], len(arrays[c])) for c in chosen]
        out[i] = np.median(np.concatenate(parts))
    return out


def ratio_ci(runs: Runs, baseline: Runs, confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """``median(runs) / median(baseline)`` with a percentile bootstrap interval.

    Two levels where a side has several runs: processes are drawn first, then the steps within
    (Kalibera & Jones, ISMM'13, doi 10.1145/2464157.2464160). With one run a side the interval says
    nothing of how much processes differ. The seed is fixed: the same files give the same interval.

    Raises:
        ValueError: a side has no samples.
    """
    top, bottom = (np.concatenate([np.asarray(r, np.float64) for r in side]) if side else np.empty(0)
                   for side in (runs, baseline))  # fmt: skip
    if not len(top) or not len(bottom):
        raise ValueError("a ratio takes samples on both sides")
    value = float(np.median(top) / np.median(bottom))
    if len(top) < 6 or len(bottom) < 6:
        return Interval(value, None, None)
    generator = np.random.default_rng(seed)
    ratios = _medians(runs, generator) / _medians(baseline, generator)
    edge = (1 - confidence) / 2
    low, high = np.quantile(ratios, [edge, 1 - edge])
    return Interval(value, float(low), float(high))


def instability(samples: Samples) -> list[str]:
    """What makes these step times doubtful, each with its number and a remedy.

    The rules are pyperf's (https://pyperf.readthedocs.io/en/latest/run_benchmark.html): a standard
    deviation of 10 % of the mean, an extreme 50 % off the mean, values under a millisecond.
    """
    if len(samples) < 2:
        return ["only one timed step: raise --steps"]
    values = np.asarray(samples, dtype=np.float64)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    found = []
    if deviation >= 0.1 * mean:
        found.append(
            f"the standard deviation is {deviation / mean:.0%} of the mean: close what else runs, or raise --steps"
        )
    for name, extreme in (("fastest", float(values.min())), ("slowest", float(values.max()))):
        if abs(extreme - mean) >= 0.5 * mean:
            found.append(f"the {name} step is {abs(extreme - mean) / mean:.0%} off the mean")
    if median_ci(samples).low is None:
        found.append(f"{len(samples)} timed steps are too few for a 95 % interval: raise --steps to 6 or more")
    if mean < 1e-3:
        found.append(f"a step takes {mean * 1e6:.0f} us: too little work to time well, raise --batch")
    return found
