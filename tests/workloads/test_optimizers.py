"""Optimizers by name."""

import pytest
import torch

from workloads.optimizers import NAMES, make_optimizer


@pytest.mark.parametrize("name", NAMES)
def test_each_is_torchs_own_over_every_parameter(name: str) -> None:
    module = torch.nn.Linear(3, 2)
    optimizer = make_optimizer(name, module)
    assert type(optimizer).__module__.startswith("torch.optim.") and type(optimizer).__name__.lower() == name
    assert [id(p) for group in optimizer.param_groups for p in group["params"]] == [id(p) for p in module.parameters()]
    before = [p.clone() for p in module.parameters()]
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert all((a != b).all() for a, b in zip(before, module.parameters(), strict=True))


def test_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no optimizer is called 'lion': give one of sgd, adamw"):
        make_optimizer("lion", torch.nn.Linear(1, 1))
