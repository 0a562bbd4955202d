"""Elementwise ops, with PyTorch's type promotion. Half precision is computed in float32, like PyTorch's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import torch
from jax import lax

from backend.embedded.dtype import to_jax
from backend.embedded.lower.table import LATE, Lowering, aten, each, lowers, takes_tensors
from backend.embedded.promotion import Kind, Weak, compute_type, result_type

Function = Callable[..., Any]


def is_number(value: Any) -> bool:
    """Whether ``value`` is a number known when the program is built."""
    return isinstance(value, bool | int | float | complex)


def cast(operand: Any, dtype: torch.dtype) -> Any:
    """An operand as an array of ``dtype``; ``None`` stays None."""
    if operand is None:
        return None
    if isinstance(operand, Weak):
        operand = operand.value
    return jnp.asarray(operand).astype(to_jax(dtype))


def promoted(function: Function, kind: Kind = Kind.DEFAULT) -> Function:
    """``function`` over operands promoted and cast as PyTorch does; its result is cast likewise."""

    def lowering(*operands: Any) -> jax.Array:
        compute, result = compute_type(result_type(operands), kind)
        return function(*(cast(x, compute) for x in operands)).astype(to_jax(result))

    return lowering


def is_integer(x: jax.Array) -> bool:
    """Whether ``x`` holds integers or booleans."""
    return not jnp.issubdtype(x.dtype, jnp.inexact)


# -- unary --------------------------------------------------------------------------------------------
_UNARY_FLOAT: dict[str, Function] = {
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log2": jnp.log2,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "sqrt": jnp.sqrt,
    "rsqrt": lax.rsqrt,
    "reciprocal": lambda x: 1 / x,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "asin": jnp.arcsin,
    "acos": jnp.arccos,
    "atan": jnp.arctan,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "tanh": jnp.tanh,
    "asinh": jnp.arcsinh,
    "acosh": jnp.arccosh,
    "atanh": jnp.arctanh,
    "sigmoid": jax.nn.sigmoid,
    "lgamma": special.gammaln,
    # At zero the limit from the side of its sign, as PyTorch has it; jax gives a NaN there.
    "digamma": lambda x: jnp.where(x == 0, jnp.copysign(jnp.inf, -x), special.digamma(x)),
}


def _sign(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.bool_:
        return x
    # PyTorch compares with zero: a NaN is neither above nor below.
    return jnp.where(jnp.isnan(x), jnp.zeros_like(x), jnp.sign(x)) if jnp.isrealobj(x) else jnp.sign(x)


_UNARY: dict[str, Function] = {
    "neg": jnp.negative,
    "abs": jnp.abs,
    "sign": _sign,
    "sgn": _sign,
    "floor": lambda x: x if is_integer(x) else jnp.floor(x),
    "ceil": lambda x: x if is_integer(x) else jnp.ceil(x),
    "trunc": lambda x: x if is_integer(x) else jnp.trunc(x),
    "round": lambda x: x if is_integer(x) else jnp.round(x),
    "_conj_physical": jnp.conj,
    "frac": lambda x: x - jnp.trunc(x),
    "bitwise_not": jnp.invert,
}
_UNARY_BOOL: dict[str, Function] = {
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
    "logical_not": jnp.logical_not,
    "signbit": lambda x: x < 0 if is_integer(x) else jnp.signbit(x),
}
for table, kind in ((_UNARY_FLOAT, Kind.INT_TO_FLOAT), (_UNARY, Kind.DEFAULT), (_UNARY_BOOL, Kind.BOOL)):
    for name, function in table.items():
        lowers(getattr(aten, name).default)(promoted(function, kind))


# -- binary -------------------------------------------------------------------------------------------
def _scaled(function: Function) -> Function:
    """``function(a, b * alpha)``; an ``alpha`` of 1 multiplies nothing."""

    def lowering(a: Any, b: Any, alpha: Any = 1) -> jax.Array:
        compute, result = compute_type(result_type((a, b)), Kind.DEFAULT)
        left, right = cast(a, compute), cast(b, compute)
        if not (is_number(alpha) and alpha == 1):
            right = right * cast(alpha, compute)
        return function(left, right).astype(to_jax(result))

    return lowering


def _add(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.logical_or(a, b) if a.dtype == jnp.bool_ else a + b


add = _scaled(_add)
sub = _scaled(lambda a, b: a - b)
mul = promoted(jnp.multiply)
div = promoted(jnp.true_divide, Kind.INT_TO_FLOAT)
lowers(aten.add.Tensor, aten.add.Scalar, mixes=True)(add)
lowers(aten.sub.Tensor, aten.sub.Scalar, mixes=True)(sub)


@lowers(aten.rsub.Tensor, aten.rsub.Scalar, mixes=True)
def rsub(a: Any, b: Any, alpha: Any = 1) -> jax.Array:
    """``b - a * alpha``: it is ``a`` that is scaled."""
    return sub(b, a, alpha)


lowers(aten.mul.Tensor, aten.mul.Scalar, mixes=True)(mul)
lowers(aten.div.Tensor, aten.div.Scalar, mixes=True)(div)


def _truncated_remainder(a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.rem(*jnp.broadcast_arrays(a, b))


def _truncated_quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    if is_integer(a):
        return lax.div(*jnp.broadcast_arrays(a, b))
    # A quotient rounded to half precision may reach the next whole number.
    wide = jnp.promote_types(a.dtype, jnp.float32)
    return jnp.trunc(a.astype(wide) / b.astype(wide)).astype(a.dtype)


def _floored_quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    if is_integer(a):
        return jnp.floor_divide(a, b)
    # PyTorch's div_floor_kernel: exact where a is a multiple of b, and right at infinities.
    a, b = jnp.broadcast_arrays(a, b)
    modulus = lax.rem(a, b)
    quotient = (a - modulus) / b
    quotient = jnp.where((modulus != 0) & ((b < 0) != (modulus < 0)), quotient - 1, quotient)
    floored = jnp.floor(quotient)
    floored = jnp.where(quotient - floored > 0.5, floored + 1, floored)
    floored = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(a), a / b), floored)
    return jnp.where(b == 0, a / b, floored)


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode, mixes=True)
def div_mode(a: Any, b: Any, rounding_mode: str | None = None) -> jax.Array:
    """Division, truncated, floored, or true."""
    if rounding_mode is None:
        return div(a, b)
    return promoted(_truncated_quotient if rounding_mode == "trunc" else _floored_quotient)(a, b)


lowers(aten.floor_divide.default, mixes=True)(promoted(_floored_quotient))


def _remainder(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.remainder(a, b)


@lowers(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar, mixes=True, static=("exponent",))
def power(a: Any, b: Any) -> jax.Array:
    """``a ** b``; the small static exponents are products, as PyTorch has them."""
    if is_number(b) and b == 2:
        return promoted(lambda x, _: x * x)(a, b)
    if is_number(b) and b == 3:
        return promoted(lambda x, _: x * x * x)(a, b)
    if is_number(b) and b == 0.5:
        return promoted(lambda x, _: jnp.sqrt(x))(a, b)
    return promoted(_power)(a, b)


def _power(a: jax.Array, b: jax.Array) -> jax.Array:
    if not is_integer(a) or a.dtype == jnp.bool_:
        return jnp.power(a, b)
    a, b = jnp.broadcast_arrays(a, b)
    # A negative exponent of an integer leaves 1, -1 or nothing.
    sign = jnp.where(b % 2 == 0, jnp.ones_like(a), -jnp.ones_like(a))
    inverse = jnp.where(a == 1, jnp.ones_like(a), jnp.where(a == -1, sign, jnp.zeros_like(a)))

    def square(_: int, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        power, base, exponent = state
        return jnp.where(exponent % 2 == 1, power * base, power), base * base, exponent // 2

    # By squaring, over every bit: what overflows wraps, as in PyTorch. jnp.power stops after six bits.
    bits = jnp.iinfo(a.dtype).bits
    power, _, _ = lax.fori_loop(0, bits, square, (jnp.ones_like(a), a, jnp.maximum(b, 0)))
    return jnp.where(b < 0, inverse, power)


_BINARY: dict[str, Function] = {
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "fmax": jnp.fmax,
    "fmin": jnp.fmin,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "remainder": _remainder,
    "fmod": _truncated_remainder,
    "hypot": jnp.hypot,
}
_BINARY_FLOAT: dict[str, Function] = {"atan2": jnp.arctan2, "copysign": jnp.copysign}
_COMPARISON: dict[str, Function] = {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
}
for table, kind in ((_BINARY, Kind.DEFAULT), (_BINARY_FLOAT, Kind.INT_TO_FLOAT), (_COMPARISON, Kind.BOOL)):
    for name, function in table.items():
        packet = getattr(aten, name)
        for overload in each("default Tensor Scalar Scalar_Tensor"):
            # Some packets also hold overloads over two numbers, which no tensor device sees.
            if overload in packet.overloads() and takes_tensors(getattr(packet, overload)):
                lowers(getattr(packet, overload), mixes=True)(promoted(function, kind))


# -- ternary ------------------------------------------------------------------------------------------
@lowers(aten.where.self, mixes=True)
def where(condition: jax.Array, a: Any, b: Any) -> jax.Array:
    """``a`` where ``condition``, else ``b``."""
    return promoted(lambda x, y: jnp.where(condition.astype(jnp.bool_), x, y))(a, b)


def clamp(x: Any, low: Any = None, high: Any = None) -> jax.Array:
    """``min(max(x, low), high)``; a NaN stays."""
    compute, result = compute_type(result_type((x, low, high)), Kind.DEFAULT)
    value = cast(x, compute)
    if low is not None:
        value = jnp.maximum(value, cast(low, compute))
    if high is not None:
        value = jnp.minimum(value, cast(high, compute))
    return value.astype(to_jax(result))


lowers(aten.clamp.default, aten.clamp.Tensor, mixes=True)(clamp)
lowers(aten.clamp_min.default, aten.clamp_min.Tensor, mixes=True)(clamp)
lowers(aten.clamp_max.default, aten.clamp_max.Tensor, mixes=True)(lambda x, high: clamp(x, None, high))


def _with_value(function: Function) -> Function:
    def lowering(a: Any, b: Any, c: Any, value: Any = 1) -> jax.Array:
        compute, result = compute_type(result_type((a, b, c)), Kind.DEFAULT)
        return function(*(cast(x, compute) for x in (a, b, c, value))).astype(to_jax(result))

    return lowering


addcmul = _with_value(lambda a, b, c, value: a + value * b * c)
addcdiv = _with_value(lambda a, b, c, value: a + value * (b / c))
lowers(aten.addcmul.default, mixes=True)(addcmul)
lowers(aten.addcdiv.default, mixes=True)(addcdiv)


def _interpolate(a: jax.Array, b: jax.Array, weight: jax.Array) -> jax.Array:
    # The two forms keep the ends exact: PyTorch's lerp switches at one half as well.
    return jnp.where(jnp.abs(weight) < 0.5, a + weight * (b - a), b - (b - a) * (1 - weight))


lerp = lowers(aten.lerp.Scalar, aten.lerp.Tensor, mixes=True)(promoted(_interpolate))

# Dynamo writes addcmul, addcdiv and add with an alpha as this one.
LATE["prims.fma.default"] = Lowering(promoted(lambda a, b, c: a * b + c))
