"""What ``torch.amp.GradScaler`` runs: gradients divided by the scale, and the scale moved.

After ``aten/src/ATen/native/cuda/AmpKernels.cu``.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from backend.embedded.lower.table import aten, lowers


def _unscaled(grad: jax.Array, inverse: jax.Array) -> jax.Array:
    work = jnp.float32 if grad.dtype in (jnp.float16, jnp.bfloat16) else grad.dtype
    return (grad.astype(work) * inverse.astype(work)).astype(grad.dtype)


@lowers(aten._amp_foreach_non_finite_check_and_unscale.default)
def unscale(grads: Sequence[jax.Array], found: jax.Array, inverse: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """Each gradient times ``inverse``, and ``found``, 1 where one of them is not finite."""
    bad = jnp.stack([jnp.any(~jnp.isfinite(g)) for g in grads]).any() if grads else jnp.asarray(False)
    return [_unscaled(g, inverse) for g in grads], jnp.where(bad, jnp.ones((), found.dtype), found)


@lowers(aten._amp_update_scale.default)
def update_scale(
    scale: jax.Array, growth: jax.Array, found: jax.Array, factor: float, backoff: float, interval: int
) -> tuple[jax.Array, jax.Array]:
    """The scale after a step: less by ``backoff`` where ``found``, more by ``factor`` after ``interval`` good steps."""
    wide = scale.astype(jnp.float64)
    grown = (wide * factor).astype(scale.dtype)
    due = growth + 1 == interval
    good = jnp.where(due & jnp.isfinite(grown), grown, scale)
    steps = jnp.where(due, 0, growth + 1).astype(growth.dtype)
    bad = found > 0
    return jnp.where(bad, (wide * backoff).astype(scale.dtype), good), jnp.where(bad, jnp.zeros_like(growth), steps)
