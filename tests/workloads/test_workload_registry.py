"""Workloads by name, in a process of its own where a third party announces one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workloads import registry

OTHERS = """
class Toy:
    name = "toy"
    summary = "one weight"
    item = "sample"
    sizes = {}
    phases = ("train",)
    published = "tiny"
    optimizer = "sgd"
    flops_convention = "everything"
    def build(self, size, phase, dtype, seed): ...
    def flops(self, size, phase, batch, seq_len): return 0.0
    def items(self, size, phase, batch, seq_len): return 1.0

class Half:
    name = "half"
    def build(self, size, phase, dtype, seed): ...
"""

REPORT = """
import json, sys
from workloads import registry
answer = {"names": registry.names(), "loaded": {}, "broken": {}}
for name in registry.names():
    try:
        answer["loaded"][name] = type(registry.load(name)).__qualname__
    except registry.BrokenWorkload as error:
        answer["broken"][name] = str(error)
answer["torch"] = "torch" in sys.modules
print(json.dumps(answer))
"""


def report(*folders: Path) -> dict[str, Any]:
    """What the registry of a fresh interpreter offers, with ``folders`` on its path."""
    root = Path(registry.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", REPORT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*folders, root]))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def announce(folder: Path, entries: dict[str, str]) -> None:
    """A package as pip would have installed it into ``folder``."""
    (folder / "other_workloads.py").write_text(OTHERS)
    info = folder / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[tpubench.workloads]", *lines]) + "\n")


def test_our_own_load_without_torch() -> None:
    answer = report()
    assert answer["loaded"]["resnet"] == "ResNet"
    assert answer["torch"] is False


def test_another_package_adds_a_workload_and_a_broken_one_stays_apart(tmp_path: Path) -> None:
    entries = {"absent": "no_such_module:Thing", "half": "other_workloads:Half", "toy": "other_workloads:Toy"}
    announce(tmp_path, entries)
    answer = report(tmp_path)
    assert {"absent", "half", "resnet", "toy"} <= set(answer["names"])
    assert answer["loaded"].items() >= {"resnet": "ResNet", "toy": "Toy"}.items()
    assert answer["broken"] == {
        "absent": ("the workload 'absent' (no_such_module:Thing) does not import: No module named 'no_such_module'"),
        "half": (
            "the workload 'half' (other_workloads:Half) has no "
            "summary, item, sizes, published, phases, optimizer, flops_convention, flops, items"
        ),
    }


def test_nobody_takes_the_name_of_one_of_ours(tmp_path: Path) -> None:
    announce(tmp_path, {"resnet": "other_workloads:Toy"})
    assert report(tmp_path)["loaded"]["resnet"] == "ResNet"


def test_an_unknown_name_says_what_is_offered() -> None:
    with pytest.raises(registry.UnknownWorkload, match="no workload is called 'resnett'") as caught:
        registry.load("resnett")
    assert isinstance(caught.value, LookupError)
    assert "resnet" in caught.value.offered
