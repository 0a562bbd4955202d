"""A whole training step as one graph: forward, backward and the optimizer in a single executable.

``torch.compile`` over a step written as usual breaks the graph twice: Dynamo leaves ``backward()`` to
eager unless ``torch._dynamo.config.trace_autograd_ops`` is set, and PyTorch wraps every ``Optimizer.step``
in graph breaks of its own. :func:`compile_step` sets the one and takes the wrapper off the other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
from torch.optim import optimizer as optimizers

from backend.embedded.backend import DEVICE_NAME
from backend.embedded.errors import EmbeddedError

Loss = Callable[..., torch.Tensor]


def _bare(function: Any) -> Any:
    """A method without ``torch.compiler.disable`` and without the wrapper of ``Optimizer.step``."""
    while True:
        inner = getattr(function, "_torchdynamo_orig_callable", None) or getattr(function, "__wrapped__", None)
        if inner is None:
            return function
        function = inner


def stand_in(optimizer: torch.optim.Optimizer) -> Any:
    """An object with the optimizer's own methods, groups and state, that Dynamo traces like any other.

    Raises:
        EmbeddedError: the optimizer has step hooks, which ``Optimizer.step``'s wrapper would have run.
    """
    hooks = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        optimizers._global_optimizer_pre_hooks,
        optimizers._global_optimizer_post_hooks,
    )
    if any(hooks):
        raise EmbeddedError(
            f"{type(optimizer).__name__} has step hooks, which cannot run inside one executable: "
            "remove them, or compile forward and optimizer.step apart"
        )
    for group in optimizer.param_groups:
        if group.get("foreach") is None and "foreach" in group:
            # In one program a list op spares nothing, and Adam's takes its numbers as a tensor on the CPU.
            group["foreach"] = False
    members: dict[str, Any] = {}
    for base in reversed(type(optimizer).__mro__[:-1]):
        members |= {k: _bare(v) for k, v in vars(base).items() if inspect.isfunction(v)}
    members = {k: v for k, v in members.items() if not k.startswith("__")}
    made = type(f"Traced{type(optimizer).__name__}", (), members)()
    made.param_groups, made.state, made.defaults = optimizer.param_groups, optimizer.state, optimizer.defaults
    return made


def compile_step(compute: Loss, optimizer: torch.optim.Optimizer, *, dynamic: bool | None = False) -> Loss:
    """``step(*arguments)``: one training step, one executable; returns the loss, detached.

    ``compute(*arguments)`` gives the loss, a tensor of one element. The gradients live inside the
    executable only: ``.grad`` of every parameter is None afterwards, and must be None before.

        step = compile_step(lambda x, y: cross_entropy(model(x), y), optimizer)
        for x, y in batches:
            loss = step(x, y)

    An optimizer that makes its state at its first step (SGD's momentum) is compiled twice: without
    the state and with it.

    Raises:
        EmbeddedError: the optimizer has step hooks.
    """
    traced = stand_in(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def step(*arguments: Any) -> torch.Tensor:
        loss = compute(*arguments)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            traced.step()
        for parameter in parameters:
            parameter.grad = None
        return loss.detach()

    compiled = torch.compile(step, backend=DEVICE_NAME, fullgraph=True, dynamic=dynamic)

    def run(*arguments: Any) -> torch.Tensor:
        with torch._dynamo.config.patch(trace_autograd_ops=True):
            return compiled(*arguments)

    return run
