"""Special functions, most of them met as PyTorch's primitives inside a decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.scipy import special

from backend.embedded.lower.elementwise import Kind, promoted
from backend.embedded.lower.table import aten, lowers

prims = torch.ops.prims


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Half precision is computed in float32 and rounded, as PyTorch's kernels do."""

    def lowering(*operands: jax.Array) -> jax.Array:
        half = operands[0].dtype in (jnp.float16, jnp.bfloat16)
        found = function(*(o.astype(jnp.float32) if half else o for o in operands))
        return found.astype(operands[0].dtype)

    return lowering


def _zeta(x: jax.Array, q: jax.Array) -> jax.Array:
    """The Hurwitz zeta function, with the poles and the domain of Cephes' ``zeta``, which PyTorch uses."""
    inside = special.zeta(x, q)
    found = jnp.where(x != jnp.floor(x), jnp.nan, inside)
    found = jnp.where(q == jnp.floor(q), jnp.inf, found)
    found = jnp.where(q <= 0, found, inside)
    return jnp.where(x == 1, jnp.inf, jnp.where(x < 1, jnp.nan, found))


for _name, _function in {
    "bessel_i0": special.i0,
    "bessel_i0e": special.i0e,
    "bessel_i1": special.i1,
    "bessel_i1e": special.i1e,
    "ndtri": special.ndtri,
    "zeta": _zeta,
}.items():
    lowers(getattr(prims, _name).default)(_in_float32(_function))

for _name, _function in {
    "special_i0e": special.i0e,
    "special_i1": special.i1,
    "special_i1e": special.i1e,
    "special_ndtri": special.ndtri,
}.items():
    lowers(getattr(aten, _name).default)(promoted(_function, Kind.INT_TO_FLOAT))
lowers(aten.i0.default)(promoted(special.i0, Kind.INT_TO_FLOAT))


def _gamma_edges(a: jax.Array, x: jax.Array, inside: jax.Array, at_zero: float, at_infinity: float) -> jax.Array:
    """The limits that PyTorch gives where an argument is zero, negative or infinite."""
    found = jnp.where(x == 0, at_zero, inside)
    found = jnp.where(jnp.isinf(x) & ~jnp.isinf(a), at_infinity, found)
    found = jnp.where(a == 0, jnp.where(x > 0, at_infinity, jnp.nan), found)
    return jnp.where((x < 0) | (a < 0) | jnp.isnan(a) | jnp.isnan(x), jnp.nan, found)


@lowers(aten.igamma.default)
def igamma(a: jax.Array, x: jax.Array) -> jax.Array:
    """The lower regularised incomplete gamma function."""
    return promoted(lambda p, q: _gamma_edges(p, q, special.gammainc(p, q), 0.0, 1.0), Kind.INT_TO_FLOAT)(a, x)


@lowers(aten.igammac.default)
def igammac(a: jax.Array, x: jax.Array) -> jax.Array:
    """The upper regularised incomplete gamma function."""
    return promoted(lambda p, q: _gamma_edges(p, q, special.gammaincc(p, q), 1.0, 0.0), Kind.INT_TO_FLOAT)(a, x)


@lowers(aten.nextafter.default)
def nextafter(a: jax.Array, b: jax.Array) -> jax.Array:
    """The next number after ``a`` towards ``b``."""
    return jnp.nextafter(a, b)


@lowers(aten.frexp.Tensor)
def frexp(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``(mantissa, exponent)`` with ``x = mantissa * 2 ** exponent``, the exponent in int32."""
    half = x.dtype in (jnp.float16, jnp.bfloat16)
    mantissa, exponent = jnp.frexp(x.astype(jnp.float32) if half else x)
    return mantissa.astype(x.dtype), exponent.astype(jnp.int32)


@lowers(aten.angle.default)
def angle(x: jax.Array) -> jax.Array:
    """The argument of a complex number; of a real one 0, pi below zero, NaN for NaN."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.angle(x)
    kind = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.float32
    turned = jnp.where(x < 0, jnp.asarray(jnp.pi, kind), jnp.zeros((), kind))
    return jnp.where(jnp.isnan(x), jnp.asarray(jnp.nan, kind), turned)


@lowers(aten.polar.default)
def polar(size: jax.Array, angle: jax.Array) -> jax.Array:
    """A complex number of this size at this angle."""
    return jax.lax.complex(size * jnp.cos(angle), size * jnp.sin(angle))
