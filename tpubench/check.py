"""Correctness: the first step against plain PyTorch on the CPU, from the same seed.

Only the first step is judged in single and half precision. Training amplifies rounding: after a few
steps any two runtimes' losses of a ResNet drift apart, each of them right. In float64 the first
three are judged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpubench.measure import LOSSES
from tpubench.spec import Spec
from tpubench.step import build, place

if TYPE_CHECKING:
    import torch

    from workloads.protocol import Workload

MATCHED, MISMATCHED, NOT_CHECKED = "matched", "mismatched", "not checked"

#: How far apart the first loss may be, relative to the reference, and any element of an output, relative
#: to the reference's largest. float32 covers the order of sums in a network of some fifty layers; the
#: half dtypes round every operation to 8 and 11 bits.
TOLERANCE = {"float64": 1e-9, "float32": 1e-5, "bfloat16": 2e-2, "bfloat16-autocast": 2e-2, "float16": 5e-3}
#: Stands for a reference of zero, which nothing is relative to.
_TINY = 1e-30


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """``correctness`` is one of the three words; ``detail`` says what was compared and how far apart it is."""

    correctness: str
    detail: str
    reference_losses: list[float]


def check(workload: Workload, spec: Spec, losses: Sequence[float], first_output: torch.Tensor | None) -> Verdict:
    """Run the first steps again on the CPU in float32 (float64 for a float64 cell), and compare."""
    dtype = "float64" if spec.dtype == "float64" else "float32"
    reference = _reference(workload, spec, dtype)
    where = f"against plain PyTorch on the CPU in {dtype} from seed {spec.seed}"
    limit = TOLERANCE[spec.dtype]
    if spec.phase != "train":
        assert first_output is not None, "a run without a loss keeps its first output"
        return _judge_output(first_output, reference[1], limit, where)
    return _judge_losses(losses, reference[0], limit, where, judged=LOSSES if dtype == "float64" else 1)


def _reference(workload: Workload, spec: Spec, dtype: str) -> tuple[list[float], torch.Tensor]:
    import torch

    from backend.training import step_function

    # Autocast is no part of the reference, and feeding from the host changes no value.
    spec = dataclasses.replace(spec, dtype=dtype, data="device")
    run = step_function(place(build(workload, spec), spec, torch.device("cpu")))
    if spec.phase != "train":
        return [], run()
    results = [run() for _ in range(LOSSES)]
    return [float(r) for r in results], results[0]


def _apart(value: float, reference: float) -> float:
    """How far apart, relative to the reference: infinitely where one alone is finite."""
    if not (math.isfinite(value) or math.isfinite(reference)):
        return 0.0
    if not (math.isfinite(value) and math.isfinite(reference)):
        return math.inf
    return abs(value - reference) / max(abs(reference), _TINY)


def _judge_losses(losses: Sequence[float], reference: list[float], limit: float, where: str, judged: int) -> Verdict:
    if not losses:
        return Verdict(NOT_CHECKED, "the run ended before its first loss", reference)
    pairs = list(zip(losses, reference, strict=False))
    apart = [_apart(*pair) for pair in pairs]
    worst = max(apart[:judged])
    what = f"loss of {'step 1' if judged == 1 else f'steps 1 to {judged}'} {where}"
    rest = "".join(f", step {i + 1} {a:.1e} (not judged)" for i, a in enumerate(apart) if i >= judged)
    # Where neither side is a number there is no distance to judge: not a mismatch, and not a match.
    odd = [(i + 1, a, b) for i, (a, b) in enumerate(pairs[:judged]) if not (math.isfinite(a) and math.isfinite(b))]
    rest = "".join(f", step {i}: {a} where the reference has {b}" for i, a, b in odd) + rest
    if worst == math.inf:
        return Verdict(MISMATCHED, f"{what}: finite on one side only{rest}", reference)
    if worst > limit:
        return Verdict(MISMATCHED, f"{what}: {worst:.1e} relative, more than {limit:.0e}{rest}", reference)
    if len(odd) == len(pairs[:judged]):
        return Verdict(NOT_CHECKED, f"{what}: finite on neither side{rest}", reference)
    return Verdict(MATCHED, f"{what}: {worst:.1e} relative, within {limit:.0e}{rest}", reference)


def _judge_output(output: torch.Tensor, reference: torch.Tensor, limit: float, where: str) -> Verdict:
    value, expected = output.double(), reference.double()
    if value.shape != expected.shape:
        detail = f"output {where}: shape {tuple(value.shape)} for {tuple(expected.shape)}"
        return Verdict(MISMATCHED, detail, [])
    finite, expected_finite = value.isfinite(), expected.isfinite()
    one_sided = int((finite != expected_finite).sum())
    if one_sided:
        detail = f"output {where}: {one_sided} of {value.numel()} elements are finite on one side only"
        return Verdict(MISMATCHED, detail, [])
    value, expected = value[finite], expected[finite]
    odd = finite.numel() - value.numel()
    rest = f", {odd} of {finite.numel()} elements finite on neither side" if odd else ""
    if not value.numel():
        return Verdict(NOT_CHECKED, f"output {where}: no finite element to compare{rest}", [])
    worst = (value - expected).abs().max().item() / max(expected.abs().max().item(), _TINY)
    correctness = MATCHED if worst <= limit else MISMATCHED
    relation = "within" if correctness == MATCHED else "more than"
    detail = f"output {where}: {worst:.1e} of the largest element, {relation} {limit:.0e}{rest}"
    return Verdict(correctness, detail, [])
