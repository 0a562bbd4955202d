"""The arithmetic of an optimised program: FLOPs of its matrix products and convolutions, cycles, loops multiplied.

The compiler's own ``cost_analysis()`` counts a loop's body once, and its ``optimal_seconds`` charges every dtype at
the bfloat16 peak and can be negative: neither is used.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re

from tpubench.forecast.hlo import Array, Instruction, Module
from tpubench.forecast.loops import Computation, runs


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What one launch of a program does, on one device.

    Attributes:
        flops: of matrix products and convolutions by the HLO type of their operands (``bf16``, ``s8``); 2 a
            multiply-add, positions in the padding and the holes of a dilation not counted, as XLA counts.
        cycles: the compiler's estimates summed; what has none is in ``uncounted``.
        uncounted: launches of scheduled instructions without an estimate, by opcode.
        unknown: loops and conditionals that make the sums no number to show; empty in a program of known length.
    """

    flops: dict[str, float]
    cycles: int
    uncounted: dict[str, int]
    unknown: tuple[str, ...]


#: Opcodes that take no time of their own.
_FREE = frozenset("parameter constant tuple get-tuple-element bitcast while conditional call after-all".split())


def work(module: Module) -> Work:
    """The work of one launch of ``module``.

    Raises:
        ValueError: a convolution or product is written in a way that is not understood.
    """
    found = runs(module)
    flops: dict[str, float] = {}
    for name, times in [*found.scheduled.items(), *found.fused.items()]:
        computation = module.computations[name]
        for instruction in computation.values():
            if instruction.opcode in ("convolution", "dot"):
                dtype = _operand(computation, instruction, 0).dtype
                flops[dtype] = flops.get(dtype, 0.0) + times * product_flops(computation, instruction)
    cycles = 0
    uncounted: dict[str, int] = {}
    for name, times in found.scheduled.items():
        for instruction in module.computations[name].values():
            if instruction.cycles is not None:
                cycles += times * instruction.cycles
            elif instruction.opcode not in _FREE:
                uncounted[instruction.opcode] = uncounted.get(instruction.opcode, 0) + times
    return Work(flops, cycles, uncounted, found.unknown)


def product_flops(computation: Computation, instruction: Instruction) -> float:
    """FLOPs of one ``dot`` or ``convolution``.

    A convolution does 2 FLOPs for each output element, input feature of the kernel, and position of the window that
    lies on an element of the input. XLA for TPU writes a matrix product as a convolution without a window.

    Raises:
        ValueError: its dimensions are written in a way that is not understood.
    """
    left, right = _operand(computation, instruction, 0), _operand(computation, instruction, 1)
    out = instruction.shape[0]
    if instruction.opcode == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.attributes)
        sizes = [left.dims[int(d)] for d in contracted[1].split(",") if d] if contracted else []
        return 2.0 * math.prod(out.dims) * math.prod(sizes)
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes)
    if labels is None:
        raise ValueError(f"the convolution {instruction.name} has no dim_labels")
    features = right.dims[labels[2].index("i")]
    spatial = sorted(label for label in labels[1] if label.isdigit())
    window = _window(instruction.attributes, len(spatial))
    kept = math.prod(size for size, label in zip(out.dims, labels[3], strict=True) if not label.isdigit())
    for label, one in zip(spatial, window, strict=True):
        given, made = left.dims[labels[1].index(label)], out.dims[labels[3].index(label)]
        kept *= _met(given, made, *one)
    return 2.0 * kept * features


#: Of one spatial dimension: window size, stride, padding below, dilation of the input, dilation of the window.
_Window = tuple[int, int, int, int, int]


def _window(attributes: str, count: int) -> list[_Window]:
    text = re.search(r"window=\{([^}]*)\}", attributes)
    fields = dict(part.split("=") for part in text[1].split()) if text else {}

    def per_dimension(name: str, default: str) -> list[str]:
        return fields[name].split("x") if name in fields else [default] * count

    low = [int(pad.split("_")[0]) for pad in per_dimension("pad", "0_0")]
    sizes, strides, holes, gaps = (
        [int(v) for v in per_dimension(name, "1")] for name in ("size", "stride", "lhs_dilate", "rhs_dilate")
    )
    return list(zip(sizes, strides, low, holes, gaps, strict=True))


@functools.cache
def _met(given: int, made: int, size: int, stride: int, low: int, holes: int, gaps: int) -> int:
    """How many pairs of an output position and a window position lie on one of ``given`` elements."""
    last = (given - 1) * holes
    met = 0
    for output in range(made):
        for position in range(size):
            place = output * stride + position * gaps - low
            met += 0 <= place <= last and place % holes == 0
    return met


def _operand(computation: Computation, instruction: Instruction, index: int) -> Array:
    return computation[instruction.operands[index]].shape[0]
