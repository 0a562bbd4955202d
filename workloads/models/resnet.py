"""ResNet in plain torch.nn, with torchvision's names, shapes and initialisation.

He et al., "Deep Residual Learning for Image Recognition", arXiv 1512.03385, in the variant that
torchvision publishes ("v1.5": a bottleneck strides in its 3x3 convolution, not in its first 1x1):
https://docs.pytorch.org/vision/stable/models/resnet.html. A state_dict of torchvision's loads here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def _conv(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out, kernel, stride=stride, padding=kernel // 2, bias=False)


def _shortcut(channels: int, out: int, stride: int) -> nn.Sequential | None:
    """What brings the input to the output's shape, None where it has it."""
    if stride == 1 and channels == out:
        return None
    return nn.Sequential(_conv(channels, out, 1, stride), nn.BatchNorm2d(out))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions round a shortcut (ResNet-18 and 34)."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(channels, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) to (N, width, H / stride, W / stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions round a shortcut (ResNet-50 and deeper)."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * self.expansion
        self.conv1 = _conv(channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, out, 1)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, out, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) to (N, 4 width, H / stride, W / stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """Four stages of ``block``, ``depths`` blocks each, at ``width``, 2, 4 and 8 times ``width`` channels."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        classes: int = 1000,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for stage, depth in enumerate(depths):
            blocks = []
            for i in range(depth):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(block(channels, width << stage, stride))
                channels = (width << stage) * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)
        self._initialise()

    def _initialise(self) -> None:
        # He et al., arXiv 1502.01852, by the fan that the gradient sees.
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) images to (N, classes) logits."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet18(classes: int = 1000, width: int = 64) -> ResNet:
    """ResNet-18: 11,689,512 parameters at 1000 classes and width 64."""
    return ResNet(BasicBlock, (2, 2, 2, 2), classes, width)


def resnet50(classes: int = 1000, width: int = 64) -> ResNet:
    """ResNet-50: 25,557,032 parameters at 1000 classes and width 64."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes, width)
