"""Unmodified training loops: losses and parameters follow the CPU's, in float64, eager and compiled."""

import copy

import pytest
import torch
from torch.nn import functional as F

from backend.embedded.cache import COUNTERS
from tests.backend.embedded.nets import Attention, Conv


@pytest.fixture(autouse=True)
def _device(pjrt):
    torch._dynamo.reset()


def loss_of(module, x, y):
    return F.cross_entropy(module(x), y)


SGD = lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4)  # noqa: E731
ADAMW = lambda p: torch.optim.AdamW(p, lr=1e-3)  # noqa: E731

IMAGES = lambda: torch.randn(4, 3, 16, 16, dtype=torch.float64)  # noqa: E731
TOKENS = lambda: torch.randint(11, (4, 6))  # noqa: E731


def train(module, x, y, make, device, compiled=False, steps=5):
    module = copy.deepcopy(module).to(device)
    x, y = x.to(device), y.to(device)
    optimizer = make(module.parameters())
    compute, update = loss_of, optimizer.step
    if compiled:
        compute = torch.compile(loss_of, backend="pjrt", fullgraph=True, dynamic=False)
        update = torch.compile(optimizer.step, backend="pjrt", dynamic=False)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = compute(module, x, y)
        loss.backward()
        update()
        losses.append(loss.item())
    return losses, {k: v.cpu() for k, v in module.state_dict().items()}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compile"])
@pytest.mark.parametrize(
    ("make_module", "make_input", "make_optimizer"),
    [(Conv, IMAGES, SGD), (Attention, TOKENS, SGD), (Conv, IMAGES, ADAMW)],
    ids=["conv-sgd", "attention-sgd", "conv-adamw"],
)
def test_training_follows_the_cpu(make_module, make_input, make_optimizer, compiled):
    torch.manual_seed(0)
    module, x, y = make_module().double(), make_input(), torch.randint(5, (4,))
    losses, state = train(module, x, y, make_optimizer, "cpu")
    got, got_state = train(module, x, y, make_optimizer, "pjrt", compiled)
    torch.testing.assert_close(got, losses, rtol=1e-9, atol=0)
    torch.testing.assert_close(got_state, state, rtol=1e-9, atol=1e-9)


def test_a_compiled_step_is_few_launches():
    torch.manual_seed(0)
    module, x, y = Conv().to("pjrt"), IMAGES().float().to("pjrt"), torch.randint(5, (4,)).to("pjrt")
    optimizer = SGD(module.parameters())
    compute = torch.compile(loss_of, backend="pjrt", fullgraph=True, dynamic=False)
    update = torch.compile(optimizer.step, backend="pjrt", dynamic=False)

    def step():
        optimizer.zero_grad()
        compute(module, x, y).backward()
        update()

    step(), step(), step()
    before = COUNTERS.launches, COUNTERS.misses
    step()
    assert COUNTERS.launches - before[0] <= 4
    assert COUNTERS.misses == before[1]


def test_evaluation_leaves_the_statistics_alone():
    torch.manual_seed(0)
    module, x = Conv().double().eval(), IMAGES()
    there = copy.deepcopy(module).to("pjrt")
    with torch.no_grad():
        torch.testing.assert_close(there(x.to("pjrt")).cpu(), module(x), rtol=1e-12, atol=1e-12)
        again = torch.compile(there, backend="pjrt")(x.to("pjrt")).cpu()
    torch.testing.assert_close(again, module(x), rtol=1e-12, atol=1e-12)
    assert there.n.num_batches_tracked.item() == 0


def test_gradients_accumulate():
    torch.manual_seed(0)
    module, x, y = Conv().double(), IMAGES(), torch.randint(5, (4,))
    grads = []
    for device in ("cpu", "pjrt"):
        m = copy.deepcopy(module).to(device)
        for half in (slice(0, 2), slice(2, 4)):
            (loss_of(m, x[half].to(device), y[half].to(device)) / 2).backward()
        total = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        grads.append((total.cpu(), [p.grad.cpu() for p in m.parameters()]))
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-9, atol=1e-12)


def test_bfloat16_trains():
    torch.manual_seed(0)
    module, x, y = Conv(), IMAGES().float(), torch.randint(5, (4,))
    reference, _ = train(module, x, y, SGD, "cpu", steps=1)
    losses, state = train(module.bfloat16(), x.bfloat16(), y, SGD, "pjrt", steps=3)
    assert state["a.weight"].dtype is torch.bfloat16
    assert abs(losses[0] - reference[0]) < 0.02 * reference[0] and losses[-1] < losses[0]
