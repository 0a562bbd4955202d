"""DLRM in plain torch.nn: embedding bags, two MLPs and the dot products of everything with everything.

Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and Recommendation Systems",
arXiv 1906.00091; initialisation as https://github.com/facebookresearch/dlrm has it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from workloads.models.weights import draw_normal, draw_uniform, embedding_bag, linear


def _mlp(widths: Sequence[int], dtype: torch.dtype, last_relu: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (features, out) in enumerate(itertools.pairwise(widths), start=1):
        layer = linear(features, out, dtype, bias=True)
        draw_normal(layer.weight, math.sqrt(2 / (features + out)))
        draw_normal(layer.bias, math.sqrt(1 / out))
        layers.append(layer)
        if last_relu or i < len(widths) - 1:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    """A click's log-odds from numbers and categories."""

    def __init__(
        self,
        tables: Sequence[int],
        width: int,
        bottom: Sequence[int],
        top: Sequence[int],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """``tables`` are the rows of each embedding table; ``bottom`` starts at the dense features and ends at
        ``width``; ``top`` lists its layers' outputs and ends at 1. Weights from torch's global generator."""
        super().__init__()
        self.bottom = _mlp(bottom, dtype, last_relu=True)
        self.tables = nn.ModuleList(embedding_bag(rows, width, dtype) for rows in tables)
        for rows, table in zip(tables, self.tables, strict=True):
            draw_uniform(table.weight, 1 / math.sqrt(rows))  # type: ignore[arg-type]
        vectors = len(tables) + 1
        self.top = _mlp((width + vectors * (vectors - 1) // 2, *top), dtype, last_relu=False)
        pairs = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", pairs[0] * vectors + pairs[1], persistent=False)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """(N, dense features) and int64 (tables, N, lookups) to log-odds (N,)."""
        x = self.bottom(dense)
        looked_up = [table(rows) for table, rows in zip(self.tables, sparse.unbind(), strict=True)]
        vectors = torch.stack([x, *looked_up], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        features = torch.cat([x, products.index_select(1, self.pairs)], dim=1)  # type: ignore[arg-type]
        return self.top(features).squeeze(1)  # type: ignore[no-any-return]
