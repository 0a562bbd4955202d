"""DLRM against what the paper says and Criteo's sets hold."""

from __future__ import annotations

import math

import pytest
import torch

from workloads.models.dlrm import DLRM
from workloads.optimizers import make_optimizer
from workloads.registry import load

WORKLOAD = load("dlrm")


@pytest.mark.parametrize(("size", "rows", "width"), [("kaggle", 33_762_577, 16), ("terabyte", 187_767_399, 128)])
def test_tables_hold_the_published_rows(size: str, rows: int, width: int) -> None:
    """33,762,577 rows of Criteo Kaggle's 26 columns; 187,767,399 of the terabyte's, capped at 40 million each."""
    with torch.device("meta"):
        module = WORKLOAD.build(size, "train", torch.float32, 0).module
    assert sum(p.numel() for p in module.tables.parameters()) == rows * width  # type: ignore[union-attr]
    assert len(module.tables) == 26  # type: ignore[arg-type]


def test_the_output_is_the_papers() -> None:
    torch.manual_seed(0)
    module = DLRM((5, 7), 4, (3, 6, 4), (5, 1), torch.float64)
    dense, sparse = torch.randn(2, 3, dtype=torch.float64), torch.tensor([[[0, 1], [4, 4]], [[6, 0], [2, 3]]])
    state = module.state_dict()
    got = module(dense, sparse)
    for n in range(2):
        x = dense[n]
        for layer in ("bottom.0", "bottom.2"):
            x = (state[f"{layer}.weight"] @ x + state[f"{layer}.bias"]).clamp(min=0)
        vectors = [x, *(state[f"tables.{t}.weight"][sparse[t, n]].sum(0) for t in range(2))]
        pairs = [vectors[1] @ vectors[0], vectors[2] @ vectors[0], vectors[2] @ vectors[1]]
        y = torch.cat([x, torch.stack(pairs)])
        y = (state["top.0.weight"] @ y + state["top.0.bias"]).clamp(min=0)
        y = state["top.2.weight"] @ y + state["top.2.bias"]
        torch.testing.assert_close(got[n], y[0])


def test_rows_are_in_their_tables_and_popular_as_zipf_has_it() -> None:
    dense, sparse, clicks = WORKLOAD.build("small", "train", torch.float32, 0).make_batch(4096, None, 0)
    assert dense.shape == (4096, 13) and sparse.shape == (26, 4096, 1) and clicks.shape == (4096,)
    assert set(clicks.tolist()) == {0.0, 1.0}
    for rows, column in zip((1460, 583, 10_000), sparse, strict=False):
        assert column.min() >= 0 and column.max() < rows
        shares = torch.bincount(column.flatten()).sort(descending=True).values / 4096
        weights = torch.arange(1, rows + 1, dtype=torch.float64) ** -1.05
        assert shares[0].item() == pytest.approx((weights[0] / weights.sum()).item(), rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loss_begins_near_knowing_nothing_and_falls(dtype: torch.dtype) -> None:
    built = WORKLOAD.build("tiny", "train", dtype, 0)
    batch = built.make_batch(16, None, 0)
    optimizer = make_optimizer(WORKLOAD.optimizer, built.module)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = built.compute(built.module, *batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(2), rel=0.7)
    assert losses == sorted(losses, reverse=True)
