"""Random programs in compile mode: captured by Dynamo, they agree with the CPU."""

import os

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

from tests.backend.embedded import programs


def valid(program):
    """The program without the steps that the CPU refuses: Dynamo has errors of its own for those.

    And without list ops over tensors that share memory: PyTorch's functionalization loses all writes but one,
    with its own backends too.
    """
    program = [step for step in program if step[0] != "foreach"]
    while refused := programs.run(program, "cpu")[1]:
        program = [step for place, step in enumerate(program) if place not in refused]
    return program


def agree(program):
    program = valid(program)
    expected, got = programs.run(program, "cpu"), programs.run_compiled(program)
    torch.testing.assert_close(got[0], expected[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(got[2], expected[2], rtol=1e-11, atol=1e-11)


def check(examples, length):
    @settings(
        max_examples=examples, deadline=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    @given(programs.programs(length))
    def run(program):
        agree(program)

    run()


def test_random_programs_agree_with_the_cpu_when_compiled(pjrt):
    check(10, 8)


@pytest.mark.slow
def test_many_programs_of_thirty_steps_agree_with_the_cpu_when_compiled(pjrt):
    check(int(os.environ.get("TPUBENCH_PROGRAMS", "300")), 30)
