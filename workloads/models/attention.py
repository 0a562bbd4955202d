"""Causal attention of a decoder, over a sequence or over a cache of keys and values of static shape."""

from __future__ import annotations

import dataclasses

import torch
from torch.nn import functional


@dataclasses.dataclass(frozen=True, slots=True)
class Cache:
    """The keys and values of one layer, both (N, key heads, context, head width); a step writes into them."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a token that is decoded stands: ``index`` int64 (1,), ``seen`` bool (1, 1, 1, context)."""

    index: torch.Tensor
    seen: torch.Tensor

    @classmethod
    def at(cls, index: torch.Tensor, context: int) -> Place:
        """The place ``index`` of a cache of ``context`` tokens; no value is read on the host."""
        positions = torch.arange(context, device=index.device)
        return cls(index, (positions <= index).reshape(1, 1, 1, context))


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: Cache | None = None, place: Place | None = None
) -> torch.Tensor:
    """(N, heads, L, d) by (N, key heads, L, d) twice, to (N, heads, L, d); key heads divide heads (GQA).

    Without a cache, causal over the L tokens. With one and no place, the same, and the cache takes keys and
    values (prefill). With both, L is 1: the token is written at its place and sees the cache up to it (decode),
    in shapes that do not depend on the place.
    """
    grouped = query.shape[1] != key.shape[1]
    if cache is not None and place is not None:
        # Under autocast what was projected is narrower than what is kept.
        cache.keys.index_copy_(2, place.index, key.to(cache.keys.dtype))
        cache.values.index_copy_(2, place.index, value.to(cache.values.dtype))
        return functional.scaled_dot_product_attention(
            query, cache.keys.to(query.dtype), cache.values.to(query.dtype), attn_mask=place.seen, enable_gqa=grouped
        )
    if cache is not None:
        cache.keys.copy_(key)
        cache.values.copy_(value)
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


def by_layer(cache: tuple[torch.Tensor, ...], layers: int) -> list[Cache | None]:
    """Keys and values of every layer from the flat tuple (keys, values, keys, values, ...); none where it is empty."""
    if not cache:
        return [None] * layers
    return [Cache(*pair) for pair in zip(cache[::2], cache[1::2], strict=True)]
