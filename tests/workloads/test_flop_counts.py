"""Every workload's formula of FLOPs against the count of its ops, at every size that has a name, on meta tensors."""

from __future__ import annotations

import pytest
import torch

from tpubench.flops import count, disagreement
from workloads.registry import load, names


@pytest.mark.parametrize("name", names())
def test_formula_and_count_agree(name: str) -> None:
    workload = load(name)
    for size, about in workload.sizes.items():
        for phase in workload.phases:
            with torch.device("meta"):
                built = workload.build(size, phase, torch.float32, 0)
            counted = count(built, phase, about.batch, about.seq_len, 0).total
            formula = workload.flops(size, phase, about.batch, about.seq_len)
            assert disagreement(counted, formula) < 0.05, f"{size}, {phase}: {counted:.4g} by count, {formula:.4g}"


@pytest.mark.parametrize("name", names())
def test_every_workload_has_the_sizes_that_tests_and_laptops_run(name: str) -> None:
    workload = load(name)
    assert {"tiny", "small", workload.published} <= set(workload.sizes)
    assert workload.name == name
