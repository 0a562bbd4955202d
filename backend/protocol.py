"""What a backend is: a way of executing a step that somebody else has built.

A third party's backend is a class of this shape, announced under the entry point group
``tpubench.backends``. Its module must import without torch or jax (the command line looks at
:meth:`Backend.modes` in a process that has neither); the methods that execute import them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class Unsupported(Exception):
    """A backend cannot do what was asked of it here. One line: what, and why."""


class Step(Protocol):
    """One training or inference step, unmodified PyTorch, already on the backend's device."""

    @property
    def module(self) -> torch.nn.Module:
        """The model."""

    @property
    def batch(self) -> tuple[torch.Tensor, ...]:
        """One batch."""

    @property
    def compute(self) -> Callable[..., torch.Tensor]:
        """``compute(module, *batch)`` gives the loss (train) or the output (infer)."""

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """What a training step moves the parameters with; None: inference."""


class Backend(Protocol):
    """A way of executing a step. One instance serves one worker process, one device, one mode."""

    name: str
    summary: str  # one line, for `tpubench list`

    def modes(self) -> Mapping[str, str | None]:
        """Every mode by name, with None where it can run here, else the reason why not. No imports."""

    def devices(self) -> Mapping[str, str | None]:
        """Every device by name, with None where it can be used here, else the reason. No imports."""

    def environment(self, device: str, mode: str, cache: str, cache_dir: Path) -> dict[str, str]:
        """Environment variables the worker needs before torch or jax is imported.

        ``cache`` is the Spec's: ``cold``, ``warm`` or ``off``. ``cache_dir`` is where this cell's compile caches
        live: an empty folder for a cold cell, one that earlier cells may have filled for a warm one.
        """

    def open(self, device: str, mode: str, *, cpu_fallback: bool) -> torch.device:
        """Claim the device and the mode; returns where modules and batches are to be put.

        Raises:
            Unsupported: this device or mode cannot be had here.
        """

    def prepare(self, step: Step, mode: str) -> Callable[[], torch.Tensor]:
        """A function that runs one whole step in ``mode`` and returns its loss or output, unsynchronised."""

    def synchronize(self, outputs: Any) -> None:
        """Return once the work behind ``outputs``, and everything launched before it, is done."""

    def compile_count(self) -> int:
        """How many programs have been compiled, or loaded from disk, so far in this process.

        Both make a step slower than the next: a warm-up ends when neither happens any more.
        """

    def cache_stats(self) -> dict[str, int | float | None]:
        """``requests, hits, misses, compile_s`` of the programs in memory; of those on disk, where they are kept,
        ``disk_requests, disk_hits, disk_misses, disk_s, disk_read_bytes, disk_written_bytes, disk_rejected,
        disk_unwritten``. None: not counted.

        A request is a hit, a miss (compiled), or found on disk.
        """

    def counters(self) -> dict[str, Any]:
        """``launches, graphs, graph_breaks, cpu_fallbacks, cpu_fallback_ops, compile_scope``, as far as known."""

    def memory_stats(self) -> dict[str, Any]:
        """``peak_bytes`` and ``kind`` (``device``), or an empty dict where only the host's RSS is known."""

    def cost_analysis(self) -> dict[str, float]:
        """``flops`` and ``bytes`` of the compiled programs by the compiler's own count, where it has one."""

    def trace(self, directory: Path, run: str, steps: int, step: Callable[[], torch.Tensor]) -> Path:
        """Run ``steps`` steps under the backend's profiler, each one marked and synchronised.

        Returns the ``.xplane.pb`` it wrote, at ``<directory>/plugins/profile/<run>/<host>.xplane.pb``.
        """

    def describe(self) -> dict[str, Any]:
        """``device_name, chip, chips, torch_version, jax_version, libtpu_version, matmul_precision, threads``."""
