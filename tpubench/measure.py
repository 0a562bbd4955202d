"""The measuring loop: warm up until nothing compiles any more, then time steps, each synchronised.

Rules adopted from the field: warm-up ends when the compile count has stood still for two steps, never
after a fixed number alone; the clock runs from before the call until the device is done; a compile
in the timed region invalidates the run (TorchTPU's harness has all three). Every sample is kept.
"""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tpubench.spec import Spec

if TYPE_CHECKING:
    import torch

    from backend.protocol import Backend

#: Warm-up ends after this many steps in which nothing was compiled.
SETTLED = 2
#: The losses of this many first steps are kept.
LOSSES = 3

Notify = Callable[[str, int, float], None]


class NeverSettled(Exception):
    """Something was still being compiled at the end of the longest warm-up."""


@dataclasses.dataclass(slots=True)
class Samples:
    """What was measured. Times in seconds, one a step, in order."""

    warmup_s: list[float] = dataclasses.field(default_factory=list)
    step_s: list[float] = dataclasses.field(default_factory=list)
    dispatch_s: list[float] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)
    first_output: torch.Tensor | None = None
    compiled_in_timed: int = 0
    launches_per_step: float | None = None

    def fields(self) -> dict[str, Any]:
        """The columns of a Record that hold them, whatever there is so far."""
        return {
            "warmup_s": self.warmup_s,
            "step_s": self.step_s,
            "dispatch_s": self.dispatch_s,
            "losses": self.losses,
            "launches_per_step": self.launches_per_step,
        }


def _timed(
    backend: Backend, run: Callable[[], torch.Tensor], live: Callable[[], Iterator[Any]]
) -> tuple[torch.Tensor, float, float]:
    """One step: its result, the seconds until the host was free, and until the device was done."""
    start = time.perf_counter_ns()
    result = run()
    dispatched = time.perf_counter_ns()
    backend.synchronize((result, live()))
    done = time.perf_counter_ns()
    return result, (dispatched - start) / 1e9, (done - start) / 1e9


def warm_up(
    backend: Backend,
    run: Callable[[], torch.Tensor],
    live: Callable[[], Iterator[Any]],
    spec: Spec,
    notify: Notify,
    samples: Samples,
) -> None:
    """Steps until the compile count has stood still for :data:`SETTLED` of them.

    Raises:
        NeverSettled: it still moved after ``spec.warmup_max`` steps.
    """
    still, compiled = 0, backend.compile_count()
    for i in range(spec.warmup_max):
        result, _, seconds = _timed(backend, run, live)
        samples.warmup_s.append(seconds)
        notify("warmup", i, seconds)
        # Read after the clock has stopped; each loss needs its own step.
        if i < LOSSES and spec.phase == "train":
            samples.losses.append(float(result))
        if i == 0 and spec.phase != "train":
            samples.first_output = result.detach().to("cpu", copy=True)
        before, compiled = compiled, backend.compile_count()
        still = still + 1 if compiled == before else 0
        if still >= SETTLED and i + 1 >= spec.warmup_min:
            return
    raise NeverSettled(
        f"warm-up never settled: something was still compiled in the last {SETTLED} of its {spec.warmup_max} steps, "
        "so a value or shape changes from step to step"
    )


def time_steps(
    backend: Backend,
    run: Callable[[], torch.Tensor],
    live: Callable[[], Iterator[Any]],
    spec: Spec,
    samples: Samples,
) -> None:
    """``spec.steps`` timed steps, after :func:`warm_up`. Nothing is read on the host in between."""
    compiled = backend.compile_count()
    launches = backend.counters().get("launches")
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(spec.steps):
            _, dispatched, seconds = _timed(backend, run, live)
            samples.dispatch_s.append(dispatched)
            samples.step_s.append(seconds)
    finally:
        if was_enabled:
            gc.enable()
    samples.compiled_in_timed = backend.compile_count() - compiled
    if launches is not None:
        samples.launches_per_step = (backend.counters()["launches"] - launches) / spec.steps
