"""PyTorch as it comes: the CPU and CUDA baselines, eager and compiled by Inductor."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend import dynamo
from backend.protocol import Step, Unsupported
from backend.training import step_function

if TYPE_CHECKING:
    import torch

#: What the CUDA runtime calls a device, less the maker, and what the catalogue does. The whole name has
#: to fit: an H100 NVL, an L40 or a MIG slice has another peak than the chip its name begins with.
_CHIPS = {
    "H200": "H200",
    "H100 PCIe": "H100-PCIe",
    "H100 80GB HBM3": "H100-SXM",
    "GB200": "GB200",
    "B200": "B200",
    "A100-SXM4-80GB": "A100-80",
    "A100 80GB PCIe": "A100-80",
    "A100-SXM4-40GB": "A100-40",
    "A100-PCIE-40GB": "A100-40",
    "A10G": "A10G",
    "L4": "L4",
    "T4": "T4",
}

_BLOCKING = "an op on the CPU is done when its call returns, in eager mode too"


class Native:
    """PyTorch's own kernels on the CPU or a CUDA device."""

    name = "torch"
    summary = "PyTorch as it comes: eager, and torch.compile with Inductor"

    def __init__(self) -> None:
        self._mode = "eager"
        self._device = "cpu"
        self._trains = True
        self._lookups = 0
        self._graphs_before = 0

    def modes(self) -> Mapping[str, str | None]:
        """Every mode by name, with None where it can run here, else the reason why not."""
        missing = _missing()
        return {
            "eager": missing,
            "eager-blocking": missing or (_cuda_reason() and f"{_BLOCKING}; CUDA: {_cuda_reason()}"),
            "eager-fused": "PyTorch defers no ops; compile is its fused mode",
            "lazy": "PyTorch has no lazy mode",
            "compile": missing or _compiler_reason(),
        }

    def devices(self) -> Mapping[str, str | None]:
        """Every device by name, with None where it can be used here, else the reason why not."""
        return {"cpu": _missing(), "cuda": _missing() or _cuda_reason()}

    def environment(self, device: str, mode: str, cache: str, cache_dir: Path) -> dict[str, str]:
        """The variables a worker needs before it imports torch."""
        # Each is set either way: what the user's shell exports must not change what the cell says it is.
        return {
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"),
            "TRITON_CACHE_DIR": str(cache_dir / "triton"),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1" if cache == "off" else "0",
            "CUDA_LAUNCH_BLOCKING": "1" if mode == "eager-blocking" else "0",
        }

    def open(self, device: str, mode: str, *, cpu_fallback: bool) -> torch.device:
        """Claim ``device``; see :class:`backend.protocol.Backend`."""
        import torch

        for kind, offered, name in (("device", self.devices(), device), ("mode", self.modes(), mode)):
            reason = offered.get(name, f"no {kind} is called '{name}'")
            if reason:
                raise Unsupported(f"torch {mode} on {device}: {reason}")
        if device == "cuda" and not torch.cuda.is_available():
            raise Unsupported(f"torch {mode} on cuda: this build of torch finds no CUDA device")
        if mode == "eager-blocking" and device == "cpu":
            raise Unsupported(f"torch eager-blocking on cpu: {_BLOCKING}")
        self._mode, self._device = mode, device
        return torch.device(device, 0) if device == "cuda" else torch.device("cpu")

    def prepare(self, step: Step, mode: str) -> Callable[[], torch.Tensor]:
        """A function that runs one whole step. Compile mode leaves the optimizer eager, as its users do."""
        self._trains = step.optimizer is not None
        if mode != "compile":
            return step_function(step)
        import torch

        dynamo.strict()
        self._lookups, self._graphs_before = 0, dynamo.graphs()
        compiled = torch.compile(step.compute, backend="inductor", fullgraph=True, dynamic=False)

        def compute(*args: Any) -> torch.Tensor:
            self._lookups += 1
            return compiled(*args)

        return step_function(step, compute)

    def synchronize(self, outputs: Any) -> None:
        """Wait for the CUDA stream; the CPU is done when a call returns."""
        if self._device == "cuda":
            import torch

            torch.cuda.synchronize()

    def compile_count(self) -> int:
        """Graphs compiled so far; eager mode compiles nothing."""
        return dynamo.graphs() if self._mode == "compile" else 0

    def cache_stats(self) -> dict[str, int | float | None]:
        """Dynamo's compiled code in memory, looked up by its guards at every call, and Inductor's cache on disk.

        Eager PyTorch compiles nothing, so that there is nothing to look up.
        """
        if self._mode != "compile":
            nothing = dict.fromkeys(("requests", "hits", "misses", "disk_requests", "disk_hits", "disk_misses"))
            return {**nothing, "compile_s": 0.0}
        misses = dynamo.graphs() - self._graphs_before
        disk = dynamo.inductor_cache()
        return {
            "requests": self._lookups,
            "hits": self._lookups - misses,
            "misses": misses,
            "compile_s": dynamo.compile_seconds(),
            "disk_requests": sum(disk) if disk else None,
            "disk_hits": disk[0] if disk else None,
            "disk_misses": disk[1] if disk else None,
        }

    def counters(self) -> dict[str, Any]:
        """Graphs, graph breaks, and what is compiled together."""
        if self._mode != "compile":
            return {"compile_scope": "op", "cpu_fallbacks": 0}
        return {
            "graphs": dynamo.graphs(),
            "graph_breaks": dynamo.graph_breaks(),
            "cpu_fallbacks": 0,
            "compile_scope": "forward+backward" if self._trains else "forward",
        }

    def memory_stats(self) -> dict[str, Any]:
        """The CUDA allocator's peak; an empty dict on the CPU."""
        if self._device != "cuda":
            return {}
        import torch

        return {"peak_bytes": torch.cuda.max_memory_allocated(), "kind": "device"}

    def cost_analysis(self) -> dict[str, float]:
        """Inductor counts nothing."""
        return {}

    def trace(self, directory: Path, run: str, steps: int, step: Callable[[], torch.Tensor]) -> Path:
        """A torch.profiler capture of ``steps`` marked steps; returns its ``.xplane.pb``."""
        from backend.capture import torch_profile

        return torch_profile(directory, run, steps, step, self.synchronize)

    def describe(self) -> dict[str, Any]:
        """What ran the step."""
        import torch

        on_cuda = self._device == "cuda"
        name = torch.cuda.get_device_name(0) if on_cuda else "cpu"
        tf32 = on_cuda and torch.backends.cuda.matmul.allow_tf32
        return {
            "device_name": name,
            "chip": chip_of(name),
            "chips": 1,
            "torch_version": torch.__version__,
            "jax_version": None,
            "libtpu_version": None,
            "matmul_precision": "tf32" if tf32 else "float32",
            "threads": None if on_cuda else torch.get_num_threads(),
        }


def chip_of(name: str) -> str | None:
    """The catalogue's name of the CUDA device called ``name``, None where it has none."""
    return _CHIPS.get(name.removeprefix("NVIDIA ").removeprefix("Tesla "))


def _missing() -> str | None:
    return None if importlib.util.find_spec("torch") else "torch is not installed (pip install tpubench)"


def _compiler_reason() -> str | None:
    # Inductor looks for this one name and no other (torch/_inductor/config.py, cpp.cxx).
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name):
        return None
    return f"Inductor needs a C++ compiler, and '{name}' is not on the PATH: install it, or name one in CXX"


def _cuda_reason() -> str | None:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if version.endswith("+cpu"):
        return "this build of torch is for the CPU only"
    if not Path("/dev/nvidia0").exists() and not Path("/proc/driver/nvidia/version").exists():
        return "no NVIDIA driver in this machine"
    return None
