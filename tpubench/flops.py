"""Model FLOPs counted op by op, on meta tensors: shapes only, nothing is computed.

A count of our own: torch's FlopCounterMode passes over the CPU's flash attention, and XLA's cost
analysis skips padding taps and counts a loop's body once. What is counted is what the model asks
for: matrix products, convolutions and attention, 2 FLOPs a multiply-add (PaLM, arXiv 2204.02311,
appendix B, counts the same). Causal attention is counted half.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from workloads.protocol import Built


@dataclasses.dataclass(frozen=True, slots=True)
class FlopCount:
    """FLOPs of one step; ``by_op`` sums to ``total``. ``parameter_bytes`` is the module's, at its dtype."""

    total: float
    by_op: dict[str, float]
    parameter_bytes: int


def disagreement(counted: float, analytic: float) -> float:
    """How far the count is from the formula, as a share of the formula."""
    return abs(counted - analytic) / analytic if analytic else math.inf


def count(built: Built, phase: str, batch: int, seq_len: int | None, seed: int) -> FlopCount:
    """The FLOPs of one step of ``built``, which stays as it is."""
    import torch

    parameter_bytes = sum(p.numel() * p.element_size() for p in built.module.parameters())
    module = _on_meta(built.module)
    inputs = tuple(x.to("meta") for x in built.make_batch(batch, seq_len, seed))
    with _mode() as counter:
        if phase == "train":
            built.compute(module, *inputs).backward()  # type: ignore[no-untyped-call]
        else:
            with torch.no_grad():
                built.compute(module, *inputs)
    by_op = dict(counter.by_op)
    return FlopCount(sum(by_op.values()), by_op, parameter_bytes)


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
    """(..., heads, queries, d) by (..., keys, d), then by (..., keys, dv); half where it is causal."""
    *lead, queries, depth = query
    pairs = math.prod(lead) * queries * key[-2]
    return 2.0 * pairs * (depth + value[-1]) * (0.5 if causal else 1.0)


def _conv_forward(args: Sequence[Any], out: Any) -> float:
    x, weight, transposed = args[0].shape, args[1].shape, args[6]
    spatial = len(weight) - 2
    positions = x[-spatial:] if transposed else out.shape[-spatial:]
    return convolution(weight, positions, x[0] if len(x) > spatial + 1 else 1)


def _conv_backward(args: Sequence[Any], out: Any) -> float:
    grad, x, weight, transposed, mask = args[0].shape, args[1].shape, args[2].shape, args[7], args[10]
    spatial = len(weight) - 2
    positions = x[-spatial:] if transposed else grad[-spatial:]
    one = convolution(weight, positions, x[0] if len(x) > spatial + 1 else 1)
    return one * (bool(mask[0]) + bool(mask[1]))


def _sdpa_forward(causal_at: int) -> Callable[[Sequence[Any], Any], float]:
    def flops(args: Sequence[Any], out: Any) -> float:
        causal = bool(args[causal_at]) if len(args) > causal_at else False
        return attention(args[0].shape, args[1].shape, args[2].shape, causal)

    return flops


def _sdpa_backward(causal_at: int) -> Callable[[Sequence[Any], Any], float]:
    def flops(args: Sequence[Any], out: Any) -> float:
        # Four products where forward has two; recomputing the scores is the kernel's choice, not the model's.
        causal = bool(args[causal_at]) if len(args) > causal_at else False
        return 2 * attention(args[1].shape, args[2].shape, args[3].shape, causal)

    return flops


#: FLOPs of one call by op name, from its positional arguments and its result.
_RULES: dict[str, Callable[[Sequence[Any], Any], float]] = {
    "mm": lambda a, out: matmul(a[0].shape, a[1].shape),
    "bmm": lambda a, out: matmul(a[0].shape, a[1].shape),
    "mv": lambda a, out: matmul(a[0].shape, a[1].shape),
    "dot": lambda a, out: matmul(a[0].shape, a[1].shape),
    "addmm": lambda a, out: matmul(a[1].shape, a[2].shape),
    "baddbmm": lambda a, out: matmul(a[1].shape, a[2].shape),
    "addmv": lambda a, out: matmul(a[1].shape, a[2].shape),
    "convolution": _conv_forward,
    "convolution_overrideable": _conv_forward,
    "convolution_backward": _conv_backward,
    "convolution_backward_overrideable": lambda a, out: _conv_backward([*a[:3], None, *a[3:]], out),
    "_scaled_dot_product_flash_attention": _sdpa_forward(4),
    "_scaled_dot_product_flash_attention_for_cpu": _sdpa_forward(4),
    "_scaled_dot_product_efficient_attention": _sdpa_forward(6),
    "_scaled_dot_product_cudnn_attention": _sdpa_forward(6),
    "_scaled_dot_product_flash_attention_backward": _sdpa_backward(11),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _sdpa_backward(7),
    "_scaled_dot_product_efficient_attention_backward": _sdpa_backward(11),
    "_scaled_dot_product_cudnn_attention_backward": _sdpa_backward(14),
}


def _mode() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.by_op: dict[str, float] = defaultdict(float)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            name = func._schema.name.removeprefix("aten::")
            rule = _RULES.get(name)
            if rule is not None:
                self.by_op[name] += rule(args, out)
            return out

    return Counting()
