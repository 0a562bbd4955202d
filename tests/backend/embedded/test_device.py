"""The torch device: what a tensor on it does is what a tensor on the CPU does."""

import copy
import io
import subprocess
import sys

import pytest
import torch

from backend.embedded.errors import DtypeNotSupported, EmbeddedError

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _device(pjrt):
    pass


def both(program):
    """``program(device)`` on the CPU and on the device, as (CPU result, device result brought back)."""
    return program("cpu"), torch.utils._pytree.tree_map(
        lambda v: v.cpu() if isinstance(v, torch.Tensor) else v, program("pjrt")
    )


def same(program):
    expected, got = both(program)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_survive_the_way_there_and_back(dtype):
    values = torch.tensor([0, 1, 2, 250]).to(dtype).reshape(2, 2)
    there = values.to("pjrt")
    assert there.dtype is dtype and there.device == torch.device("pjrt", 0)
    assert torch.equal(there.cpu(), values)


def test_large_integers_and_doubles_are_not_narrowed():
    same(lambda d: torch.tensor([2**62 + 1, -(2**63)], device=d) + 1)
    same(lambda d: torch.tensor([1.0 + 2**-50], dtype=torch.float64, device=d) * 3)


def test_a_dtype_that_cannot_be_held_is_refused_by_name():
    with pytest.raises(DtypeNotSupported, match="float8_e4m3fn"):
        torch.empty(3, dtype=torch.float8_e4m3fn, device="pjrt")


def test_the_host_copy_is_a_copy():
    source = torch.ones(4)
    there = source.to("pjrt")
    source.add_(1)
    back = there.cpu()
    back.add_(5)
    assert there.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "program",
    [
        lambda d: torch.zeros(2, 3, device=d),
        lambda d: torch.ones(3, dtype=torch.int64, device=d),
        lambda d: torch.full((2,), 7.5, device=d),
        lambda d: torch.arange(2, 11, 3, device=d),
        lambda d: torch.arange(0.0, 1.0, 0.25, device=d),
        lambda d: torch.linspace(0, 1, 5, device=d),
        lambda d: torch.eye(3, device=d),
        lambda d: torch.tensor(3, device=d),
        lambda d: torch.zeros(0, 3, device=d),
        lambda d: torch.zeros_like(torch.ones(2, 2, device=d)),
        lambda d: torch.ones(2, 2, device=d).new_full((3,), 2.0),
    ],
)
def test_factories(program):
    same(program)


def through(view):
    """Read and written through ``view``: the base sees the write, the view sees the base's."""

    def program(device):
        base = torch.arange(24.0, device=device).reshape(2, 3, 4)
        seen = view(base)
        before = seen.clone()
        seen.mul_(2)
        base.add_(100)
        return before, base, seen.clone(), seen.shape, seen.stride()

    return program


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(6, 4),
        lambda x: x.view(-1)[3:17:2],
        lambda x: x.t() if x.ndim == 2 else x.transpose(0, 2),
        lambda x: x.permute(2, 0, 1)[1:3],
        lambda x: x[1],
        lambda x: x[:, 1:, ::2],
        lambda x: x[..., -1],
        lambda x: x.squeeze(0).unsqueeze(1),
        lambda x: x.as_strided((2, 2), (12, 5), 1),
        lambda x: x.unfold(2, 2, 2)[:, :, 0],
        lambda x: x.diagonal(dim1=1, dim2=2),
        lambda x: x.flatten(1).unbind(0)[1],
        lambda x: x.split(2, dim=1)[0],
        lambda x: x.narrow(2, 1, 2).movedim(0, 2),
        lambda x: x.real,
        lambda x: x.detach(),
    ],
)
def test_views_alias_their_base(view):
    same(through(view))


def test_a_view_of_another_dtype_aliases_too():
    def program(device):
        x = torch.tensor([1.0, -2.0], device=device)
        bits = x.view(torch.int32)
        before = bits.clone()
        bits[0] = 0x40400000
        return before, x, x.view(torch.uint8).clone()

    same(program)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__setitem__((1, slice(None, None, 2)), 5.0),
        lambda x: x.__setitem__(slice(1, 3), torch.tensor(2.0)),
        lambda x: x.t().__setitem__(0, torch.arange(4.0, device=x.device)),
        lambda x: x.__setitem__(x > 6, -1.0),
        lambda x: x.__setitem__((torch.tensor([0, 2], device=x.device), 1), 9.0),
        lambda x: x.fill_(3),
        lambda x: x[1:].zero_(),
        lambda x: x.diagonal().fill_(0),
        lambda x: x.copy_(torch.arange(3.0, device=x.device)),
        lambda x: x.t().copy_(torch.ones(3, 4)),
        lambda x: x.add_(x.t()[:1, 1:4].t().expand(3, 3)[:1] * 2, alpha=3),
        lambda x: x.clamp_(2, 7),
        lambda x: x.masked_fill_(x < 4, float("inf")),
        lambda x: x.data.mul_(2),
        lambda x: torch.add(x, 1, out=x),
        lambda x: torch.mul(x[0], 2, out=x[3]),
        lambda x: x.index_add_(0, torch.tensor([0, 0], device=x.device), torch.ones(2, 3, device=x.device)),
        lambda x: x.scatter_(1, torch.tensor([[0], [2]], device=x.device), 8.0),
        lambda x: torch._foreach_mul_([x[0], x[2]], 3.0),
        lambda x: torch._foreach_add_([x, x.clone()], [x.clone(), x.clone()], alpha=0.5),
    ],
)
def test_writes_in_place(write):
    def program(device):
        x = torch.arange(12.0, device=device).reshape(4, 3)
        write(x)
        return x

    same(program)


def test_out_is_made_to_fit():
    def program(device):
        out = torch.empty(0, device=device)
        torch.add(torch.ones(2, 2, device=device), 1, out=out)
        return out

    same(program)


def test_masks_choose():
    same(lambda d: torch.arange(6, device=d)[torch.tensor([1, 0, 1, 0, 0, 1], dtype=torch.bool, device=d)])
    same(lambda d: torch.nonzero(torch.tensor([[0, 3], [4, 0]], device=d)))
    same(lambda d: torch.masked_select(torch.arange(4.0, device=d), torch.arange(4.0, device=d) > 1))


def test_strides_of_results_are_pytorchs():
    def program(device):
        x = torch.ones(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last)
        y = x + 1
        z = torch.ones(3, 2, device=device).t() * 2
        return x.stride(), y.stride(), z.stride(), y, torch.empty_like(z).stride(), x.contiguous().stride()

    same(program)


def test_type_promotion_is_pytorchs():
    def program(device):
        i = torch.tensor([1, 2, 3], dtype=torch.int32, device=device)
        h = torch.ones(3, dtype=torch.bfloat16, device=device)
        zero_d = torch.tensor(2.5, dtype=torch.float64, device=device)
        return i + 1, i + 1.5, i / 2, i * h, h + zero_d, i > 1.5, i // 2, i**2, h * 3, i + True, 2 - i, i % 2

    same(program)


def test_autograd_records_and_replays():
    def program(device):
        x = torch.arange(1.0, 5.0, dtype=torch.float64, device=device, requires_grad=True)
        y = (x.exp() * x.view(2, 2).t().reshape(4)).sum() + x[1:].prod()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x)
        return y.detach(), first.detach(), second

    expected, got = both(program)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


def test_conjugation_and_negation_that_are_only_noted():
    def program(device):
        z = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128, device=device)
        noted = z.conj()
        both_noted = noted.imag
        view = torch.view_as_real(noted.resolve_conj())
        z[0] = 5 + 6j
        product = torch.dot(noted, z), noted[None] @ z[:, None], torch.conj_physical(noted)
        return noted.clone(), noted * 2, both_noted.clone(), both_noted + 1, view, product

    same(program)


def test_hooks_and_checkpointing():
    def program(device):
        seen = []
        layer = torch.nn.Linear(3, 3, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.arange(9.0).reshape(3, 3) / 9)
            layer.bias.zero_()
        layer = layer.to(device)
        layer.weight.register_hook(lambda g: seen.append(tuple(g.shape)) or g * 2)
        x = torch.ones(2, 3, dtype=torch.float64, device=device, requires_grad=True)
        torch.utils.checkpoint.checkpoint(lambda v: layer(v).tanh(), x, use_reentrant=False).sum().backward()
        return seen, x.grad, layer.weight.grad

    expected, got = both(program)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_a_changed_tensor_saved_for_backward_is_an_error():
    x = torch.ones(3, device="pjrt", requires_grad=True)
    y = x.exp()
    z = y * y
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_shapes_that_do_not_fit_raise_pytorchs_error():
    with pytest.raises(RuntimeError, match=r"4.*3"):
        torch.ones(3, device="pjrt") + torch.ones(4, device="pjrt")
    with pytest.raises(RuntimeError, match=r"cast|in-place"):
        torch.ones(3, dtype=torch.int64, device="pjrt").add_(1.5)


def test_two_devices_raise_pytorchs_error():
    with pytest.raises(EmbeddedError, match=r"at least two devices, pjrt:0 and cpu"):
        torch.ones(3, device="pjrt") + torch.ones(3)
    with pytest.raises(RuntimeError):
        torch.mm(torch.ones(2, 2, device="pjrt"), torch.ones(2, 2))


def test_numbers_on_the_cpu_mix_in():
    same(lambda d: torch.ones(3, device=d) * torch.tensor(2.0))
    same(lambda d: torch.where(torch.tensor([True, False], device=d), torch.tensor(1.0), torch.ones(2, device=d)))


def test_copies_and_files():
    layer = torch.nn.Linear(2, 3).to("pjrt")
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        layer.weight.zero_()
    assert twin.weight.device.type == "pjrt" and twin.weight.abs().sum().item() > 0
    file = io.BytesIO()
    torch.save(twin.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["weight"].device.type == "pjrt"
    assert torch.equal(loaded["weight"].cpu(), twin.weight.detach().cpu())
    file.seek(0)
    assert torch.load(file, map_location="cpu")["bias"].device.type == "cpu"


def test_tied_parameters_stay_tied():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model.to("pjrt")
    assert model[1].weight is model[0].weight
    model.load_state_dict(model.state_dict())


def test_printing_shows_values():
    assert repr(torch.tensor([1.5, 2.0], device="pjrt")) == "tensor([1.5000, 2.0000], device='pjrt:0')"


def test_item_and_truth():
    assert torch.tensor(2.5, device="pjrt").item() == 2.5
    assert torch.arange(4, device="pjrt")[2].item() == 2
    assert bool(torch.tensor([True], device="pjrt"))
    assert torch.equal(torch.ones(2, device="pjrt"), torch.ones(2, device="pjrt"))


def test_the_seed_decides_what_is_drawn():
    def draw():
        torch.manual_seed(7)
        return [
            torch.randn(4, device="pjrt").cpu(),
            torch.rand(4, device="pjrt").cpu(),
            torch.nn.functional.dropout(torch.ones(64, device="pjrt"), 0.5).cpu(),
            torch.empty(5, device="pjrt").uniform_(2, 3).cpu(),
            torch.randperm(9, device="pjrt").cpu(),
            torch.randint(3, 8, (6,), device="pjrt").cpu(),
        ]

    first, second = draw(), draw()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], torch.randn(4, device="pjrt").cpu())
    assert sorted(first[4].tolist()) == list(range(9))
    assert set(first[5].tolist()) <= set(range(3, 8))
    assert ((first[3] >= 2) & (first[3] < 3)).all()


def test_the_random_state_can_be_kept_and_put_back():
    state = torch.pjrt.get_rng_state()
    first = torch.randn(3, device="pjrt").cpu()
    torch.pjrt.set_rng_state(state)
    assert torch.equal(first, torch.randn(3, device="pjrt").cpu())


def test_distributions_have_the_right_moments():
    torch.manual_seed(0)
    normal = torch.empty(20000, device="pjrt").normal_(3, 2).cpu()
    assert abs(normal.mean() - 3) < 0.1 and abs(normal.std() - 2) < 0.1
    kept = torch.nn.functional.dropout(torch.ones(20000, device="pjrt"), 0.3).cpu()
    assert abs((kept > 0).float().mean() - 0.7) < 0.02 and abs(kept.max() - 1 / 0.7) < 1e-5


def test_synchronize_waits_for_what_is_live():
    x = torch.randn(400, 400, device="pjrt")
    for _ in range(3):
        x = x @ x / 400
    torch.pjrt.synchronize()
    assert x.untyped_storage().buffer.array.is_ready()


def test_a_backward_before_the_device_is_known_is_a_named_error():
    program = (
        "import torch; torch.ones(2, requires_grad=True).sum().backward()\n"
        "from backend.embedded.device import activate\n"
        "try: activate()\n"
        "except RuntimeError as error: print(type(error).__name__, error)\n"
    )
    got = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert got.stdout.startswith("EmbeddedError a backward() ran in this process before"), got.stderr


def test_another_extra_device_is_a_named_error():
    program = (
        "import torch; torch.utils.rename_privateuse1_backend('other')\n"
        "from backend.embedded.device import activate\n"
        "try: activate()\n"
        "except RuntimeError as error: print(type(error).__name__, error)\n"
    )
    got = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert "one slot for an extra device and 'other' holds it" in got.stdout, got.stderr
