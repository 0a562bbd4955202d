"""ResNet-18 and ResNet-50: image classification, the convolutional workload."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from workloads.protocol import Built, Size
from workloads.synthetic import Synthetic

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """What the module and the formula both need of a size."""

    depth: int  # 18 | 50
    image: int  # pixels a side
    width: int = 64
    classes: int = 1000


_SHAPES = {
    "tiny": _Shape(18, 32, width=8, classes=10),
    "small": _Shape(18, 64),
    "resnet18": _Shape(18, 224),
    "full": _Shape(50, 224),
}


class ResNet:
    """ResNet on seeded synthetic images, cross-entropy."""

    name = "resnet"
    summary = "ResNet-18 and ResNet-50, image classification"
    item = "image"
    phases = ("train", "infer")
    published = "full"
    optimizer = "sgd"
    flops_convention = (
        "convolutions and the classifier, 2 FLOPs a multiply-add, padding counted as full windows; "
        "backward twice forward, less the images' own gradient; norms, activations, optimizer left out"
    )
    sizes: Mapping[str, Size] = {
        "tiny": Size("ResNet-18 of an eighth of the width, 32x32, 10 classes", batch=8),
        "small": Size("ResNet-18, 64x64", batch=16),
        "resnet18": Size("ResNet-18, 224x224", batch=32),
        "full": Size("ResNet-50, 224x224", batch=32),
    }

    def build(self, size: str, phase: str, dtype: torch.dtype, seed: int) -> Built:
        """The module with seeded weights at ``dtype``; see :class:`workloads.protocol.Workload`.

        Weights are drawn in float32 and converted, so that every dtype starts from the same ones.
        """
        import torch

        from workloads.models.resnet import resnet18, resnet50

        shape = _SHAPES[size]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            make = resnet18 if shape.depth == 18 else resnet50
            module = make(shape.classes, shape.width).to(dtype)
        module.train(phase == "train")

        def make_batch(
            batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
        ) -> tuple[torch.Tensor, ...]:
            data = Synthetic(seed, device)
            images = data.noise(batch, 3, shape.image, shape.image, dtype=dtype)
            return (images, data.integers(shape.classes, batch)) if phase == "train" else (images,)

        return Built(module, make_batch, _loss if phase == "train" else _output)

    def flops(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Model FLOPs of one step: 2 x (kernel area x channels in x channels out x pixels out), summed.

        He et al. 2015 (arXiv 1512.03385), table 1, gives 1.8e9 and 3.8e9 multiply-adds for ResNet-18 and
        ResNet-50 at 224x224. Torchvision's variant strides in the 3x3 convolution and not in the 1x1
        before it, so that its ResNet-50 has more: 4.09e9, and 1.81e9 for ResNet-18
        (https://pytorch.org/vision/stable/models/generated/torchvision.models.resnet50.html).
        """
        layers = list(_multiply_adds(_SHAPES[size]))
        forward = 2.0 * batch * sum(layers)
        if phase == "infer":
            return forward
        # Backward makes two products of the forward's size a layer, but the images need no gradient.
        return 3 * forward - 2.0 * batch * layers[0]

    def items(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Images a step."""
        return batch


def _multiply_adds(shape: _Shape) -> Iterator[int]:
    """The multiply-adds of one image, layer by layer, the stem first."""
    side = (shape.image + 1) // 2
    yield 7 * 7 * 3 * shape.width * side * side
    side = (side + 1) // 2  # the pooling
    depths = (2, 2, 2, 2) if shape.depth == 18 else (3, 4, 6, 3)
    expansion = 1 if shape.depth == 18 else 4
    channels = shape.width
    for stage, depth in enumerate(depths):
        width = shape.width << stage
        out = width * expansion
        for block in range(depth):
            before = side
            if stage > 0 and block == 0:
                side = (side + 1) // 2
            if expansion == 1:
                yield 9 * channels * width * side * side
                yield 9 * width * width * side * side
            else:
                yield channels * width * before * before
                yield 9 * width * width * side * side
                yield width * out * side * side
            if channels != out or before != side:
                yield channels * out * side * side
            channels = out
    yield channels * shape.classes


def _loss(module: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.cross_entropy(module(images), labels)


def _output(module: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    return module(images)  # type: ignore[no-any-return]
