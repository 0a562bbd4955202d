"""Ops without a lowering of their own: PyTorch's decomposition, traced, as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from backend.embedded.dtype import to_torch
from backend.embedded.errors import OpNotLowered
from backend.embedded.interpreter import as_function
from backend.embedded.lower import TABLE
from backend.embedded.promotion import Weak


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions into core ATen, less the ops that have a lowering here."""
    table = {**torch._decomp.decomposition_table, **torch._decomp.core_aten_decompositions()}

    def ours(function: Callable[..., Any]) -> bool:
        # Importing Inductor enters decompositions into its own primitives: they must not depend on that.
        return not getattr(function, "__module__", "").startswith("torch._inductor")

    # PyTorch's own for these calls an op on the real tensor that `torch.tensor` has made, which a trace refuses.
    left = {torch.ops.aten.lift.default, torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default}
    return {op: function for op, function in table.items() if op not in TABLE and op not in left and ours(function)}


def ingredients(op: torch._ops.OpOverload) -> list[Callable[..., Any]]:
    """Every function that the decomposition of ``op`` may come down to."""
    own = decompositions().get(op)
    return [*([own] if own is not None else []), *(lowering.function for lowering in TABLE.values())]


def decomposed(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """``op`` as a function of arrays, by its decomposition.

    Raises:
        OpNotLowered: it has none.
    """
    if op not in decompositions():
        raise OpNotLowered(op)

    def function(*given: Any, key: jax.Array | None = None, **named: Any) -> Any:
        leaves, spec = torch.utils._pytree.tree_flatten((list(given), named))
        leaves = [leaf.value if isinstance(leaf, Weak) else leaf for leaf in leaves]
        where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
        metas = [torch.empty(leaves[i].shape, dtype=to_torch(leaves[i].dtype), device="meta") for i in where]

        def call(*tensors: torch.Tensor) -> Any:
            filled = [torch.device("meta") if isinstance(leaf, torch.device) else leaf for leaf in leaves]
            for i, tensor in zip(where, tensors, strict=True):
                filled[i] = tensor
            inner_args, inner_named = torch.utils._pytree.tree_unflatten(filled, spec)
            return op(*inner_args, **inner_named)

        try:
            with torch.no_grad():
                module = make_fx(call, decomposition_table=decompositions())(*metas)
        except RuntimeError as error:
            if "data-dependent" not in str(error):
                raise
            raise OpNotLowered(op, "its decomposition reads values") from error
        if any(n.op == "call_function" and n.target is op for n in module.graph.nodes):
            raise OpNotLowered(op)
        return as_function(module)(*(leaves[i] for i in where), key=key)

    return function
