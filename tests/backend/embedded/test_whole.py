"""A whole training step as one executable."""

import copy

import pytest
import torch
from torch import nn

from backend.embedded.cache import COUNTERS
from backend.embedded.errors import EmbeddedError
from backend.embedded.whole import compile_step


@pytest.fixture(autouse=True)
def _device(pjrt):
    torch._dynamo.reset()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_launch_and_pytorchs_step(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)).double()
    there = copy.deepcopy(model).to("pjrt")
    ours, theirs = OPTIMIZERS[name](there.parameters()), OPTIMIZERS[name](model.parameters())
    x = torch.randn(6, 4).double()
    step = compile_step(lambda x: there(x).square().mean(), ours)
    on_device = x.to("pjrt")
    for i in range(5):
        launches, misses = COUNTERS.launches, COUNTERS.misses
        loss = step(on_device)
        assert COUNTERS.launches == launches + 1
        assert i < 2 or COUNTERS.misses == misses
        theirs.zero_grad()
        expected = model(x).square().mean()
        expected.backward()
        theirs.step()
        assert abs(loss.item() - expected.item()) < 1e-12
    for key, value in there.state_dict().items():
        assert torch.allclose(value.cpu(), model.state_dict()[key], rtol=0, atol=1e-9), key
    counts = [s["step"] for s in ours.state_dict()["state"].values() if "step" in s]
    assert all(c.item() == 5 for c in counts) and len({id(c) for c in counts}) == len(counts)
    assert all(p.grad is None for p in there.parameters())


def test_dropout_follows_the_seed_and_differs_from_step_to_step():
    w = torch.ones(512, device="pjrt", requires_grad=True)
    optimizer = torch.optim.SGD([w], 0.0)
    step = compile_step(lambda: nn.functional.dropout(w, 0.5).sum(), optimizer)
    torch.manual_seed(1)
    first, second = step().item(), step().item()
    torch.manual_seed(1)
    assert step().item() == first != second


def test_an_optimizer_with_hooks_is_refused():
    w = torch.ones(2, device="pjrt", requires_grad=True)
    optimizer = torch.optim.SGD([w], 0.1)
    optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(EmbeddedError, match="SGD has step hooks"):
        compile_step(lambda: w.sum(), optimizer)


def test_separate_programs_need_three_launches():
    model = nn.Linear(4, 2).to("pjrt")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    forward = torch.compile(lambda x: model(x).square().mean(), backend="pjrt", dynamic=False)
    update = torch.compile(optimizer.step, backend="pjrt", dynamic=False)
    x = torch.randn(3, 4, device="pjrt")
    for _ in range(4):
        launches = COUNTERS.launches
        optimizer.zero_grad()
        forward(x).backward()
        update()
    assert COUNTERS.launches == launches + 3
