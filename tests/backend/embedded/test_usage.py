"""What programs do beside training: optimizers, recurrent layers, derivatives of derivatives, hooks, defaults."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def _device(pjrt):
    pass


def line(device, *shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel(), dtype=torch.float64, device=device).reshape(shape)


def same(program):
    def run(device):
        torch.manual_seed(0)
        return torch.utils._pytree.tree_map(
            lambda v: v.detach().cpu() if isinstance(v, torch.Tensor) else v, program(device)
        )

    torch.testing.assert_close(run("pjrt"), run("cpu"), rtol=1e-9, atol=1e-9)


OPTIMIZERS = "SGD Adam AdamW Adagrad Adadelta Adamax ASGD NAdam RAdam RMSprop Rprop Adafactor".split()


@pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "for-loop"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_follows_the_cpu(name, foreach):
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {}

    def program(device):
        weights = [nn.Parameter(line(device, 3, 2)), nn.Parameter(line(device, 4))]
        optimizer = getattr(torch.optim, name)(weights, foreach=foreach, **options)
        for _ in range(3):
            optimizer.zero_grad()
            sum(w.sin().square().sum() for w in weights).backward()
            optimizer.step()
        return weights

    same(program)


def test_lbfgs_follows_the_cpu():
    def program(device):
        weight = nn.Parameter(line(device, 4))
        optimizer = torch.optim.LBFGS([weight], lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = weight.sin().square().sum()
            loss.backward()
            return loss

        return [optimizer.step(closure) for _ in range(2)], weight

    same(program)


def test_a_compiled_optimizer_whose_rate_changes_is_the_eager_one():
    torch._dynamo.reset()

    def run(device, compiled):
        weight = nn.Parameter(line(device, 6))
        optimizer = torch.optim.AdamW([weight], lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
        step = torch.compile(optimizer.step, backend="pjrt", dynamic=False) if compiled else optimizer.step
        for _ in range(3):
            optimizer.zero_grad()
            (weight.sin() * weight.exp()).sum().backward()
            step()
            schedule.step()
        return weight.detach().cpu(), optimizer.state[weight]["step"]

    torch.testing.assert_close(run("pjrt", True), run("cpu", False), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_and_their_gradients(layer):
    def program(device):
        net = layer(3, 4, num_layers=2, bidirectional=True, dtype=torch.float64).to(device)
        x = line(device, 5, 2, 3).requires_grad_()
        out, state = net(x)
        out.square().sum().backward()
        return out, state, x.grad, [p.grad for p in net.parameters()]

    same(program)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells(cell, bias):
    def program(device):
        net = cell(3, 4, bias=bias, dtype=torch.float64).to(device)
        x = line(device, 2, 3).requires_grad_()
        out = net(x)
        first = out[0] if isinstance(out, tuple) else out
        first.square().sum().backward()
        return first, x.grad, [p.grad for p in net.parameters()]

    same(program)


def test_weight_norm():
    def program(device):
        net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2, dtype=torch.float64)).to(device)
        net(line(device, 4, 3)).square().sum().backward()
        return [p.grad for p in net.parameters()]

    same(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda d: torch.func.grad(lambda x: x.sin().square().sum())(line(d, 4)),
        lambda d: torch.func.vmap(lambda x: x @ x.T)(line(d, 3, 4, 2)),
        lambda d: torch.func.vmap(torch.func.grad(lambda x: x.exp().sum()))(line(d, 3, 4)),
        lambda d: torch.func.jvp(lambda x: x.sin() * x, (line(d, 4),), (line(d, 4) + 1,)),
        lambda d: torch.func.jvp(lambda x: x * x, (line(d, 8)[2:6].view(2, 2),), (line(d, 2, 2),)),
        lambda d: torch.func.jacfwd(lambda x: x.sin() * x.sum())(line(d, 4)),
        lambda d: torch.func.hessian(lambda x: (x.sin() * x.sum()).sum())(line(d, 4)),
    ],
)
def test_functional_transforms(program):
    same(program)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x: x.sin() * x.exp(), [(3,)]),
        (torch.mm, [(2, 3), (3, 2)]),
        (F.conv2d, [(1, 1, 4, 4), (1, 1, 3, 3)]),
        (lambda x: F.layer_norm(x.square(), (3,)), [(2, 3)]),
    ],
)
def test_second_derivatives(function, shapes):
    inputs = [(line("pjrt", *s) + 0.3).detach().requires_grad_() for s in shapes]
    assert torch.autograd.gradgradcheck(function, inputs)


def test_hooks_run_in_order_with_values():
    def program(device):
        seen = []
        net = nn.Linear(3, 2, dtype=torch.float64).to(device)
        net.register_forward_pre_hook(lambda m, i: seen.append(i[0].sum().item()))
        net.register_forward_hook(lambda m, i, o: seen.append(o.sum().item()))
        net.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum().item()))
        net.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
        net(line(device, 2, 3).requires_grad_()).sum().backward()
        return seen

    same(program)


def test_the_device_as_default():
    torch.set_default_device("pjrt")
    try:
        net = nn.Linear(2, 2)
        data = torch.utils.data.TensorDataset(torch.randn(4, 2))
        generator = torch.Generator(device="pjrt")
        batches = list(torch.utils.data.DataLoader(data, batch_size=2, shuffle=True, generator=generator))
        assert len(batches) == 2 and net(batches[0][0]).device.type == torch.tensor(1).device.type == "pjrt"
    finally:
        torch.set_default_device(None)


def test_modules_from_meta_and_data_that_is_replaced():
    net = nn.Linear(2, 2, device="meta").to_empty(device="pjrt")
    nn.init.ones_(net.weight), nn.init.zeros_(net.bias)
    assert net(torch.ones(1, 2, device="pjrt")).tolist() == [[2, 2]]
    weight = nn.Parameter(torch.ones(2, device="pjrt"))
    before = weight.detach()
    weight.data = torch.full((3,), 2.0, device="pjrt")
    weight.square().sum().backward()
    assert weight.grad.tolist() == [4, 4, 4] and before.tolist() == [1, 1]


def test_arrays_of_the_host_are_refused_in_pytorchs_words():
    with pytest.raises(TypeError, match=r"can't convert pjrt:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        torch.ones(2, device="pjrt").numpy()
