"""Bags of embeddings: rows of a table summed, averaged or maximised, bag by bag."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from backend.embedded.lower.table import aten, lowers

_SUM, _MEAN, _MAX = range(3)


def _bag_of(offsets: jax.Array, count: int, include_last: bool) -> tuple[jax.Array, int]:
    """``(the bag of each index, the number of bags)``."""
    bags = offsets.shape[0] - int(include_last)
    starts = offsets[:bags]
    return jnp.searchsorted(starts, jnp.arange(count, dtype=starts.dtype), side="right") - 1, bags


@lowers(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    weight: jax.Array, indices: jax.Array, offsets: jax.Array, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: jax.Array | None = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """``(bags, offset2bag, bag_size, maximum_indices)``; ``padding_idx`` counts in no bag."""
    if sparse:
        raise NotImplementedError("embedding_bag with sparse gradients has no lowering")
    count, width = indices.shape[0], weight.shape[1]
    bag, bags = _bag_of(offsets, count, include_last_offset)
    half = weight.dtype in (jnp.float16, jnp.bfloat16)
    rows = weight[indices].astype(jnp.float32 if half else weight.dtype)
    kept = indices != padding_idx if padding_idx >= 0 else jnp.ones((count,), jnp.bool_)
    if include_last_offset:
        kept &= jnp.arange(count, dtype=offsets.dtype) < offsets[bags]  # what lies after the end is in no bag
    # As long as the offsets: PyTorch counts the end as a bag where it is among them.
    size = jnp.zeros(offsets.shape, offsets.dtype).at[bag].add(kept.astype(offsets.dtype))
    if mode == _MAX:
        low = jnp.asarray(-jnp.inf, rows.dtype)
        top = jnp.full((bags, width), low).at[bag].max(jnp.where(kept[:, None], rows, low))
        is_top = (rows == top[bag]) & kept[:, None]
        # The first of equals is the one that gets the gradient.
        place = jnp.where(is_top, jnp.arange(count)[:, None], count)
        first = jnp.full((bags, width), count).at[bag].min(place)
        chosen = jnp.where(first < count, indices[jnp.minimum(first, max(count - 1, 0))] if count else 0, -1)
        found = jnp.where(first < count, top, jnp.zeros((), top.dtype))
        return found.astype(weight.dtype), bag.astype(indices.dtype), size, chosen.astype(indices.dtype)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None].astype(rows.dtype)
    total = jnp.zeros((bags, width), rows.dtype).at[bag].add(jnp.where(kept[:, None], rows, 0))
    if mode == _MEAN:
        total = total / jnp.maximum(size[:bags], 1)[:, None].astype(total.dtype)
    return total.astype(weight.dtype), bag.astype(indices.dtype), size, jnp.zeros((0,), indices.dtype)


@lowers(aten._embedding_bag_per_sample_weights_backward.default)
def weights_backward(
    grad: jax.Array, weight: jax.Array, indices: jax.Array, offsets: jax.Array, offset2bag: jax.Array, mode: int,
    padding_idx: int = -1,
) -> jax.Array:  # fmt: skip
    """The gradient of a sum's weights: the product of each row with the gradient of its bag."""
    bag = offset2bag if offset2bag.shape[0] else _bag_of(offsets, indices.shape[0], False)[0]
    found = jnp.sum(grad[bag] * weight[indices], axis=-1)
    return jnp.where(indices == padding_idx, jnp.zeros((), found.dtype), found) if padding_idx >= 0 else found


@lowers(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    grad: jax.Array, indices: jax.Array, offsets: jax.Array, offset2bag: jax.Array, bag_size: jax.Array,
    maximum_indices: jax.Array, num_weights: int, scale_grad_by_freq: bool, mode: int, sparse: bool,
    per_sample_weights: jax.Array | None, padding_idx: int = -1,
) -> jax.Array:  # fmt: skip
    """The gradient of the table, (num_weights, width)."""
    if sparse:
        raise NotImplementedError("embedding_bag with sparse gradients has no lowering")
    width = grad.shape[1]
    half = grad.dtype in (jnp.float16, jnp.bfloat16)
    g = grad.astype(jnp.float32) if half else grad
    table = jnp.zeros((num_weights, width), g.dtype)
    if mode == _MAX:
        hit = (maximum_indices >= 0) & (bag_size[: grad.shape[0], None] > 0)
        rows = jnp.where(hit, maximum_indices, 0)
        columns = jnp.broadcast_to(jnp.arange(width), rows.shape)
        return table.at[rows, columns].add(jnp.where(hit, g, 0)).astype(grad.dtype)
    count = indices.shape[0]
    bag = offset2bag if offset2bag.shape[0] == count else _bag_of(offsets, count, False)[0]
    inside = bag < grad.shape[0]
    share = g[jnp.minimum(bag, grad.shape[0] - 1)]
    if per_sample_weights is not None:
        share = share * per_sample_weights[:, None].astype(share.dtype)
    if mode == _MEAN:
        share = share / jnp.maximum(bag_size[bag], 1)[:, None].astype(share.dtype)
    if scale_grad_by_freq:
        times = jnp.zeros((num_weights,), share.dtype).at[indices].add(1)
        share = share / times[indices][:, None]
    kept = (inside & (indices != padding_idx)) if padding_idx >= 0 else inside
    return table.at[indices].add(jnp.where(kept[:, None], share, 0)).astype(grad.dtype)
