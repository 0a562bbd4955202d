"""Synthetic data: the same on every device, of the distribution that is promised."""

import math

import pytest
import torch

from workloads.synthetic import Synthetic


def test_the_same_seed_gives_the_same_values_and_another_draw_or_seed_others() -> None:
    one, again = Synthetic(7), Synthetic(7)
    first = one.bits(1000)
    assert torch.equal(first, again.bits(1000))
    for other in (one.bits(1000), Synthetic(8).bits(1000), Synthetic(7 + 2**32).bits(1000)):
        assert (other == first).float().mean() < 0.01


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_any_seed_will_do(seed: int) -> None:
    assert Synthetic(seed).bits(3).shape == (3,)


def test_bits_are_uniform() -> None:
    bits = Synthetic(3).bits(1 << 18)
    assert bits.min() >= 0 and bits.max() < 2**32
    for position in range(32):
        # Six standard deviations of a fair coin.
        assert abs(((bits >> position) & 1).double().mean() - 0.5) < 6 * 0.5 / math.sqrt(bits.numel()), position
    # Neighbours know nothing of one another.
    x = bits.double() - bits.double().mean()
    assert abs((x[1:] * x[:-1]).mean() / x.square().mean()) < 6 / math.sqrt(bits.numel())


@pytest.mark.parametrize("high", [1, 2, 10, 1000, 128_256, 2**31])
def test_integers_cover_their_range(high: int) -> None:
    drawn = Synthetic(1).integers(high, 1 << 16)
    assert drawn.dtype == torch.int64
    assert drawn.min() >= 0 and drawn.max() < high
    assert drawn.double().mean() == pytest.approx((high - 1) / 2, rel=0.01, abs=1e-9)
    if high <= 10:
        assert len(drawn.unique()) == high


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noise_is_nearly_normal(dtype: torch.dtype) -> None:
    x = Synthetic(5).noise(512, 512, dtype=dtype)
    assert x.shape == (512, 512) and x.dtype == dtype
    x = x.double()
    assert abs(x.mean()) < 0.01
    assert x.std() == pytest.approx(1, rel=0.01)
    assert (x.abs() < 1).double().mean() == pytest.approx(0.683, abs=0.01)
    assert (x.abs() < 2).double().mean() == pytest.approx(0.954, abs=0.01)


@pytest.mark.parametrize("count", [1, 2, 7, 1024, 1025, 100_000, 40_000_000])
def test_zipf_stays_in_its_range(count: int) -> None:
    drawn = Synthetic(2).zipf(count, 4096)
    assert drawn.shape == (4096,)
    assert drawn.min() >= 0 and drawn.max() < count


def test_zipf_draws_the_kth_most_popular_with_chance_k_to_the_minus_exponent() -> None:
    count, exponent, draws = 5000, 1.05, 1 << 19
    drawn = Synthetic(4).zipf(count, draws, exponent=exponent)
    popular = torch.bincount(drawn, minlength=count).sort(descending=True).values.double() / draws
    harmonic = sum(k**-exponent for k in range(1, count + 1))
    for k in (1, 2, 3, 10, 30):
        assert popular[k - 1] == pytest.approx(k**-exponent / harmonic, rel=0.05), k
    # The tail that is drawn in groups has its share too.
    tail = sum(k**-exponent for k in range(2001, count + 1)) / harmonic
    assert popular[2000:].sum() == pytest.approx(tail, rel=0.05)


def test_the_popular_are_scattered_over_the_range() -> None:
    drawn = Synthetic(4).zipf(1_000_000, 1 << 16)
    top = torch.tensor(sorted(drawn.unique(return_counts=True)[1].sort(descending=True).indices[:8].tolist()))
    assert (top.diff() > 1).any()
    assert abs(drawn.double().mean() / 1_000_000 - 0.5) < 0.2


def test_meta_has_shapes_only() -> None:
    data = Synthetic(0, "meta")
    for tensor in (
        data.bits(2, 3),
        data.integers(9, 2, 3),
        data.noise(2, 3, dtype=torch.bfloat16),
        data.zipf(99, 2, 3),
    ):
        assert tensor.device.type == "meta" and tensor.shape == (2, 3)
