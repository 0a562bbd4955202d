"""DLRM: click prediction, the workload of embedding tables."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workloads.protocol import Built, Size
from workloads.synthetic import Synthetic

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """What the module and the formula both need of a size."""

    tables: tuple[int, ...]
    width: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    lookups: int = 1


# Criteo's categories: of Kaggle's week of days all that occur
# (https://github.com/facebookresearch/dlrm, bench/dlrm_s_criteo_kaggle.sh has the layers), and of the terabyte set
# capped at 40 million rows a table, as MLPerf training's DLRM benchmark of v0.7 to v2.1 has it
# (https://github.com/facebookresearch/dlrm, bench/run_and_time.sh).
_KAGGLE = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
    2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
_TERABYTE = (
    39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976, 14,
    39979771, 25641295, 39664984, 585935, 12972, 108, 36,
)  # fmt: skip
_SHAPES = {
    "tiny": _Shape((10, 100, 1000), 8, (13, 16, 8), (16, 1), lookups=2),
    "small": _Shape(tuple(min(rows, 10_000) for rows in _KAGGLE), 16, (13, 512, 256, 64, 16), (512, 256, 1)),
    "kaggle": _Shape(_KAGGLE, 16, (13, 512, 256, 64, 16), (512, 256, 1)),
    "terabyte": _Shape(_TERABYTE, 128, (13, 512, 256, 128), (1024, 1024, 512, 256, 1)),
}


class DLRM:
    """DLRM on seeded synthetic clicks, categories by Zipf's law, binary cross-entropy."""

    name = "dlrm"
    summary = "DLRM, click prediction from embedding tables"
    item = "sample"
    phases = ("train", "infer")
    published = "kaggle"
    optimizer = "sgd"
    flops_convention = (
        "the layers of both MLPs and all dot products of the interaction, 2 FLOPs a multiply-add; backward twice "
        "forward, less the dense features' own gradient; lookups, activations, optimizer left out"
    )
    sizes: Mapping[str, Size] = {
        "tiny": Size("3 tables of width 8", batch=16),
        "small": Size("Criteo Kaggle's layers, its 26 tables cut to 10,000 rows", batch=256),
        "kaggle": Size("Criteo Kaggle, 26 tables of width 16", batch=2048),
        "terabyte": Size("MLPerf's Criteo Terabyte, 26 tables of width 128, 96 GB of them in float32", batch=8192),
    }

    def build(self, size: str, phase: str, dtype: torch.dtype, seed: int) -> Built:
        """The module with seeded weights at ``dtype``; see :class:`workloads.protocol.Workload`.

        Batches: numbers (N, 13), rows int64 (tables, N, lookups), and for train clicks (N,) of 0 and 1.
        """
        import torch

        from workloads.models import dlrm

        shape = _SHAPES[size]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = dlrm.DLRM(shape.tables, shape.width, shape.bottom, shape.top, dtype)
        module.train(phase == "train")

        def make_batch(
            batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
        ) -> tuple[torch.Tensor, ...]:
            data = Synthetic(seed, device)
            dense = data.noise(batch, shape.bottom[0], dtype=dtype)
            sparse = torch.stack([data.zipf(rows, batch, shape.lookups) for rows in shape.tables])
            return (dense, sparse, data.integers(2, batch).to(dtype)) if phase == "train" else (dense, sparse)

        return Built(module, make_batch, _loss if phase == "train" else _output)

    def flops(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Model FLOPs of one step: 2 a weight of the MLPs, 2 x width a pair of vectors, every pair both ways.

        Naumov et al. 2019 (arXiv 1906.00091), sections 2.1 to 2.3, describes the products; nobody publishes a count.
        """
        shape = _SHAPES[size]
        vectors = len(shape.tables) + 1
        top = (shape.width + vectors * (vectors - 1) // 2, *shape.top)
        weights = sum(a * b for widths in (shape.bottom, top) for a, b in itertools.pairwise(widths))
        forward = 2.0 * batch * (weights + vectors * vectors * shape.width)
        if phase == "infer":
            return forward
        return 3 * forward - 2.0 * batch * shape.bottom[0] * shape.bottom[1]

    def items(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Samples a step."""
        return batch


def _loss(module: torch.nn.Module, dense: torch.Tensor, sparse: torch.Tensor, clicks: torch.Tensor) -> torch.Tensor:
    import torch
    from torch.nn import functional

    logits = module(dense, sparse)
    wide = torch.promote_types(logits.dtype, torch.float32)
    return functional.binary_cross_entropy_with_logits(logits.to(wide), clicks.to(wide))


def _output(module: torch.nn.Module, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
    return module(dense, sparse).sigmoid()  # type: ignore[no-any-return]
