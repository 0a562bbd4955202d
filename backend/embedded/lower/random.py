"""Ops that draw from the device's generator: counter-based (Salmon et al., SC11), a key an op call.

The numbers are not those of PyTorch's CPU or CUDA generators; the distributions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from backend.embedded.dtype import to_jax
from backend.embedded.lower.table import aten, lowers


def _drawn_in(dtype: np.dtype) -> np.dtype:
    """Half precision is drawn in float32 and rounded, as PyTorch does."""
    return dtype if dtype in (jnp.float32, jnp.float64) else jnp.dtype(jnp.float32)


@lowers(aten.native_dropout.default, random=True)
def native_dropout(x: jax.Array, p: float, train: bool | None, *, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``x`` with a share ``p`` set to zero and the rest scaled up, and the mask of what was kept."""
    if train is False:
        return x, jnp.ones(x.shape, jnp.bool_)
    mask = jax.random.bernoulli(key, 1 - p, x.shape)
    return jnp.where(mask, x * (1 / (1 - p) if p < 1 else 0.0), jnp.zeros((), x.dtype)).astype(x.dtype), mask


@lowers(aten.bernoulli.p, random=True)
def bernoulli_p(x: jax.Array, p: float = 0.5, *, key: jax.Array, generator: Any = None) -> jax.Array:
    """Ones with probability ``p``, in the shape of ``x``."""
    return jax.random.bernoulli(key, p, x.shape).astype(x.dtype)


@lowers(aten.bernoulli.default, random=True)
def bernoulli(x: jax.Array, *, key: jax.Array, generator: Any = None) -> jax.Array:
    """Ones, each with the probability that ``x`` holds there."""
    return jax.random.bernoulli(key, x.astype(_drawn_in(x.dtype)), x.shape).astype(x.dtype)


@lowers(aten.uniform.default, random=True)
def uniform(x: jax.Array, low: float = 0.0, high: float = 1.0, *, key: jax.Array, generator: Any = None) -> jax.Array:
    """Uniform in [low, high)."""
    return jax.random.uniform(key, x.shape, _drawn_in(x.dtype), low, high).astype(x.dtype)


@lowers(aten.normal_functional.default, random=True)
def normal(x: jax.Array, mean: float = 0.0, std: float = 1.0, *, key: jax.Array, generator: Any = None) -> jax.Array:
    """Normal with ``mean`` and ``std``."""
    return (mean + std * jax.random.normal(key, x.shape, _drawn_in(x.dtype))).astype(x.dtype)


@lowers(aten.exponential.default, random=True)
def exponential(x: jax.Array, rate: float = 1.0, *, key: jax.Array, generator: Any = None) -> jax.Array:
    """Exponential with ``rate``."""
    return (jax.random.exponential(key, x.shape, _drawn_in(x.dtype)) / rate).astype(x.dtype)


@lowers(aten.random.to, aten.random.default, aten.random.__getattr__("from"), random=True)
def integers(x: jax.Array, *bounds: int, key: jax.Array, generator: Any = None) -> jax.Array:
    """Whole numbers: below one bound, between two, or up to the dtype's largest exact one."""
    if not bounds:
        exact = {jnp.dtype(jnp.float16): 2**11, jnp.dtype(jnp.bfloat16): 2**8, jnp.dtype(jnp.float32): 2**24}
        integral = jnp.issubdtype(x.dtype, jnp.integer)
        bounds = (int(jnp.iinfo(x.dtype).max) if integral else exact.get(x.dtype, 2**53),)
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds
    return jax.random.randint(key, x.shape, low, high, jnp.int64).astype(x.dtype)


@lowers(aten.randperm.default, random=True)
def permutation(n: int, *, key: jax.Array, dtype: torch.dtype | None = None, **_: Any) -> jax.Array:
    """0 to n - 1 in random order."""
    return jax.random.permutation(key, n).astype(to_jax(dtype or torch.int64))


@lowers(aten.rand.default, random=True)
def rand(size: Sequence[int], *, key: jax.Array, dtype: torch.dtype | None = None, **_: Any) -> jax.Array:
    """Uniform in [0, 1)."""
    target = to_jax(dtype or torch.get_default_dtype())
    return jax.random.uniform(key, tuple(size), _drawn_in(target)).astype(target)


@lowers(aten.randn.default, random=True)
def randn(size: Sequence[int], *, key: jax.Array, dtype: torch.dtype | None = None, **_: Any) -> jax.Array:
    """Standard normal."""
    target = to_jax(dtype or torch.get_default_dtype())
    return jax.random.normal(key, tuple(size), _drawn_in(target)).astype(target)


@lowers(aten.multinomial.default, random=True)
def multinomial(
    weights: jax.Array, count: int, replacement: bool = False, *, key: jax.Array, generator: Any = None
) -> jax.Array:
    """``count`` positions a row, with the probability of their weight (the Gumbel trick: Vieira 2014).

    Weights below zero and rows of zeros give no error: to see them is a read of the host.
    """
    scores = jnp.log(weights.astype(_drawn_in(weights.dtype)))
    if replacement:
        drawn = jax.random.categorical(key, scores[..., None, :], shape=(*weights.shape[:-1], count))
        return drawn.astype(jnp.int64)
    noisy = scores + jax.random.gumbel(key, scores.shape, scores.dtype)
    return jax.lax.top_k(noisy, count)[1].astype(jnp.int64)
