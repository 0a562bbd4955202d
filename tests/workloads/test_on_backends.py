"""Every workload in every phase, eager and compiled, on both backends: through the command line, as a user goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpubench import store
from tpubench.record import Record
from workloads.registry import load, names

ROOT = Path(__file__).parents[2]
#: Relative to the reference of the same dtype; the command line judges by its own table, which must be no wider.
LIMITS = {"float32": 1e-5, "bfloat16": 2e-2, "bfloat16-autocast": 2e-2, "float64": 1e-9}


def records(tmp_path: Path, workload: str, *options: str) -> list[Record]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tpubench", "run", workload, "--size", "tiny", "--steps", "6", *options]
    got = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert got.returncode == 0, got.stderr
    found, problems = store.read_many([str(tmp_path / "results")])
    assert not problems
    return found


def check(found: list[Record], cells: int) -> None:
    assert len(found) == cells
    for record in found:
        where = f"{record.backend} {record.mode} {record.phase} {record.dtype}"
        assert record.status == "ok", f"{where}: {record.reason}"
        assert record.correctness == "matched", f"{where}: {record.correctness_detail}"
        if record.phase == "train":
            judged = 3 if record.dtype == "float64" else 1
            assert len(record.losses) == 3
            for loss, reference in list(zip(record.losses, record.reference_losses, strict=True))[:judged]:
                assert abs(loss - reference) <= LIMITS[record.dtype] * abs(reference), where


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_phase_matches_plain_pytorch(tmp_path: Path, name: str) -> None:
    phases = load(name).phases
    options = ("--phase", ",".join(phases), "--backend", "torch,embedded", "--mode", "eager,compile")
    check(records(tmp_path, name, *options), 4 * len(phases))


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_dtype_matches_plain_pytorch(tmp_path: Path, name: str) -> None:
    options = ("--backend", "embedded", "--mode", "eager,compile", "--dtype", "float64,bfloat16,bfloat16-autocast")
    check(records(tmp_path, name, *options), 6)
