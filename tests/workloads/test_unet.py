"""The UNet against what is published of DDPM's, and against itself."""

from __future__ import annotations

import pytest
import torch

from workloads.models import unet
from workloads.optimizers import make_optimizer
from workloads.registry import load

WORKLOAD = load("unet")


@pytest.mark.parametrize(("size", "parameters"), [("cifar10", 35_746_307), ("celebahq", 113_673_219)])
def test_parameter_counts_are_the_published_ones(size: str, parameters: int) -> None:
    """Ho et al. 2020, appendix B: 35.7 million for CIFAR-10, 114 million for the 256x256 sets."""
    with torch.device("meta"):
        module = WORKLOAD.build(size, "train", torch.float32, 0).module
    assert sum(p.numel() for p in module.parameters()) == parameters


def test_shapes_level_by_level() -> None:
    with torch.device("meta"):
        module = WORKLOAD.build("cifar10", "infer", torch.float32, 0).module
    seen: dict[str, tuple[int, ...]] = {}
    for name, child in module.named_modules():
        child.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: tuple(out.shape)}))
    out = module(torch.empty(2, 3, 32, 32, device="meta"), torch.empty(2, dtype=torch.int64, device="meta"))
    assert out.shape == (2, 3, 32, 32)
    levels = [seen[f"down.{level}.1"] for level in range(4)]
    assert levels == [(2, 128, 32, 32), (2, 256, 16, 16), (2, 256, 8, 8), (2, 256, 4, 4)]
    assert [seen[f"up.{level}.2"] for level in range(4)] == levels[::-1]
    attending = [n for n, m in module.named_modules() if isinstance(m, unet.Attention)]
    # At 16x16 on the way down and up, and in the middle.
    down, up = ["down.1.0.attention", "down.1.1.attention"], [f"up.2.{stage}.attention" for stage in range(3)]
    assert sorted(attending) == sorted([*down, "middle.0.attention", *up])


def test_the_step_says_how_far_the_image_was_diffused() -> None:
    built = WORKLOAD.build("tiny", "infer", torch.float64, 0)
    images, steps = built.make_batch(2, None, 0)
    with torch.no_grad():
        one, other = built.compute(built.module, images, steps), built.compute(built.module, images, 999 - steps)
    assert (one - other).abs().max() > 1e-6
    table = unet.sinusoids(torch.tensor([0, 3]), 8)
    assert table[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert table[1, 0].item() == pytest.approx(0.14112, abs=1e-5)  # sin 3


def test_diffusion_keeps_the_variance() -> None:
    """What is left of the image and what is noise add up: x_t has the variance of x_0, and ends as noise."""
    *_, left = WORKLOAD.build("tiny", "train", torch.float32, 0).make_batch(2, None, 0)
    assert left.shape == (1000,) and (left[1:] < left[:-1]).all()
    assert left[0].item() == pytest.approx(1 - 1e-4)
    assert 0 < left[-1].item() < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loss_begins_near_one_and_falls(dtype: torch.dtype) -> None:
    built = WORKLOAD.build("tiny", "train", dtype, 0)
    batch = built.make_batch(4, None, 0)
    optimizer = make_optimizer(WORKLOAD.optimizer, built.module)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = built.compute(built.module, *batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(1, rel=0.5)
    assert losses == sorted(losses, reverse=True)
