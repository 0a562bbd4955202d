"""The list ops that optimizers use: the elementwise lowering over every list entry, in one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from backend.embedded.lower import elementwise, reduction
from backend.embedded.lower.table import TABLE, Lowering, aten, number_arguments

Function = Callable[..., Any]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def over_lists(function: Function) -> Function:
    """``function`` mapped over its list arguments; the others are the same for every entry."""

    def lowering(*args: Any, **kwargs: Any) -> list[jax.Array]:
        length = next(len(a) for a in args if _is_list(a))

        def entry(value: Any, i: int) -> Any:
            return value[i] if _is_list(value) else value

        return [
            function(*(entry(a, i) for a in args), **{k: entry(v, i) for k, v in kwargs.items()}) for i in range(length)
        ]

    return lowering


def _unary(name: str) -> Function:
    return TABLE[getattr(aten, name).default].function


def _by_value(function: Function) -> Function:
    """``value`` is positional in one overload and ``scalars`` is its name in the others."""

    def lowering(a: Any, b: Any, c: Any, scalars: Any = None, value: Any = 1) -> jax.Array:
        return function(a, b, c, value if scalars is None else scalars)

    return lowering


_LISTS: dict[str, Function] = {
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "div": elementwise.div,
    "maximum": elementwise.promoted(jnp.maximum),
    "minimum": elementwise.promoted(jnp.minimum),
    "clamp_min": lambda a, low: elementwise.clamp(a, low),
    "clamp_max": lambda a, high: elementwise.clamp(a, None, high),
    "addcmul": _by_value(elementwise.addcmul),
    "addcdiv": _by_value(elementwise.addcdiv),
    "lerp": elementwise.lerp,
    "pow": elementwise.power,
    "norm": lambda x, ord=2, dtype=None: reduction.vector_norm(x, ord, dtype=dtype),
}
_UNARY = "abs neg exp expm1 log log1p sqrt rsqrt reciprocal sign floor ceil round sigmoid tanh erf sin cos".split()
_LISTS |= {name: _unary(name) for name in _UNARY}

#: Arguments whose value picks the algorithm.
_STATIC = {"pow": {"exponent"}, "norm": {"ord"}}

for _name, _function in _LISTS.items():
    _packet = getattr(aten, f"_foreach_{_name}")
    for _overload in _packet.overloads():
        _op = getattr(_packet, _overload)
        # addcmul and addcdiv with their scalars in a CPU tensor: PyTorch unpacks it into the list form.
        if not _op._schema.is_mutable and (_overload != "Tensor" or not _name.startswith("addc")):
            _runtime = number_arguments(_op) - _STATIC.get(_name, set())
            TABLE[_op] = Lowering(over_lists(_function), _runtime, mixes=True)
