"""The table of lowerings, and how an op gets into it.

A lowering takes what the ATen op takes, with arrays for tensors, and returns what it returns: arrays
in PyTorch's order, in any dtype (the caller casts each result to the dtype PyTorch's own shape
function gives, and refuses another shape). It never reads a value on the host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True, slots=True)
class Lowering:
    """How one ATen op becomes JAX.

    ``runtime`` names the number-typed arguments that reach the program as inputs instead of being
    compiled in, so that a learning rate that moves makes no new program. ``mixes`` says that the op
    takes 0-d CPU tensors as numbers, as PyTorch's TensorIterator does. ``random`` ops get a keyword
    ``key``, a JAX PRNG key.
    """

    function: Callable[..., Any]
    runtime: frozenset[str] = frozenset()
    mixes: bool = False
    random: bool = False


TABLE: dict[torch._ops.OpOverload, Lowering] = {}

#: Lowerings of ops that only exist once torch.compile has been used, by name.
LATE: dict[str, Lowering] = {}


def find(op: Any) -> Lowering | None:
    """The lowering of ``op``, None where it has none."""
    return TABLE.get(op) or LATE.get(str(op))


#: What an argument that holds numbers is called in a schema.
_NUMBER_TYPES = ("number", "Scalar", "Optional[number]", "List[number]")


def number_arguments(op: torch._ops.OpOverload) -> frozenset[str]:
    """The names of the arguments of ``op`` that hold a number or a list of numbers."""
    return frozenset(a.name for a in op._schema.arguments if str(a.type) in _NUMBER_TYPES)


def takes_tensors(op: torch._ops.OpOverload) -> bool:
    """Whether ``op`` is an op over tensors: some packets also hold overloads over two numbers."""
    return any("Tensor" in str(a.type) for a in op._schema.arguments)


def lowers(
    *ops: torch._ops.OpOverload,
    static: tuple[str, ...] = (),
    runtime: tuple[str, ...] = (),
    mixes: bool = False,
    random: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated function as the lowering of ``ops``.

    Where an op ``mixes``, every number argument is an input of the program except those in ``static``
    (an exponent, whose value picks the algorithm). Any other op compiles its numbers in except those
    in ``runtime``.
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            assert op not in TABLE, f"{op} is lowered twice"
            inputs = number_arguments(op) - set(static) if mixes else frozenset(runtime)
            TABLE[op] = Lowering(function, inputs, mixes, random)
        return function

    return enter


def each(names: str) -> list[str]:
    """The words of ``names``: op lists read better as text."""
    return names.split()
