"""Shifts of whole numbers by bits."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from backend.embedded.lower.elementwise import promoted
from backend.embedded.lower.table import aten, lowers


def _bounded(shift: Callable[..., jax.Array], beyond: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    """``shift`` where its count is one, else what is left ``beyond`` the last bit, as PyTorch defines both."""

    def shifted(a: jax.Array, count: jax.Array) -> jax.Array:
        if not jnp.issubdtype(a.dtype, jnp.integer):
            raise NotImplementedError(f"a shift by bits is not implemented for {a.dtype}")
        within = (count >= 0) & (count < jnp.iinfo(a.dtype).bits)
        return jnp.where(within, shift(a, jnp.where(within, count, 0)), beyond(a))

    return shifted


_left = promoted(_bounded(jnp.left_shift, jnp.zeros_like))
# A right shift fills with the sign.
_right = promoted(_bounded(jnp.right_shift, lambda a: jnp.where(a < 0, -jnp.ones_like(a), jnp.zeros_like(a))))

for _name, _older, _function in (
    ("bitwise_left_shift", "__lshift__", _left),
    ("bitwise_right_shift", "__rshift__", _right),
):
    _packet, _old = getattr(aten, _name), getattr(aten, _older)
    _overloads = (_packet.Tensor, _packet.Tensor_Scalar, _packet.Scalar_Tensor, _old.Tensor, _old.Scalar)
    lowers(*_overloads, mixes=True)(_function)
