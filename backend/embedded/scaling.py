"""The kernels of ``torch.amp.GradScaler``: they write a list and a flag, or two tensors, in one launch.

A program's results are flat, so the list op has a flat twin of its own, ``pjrt::unscale``.
"""

from __future__ import annotations

import torch

from backend.embedded.dispatch import Op
from backend.embedded.kernels import kernel
from backend.embedded.lower.scaling import unscale as lowering
from backend.embedded.lower.table import TABLE, Lowering

aten = torch.ops.aten
Tensor = torch.Tensor

_library = torch.library.Library("pjrt", "DEF")
_library.define("unscale(Tensor[] grads, Tensor found_inf, Tensor inv_scale) -> Tensor[]")


def _flat_shapes(grads: list[Tensor], found_inf: Tensor, inv_scale: Tensor) -> list[Tensor]:
    return [torch.empty_like(one) for one in (*grads, found_inf)]


def _flat(grads, found, inverse):  # type: ignore[no-untyped-def]
    values, flag = lowering(grads, found, inverse)
    return [*values, flag]


_library.impl("unscale", _flat_shapes, "Meta")
TABLE[torch.ops.pjrt.unscale.default] = Lowering(_flat)
_unscale = Op(torch.ops.pjrt.unscale.default)
_update = Op(aten._amp_update_scale.default)


@kernel(aten._amp_foreach_non_finite_check_and_unscale_.default)
def unscale(grads: list[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Each gradient times ``inv_scale``; ``found_inf`` becomes 1 where one of them is not finite."""
    _unscale((list(grads), found_inf, inv_scale), {}, (*grads, found_inf))


@kernel(aten._amp_update_scale_.default)
def update_scale(
    scale: Tensor, growth_tracker: Tensor, found_inf: Tensor, factor: float, backoff: float, interval: int
) -> Tensor:
    """The scale and its count of good steps after a step."""
    _update((scale, growth_tracker, found_inf, factor, backoff, interval), {}, (scale, growth_tracker))
    return scale
