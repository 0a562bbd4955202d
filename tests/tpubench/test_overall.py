"""Means over pieces of work."""

import math

import numpy as np
import pytest
from records import make_record, make_spec

from tpubench.accounting import account
from tpubench.compare import Comparison
from tpubench.overall import geometric_mean, overall
from tpubench.stats import Interval, Pool


def test_the_geometric_mean_by_hand():
    mean = geometric_mean([Interval(0.5, 0.4, 0.625), Interval(2.0, 1.6, 2.5)])
    assert mean.value == pytest.approx(1.0)
    # Each half-width is log 1.25; the mean of two independent ones is log 1.25 / sqrt 2.
    assert mean.high == pytest.approx(1.25 ** (1 / math.sqrt(2))) and mean.low == pytest.approx(1 / mean.high)


def test_a_ratio_without_an_interval_leaves_the_mean_without():
    assert geometric_mean([Interval(4.0, None, None), Interval(1.0, 1.0, 1.0)]) == Interval(2.0, None, None)
    with pytest.raises(ValueError, match="at least one"):
        geometric_mean([])


def test_turning_the_ratios_round_turns_the_mean_round():
    ratios = [Interval(0.5, 0.45, 0.6), Interval(3.0, 2.0, 4.0), Interval(1.1, 1.0, 1.2)]
    there, back = geometric_mean(ratios), geometric_mean([Interval(1 / r.value, 1 / r.high, 1 / r.low) for r in ratios])
    assert (back.value, back.low, back.high) == pytest.approx((1 / there.value, 1 / there.high, 1 / there.low))


def test_the_means_interval_covers_the_truth_about_as_often_as_it_says():
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)

        def runs(median, rng=rng):
            return Pool([list(median * rng.lognormal(0, 0.05, 30))])

        ratios = [runs(truth).over(runs(1.0)) for truth in (0.5, 1.0, 1.6)]
        held += geometric_mean(ratios).holds((0.5 * 1.0 * 1.6) ** (1 / 3))
    assert 0.9 <= held / 200 <= 1.0


def work(batch, **scales):
    return [
        account(make_record(number=n, scale=scale, spec=make_spec(batch=batch, mode=mode)))
        for n, (mode, scale) in enumerate(scales.items(), 1)
    ]


def test_cells_are_summed_up_over_works_and_counted_where_they_are_fastest():
    records = [*work(1, eager=1.0, compile=0.5), *work(2, eager=1.0, compile=2.0), *work(4, eager=1.0, lazy=3.0)]
    (mean,) = overall(Comparison.of(records, "embedded:eager"))
    assert (mean.name, mean.baseline, mean.works, mean.fastest) == ("embedded:compile", "embedded:eager", 2, 1)
    assert mean.ratio.value == pytest.approx(1.0)


def test_one_piece_of_work_has_no_mean():
    assert overall(Comparison.of(work(1, eager=1.0, compile=0.5), "embedded:eager")) == []
