"""The step on a device: where the data lie, what autocast computes in, what is built without values."""

import pytest
import torch
from records import make_spec

from tpubench import facts
from tpubench.step import build, build_on_meta, place
from workloads.protocol import Built
from workloads.resnet import ResNet

CPU = torch.device("cpu")


def tiny(**fields):
    return make_spec(size="tiny", batch=4, **fields)


def step_of(**fields):
    spec = tiny(**fields)
    return place(build(ResNet(), spec), spec, CPU)


def test_data_on_the_device_are_made_once_and_those_of_the_host_come_anew():
    resident, fed = step_of(), step_of(data="host")
    assert all(a is b for a, b in zip(resident.batch, resident.batch, strict=True))
    assert fed.resident == () and len(fed.fed) == 2
    first, second = fed.batch, fed.batch
    for a, b, c in zip(resident.batch, first, second, strict=True):
        assert torch.equal(a, b) and b is not c
        assert b.data_ptr() != c.data_ptr()


def test_what_does_not_come_with_a_batch_stays_on_the_device():
    def make_batch(batch, seq_len, seed, device="cpu"):
        return torch.ones(batch, device=device), torch.zeros(3, device=device)

    spec = tiny(data="host", phase="infer")
    step = place(Built(torch.nn.Identity(), make_batch, lambda m, *b: b[0], streamed=1), spec, CPU)
    assert [len(step.fed), len(step.resident)] == [1, 1]
    (_, cache), (_, again) = step.batch, step.batch
    assert cache is again


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW)])
def test_training_steps_the_optimizer_of_the_cell(name, kind):
    assert type(step_of(optimizer=name).optimizer) is kind


def test_nothing_but_training_has_an_optimizer():
    assert step_of(phase="infer").optimizer is None


def test_autocast_keeps_float32_weights_and_multiplies_in_bfloat16():
    step = step_of(dtype="bfloat16-autocast", phase="infer")
    assert {p.dtype for p in step.module.parameters()} == {torch.float32}
    assert step.batch[0].dtype == torch.float32
    with torch.no_grad():
        lower = step.compute(step.module, *step.batch)
        plain = step_of(phase="infer")
        whole = plain.compute(plain.module, *plain.batch)
    assert lower.dtype == torch.bfloat16 and whole.dtype == torch.float32
    assert not torch.equal(lower.float(), whole)
    torch.testing.assert_close(lower.float(), whole, rtol=0.05, atol=0.05)


def test_autocast_ends_with_the_forward():
    step = step_of(dtype="bfloat16-autocast")
    loss = step.compute(step.module, *step.batch)
    assert not torch.is_autocast_enabled("cpu")
    loss.backward()
    assert {p.grad.dtype for p in step.module.parameters()} == {torch.float32}


def test_on_meta_there_are_shapes_and_no_values():
    spec = tiny()
    real, meta = build(ResNet(), spec).module, build_on_meta(ResNet(), spec).module
    assert {p.device.type for p in meta.parameters()} == {"meta"}
    assert [(n, p.shape, p.dtype) for n, p in meta.named_parameters()] == [
        (n, p.shape, p.dtype) for n, p in real.named_parameters()
    ]


class Counts:
    """A backend whose counters stand at ``stats``."""

    def __init__(self, **stats):
        self.stats = stats

    def cache_stats(self):
        return self.stats

    def counters(self):
        return {}

    def describe(self):
        return {}


def test_what_was_compiled_before_the_first_step_is_not_the_steps():
    before = facts.so_far(Counts(requests=10, hits=3, misses=7, compile_s=1.5, disk_requests=None))
    fields = {"warnings": []}
    facts.of_backend(Counts(requests=110, hits=90, misses=20, compile_s=4.0, disk_requests=None), fields, before)
    assert [fields[f"compile_{n}"] for n in ("requests", "hits", "misses", "s")] == [100, 87, 13, 2.5]
    assert fields["disk_requests"] is None


class Mover(ResNet):
    def bytes_moved(self, size, phase, batch, seq_len, itemsize):
        return 100 * itemsize


@pytest.mark.parametrize(("dtype", "expected"), [("float32", 400.0), ("bfloat16", 200.0), ("float64", 800.0)])
def test_bytes_moved_follow_the_dtype(dtype, expected):
    assert facts.traffic(Mover(), tiny(dtype=dtype)) == {"bytes_moved": expected}


def test_no_bytes_where_no_formula_says_or_dtypes_mix():
    assert facts.traffic(ResNet(), tiny()) == {}
    assert facts.traffic(Mover(), tiny(dtype="bfloat16-autocast")) == {}
