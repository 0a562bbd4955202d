"""Convolution of one to three spatial dimensions, and its gradients, in PyTorch's NC... layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from backend.embedded.lower.table import aten, lowers
from backend.embedded.platform import target

Sizes = Sequence[int]


def spread(values: Sizes, rank: int) -> list[int]:
    """PyTorch lets one number stand for every spatial dimension."""
    return list(values) * rank if len(values) == 1 else list(values)


def _numbers(rank: int) -> tuple[str, str, str]:
    spatial = "DHW"[-rank:]
    return f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"


def _convolve(
    x: jax.Array,
    weight: jax.Array,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> jax.Array:
    rank = x.ndim - 2
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=stride,
        padding=[(p, p) for p in padding],
        rhs_dilation=dilation,
        dimension_numbers=_numbers(rank),
        feature_group_count=groups,
    )


def _convolve_by_columns(
    x: jax.Array, weight: jax.Array, stride: list[int], padding: list[int], dilation: list[int]
) -> jax.Array:
    """The same convolution as one matrix product over the pixels that each output sees, side by side."""
    rank = x.ndim - 2
    out_channels, _, *kernel = weight.shape
    last = x.transpose(0, *range(2, rank + 2), 1)
    padded = jnp.pad(last, [(0, 0), *((p, p) for p in padding), (0, 0)])
    output = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[1:-1], kernel, stride, dilation, strict=True)
    ]
    seen = []
    for place in itertools.product(*(range(k) for k in kernel)):
        window = [
            slice(i * d, i * d + (o - 1) * s + 1, s) for i, d, o, s in zip(place, dilation, output, stride, strict=True)
        ]
        seen.append(padded[(slice(None), *window)])
    # Channels outside, kernel places inside: the weight's own order, so that it is never transposed.
    columns = jnp.stack(seen, axis=-1).reshape(-1, weight[0].size)
    y = lax.dot_general(columns, weight.reshape(out_channels, -1), (((1,), (1,)), ((), ())))
    y = y.reshape(x.shape[0], *output, out_channels)
    return y.transpose(0, rank + 1, *range(1, rank + 1))


def _exceeds(kernel: Sizes, dilation: list[int], image: Sizes) -> bool:
    """Whether a kernel reaches beyond an image on some side.

    XLA's CPU compiler then leaves its library for a plain loop, some thirty times slower (measured:
    512 channels, 3x3 on 2x2, batch 16: 143 ms against 5 ms).
    """
    return any(d * (k - 1) + 1 > n for k, d, n in zip(kernel, dilation, image, strict=True))


def _convolve_transposed(
    x: jax.Array,
    weight: jax.Array,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    output_padding: list[int],
    groups: int,
) -> jax.Array:
    """The transpose of a convolution whose weight is (in, out / groups, ...): a dilated one, kernel mirrored."""
    rank = x.ndim - 2
    channels_in, channels_out, *kernel = weight.shape
    grouped = weight.reshape(groups, channels_in // groups, channels_out, *kernel)
    mirrored = jnp.flip(
        jnp.swapaxes(grouped, 1, 2).reshape(groups * channels_out, channels_in // groups, *kernel),
        tuple(range(2, 2 + rank)),
    )
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return lax.conv_general_dilated(
        x,
        mirrored,
        window_strides=[1] * rank,
        padding=[(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)],
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=_numbers(rank),
        feature_group_count=groups,
    )


def _linear_in_both(
    rank: int,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    kernel: Sizes,
    image: Sizes,
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The convolution of an input and a weight; ``image`` is the smallest that the kernel will meet."""
    step, pad, gap, extra = (spread(v, rank) for v in (stride, padding, dilation, output_padding))
    if transposed:
        return lambda x, w: _convolve_transposed(x, w, step, pad, gap, extra, groups)
    if groups == 1 and target() == "cpu" and _exceeds(kernel, gap, image):
        return lambda x, w: _convolve_by_columns(x, w, step, pad, gap)
    return lambda x, w: _convolve(x, w, step, pad, gap, groups)


@lowers(aten.convolution.default)
def convolution(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> jax.Array:
    """``x`` (N, C, ...) or (C, ...) convolved with ``weight``, plus ``bias`` (C_out)."""
    rank = weight.ndim - 2
    batched = x.ndim == weight.ndim
    function = _linear_in_both(
        rank, stride, padding, dilation, transposed, output_padding, groups, weight.shape[2:], x.shape[-rank:]
    )
    y = function(x if batched else x[None], weight)
    if bias is not None:
        y = y + bias.reshape(-1, *(1,) * rank)
    return y if batched else y[0]


@lowers(aten.convolution_backward.default)
def convolution_backward(
    grad: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
    """The gradients of input, weight and bias, each where ``output_mask`` asks for it.

    A convolution is linear in its input and in its weight, so each gradient is a transpose.
    """
    rank = weight.ndim - 2
    wants_input, wants_weight, wants_bias = output_mask

    def function(image: Sizes) -> Callable[[jax.Array, jax.Array], jax.Array]:
        return _linear_in_both(
            rank, stride, padding, dilation, transposed, output_padding, groups, weight.shape[2:], image
        )

    grad_input = grad_weight = grad_bias = None
    if wants_input:
        (grad_input,) = jax.linear_transpose(lambda v: function(grad.shape[2:])(v, weight), x)(grad)
    if wants_weight:
        (grad_weight,) = jax.linear_transpose(lambda v: function(x.shape[2:])(x, v), weight)(grad)
    if wants_bias:
        grad_bias = jnp.sum(grad, axis=(0, *range(2, grad.ndim)))
    return grad_input, grad_weight, grad_bias
