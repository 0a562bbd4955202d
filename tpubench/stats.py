"""Statistics of step times: nothing is filtered and no distribution of steps is assumed."""

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
FEWEST = 6
#: From so many degrees of freedom on Student's t is the normal distribution, to three digits.
_MANY = 500
#: Up to so many samples a side the Mann-Whitney test is exact.
_EXACT = 20

Samples = Sequence[float]
Runs = Sequence[Samples]  # the samples of each process
_Array = npt.NDArray[np.float64]
_Indices = npt.NDArray[np.int32]


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A value with its confidence interval; the ends are None where there are too few samples for one."""

    value: float
    low: float | None
    high: float | None

    def holds(self, value: float) -> bool:
        """Whether ``value`` lies in the interval; an unknown interval holds everything."""
        return self.low is None or self.high is None or self.low <= value <= self.high

    def known_to_hold(self, value: float) -> bool:
        """Whether ``value`` lies in the interval; an unknown interval holds nothing."""
        return self.low is not None and self.holds(value)

    def times(self, factor: float) -> Interval:
        """All three times ``factor``, which is above 0."""
        return Interval(
            self.value * factor,
            None if self.low is None else self.low * factor,
            None if self.high is None else self.high * factor,
        )


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
    return _median_ci(np.sort(np.asarray(samples, dtype=np.float64)), confidence)


def _median_ci(ordered: _Array, confidence: float) -> Interval:
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


def _middle(ordered: _Array) -> float:
    """The median of sorted samples."""
    n = len(ordered)
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2


@functools.lru_cache(maxsize=64)
def _drawn(lengths: tuple[int, ...]) -> tuple[_Indices, _Indices | None]:
    """Bootstrap draws for runs of these lengths, each (RESAMPLES, runs): places in the runs' sorted steps, end to end.

    The mean of the values at both places is the median of as many steps of a drawn run, drawn with replacement,
    without drawing them: drawn ranks are uniforms times n rounded down, the k-th smallest of n uniforms is
    Beta(k, n - k + 1), and given it the next one is the smallest of n - k uniforms above it (David & Nagaraja,
    Order Statistics, 3rd ed., sections 2.1 and 2.5). None: every run has an odd number of steps, one place is enough.
    """
    generator = np.random.default_rng(0)
    runs = generator.integers(len(lengths), size=(RESAMPLES, len(lengths)))
    n = np.asarray(lengths)[runs]
    starts = np.cumsum([0, *lengths[:-1]])[runs]
    k = (n + 1) // 2
    below = generator.beta(k, n - k + 1)
    above = below + (1 - below) * generator.beta(1, np.maximum(n - k, 1))
    first = np.minimum((below * n).astype(np.int32), n - 1)
    second = np.where(n % 2, first, np.minimum((above * n).astype(np.int32), n - 1))
    odd = all(length % 2 for length in lengths)
    return (starts + first).astype(np.int32), None if odd else (starts + second).astype(np.int32)


class Pool:
    """The step times of one cell, by process: their median, and how sure it is.

    ``value`` is the mean over processes of each one's median, so that every process counts alike, however many
    steps it took.

    The bootstrap has two levels, processes first, then the steps within (Kalibera & Jones, ISMM'13, doi
    10.1145/2464157.2464160). Over so few processes as one can afford, its percentiles are too narrow; they are
    spread about the value by sqrt(n / (n - 1)) and by Student's t over the normal's quantile, in logarithms
    (Hesterberg, The American Statistician 69(4), 2015, doi 10.1080/00031305.2015.1089789, section 4; degrees of
    freedom by Welch, Biometrika 34, 1947).

    Raises:
        ValueError: there is no run, or one has no samples.
    """

    def __init__(self, runs: Runs) -> None:
        if not runs or not all(len(run) for run in runs):
            raise ValueError("a median takes at least one sample of each run")
        self._ordered = [np.sort(np.asarray(run, dtype=np.float64)) for run in runs]
        self.medians = [_middle(run) for run in self._ordered]
        self.value = statistics.fmean(self.medians)
        self.count = sum(map(len, self._ordered))

    @functools.cached_property
    def drawn(self) -> _Array:
        """``value`` of runs drawn with replacement, then of steps drawn within each: (RESAMPLES,)."""
        first, second = _drawn(tuple(map(len, self._ordered)))
        flat = np.concatenate(self._ordered) if len(self._ordered) > 1 else self._ordered[0]
        values = flat[first]
        if second is not None:
            values = (values + flat[second]) / 2
        return values[:, 0] if values.shape[1] == 1 else np.asarray(values.mean(axis=1))

    @property
    def between(self) -> float:
        """The standard deviation of the processes' medians, as a share of ``value``; 0 for one process."""
        return statistics.stdev(self.medians) / self.value if len(self.medians) > 1 else 0.0

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """``value`` with its interval: by order statistics of one process, by bootstrap of several."""
        if len(self._ordered) == 1:
            return _median_ci(self._ordered[0], confidence)
        return _percentiles(self.value, self.drawn, confidence, _spread((self,), confidence))

    def over(self, base: Pool, confidence: float = CONFIDENCE) -> Interval:
        """``value / base.value``, with an interval.

        With one process a side it says nothing of how much processes differ. The seed is fixed: the same samples
        give the same interval. A side of fewer than 6 samples gives none.
        """
        value = self.value / base.value
        if min(self.count, base.count) < FEWEST:
            return Interval(value, None, None)
        # Both sides may hold the same draws. These are independent of one another: turned by half they are two sets.
        drawn = self.drawn / np.roll(base.drawn, RESAMPLES // 2)
        return _percentiles(value, drawn, confidence, _spread((self, base), confidence))

    def p_value(self, base: Pool) -> float | None:
        """Of :func:`mann_whitney`: between processes' medians where both sides have several, else between steps.

        None where so few samples cannot bring it below 5 %, whatever they are: up to 3 a side.
        """
        a, b = self.medians, base.medians
        if min(len(a), len(b)) < 2:
            a, b = np.concatenate(self._ordered).tolist(), np.concatenate(base._ordered).tolist()
        return mann_whitney(a, b) if math.comb(len(a) + len(b), len(a)) > 2 / (1 - CONFIDENCE) else None


def _spread(pools: Sequence[Pool], confidence: float) -> float:
    """How much wider than the bootstrap's an interval must be for the number of processes; see :class:`Pool`."""
    total = corrected = freedom = 0.0
    if all(len(pool.medians) == 1 for pool in pools):
        return 1.0
    for pool in pools:
        n = len(pool.medians)
        if n == 1:
            variance = float(pool.drawn.var()) / pool.value**2
            corrected += variance
        else:
            variance = pool.between**2 / n
            corrected += variance * n / (n - 1)
            freedom += variance**2 / (n - 1)
        total += variance
    if freedom == 0:
        return 1.0
    normal = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    return math.sqrt(corrected / total) * student(total**2 / freedom, confidence) / normal


def _percentiles(value: float, drawn: _Array, confidence: float, spread: float) -> Interval:
    low, high = _tails(drawn, (1 - confidence) / 2)
    if spread == 1:
        return Interval(value, low, high)
    return Interval(value, value * (low / value) ** spread, value * (high / value) ** spread)


def _tails(drawn: _Array, edge: float) -> tuple[float, float]:
    """The quantiles ``edge`` and ``1 - edge``, as numpy.quantile has them, in a quarter of its time."""
    last = len(drawn) - 1
    low, share = int(edge * last), edge * last % 1
    high = last - low
    parted = np.partition(drawn, (low, low + 1, high - 1, high))
    ends = ((parted[low], parted[low + 1]), (parted[high], parted[high - 1]))
    return tuple(float(a + share * (b - a)) for a, b in ends)  # type: ignore[return-value]


def student(freedom: float, confidence: float = CONFIDENCE) -> float:
    """The two-sided quantile of Student's t; between whole degrees of freedom interpolated in their reciprocal."""
    whole = max(1, math.floor(freedom))
    if whole >= _MANY:
        return statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    low, high = _student(whole, confidence), _student(whole + 1, confidence)
    share = (1 / whole - 1 / max(freedom, 1.0)) / (1 / whole - 1 / (whole + 1))
    return low + share * (high - low)


@functools.lru_cache(maxsize=1024)
def _student(freedom: int, confidence: float) -> float:
    """By bisection of the distribution's finite series (Abramowitz & Stegun, 26.7.3 and 26.7.4)."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        sine, cosine = math.sin(angle), math.cos(angle)
        start = 1 if freedom % 2 == 0 else 2
        term = total = 1.0 if freedom % 2 == 0 else cosine if freedom > 1 else 0.0
        for k in range(start, freedom - 1, 2):
            term *= cosine**2 * k / (k + 1)
            total += term
        inside = sine * total if freedom % 2 == 0 else 2 / math.pi * (angle + sine * total)
        low, high = (angle, high) if inside < confidence else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def mann_whitney(a: Samples, b: Samples) -> float:
    """The two-sided p of the Mann-Whitney U test: how often samples of one distribution are as far apart as these.

    Exact where there are no ties and at most 20 a side (Mann & Whitney, Ann. Math. Statist. 18, 1947: the recursion
    over the largest value), else by the normal approximation with corrections for ties and continuity (Lehmann,
    Nonparametrics, section 1.3). It assumes that samples are independent, which steps of one process are only nearly.

    Raises:
        ValueError: a side has no samples.
    """
    n, m = len(a), len(b)
    if not n or not m:
        raise ValueError("a test takes at least one sample of each side")
    values, place, ties = np.unique(np.concatenate([a, b]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    if len(values) == n + m and max(n, m) <= _EXACT:
        counts = _wins(n, m)
        return float(min(1.0, 2 * sum(counts[: round(min(u, n * m - u)) + 1]) / sum(counts)))
    total = n + m
    variance = n * m / 12 * (total + 1 - float((ties**3 - ties).sum()) / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    distance = max(0.0, abs(u - n * m / 2) - 0.5)
    return math.erfc(distance / math.sqrt(2 * variance))


@functools.lru_cache(maxsize=512)
def _wins(n: int, m: int) -> tuple[int, ...]:
    """How many orders of n and m values have each U from 0 to n m."""
    if n == 0 or m == 0:
        return (1,)
    # The largest value is of the first side, and beats all m of the other, or of the second, and beats none.
    counts = [0] * (n * m + 1)
    for u, c in enumerate(_wins(n - 1, m)):
        counts[u + m] += c
    for u, c in enumerate(_wins(n, m - 1)):
        counts[u] += c
    return tuple(counts)
