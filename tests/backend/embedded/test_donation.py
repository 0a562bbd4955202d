"""Memory that a compiled graph takes over: what the user still holds stays right."""

import copy

import pytest
import torch
from torch import nn

from backend.embedded.buffer import buffer_of
from backend.embedded.whole import compile_step


@pytest.fixture(autouse=True)
def _device(pjrt):
    torch._dynamo.reset()


def compiled(function):
    return torch.compile(function, backend="pjrt", dynamic=False)


def _increment(x):
    x.add_(1)


def increment(x):
    compiled(_increment)(x)


def address(x):
    return buffer_of(x).array.unsafe_buffer_pointer()


def test_a_written_input_keeps_its_memory():
    x = torch.zeros(1 << 16, device="pjrt")
    increment(x)
    before, old = address(x), buffer_of(x).array
    del old
    increment(x)
    assert address(x) == before and x[0].item() == 2


# What a user may hold of a tensor, and whether it sees what is written later, as PyTorch has it.
HOLDS = {
    "view": (lambda x: x.view(2, 4), True),
    "detach": (lambda x: x.detach(), True),
    "data": (lambda x: x.data, True),
    "slice": (lambda x: x[2:], True),
    "alias": (torch.ops.aten.alias.default, True),
    "clone": (lambda x: x.clone(), False),
    "sum of it and nothing": (lambda x: x + 0, False),
    "contiguous": (lambda x: x.contiguous(), True),
    "to the same device": (lambda x: x.to("pjrt"), True),
    "copy": (lambda x: torch.empty_like(x).copy_(x), False),
    "deepcopy": (copy.deepcopy, False),
    "on the CPU": (lambda x: x.cpu(), False),
    "numpy": (lambda x: torch.from_numpy(x.cpu().numpy()), False),
}


@pytest.mark.parametrize("name", HOLDS)
def test_what_the_user_holds_reads_as_in_pytorch(name):
    take, sees = HOLDS[name]
    x = torch.arange(8.0, device="pjrt")
    held = take(x)
    before = held.cpu().clone()
    increment(x)
    increment(x)
    assert torch.equal(held.cpu(), before + 2 if sees else before)
    assert torch.equal(x.cpu(), torch.arange(8.0) + 2)


def test_an_array_held_beside_the_tensor_survives():
    x = torch.arange(8.0, device="pjrt")
    array = buffer_of(x).array
    increment(x)
    assert not array.is_deleted() and array[3] == 3 and x[3].item() == 4


def test_numbers_that_are_kept_survive():
    for _ in range(3):
        x = torch.full((), 5.0, device="pjrt")
        increment(x)
        assert x.item() == 6
    assert torch.full((), 5.0, device="pjrt").item() == 5


def test_the_same_tensor_twice():
    @compiled
    def both(x, y):
        x.mul_(2)
        return x + y

    x = torch.ones(4, device="pjrt")
    assert both(x, x).tolist() == [4] * 4 and x.tolist() == [2] * 4
    assert both(x, x[:]).tolist() == [8] * 4 and x.tolist() == [4] * 4


def test_a_launch_in_flight_reads_the_old_values():
    x = torch.ones(256, 256, device="pjrt")
    products = [x @ x]
    for _ in range(4):
        increment(x)
        products.append(x @ x)
    assert [p[0, 0].item() for p in products] == [256.0 * (i + 1) ** 2 for i in range(5)]


def test_backward_twice_over_kept_activations():
    w = torch.ones(4, device="pjrt", requires_grad=True)
    loss = compiled(lambda w: (w.sin() * w).sum())(w)
    loss.backward(retain_graph=True)
    first = w.grad.clone()
    loss.backward()
    assert torch.equal(w.grad.cpu(), 2 * first.cpu())


def test_a_state_dict_taken_between_steps_follows_the_parameters_and_its_copy_does_not():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to("pjrt")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step = compile_step(lambda x: model(x).square().mean(), optimizer)
    x = torch.randn(8, 4, device="pjrt")
    step(x)
    live, kept = model.state_dict(), copy.deepcopy(model.state_dict())
    momentum = copy.deepcopy(optimizer.state_dict())
    frozen = {k: v.cpu() for k, v in kept.items()}
    velocity = [s["momentum_buffer"].cpu() for s in momentum["state"].values()]
    for _ in range(3):
        step(x)
    assert all(torch.equal(kept[k].cpu(), v) for k, v in frozen.items())
    assert all(torch.equal(live[k].cpu(), v.cpu()) for k, v in model.state_dict().items())
    assert any(not torch.equal(live[k].cpu(), v) for k, v in frozen.items())
    again = [s["momentum_buffer"].cpu() for s in momentum["state"].values()]
    assert all(torch.equal(a, b) for a, b in zip(again, velocity, strict=True))
