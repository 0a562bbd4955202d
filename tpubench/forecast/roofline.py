"""The least time that a program can take on a chip of the catalogue: the roofline.

S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009, doi 10.1145/1498765.1498785.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tpubench import catalog

#: What the catalogue calls what a TPU multiplies an HLO type in. float32 goes through in bfloat16 passes, one or
#: more (https://docs.jax.dev/en/latest/jax.lax.html#jax.lax.Precision): one is the least.
_MULTIPLIED_IN = {"bf16": "bfloat16", "f32": "bfloat16", "f16": "bfloat16", "s8": "int8", "u8": "int8"}


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of the time of one launch, seconds, on one device; ``seconds`` is None, with the ``reason``, where
    the catalogue lacks a figure."""

    compute_s: float | None
    memory_s: float | None
    reason: str | None = None

    @property
    def seconds(self) -> float | None:
        """The greater of the two; None where either is not known."""
        if self.compute_s is None or self.memory_s is None:
            return None
        return max(self.compute_s, self.memory_s)

    @property
    def bound_by(self) -> str | None:
        """``compute`` or ``memory``, whichever takes longer; None where either is not known."""
        if self.compute_s is None or self.memory_s is None:
            return None
        return "compute" if self.compute_s >= self.memory_s else "memory"


def bound(chip: str, flops: Mapping[str, float], bytes_moved: float) -> Bound:
    """The roofline of one device of ``chip``: of v2, v3 and v7x a chip is two, with half the peak and bandwidth each.

    Args:
        flops: by HLO type of the operands, as :class:`tpubench.forecast.work.Work` has them.
        bytes_moved: what must cross between HBM and the device: arguments and outputs, each once.

    Raises:
        UnknownChip: the catalogue does not list it.
    """
    devices = catalog.devices_per_chip(chip)
    reasons = []
    compute: float | None = 0.0
    for dtype, count in sorted(flops.items()):
        name = _MULTIPLIED_IN.get(dtype)
        peak = catalog.peak(chip, name, None) if name else None
        if peak is None:
            reasons.append(f"no peak of {chip} for {dtype} is in the catalogue")
            compute = None
        elif compute is not None:
            compute += count / (peak.tflops * 1e12 / devices)
    memory = catalog.memory(chip)
    if memory is None:
        reasons.append(f"no memory bandwidth of {chip} is in the catalogue")
    moved = None if memory is None else bytes_moved / (memory.gbps * 1e9 / devices)
    return Bound(compute, moved, "; ".join(reasons) or None)
