"""What makes step times doubtful."""

import numpy as np
import pytest

from tpubench.steadiness import drift, instability, steadiest, trend


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([1.0, 1.0, 1.5, 0.6, 1.0, 1.0], "standard deviation"),
        ([1.0] * 20 + [2.0], "slowest step is"),
        ([1.0, 1.01, 0.99], "too few"),
        ([1.0] * 20 + [0.4], "fastest step is"),
        ([1e-4] + [1.0] * 9, "100 us"),
        ([1.0], "only one"),
        ([1.0, 1.1] * 15, "no steady state: the steadiest 10 steps in a row vary by 5.0% of their mean"),
        ([1 + 0.005 * i for i in range(30)], "the steps become slower: the last third's median is 9.8% above"),
        ([1 - 0.005 * i for i in range(30)], "the steps become faster"),
    ],
)
def test_doubtful_samples_are_named(samples, says):
    assert any(says in text for text in instability(samples))


def test_steady_samples_raise_no_doubt():
    assert instability([0.1, 0.101, 0.099, 0.1, 0.1, 0.1005, 0.1]) == []
    rng = np.random.default_rng(0)
    assert instability(list(0.1 * np.exp(0.01 * rng.standard_normal(100)))) == []


def test_a_steady_stretch_is_found_wherever_it_lies():
    rng = np.random.default_rng(0)
    wild, calm = rng.uniform(0.5, 1.5, 20), np.array([1.0, 1.001] * 5)
    expected = calm.std(ddof=1) / calm.mean()
    assert steadiest([*wild, *calm, *wild]) == pytest.approx(expected)
    assert steadiest([1.0] * 9) is None


def test_no_trend_is_seen_in_noise_more_often_than_by_chance():
    found = sum(trend(list(np.random.default_rng(i).lognormal(0, 0.1, 30))) < 0.05 for i in range(400))
    assert 8 <= found <= 32  # 20 are expected


def test_a_trend_has_its_size_and_many_steps_do_not_take_long():
    steps = [1.0] * 10_000 + [1.1] * 10_000 + [1.2] * 10_000
    assert drift(steps) == pytest.approx(0.2) and trend(steps) < 1e-6
    assert trend([1.0, 2.0]) == 1.0
    with pytest.raises(ValueError, match="third"):
        drift([1.0, 2.0])
