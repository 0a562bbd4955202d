"""Fourier transforms. ``normalization`` is PyTorch's: 0 none, 1 by the root of the length, 2 by the length."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from backend.embedded.lower.table import aten, lowers


def _normalised(x: jax.Array, count: int, normalization: int) -> jax.Array:
    if normalization == 0:
        return x
    return x / (math.sqrt(count) if normalization == 1 else count)


def _transform(x: jax.Array, dims: Sequence[int], forward: bool) -> jax.Array:
    """Without a factor either way."""
    for dim in dims:
        x = jnp.fft.fft(x, axis=dim) if forward else jnp.fft.ifft(x, axis=dim, norm="forward")
    return x


def _count(x: jax.Array, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


@lowers(aten._fft_c2c.default)
def complex_to_complex(x: jax.Array, dim: Sequence[int], normalization: int, forward: bool) -> jax.Array:
    """Complex in and out."""
    return _normalised(_transform(x, dim, forward), _count(x, dim), normalization)


@lowers(aten._fft_r2c.default)
def real_to_complex(x: jax.Array, dim: Sequence[int], normalization: int, onesided: bool) -> jax.Array:
    """Real in, complex out; ``onesided`` keeps the half of the last of ``dim`` that the other half mirrors."""
    if onesided:
        y = _transform(jnp.fft.rfft(x, axis=dim[-1]), dim[:-1], True)
    else:
        y = _transform(x, dim, True)
    return _normalised(y, _count(x, dim), normalization)


@lowers(aten._fft_c2r.default)
def complex_to_real(x: jax.Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> jax.Array:
    """The half of a transform in, real out; the last of ``dim`` grows to ``last_dim_size``."""
    y = _transform(x, dim[:-1], False)
    y = jnp.fft.irfft(y, n=last_dim_size, axis=dim[-1], norm="forward")
    return _normalised(y, _count(x, dim[:-1]) * last_dim_size, normalization)
