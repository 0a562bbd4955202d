"""Model FLOPs counted op by op, on meta tensors: shapes only, nothing is computed.

A count of our own: torch's FlopCounterMode passes over the CPU's flash attention, and XLA's cost
analysis skips padding taps and counts a loop's body once. What is counted is what the model asks
for: matrix products, convolutions and attention, 2 FLOPs a multiply-add (PaLM, arXiv 2204.02311,
appendix B, counts the same). Not counted: a forward that activation checkpointing runs again, and
the scores that a backward attention kernel works out again. Causal attention, where the model asks
for it with ``scaled_dot_product_attention(is_causal=True)``, is counted half; a mask that is a tensor
is counted in full, for its zeros are values and not shapes.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from workloads.protocol import Built


@dataclasses.dataclass(frozen=True, slots=True)
class FlopCount:
    """FLOPs of one step; ``by_op`` sums to ``total``. Parameters are the module's, tied ones once, at its dtype.

    ``activation_bytes`` is what autograd keeps from forward for backward, beside parameters and inputs, each
    storage once; 0 where nothing is differentiated. A compiler that recomputes or fuses keeps less.
    """

    total: float
    by_op: dict[str, float]
    parameters: int
    parameter_bytes: int
    activation_bytes: int


def disagreement(counted: float, analytic: float) -> float:
    """How far the count is from the formula, as a share of the formula."""
    if counted == analytic:
        return 0.0
    return abs(counted - analytic) / analytic if analytic else math.inf


def count(built: Built, phase: str, batch: int, seq_len: int | None, seed: int) -> FlopCount:
    """The FLOPs of one step of ``built``, which stays as it is.

    Beside what ``built`` holds already no memory is taken.
    """
    import torch

    module = _on_meta(built.module)
    parameters = list(module.parameters())
    inputs = built.make_batch(batch, seq_len, seed, "meta")
    saved: dict[int, torch.UntypedStorage] = {}
    known = {_storage(x) for x in (*parameters, *module.buffers(), *inputs)}

    def keep(x: torch.Tensor) -> torch.Tensor:
        if _storage(x) not in known:
            # Held, so that its identity stays its own until the end.
            saved[_storage(x)] = x.untyped_storage()
        return x

    with counting() as counter, torch.set_grad_enabled(phase == "train"):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            result = built.compute(module, *inputs)
        if phase == "train":
            counter.in_backward = True
            result.backward()  # type: ignore[no-untyped-call]
    by_op = dict(counter.by_op)
    return FlopCount(
        sum(by_op.values()),
        by_op,
        parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        activation_bytes=sum(storage.nbytes() for storage in saved.values()),
    )


def _storage(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _on_meta(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of ``module`` without its values: tied parameters stay tied, nothing is allocated."""
    import torch

    memo: dict[int, Any] = {}
    for tensor in [*module.parameters(), *module.buffers()]:
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        if isinstance(tensor, torch.nn.Parameter):
            meta = torch.nn.Parameter(meta, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = meta
    return copy.deepcopy(module, memo)


# -- formulas ------------------------------------------------------------------------------------------
Shape = Sequence[int]


def matmul(a: Shape, b: Shape) -> float:
    """(..., m, k) by (..., k, n): 2 m k n a matrix."""
    return 2.0 * math.prod(a) * (b[-1] if len(b) > 1 else 1)


def convolution(weight: Shape, positions: Shape, batch: int) -> float:
    """2 x batch x weights x the places each weight is used at.

    ``weight`` is (out, in / groups, ...) or, transposed, (in, out / groups, ...); ``positions`` are
    the output's spatial sizes, transposed the input's: every weight meets every position once.
    """
    return 2.0 * batch * math.prod(weight) * math.prod(positions)


def attention(query: Shape, key: Shape, value: Shape, causal: bool) -> float:
    """(..., heads, queries, d) by (..., keys, d), then by (..., keys, dv).

    Causal: half of the square in which query i sees the keys up to i; queries past it see every key.
    """
    *lead, queries, depth = query
    keys = key[-2]
    square = min(queries, keys)
    seen = square * square / 2 + (queries - square) * keys if causal else queries * keys
    return 2.0 * math.prod(lead) * seen * (depth + value[-1])


def grouped_matmul(a: Shape, b: Shape) -> float:
    """Products of groups of rows or columns, each with its own matrix, however the rows are shared out.

    (m, k) by (groups, k, n), (groups, m, k) by (k, n) and (m, k) by (k, n): 2 m k n in all.
    """
    if len(a) == len(b) == 3:
        return matmul(a, b)
    return 2.0 * a[-2] * a[-1] * b[-1]


# -- ops ---------------------------------------------------------------------------------------------
Arguments = Mapping[str, Any]  # of one call, by the names of the op's schema
Rule = Callable[[Arguments, Any], float]  # from the arguments and the result to FLOPs


def _product(a: str, b: str, formula: Callable[[Shape, Shape], float] = matmul) -> Rule:
    return lambda given, out: formula(given[a].shape, given[b].shape)


def _one_convolution(given: Arguments, output: torch.Tensor) -> float:
    x, weight = given["input"].shape, given["weight"].shape
    spatial = len(weight) - 2
    positions = (x if given["transposed"] else output.shape)[-spatial:]
    return convolution(weight, positions, x[0] if len(x) > spatial + 1 else 1)


def _convolution(given: Arguments, out: Any) -> float:
    return _one_convolution(given, out)


def _convolution_backward(given: Arguments, out: Any) -> float:
    # The gradients of the input and of the weight are a product each; the bias's is a sum.
    wanted = bool(given["output_mask"][0]) + bool(given["output_mask"][1])
    return wanted * _one_convolution(given, given["grad_output"])


def _attention(given: Arguments, out: Any) -> float:
    query, key, value = (given[name].shape for name in ("query", "key", "value"))
    return attention(query, key, value, given["is_causal"])


def _attention_backward(given: Arguments, out: Any) -> float:
    # Four products where forward has two.
    return 2 * _attention(given, out)


_FUSED = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
_RULES: dict[str, Rule] = {
    "mm": _product("self", "mat2"),
    "bmm": _product("self", "mat2"),
    "mv": _product("self", "vec"),
    "dot": _product("self", "tensor"),
    "vdot": _product("self", "other"),
    "addmm": _product("mat1", "mat2"),
    "addmv": _product("mat", "vec"),
    "baddbmm": _product("batch1", "batch2"),
    "addbmm": _product("batch1", "batch2"),
    "_addmm_activation": _product("mat1", "mat2"),
    "_int_mm": _product("self", "mat2"),
    "_scaled_mm": _product("self", "mat2"),
    "_grouped_mm": _product("self", "mat2", grouped_matmul),
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "convolution_backward_overrideable": _convolution_backward,
    "scaled_dot_product_attention": _attention,
    **{f"_scaled_dot_product_{kind}": _attention for kind in _FUSED},
    **{f"_scaled_dot_product_{kind}_backward": _attention_backward for kind in _FUSED},
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
}


def _by_name(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    given = {a.name: a.default_value for a in func._schema.arguments}
    given.update(zip(given, args, strict=False))
    return given | dict(kwargs)


# -- counting ------------------------------------------------------------------------------------------
@contextlib.contextmanager
def counting() -> Iterator[Any]:
    """Count every op that runs inside: ``by_op`` of what it gives is FLOPs by the op's name.

    Set ``in_backward`` before a step's backward: what then runs with gradients recorded is
    recomputation. Attention on meta tensors is counted as one op.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.by_op: dict[str, float] = defaultdict(float)
            self.in_backward = False

        def add(self, name: str, flops: float) -> None:
            if not (self.in_backward and torch.is_grad_enabled()):
                self.by_op[name] += flops

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = func._schema.name.removeprefix("aten::")
            rule = _RULES.get(name)
            if rule is None:
                # In inference mode ops arrive whole: a linear layer as `linear`, not as its product.
                with self:
                    out = func.decompose(*args, **kwargs)
                return func(*args, **kwargs) if out is NotImplemented else out
            out = func(*args, **kwargs)
            self.add(name, rule(_by_name(func, args, kwargs), out))
            return out

    counter = Counting()
    with _whole_attention(counter.add), counter:
        yield counter


@contextlib.contextmanager
def _whole_attention(add: Callable[[str, float], None]) -> Iterator[None]:
    """Attention on meta tensors as one op: torch would take it apart there, into products without a mask."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any, out: Shape, products: Any) -> Any:
            ctx.save_for_backward(query, key, value, mask)
            ctx.products = products
            return query.new_empty(out)

        @staticmethod
        def backward(ctx: Any, *grad: Any) -> Any:
            query, key, value, mask = ctx.needs_input_grad[:4]
            # dV = P' dO and dP = dO V'; from dP come dQ = dS K and dK = dS' Q.
            scores, values = ctx.products
            flops = values * (value + (query or key or mask)) + scores * (query + key)
            add("scaled_dot_product_attention_backward", flops)
            wanted = zip(ctx.saved_tensors, ctx.needs_input_grad[:4], strict=True)
            return (*(torch.empty_like(x) if needed else None for x, needed in wanted), None, None)

    def kernel(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        lead = query.shape[:-2]
        if not enable_gqa:
            lead = torch.broadcast_shapes(lead, key.shape[:-2], value.shape[:-2])  # type: ignore[no-untyped-call]
        queries, depth = query.shape[-2:]
        # The two products apart, for backward: the other one's width is set to nothing.
        scores = attention((*lead, queries, depth), key.shape, (0,), is_causal)
        values = attention((*lead, queries, 0), key.shape, value.shape, is_causal)
        # Counted here and not in forward, which never records gradients: recomputation is told by them.
        add("scaled_dot_product_attention", scores + values)
        out = (*lead, queries, value.shape[-1])
        return Attention.apply(query, key, value, attn_mask, out, (scores, values))  # type: ignore[no-untyped-call]

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("scaled_dot_product_attention", kernel, "AutogradMeta")
        yield
