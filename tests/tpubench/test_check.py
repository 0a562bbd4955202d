"""Correctness: what is judged, within what, and what the verdict says of it."""

import math

import pytest
import torch
from records import make_spec

from tpubench import check as module
from tpubench.check import TOLERANCE, check
from tpubench.step import build, place
from workloads.protocol import Built, Size

INF, NAN = math.inf, math.nan


class Line:
    """A linear model whose loss and gradient are plain arithmetic; ``output`` replaces what it infers."""

    name = summary = item = flops_convention = "test"
    phases = ("train", "infer")
    output = None

    def __init__(self):
        self.sizes = {"tiny": Size("tiny", 4)}
        self.dtypes = []

    def build(self, size, phase, dtype, seed):
        self.dtypes.append(dtype)
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 2).to(dtype)

        def make_batch(batch, seq_len, seed, device="cpu"):
            return (torch.randn(batch, 3, generator=torch.Generator().manual_seed(seed)).to(dtype),)

        def compute(model, x):
            if phase == "infer":
                return model(x) if self.output is None else torch.tensor(self.output, dtype=dtype)
            return model(x).square().mean()

        return Built(model, make_batch, compute)


def train_spec(dtype="float32", **fields):
    return make_spec(workload="line", size="tiny", batch=4, dtype=dtype, **fields)


def reference(dtype="float32", seed=0):
    """The three losses by plain PyTorch, worked out here."""
    spec = train_spec(dtype, seed=seed)
    step = place(build(Line(), spec), spec, torch.device("cpu"))
    losses = []
    for _ in range(3):
        step.optimizer.zero_grad()
        loss = step.compute(step.module, *step.batch)
        loss.backward()
        step.optimizer.step()
        losses.append(loss.item())
    return losses


def verdict(losses, dtype="float32", **fields):
    return check(Line(), train_spec(dtype, **fields), losses, None)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_first_loss_within_the_dtypes_tolerance_matches_and_one_beyond_does_not(dtype):
    of = reference("float64" if dtype == "float64" else "float32")
    near, far = ([of[0] * (1 + share * TOLERANCE[dtype]), *of[1:]] for share in (0.9, 1.2))
    assert verdict(near, dtype).correctness == "matched"
    assert verdict(far, dtype).correctness == "mismatched"


def test_the_tolerances_are_these():
    assert TOLERANCE == {
        "float64": 1e-9, "float32": 1e-5, "bfloat16": 2e-2, "bfloat16-autocast": 2e-2, "float16": 5e-3
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bfloat16-autocast", "float16"])
def test_later_losses_are_told_but_not_judged_where_rounding_grows(dtype):
    of = reference()
    got = verdict([of[0], of[1] * 2, of[2] * 3], dtype)
    assert got.correctness == "matched"
    assert got.detail.endswith(", step 2 1.0e+00 (not judged), step 3 2.0e+00 (not judged)")


@pytest.mark.parametrize("step", [0, 1, 2])
def test_in_float64_all_three_are_judged(step):
    of = reference("float64")
    assert verdict(of, "float64").correctness == "matched"
    of[step] *= 1 + 1e-8
    got = verdict(of, "float64")
    assert got.correctness == "mismatched" and "not judged" not in got.detail
    assert got.detail.startswith(
        "loss of steps 1 to 3 against plain PyTorch on the CPU in float64 from seed 0: 1.0e-08"
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_reference_is_float32_or_float64_and_of_the_runs_seed(dtype):
    line = Line()
    got = check(line, train_spec(dtype, seed=7), reference(seed=7), None)
    wanted = "float64" if dtype == "float64" else "float32"
    assert line.dtypes == [getattr(torch, wanted)]
    assert got.reference_losses == reference(wanted, seed=7) != reference(wanted, seed=8)
    assert f"in {wanted} from seed 7" in got.detail


def test_the_detail_says_what_how_far_and_within_what():
    of = reference()
    assert verdict(of).detail == (
        "loss of step 1 against plain PyTorch on the CPU in float32 from seed 0: 0.0e+00 relative, within 1e-05, "
        "step 2 0.0e+00 (not judged), step 3 0.0e+00 (not judged)"
    )
    assert verdict([of[0] * 1.5, *of[1:]]).detail.startswith(
        "loss of step 1 against plain PyTorch on the CPU in float32 from seed 0: 5.0e-01 relative, more than 1e-05, "
    )


@pytest.mark.parametrize("loss", [NAN, INF, -INF])
def test_a_loss_that_is_no_number_mismatches_a_reference_that_is_one(loss):
    got = verdict([loss])
    assert got.correctness == "mismatched"
    assert f": finite on one side only, step 1: {loss} where the reference has " in got.detail


@pytest.mark.parametrize(("loss", "of"), [(NAN, NAN), (INF, INF), (INF, NAN), (-INF, INF)])
def test_where_neither_is_a_number_nothing_was_compared_and_the_detail_says_so(monkeypatch, loss, of):
    monkeypatch.setattr(module, "_reference", lambda *_: ([of] * 3, None))
    got = verdict([loss])
    assert got.correctness == "not checked"
    assert got.detail.endswith(f": finite on neither side, step 1: {loss} where the reference has {of}")


def test_a_number_mismatches_a_reference_that_is_none(monkeypatch):
    monkeypatch.setattr(module, "_reference", lambda *_: ([INF] * 3, None))
    assert verdict([1.0]).correctness == "mismatched"


def test_a_run_without_a_loss_is_not_checked():
    assert verdict([]).correctness == "not checked"


def infer(output, of):
    """The verdict on ``output`` where the reference infers ``of``."""
    line = Line()
    line.output = of
    return check(line, train_spec(phase="infer"), [], torch.tensor(output))


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_an_output_is_judged_by_its_worst_element_relative_to_the_references_largest(dtype):
    limit, line = TOLERANCE[dtype], Line()
    # 100 is the largest; the element that is off is a small one.
    line.output = [100.0, 1.0]
    for share, wanted in ((90, "matched"), (120, "mismatched")):
        output = torch.tensor([100.0, 1 + share * limit], dtype=torch.float64)
        got = check(line, train_spec(dtype, phase="infer"), [], output)
        assert got.correctness == wanted and f" {limit:.0e}" in got.detail


def test_the_detail_of_an_output():
    assert infer([2.0, 1.0], [2.0, 1.0]).detail == (
        "output against plain PyTorch on the CPU in float32 from seed 0: 0.0e+00 of the largest element, within 1e-05"
    )


def test_a_real_output_matches_itself():
    line = Line()
    step = place(build(line, train_spec(phase="infer")), train_spec(phase="infer"), torch.device("cpu"))
    with torch.no_grad():
        output = step.compute(step.module, *step.batch)
    assert check(Line(), train_spec(phase="infer"), [], output).correctness == "matched"
    assert check(Line(), train_spec(phase="infer", seed=1), [], output).correctness == "mismatched"


@pytest.mark.parametrize(
    ("output", "of", "correctness", "says"),
    [
        ([NAN, 1.0], [1.0, 1.0], "mismatched", "1 of 2 elements are finite on one side only"),
        ([1.0, 2.0], [1.0, INF], "mismatched", "1 of 2 elements are finite on one side only"),
        ([5.0, INF], [1.0, INF], "mismatched", "4.0e+00 of the largest element"),
        ([1.0, NAN], [1.0, NAN], "matched", "1 of 2 elements finite on neither side"),
        ([NAN, INF], [NAN, NAN], "not checked", "no finite element to compare"),
        ([], [], "not checked", "no finite element to compare"),
        ([1.0], [1.0, 1.0], "mismatched", "shape (1,) for (2,)"),
        ([0.0], [0.0], "matched", "0.0e+00"),
        ([1e-6], [0.0], "mismatched", "more than"),
    ],
)
def test_outputs_with_elements_that_are_no_numbers_or_of_another_shape(output, of, correctness, says):
    got = infer(output, of)
    assert got.correctness == correctness and says in got.detail
