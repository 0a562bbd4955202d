"""PyTorch as it comes: the CPU and CUDA baselines, eager and compiled by Inductor."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend import dynamo
from backend.protocol import Step, Unsupported
from backend.training import step_function

if TYPE_CHECKING:
    import torch

#: How the CUDA runtime names a chip, most telling first, and how the catalogue does.
_CHIPS = {
    "H200": "H200",
    "H100 PCIE": "H100-PCIe",
    "H100": "H100-SXM",
    "GB200": "GB200",
    "B200": "B200",
    "A100-SXM4-80GB": "A100-80",
    "A100 80GB": "A100-80",
    "A100": "A100-40",
    "A10G": "A10G",
    "L4": "L4",
    "T4": "T4",
}


class Native:
    """PyTorch's own kernels on the CPU or a CUDA device."""

    name = "torch"
    summary = "PyTorch as it comes: eager, and torch.compile with Inductor"

    def __init__(self) -> None:
        self._mode = "eager"
        self._device = "cpu"

    def modes(self) -> Mapping[str, str | None]:
        """Every mode by name, with None where it can run here, else the reason why not."""
        missing = _missing()
        return {
            "eager": missing,
            "eager-blocking": missing or (_cuda_reason() and "ops on the CPU block already; it takes a CUDA device"),
            "eager-fused": "PyTorch defers no ops; compile is its fused mode",
            "lazy": "PyTorch has no lazy mode",
            "compile": missing or _compiler_reason(),
        }

    def devices(self) -> Mapping[str, str | None]:
        """Every device by name, with None where it can be used here, else the reason why not."""
        return {"cpu": _missing(), "cuda": _missing() or _cuda_reason()}

    def environment(self, device: str, mode: str, cache: str, cache_dir: Path) -> dict[str, str]:
        """The variables a worker needs before it imports torch."""
        variables = {
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"),
        }
        if cache == "off":
            variables["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        if mode == "eager-blocking":
            variables["CUDA_LAUNCH_BLOCKING"] = "1"
        return variables

    def open(self, device: str, mode: str, *, cpu_fallback: bool) -> torch.device:
        """Claim ``device``; see :class:`backend.protocol.Backend`."""
        import torch

        for offered, name in ((self.devices(), device), (self.modes(), mode)):
            reason = offered.get(name, "there is no such thing")
            if reason:
                raise Unsupported(f"torch {mode} on {device}: '{name}': {reason}")
        if device == "cuda" and not torch.cuda.is_available():
            raise Unsupported("torch on cuda: this build of torch finds no CUDA device")
        if mode == "eager-blocking" and device == "cpu":
            raise Unsupported("torch eager-blocking on cpu: ops on the CPU block already")
        self._mode, self._device = mode, device
        return torch.device(device, 0) if device == "cuda" else torch.device("cpu")

    def prepare(self, step: Step, mode: str) -> Callable[[], torch.Tensor]:
        """A function that runs one whole step. Compile mode leaves the optimizer eager, as its users do."""
        if mode != "compile":
            return step_function(step)
        import torch

        dynamo.strict()
        return step_function(step, torch.compile(step.compute, fullgraph=True, dynamic=False))

    def synchronize(self, outputs: Any) -> None:
        """Wait for the CUDA stream; the CPU is done when a call returns."""
        if self._device == "cuda":
            import torch

            torch.cuda.synchronize()

    def compile_count(self) -> int:
        """Graphs compiled so far; eager mode compiles nothing."""
        return dynamo.graphs() if self._mode == "compile" else 0

    def cache_stats(self) -> dict[str, int | float | None]:
        """Inductor's cache on disk. In memory, guards and not look-ups find a graph: nothing is counted."""
        hits, misses = dynamo.inductor_cache() if self._mode == "compile" else (None, None)
        return {
            "requests": None,
            "hits": None,
            "misses": dynamo.graphs() if self._mode == "compile" else 0,
            "compile_s": dynamo.compile_seconds() if self._mode == "compile" else 0.0,
            "disk_requests": None if hits is None or misses is None else hits + misses,
            "disk_hits": hits,
            "disk_misses": misses,
        }

    def counters(self) -> dict[str, Any]:
        """Graphs, graph breaks, and what is compiled together."""
        if self._mode != "compile":
            return {"compile_scope": "nothing: PyTorch's own kernels, op by op", "cpu_fallbacks": 0}
        return {
            "graphs": dynamo.graphs(),
            "graph_breaks": dynamo.graph_breaks(),
            "cpu_fallbacks": 0,
            "compile_scope": "forward+loss and backward; the optimizer is eager",
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
        name = torch.cuda.get_device_name(0) if on_cuda else None
        tf32 = on_cuda and torch.backends.cuda.matmul.allow_tf32
        return {
            "device_name": name,
            "chip": chip_of(name) if name else None,
            "chips": 1,
            "torch_version": torch.__version__,
            "jax_version": None,
            "libtpu_version": None,
            "matmul_precision": "tf32" if tf32 else "float32",
            "threads": None if on_cuda else torch.get_num_threads(),
        }


def chip_of(name: str) -> str | None:
    """The catalogue's name of the CUDA device called ``name``, None where it has none."""
    # Whole words only: an L40 is no L4.
    return next((chip for part, chip in _CHIPS.items() if re.search(rf"\b{part}\b", name.upper())), None)


def _missing() -> str | None:
    return None if importlib.util.find_spec("torch") else "torch is not installed (pip install tpubench)"


def _compiler_reason() -> str | None:
    if any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        return None
    return "Inductor needs a C++ compiler: none of c++, g++, clang++ is on the PATH"


def _cuda_reason() -> str | None:
    if importlib.metadata.version("torch").endswith("+cpu"):
        return "this build of torch is for the CPU only"
    if not Path("/dev/nvidia0").exists() and not Path("/proc/driver/nvidia/version").exists():
        return "no NVIDIA driver in this machine"
    return None
