"""Ops that have no kernel of their own: found in the table on first use, decomposed, or refused by name.

PyTorch hands every op here that nothing was registered for. In-place and ``out=`` forms are served
by the functional op of the same signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from backend.embedded.buffer import buffer_of, is_dense
from backend.embedded.cache import COUNTERS
from backend.embedded.conjugation import TAKES_NOTES, resolved
from backend.embedded.decompose import decompositions
from backend.embedded.dispatch import Op
from backend.embedded.errors import DevicesDiffer, OpNotLowered
from backend.embedded.generator import driven
from backend.embedded.layout import refuse_overlap
from backend.embedded.lower import TABLE
from backend.embedded.lower.table import takes_tensors

aten = torch.ops.aten
Tensor = torch.Tensor
Kernel = Callable[..., Any]

_allowed = False
_kernels: dict[torch._ops.OpOverload, Kernel] = {}


def allow(on_cpu: bool) -> None:
    """Whether an op without a lowering runs on the CPU, counted, instead of failing."""
    global _allowed
    _allowed = on_cpu


def has_lowering(op: torch._ops.OpOverload) -> bool:
    """Whether ``op``, a functional op, can become a program."""
    return op in TABLE or op in decompositions()


def _written(op: torch._ops.OpOverload) -> list[str]:
    return [a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _shape_of(op: torch._ops.OpOverload) -> list[tuple[str, str]]:
    """What a call of ``op`` takes, less ``out=``, with aliasing left out of the types."""
    return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]


def functional_form(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The op of the same signature that writes nothing, None where there is none."""
    base = op._schema.name.split("::")[1]
    for name in (base, base.removesuffix("_")):
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            candidate = getattr(packet, overload)
            if not candidate._schema.is_mutable and _shape_of(candidate) == _shape_of(op):
                return candidate
    return None


def written_forms(op: torch._ops.OpOverload) -> Iterator[torch._ops.OpOverload]:
    """The in-place and ``out=`` forms of a functional op."""
    base = op._schema.name.split("::")[1]
    for name in (base, f"{base}_"):
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            candidate = getattr(packet, overload)
            if candidate._schema.is_mutable and takes_tensors(candidate) and _shape_of(candidate) == _shape_of(op):
                yield candidate


def kernel_of(op: torch._ops.OpOverload) -> Kernel | None:
    """A kernel for ``op`` by its lowering or its decomposition, None where it has neither."""
    run = _kernel_of(op)
    if run is not None:
        run = driven(op, run)
    if run is None or op._schema.name.split("::")[1].removesuffix("_") not in TAKES_NOTES:
        return run
    plain, kept = run, int(op._schema.is_mutable)  # what is written is no copy of it
    return lambda *args, **kwargs: plain(*args[:kept], *map(resolved, args[kept:]), **kwargs)


def _kernel_of(op: torch._ops.OpOverload) -> Kernel | None:
    if not op._schema.is_mutable:
        return _functional(Op(op)) if has_lowering(op) else None
    functional = functional_form(op)
    if functional is None or not has_lowering(functional):
        return None
    outs = [a.name for a in op._schema.arguments if a.is_out]
    if outs:
        return _out(Op(functional), outs)
    if str(op._schema.arguments[0].type) == "List[Tensor]":
        return _inplace_list(Op(functional, op))
    return Op(functional, op).in_place


def _functional(op: Op) -> Kernel:
    returns_list = [str(r.type) for r in op.op._schema.returns] == ["List[Tensor]"]
    if returns_list:
        return lambda *args, **kwargs: list(op(args, kwargs))
    return op.functional


def _inplace_list(op: Op) -> Kernel:
    def run(targets: list[Tensor], *args: Any, **kwargs: Any) -> None:
        if len({id(buffer_of(t)) for t in targets}) == len(targets):
            if targets:
                op((targets, *args), kwargs, targets)
            return
        # Entries that share memory see each other's writes, in order.
        for i, target in enumerate(targets):
            one = [[a[i]] if isinstance(a, list | tuple) else a for a in args]
            op(([target], *one), kwargs, (target,))

    return run


_alias = Op(aten.alias.default)


def put(out: Tensor, result: Tensor) -> None:
    """``out`` takes the values of ``result``, and its size where it has another.

    Raises:
        DevicesDiffer: ``out`` is elsewhere.
    """
    if out.device != result.device:
        raise DevicesDiffer("an op with out=", out.device)
    if out.shape != result.shape:
        out.resize_(result.shape)
        if not is_dense(tuple(result.shape), result.stride()):
            out.as_strided_(result.shape, result.stride())
    refuse_overlap(aten.copy_.default, out)
    if out.numel():
        _alias((result,), {}, (out,))


def _out(op: Op, names: list[str]) -> Kernel:
    def run(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(name) for name in names if name in kwargs]
        missing = len(names) - len(outs)
        if missing:
            outs, args = [*outs, *args[-missing:]], args[:-missing]
        results = op(args, kwargs)
        for out, result in zip(outs, results if isinstance(results, tuple) else (results,), strict=False):
            put(out, result)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return run


def on_cpu(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``op`` on CPU copies, its writes and results brought back. Counted."""
    COUNTERS.cpu_fallbacks[str(op)] += 1
    copies: list[tuple[Tensor, Tensor]] = []

    def down(value: Any) -> Any:
        if isinstance(value, Tensor) and value.device.type == "pjrt":
            copies.append((value, value.cpu()))
            return copies[-1][1]
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def up(value: Any) -> Any:
        if isinstance(value, Tensor):
            same = [original for original, copy in copies if copy is value]
            return same[0] if same else value.to("pjrt")
        return value

    tree_map = torch.utils._pytree.tree_map
    result = op(*tree_map(down, list(args)), **tree_map(down, kwargs))
    if op._schema.is_mutable:
        for original, copy in copies:
            if original.shape != copy.shape:
                original.resize_(copy.shape)
            original.copy_(copy)
    return tree_map(up, result)


def fallback(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Any op that nothing was registered for.

    Raises:
        OpNotLowered: it has no lowering, and the CPU is not allowed.
    """
    run = _kernels.get(op)
    if run is None:
        found = kernel_of(op)
        if found is not None:
            run = _kernels[op] = found
    if run is None:
        if _allowed:
            return on_cpu(op, args, kwargs)
        raise OpNotLowered(op)
    try:
        return run(*args, **kwargs)
    except OpNotLowered:
        if _allowed:
            return on_cpu(op, args, kwargs)
        raise
