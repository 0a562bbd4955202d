"""FLOPs op by op: every expected number is worked out by hand in the test that holds it."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tpubench.flops import attention, count, counting, disagreement
from workloads.protocol import Built
from workloads.resnet import ResNet

WORKLOAD = ResNet()


def meta(*shape: int, grad: bool = True, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, device="meta", requires_grad=grad, dtype=dtype)


def flops(run: Callable[[], Any]) -> dict[str, float]:
    """What ``run`` is counted for, by op."""
    with counting() as counter:
        run()
    return dict(counter.by_op)


def forward_and_backward(run: Callable[[], torch.Tensor]) -> tuple[float, float]:
    """The FLOPs of ``run`` and of the backward of its sum."""
    with counting() as counter:
        out = run().sum()
        forward = sum(counter.by_op.values())
        counter.in_backward = True
        out.backward()
    return forward, sum(counter.by_op.values()) - forward


# -- products ------------------------------------------------------------------------------------------
def test_a_linear_layer_is_two_flops_a_weight_a_row_and_twice_that_backward() -> None:
    layer = nn.Linear(16, 32, device="meta")
    forward, backward = forward_and_backward(lambda: layer(meta(4, 5, 16)))
    assert forward == 2 * (4 * 5) * 16 * 32
    assert backward == 2 * forward
    # Inputs that need no gradient cost one product less.
    assert forward_and_backward(lambda: layer(meta(4, 5, 16, grad=False)))[1] == forward


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda: meta(3, 4) @ meta(4, 5), 2 * 3 * 4 * 5),
        (lambda: meta(3, 4) @ meta(4), 2 * 3 * 4),
        (lambda: meta(4) @ meta(4), 2 * 4),
        (lambda: torch.bmm(meta(7, 3, 4), meta(7, 4, 5)), 7 * 2 * 3 * 4 * 5),
        (lambda: torch.baddbmm(meta(7, 3, 5), meta(7, 3, 4), meta(7, 4, 5)), 7 * 2 * 3 * 4 * 5),
        (lambda: torch.addbmm(meta(3, 5), meta(7, 3, 4), meta(7, 4, 5)), 7 * 2 * 3 * 4 * 5),
        (lambda: torch.addmm(meta(5), meta(3, 4), meta(4, 5)), 2 * 3 * 4 * 5),
        (lambda: torch.addmv(meta(3), meta(3, 4), meta(4)), 2 * 3 * 4),
        (lambda: meta(2, 7, 3, 4) @ meta(2, 7, 4, 5), 2 * 7 * 2 * 3 * 4 * 5),
        (lambda: torch.einsum("bhqd,bhkd->bhqk", meta(2, 7, 3, 4), meta(2, 7, 5, 4)), 2 * 7 * 2 * 3 * 4 * 5),
        (lambda: meta(3, 4) + meta(3, 4), 0),
    ],
)
def test_products(run: Callable[[], torch.Tensor], expected: int) -> None:
    assert sum(flops(run).values()) == expected


def test_grouped_products_count_every_row_once() -> None:
    rows = meta(24, 16, grad=False, dtype=torch.bfloat16)
    ends = torch.empty(3, dtype=torch.int32, device="meta")
    matrices = meta(3, 16, 32, grad=False, dtype=torch.bfloat16)
    assert flops(lambda: torch._grouped_mm(rows, matrices, offs=ends)) == {"_grouped_mm": 2 * 24 * 16 * 32}


def test_an_lstm_counts_its_gates() -> None:
    batch, steps, inputs, hidden = 2, 5, 16, 8
    layer = nn.LSTM(inputs, hidden, batch_first=True, device="meta")
    expected = 2 * batch * steps * 4 * hidden * (inputs + hidden)
    assert sum(flops(lambda: layer(meta(batch, steps, inputs))).values()) == expected


# -- convolutions ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layer", "inputs", "places"),
    [
        (nn.Conv2d(3, 8, 3, device="meta"), (2, 3, 10, 10), 8 * 8),
        (nn.Conv2d(3, 8, 3, padding=1, device="meta"), (2, 3, 10, 10), 10 * 10),
        (nn.Conv2d(3, 8, 7, stride=2, padding=3, device="meta"), (2, 3, 10, 10), 5 * 5),
        (nn.Conv2d(3, 8, 3, dilation=2, device="meta"), (2, 3, 10, 10), 6 * 6),
        (nn.Conv2d(8, 16, 3, groups=4, device="meta"), (2, 8, 10, 10), 8 * 8),
        (nn.Conv2d(8, 8, 3, groups=8, device="meta"), (2, 8, 10, 10), 8 * 8),
        (nn.Conv1d(3, 8, 4, device="meta"), (2, 3, 10), 7),
        (nn.Conv3d(3, 8, 2, device="meta"), (2, 3, 5, 6, 7), 4 * 5 * 6),
        (nn.ConvTranspose2d(8, 4, 2, stride=2, device="meta"), (2, 8, 5, 5), 5 * 5),
        (nn.ConvTranspose2d(8, 4, 3, groups=2, device="meta"), (2, 8, 5, 5), 5 * 5),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else None,
)
def test_every_weight_of_a_convolution_works_at_every_place(
    layer: nn.Conv2d, inputs: tuple[int, ...], places: int
) -> None:
    # For a transposed convolution the places are those of its input. Grouped weights are fewer already.
    one = 2 * inputs[0] * layer.weight.numel() * places
    assert forward_and_backward(lambda: layer(meta(*inputs))) == (one, 2 * one)
    assert forward_and_backward(lambda: layer(meta(*inputs, grad=False))) == (one, one)


def test_a_grouped_convolution_written_out() -> None:
    # 16 channels out, each of 8 / 4 channels in, 3 x 3 taps, 8 x 8 places, 2 images, 2 FLOPs each.
    layer = nn.Conv2d(8, 16, 3, groups=4, bias=False, device="meta")
    assert flops(lambda: layer(meta(2, 8, 10, 10)))["convolution"] == 2 * 2 * 16 * (8 / 4) * 9 * 64


def test_frozen_weights_leave_the_inputs_gradient_only() -> None:
    layer = nn.Conv2d(3, 8, 3, device="meta").requires_grad_(False)
    one = 2 * 2 * (8 * 3 * 9) * 64
    assert forward_and_backward(lambda: layer(meta(2, 3, 10, 10))) == (one, one)


def test_an_image_without_a_batch() -> None:
    layer = nn.Conv2d(3, 8, 3, device="meta")
    assert sum(flops(lambda: layer(meta(3, 10, 10))).values()) == 2 * (8 * 3 * 9) * 64


# -- attention ---------------------------------------------------------------------------------------------
QUERY, KEY, VALUE = (2, 4, 16, 8), (2, 4, 24, 8), (2, 4, 24, 6)
SCORES = 2 * (2 * 4) * 16 * 24 * 8  # 2 FLOPs x batch and heads x queries x keys x depth
VALUES = 2 * (2 * 4) * 16 * 24 * 6


def attend(*shapes: tuple[int, ...], device: str = "meta", **options: Any) -> torch.Tensor:
    inputs = [torch.empty(*shape, device=device, requires_grad=True) for shape in shapes]
    return functional.scaled_dot_product_attention(*inputs, **options)


def test_attention_is_two_products_forward_and_four_backward() -> None:
    assert forward_and_backward(lambda: attend(QUERY, KEY, VALUE)) == (SCORES + VALUES, 2 * (SCORES + VALUES))


def test_causal_attention_is_half_forward_and_backward() -> None:
    square = (2, 4, 16, 8)
    whole = forward_and_backward(lambda: attend(square, square, square))
    half = forward_and_backward(lambda: attend(square, square, square, is_causal=True))
    assert whole == (2 * 2 * 8 * 16 * 16 * 8, 4 * 2 * 8 * 16 * 16 * 8)
    assert half == (whole[0] / 2, whole[1] / 2)


@pytest.mark.parametrize(("queries", "keys", "seen"), [(16, 24, 128), (24, 16, 128 + 8 * 16), (1, 1, 0.5)])
def test_causal_attention_sees_keys_up_to_its_own_place(queries: int, keys: int, seen: float) -> None:
    assert attention((queries, 8), (keys, 8), (keys, 6), causal=True) == 2 * seen * (8 + 6)


def test_attention_with_a_mask_is_counted_in_full() -> None:
    run = forward_and_backward(lambda: attend(QUERY, KEY, VALUE, attn_mask=meta(16, 24, grad=False)))
    assert run == (SCORES + VALUES, 2 * (SCORES + VALUES))


def test_grouped_query_attention_counts_every_query_head() -> None:
    keys, values = (2, 2, 24, 8), (2, 2, 24, 6)
    run = forward_and_backward(lambda: attend(QUERY, keys, values, enable_gqa=True))
    assert run == (SCORES + VALUES, 2 * (SCORES + VALUES))


def test_attention_counts_only_the_gradients_that_are_asked_for() -> None:
    def run(query: bool, key: bool, value: bool) -> float:
        inputs = (meta(*QUERY, grad=query), meta(*KEY, grad=key), meta(*VALUE, grad=value))
        return forward_and_backward(lambda: functional.scaled_dot_product_attention(*inputs))[1]

    assert run(False, False, True) == VALUES
    assert run(True, False, False) == VALUES + SCORES
    assert run(True, True, False) == VALUES + 2 * SCORES


def test_attention_inside_torchs_own_layer_is_found() -> None:
    layer = nn.MultiheadAttention(16, 2, batch_first=True, device="meta")
    x = meta(2, 5, 16)
    counted = flops(lambda: layer(x, x, x, need_weights=False))
    assert counted["scaled_dot_product_attention"] == 2 * 2 * (2 * 2) * 5 * 5 * 8
    assert sum(counted.values()) - counted["scaled_dot_product_attention"] == 4 * 2 * (2 * 5) * 16 * 16


@pytest.mark.parametrize("causal", [False, True])
def test_the_cpus_flash_attention_counts_as_much(causal: bool) -> None:
    square = (2, 4, 16, 8)
    counted: list[dict[str, float]] = []
    for device in ("meta", "cpu"):
        counted.append(
            flops(lambda d=device: attend(square, square, square, device=d, is_causal=causal).sum().backward())
        )
    on_meta, on_cpu = counted
    assert set(on_cpu) == {
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    }
    assert list(on_cpu.values()) == list(on_meta.values())


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("_scaled_dot_product_flash_attention", {}),
        ("_scaled_dot_product_flash_attention_for_cpu", {}),
        ("_scaled_dot_product_efficient_attention", {"attn_bias": None, "compute_log_sumexp": True}),
        ("_scaled_dot_product_cudnn_attention", {"attn_bias": None, "compute_log_sumexp": True}),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_kernels_count_as_much(op: str, options: dict[str, Any], causal: bool) -> None:
    square = (2, 4, 16, 8)
    inputs = [meta(*square, grad=False, dtype=torch.bfloat16) for _ in range(3)]
    expected = 2 * 2 * 8 * 16 * 16 * 8 * (0.5 if causal else 1)
    kernel = getattr(torch.ops.aten, op)
    assert flops(lambda: kernel(*inputs, **options, is_causal=causal)) == {op: expected}


@pytest.mark.parametrize("causal", [False, True])
def test_the_backward_of_fused_attention_kernels(causal: bool) -> None:
    x = meta(2, 4, 16, 8, grad=False, dtype=torch.bfloat16)
    sums, seed = meta(2, 4, 16, grad=False), torch.empty((), dtype=torch.int64, device="meta")
    ops = torch.ops.aten
    calls: dict[str, Callable[[], Any]] = {
        "_scaled_dot_product_flash_attention_backward": lambda: ops._scaled_dot_product_flash_attention_backward(
            x, x, x, x, x, sums, None, None, 16, 16, 0.0, causal, seed, seed
        ),
        "_scaled_dot_product_efficient_attention_backward": (
            lambda: ops._scaled_dot_product_efficient_attention_backward(
                x, x, x, x, None, x, sums, seed, seed, 0.0, [True, True, True, False], causal
            )
        ),
        "_scaled_dot_product_cudnn_attention_backward": lambda: ops._scaled_dot_product_cudnn_attention_backward(
            x, x, x, x, x, sums, seed, seed, None, None, None, 16, 16, 0.0, causal
        ),
    }
    for name, call in calls.items():
        assert flops(call) == {name: 4 * 2 * 8 * 16 * 16 * 8 * (0.5 if causal else 1)}


# -- what surrounds the ops -----------------------------------------------------------------------------------
def test_inference_mode_hides_nothing() -> None:
    def run() -> None:
        with torch.inference_mode():
            nn.Linear(8, 4, device="meta")(meta(3, 8, grad=False))
            nn.Conv2d(4, 4, 3, device="meta")(meta(1, 4, 5, 5, grad=False))
            attend((1, 1, 4, 2), (1, 1, 4, 2), (1, 1, 4, 2), is_causal=True)

    assert sum(flops(run).values()) == 2 * 3 * 8 * 4 + 2 * (4 * 4 * 9) * 9 + 2 * 2 * 4 * 4 * 2 / 2


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_checkpointing_runs_again_is_not_counted(reentrant: bool) -> None:
    layer = nn.Linear(8, 8, device="meta")
    square = (2, 1, 4, 8)

    def block(x: torch.Tensor) -> torch.Tensor:
        y = layer(x).relu()
        return functional.scaled_dot_product_attention(y, y, y)

    x = meta(*square)
    plain = forward_and_backward(lambda: block(x))
    assert plain[1] == 2 * plain[0]
    assert forward_and_backward(lambda: checkpoint(block, x, use_reentrant=reentrant)) == plain


def test_counting_leaves_attention_as_it_was() -> None:
    square = (2, 4, 16, 8)
    with counting():
        pass
    inputs = [torch.empty(*square, device="meta") for _ in range(3)]
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as theirs:
        functional.scaled_dot_product_attention(*inputs, is_causal=True)
    # Torch takes attention apart on meta tensors again: two whole products.
    assert theirs.get_total_flops() == 2 * 2 * 8 * 16 * 16 * 8


# -- whole workloads --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", list(WORKLOAD.sizes))
@pytest.mark.parametrize("phase", WORKLOAD.phases)
def test_resnets_count_agrees_with_its_formula(size: str, phase: str) -> None:
    batch = WORKLOAD.sizes[size].batch
    built = WORKLOAD.build(size, phase, torch.float32, 0)
    counted = count(built, phase, batch, None, 0)
    assert disagreement(counted.total, WORKLOAD.flops(size, phase, batch, None)) <= 0.05
    assert counted.total == sum(counted.by_op.values())
    assert counted.parameter_bytes == 4 * sum(p.numel() for p in built.module.parameters())


def test_counting_leaves_the_module_alone() -> None:
    built = WORKLOAD.build("tiny", "train", torch.float64, 0)
    before = {k: v.clone() for k, v in built.module.state_dict().items()}
    counted = count(built, "train", 8, None, 0)
    assert all(torch.equal(v, before[k]) for k, v in built.module.state_dict().items())
    assert all(p.grad is None and p.device.type == "cpu" for p in built.module.parameters())
    assert counted.total == count(WORKLOAD.build("tiny", "train", torch.float32, 0), "train", 8, None, 0).total


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(100, 8)
            self.head = nn.Linear(8, 100, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(ids))

    seen: list[bool] = []

    def compute(module: Tied, ids: torch.Tensor) -> torch.Tensor:
        seen.append(module.head.weight is module.embed.weight)
        return module(ids).sum()

    def make_batch(
        batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
    ) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(batch, seq_len or 1, dtype=torch.int64, device=device),)

    built = Built(Tied(), make_batch, compute)
    counted = count(built, "train", 2, 5, 0)
    assert seen == [True]
    assert counted.total == 3 * 2 * (2 * 5) * 8 * 100  # a look-up multiplies nothing
    assert (counted.parameters, counted.parameter_bytes) == (100 * 8, 4 * 100 * 8)


def test_activations_are_what_backward_needs_each_storage_once() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(functional.relu(self.first(x)))

    def make_batch(
        batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
    ) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(batch, 8, device=device),)

    built = Built(Net(), make_batch, lambda module, x: module(x).square().sum())
    # relu's result serves relu's backward and the second product; the square needs what it squares.
    assert count(built, "train", 10, None, 0).activation_bytes == 4 * 10 * (32 + 4)
    assert count(built, "infer", 10, None, 0).activation_bytes == 0


def test_counting_allocates_no_activations() -> None:
    # Training ResNet-50 on 32 images keeps gigabytes for backward: its first layer's output alone has 103 MB.
    script = """
import resource, torch
from tpubench.flops import count
from workloads.resnet import ResNet
w = ResNet()
count(w.build("tiny", "train", torch.float32, 0), "train", 8, None, 0)
built = w.build("full", "train", torch.float32, 0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count(built, "train", 32, None, 0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) * (1 if sys.platform == "darwin" else 1024) < 200e6


def test_disagreement_is_a_share_of_the_formula() -> None:
    assert disagreement(105.0, 100.0) == pytest.approx(0.05)
    assert disagreement(95.0, 100.0) == pytest.approx(0.05)
    assert disagreement(0.0, 0.0) == 0.0
    assert disagreement(1.0, 0.0) == math.inf
