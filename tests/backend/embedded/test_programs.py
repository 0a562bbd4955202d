"""Random programs: the device agrees with the CPU in every mode."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.backend.embedded import programs

EAGER = ["eager", "eager-blocking", "eager-fused"]


def quietly(examples):
    return settings(
        max_examples=examples, deadline=None, derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )  # fmt: skip


def agree(program):
    expected, got = programs.run(program, "cpu"), programs.run(program, "pjrt")
    assert got[1] == expected[1], "another step is refused"
    torch.testing.assert_close(got[0], expected[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(got[2], expected[2], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("mode", EAGER)
def test_random_programs_agree_with_the_cpu(mode_of, mode):
    @quietly(40)
    @given(programs.programs(12))
    def check(program):
        agree(program)

    with mode_of(mode):
        check()


@pytest.mark.slow
@pytest.mark.parametrize("mode", EAGER)
def test_a_thousand_programs_of_thirty_steps_agree_with_the_cpu(mode_of, mode):
    @quietly(1000)
    @given(programs.programs(30))
    def check(program):
        agree(program)

    with mode_of(mode):
        check()
