"""Synthetic data on the device are those of the CPU, bit by bit."""

import pytest
import torch

from workloads.synthetic import Synthetic

DRAWS = {
    "bits": lambda s: s.bits(4, 1000),
    "integers": lambda s: s.integers(128_256, 4, 1000),
    "noise": lambda s: s.noise(4, 1000, dtype=torch.float32),
    "bfloat16 noise": lambda s: s.noise(4, 1000, dtype=torch.bfloat16),
    "zipf": lambda s: s.zipf(1_000_000, 4, 1000),
    "zipf of few": lambda s: s.zipf(10, 4, 1000),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_every_draw_is_the_cpus(pjrt, draw):
    got = DRAWS[draw](Synthetic(11, "pjrt"))
    assert got.device.type == "pjrt"
    assert torch.equal(got.cpu(), DRAWS[draw](Synthetic(11)))
