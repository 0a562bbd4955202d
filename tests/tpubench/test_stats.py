"""Statistics: known answers, properties, and coverage on samples whose truth is known."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpubench.stats import Interval, Pool, mann_whitney, median_ci, student


def ratio(runs, base):
    return Pool(runs).over(Pool(base))


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
    for runs in ([], [[1.0], []]):
        with pytest.raises(ValueError, match="sample"):
            Pool(runs)
    with pytest.raises(ValueError, match="sample"):
        mann_whitney([], [1.0])


@given(times)
def test_the_interval_holds_its_median(samples):
    interval = median_ci(samples)
    assert interval.low <= interval.value <= interval.high
    assert interval.value == np.median(samples)


@given(times, st.floats(0.1, 10))
def test_a_ratio_scales_and_turns_round(samples, factor):
    scaled = [factor * s for s in samples]
    forward, back = ratio([scaled], [samples]), ratio([samples], [scaled])
    assert forward.value == pytest.approx(factor) and back.value == pytest.approx(1 / factor)
    assert forward.low <= forward.high


def coverage(interval_of, truth, rounds=400):
    return sum(interval_of(np.random.default_rng(i)).holds(truth) for i in range(rounds)) / rounds


def test_the_medians_interval_covers_the_truth_as_often_as_it_says():
    # Skewed, as step times are: the median of exp(N(0, 1)) is 1.
    covered = coverage(lambda r: median_ci(list(r.lognormal(0, 1, 30))), 1.0)
    assert covered >= 0.93


def test_the_ratios_interval_covers_the_truth_about_as_often_as_it_says():
    covered = coverage(lambda r: ratio([list(r.lognormal(0.5, 0.2, 30))], [list(r.lognormal(0, 0.2, 30))]),
                       float(np.exp(0.5)), rounds=200)  # fmt: skip
    assert 0.88 <= covered <= 1.0


def test_processes_that_differ_widen_the_ratios_interval():
    rng = np.random.default_rng(0)
    alike = [list(1 + 0.01 * rng.standard_normal(30)) for _ in range(5)]
    apart = [list(m + 0.01 * rng.standard_normal(30)) for m in (0.8, 0.9, 1.0, 1.1, 1.2)]
    base = [list(1 + 0.01 * rng.standard_normal(30)) for _ in range(5)]
    narrow, wide = ratio(alike, base), ratio(apart, base)
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_runs_of_unlike_length_are_taken_too():
    assert ratio([[1.0] * 10, [1.0] * 7], [[2.0] * 8]) == Interval(0.5, 0.5, 0.5)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 13, 30])
def test_medians_are_drawn_as_resampling_would_draw_them(n):
    rng = np.random.default_rng(n)
    samples = rng.lognormal(0, 0.3, n)
    resampled = np.median(rng.choice(samples, (20_000, n)), axis=1)
    drawn = Pool([samples]).drawn
    assert set(np.round(drawn, 12)) <= {round((a + b) / 2, 12) for a in samples for b in samples}
    for point in samples:
        # Of 4000 draws against 20000: a difference of 0.04 is five standard errors.
        assert np.mean(drawn <= point) == pytest.approx(np.mean(resampled <= point), abs=0.04)


@given(st.lists(times, min_size=1, max_size=4))
def test_the_pooled_median_lies_in_its_interval_and_among_the_samples(runs):
    pool = Pool(runs)
    interval = pool.interval()
    flat = [s for run in runs for s in run]
    assert interval.value == pool.value and interval.low <= interval.high
    assert min(flat) * (1 - 1e-9) <= pool.value <= max(flat) * (1 + 1e-9)
    if len(runs) == 1:
        assert interval == median_ci(runs[0])


def test_every_process_counts_alike_however_many_steps_it_took():
    assert Pool([[1.0] * 100, [2.0] * 3, [3.0] * 3]).value == 2.0


def test_the_interval_over_processes_covers_the_truth_about_as_often_as_it_says():
    def interval(rng):
        def side():
            return [list(np.exp(0.05 * rng.standard_normal()) * rng.lognormal(0, 0.05, 20)) for _ in range(8)]

        return ratio(side(), side())

    assert 0.9 <= coverage(interval, 1.0, rounds=200) <= 1.0


def test_the_same_samples_give_the_same_interval():
    samples = [[0.1, 0.2, 0.15, 0.11, 0.13, 0.12, 0.19]]
    assert ratio(samples, samples) == ratio(samples, samples)


def side(rng, processes, *, steps=30, between=0.01, noise=0.01, scale=1.0):
    """Steps of about 0.1 s as machines give them: processes that differ, steps that hang together, a few slow ones."""
    runs = []
    for _ in range(processes):
        level = scale * 0.1 * math.exp(between * rng.standard_normal())
        errors = noise * rng.standard_normal(steps)
        for i in range(1, steps):
            errors[i] = 0.3 * errors[i - 1] + math.sqrt(1 - 0.3**2) * errors[i]
        slow = 1 + 0.3 * rng.exponential(1, steps) * (rng.random(steps) < 0.05)
        runs.append(list(level * np.exp(errors) * slow))
    return runs


@pytest.mark.parametrize("between", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("processes", [2, 3, 5, 10])
def test_a_cell_against_itself_is_called_different_in_at_most_5_of_100(processes, between):
    called = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        called += not ratio(*(side(rng, processes, between=between) for _ in "ab")).holds(1.0)
    assert called <= 5


def test_a_planted_slowdown_of_3_percent_is_found_in_at_least_95_of_100():
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        base, slower = side(rng, 5), side(rng, 5, scale=1.03)
        found += ratio(slower, base).low > 1
    assert found >= 95


def test_few_processes_make_a_wide_interval():
    rng = np.random.default_rng(1)
    widths = [
        np.mean([i.high - i.low for i in (ratio(side(rng, n), side(rng, n)) for _ in range(30))]) for n in (2, 3, 5, 10)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 4 * widths[2]


def test_students_t_is_as_in_the_tables():
    # Abramowitz & Stegun, table 26.10.
    for freedom, value in ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (30, 2.042), (10**6, 1.96)):
        assert student(freedom) == pytest.approx(value, abs=5e-4)
    assert student(9, 0.99) == pytest.approx(3.250, abs=5e-4)
    assert student(4) > student(4.5) > student(5)


def test_mann_whitney_is_as_worked_out_by_hand():
    assert mann_whitney([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)  # one order of 20, twice
    assert mann_whitney([1, 3, 5, 7, 9], [2, 4, 6, 8, 10]) == pytest.approx(0.6905, abs=1e-4)  # P(U <= 10) = 87 / 252
    assert mann_whitney([1.0] * 8, [1.0] * 8) == 1.0


@pytest.mark.parametrize("seed", range(12))
def test_mann_whitney_and_students_t_are_as_scipy_has_them(seed):
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    decimals = 1 if seed % 2 else 9  # with ties, without
    a, b = rng.normal(0, 1, 4 + 3 * seed).round(decimals), rng.normal(0.7, 1, 6 + 2 * seed).round(decimals)
    exact = len(set(a) | set(b)) == len(a) + len(b) and max(len(a), len(b)) <= 20
    expected = stats.mannwhitneyu(a, b, method="exact" if exact else "asymptotic").pvalue
    assert mann_whitney(list(a), list(b)) == pytest.approx(expected, rel=1e-6)
    assert student(seed + 1, 0.9) == pytest.approx(stats.t.ppf(0.95, seed + 1), rel=1e-6)


def test_p_is_of_processes_where_there_are_several():
    several = Pool([[v] * 30 for v in (1.0, 2.0, 3.0, 4.0)]).p_value(Pool([[v] * 30 for v in (5.0, 6.0, 7.0, 8.0)]))
    assert several == pytest.approx(2 / 70)
    assert Pool([[float(i) for i in range(30)]]).p_value(Pool([[float(i) for i in range(30, 60)]])) < 1e-6


def test_a_test_that_cannot_become_sure_gives_no_p():
    few = Pool([[1.0] * 30, [2.0] * 30, [3.0] * 30])
    assert few.p_value(Pool([[4.0] * 30, [5.0] * 30, [6.0] * 30])) is None


def test_an_interval_scales_and_an_unknown_one_is_not_known_to_hold_anything():
    assert Interval(1.0, 0.5, 2.0).times(2) == Interval(2.0, 1.0, 4.0)
    assert Interval(1.0, None, None).times(2) == Interval(2.0, None, None)
    assert Interval(1.0, 0.5, 2.0).known_to_hold(1.5) and not Interval(1.0, 0.5, 2.0).known_to_hold(3)
    assert Interval(1.0, None, None).holds(1) and not Interval(1.0, None, None).known_to_hold(1)
