"""Counters of the executable cache: what a user is told about compiling."""

from __future__ import annotations

import dataclasses
from collections import Counter


@dataclasses.dataclass(slots=True)
class Counters:
    """Since the process began. A request is one look-up of an executable, by an op call or a graph call.

    It is a hit, a load or a miss.
    """

    requests: int = 0
    misses: int = 0  # programs compiled
    loads: int = 0  # programs found on disk, at their first call
    compile_s: float = 0.0  # tracing, lowering and XLA's compiling of every miss
    launches: int = 0
    graphs: int = 0  # graphs that torch.compile handed over
    cpu_fallbacks: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def hits(self) -> int:
        """Requests that found their executable in memory."""
        return self.requests - self.loads - self.misses


COUNTERS = Counters()
