"""The micro workloads: their shapes, operands, results, and the bytes that they say they move."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from workloads.protocol import Moving, Shaped, Workload
from workloads.registry import load

MICRO = ("attention", "conv", "dispatch", "elementwise", "embedding", "hbm-copy", "layernorm", "matmul", "softmax")


def run(workload: Workload, size: str, batch: int = 1, dtype: torch.dtype = torch.float64):
    built = workload.build(size, "infer", dtype, 0)
    operands = built.make_batch(batch, None, 0)
    return operands, built.compute(built.module, *operands)


@pytest.mark.parametrize("name", MICRO)
def test_a_micro_workload_takes_named_and_written_shapes(name: str) -> None:
    workload = load(name)
    assert isinstance(workload, Shaped) and isinstance(workload, Moving)
    written = workload.sizes["tiny"].summary
    assert workload.shaped(written).summary == written
    for size in ("tiny", written):
        _, out = run(workload, size, batch=3)
        assert out.dtype == torch.float64 and out.isfinite().all()
    for phase in workload.phases:
        assert workload.flops("tiny", phase, 3, None) == workload.flops(written, phase, 3, None)
        assert workload.items("tiny", phase, 3, None) == workload.items(written, phase, 3, None) >= 1


@pytest.mark.parametrize("name", MICRO)
@pytest.mark.parametrize("text", ["", "x", "0", "1x", "-1", "axb", "1.5", "1x2x3x4x5", "9" * 30, "²", "8 x8"])
def test_what_is_no_shape_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="whole numbers"):
        load(name).shaped(text)  # type: ignore[attr-defined]


def test_an_even_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        load("conv").shaped("4x8x8x2")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [n for n in MICRO if n != "embedding"])
def test_every_operand_and_the_result_move_once(name: str) -> None:
    workload = load(name)
    operands, out = run(workload, "tiny", batch=3, dtype=torch.float32)
    moved = sum(x.numel() * x.element_size() for x in (*operands, out))
    assert workload.bytes_moved("tiny", "infer", 3, None, 4) == moved  # type: ignore[attr-defined]
    assert workload.bytes_moved("tiny", "infer", 3, None, 2) == moved / 2  # type: ignore[attr-defined]


def test_a_lookup_moves_the_rows_looked_up_and_not_the_table() -> None:
    workload = load("embedding")
    (indices, table), out = run(workload, "1000x16x32", batch=2, dtype=torch.float32)
    assert indices.shape == (2, 32) and table.shape == (1000, 16) and out.shape == (2, 32, 16)
    moved = indices.numel() * 8 + 2 * out.numel() * 4
    assert workload.bytes_moved("1000x16x32", "infer", 2, None, 4) == moved  # type: ignore[attr-defined]


def test_results_are_the_ops() -> None:
    (a, b), out = run(load("matmul"), "3x4x5", batch=2)
    torch.testing.assert_close(out, torch.einsum("nmk,kj->nmj", a, b))
    (q, k, v), out = run(load("attention"), "2x5x4")
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    torch.testing.assert_close(out, scores.softmax(-1) @ v)
    (x, weight), out = run(load("conv"), "3x6x4x3", batch=2)
    assert out.shape == (2, 4, 6, 6)
    torch.testing.assert_close(out[0, 1, 2, 2], (x[0, :, 1:4, 1:4] * weight[1]).sum())
    (x, y), out = run(load("elementwise"), "3x4")
    torch.testing.assert_close(out, x * 0.5 * (1 + torch.erf(x / math.sqrt(2))) * y + x)
    (x,), out = run(load("softmax"), "3x4")
    torch.testing.assert_close(out.sum(-1), torch.ones(1, 3, dtype=torch.float64))
    (x, weight, bias), out = run(load("layernorm"), "3x4")
    normal = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(out, normal * weight + bias)
    (indices, table), out = run(load("embedding"), "9x4x7")
    torch.testing.assert_close(out, functional.one_hot(indices, 9).double() @ table)
    (x,), out = run(load("dispatch"), "13", batch=2)
    torch.testing.assert_close(out, x + 13)


def test_a_copy_is_other_memory() -> None:
    (x,), out = run(load("hbm-copy"), "64")
    assert torch.equal(x, out) and x.data_ptr() != out.data_ptr()


def test_dispatch_counts_its_ops() -> None:
    assert load("dispatch").items("37", "infer", 1, None) == 37
