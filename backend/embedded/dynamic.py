"""Ops whose result's shape depends on values. Each waits for its operand, as it does on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from backend.embedded.buffer import wrap
from backend.embedded.dispatch import Op
from backend.embedded.kernels import dense, kernel
from backend.embedded.shadow import on_device, on_host

aten = torch.ops.aten
Tensor = torch.Tensor
Indices = Sequence[Tensor | None]

_index = Op(aten.index.Tensor)
_index_put = Op(aten.index_put.default)
_index_put_in_place = Op(aten.index_put.default, aten.index_put_.default)
_MASKS = (torch.bool, torch.uint8)


@kernel(aten.nonzero.default)
def nonzero(x: Tensor) -> Tensor:
    """The place of every element that is not zero, (n, dimensions) int64."""
    places = np.argwhere(on_host(dense(x)))
    return wrap(on_device(places.astype(np.int64)))


@kernel(aten.masked_select.default)
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of ``x`` where ``mask``, in order."""
    x, mask = torch.broadcast_tensors(x, mask)
    return index(x.reshape(-1), [mask.reshape(-1)])


def _by_position(indices: Indices, device: torch.device) -> list[Tensor | None]:
    """Masks as the positions they keep; an index on the CPU is brought over, as PyTorch allows."""
    found: list[Tensor | None] = []
    for one in indices:
        if one is None:
            found.append(None)
        elif one.dtype in _MASKS and one.ndim:
            found.extend(nonzero(one.to(device)).unbind(1))
        else:
            found.append(one.to(device))
    return found


def _covers(x: Tensor, indices: Indices, values: Tensor) -> bool:
    """Whether this is ``x[mask] = number``, which needs no positions."""
    return len(indices) == 1 and indices[0] is not None and indices[0].dtype is torch.bool and values.numel() == 1


@kernel(aten.index.Tensor)
def index(x: Tensor, indices: Indices) -> Tensor:
    """``x[i, :, j]``, with masks."""
    return _index((x, _by_position(indices, x.device)), {})


def _put_arguments(x: Tensor, indices: Indices, values: Tensor) -> tuple[Any, ...]:
    values = values.to(x.device)
    return (x, list(indices) if _covers(x, indices, values) else _by_position(indices, x.device), values)


@kernel(aten.index_put.default)
def index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of ``x`` with ``values`` at ``x[i, :, j]``."""
    return _index_put((*_put_arguments(x, indices, values), accumulate), {})


@kernel(aten.index_put_.default)
def index_put_in_place(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """``x[i, :, j] = values``, with masks."""
    if x.numel():
        _index_put_in_place((*_put_arguments(x, indices, values), accumulate), {}, (x,))
    return x


@kernel(aten._index_put_impl_.default)
def index_put_implementation(
    x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """:func:`index_put_in_place` by its inner name."""
    return index_put_in_place(x, indices, values, accumulate)
