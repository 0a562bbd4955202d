"""PyTorch/XLA: lazy tensors, its experimental eager mode, and torch.compile with its ``openxla`` backend.

Written against torch_xla 2.9.0, the last release on PyPI when it was. It needs the torch of its own version, so
that it usually runs in an interpreter of its own.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend import dynamo, tpuhost
from backend.protocol import Step, Unsupported
from backend.training import step_function

if TYPE_CHECKING:
    import torch

#: Devices by the suite's name, and what PJRT_DEVICE calls them.
_PJRT = {"cpu": "CPU", "tpu": "TPU"}
#: What ``.item()`` is written in: no op that lacks a lowering.
_READ = "aten::_local_scalar_dense"
#: Where PyTorch/XLA keeps programs on disk: read at the first computation; empty, nowhere.
_CACHE_VARIABLE = "XLA_PERSISTENT_CACHE_PATH"
_OWN = "give it an interpreter of its own: `tpubench run --python torch-xla=PATH`"


class TorchXla:
    """PyTorch/XLA on PJRT."""

    name = "torch-xla"
    summary = "PyTorch/XLA: lazy tensors, experimental eager, and torch.compile with openxla"

    def __init__(self) -> None:
        self._mode = "lazy"
        self._trains = True
        self._cpu_fallback = False
        self._cut: Callable[[], None] | None = None

    def modes(self) -> Mapping[str, str | None]:
        """Every mode by name, with None where it can run here, else the reason why not."""
        missing = _missing()
        return {
            "eager": missing,
            "eager-blocking": "PyTorch/XLA has no mode that waits after each op",
            "eager-fused": "PyTorch/XLA's lazy mode takes its place",
            "lazy": missing,
            "compile": missing,
        }

    def devices(self) -> Mapping[str, str | None]:
        """Every device by name, with None where it can be used here, else the reason why not."""
        missing = _missing()
        return {"cpu": missing, "tpu": missing or _tpu_reason()}

    def environment(self, device: str, mode: str, cache: str, cache_dir: Path) -> dict[str, str]:
        """The variables a worker needs before it imports torch_xla."""
        return {
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "PJRT_DEVICE": _PJRT.get(device, device),
            # Set in the user's shell they would narrow what the cell says is float32.
            "XLA_USE_BF16": "0",
            "XLA_DOWNCAST_BF16": "0",
            "XLA_PERSISTENT_CACHE_READ_ONLY": "0",
            _CACHE_VARIABLE: "" if cache == "off" else str(cache_dir / "torch-xla"),
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        }

    def open(self, device: str, mode: str, *, cpu_fallback: bool) -> torch.device:
        """Claim ``device``; see :class:`backend.protocol.Backend`."""
        for kind, offered, name in (("device", self.devices(), device), ("mode", self.modes(), mode)):
            reason = offered.get(name, f"no {kind} is called '{name}'")
            if reason:
                raise Unsupported(f"torch-xla {mode} on {device}: {reason}")
        try:
            import torch_xla
            from torch_xla import experimental
        except ImportError as error:  # a torch of another version, or no libpython for it to load
            raise Unsupported(f"torch-xla does not import: {' '.join(str(error).split())}") from error
        self._mode, self._cpu_fallback = mode, cpu_fallback
        try:
            handle: torch.device = torch_xla.device()
        except RuntimeError as error:
            raise Unsupported(f"torch-xla on {device}: {' '.join(str(error).split())}") from error
        experimental.eager_mode(mode == "eager")
        return handle

    def prepare(self, step: Step, mode: str) -> Callable[[], torch.Tensor]:
        """A function that runs one whole step and, but in eager mode, cuts the trace after it.

        In compile mode forward and backward are openxla's programs, and the optimizer is a lazy one: what PyTorch/XLA
        documents for training (https://docs.pytorch.org/xla/release/r2.9/perf/dynamo.html).
        """
        import torch
        import torch_xla

        self._trains = step.optimizer is not None
        before = set(_fallbacks())
        compute = None
        if mode == "compile":
            dynamo.strict()
            compute = torch.compile(step.compute, backend="openxla", fullgraph=True, dynamic=False)
        run = step_function(step, compute)
        if mode != "eager":
            self._cut = torch_xla.sync
        cut = self._cut

        def whole() -> torch.Tensor:
            result = run()
            if cut is not None:
                cut()
            if not self._cpu_fallback:
                unlowered = sorted(set(_fallbacks()) - before)
                if unlowered:
                    raise Unsupported(
                        f"no lowering in PyTorch/XLA of {', '.join(unlowered)}: --cpu-fallback runs it on the CPU"
                    )
            return result

        return whole

    def synchronize(self, outputs: Any) -> None:
        """Wait for everything that was launched; before the first step, launch what is traced."""
        import torch_xla
        from torch_xla.core import xla_model

        if self._cut is None:
            torch_xla.sync(wait=True)
        xla_model.wait_device_ops()

    def compile_count(self) -> int:
        """Programs compiled or loaded from disk so far."""
        return _counter("UncachedCompile") + _counter("PersistentCacheHit")

    def cache_stats(self) -> dict[str, int | float | None]:
        """PyTorch/XLA's own counters. A program on disk that does not load is a miss, and ``disk_rejected``."""
        compiled, found = _counter("UncachedCompile"), _counter("CachedCompile")
        loaded = _counter("PersistentCacheHit")
        stats: dict[str, int | float | None] = {
            "requests": compiled + found + loaded,
            "hits": found,
            "misses": compiled,
            "compile_s": sum(_metric(name)[1] for name in ("CompileTime", "EagerOpCompileTime")) / 1e9
            + (dynamo.compile_seconds() if self._mode == "compile" else 0.0),
        }
        if os.environ.get(_CACHE_VARIABLE):
            torn = _counter("PersistentCacheDeserializeFailure")
            missed = _counter("PersistentCacheMiss") + torn
            stats |= {
                "disk_requests": loaded + missed,
                "disk_hits": loaded,
                "disk_misses": missed,
                "disk_rejected": torn,
            }
        return stats

    def counters(self) -> dict[str, Any]:
        """Launches, graphs, graph breaks, CPU fallbacks, and what is compiled together."""
        compiled = self._mode == "compile"
        whole = "forward+backward, optimizer: a program each" if self._trains else "forward"
        return {
            "launches": _metric("ExecuteTime")[0] + _metric("EagerOpExecuteTime")[0],
            "graphs": dynamo.graphs() if compiled else None,
            "graph_breaks": dynamo.graph_breaks() if compiled else None,
            "cpu_fallbacks": sum(map(_counter, _fallbacks())),
            "cpu_fallback_ops": _fallbacks(),
            "compile_scope": {"eager": "op", "lazy": "the whole step"}.get(self._mode, whole),
        }

    def memory_stats(self) -> dict[str, Any]:
        """The device's peak; an empty dict where PJRT does not tell (the CPU)."""
        from torch_xla.core import xla_model

        try:
            info = xla_model.get_memory_info()
        except RuntimeError:  # UNIMPLEMENTED: GetAllocatorStats
            return {}
        return {"peak_bytes": info["peak_bytes_used"], "kind": "device"} if "peak_bytes_used" in info else {}

    def cost_analysis(self) -> dict[str, float]:
        """PyTorch/XLA tells none."""
        return {}

    def trace(self, directory: Path, run: str, steps: int, step: Callable[[], torch.Tensor]) -> Path:
        """A capture by PyTorch/XLA's profiler of ``steps`` marked steps; returns its ``.xplane.pb``."""
        import torch_xla
        from torch_xla.debug import profiler

        from backend.capture import STEP_NAME, run_folder

        folder = run_folder(directory, run)
        scratch = folder / "capture"
        scratch.mkdir(parents=True, exist_ok=True)
        profiler.start_trace(scratch)
        try:
            for i in range(steps):
                # Not profiler.StepTrace: it opens a scope, inside which no trace can be cut.
                with torch_xla._XLAC.profiler.TraceMe(STEP_NAME, step_num=i, _r=1):
                    self.synchronize(step())
        finally:
            profiler.stop_trace()
        found = sorted(scratch.glob("plugins/profile/*/*.xplane.pb"))
        if not found:
            raise RuntimeError(f"PyTorch/XLA's profiler wrote no profile to {scratch}")
        path = folder / f"{socket.gethostname()}.xplane.pb"
        found[-1].replace(path)
        shutil.rmtree(scratch)
        return path

    def describe(self) -> dict[str, Any]:
        """What ran the step."""
        import torch
        import torch_xla.backends
        import torch_xla.runtime

        kind = torch_xla.runtime.device_type()
        precision = torch_xla.backends.get_mat_mul_precision()
        passes = {"default": "bfloat16", "high": "bfloat16 in 3 passes", "highest": "bfloat16 in 6 passes"}
        return {
            "device_name": "cpu" if kind == "CPU" else tpuhost.chip_name() or str(kind).lower(),
            "chip": tpuhost.chip_name() if kind == "TPU" else None,
            "chips": 1,
            "torch_version": f"{torch.__version__} (torch_xla {torch_xla.__version__})",
            "jax_version": None,
            "libtpu_version": _version("libtpu") if kind == "TPU" else None,
            "matmul_precision": passes[precision] if kind == "TPU" else "float32",
            "threads": None,
        }


def _counter(name: str) -> int:
    from torch_xla.debug import metrics

    return metrics.counter_value(name) or 0


def _metric(name: str) -> tuple[int, float]:
    """``(count, sum)`` of a metric; times are in nanoseconds. Nothing: it was never touched."""
    from torch_xla.debug import metrics

    data = metrics.metric_data(name)
    return (int(data[0]), float(data[1])) if data else (0, 0.0)


def _fallbacks() -> list[str]:
    """Ops that ran on the CPU so far because they have no lowering."""
    from torch_xla.debug import metrics

    return sorted(set(metrics.executed_fallback_ops()) - {_READ})


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _missing() -> str | None:
    """Why PyTorch/XLA cannot be imported here, by the versions that are installed."""
    xla, torch_version = _version("torch_xla"), _version("torch")
    if xla is None or importlib.util.find_spec("torch_xla") is None:
        return f"torch_xla is not installed; {_OWN}"
    if torch_version is None:
        return f"torch_xla {xla} is installed, and torch is not; {_OWN}"
    wanted, found = xla.split(".")[:2], torch_version.split(".")[:2]
    if wanted != found:
        return f"torch_xla {xla} needs torch {'.'.join(wanted)}, and torch {torch_version} is installed; {_OWN}"
    return None


def _tpu_reason() -> str | None:
    if _version("libtpu") is None:
        return "libtpu is not installed (pip install 'torch_xla[tpu]')"
    return tpuhost.reason()
