"""Storages on the device: copied and loaded by their values, refused by name where an address is needed."""

import copy
import io

import pytest
import torch
from torch import nn

from backend.embedded.errors import DevicesDiffer, NoSuchDevice, StorageNotOnHost


@pytest.fixture(autouse=True)
def _device(pjrt):
    pass


@pytest.mark.parametrize("mode", ["eager", "eager-fused"])
def test_deep_copies_hold_values_and_share_as_the_originals_do(mode, mode_of):
    with mode_of(mode):
        x = torch.arange(6.0, device="pjrt")
        twins = copy.deepcopy([x, x[2:4], x.view(2, 3).t()])
        x.zero_()
        twins[0].mul_(2)
        assert twins[0].tolist() == [0, 2, 4, 6, 8, 10]
        assert twins[1].tolist() == [4, 6] and twins[2].tolist() == [[0, 6], [2, 8], [4, 10]]


def test_a_module_with_buffers_is_copied():
    norm = nn.BatchNorm1d(3).to("pjrt")
    norm(torch.randn(8, 3, device="pjrt"))
    twin = copy.deepcopy(norm)
    assert twin.running_mean.abs().sum().item() > 0
    for name, value in norm.state_dict().items():
        assert torch.equal(twin.state_dict()[name].cpu(), value.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_files_of_another_device_are_loaded_onto_this_one(dtype):
    values = torch.tensor([[0, 1], [2, 3]]).to(dtype)
    file = io.BytesIO()
    torch.save({"whole": values, "part": values[1:]}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="pjrt")
    assert loaded["whole"].device.type == "pjrt" and torch.equal(loaded["whole"].cpu(), values)
    loaded["whole"].zero_()
    assert not loaded["part"].any().item()  # one storage, as in the file


def test_an_asynchronous_copy_needs_no_pinned_memory():
    there = torch.ones(3).to("pjrt", non_blocking=True)
    assert there.to("cpu", non_blocking=True).tolist() == [1, 1, 1]
    assert there.to("cpu", torch.int64, non_blocking=True).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "use", [lambda s: s.tolist(), lambda s: s[0], lambda s: s.cpu(), lambda s: s.fill_(0)], ids=str
)
def test_bytes_by_address_are_refused_by_name(use):
    with pytest.raises(StorageNotOnHost, match="by way of a tensor"):
        use(torch.ones(3, device="pjrt").untyped_storage())
    assert torch.ones(3).untyped_storage().cpu().tolist()[:4] == [0, 0, 128, 63]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2).to("pjrt:1"),
        lambda: torch.ones(2, device="pjrt").to("pjrt:1"),
        lambda: torch.empty_strided((2,), (1,), device="pjrt:1"),
        lambda: torch.randn(2, device="pjrt:1"),
        lambda: torch.arange(3, device="pjrt:1"),
        lambda: torch.eye(3, device="pjrt:1"),
        lambda: torch.linspace(0, 1, 3, device="pjrt:1"),
        lambda: torch.randperm(3, device="pjrt:1"),
        lambda: torch.tensor([1.0], device="pjrt:1"),
        lambda: nn.Linear(2, 2, device="pjrt:1"),
        lambda: nn.Linear(2, 2).to("pjrt:1"),
        lambda: torch.Generator(device="pjrt:1"),
        lambda: torch.pjrt.set_device(1),
        lambda: torch.pjrt.device(1),
        lambda: torch.accelerator.set_device_index(1),
    ],
)
def test_a_device_that_is_not_there_is_refused_by_name(make):
    with pytest.raises(NoSuchDevice, match="pjrt:1: invalid device ordinal"):
        make()


def test_the_accelerator_is_the_device():
    assert torch.accelerator.current_accelerator().type == "pjrt" and torch.accelerator.device_count() == 1
    x = torch.ones(300, 300, device="pjrt") @ torch.ones(300, 300, device="pjrt")
    torch.accelerator.synchronize()
    assert x.untyped_storage().buffer.array.is_ready()
    with torch.pjrt.device(0):
        assert torch.accelerator.current_device_index() == torch.pjrt.current_device() == 0


def on(device):
    return torch.ones(2, 2, device=device)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    "run",
    [
        lambda a, b: a + b,
        lambda a, b: a.clone().add_(b),
        lambda a, b: a @ b,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: nn.functional.conv2d(a[None, None], b[None, None]),
        lambda a, b: nn.functional.layer_norm(a, (2,), b[0]),
        lambda a, b: nn.functional.embedding(a.long(), b),
        lambda a, b: torch._foreach_add([a], [b]),
        lambda a, b: a.gather(0, b.long()),
        lambda a, b: torch.addcmul(a, b, b),
        lambda a, b: a == b,
        lambda a, b: torch.add(a, a, out=torch.empty(2, 2, device=b.device)),
        lambda a, b: nn.functional.cross_entropy(a, b[0].long()),
    ],
)
def test_operands_on_two_devices_raise_pytorchs_error(run, swapped):
    a, b = (on("cpu"), on("pjrt")) if swapped else (on("pjrt"), on("cpu"))
    with pytest.raises((DevicesDiffer, RuntimeError), match="same device"):
        run(a, b)
