"""The embedded backend as the suite sees it. Imports neither torch nor jax before it executes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend import dynamo
from backend.protocol import Step, Unsupported
from backend.training import step_function

if TYPE_CHECKING:
    import torch

#: The torch device's name. It becomes an attribute of every Tensor and Module, so it is no common word.
DEVICE_NAME = "pjrt"


class Embedded:
    """PyTorch on XLA/PJRT through a torch device of our own."""

    name = "embedded"
    summary = "PyTorch on XLA through PJRT, by a torch device of our own"

    def __init__(self) -> None:
        self._mode = "eager"
        self._trains = True

    def modes(self) -> Mapping[str, str | None]:
        """Every mode by name, with None where it can run here, else the reason why not."""
        missing = _missing()
        return {
            "eager": missing,
            "eager-blocking": missing,
            "eager-fused": missing,
            "lazy": "this backend has no lazy mode; eager-fused takes its place",
            "compile": missing,
        }

    def devices(self) -> Mapping[str, str | None]:
        """Every device by name, with None where it can be used here, else the reason why not."""
        return {
            "cpu": _missing(),
            "gpu": None if _has_plugin("cuda") else "no CUDA plugin of jax is installed (pip install 'jax[cuda]')",
            "tpu": _tpu_reason(),
        }

    def environment(self, device: str, mode: str, cache: str, cache_dir: Path) -> dict[str, str]:
        """The variables a worker needs before it imports torch or jax."""
        platform = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}[device]
        return {
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "JAX_PLATFORMS": platform,
            # The cache on disk is our own (backend/embedded/disk.py): jax's below it would warm a cold cell.
            "JAX_ENABLE_COMPILATION_CACHE": "false",
            "TPUBENCH_CACHE_DIR": "" if cache == "off" else str(cache_dir),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0",  # captured graphs are kept by PyTorch's means
            "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        }

    def open(self, device: str, mode: str, *, cpu_fallback: bool) -> torch.device:
        """Register the torch device and claim ``device``; see :class:`backend.protocol.Backend`."""
        reason = self.devices().get(device, f"no device is called '{device}'") or self.modes().get(
            mode, f"no mode is called '{mode}'"
        )
        if reason:
            raise Unsupported(f"embedded {mode} on {device}: {reason}")
        import jax

        try:
            jax.devices()
        except RuntimeError as error:
            raise Unsupported(f"embedded on {device}: jax found no such device ({error})") from error
        from backend.embedded import device as torch_device
        from backend.embedded import fallback
        from backend.embedded.mode import set_mode

        handle = torch_device.activate()
        fallback.allow(cpu_fallback)
        set_mode(mode)
        self._mode = mode
        return handle

    def prepare(self, step: Step, mode: str) -> Callable[[], torch.Tensor]:
        """A function that runs one whole step; in compile mode forward, backward and optimizer are compiled.

        A program each: that is what plain ``torch.compile`` gives a user. :mod:`backend.embedded.whole` makes
        one program of all three; on a CPU it was the slower (``bench/compile.py --apart``).
        """
        self._trains = step.optimizer is not None
        if mode != "compile":
            return step_function(step)
        import torch

        from backend.embedded.graphs import import_ahead

        dynamo.strict()
        import_ahead()
        compute = torch.compile(step.compute, backend=DEVICE_NAME, fullgraph=True, dynamic=False)
        update = None
        if step.optimizer is not None:
            update = torch.compile(step.optimizer.step, backend=DEVICE_NAME, dynamic=False)
        return step_function(step, compute, update)

    def synchronize(self, outputs: Any) -> None:
        """Wait for everything that was launched."""
        from backend.embedded.buffer import synchronize

        synchronize()

    def compile_count(self) -> int:
        """Executables compiled or loaded from disk so far: either makes a step slower than the next."""
        from backend.embedded.cache import COUNTERS

        return COUNTERS.misses + COUNTERS.loads

    def cache_stats(self) -> dict[str, int | float | None]:
        """The executable cache in memory, and below it the one on disk, where there is one."""
        from backend.embedded import disk
        from backend.embedded.cache import COUNTERS

        kept = disk.current()
        use = kept.use if kept is not None else None
        return {
            "requests": COUNTERS.requests,
            "hits": COUNTERS.hits,
            "misses": COUNTERS.misses,
            # An executable is compiled at a graph's first call, after Dynamo's own clock has stopped.
            "compile_s": COUNTERS.compile_s + (dynamo.compile_seconds() if self._mode == "compile" else 0.0),
            "disk_requests": use and use.requests,
            "disk_hits": use and use.hits,
            "disk_misses": use and use.misses,
            "disk_s": use and use.seconds,
            "disk_read_bytes": use and use.read_bytes,
            "disk_written_bytes": use and use.written_bytes,
            "disk_rejected": use and use.rejected,
            "disk_unwritten": use and use.unwritten,
        }

    def counters(self) -> dict[str, Any]:
        """Launches, graphs, graph breaks, CPU fallbacks, and what is compiled together."""
        from backend.embedded.cache import COUNTERS

        compiled = self._mode == "compile"
        scope = "forward+loss, backward, optimizer: a program each" if self._trains else "forward"
        eager_scope = "what is recorded up to a read" if self._mode == "eager-fused" else "op"
        return {
            "launches": COUNTERS.launches,
            "graphs": COUNTERS.graphs if compiled else None,
            "graph_breaks": dynamo.graph_breaks() if compiled else None,
            "cpu_fallbacks": sum(COUNTERS.cpu_fallbacks.values()),
            "cpu_fallback_ops": sorted(COUNTERS.cpu_fallbacks),
            "compile_scope": scope if compiled else eager_scope,
        }

    def memory_stats(self) -> dict[str, Any]:
        """The device's peak, where PJRT counts it (not on the CPU)."""
        import jax

        stats = jax.devices()[0].memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        return {} if peak is None else {"peak_bytes": peak, "kind": "device"}

    def cost_analysis(self) -> dict[str, float]:
        """Not collected yet: XLA's counts need every program's weight in a step."""
        return {}

    def trace(self, directory: Path, run: str, steps: int, step: Callable[[], torch.Tensor]) -> Path:
        """A jax.profiler capture of ``steps`` marked steps; returns its ``.xplane.pb``."""
        from backend.capture import jax_profile

        return jax_profile(directory, run, steps, step, self.synchronize)

    def describe(self) -> dict[str, Any]:
        """What ran the step."""
        import jax
        import torch

        device = jax.devices()[0]
        on_cpu = device.platform == "cpu"
        return {
            "device_name": device.device_kind,
            "chip": None if on_cpu else _CHIPS.get(device.device_kind),
            "chips": 1,
            "torch_version": torch.__version__,
            "jax_version": jax.__version__,
            "libtpu_version": _version("libtpu"),
            # XLA's default precision: exact on a CPU, one bfloat16 pass on a TPU's MXU, TF32 on a GPU.
            "matmul_precision": {"cpu": "float32", "tpu": "bfloat16", "gpu": "tf32"}.get(device.platform),
            "threads": os.cpu_count() if on_cpu else None,
        }


#: What PJRT calls a device, and what the catalogue calls the chip (jax's device_kind strings).
_CHIPS = {
    "TPU v2": "v2",
    "TPU v3": "v3",
    "TPU v4": "v4",
    "TPU v5 lite": "v5e",
    "TPU v5": "v5p",
    "TPU v6 lite": "v6e",
    "TPU7x": "v7x",
    "NVIDIA H100 80GB HBM3": "H100-SXM",
    "NVIDIA H200": "H200",
    "NVIDIA A100-SXM4-80GB": "A100-80",
    "NVIDIA A100-SXM4-40GB": "A100-40",
}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _missing() -> str | None:
    for package in ("torch", "jax"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed (pip install tpubench)"
    return None


def _has_plugin(name: str) -> bool:
    return any(name in entry.name for entry in importlib.metadata.entry_points(group="jax_plugins"))


def _tpu_reason() -> str | None:
    if _version("libtpu") is None:
        return "libtpu is not installed (pip install 'tpubench[tpu]')"
    if not any(Path("/dev").glob("accel*")) and not any(Path("/dev/vfio").glob("[0-9]*")):
        return "no TPU in this machine"
    return None
