"""Whether step times are steady enough to be summed up in one number, and what to do where they are not."""

from __future__ import annotations

import functools
import math
import statistics

import numpy as np
import numpy.typing as npt

from tpubench.stats import FEWEST, Samples

#: A run of this many steps is steady where its coefficient of variation is below the next.
WINDOW, STEADY = 10, 0.02
#: A trend is told where it is this large from the first third of the steps to the last, and this improbable.
_DRIFT, _IMPROBABLE = 0.03, 0.01
#: Of more steps than these the trend is that of every second, third, ... one.
_MOST = 300


def instability(samples: Samples) -> list[str]:
    """What makes these step times (seconds) doubtful, each with its number and a remedy.

    The rules are those of ``pyperf check`` (https://pyperf.readthedocs.io/en/latest/cli.html#check-cmd): a
    standard deviation of 10 % of the mean, an extreme 50 % off the mean, a raw value under a
    millisecond. For too few samples the bar is an interval of the median to show at all: how far a
    value may be off is then seen from the interval. Beside them :func:`steadiest` and :func:`trend`.
    """
    if len(samples) < 2:
        return ["only one timed step: raise --steps"]
    mean = statistics.fmean(samples)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in samples) / (len(samples) - 1))
    shortest, longest = min(samples), max(samples)
    found = []
    if deviation >= 0.1 * mean:
        found.append(
            f"the standard deviation is {deviation / mean:.0%} of the mean: close what else runs, or raise --steps"
        )
    elif deviation >= STEADY * mean and (least := steadiest(samples)) is not None and least >= STEADY:
        found.append(
            f"no steady state: the steadiest {WINDOW} steps in a row vary by {least:.1%} of their mean "
            f"(steady is below {STEADY:.0%}): close what else runs, or raise --steps"
        )
    if trend(samples) < _IMPROBABLE and abs(moved := drift(samples)) >= _DRIFT:
        way = "slower" if moved > 0 else "faster"
        found.append(
            f"the steps become {way}: the last third's median is {abs(moved):.1%} {'above' if moved > 0 else 'below'} "
            "the first third's: raise --steps, or see whether the chip or the processor changes its clock"
        )
    for name, extreme, side in (("fastest", shortest, "below"), ("slowest", longest, "above")):
        if abs(extreme - mean) >= 0.5 * mean:
            off = f"{abs(extreme - mean) / mean:.0%} {side} the mean"
            found.append(f"the {name} step is {off}: run the cell again, and look for it in a trace if it stays")
    if len(samples) < FEWEST:
        found.append(f"{len(samples)} timed steps are too few for a 95 % interval: raise --steps to 6 or more")
    if shortest < 1e-3:
        found.append(f"the fastest step took {shortest * 1e6:.0f} us: too little work to time well, raise --batch")
    return found


def steadiest(samples: Samples, window: int = WINDOW) -> float | None:
    """The least coefficient of variation of ``window`` steps in a row; None where there are not so many.

    Georges, Buytaert, Eeckhout, OOPSLA'07, doi 10.1145/1297027.1297033, section 4.2: a run has reached its steady
    state where this is below a threshold such as 0.02.
    """
    if len(samples) < window:
        return None
    values = np.asarray(samples, dtype=np.float64)
    values = values / values[0]  # near 1, so that the difference of two sums of squares keeps its digits
    sums = np.concatenate([[0.0], values.cumsum()])
    squares = np.concatenate([[0.0], (values**2).cumsum()])
    total = sums[window:] - sums[:-window]
    variance = np.maximum(squares[window:] - squares[:-window] - total**2 / window, 0.0) / (window - 1)
    return math.sqrt(float((variance / total**2).min())) * window


def drift(samples: Samples) -> float:
    """How the steps change with time: the last third's median over the first third's, less 1.

    Raises:
        ValueError: there are fewer than 3 samples.
    """
    third = len(samples) // 3
    if not third:
        raise ValueError("a third of the samples takes three")
    return statistics.median(samples[-third:]) / statistics.median(samples[:third]) - 1


def trend(samples: Samples) -> float:
    """How improbable it is (p) that samples without a trend come in such an order; 1 for fewer than 10.

    Mann's test: Kendall's tau of the steps with their order, by the normal approximation, which from 10 samples on is
    good, without a correction for ties (Mann, Econometrica 13, 1945, doi 10.2307/1907187).
    """
    values = np.asarray(samples, dtype=np.float64)
    values = values[:: max(1, math.ceil(len(values) / _MOST))]
    n = len(values)
    if n < 10:
        return 1.0
    earlier, later = _pairs(n)
    score = float(np.sign(values[later] - values[earlier]).sum())
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return math.erfc(max(0.0, abs(score) - 1) / deviation / math.sqrt(2))


@functools.lru_cache(maxsize=16)
def _pairs(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The indices of every two of ``n`` samples, the earlier and the later: (n (n - 1) / 2,) each."""
    return np.triu_indices(n, 1)
