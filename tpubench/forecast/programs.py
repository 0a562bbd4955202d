"""What one step of a cell launches, found out in a process of its own and kept."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpubench.errors import WorkerFailed
from tpubench.forecast.child import Child, Died
from tpubench.forecast.kept import Kept, digest
from tpubench.spec import Spec

#: Told what is being done, in a few words.
OnPhase = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """One program of a step. ``beside_bytes`` of arrays are held, at most, beside the arguments of a launch."""

    digest: str  # of its StableHLO
    name: str
    launches: int  # a step
    beside_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One step: its programs in the order in which they are first launched, and its work by the model's count."""

    programs: tuple[Program, ...]
    item: str  # what throughput counts
    items: float  # a step
    model_flops: float | None
    parameter_count: int | None
    warnings: tuple[str, ...]

    @property
    def launches(self) -> int:
        """Launches a step."""
        return sum(program.launches for program in self.programs)

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Step:
        """The inverse of :func:`dataclasses.asdict`.

        Raises:
            TypeError, KeyError: ``fields`` are of something else.
        """
        programs = tuple(Program(**program) for program in fields["programs"])
        return cls(**{**fields, "programs": programs, "warnings": tuple(fields["warnings"])})


class CannotCapture(Exception):
    """The step of a cell cannot be followed: ``fields`` are the status, reason and error_class of its row."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(fields["reason"])
        self.fields = fields


def capture(spec: Spec, kept: Kept, timeout: float, on_phase: OnPhase = lambda name: None) -> Step:
    """What a step of ``spec`` launches; from ``kept`` where it is there.

    Raises:
        CannotCapture: the step reads values, cannot be lowered, or takes longer than ``timeout`` seconds.
    """
    key = _key(spec)
    found = kept.read("steps", key) if key is not None else None
    if found is not None:
        step = Step.of(found)
        if all(kept.before(program.digest).exists() for program in step.programs):
            return step
    fields = _asked(spec, kept, timeout, on_phase)
    if key is not None:
        kept.write("steps", key, fields)
    return Step.of(fields)


def _asked(spec: Spec, kept: Kept, timeout: float, on_phase: OnPhase) -> dict[str, Any]:
    from backend import registry

    with tempfile.TemporaryDirectory(prefix="tpubench-") as scratch:
        environment = registry.load("embedded").environment("cpu", spec.mode, "off", Path(scratch))
        with Child([sys.executable, "-P", "-m", "tpubench.forecast.capture"], environment) as child:
            child.send({"spec": spec.to_dict(), "folder": str(kept.stablehlo("").parent)})
            deadline = time.monotonic() + timeout
            while True:
                try:
                    event = child.receive(deadline)
                except TimeoutError:
                    why = f"the step was not followed within {timeout:g} s: raise --timeout"
                    raise CannotCapture({"status": "timeout", "reason": why}) from None
                except Died as death:
                    raise WorkerFailed(f"no step of {spec.label} to forecast", death.why) from death
                if event["event"] == "phase":
                    on_phase(event["name"])
                elif event["event"] == "error":
                    raise CannotCapture({k: event[k] for k in ("status", "reason", "error_class")})
                else:
                    step: dict[str, Any] = event["step"]
                    return step


#: Fields of a Spec that a step's programs do not depend on.
_FREE = ("backend", "device", "cache", "steps", "warmup_min", "warmup_max", "cpu_fallback", "seed")


def _key(spec: Spec) -> str | None:
    """What names a step on disk; None: a workload of somebody else's, whose code is not known to be the same."""
    from workloads import registry

    if not type(registry.load(spec.workload)).__module__.startswith("workloads."):
        return None
    fields = {name: value for name, value in spec.to_dict().items() if name not in _FREE}
    versions = [importlib.metadata.version(package) for package in ("torch", "jax", "numpy")]
    return digest("step", fields, versions, _sources())


@functools.cache
def _sources() -> str:
    """A digest of the code that a step depends on: any line of it may change what is launched."""
    root = Path(__file__).parents[2]
    found = hashlib.sha256()
    ours = [root / "tpubench" / name for name in ("facts.py", "flops.py", "forecast/capture.py", "step.py")]
    for path in (*ours, *(p for package in ("backend", "workloads") for p in sorted((root / package).rglob("*.py")))):
        found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()
