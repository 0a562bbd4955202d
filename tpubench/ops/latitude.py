"""Where PyTorch leaves the result of an op to the device: equals in any order, statistics in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from tpubench.ops.sample import Mismatch

Tensor = torch.Tensor

#: Ops that give positions, and which of their arguments after the first is ``dim``.
_POSITIONS = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0}
#: Those of them whose positions are all different.
_PERMUTATIONS = ("sort", "argsort", "topk")
#: PyTorch's own rule keeps their statistics in float32 on any device but the CPU (torch/_decomp/decompositions.py,
#: ``native_layer_norm`` and ``_native_batch_norm_legit``).
_STATISTICS = ("native_layer_norm", "native_batch_norm", "_native_batch_norm_legit")
#: Ops that take their tensor arguments after the first from the host, on every device.
HOST_ARGUMENTS = ("tensor_split",)


def settled(name: str, got: Any, expected: Any, given: tuple[Any, Sequence[Any], dict[str, Any]]) -> tuple[Any, Any]:
    """``got`` and ``expected`` of op ``name``, alike in what PyTorch leaves open; ``given`` is its call on the CPU.

    A position becomes what stands there, and a float32 statistic is rounded to the CPU's dtype.

    Raises:
        Mismatch: a position that is none, or that is given twice.
    """
    if name in _STATISTICS:
        return _rounded(got, expected), expected
    x, args, named = given
    if name not in _POSITIONS or not isinstance(x, Tensor) or not x.ndim or named.get("stable"):
        return got, expected
    place = _POSITIONS[name]
    dim = named.get("dim", args[place] if len(args) > place else -1)
    unordered = named.get("sorted") is False or (name == "topk" and len(args) > 3 and not args[3])

    def pointed(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.detach().cpu()
        return leaf.sort(dim).values if unordered and leaf.ndim else leaf

    def stood(result: Any) -> Any:
        if isinstance(result, Tensor):
            return _stood(x.detach(), result.detach().cpu(), dim, True) if name == "argsort" else result
        if not isinstance(result, tuple) or len(result) != 2:
            return result
        values, positions = result
        picked = _stood(x.detach(), positions.detach().cpu(), dim, name in _PERMUTATIONS)
        return tree_map(pointed, (values, picked))

    return stood(got), stood(expected)


def _stood(x: Tensor, positions: Tensor, dim: int, distinct: bool) -> Tensor:
    """What stands in ``x`` at ``positions`` along ``dim``."""
    if not positions.numel():
        return positions
    if int(positions.min()) < 0 or int(positions.max()) >= x.shape[dim]:
        raise Mismatch(f"position {int(positions.max())} along a dimension of {x.shape[dim]}")
    if distinct and bool((positions.sort(dim).values.diff(dim=dim) == 0).any()):
        raise Mismatch("one position is given twice")
    whole = positions if positions.ndim == x.ndim else positions.unsqueeze(dim)
    return x.gather(dim, whole)


def _rounded(got: Any, expected: Any) -> Any:
    def one(a: Any, b: Any) -> Any:
        reduced = isinstance(b, Tensor) and b.dtype in (torch.bfloat16, torch.float16)
        return a.to(b.dtype) if reduced and isinstance(a, Tensor) and a.dtype is torch.float32 else a

    if isinstance(got, tuple) and isinstance(expected, tuple):
        return tuple(one(a, b) for a, b in zip(got, expected, strict=False))
    return one(got, expected)
