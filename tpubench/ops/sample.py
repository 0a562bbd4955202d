"""One call of an op on the device and on the CPU, and how far apart the results are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

Tensor = torch.Tensor
Call = Callable[..., Any]

#: Relative and absolute tolerance by dtype of the compared values. Integers and bools must be equal.
TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (4e-3, 2e-3),
    torch.complex64: (1e-4, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
_WIDER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
    torch.complex64: torch.complex128,
}
#: A value outside the tolerance passes where the CPU's own rounding error is as large, within this factor.
_OWN_ERROR = 4.0


class Mismatch(Exception):
    """The device's result is another than the CPU's."""

    def __init__(self, text: str, absolute: float | None = None, relative: float | None = None) -> None:
        super().__init__(text)
        self.absolute = absolute
        self.relative = relative


def moved(value: Any, device: str, wide: bool = False) -> Any:
    """A copy of ``value`` on ``device``: a tensor keeps its strides, its offset and what of its storage it shows.

    ``wide``: a floating-point tensor comes in the next wider dtype.
    """
    if isinstance(value, torch.device):
        return torch.device(device)
    if not isinstance(value, Tensor):
        return value
    plain = value.detach()
    if plain.is_conj() or plain.is_neg() or plain.layout is not torch.strided or plain.is_quantized:
        copy = plain.clone().to(device)
    else:
        size = plain.untyped_storage().nbytes() // max(plain.element_size(), 1)
        whole = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage(), 0, (size,), (1,))
        copy = whole.clone().to(device).as_strided(plain.shape, plain.stride(), plain.storage_offset())
    if wide:
        copy = copy.to(_WIDER.get(copy.dtype, copy.dtype))
    return copy.requires_grad_(value.requires_grad)


def arguments(
    sample: Any, device: str, wide: bool = False, on_host: bool = False
) -> tuple[Any, list[Any], dict[str, Any]]:
    """``(input, args, kwargs)`` of an OpInfo sample, copied to ``device``.

    ``wide``: in the next wider dtype. ``on_host``: what comes after the input is copied to the CPU.
    """

    def there(value: Any) -> Any:
        return moved(value, device, wide)

    named = {k: device if k == "device" else tree_map(there, v) for k, v in sample.kwargs.items()}
    asked = named.get("dtype")
    if wide and isinstance(asked, torch.dtype):
        named["dtype"] = _WIDER.get(asked, asked)
    rest = tree_map(lambda value: moved(value, "cpu"), sample.args) if on_host else tree_map(there, sample.args)
    return tree_map(there, sample.input), list(rest), named


def gradients(output: Any, inputs: Any) -> list[Tensor | None]:
    """The gradients of the sum of all outputs with respect to every input that asks for one."""
    outputs = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.requires_grad]
    leaves = [x for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not outputs or not leaves:
        return []
    sums = [x.abs().sum() if x.is_complex() else x.sum() for x in outputs]
    return list(torch.autograd.grad(sums, leaves, allow_unused=True))


def compare(got: Any, expected: Any, values: bool, wide: Callable[[], Any] | None = None) -> None:
    """Whether two results agree: structure, shapes and dtypes; where ``values``, numbers too.

    ``wide`` gives the result in a wider dtype, to judge by where they do not.

    Raises:
        Mismatch: they do not.
    """
    one, other = tree_leaves(got), tree_leaves(expected)
    if len(one) != len(other):
        raise Mismatch(f"{len(one)} results where the CPU gives {len(other)}")
    for place, (a, b) in enumerate(zip(one, other, strict=True)):
        if not isinstance(b, Tensor):
            if type(a) is not type(b) or (values and a != b and not (a != a and b != b)):
                raise Mismatch(f"{a!r} where the CPU gives {b!r}")
            continue
        if not isinstance(a, Tensor):
            raise Mismatch(f"{type(a).__name__} where the CPU gives a tensor")
        if a.shape != b.shape or a.dtype is not b.dtype:
            raise Mismatch(f"{tuple(a.shape)} {a.dtype} where the CPU gives {tuple(b.shape)} {b.dtype}")
        if values:
            _close(a.detach().cpu(), b.detach(), place, wide)


def _close(a: Tensor, b: Tensor, place: int, wide: Callable[[], Any] | None) -> None:
    a, b = a.to_dense() if a.layout is not torch.strided else a, b.to_dense() if b.layout is not torch.strided else b
    relative, absolute = TOLERANCES.get(b.dtype, (0.0, 0.0))
    try:
        torch.testing.assert_close(a, b, rtol=relative, atol=absolute, equal_nan=True)
        return
    except AssertionError:
        difference, share = _distance(a, b)
    if wide is not None and b.dtype in _WIDER and _as_good(a, b, place, wide, absolute):
        return
    raise Mismatch(f"off by {difference:.3g}, relatively {share:.3g}", difference, share)


def _as_good(a: Tensor, b: Tensor, place: int, wide: Callable[[], Any], absolute: float) -> bool:
    """Whether ``a`` is about as far from the wide result as the CPU's own ``b`` is."""
    try:
        leaves = tree_leaves(wide())
        exact = leaves[place].detach()
    except Exception:
        return False
    if not isinstance(exact, Tensor) or exact.shape != b.shape:
        return False
    exact = exact.to(_WIDER[b.dtype])
    ours, own = (x.to(exact.dtype) - exact for x in (a, b))
    finite = torch.isfinite(ours) & torch.isfinite(own)
    if not torch.equal(torch.nan_to_num(a[~finite]), torch.nan_to_num(b[~finite])):
        return False
    if not finite.any():
        return True
    return bool(ours[finite].abs().max() <= _OWN_ERROR * own[finite].abs().max() + absolute)


def _distance(a: Tensor, b: Tensor) -> tuple[float, float]:
    """The largest absolute difference, and the largest relative one."""
    if not b.numel():
        return 0.0, 0.0
    kind = torch.complex128 if b.is_complex() else torch.float64
    x, y = a.to(kind), b.to(kind)
    difference = torch.nan_to_num((x - y).abs(), nan=float("inf"))
    share = difference / y.abs().clamp_min(torch.finfo(torch.float64).tiny)
    return float(difference.max()), float(torch.nan_to_num(share, nan=0.0).max())


def spread(samples: Sequence[Any], limit: int) -> list[Any]:
    """``limit`` of ``samples``, evenly from first to last; 0: all."""
    if not limit or len(samples) <= limit:
        return list(samples)
    return [samples[i * (len(samples) - 1) // max(limit - 1, 1)] for i in range(limit)]
