"""The UNet of denoising diffusion in plain torch.nn.

Ho, Jain and Abbeel 2020, "Denoising Diffusion Probabilistic Models", arXiv 2006.11239, appendix B; the layers are
those of https://github.com/hojonathanho/diffusion (diffusion_tf/models/unet.py), dropout left out.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A UNet's sizes, all that its module and the formula of its FLOPs need."""

    image: int  # pixels a side
    width: int
    multiples: tuple[int, ...]  # of the width, level by level, each half as fine as the last
    blocks: int = 2  # a level
    attention: tuple[int, ...] = (16,)  # the sides at which there is any
    groups: int = 32

    @property
    def time_width(self) -> int:
        """Of the time embedding."""
        return 4 * self.width


def _norm(shape: Shape, channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(shape.groups, channels, eps=1e-6)


class ResidualBlock(nn.Module):
    """Two convolutions round a shortcut, the time added between them."""

    def __init__(self, shape: Shape, channels: int, out: int) -> None:
        super().__init__()
        self.norm1 = _norm(shape, channels)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(shape.time_width, out)
        self.norm2 = _norm(shape, out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) and (N, time width) to (N, out, H, W)."""
        y = self.conv1(functional.silu(self.norm1(x)))
        y = y + self.time(functional.silu(time))[:, :, None, None]
        y = self.conv2(functional.silu(self.norm2(y)))
        return self.shortcut(x) + y  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Every pixel sees every other: one head as wide as the channels."""

    def __init__(self, shape: Shape, channels: int) -> None:
        super().__init__()
        self.norm = _norm(shape, channels)
        self.query, self.key, self.value, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) to the same."""
        y = self.norm(x)
        query, key, value = (
            layer(y).flatten(2).transpose(1, 2).unsqueeze(1) for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.squeeze(1).transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]


class Stage(nn.Module):
    """A residual block, and attention where the level has it."""

    def __init__(self, shape: Shape, channels: int, out: int, side: int) -> None:
        super().__init__()
        self.block = ResidualBlock(shape, channels, out)
        self.attention = Attention(shape, out) if side in shape.attention else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) and (N, time width) to (N, out, H, W)."""
        return self.attention(self.block(x, time))  # type: ignore[no-any-return]


class UNet(nn.Module):
    """The noise in an image, from the image and how far it was diffused."""

    def __init__(self, shape: Shape) -> None:
        """torch's own initialisation, from its global generator."""
        super().__init__()
        self.width = shape.width
        self.time = nn.Sequential(
            nn.Linear(shape.width, shape.time_width), nn.SiLU(), nn.Linear(shape.time_width, shape.time_width)
        )
        self.first = nn.Conv2d(3, shape.width, 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        channels, side, kept, levels = shape.width, shape.image, [shape.width], len(shape.multiples)
        for level, multiple in enumerate(shape.multiples):
            stages = nn.ModuleList()
            for _ in range(shape.blocks):
                stages.append(Stage(shape, channels, shape.width * multiple, side))
                channels = shape.width * multiple
                kept.append(channels)
            self.down.append(stages)
            if level < levels - 1:
                self.shrink.append(nn.Conv2d(channels, channels, 3, stride=2, padding=1))
                kept.append(channels)
                side //= 2
        self.middle = nn.ModuleList([Stage(shape, channels, channels, shape.attention[0])])
        self.last = ResidualBlock(shape, channels, channels)
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for level in reversed(range(levels)):
            stages = nn.ModuleList()
            for _ in range(shape.blocks + 1):
                stages.append(Stage(shape, channels + kept.pop(), shape.width * shape.multiples[level], side))
                channels = shape.width * shape.multiples[level]
            self.up.append(stages)
            if level > 0:
                self.grow.append(nn.Conv2d(channels, channels, 3, padding=1))
                side *= 2
        self.norm = _norm(shape, channels)
        self.out = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, images: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) and int64 (N,) to the noise, (N, 3, H, W)."""
        time = self.time(
            sinusoids(steps, self.width, torch.promote_types(images.dtype, torch.float32)).to(images.dtype)
        )
        x = self.first(images)
        kept = [x]
        for level, stages in enumerate(self.down):
            for stage in stages:  # type: ignore[attr-defined]
                x = stage(x, time)
                kept.append(x)
            if level < len(self.shrink):
                x = self.shrink[level](x)
                kept.append(x)
        x = self.last(self.middle[0](x, time), time)
        for level, stages in enumerate(self.up):
            for stage in stages:  # type: ignore[attr-defined]
                x = stage(torch.cat([x, kept.pop()], dim=1), time)
            if level < len(self.grow):
                x = self.grow[level](functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.out(functional.silu(self.norm(x)))  # type: ignore[no-any-return]


def sinusoids(steps: torch.Tensor, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """int64 (N,) to (N, width) of ``dtype``: sines, then cosines, of wavelengths from 2 pi to 10,000 times that.

    Vaswani et al. 2017, arXiv 1706.03762, section 3.5, in the arrangement that Ho et al. use.
    """
    half = width // 2
    rates = torch.exp(torch.arange(half, dtype=dtype, device=steps.device) * (-math.log(10_000) / (half - 1)))
    angles = steps[:, None].to(dtype) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)
