"""Statistics: known answers, properties, and coverage on samples whose truth is known."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpubench import stats
from tpubench.stats import Interval, instability, median_ci, pooled_median, pooled_median_ci, ratio_ci

times = st.lists(st.floats(1e-4, 10), min_size=6, max_size=60)


def test_the_interval_of_a_median_is_between_order_statistics():
    # Tables of the sign test's interval: n = 10 gives ranks 2 and 9, n = 30 ranks 10 and 21.
    assert median_ci(list(range(1, 11))) == Interval(5.5, 2, 9)
    assert median_ci(list(range(1, 31))) == Interval(15.5, 10, 21)


@pytest.mark.parametrize("n", [6, 7, 29, 100, 501, 1000])
def test_the_interval_is_the_narrowest_that_is_sure_enough(n):
    low = int(median_ci(list(range(1, n + 1))).low)
    outside = [2 * Fraction(sum(math.comb(n, k) for k in range(rank)), 2**n) for rank in (low, low + 1)]
    assert outside[0] <= Fraction(5, 100) < outside[1]


def test_many_samples_have_an_interval():
    # The normal approximation of the binomial: n / 2 -+ 1.96 sqrt(n) / 2.
    assert median_ci(list(range(1, 40_001))) == Interval(
        20000.5, pytest.approx(19804, abs=2), pytest.approx(20196, abs=2)
    )


def test_five_samples_have_no_95_percent_interval_and_six_do():
    assert median_ci([1.0] * 5).low is None
    assert median_ci([1, 2, 3, 4, 5, 6]) == Interval(3.5, 1, 6)


def test_no_samples_are_an_error():
    with pytest.raises(ValueError, match="sample"):
        median_ci([])
    with pytest.raises(ValueError, match="sample"):
        ratio_ci([], [[1.0]])
    with pytest.raises(ValueError, match="sample"):
        pooled_median([[1.0], []])


@given(times)
def test_the_interval_holds_its_median(samples):
    interval = median_ci(samples)
    assert interval.low <= interval.value <= interval.high
    assert interval.value == np.median(samples)


@given(times, st.floats(0.1, 10))
def test_a_ratio_scales_and_turns_round(samples, factor):
    scaled = [factor * s for s in samples]
    forward, back = ratio_ci([scaled], [samples]), ratio_ci([samples], [scaled])
    assert forward.value == pytest.approx(factor) and back.value == pytest.approx(1 / factor)
    assert forward.low <= forward.high


def coverage(interval_of, truth, rounds=400):
    return sum(interval_of(np.random.default_rng(i)).holds(truth) for i in range(rounds)) / rounds


def test_the_medians_interval_covers_the_truth_as_often_as_it_says():
    # Skewed, as step times are: the median of exp(N(0, 1)) is 1.
    covered = coverage(lambda r: median_ci(list(r.lognormal(0, 1, 30))), 1.0)
    assert covered >= 0.93


def test_the_ratios_interval_covers_the_truth_about_as_often_as_it_says():
    covered = coverage(lambda r: ratio_ci([list(r.lognormal(0.5, 0.2, 30))], [list(r.lognormal(0, 0.2, 30))]),
                       float(np.exp(0.5)), rounds=200)  # fmt: skip
    assert 0.88 <= covered <= 1.0


def test_processes_that_differ_widen_the_ratios_interval():
    rng = np.random.default_rng(0)
    alike = [list(1 + 0.01 * rng.standard_normal(30)) for _ in range(5)]
    apart = [list(m + 0.01 * rng.standard_normal(30)) for m in (0.8, 0.9, 1.0, 1.1, 1.2)]
    base = [list(1 + 0.01 * rng.standard_normal(30)) for _ in range(5)]
    narrow, wide = ratio_ci(alike, base), ratio_ci(apart, base)
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_runs_of_unlike_length_are_taken_too():
    assert ratio_ci([[1.0] * 10, [1.0] * 7], [[2.0] * 8]) == Interval(0.5, 0.5, 0.5)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 13, 30])
def test_medians_are_drawn_as_resampling_would_draw_them(n):
    rng = np.random.default_rng(n)
    samples = rng.lognormal(0, 0.3, n)
    resampled = np.median(rng.choice(samples, (20_000, n)), axis=1)
    drawn = stats._medians([samples], 0)
    assert set(np.round(drawn, 12)) <= {round((a + b) / 2, 12) for a in samples for b in samples}
    for point in samples:
        # Of 4000 draws against 20000: a difference of 0.04 is five standard errors.
        assert np.mean(drawn <= point) == pytest.approx(np.mean(resampled <= point), abs=0.04)


@given(st.lists(times, min_size=1, max_size=4))
def test_the_pooled_median_lies_in_its_interval_and_among_the_samples(runs):
    interval = pooled_median_ci(runs)
    flat = [s for run in runs for s in run]
    assert interval.value == pooled_median(runs) and interval.low <= interval.high
    assert min(flat) <= interval.low and interval.high <= max(flat)
    if len(runs) == 1:
        assert interval == median_ci(runs[0])


def test_every_process_counts_alike_however_many_steps_it_took():
    assert pooled_median([[1.0] * 100, [2.0] * 3, [3.0] * 3]) == 2.0


def test_the_interval_over_processes_covers_the_truth_about_as_often_as_it_says():
    def interval(rng):
        def side():
            return [list(np.exp(0.05 * rng.standard_normal()) * rng.lognormal(0, 0.05, 20)) for _ in range(8)]

        return ratio_ci(side(), side())

    assert 0.9 <= coverage(interval, 1.0, rounds=200) <= 1.0


def test_the_same_samples_give_the_same_interval():
    samples = [[0.1, 0.2, 0.15, 0.11, 0.13, 0.12, 0.19]]
    assert ratio_ci(samples, samples) == ratio_ci(samples, samples)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([1.0, 1.0, 1.5, 0.6, 1.0, 1.0], "standard deviation"),
        ([1.0] * 20 + [2.0], "slowest step is"),
        ([1.0, 1.01, 0.99], "too few"),
        ([1.0] * 20 + [0.4], "fastest step is"),
        ([1e-4] + [1.0] * 9, "100 us"),
        ([1.0], "only one"),
    ],
)
def test_doubtful_samples_are_named(samples, says):
    assert any(says in text for text in instability(samples))


def test_steady_samples_raise_no_doubt():
    assert instability([0.1, 0.101, 0.099, 0.1, 0.1, 0.1005, 0.1]) == []
