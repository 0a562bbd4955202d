"""Synthetic data made where it is used: seeded, and the same on every device."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MASK = 0xFFFFFFFF
#: Ranks of a Zipf distribution that have a threshold of their own; above, groups of ranks share one.
_EXACT = 1024
#: Groups in each doubling of the rank above those.
_GROUPS = 16
#: A prime, Knuth's multiplicative hash (The Art of Computer Programming, vol. 3, section 6.4): spreads
#: popular ranks over a table, as real identifiers are spread.
_SCATTER = 2654435761


class Synthetic:
    """Draws from a counter and a hash, in integer arithmetic: every device gives the same values.

    A device's own generator would give each device its own data, and copying from the host would put
    the copy into what is measured. Each draw of one instance differs from the last.
    """

    def __init__(self, seed: int, device: str | torch.device = "cpu") -> None:
        """``seed`` may be any integer; ``device`` is where the draws are made and stay."""
        self._device = device
        self._seed = seed
        self._draws = 0

    def bits(self, *shape: int) -> torch.Tensor:
        """int64 of ``shape``, uniform in [0, 2**32).

        The hash is lowbias32 (https://nullprogram.com/blog/2018/07/31/). Of more than 2**32 elements the later
        ones repeat the first.
        """
        import torch

        count = math.prod(shape)
        self._draws += 1
        key = _hash(_hash(self._seed & _MASK) ^ (self._seed >> 32 & _MASK) ^ _hash(self._draws))
        x = torch.arange(count, dtype=torch.int64, device=self._device) ^ key
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            # A product of two 32-bit numbers overflows int64 into its sign, which the mask takes off.
            x = ((x ^ (x >> shift)) * factor) & _MASK
        return (x ^ (x >> 16)).reshape(shape)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        """int64 of ``shape``, uniform in [0, high); ``high`` is at most 2**31."""
        return (self.bits(*shape) * high) >> 32

    def noise(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """``dtype`` of ``shape``, mean 0, variance 1: nearly normal.

        The sum of eight uniform bytes (Irwin-Hall): nothing beyond 4.9, and exact in integers up to one
        multiplication, which is what makes it equal on every device.
        """
        high, low = self.bits(*shape), self.bits(*shape)
        total = sum(((word >> shift) & 0xFF) for word in (high, low) for shift in (0, 8, 16, 24))
        # Eight bytes: mean 8 x 127.5, variance 8 x (256**2 - 1) / 12.
        return ((total - 1020).float() * (1 / math.sqrt(8 * (256**2 - 1) / 12))).to(dtype)  # type: ignore[union-attr]

    def zipf(self, count: int, *shape: int, exponent: float = 1.05) -> torch.Tensor:
        """int64 of ``shape`` in [0, count): the k-th most popular value comes with chance k**-exponent, scaled.

        Adler's 1.05 is what traces of recommendation tables are near to (Gupta et al. 2020, arXiv 1906.03109,
        and Naumov et al. 2019, arXiv 1906.00091, draw from such power laws). Ranks beyond the first 1024 are drawn
        in groups, uniform within each; popular ranks are scattered over the range.
        """
        import torch

        starts = _group_starts(count)
        weights = [_weight(a, b, exponent) for a, b in itertools.pairwise(starts)]
        scale, total = 2**31 / math.fsum(weights), 0.0
        thresholds = []
        for weight in weights[:-1]:
            total += weight
            thresholds.append(min(2**31 - 1, int(total * scale)))
        edges = torch.tensor(thresholds, dtype=torch.int64).to(self._device)
        # Ranks count from 0 here.
        first = torch.tensor([a - 1 for a in starts[:-1]], dtype=torch.int64).to(self._device)
        width = torch.tensor([b - a for a, b in itertools.pairwise(starts)], dtype=torch.int64)
        group = torch.searchsorted(edges, self.integers(2**31, *shape), right=True)
        rank = first[group] + ((self.bits(*shape) * width.to(self._device)[group]) >> 32)
        return (rank * (_SCATTER % count) if math.gcd(_SCATTER, count) == 1 else rank) % count


def _hash(x: int) -> int:
    """lowbias32 of one number, on the host."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & _MASK
    return x ^ (x >> 16)


def _group_starts(count: int) -> list[int]:
    """Where each group of ranks 1 to ``count`` begins, and one past the last."""
    starts = list(range(1, min(count, _EXACT) + 1))
    edge = _EXACT + 1
    while edge <= count:
        starts.append(edge)
        octave = 1 << ((edge - 1).bit_length() - 1)
        edge += max(1, octave // _GROUPS)
    return [*starts, count + 1]


def _weight(start: int, stop: int, exponent: float) -> float:
    """The sum of k**-exponent over [start, stop): the middle of the range stands for it where it is wide."""
    if stop - start == 1:
        return float(start**-exponent)
    low, high = start - 0.5, stop - 0.5
    if exponent == 1:
        return math.log(high / low)
    return float((high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent))
