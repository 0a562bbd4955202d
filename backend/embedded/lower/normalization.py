"""Batch, layer and group norm, and their gradients. Half precision is normalised in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from backend.embedded.lower.reduction import accumulated
from backend.embedded.lower.table import aten, lowers

Optional = jax.Array | None


def _channelwise(value: jax.Array, rank: int) -> jax.Array:
    return value.reshape(1, -1, *(1,) * (rank - 2))


def _others(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank))


def batch_norm(
    x: jax.Array,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: Any,
    eps: float,
) -> tuple[jax.Array, jax.Array, jax.Array, Optional, Optional]:
    """``(y, saved mean, saved 1/std, new running mean, new running variance)``.

    The running variance takes the unbiased estimate, the normalisation the biased one, as in
    Ioffe & Szegedy, arXiv 1502.03167, algorithm 1 and PyTorch.
    """
    value, axes = accumulated(x), _others(x.ndim)
    new_mean, new_var = running_mean, running_var
    if training:
        centre = jnp.mean(value, axes)
        variance = jnp.mean(lax.square(value - _channelwise(centre, x.ndim)), axes)
        count = x.size // x.shape[1]
        if running_mean is not None:
            new_mean = running_mean * (1 - momentum) + centre.astype(running_mean.dtype) * momentum
        if running_var is not None:
            unbiased = variance * (count / max(count - 1, 1))
            new_var = running_var * (1 - momentum) + unbiased.astype(running_var.dtype) * momentum
    else:
        assert running_mean is not None and running_var is not None, "PyTorch checks this"
        centre, variance = accumulated(running_mean), accumulated(running_var)
    inverse = lax.rsqrt(variance + eps)
    # One scale and one shift a channel: a multiply and an add per element.
    scale = inverse if weight is None else inverse * weight
    shift = -centre * scale if bias is None else bias - centre * scale
    y = value * _channelwise(scale, x.ndim) + _channelwise(shift, x.ndim)
    return y, centre, inverse, new_mean, new_var


@lowers(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    x: jax.Array,
    weight: Optional,
    bias: Optional,
    running_mean: jax.Array,
    running_var: jax.Array,
    training: bool,
    momentum: Any,
    eps: float,
) -> tuple[Any, ...]:
    """:func:`batch_norm` by the name that graphs have it under."""
    return batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)


@lowers(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    x: jax.Array,
    weight: Optional,
    bias: Optional,
    running_mean: jax.Array,
    running_var: jax.Array,
    momentum: Any,
    eps: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalisation by the running statistics, which are also what is saved."""
    return batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps)[:3]


@lowers(aten._native_batch_norm_legit.no_stats)
def batch_norm_without_statistics(
    x: jax.Array, weight: Optional, bias: Optional, training: bool, momentum: Any, eps: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalisation by the batch's own statistics."""
    return batch_norm(x, weight, bias, None, None, True, momentum, eps)[:3]


@lowers(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    grad: jax.Array,
    x: jax.Array,
    weight: Optional,
    running_mean: Optional,
    running_var: Optional,
    save_mean: Optional,
    save_invstd: Optional,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Optional, Optional, Optional]:
    """The gradients of input, weight and bias, each where ``output_mask`` asks for it."""
    value, g, axes, rank = accumulated(x), accumulated(grad), _others(x.ndim), x.ndim
    if train:
        assert save_mean is not None and save_invstd is not None, "the forward pass saves them"
        centre, inverse = save_mean, save_invstd
    else:
        assert running_mean is not None and running_var is not None, "PyTorch checks this"
        centre, inverse = accumulated(running_mean), lax.rsqrt(accumulated(running_var) + eps)
    deviation = value - _channelwise(centre, rank)
    grad_sum = jnp.sum(g, axes)
    projection = jnp.sum(g * deviation, axes)
    wants_input, wants_weight, wants_bias = output_mask
    grad_input = None
    if wants_input:
        scale = inverse if weight is None else inverse * weight
        grad_input = g
        if train:
            count = x.size // x.shape[1]
            slope = projection * inverse * inverse / count
            grad_input = g - _channelwise(grad_sum / count, rank) - deviation * _channelwise(slope, rank)
        grad_input = grad_input * _channelwise(scale, rank)
    return grad_input, projection * inverse if wants_weight else None, grad_sum if wants_bias else None


@lowers(aten.native_layer_norm.default)
def layer_norm(
    x: jax.Array, normalized_shape: Sequence[int], weight: Optional, bias: Optional, eps: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``(y, mean, 1/std)`` over the last dimensions (Ba et al., arXiv 1607.06450)."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    value = accumulated(x)
    centre = jnp.mean(value, axes, keepdims=True)
    inverse = lax.rsqrt(jnp.mean(lax.square(value - centre), axes, keepdims=True) + eps)
    y = (value - centre) * inverse
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, centre, inverse


@lowers(aten.native_layer_norm_backward.default)
def layer_norm_backward(
    grad: jax.Array,
    x: jax.Array,
    normalized_shape: Sequence[int],
    mean: jax.Array,
    rstd: jax.Array,
    weight: Optional,
    bias: Optional,
    output_mask: Sequence[bool],
) -> tuple[Optional, Optional, Optional]:
    """The gradients of input, weight and bias, each where ``output_mask`` asks for it."""
    outer = tuple(range(x.ndim - len(normalized_shape)))
    inner = tuple(range(len(outer), x.ndim))
    g = accumulated(grad)
    normal = (accumulated(x) - mean) * rstd
    wants_input, wants_weight, wants_bias = output_mask
    grad_input = None
    if wants_input:
        slope = g if weight is None else g * weight
        centred = slope - jnp.mean(slope, inner, keepdims=True)
        grad_input = rstd * (centred - normal * jnp.mean(slope * normal, inner, keepdims=True))
    return (
        grad_input,
        jnp.sum(g * normal, outer) if wants_weight else None,
        jnp.sum(g, outer) if wants_bias else None,
    )


@lowers(aten.native_group_norm.default)
def group_norm(
    x: jax.Array,
    weight: Optional,
    bias: Optional,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``(y, mean, 1/std)`` over each of ``groups`` groups of channels (Wu & He, arXiv 1803.08494)."""
    value = accumulated(x).reshape(batch, groups, channels // groups * pixels)
    centre = jnp.mean(value, -1, keepdims=True)
    inverse = lax.rsqrt(jnp.mean(lax.square(value - centre), -1, keepdims=True) + eps)
    y = ((value - centre) * inverse).reshape(x.shape)
    y = y if weight is None else y * _channelwise(weight, x.ndim)
    y = y if bias is None else y + _channelwise(bias, x.ndim)
    return y, centre[..., 0], inverse[..., 0]
