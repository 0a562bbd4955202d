"""A workload's step on a backend's device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tpubench.spec import Spec

if TYPE_CHECKING:
    import torch

    from workloads.protocol import Built, Workload

#: Dtypes that are a policy: what the weights are in, and what ``torch.autocast`` computes in.
AUTOCAST = {"bfloat16-autocast": ("float32", "bfloat16")}


@dataclasses.dataclass(slots=True)
class Step:
    """What :class:`backend.protocol.Backend` prepares: module, batch and optimizer, on the device."""

    module: torch.nn.Module
    resident: tuple[torch.Tensor, ...]  # on the device for good
    compute: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer | None
    fed: tuple[torch.Tensor, ...] = ()  # on the host: copied in every step
    device: torch.device | None = None  # where to

    @property
    def batch(self) -> tuple[torch.Tensor, ...]:
        """The inputs on the device; those that are fed are copied anew each time this is asked for."""
        if not self.fed:
            return self.resident
        return (*(x.to(self.device, copy=True) for x in self.fed), *self.resident)

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
    """The torch dtype of the weights and inputs where a Spec says ``name``."""
    import torch

    dtype = getattr(torch, AUTOCAST[name][0] if name in AUTOCAST else name)
    assert isinstance(dtype, torch.dtype), "the command line checks dtypes"
    return dtype


def build(workload: Workload, spec: Spec) -> Built:
    """The workload of ``spec`` on the CPU, seeded, at its dtype."""
    return workload.build(spec.size, spec.phase, torch_dtype(spec.dtype), spec.seed)


def build_on_meta(workload: Workload, spec: Spec) -> Built:
    """The same without values: shapes and dtypes, for counting. Takes no memory."""
    import torch

    with torch.device("meta"):
        return build(workload, spec)


def place(built: Built, spec: Spec, device: torch.device) -> Step:
    """The step of ``built`` on ``device``: the same weights and the same data on every device.

    The data are made on the device. Where ``spec.data`` is ``host``, what a data loader would bring anew is
    made on the host and copied in each step, from pinned memory where the device is CUDA.
    """
    from workloads.optimizers import make_optimizer

    module = built.module.to(device)
    fed: tuple[torch.Tensor, ...] = ()
    resident = built.make_batch(spec.batch, spec.seq_len, spec.seed, "cpu" if spec.data == "host" else device)
    if spec.data == "host":
        streamed = len(resident) if built.streamed is None else built.streamed
        fed = tuple(x.pin_memory() if device.type == "cuda" else x for x in resident[:streamed])
        resident = tuple(x.to(device) for x in resident[streamed:])
    optimizer = make_optimizer(spec.optimizer, module) if spec.phase == "train" else None
    return Step(module, resident, _policy(built.compute, spec.dtype, device.type), optimizer, fed, device)


def _policy(compute: Callable[..., torch.Tensor], dtype: str, device: str) -> Callable[..., torch.Tensor]:
    """``compute`` under autocast, where ``dtype`` asks for it: forward and loss only, as PyTorch advises.

    https://docs.pytorch.org/docs/stable/amp.html#torch.autocast: backward runs outside, in the dtypes of forward.
    """
    import torch

    if dtype not in AUTOCAST:
        return compute
    lower = getattr(torch, AUTOCAST[dtype][1])

    def autocast(module: torch.nn.Module, *batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype=lower):
            return compute(module, *batch)

    return autocast
