"""PyTorch/XLA. Its torch is another than ours: here it is stood in for, and run for real where an interpreter
that has it is named in TPUBENCH_TEST_TORCH_XLA."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from backend import torchxla, tpuhost
from backend.protocol import Unsupported
from backend.torchxla import TorchXla

ROOT = Path(__file__).parents[2]
REAL = os.environ.get("TPUBENCH_TEST_TORCH_XLA")


@dataclasses.dataclass
class Step:
    module: torch.nn.Module
    batch: tuple[torch.Tensor, ...]
    compute: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer | None


class Stand:
    """What the adapter uses of torch_xla 2.9.0, on the CPU, writing down what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.values: dict[str, int] = {}
        self.times: dict[str, tuple[int, float, list[float]]] = {}
        self.fallbacks = ["aten::_local_scalar_dense"]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def sync(wait: bool = False) -> None:
            self.calls.append("sync and wait" if wait else "sync")

        def memory() -> dict[str, int]:
            raise RuntimeError("UNIMPLEMENTED: GetAllocatorStats is not supported")

        parts: dict[str, dict[str, Any]] = {
            "torch_xla": {"device": lambda: torch.device("cpu"), "sync": sync, "__version__": "2.9.0"},
            "torch_xla.experimental": {"eager_mode": lambda on: self.calls.append(f"eager {on}")},
            "torch_xla.core": {},
            "torch_xla.core.xla_model": {
                "wait_device_ops": lambda: self.calls.append("wait"),
                "get_memory_info": memory,
            },
            "torch_xla.debug": {},
            "torch_xla.debug.metrics": {
                "counter_value": self.values.get,
                "metric_data": self.times.get,
                "executed_fallback_ops": lambda: list(self.fallbacks),
            },
        }
        for name, members in parts.items():
            module = types.ModuleType(name)
            module.__dict__.update(members)
            monkeypatch.setitem(sys.modules, name, module)
            parent, _, last = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], last, module)
        monkeypatch.setattr(torchxla, "_missing", lambda: None)


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    made = Stand()
    made.install(monkeypatch)
    return made


def linear(train: bool = True) -> Step:
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1) if train else None
    return Step(module, (torch.ones(2, 3),), lambda m, x: m(x).square().mean(), optimizer)


def test_a_lazy_step_is_cut_once_and_launched_before_the_first(stand: Stand) -> None:
    backend = TorchXla()
    backend.open("cpu", "lazy", cpu_fallback=False)
    backend.synchronize(None)
    assert stand.calls == ["eager False", "sync and wait", "wait"]
    stand.calls.clear()
    run = backend.prepare(linear(), "lazy")
    for _ in range(2):
        backend.synchronize(run())
    assert stand.calls == ["sync", "wait"] * 2


def test_an_eager_step_is_not_cut(stand: Stand) -> None:
    backend = TorchXla()
    backend.open("cpu", "eager", cpu_fallback=False)
    run = backend.prepare(linear(), "eager")
    run()
    assert stand.calls == ["eager True"]


def test_an_op_that_ran_on_the_cpu_is_refused_unless_that_is_allowed(stand: Stand) -> None:
    stand.fallbacks.append("aten::histc")  # while the data were made: no part of the step
    backend = TorchXla()
    backend.open("cpu", "lazy", cpu_fallback=False)
    run = backend.prepare(linear(), "lazy")
    run()
    stand.fallbacks += ["aten::median", "aten::linalg_eig"]
    with pytest.raises(Unsupported, match=r"of aten::linalg_eig, aten::median: --cpu-fallback"):
        run()
    allowed = TorchXla()
    allowed.open("cpu", "lazy", cpu_fallback=True)
    run = allowed.prepare(linear(), "lazy")
    stand.fallbacks.append("aten::kthvalue")
    run()
    stand.values |= {"aten::median": 2, "aten::kthvalue": 1, "aten::_local_scalar_dense": 9}
    told = allowed.counters()
    assert told["cpu_fallbacks"] == 3
    assert told["cpu_fallback_ops"] == ["aten::histc", "aten::kthvalue", "aten::linalg_eig", "aten::median"]


def test_counters_are_pytorch_xlas_own(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PERSISTENT_CACHE_PATH", "somewhere")
    stand.values |= {"UncachedCompile": 3, "CachedCompile": 23, "PersistentCacheHit": 2}
    stand.values |= {"PersistentCacheMiss": 2, "PersistentCacheDeserializeFailure": 1}
    stand.times |= {"CompileTime": (3, 2.5e9, []), "ExecuteTime": (28, 1e9, [])}
    backend = TorchXla()
    backend.open("cpu", "lazy", cpu_fallback=False)
    assert backend.compile_count() == 5
    assert backend.cache_stats() == {
        "requests": 28, "hits": 23, "misses": 3, "compile_s": 2.5,
        "disk_requests": 5, "disk_hits": 2, "disk_misses": 3, "disk_rejected": 1,
    }  # fmt: skip
    assert backend.counters()["launches"] == 28
    assert backend.memory_stats() == {}
    monkeypatch.setenv("XLA_PERSISTENT_CACHE_PATH", "")
    assert "disk_requests" not in backend.cache_stats()


@pytest.mark.parametrize(
    ("xla", "torch_version", "says"),
    [
        (None, "2.13.0+cpu", "torch_xla is not installed; give it an interpreter of its own"),
        ("2.9.0", None, "torch_xla 2.9.0 is installed, and torch is not"),
        ("2.9.0", "2.13.0+cpu", r"torch_xla 2.9.0 needs torch 2.9, and torch 2.13.0\+cpu is installed"),
    ],
)
def test_what_is_missing_is_told_without_importing_anything(
    monkeypatch: pytest.MonkeyPatch, xla: str | None, torch_version: str | None, says: str
) -> None:
    monkeypatch.setattr(torchxla, "_version", {"torch_xla": xla, "torch": torch_version}.get)
    monkeypatch.setattr(torchxla.importlib.util, "find_spec", lambda name: object())
    for mode in ("eager", "lazy", "compile"):
        with pytest.raises(Unsupported, match=says):
            TorchXla().open("cpu", mode, cpu_fallback=False)
    assert TorchXla().devices()["cpu"] == TorchXla().modes()["lazy"]


def test_modes_that_it_has_not_are_refused_with_the_reason(stand: Stand) -> None:
    for mode, why in (("eager-fused", "lazy mode takes its place"), ("eager-blocking", "waits after each op")):
        with pytest.raises(Unsupported, match=why):
            TorchXla().open("cpu", mode, cpu_fallback=False)
    with pytest.raises(Unsupported, match="no device is called 'gpu'"):
        TorchXla().open("gpu", "lazy", cpu_fallback=False)


def test_an_import_that_fails_is_a_reason(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_xla", None)
    with pytest.raises(Unsupported, match="torch-xla does not import: "):
        TorchXla().open("cpu", "lazy", cpu_fallback=False)


def test_the_environment_names_the_device_and_keeps_the_cache_in_the_cell(tmp_path: Path) -> None:
    cold = TorchXla().environment("tpu", "lazy", "cold", tmp_path)
    assert cold["PJRT_DEVICE"] == "TPU" and cold["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    assert Path(cold["XLA_PERSISTENT_CACHE_PATH"]).is_relative_to(tmp_path)
    assert TorchXla().environment("cpu", "lazy", "off", tmp_path)["XLA_PERSISTENT_CACHE_PATH"] == ""


def test_tpu_chips_are_told_apart_by_their_pci_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpuhost, "_DEVICES", tmp_path)

    def plug(slot: str, vendor: str, device: str) -> None:
        (tmp_path / slot).mkdir()
        (tmp_path / slot / "vendor").write_text(vendor + "\n")
        (tmp_path / slot / "device").write_text(device + "\n")

    plug("0000:00:01.0", "0x10de", "0x0063")  # another maker's
    plug("0000:00:02.0", "0x1ae0", "0x001f")  # Google's, and no TPU
    assert tpuhost.chips() == 0 and tpuhost.chip_name() is None and tpuhost.reason() == "no TPU in this machine"
    plug("0000:00:03.0", "0x1ae0", "0x0063")
    plug("0000:00:04.0", "0x1ae0", "0x0063")
    assert tpuhost.chips() == 2 and tpuhost.chip_name() == "v5e" and tpuhost.reason() is None


# -- the real one ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="TPUBENCH_TEST_TORCH_XLA names no interpreter that has torch_xla")
@pytest.mark.parametrize("mode", ["lazy", "eager", "compile"])
@pytest.mark.parametrize("phase", ["train", "infer"])
def test_real_steps_match_the_cpus(mode: str, phase: str, tmp_path: Path) -> None:
    got = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "tpubench", "run", "resnet", "--size", "tiny", "--phase", phase),
            *("--dtype", "float64", "--backend", "torch-xla", "--mode", mode, "--python", f"torch-xla={REAL}"),
            *("--steps", "6", "--out", str(tmp_path)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert got.returncode == 0, got.stdout + got.stderr
    from tpubench import store

    ((record,), problems) = store.read_many([str(tmp_path)])
    assert not problems and record.status == "ok" and record.correctness == "matched", record.reason
    assert record.python_version and record.torch_version.startswith("2.9.0")
    assert record.compile_misses > 0 and record.cpu_fallbacks == 0
    assert record.device_s is not None, record.device_s_reason
    assert record.launches_per_step == {"lazy": 1}.get(mode, record.launches_per_step)
    assert json.dumps(record.warnings) == "[]"
