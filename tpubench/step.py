"""A workload's step on a backend's device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tpubench.spec import Spec

if TYPE_CHECKING:
    import torch

    from workloads.protocol import Built, Workload


@dataclasses.dataclass(slots=True)
class Step:
    """What :class:`backend.protocol.Backend` prepares: module, batch and optimizer, on the device."""

    module: torch.nn.Module
    batch: tuple[torch.Tensor, ...]
    compute: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer | None

    def live(self) -> Iterator[torch.Tensor]:
        """Every tensor that a step may write: what is waited for after one."""
        for parameter in self.module.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        yield from self.module.buffers()
        if self.optimizer is not None:
            for state in self.optimizer.state.values():
                yield from _tensors(state.values())


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    import torch

    return (v for v in values if isinstance(v, torch.Tensor))


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype that a Spec names."""
    import torch

    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), "the command line checks dtypes"
    return dtype


def build(workload: Workload, spec: Spec, dtype: str | None = None) -> Built:
    """The workload of ``spec`` on the CPU, at its dtype or another."""
    return workload.build(spec.size, spec.phase, torch_dtype(dtype or spec.dtype), spec.seed)


def place(built: Built, spec: Spec, device: torch.device) -> Step:
    """The step of ``built`` on ``device``: the same weights and batch on every device."""
    module = built.module.to(device)
    batch = tuple(x.to(device) for x in built.make_batch(spec.batch, spec.seq_len, spec.seed))
    optimizer = built.make_optimizer(module) if spec.phase == "train" else None
    return Step(module, batch, built.compute, optimizer)
