"""The step itself, the same for every backend: what differs is what is handed in compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from backend.protocol import Step

if TYPE_CHECKING:
    import torch


def step_function(
    step: Step,
    compute: Callable[..., torch.Tensor] | None = None,
    update: Callable[[], object] | None = None,
) -> Callable[[], torch.Tensor]:
    """A function that runs one whole step and returns its loss or output, unsynchronised.

    ``compute`` and ``update`` stand for ``step.compute`` and the optimizer's step where they have
    been compiled.
    """
    import torch

    compute = compute or step.compute
    optimizer = step.optimizer

    def infer() -> torch.Tensor:
        with torch.no_grad():
            return compute(step.module, *step.batch)

    if optimizer is None:
        return infer
    move = update or optimizer.step

    def train() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = compute(step.module, *step.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        move()
        return loss.detach()

    return train
