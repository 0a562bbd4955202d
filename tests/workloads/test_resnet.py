"""ResNet against what torchvision and the paper publish of it.

Parameter counts, GFLOPS (multiply-adds) and the place of the stride:
https://pytorch.org/vision/stable/models/generated/torchvision.models.resnet18.html and
https://pytorch.org/vision/stable/models/generated/torchvision.models.resnet50.html.
Shapes layer by layer: He et al., arXiv 1512.03385, table 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional

from workloads.models import resnet as models
from workloads.optimizers import make_optimizer
from workloads.resnet import ResNet

WORKLOAD = ResNet()
DEPTHS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def on_meta(depth: int) -> models.ResNet:
    with torch.device("meta"):
        return models.resnet18() if depth == 18 else models.resnet50()


# -- names, shapes and initialisation --------------------------------------------------------------------
def norm(name: str, channels: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for part in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{part}", (channels,)
    yield f"{name}.num_batches_tracked", ()


def published(depth: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every entry of torchvision's state_dict, in its order."""
    yield "conv1.weight", (64, 3, 7, 7)
    yield from norm("bn1", 64)
    channels = 64
    for stage, blocks in enumerate(DEPTHS[depth], start=1):
        width = 32 * 2**stage
        if depth == 18:
            kernels, out = [(3, width), (3, width)], width
        else:
            kernels, out = [(1, width), (3, width), (1, 4 * width)], 4 * width
        for block in range(blocks):
            name, inputs = f"layer{stage}.{block}", channels
            for i, (kernel, outputs) in enumerate(kernels, start=1):
                yield f"{name}.conv{i}.weight", (outputs, inputs, kernel, kernel)
                yield from norm(f"{name}.bn{i}", outputs)
                inputs = outputs
            # Only the first block of a stage changes the shape; ResNet-18's first stage changes none.
            if block == 0 and (stage > 1 or depth == 50):
                yield f"{name}.downsample.0.weight", (out, channels, 1, 1)
                yield from norm(f"{name}.downsample.1", out)
            channels = out
    yield "fc.weight", (1000, channels)
    yield "fc.bias", (1000,)


@pytest.mark.parametrize(("depth", "parameters", "entries"), [(18, 11_689_512, 122), (50, 25_557_032, 320)])
def test_names_shapes_and_counts_are_torchvisions(depth: int, parameters: int, entries: int) -> None:
    module = on_meta(depth)
    assert sum(p.numel() for p in module.parameters()) == parameters
    state = [(name, tuple(value.shape)) for name, value in module.state_dict().items()]
    assert len(state) == entries
    assert state == list(published(depth))


@pytest.mark.parametrize(
    ("depth", "shapes"),
    [
        (18, {"layer1": (64, 56), "layer2": (128, 28), "layer3": (256, 14), "layer4": (512, 7)}),
        (50, {"layer1": (256, 56), "layer2": (512, 28), "layer3": (1024, 14), "layer4": (2048, 7)}),
    ],
)
def test_shapes_layer_by_layer(depth: int, shapes: dict[str, tuple[int, int]]) -> None:
    module = on_meta(depth)
    seen: dict[str, tuple[int, ...]] = {}
    for name, child in module.named_modules():
        child.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: tuple(out.shape)}))
    module(torch.empty(2, 3, 224, 224, device="meta"))
    assert seen["conv1"] == seen["bn1"] == (2, 64, 112, 112)
    assert seen["maxpool"] == (2, 64, 56, 56)
    for name, (channels, side) in shapes.items():
        assert seen[name] == (2, channels, side, side)
    assert seen["avgpool"] == (2, shapes["layer4"][0], 1, 1)
    assert seen["fc"] == seen[""] == (2, 1000)
    if depth == 50:  # "places the stride for downsampling to the second 3x3 convolution"
        assert seen["layer2.0.conv1"] == (2, 128, 56, 56)
        assert seen["layer2.0.conv2"] == (2, 128, 28, 28)


def by_formula(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """ResNet in evaluation mode out of its state_dict alone, as the paper's figures draw it."""

    def unit(x: torch.Tensor, conv: str, bn: str, stride: int = 1) -> torch.Tensor:
        weight = state[f"{conv}.weight"]
        x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, var, scale, shift = (
            state[f"{bn}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * scale + shift

    x = functional.max_pool2d(unit(x, "conv1", "bn1", 2).clamp(min=0), 3, 2, 1)
    for stage in range(1, 5):
        block = 0
        while (name := f"layer{stage}.{block}") + ".conv1.weight" in state:
            stride = 2 if stage > 1 and block == 0 else 1
            if f"{name}.conv3.weight" in state:
                y = unit(x, f"{name}.conv1", f"{name}.bn1").clamp(min=0)
                y = unit(y, f"{name}.conv2", f"{name}.bn2", stride).clamp(min=0)
                y = unit(y, f"{name}.conv3", f"{name}.bn3")
            else:
                y = unit(x, f"{name}.conv1", f"{name}.bn1", stride).clamp(min=0)
                y = unit(y, f"{name}.conv2", f"{name}.bn2")
            if f"{name}.downsample.0.weight" in state:
                x = unit(x, f"{name}.downsample.0", f"{name}.downsample.1", stride)
            x = (x + y).clamp(min=0)
            block += 1
    return x.mean(dim=(2, 3)) @ state["fc.weight"].T + state["fc.bias"]


@pytest.mark.parametrize("depth", [18, 50])
def test_the_output_is_the_papers(depth: int) -> None:
    torch.manual_seed(0)
    make = models.resnet18 if depth == 18 else models.resnet50
    module = make(classes=10, width=8).double().eval()
    state = module.state_dict()
    for name, value in state.items():  # fresh running statistics and biases would hide a mistake
        if name.endswith(("running_mean", "bias")):
            value.normal_(std=0.1)
        elif name.endswith("running_var"):
            value.uniform_(0.5, 2.0)
    x = torch.randn(2, 3, 40, 40, dtype=torch.float64)
    torch.testing.assert_close(module(x), by_formula(state, x), rtol=1e-9, atol=1e-9)


def test_initialisation_is_torchvisions() -> None:
    torch.manual_seed(0)
    for name, value in models.resnet18().state_dict().items():
        if value.ndim == 4:  # He et al., arXiv 1502.01852: normal, variance 2 / (kernel area x channels out)
            expected = math.sqrt(2 / (value.shape[0] * value.shape[2] * value.shape[3]))
            assert value.std().item() == pytest.approx(expected, rel=0.05), name
            assert abs(value.mean().item()) < 0.05 * expected, name
        elif name.endswith("running_var") or (name.endswith("weight") and value.ndim == 1):
            assert torch.equal(value, torch.ones_like(value)), name
        elif not name.startswith("fc"):
            assert torch.equal(value, torch.zeros_like(value)), name


# -- the workload ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "parameters", "side", "classes", "batch"),
    [("small", 11_689_512, 64, 1000, 16), ("resnet18", 11_689_512, 224, 1000, 32), ("full", 25_557_032, 224, 1000, 32)],
)
def test_sizes_are_what_they_say(size: str, parameters: int, side: int, classes: int, batch: int) -> None:
    built = WORKLOAD.build(size, "train", torch.float32, 0)
    assert sum(p.numel() for p in built.module.parameters()) == parameters
    assert WORKLOAD.sizes[size].batch == batch
    images, labels = built.make_batch(2, None, 0)
    assert images.shape == (2, 3, side, side)
    assert labels.shape == (2,) and labels.dtype == torch.int64
    assert labels.min() >= 0
    assert labels.max() < classes


def test_tiny_is_the_same_network_narrower() -> None:
    tiny = WORKLOAD.build("tiny", "train", torch.float32, 0).module
    small = WORKLOAD.build("small", "train", torch.float32, 0).module
    assert list(tiny.state_dict()) == list(small.state_dict())
    assert [type(m) for m in tiny.modules()] == [type(m) for m in small.modules()]


def test_the_seed_decides_everything_and_nothing_else_does() -> None:
    torch.manual_seed(123)
    one = WORKLOAD.build("tiny", "train", torch.float32, 7)
    first_draw = torch.rand(3)
    torch.manual_seed(123)
    assert torch.equal(torch.rand(3), first_draw), "building draws from the caller's generator"
    again = WORKLOAD.build("tiny", "train", torch.float32, 7)
    other = WORKLOAD.build("tiny", "train", torch.float32, 8)
    for name, value in one.module.state_dict().items():
        assert torch.equal(value, again.module.state_dict()[name])
    assert not torch.equal(one.module.fc.weight, other.module.fc.weight)
    for a, b in zip(one.make_batch(8, None, 7), again.make_batch(8, None, 7), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.make_batch(8, None, 7)[0], one.make_batch(8, None, 8)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_every_dtype_starts_from_the_same_numbers(dtype: torch.dtype) -> None:
    single = WORKLOAD.build("tiny", "train", torch.float32, 0)
    other = WORKLOAD.build("tiny", "train", dtype, 0)
    for a, b in zip(single.module.parameters(), other.module.parameters(), strict=True):
        assert b.dtype == dtype
        assert torch.equal(a.to(dtype), b)
    (images, labels), (others, other_labels) = (built.make_batch(8, None, 0) for built in (single, other))
    assert torch.equal(images.to(dtype), others)
    assert torch.equal(labels, other_labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loss_falls(dtype: torch.dtype) -> None:
    built = WORKLOAD.build("tiny", "train", dtype, 0)
    batch = built.make_batch(WORKLOAD.sizes["tiny"].batch, None, 0)
    optimizer = make_optimizer(WORKLOAD.optimizer, built.module)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = built.compute(built.module, *batch)
        assert loss.shape == () and loss.dtype == dtype
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(10), rel=0.5)  # nothing is known before the first step
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 4


def test_inference_evaluates() -> None:
    built = WORKLOAD.build("tiny", "infer", torch.float32, 0)
    assert not built.module.training
    (images,) = built.make_batch(4, None, 0)
    trained_on = WORKLOAD.build("tiny", "train", torch.float32, 0)
    assert trained_on.module.training
    assert torch.equal(images, trained_on.make_batch(4, None, 0)[0])
    with torch.no_grad():
        whole = built.compute(built.module, images)
        alone = built.compute(built.module, images[:1])
    assert whole.shape == (4, 10)
    # In evaluation an image's logits do not depend on the rest of its batch.
    torch.testing.assert_close(whole[:1], alone)


# -- work ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("size", "multiply_adds"), [("resnet18", 1.81e9), ("full", 4.09e9)])
def test_flops_are_the_published_ones(size: str, multiply_adds: float) -> None:
    assert WORKLOAD.flops(size, "infer", 1, None) == pytest.approx(2 * multiply_adds, rel=0.003)


@pytest.mark.parametrize("size", list(WORKLOAD.sizes))
def test_training_is_thrice_inference_less_the_images_own_gradient(size: str) -> None:
    built = WORKLOAD.build(size, "train", torch.float32, 0)
    side = -(-built.make_batch(1, None, 0)[0].shape[-1] // 2)
    first = 2 * 5 * built.module.conv1.weight.numel() * side * side
    assert WORKLOAD.flops(size, "train", 5, None) == 3 * WORKLOAD.flops(size, "infer", 5, None) - first


def test_work_grows_with_the_batch() -> None:
    for phase in WORKLOAD.phases:
        assert WORKLOAD.flops("small", phase, 32, None) == 2 * WORKLOAD.flops("small", phase, 16, None)
        assert WORKLOAD.items("small", phase, 32, None) == 32
