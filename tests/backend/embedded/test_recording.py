"""Eager-fused mode: ops wait, and are launched together when a value is asked for."""

import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from backend.embedded.buffer import Pending, buffer_of, synchronize
from backend.embedded.cache import COUNTERS
from backend.embedded.mode import MODE, set_mode


@pytest.fixture(autouse=True)
def _fused(mode_of):
    with mode_of("eager-fused"):
        yield


class Launches:
    """Launches and compiles since it was made."""

    def __init__(self):
        self.launches, self.misses = COUNTERS.launches, COUNTERS.misses

    @property
    def since(self):
        return COUNTERS.launches - self.launches, COUNTERS.misses - self.misses


def pair():
    return torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3).to("pjrt")


def test_ops_wait_until_a_value_is_read():
    host, x = pair()
    count = Launches()
    y = (x + 1).t() @ x
    y.mul_(2)
    z = y[0].sum()
    assert count.since == (0, 0)
    assert z.item() == (((host + 1).t() @ host) * 2)[0].sum().item()
    assert count.since[0] == 1
    assert torch.equal(y.cpu(), ((host + 1).t() @ host) * 2)
    assert count.since[0] == 1, "a value that is held is an output of the same launch"


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.cpu(),
        lambda x: x.tolist(),
        lambda x: x.item(),
        lambda x: bool(x),
        lambda x: repr(x),
        lambda x: x.to("cpu", torch.float64),
        lambda x: torch.empty(()).copy_(x),
        lambda x: torch.equal(x, x.clone()),
        lambda x: x.nonzero(),
        lambda x: synchronize(),
        lambda x: torch.get_device_module("pjrt").synchronize(),
        lambda x: torch.save(x, __import__("io").BytesIO()),
    ],
)
def test_every_way_of_asking_for_a_value_launches(read):
    x = torch.ones((), device="pjrt") + 1
    assert buffer_of(x).value.__class__ is Pending and buffer_of(x).value.array is None
    read(x)
    assert len(MODE.recording) == 0
    assert x.item() == 2


def test_what_nobody_holds_is_not_computed():
    _, x = pair()
    count = Launches()
    for _ in range(5):
        x + 1
    gc.collect()
    synchronize()
    assert count.since[0] == 0


def test_the_same_structure_is_the_same_executable_whatever_the_numbers():
    _, x = pair()
    count = Launches()
    for step in range(2, 9):
        got = (x * (step / 10) + step).sum().item()
        # Equal numbers and different ones have the same structure.
        got += (x * 0.5 + (0.5 * step + 0.25)).sum().item()
        assert got == pytest.approx(15 * step / 10 + 6 * step + 9 + 3 * step)
    assert count.since == (14, 2), "with a whole number and without"


def test_a_limit_on_length_launches(mode_of):
    set_mode("eager-fused", limit=10)
    host, x = pair()
    count = Launches()
    for _ in range(25):
        x.add_(1)
    assert count.since[0] == 2
    assert torch.equal(x.cpu(), host + 25)


def test_views_and_aliases_see_writes_across_launches():
    host, x = pair()
    views = [(t, t.t(), t[1], t.reshape(-1)[2:]) for t in (host, x)]
    for t, turned, row, tail in views:
        row.mul_(3)
        if t is x:
            tail.sum().item()
        tail.add_(turned[0, 1].clone())
        t[0] = 7
    for a, b in zip(*views, strict=True):
        assert torch.equal(a, b.cpu())


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW], ids=["sgd", "adamw"])
def test_a_training_step_is_one_launch_and_compiles_no_more(make):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Flatten(), nn.Linear(144, 5)).double()
    x, y = torch.randn(4, 3, 8, 8, dtype=torch.float64), torch.randint(5, (4,))
    losses = {}
    for device in ("cpu", "pjrt"):
        torch.manual_seed(1)
        here = __import__("copy").deepcopy(net).to(device)
        xs, ys = x.to(device), y.to(device)
        optimizer = make(here.parameters(), lr=0.01)
        losses[device] = []
        for step in range(6):
            count = Launches()
            optimizer.zero_grad()
            loss = F.cross_entropy(here(xs), ys)
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
            if device == "pjrt" and step > 2:
                assert count.since == (1, 0)
    assert losses["pjrt"] == pytest.approx(losses["cpu"], rel=1e-9)


def test_a_loop_without_reads_is_cut_at_the_optimizer():
    net = nn.Linear(3, 2).to("pjrt")
    x = torch.ones(4, 3, device="pjrt")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    counts = []
    for _ in range(5):
        count = Launches()
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        counts.append(count.since)
    assert counts[2:] == [(1, 0)] * 3


def test_memory_that_nothing_else_holds_is_given_to_the_outputs():
    x = torch.zeros(64, 64, device="pjrt")
    synchronize()
    before = buffer_of(x).array
    kept = torch.ones(64, 64, device="pjrt") * 3
    alias = buffer_of(kept).array
    x.add_(1)
    kept.add_(1)
    synchronize()
    assert not before.is_deleted() and not alias.is_deleted(), "somebody holds these"
    del before
    x.add_(1)
    recorded = MODE.recording._arrays
    assert len(recorded) == 1
    reference = recorded[0].unsafe_buffer_pointer()
    del recorded
    assert (x.cpu() == 2).all() and torch.equal(kept.cpu(), torch.full((64, 64), 4.0))
    assert buffer_of(x).array.unsafe_buffer_pointer() == reference
    assert (alias == 3).all()


def test_what_one_mode_leaves_the_next_takes_up():
    _, x = pair()
    y = x + 1
    for mode in ("eager", "eager-blocking", "eager-fused", "eager"):
        set_mode(mode)
        y = y + x
        y = y * 1.5 + x.sum()
        y.add_(x)
    host, _ = pair()
    z = host + 1
    for _ in range(4):
        z = (z + host) * 1.5 + host.sum() + host
    assert torch.equal(y.cpu(), z)


def test_draws_are_those_of_eager_mode():
    draws = {}
    for mode in ("eager", "eager-fused"):
        set_mode(mode)
        torch.manual_seed(3)
        drawn = [
            torch.rand(4, device="pjrt"),
            torch.randn(2, 2, device="pjrt"),
            F.dropout(torch.ones(9).to("pjrt")),
        ]
        draws[mode] = [d.cpu() for d in drawn]
    assert all(torch.equal(a, b) for a, b in zip(*draws.values(), strict=True))


def test_a_refused_op_is_refused_where_it_is_called():
    _, x = pair()
    with pytest.raises(RuntimeError, match="same reduction dim"):
        x @ x
    assert (x + 1).sum().item() == 21
