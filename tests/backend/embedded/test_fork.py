"""Workers that are forked, and threads."""

import threading

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture(autouse=True)
def _device(pjrt):
    pass


class There(torch.utils.data.Dataset):
    """A data set that uses the device in its workers."""

    def __init__(self, use):
        self.use = use

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.use(index)


held = {}
USES = {
    "op": lambda i: held["x"] + i,
    "factory": lambda i: torch.ones(2, device="pjrt"),
    "copy": lambda i: torch.ones(2).to("pjrt"),
    "random": lambda i: torch.randn(2, device="pjrt"),
    "in-place": lambda i: held["x"].mul_(2),
    "compiled": lambda i: held["run"](held["x"]),
}


@pytest.mark.parametrize("mode", ["eager", "eager-fused"])
@pytest.mark.parametrize("name", USES)
def test_a_forked_worker_is_refused_by_name(name, mode, mode_of):
    held["x"] = torch.ones(2, device="pjrt")
    held["run"] = torch.compile(lambda x: x * 3, backend="pjrt", dynamic=False)
    with mode_of(mode):
        held["run"](held["x"]), held["x"] + 1, held["x"].mul_(1.5)
        with pytest.raises(RuntimeError, match="cannot use the pjrt device in a forked process"):
            list(DataLoader(There(USES[name]), num_workers=1, multiprocessing_context="fork", timeout=60))
        assert (held["x"] + 1).tolist() == [2.5, 2.5]  # the parent goes on


def test_forked_workers_may_prepare_tensors_of_the_cpu():
    loader = DataLoader(
        TensorDataset(torch.arange(8.0)), batch_size=2, shuffle=True, num_workers=2, multiprocessing_context="fork"
    )
    assert sum(x.to("pjrt").sum().item() for (x,) in loader) == 28


def test_threads_get_their_own_results():
    def work(number, results):
        x = torch.full((8,), float(number), device="pjrt", requires_grad=True)
        for _ in range(20):
            (x * x).sum().backward()
        results[number] = x.grad.cpu()

    results = {}
    threads = [threading.Thread(target=work, args=(n, results)) for n in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert all(torch.equal(results[n], torch.full((8,), 40.0 * n)) for n in range(4))
