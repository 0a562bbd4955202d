"""Autocast and gradient scaling on the device: the dtypes and values that PyTorch gives elsewhere."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from backend.embedded import autocast
from backend.embedded.autocast import UnsafeUnderAutocast


@pytest.fixture(autouse=True)
def _device(pjrt):
    torch._dynamo.reset()


def on(device, *shape, dtype=torch.float32):
    return torch.linspace(0.1, 0.9, torch.Size(shape).numel(), dtype=dtype, device=device).reshape(shape)


LOWER = {
    "mm": lambda d: torch.mm(on(d, 2, 3), on(d, 3, 2)),
    "matmul": lambda d: on(d, 2, 2, 3) @ on(d, 3, 2),
    "linear": lambda d: F.linear(on(d, 2, 3), on(d, 4, 3), on(d, 4)),
    "conv2d": lambda d: F.conv2d(on(d, 1, 2, 5, 5), on(d, 3, 2, 3, 3)),
    "conv_transpose2d": lambda d: F.conv_transpose2d(on(d, 1, 2, 5, 5), on(d, 2, 3, 3, 3)),
    "attention": lambda d: F.scaled_dot_product_attention(*[on(d, 1, 2, 4, 8)] * 3),
    "einsum": lambda d: torch.einsum("ij,jk->ik", on(d, 2, 3), on(d, 3, 2)),
    "bmm": lambda d: torch.bmm(on(d, 2, 2, 3), on(d, 2, 3, 2)),
    "addmm": lambda d: torch.addmm(on(d, 2, 2), on(d, 2, 3), on(d, 3, 2)),
}
FLOAT32 = {
    "exp": lambda d, t: on(d, 3, dtype=t).exp(),
    "log": lambda d, t: on(d, 3, dtype=t).log(),
    "pow": lambda d, t: on(d, 3, dtype=t) ** 3.5,
    "layer_norm": lambda d, t: F.layer_norm(on(d, 2, 4, dtype=t), (4,)),
    "mse_loss": lambda d, t: F.mse_loss(on(d, 3, dtype=t), on(d, 3, dtype=t) * 2),
    "cross_entropy": lambda d, t: F.cross_entropy(on(d, 2, 3, dtype=t), torch.tensor([0, 2], device=d)),
    "softmax": lambda d, t: on(d, 2, 3, dtype=t).softmax(-1),
    "sum": lambda d, t: on(d, 5, dtype=t).sum(),
    "sum_dim": lambda d, t: on(d, 2, 5, dtype=t).sum(1),
    "prod": lambda d, t: on(d, 5, dtype=t).prod(),
    "cumsum": lambda d, t: on(d, 5, dtype=t).cumsum(0),
    "norm": lambda d, t: on(d, 5, dtype=t).norm(),
}
PROMOTED = {
    "cat": lambda d, t: torch.cat([on(d, 2, dtype=t), on(d, 3)]),
    "stack": lambda d, t: torch.stack([on(d, 2, dtype=t), on(d, 2)]),
    "addcmul": lambda d, t: torch.addcmul(on(d, 2, dtype=t), on(d, 2), on(d, 2, dtype=t)),
    "dot": lambda d, t: torch.dot(on(d, 4, dtype=t), on(d, 4)),
}
LEFT = {
    "relu": lambda d, t: on(d, 3, dtype=t).relu(),
    "add": lambda d, t: on(d, 3, dtype=t) + 1,
    "max": lambda d, t: on(d, 3, dtype=t).max(),
    "mean": lambda d, t: on(d, 3, dtype=t).mean(),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", LOWER)
def test_products_run_in_the_lower_precision(name, dtype):
    with torch.autocast("cpu", dtype=dtype):
        expected = LOWER[name]("cpu")
    with torch.autocast("pjrt", dtype=dtype):
        got = LOWER[name]("pjrt")
    assert got.dtype is dtype
    torch.testing.assert_close(got.cpu().float(), expected.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", FLOAT32)
def test_what_loses_digits_runs_in_float32(name):
    expected = FLOAT32[name]("cpu", torch.bfloat16)
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        got = FLOAT32[name]("pjrt", torch.bfloat16)
    assert got.dtype is torch.float32
    torch.testing.assert_close(got.cpu(), expected.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", PROMOTED)
def test_mixed_operands_run_in_the_widest(name):
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        assert PROMOTED[name]("pjrt", torch.bfloat16).dtype is torch.float32


@pytest.mark.parametrize("name", LEFT)
def test_every_other_op_is_left_alone(name):
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        assert LEFT[name]("pjrt", torch.bfloat16).dtype is torch.bfloat16
        assert LEFT[name]("pjrt", torch.float32).dtype is torch.float32


@pytest.mark.parametrize("name", LOWER | {k: v for k, v in FLOAT32.items() if k != "cross_entropy"})
def test_float64_is_left_alone(name):
    run = LOWER.get(name) or (lambda d: FLOAT32[name](d, torch.float64))
    before = torch.get_default_dtype()
    default = on.__defaults__, on.__kwdefaults__
    on.__kwdefaults__ = {"dtype": torch.float64}
    try:
        with torch.autocast("pjrt", dtype=torch.bfloat16):
            got = run("pjrt")
        torch.testing.assert_close(got.cpu(), run("cpu"), rtol=1e-9, atol=0)
    finally:
        on.__kwdefaults__ = default[1]
    assert got.dtype is torch.float64 and before is torch.get_default_dtype()


def test_autocast_ends_and_can_be_switched_off_inside():
    x = on("pjrt", 2, 2)
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        with torch.autocast("pjrt", enabled=False):
            assert (x @ x).dtype is torch.float32
        with torch.autocast("pjrt", dtype=torch.float16):
            assert (x @ x).dtype is torch.float16
        assert (x @ x).dtype is torch.bfloat16
    assert (x @ x).dtype is torch.float32


def test_another_dtype_than_the_device_has_is_warned_of():
    with pytest.warns(UserWarning, match="bfloat16"), torch.autocast("pjrt", dtype=torch.float64):
        pass


def test_a_weight_is_cast_once_a_region_and_its_gradient_is_float32():
    weight = nn.Parameter(on("pjrt", 3, 3))
    x = on("pjrt", 3, 3)
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        loss = ((x @ weight) @ weight).sum()
        assert len(autocast._copies) == 1
        with torch.no_grad():
            weight.mul_(2)
        doubled = x @ weight
    assert len(autocast._copies) == 0
    assert doubled.float().sum() > 1.9 * (x @ (weight / 2)).sum()
    loss.backward()
    assert weight.grad.dtype is torch.float32


def test_a_weight_first_used_without_gradients_still_gets_its_gradient():
    weight = nn.Parameter(on("pjrt", 3, 3))
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        with torch.no_grad():
            on("pjrt", 3, 3) @ weight
        (on("pjrt", 3, 3) @ weight).sum().backward()
    assert weight.grad is not None


def test_an_op_that_is_unsafe_is_refused_by_name():
    with torch.autocast("pjrt", dtype=torch.bfloat16), pytest.raises(UnsafeUnderAutocast, match="with_logits"):
        F.binary_cross_entropy(on("pjrt", 3), on("pjrt", 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_inside_and_around_a_compiled_function(dtype):
    layer = nn.Linear(4, 4).to("pjrt")
    x, y = on("pjrt", 3, 4), torch.tensor([0, 1, 2], device="pjrt")

    def inside(x):
        with torch.autocast("pjrt", dtype=dtype):
            return F.cross_entropy(layer(x), y), layer(x)

    expected, product = inside(x)
    loss, got = torch.compile(inside, backend="pjrt", fullgraph=True, dynamic=False)(x)
    assert got.dtype is product.dtype is dtype and loss.dtype is expected.dtype is torch.float32
    torch.testing.assert_close(loss.cpu(), expected.cpu(), rtol=1e-2, atol=0)
    with torch.autocast("pjrt", dtype=dtype):
        assert torch.compile(layer, backend="pjrt", dynamic=False)(x).dtype is dtype


def scaled(device, steps=6, at=3):
    """A loop in which step ``at`` overflows: the scales, and the weight after each step."""
    weight = nn.Parameter(on(device, 3, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=4.0, growth_interval=2)
    seen = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = weight.square().sum() * (float("inf") if step == at else 1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_([weight], 1.0)
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), weight.detach().cpu().clone()))
    return seen, scaler.state_dict()


@pytest.mark.parametrize("mode", ["eager", "eager-blocking", "eager-fused"])
def test_the_scaler_is_pytorchs(mode, mode_of):
    expected, state = scaled("cpu")
    with mode_of(mode):
        got, got_state = scaled("pjrt")
    assert [s for s, _ in got] == [s for s, _ in expected] and got_state == state
    for (_, a), (_, b) in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


def test_gradients_in_several_dtypes_are_unscaled():
    def program(device):
        grads = [torch.tensor([2.0, 4.0], device=device), torch.tensor([8.0], dtype=torch.float64, device=device)]
        found, inverse = torch.zeros(1, device=device), torch.tensor([0.25], device=device)
        for one in grads:
            torch._amp_foreach_non_finite_check_and_unscale_([one], found, inverse)
        half = torch.tensor([float("nan")], dtype=torch.float16, device="pjrt" if device == "pjrt" else "cpu")
        before = found.clone()
        torch._amp_foreach_non_finite_check_and_unscale_([half], found, inverse)
        return [g.cpu() for g in grads], before.cpu(), found.cpu()

    torch.testing.assert_close(program("pjrt"), copy.deepcopy(program("cpu")))
