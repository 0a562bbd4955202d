"""What makes a new program and what does not, and what is counted."""

import math

import pytest
import torch

from backend.embedded import fallback
from backend.embedded.cache import COUNTERS
from backend.embedded.errors import OpNotLowered


@pytest.fixture(autouse=True)
def _device(pjrt):
    pass


@pytest.fixture
def cpu_allowed():
    fallback.allow(True)
    yield
    fallback.allow(False)


def compiled(program):
    """How many programs a call of ``program`` compiles."""
    before = COUNTERS.misses
    program()
    return COUNTERS.misses - before


def test_the_same_signature_compiles_once():
    x = torch.ones(3, 7, device="pjrt")
    assert compiled(lambda: x + x) <= 1
    before = COUNTERS.requests, COUNTERS.hits, COUNTERS.launches
    assert compiled(lambda: x + x) == 0
    assert (COUNTERS.requests, COUNTERS.hits, COUNTERS.launches) == tuple(v + 1 for v in before)


def test_another_shape_dtype_or_layout_is_another_program():
    x = torch.ones(5, 5, device="pjrt")
    x.exp()
    assert compiled(lambda: torch.ones(5, 6, device="pjrt").exp()) >= 1
    assert compiled(lambda: x.t()[1:].exp()) >= 1


def test_compile_seconds_grow_with_compiling():
    before = COUNTERS.compile_s
    torch.ones(11, 3, device="pjrt").sinh()
    assert COUNTERS.compile_s > before


@pytest.mark.parametrize(
    "program",
    [
        lambda x, v: x + v,
        lambda x, v: v - x,
        lambda x, v: torch.where(x > 0, v, x),
        lambda x, v: x * v,
        lambda x, v: x.add_(x, alpha=v),
        lambda x, v: torch.addcmul(x, x, x, value=v),
        lambda x, v: torch.clamp(x, v),
        lambda x, v: x.lerp(x * 2, v),
        lambda x, v: x > v,
        lambda x, v: torch._foreach_mul([x, x], v),
        lambda x, v: torch._foreach_add([x], [x], alpha=v),
        lambda x, v: torch._foreach_addcdiv([x], [x], [x], [v]),
        lambda x, v: torch.addmm(x, x, x, beta=v),
        lambda x, v: x.masked_fill(x > 0, v),
    ],
)
def test_a_number_that_moves_makes_no_new_program_and_is_exact(program):
    x = torch.linspace(-1, 2, 9, dtype=torch.float64).reshape(3, 3)

    def run(value, device):
        result = program(x.clone().to(device), value)
        return [r.cpu() for r in result] if isinstance(result, list | tuple) else result.cpu()

    run(0.123456789012345, "pjrt")
    values = [0.1, 3.3, -0.75, 1e-9]
    assert compiled(lambda: [run(v, "pjrt") for v in values]) == 0
    for value in values:
        torch.testing.assert_close(run(value, "pjrt"), run(value, "cpu"), rtol=1e-15, atol=1e-15)


def test_a_whole_number_that_moves_makes_no_new_program():
    x = torch.arange(5, device="pjrt")
    x * 7 + 7
    assert compiled(lambda: [x * n + n for n in (2, 3, 5)]) == 0
    assert (x * 3 + 2**40).tolist() == [3 * n + 2**40 for n in range(5)]
    assert (x.float() * 3).dtype is torch.float32


def test_numbers_that_are_equal_in_python_are_told_apart():
    x = torch.tensor([1.0, -2.0], device="pjrt")
    assert math.copysign(1, (x * 0.0)[0].item()) == 1
    assert math.copysign(1, (x * -0.0)[0].item()) == -1
    assert (x + 1).dtype is torch.float32 and (x.long() + True).dtype is torch.int64
    assert (x.long() + 1.0).dtype is torch.float32
    assert torch.full((1,), True, device="pjrt").dtype is torch.bool
    assert torch.full((1,), 1, device="pjrt").dtype is torch.int64


def test_a_nan_argument_is_found_again():
    x = torch.ones(3, device="pjrt")
    x.masked_fill(x > 0, float("nan"))
    assert compiled(lambda: x.masked_fill(x > 0, float("nan"))) == 0


def test_optimizers_compile_nothing_after_their_first_steps():
    model = torch.nn.Linear(4, 4).to("pjrt")
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
        lambda p: torch.optim.AdamW(p, lr=1e-3),
        lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
    ):
        optimizer = make(model.parameters())
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def step(optimizer=optimizer, schedule=schedule):
            optimizer.zero_grad()
            model(torch.ones(2, 4, device="pjrt")).sum().backward()
            optimizer.step()
            schedule.step()

        step(), step()
        assert compiled(lambda step=step: [step() for _ in range(3)]) == 0


def test_an_op_without_a_lowering_is_a_named_error():
    with pytest.raises(OpNotLowered, match=r"aten\.linalg_eig.*--cpu-fallback"):
        torch.linalg.eig(torch.ones(2, 2, device="pjrt"))
    assert not COUNTERS.cpu_fallbacks


def test_the_same_error_comes_out_of_backward():
    x = torch.rand(3, 3, device="pjrt", requires_grad=True)

    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v.clone()

        @staticmethod
        def backward(ctx, grad):
            return torch.linalg.eig(grad)[0].real

    with pytest.raises(OpNotLowered):
        Refusing.apply(x).sum().backward()


def test_a_fallback_that_is_allowed_is_counted(cpu_allowed):
    x = torch.tensor([[2.0, 0.0], [0.0, 3.0]], device="pjrt")
    values = torch.linalg.eigvals(x)
    assert values.device.type == "pjrt" and sorted(values.real.tolist()) == [2.0, 3.0]
    counted = {name: n for name, n in COUNTERS.cpu_fallbacks.items() if "eig" in name}
    COUNTERS.cpu_fallbacks.clear()
    assert sum(counted.values()) == 1


def test_an_allowed_fallback_writes_in_place(cpu_allowed):
    x = torch.zeros(4, device="pjrt")
    x[:3].copy_(torch.tensor([3.0, 1.0, 2.0]))
    out = torch.empty(0, device="pjrt")
    torch.linalg.inv_ex(torch.eye(2, device="pjrt") * 2, out=(out, torch.empty(0, dtype=torch.int32, device="pjrt")))
    COUNTERS.cpu_fallbacks.clear()
    assert out.tolist() == [[0.5, 0.0], [0.0, 0.5]]


def test_dead_tensors_give_their_memory_back():
    import jax

    def arrays():
        return sum(a.nbytes for a in jax.live_arrays() if a.nbytes >= 4_000_000)

    torch.pjrt.synchronize()
    before = arrays()
    x = torch.ones(1000, 1000, device="pjrt")
    for _ in range(20):
        x = x + 1
    torch.pjrt.synchronize()
    assert arrays() - before <= 2 * 4_000_000
