"""What torch.compile hands over: symbolic sizes, broken graphs, writes, tensors on the CPU."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from backend.embedded.cache import COUNTERS


@pytest.fixture(autouse=True)
def _device(pjrt):
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, backend="pjrt", **options)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_vary_train_and_every_size_is_compiled_once(dynamic):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    there = copy.deepcopy(model).to("pjrt")
    run = compiled(lambda x: (there(x).softmax(-1) * x.shape[0]).square().sum(), dynamic=dynamic)
    for count in (3, 5, 7, 9, 5, 7):
        x = torch.randn(count, 4, requires_grad=True)
        on_device = x.detach().to("pjrt").requires_grad_()
        misses, graphs = COUNTERS.misses, COUNTERS.graphs
        run(on_device).backward()
        (model(x).softmax(-1) * count).square().sum().backward()
        assert torch.allclose(on_device.grad.cpu(), x.grad, atol=1e-5)
    assert COUNTERS.graphs == graphs and COUNTERS.misses == misses


def test_outputs_may_be_sizes_and_views_of_symbolic_size():
    def outputs(x):
        return x.t() + 1, x.view(-1), x.reshape(x.shape[1], -1) * 2, x.shape[0] * 2, x.new_zeros(x.shape[0] + 1)

    run = compiled(outputs, dynamic=True)
    for count in (4, 6, 3):
        x = torch.randn(count, 2)
        for got, expected in zip(run(x.to("pjrt")), outputs(x), strict=True):
            if isinstance(expected, int):
                assert got == expected
            else:
                assert torch.equal(got.cpu(), expected) and got.stride() == expected.stride()


def _print(x):
    y = x.sin()
    print("in the middle")
    return y.cos()


def _branch(x):
    y = x.sin()
    return y * 2 if y.sum() > 0 else y - 1


def _item(x):
    return x * x.sum().item()


def _tolist(x):
    return x + max(x.tolist())


def _host(x):
    return x + torch.from_numpy(x.detach().cpu().numpy()).to(x.device)


@pytest.mark.parametrize("function", [_print, _branch, _item, _tolist, _host])
def test_a_broken_graph_gives_values_and_gradients(function):
    run = compiled(function)
    for sign in (1, -1):
        x = (torch.rand(5) * sign).requires_grad_()
        on_device = x.detach().to("pjrt").requires_grad_()
        y, expected = run(on_device), function(x)
        y.sum().backward()
        expected.sum().backward()
        assert torch.allclose(y.cpu(), expected) and torch.allclose(on_device.grad.cpu(), x.grad)


def _slice_of_input(b):
    v = b[1:3]
    v.mul_(2)
    b.t().add_(1)
    return v


def _the_input(b):
    return b.mul_(3)


def _expanded(b):
    b[:, 0].copy_(b.sum(1))
    return b.t()


@pytest.mark.parametrize("function", [_slice_of_input, _the_input, _expanded])
@pytest.mark.parametrize("take", [lambda b: b, lambda b: b.t(), lambda b: b[1:], lambda b: b.t()[1:]])
def test_writes_through_views_reach_the_input_and_outputs_alias_it(function, take):
    base = torch.arange(20.0).reshape(4, 5)
    there = base.to("pjrt")
    got, expected = compiled(function)(take(there)), function(take(base))
    got.add_(1)
    expected.add_(1)
    assert torch.equal(there.cpu(), base) and torch.equal(got.cpu(), expected)


def test_dropouts_mask_is_backwards_too():
    x = torch.ones(256, device="pjrt", requires_grad=True)
    y = compiled(lambda x: nn.functional.dropout(x, 0.5))(x)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_an_autograd_function():
    class Thrice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * x.exp() * 3

    x = torch.rand(4, device="pjrt", requires_grad=True)
    compiled(lambda x: Thrice.apply(x).sum())(x).backward()
    assert torch.allclose(x.grad.cpu(), 3 * x.detach().cpu().exp())


def test_checkpointing():
    model = nn.Linear(4, 4)
    there = copy.deepcopy(model).to("pjrt")
    x = torch.randn(3, 4)
    compiled(lambda x: checkpoint(lambda v: there(v).tanh(), x, use_reentrant=False).sum())(x.to("pjrt")).backward()
    model(x).tanh().sum().backward()
    assert torch.allclose(there.weight.grad.cpu(), model.weight.grad, atol=1e-6)


def test_inference_without_gradients():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    run = compiled(copy.deepcopy(model).to("pjrt"))
    x = torch.randn(2, 3)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = run(x.to("pjrt"))
            assert not y.requires_grad and torch.allclose(y.cpu(), model(x), atol=1e-6)


def test_compiling_twice_is_compiling_once():
    run = compiled(compiled(lambda x: x.sin() + 1))
    x = torch.rand(3)
    assert torch.allclose(run(x.to("pjrt")).cpu(), x.sin() + 1)


def test_constants_made_in_the_graph():
    def made(x):
        return x * torch.tensor([1.0, 2.0, 3.0], device=x.device) + torch.tensor(2.0) + torch.arange(3).to(x.device)

    assert compiled(made)(torch.ones(3, device="pjrt")).tolist() == [3, 5, 7]


def test_numbers_on_the_cpu_go_in_and_come_out():
    count = torch.tensor(2.0)

    def mixed(x, s):
        s.add_(1)
        return (x * s).sum().cpu(), s * 2, x.cpu()

    total, twice, x = compiled(mixed, fullgraph=True)(torch.ones(3, device="pjrt"), count)
    assert {t.device.type for t in (total, twice, x)} == {"cpu"}
    assert (total.item(), twice.item(), x.tolist(), count.item()) == (9, 6, [1, 1, 1], 3)


def test_draws_on_the_cpu_inside_a_graph_follow_its_generator():
    run = compiled(lambda x: x + torch.rand(3).to(x.device), fullgraph=True)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(run(torch.zeros(3, device="pjrt")).cpu(), expected)
