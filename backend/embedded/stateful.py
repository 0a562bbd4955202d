"""Ops that write more than their schema says: running statistics, the generator's state."""

from __future__ import annotations

from typing import Any

import torch

from backend.embedded.dispatch import Op
from backend.embedded.fallback import put
from backend.embedded.kernels import KERNELS, kernel

aten = torch.ops.aten
Tensor = torch.Tensor

_norm_training = Op(aten._native_batch_norm_legit_functional.default)
_norm_inference = Op(aten._native_batch_norm_legit_no_training.default)
_norm_stateless = Op(aten._native_batch_norm_legit.no_stats)


@kernel(aten.native_batch_norm.default)
def native_batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float,
) -> Any:  # fmt: skip
    """Batch norm; training also moves the running statistics, in the same launch."""
    if running_mean is None or running_var is None:
        return _norm_stateless((x, weight, bias, training, momentum, eps), {})
    if not training:
        y = _norm_inference((x, weight, bias, running_mean, running_var, momentum, eps), {})[0]
        # Nothing is saved for backward, which reads the running statistics.
        return (
            y,
            torch.empty(0, dtype=running_mean.dtype, device=x.device),
            torch.empty(0, dtype=running_var.dtype, device=x.device),
        )
    targets = (None, None, None, running_mean, running_var)
    args = (x, weight, bias, running_mean, running_var, training, momentum, eps)
    return _norm_training(args, {}, targets)[:3]


@kernel(aten._native_batch_norm_legit.default)
def native_batch_norm_legit(*args: Any) -> Any:
    """:func:`native_batch_norm` by the name whose schema says that it writes."""
    return native_batch_norm(*args)


def _drawing(name: str, op: torch._ops.OpOverload) -> None:
    draw = Op(op)
    # PyTorch leaves out what equals the in-place form's default; the form without a target may have none.
    defaults = (0.5,) if op is aten.bernoulli.p else ()

    def fill_randomly(x: Tensor, *args: Any) -> Tensor:
        if x.numel():
            draw((x, *(args or defaults)), {}, (x,))
        return x

    packet, overload = name.split(".")
    KERNELS[getattr(getattr(aten, packet), overload)] = fill_randomly


for _name, _op in {
    "bernoulli_.float": aten.bernoulli.p,
    "uniform_.default": aten.uniform.default,
    "normal_.default": aten.normal_functional.default,
    "exponential_.default": aten.exponential.default,
    "random_.default": aten.random.default,
    "random_.to": aten.random.to,
    "random_.from": getattr(aten.random, "from"),
}.items():
    _drawing(_name, _op)

_permutation = Op(aten.randperm.default)


@kernel(aten.randperm.generator_out)
def permutation(n: int, *, out: Tensor) -> Tensor:
    """0 to n - 1 in random order; :func:`backend.embedded.generator.driven` takes the generator."""
    put(out, _permutation((n,), {"dtype": out.dtype}))
    return out
