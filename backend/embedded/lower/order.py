"""Sorting, order statistics, running extrema, search in sorted arrays. NaN is above every number."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

from backend.embedded.lower.elementwise import is_integer
from backend.embedded.lower.reduction import accumulated
from backend.embedded.lower.table import aten, lowers

Pair = tuple[jax.Array, jax.Array]


@lowers(aten.topk.default)
def topk(x: jax.Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """The ``k`` largest or smallest along ``dim``, in order, and their positions."""
    if x.ndim == 0:
        return jnp.broadcast_to(x, (k,)) if k != 1 else x, jnp.zeros((), jnp.int64)
    order = jnp.argsort(x, axis=dim, stable=True, descending=largest)
    place = jax.lax.slice_in_dim(order, 0, k, axis=dim % x.ndim)
    return jnp.take_along_axis(x, place, axis=dim), place.astype(jnp.int64)


@lowers(aten.sort.default)
def sort(x: jax.Array, dim: int = -1, descending: bool = False) -> Pair:
    """``x`` in order along ``dim``, and where each element was."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    order = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, order, axis=dim), order.astype(jnp.int64)


@lowers(aten.sort.stable)
def stable_sort(x: jax.Array, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Pair:
    """As :func:`sort`, which keeps the order of equals anyway."""
    return sort(x, dim, descending)


def _picked(x: jax.Array, order: jax.Array, rank: Any, dim: int, keepdim: bool) -> Pair:
    """What stands at ``rank`` of ``order`` along ``dim``, and its position."""
    place = jnp.take_along_axis(order, jnp.broadcast_to(rank, _kept(x, dim)), axis=dim)
    value = jnp.take_along_axis(x, place, axis=dim)
    if not keepdim:
        value, place = jnp.squeeze(value, dim), jnp.squeeze(place, dim)
    return value, place.astype(jnp.int64)


def _kept(x: jax.Array, dim: int) -> tuple[int, ...]:
    return tuple(1 if d == dim % x.ndim else n for d, n in enumerate(x.shape))


@lowers(aten.kthvalue.default)
def kth_value(x: jax.Array, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    """The ``k``-th smallest along ``dim``, counted from 1, and its position."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    return _picked(x, jnp.argsort(x, axis=dim, stable=True), k - 1, dim, keepdim)


def _middle(x: jax.Array, dim: int, keepdim: bool, skip_nan: bool) -> Pair:
    """The lower of the two medians. Where there is a NaN it is the result, unless it is skipped."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    order = jnp.argsort(x, axis=dim, stable=True)
    rank: Any = (x.shape[dim] - 1) // 2
    if not is_integer(x):
        numbers = jnp.sum(~jnp.isnan(x), axis=dim, keepdims=True)
        if skip_nan:
            rank = jnp.maximum(numbers - 1, 0) // 2
        else:
            rank = jnp.where(numbers < x.shape[dim], jnp.minimum(numbers, x.shape[dim] - 1), rank)
    return _picked(x, order, rank, dim, keepdim)


@lowers(aten.median.dim)
def median(x: jax.Array, dim: int = -1, keepdim: bool = False) -> Pair:
    """The median along ``dim`` and its position."""
    return _middle(x, dim, keepdim, skip_nan=False)


@lowers(aten.nanmedian.dim)
def median_of_numbers(x: jax.Array, dim: int = -1, keepdim: bool = False) -> Pair:
    """The median of what is no NaN along ``dim``, and its position."""
    return _middle(x, dim, keepdim, skip_nan=True)


@lowers(aten.median.default)
def median_of_all(x: jax.Array) -> jax.Array:
    """The median of all elements."""
    return _middle(x.reshape(-1), 0, False, skip_nan=False)[0] if x.size else jnp.full((), jnp.nan, x.dtype)


@lowers(aten.nanmedian.default)
def median_of_all_numbers(x: jax.Array) -> jax.Array:
    """The median of all elements that are no NaN."""
    return _middle(x.reshape(-1), 0, False, skip_nan=True)[0] if x.size else jnp.full((), jnp.nan, x.dtype)


def _running(x: jax.Array, dim: int, above: Any) -> Pair:
    """The running extremum and the last position where it was met; a NaN stays."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    number = (lambda v: jnp.zeros(v.shape, jnp.bool_)) if is_integer(x) or x.dtype == jnp.bool_ else jnp.isnan
    place = jnp.broadcast_to(
        jnp.arange(x.shape[dim]).reshape([-1 if d == dim % x.ndim else 1 for d in range(x.ndim)]), x.shape
    )

    def join(before: Pair, after: Pair) -> Pair:
        wins = number(after[0]) | (~number(before[0]) & above(after[0], before[0]))
        return jnp.where(wins, after[0], before[0]), jnp.where(wins, after[1], before[1])

    value, where = jax.lax.associative_scan(join, (x, place), axis=dim % x.ndim)
    return value, where.astype(jnp.int64)


@lowers(aten.cummax.default)
def running_maximum(x: jax.Array, dim: int) -> Pair:
    """The largest so far along ``dim``, and where it is."""
    return _running(x, dim, jnp.greater_equal)


@lowers(aten.cummin.default)
def running_minimum(x: jax.Array, dim: int) -> Pair:
    """The smallest so far along ``dim``, and where it is."""
    return _running(x, dim, jnp.less_equal)


@lowers(aten._logcumsumexp.default)
def running_log_of_sum(x: jax.Array, dim: int) -> jax.Array:
    """The logarithm of the running sum of exponentials along ``dim``."""
    return x if x.ndim == 0 else jax.lax.cumlogsumexp(accumulated(x), axis=dim % x.ndim)


#: PyTorch has no shape function for it.
_meta = torch.library.Library("aten", "IMPL")
_meta.impl("_logcumsumexp", lambda x, dim: torch.empty_like(x), "Meta")


@lowers(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def search(
    ordered: jax.Array,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: jax.Array | None = None,
) -> jax.Array:
    """Where each of ``x`` belongs in ``ordered``, along the last dimension."""
    if sorter is not None:
        ordered = jnp.take_along_axis(ordered, sorter, axis=-1)
    x = jnp.asarray(x)
    common = jnp.promote_types(ordered.dtype, x.dtype)
    ordered, x = ordered.astype(common), x.astype(common)
    after = "right" if right or side == "right" else "left"
    if not x.size or not ordered.size:
        return jnp.zeros(x.shape, jnp.int32 if out_int32 else jnp.int64)
    if ordered.ndim == 1:
        found = jnp.searchsorted(ordered, x, side=after)
    else:
        rows = jax.vmap(lambda row, sought: jnp.searchsorted(row, sought, side=after))
        found = rows(ordered.reshape(-1, ordered.shape[-1]), x.reshape(-1, x.shape[-1])).reshape(x.shape)
    return found.astype(jnp.int32 if out_int32 else jnp.int64)


@lowers(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucket(x: Any, boundaries: jax.Array, *, out_int32: bool = False, right: bool = False) -> jax.Array:
    """Which of the intervals between ``boundaries`` each of ``x`` lies in."""
    return search(boundaries, x, out_int32=out_int32, right=right)
