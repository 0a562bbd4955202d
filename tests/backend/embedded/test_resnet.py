"""ResNet at tiny in float64: five steps agree with PyTorch on the CPU, losses and every parameter."""

import pytest
import torch

from backend import registry
from backend.training import step_function
from tpubench.spec import Spec
from tpubench.step import build, place
from workloads.registry import load


def five_steps(backend_name, mode):
    torch._dynamo.reset()
    spec = Spec("resnet", "tiny", backend_name, mode, 8, dtype="float64", optimizer="sgd")
    backend = registry.load(backend_name)
    step = place(build(load("resnet"), spec), spec, backend.open("cpu", mode, cpu_fallback=False))
    run = backend.prepare(step, mode)
    losses = [run().item() for _ in range(5)]
    return losses, {k: v.cpu() for k, v in step.module.state_dict().items()}


@pytest.fixture(scope="module")
def reference(pjrt):
    spec = Spec("resnet", "tiny", "torch", "eager", 8, dtype="float64", optimizer="sgd")
    step = place(build(load("resnet"), spec), spec, torch.device("cpu"))
    run = step_function(step)
    return [run().item() for _ in range(5)], step.module.state_dict()


@pytest.mark.parametrize("mode", ["eager", "eager-blocking", "compile"])
def test_five_steps_agree_within_1e9(reference, mode):
    losses, state = five_steps("embedded", mode)
    torch.testing.assert_close(losses, reference[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(state, reference[1], rtol=1e-9, atol=1e-9)
