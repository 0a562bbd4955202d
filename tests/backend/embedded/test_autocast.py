"""Autocast and gradient scaling on the device: the dtypes and values that PyTorch gives elsewhere."""

import copy
import functools

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


def make(device, dtype=torch.float32):
    return functools.partial(on, device, dtype=dtype)


LOWER = {
    "mm": lambda o: torch.mm(o(2, 3), o(3, 2)),
    "matmul": lambda o: o(2, 2, 3) @ o(3, 2),
    "linear": lambda o: F.linear(o(2, 3), o(4, 3), o(4)),
    "conv2d": lambda o: F.conv2d(o(1, 2, 5, 5), o(3, 2, 3, 3)),
    "conv_transpose2d": lambda o: F.conv_transpose2d(o(1, 2, 5, 5), o(2, 3, 3, 3)),
    "attention": lambda o: F.scaled_dot_product_attention(*[o(1, 2, 4, 8)] * 3),
    "einsum": lambda o: torch.einsum("ij,jk->ik", o(2, 3), o(3, 2)),
    "bmm": lambda o: torch.bmm(o(2, 2, 3), o(2, 3, 2)),
    "addmm": lambda o: torch.addmm(o(2, 2), o(2, 3), o(3, 2)),
}
FLOAT32 = {
    "exp": lambda o: o(3).exp(),
    "log": lambda o: o(3).log(),
    "pow": lambda o: o(3) ** 3.5,
    "layer_norm": lambda o: F.layer_norm(o(2, 4), (4,)),
    "mse_loss": lambda o: F.mse_loss(o(3), o(3) * 2),
    "cross_entropy": lambda o: F.cross_entropy(o(2, 3), torch.tensor([0, 2], device=o.args[0])),
    "softmax": lambda o: o(2, 3).softmax(-1),
    "sum": lambda o: o(5).sum(),
    "sum_dim": lambda o: o(2, 5).sum(1),
    "prod": lambda o: o(5).prod(),
    "cumsum": lambda o: o(5).cumsum(0),
    "norm": lambda o: o(5).norm(),
}
PROMOTED = {
    "cat": lambda d, t: torch.cat([on(d, 2, dtype=t), on(d, 3)]),
    "stack": lambda d, t: torch.stack([on(d, 2, dtype=t), on(d, 2)]),
    "addcmul": lambda d, t: torch.addcmul(on(d, 2, dtype=t), on(d, 2), on(d, 2, dtype=t)),
    "dot": lambda d, t: torch.dot(on(d, 4, dtype=t), on(d, 4)),
}
LEFT = {
    "relu": lambda o: o(3).relu(),
    "add": lambda o: o(3) + 1,
    "max": lambda o: o(3).max(),
    "mean": lambda o: o(3).mean(),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", LOWER)
def test_products_run_in_the_lower_precision(name, dtype):
    with torch.autocast("cpu", dtype=dtype):
        expected = LOWER[name](make("cpu"))
    with torch.autocast("pjrt", dtype=dtype):
        got = LOWER[name](make("pjrt"))
    assert got.dtype is dtype
    torch.testing.assert_close(got.cpu().float(), expected.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", FLOAT32)
def test_what_loses_digits_runs_in_float32(name):
    expected = FLOAT32[name](make("cpu", torch.bfloat16))
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        got = FLOAT32[name](make("pjrt", torch.bfloat16))
    assert got.dtype is torch.float32
    torch.testing.assert_close(got.cpu(), expected.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", PROMOTED)
def test_mixed_operands_run_in_the_widest(name):
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        assert PROMOTED[name]("pjrt", torch.bfloat16).dtype is torch.float32


@pytest.mark.parametrize("name", LEFT)
def test_every_other_op_is_left_alone(name):
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        assert LEFT[name](make("pjrt", torch.bfloat16)).dtype is torch.bfloat16
        assert LEFT[name](make("pjrt")).dtype is torch.float32


@pytest.mark.parametrize("name", LOWER | FLOAT32)
def test_float64_is_left_alone(name):
    run = (LOWER | FLOAT32)[name]
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        got = run(make("pjrt", torch.float64))
    assert got.dtype is torch.float64
    torch.testing.assert_close(got.cpu(), run(make("cpu", torch.float64)), rtol=1e-9, atol=0)


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
