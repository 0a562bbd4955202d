"""Backends by name, in a process of its own each: what a third party announces is on the path there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend import registry

WORKING = """
class Idle:
    name = "idle"
    summary = "does nothing"
    def modes(self): return {"eager": None}
    def devices(self): return {"cpu": None}
    def environment(self, device, mode, cache, cache_dir): return {}
    def open(self, device, mode, *, cpu_fallback): ...
    def prepare(self, step, mode): ...
    def synchronize(self, outputs): ...
    def compile_count(self): return 0
    def cache_stats(self): return {}
    def counters(self): return {}
    def memory_stats(self): return {}
    def cost_analysis(self): return {}
    def trace(self, directory, run, steps, step): ...
    def describe(self): return {}

class Half:
    name = "half"
    summary = "has no steps"
    def modes(self): return {}
"""

REPORT = """
import json, sys
from backend import registry
answer = {"names": registry.names(), "loaded": {}, "broken": {}}
for name in registry.names():
    try:
        answer["loaded"][name] = type(registry.load(name)).__qualname__
    except registry.BrokenBackend as error:
        answer["broken"][name] = str(error)
answer["imported"] = sorted({"torch", "jax"} & set(sys.modules))
print(json.dumps(answer))
"""


def announce(folder: Path, entries: dict[str, str]) -> None:
    """A package as pip would have installed it into ``folder``."""
    (folder / "idle_backend.py").write_text(WORKING)
    (folder / "crashing_backend.py").write_text("raise RuntimeError('first line\\nsecond line')\n")
    info = folder / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[tpubench.backends]", *lines]) + "\n")


def report(*folders: Path, isolated: bool = False) -> dict[str, Any]:
    """What the registry of a fresh interpreter offers, with ``folders`` on its path.

    ``isolated`` leaves out site-packages: nothing is installed there, tpubench neither.
    """
    root = Path(registry.__file__).parents[1]
    path = os.pathsep.join(map(str, [*folders, root]))
    flags = ["-S"] if isolated else []
    done = subprocess.run(
        [sys.executable, *flags, "-c", REPORT],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folders[0] if folders else root.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_our_own_load_and_import_neither_torch_nor_jax() -> None:
    answer = report()
    assert (
        answer["loaded"].items()
        >= {
            "embedded": "Embedded",
            "torch": "Native",
            "torch-xla": "TorchXla",
        }.items()
    )
    assert answer["imported"] == []


def test_our_own_load_where_nothing_is_installed(tmp_path: Path) -> None:
    package = tmp_path / "checkout"
    package.mkdir()
    (package / "backend").symlink_to(Path(registry.__file__).parent)
    assert report(package, isolated=True)["loaded"] == {
        "embedded": "Embedded",
        "torch": "Native",
        "torch-xla": "TorchXla",
    }


def test_another_package_adds_a_backend(tmp_path: Path) -> None:
    announce(tmp_path, {"idle": "idle_backend:Idle"})
    answer = report(tmp_path)
    assert answer["names"] == sorted(answer["names"])
    assert {"embedded", "idle", "torch"} <= set(answer["names"])
    assert answer["loaded"]["idle"] == "Idle"


def test_broken_ones_are_named_with_the_reason_and_leave_the_others_alone(tmp_path: Path) -> None:
    entries = {
        "absent": "no_such_module:Thing",
        "crash": "crashing_backend:Thing",
        "half": "idle_backend:Half",
        "idle": "idle_backend:Idle",
        "nothing": "idle_backend:Nothing",
    }
    announce(tmp_path, entries)
    answer = report(tmp_path)
    assert answer["loaded"].items() >= {"embedded": "Embedded", "idle": "Idle", "torch": "Native"}.items()
    broken = answer["broken"]
    assert broken["absent"] == (
        "the backend 'absent' (no_such_module:Thing) does not import: No module named 'no_such_module'"
    )
    assert broken["crash"] == ("the backend 'crash' (crashing_backend:Thing) does not import: first line second line")
    assert broken["half"].startswith("the backend 'half' (idle_backend:Half) has no devices, environment, open,")
    assert "has no attribute 'Nothing'" in broken["nothing"]


def test_nobody_takes_the_name_of_one_of_ours(tmp_path: Path) -> None:
    announce(tmp_path, {"torch": "idle_backend:Idle"})
    assert report(tmp_path)["loaded"]["torch"] == "Native"


def test_an_unknown_name_says_what_is_offered() -> None:
    with pytest.raises(registry.UnknownBackend, match="no backend is called 'tensor'") as caught:
        registry.load("tensor")
    assert isinstance(caught.value, LookupError)
    assert caught.value.name == "tensor"
    assert {"embedded", "torch"} <= set(caught.value.offered)


def test_every_load_is_an_instance_of_its_own() -> None:
    assert registry.load("torch") is not registry.load("torch")
