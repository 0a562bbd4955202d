"""Eager-blocking mode: an error names the op and the line that called it."""

from pathlib import Path

import jax
import numpy
import pytest
import torch

from backend.embedded.blocking import launch_and_wait
from backend.embedded.buffer import buffer_of
from backend.embedded.errors import OpFailed
from backend.embedded.mode import MODE


def test_an_op_that_cannot_run_is_named_with_the_line_of_the_call(mode_of):
    x = torch.ones(1, device="pjrt")
    with mode_of("eager-blocking"), pytest.raises(OpFailed) as caught:
        x.expand(1 << 40).contiguous()
    assert f"{Path(__file__)}:" in str(caught.value) and caught.value.op.startswith("aten.")


def test_values_are_there_when_the_call_returns(mode_of, monkeypatch):
    waited = []
    original = jax.block_until_ready
    monkeypatch.setattr(jax, "block_until_ready", lambda values: waited.append(values) or original(values))
    x = torch.ones(3, device="pjrt")
    y = x + 1
    assert not waited
    with mode_of("eager-blocking"):
        y = x + y
        y.add_(1)
    assert len(waited) == 2


def test_other_errors_pass_as_they_are():
    def fails():
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        launch_and_wait("op", fails)
    assert MODE.direct


def test_an_in_place_op_reuses_memory_that_nobody_else_sees(pjrt):
    x = torch.zeros(64, 64, device="pjrt")
    x.add_(1)
    first = buffer_of(x).array.unsafe_buffer_pointer()
    x.mul_(3)
    torch._foreach_add_([x], 1.0)
    assert buffer_of(x).array.unsafe_buffer_pointer() == first and (x.cpu() == 4).all()


@pytest.mark.parametrize(
    "keep",
    [
        lambda x: buffer_of(x).array,
        lambda x: buffer_of(torch.empty_like(x).set_(x)).array,
        lambda x: numpy.asarray(buffer_of(x).array),
    ],
)
def test_memory_that_is_seen_elsewhere_stays(pjrt, keep):
    x = torch.zeros(64, 64, device="pjrt")
    x.add_(1)
    kept = keep(x)
    x.add_(1)
    x.mul_(x)
    x.add_(1)
    assert (numpy.asarray(kept) == 1).all() and (x.cpu() == 5).all()
