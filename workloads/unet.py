"""UNet: one step of denoising diffusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workloads.protocol import Built, Size
from workloads.synthetic import Synthetic

if TYPE_CHECKING:
    import torch

#: How often an image is diffused; Ho et al. 2020, section 4, which also has the variances from 1e-4 to 0.02.
_STEPS = 1000
_SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"image": 8, "width": 16, "multiples": (1, 2), "blocks": 1, "attention": (4,), "groups": 4},
    "small": {"image": 32, "width": 32, "multiples": (1, 2, 2, 2), "blocks": 1, "attention": (16,), "groups": 8},
    "cifar10": {"image": 32, "width": 128, "multiples": (1, 2, 2, 2), "blocks": 2, "attention": (16,)},
    "celebahq": {"image": 256, "width": 128, "multiples": (1, 1, 2, 2, 4, 4), "blocks": 2, "attention": (16,)},
}


class UNet:
    """The UNet of DDPM on seeded synthetic images, mean squared error of the noise it finds."""

    name = "unet"
    summary = "DDPM's UNet, image diffusion with attention at low resolutions"
    item = "image"
    phases = ("train", "infer")
    published = "cifar10"
    optimizer = "adamw"
    flops_convention = (
        "convolutions, linear layers and attention, 2 FLOPs a multiply-add, padding counted as full windows; backward "
        "twice forward, less the images' and the time's own gradients; norms, activations, optimizer left out"
    )
    sizes: Mapping[str, Size] = {
        "tiny": Size("2 levels from width 16, 8x8", batch=4),
        "small": Size("4 levels from width 32, 32x32", batch=8),
        "cifar10": Size("DDPM's for CIFAR-10, 32x32", batch=128),
        "celebahq": Size("DDPM's for CelebA-HQ, 256x256", batch=16),
    }

    def build(self, size: str, phase: str, dtype: torch.dtype, seed: int) -> Built:
        """The module with seeded weights at ``dtype``; see :class:`workloads.protocol.Workload`.

        Batches: images (N, 3, H, W) and steps int64 (N,); for train the noise (N, 3, H, W) and the share of each
        image that is left at each step, (1000,), float32 or wider, beside.
        """
        import torch

        from workloads.models import unet

        shape = unet.Shape(**_SHAPES[size])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = unet.UNet(shape).to(dtype)
        module.train(phase == "train")

        def make_batch(
            batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
        ) -> tuple[torch.Tensor, ...]:
            data = Synthetic(seed, device)
            images = data.noise(batch, 3, shape.image, shape.image, dtype=dtype)
            steps = data.integers(_STEPS, batch)
            if phase != "train":
                return images, steps
            left = torch.cumprod(1 - torch.linspace(1e-4, 0.02, _STEPS, dtype=torch.float64), dim=0)
            noise = data.noise(*images.shape, dtype=dtype)
            return images, steps, noise, left.to(torch.promote_types(dtype, torch.float32)).to(device)

        return Built(module, make_batch, _loss if phase == "train" else _output, streamed=3 if phase == "train" else 2)

    def flops(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Model FLOPs of one step: 2 a weight and place it is used at, 4 x channels a pair of pixels that attend.

        The layers of https://github.com/hojonathanho/diffusion; nobody publishes a count.
        """
        forward = 2.0 * batch * sum(_multiply_adds(_SHAPES[size]))
        if phase == "infer":
            return forward
        width, side = _SHAPES[size]["width"], _SHAPES[size]["image"]
        return 3 * forward - 2.0 * batch * (9 * 3 * width * side * side + 4 * width * width)

    def items(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Images a step."""
        return batch


def _multiply_adds(shape: Mapping[str, Any]) -> Iterator[int]:
    """The multiply-adds of one image, part by part."""
    width, multiples, blocks, attention = shape["width"], shape["multiples"], shape["blocks"], shape["attention"]
    time = 4 * width

    def residual(channels: int, out: int, side: int) -> int:
        shortcut = 0 if channels == out else channels * out
        return side * side * (9 * channels * out + 9 * out * out + shortcut) + time * out

    def attend(channels: int, side: int) -> int:
        return side * side * (4 * channels * channels + 2 * channels * side * side)

    yield width * time + time * time
    side = shape["image"]
    yield 9 * 3 * width * side * side
    channels, kept = width, [width]
    for level, multiple in enumerate(multiples):
        for _ in range(blocks):
            yield residual(channels, width * multiple, side)
            channels = width * multiple
            yield attend(channels, side) if side in attention else 0
            kept.append(channels)
        if level < len(multiples) - 1:
            side //= 2
            yield 9 * channels * channels * side * side
            kept.append(channels)
    yield 2 * residual(channels, channels, side) + attend(channels, side)
    for level in reversed(range(len(multiples))):
        for _ in range(blocks + 1):
            yield residual(channels + kept.pop(), width * multiples[level], side)
            channels = width * multiples[level]
            yield attend(channels, side) if side in attention else 0
        if level > 0:
            side *= 2
            yield 9 * channels * channels * side * side
    yield 9 * 3 * channels * side * side


def _loss(
    module: torch.nn.Module, images: torch.Tensor, steps: torch.Tensor, noise: torch.Tensor, left: torch.Tensor
) -> torch.Tensor:
    import torch
    from torch.nn import functional

    # Ho et al. 2020, equations 4 and 14.
    share = left[steps][:, None, None, None]
    diffused = share.sqrt().to(images.dtype) * images + (1 - share).sqrt().to(images.dtype) * noise
    found = module(diffused, steps)
    wide = torch.promote_types(found.dtype, torch.float32)
    return functional.mse_loss(found.to(wide), noise.to(wide))


def _output(module: torch.nn.Module, images: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    return module(images, steps)  # type: ignore[no-any-return]
