"""The whole way for one workload, as a user goes it: run, compare, and what is on disk."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tpubench import store

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_resnet_small_in_four_cells(cli, tmp_path):
    arguments = ["run", "resnet", "--mode", "eager,compile", "--backend", "embedded,torch", "--steps", "10"]
    got = cli(*arguments, timeout=900)
    assert got.returncode == 0, got.stderr
    said = "size small (the default on cpu): ResNet-18, 64x64, batch 16; --size full for the published size"
    assert said in got.stderr
    records, problems = store.read_many([str(tmp_path / "results")])
    assert not problems and len(records) == 4
    for record in records:
        assert record.status == "ok" and record.correctness == "matched", record.reason
        # Step 1 against the float32 CPU reference.
        assert abs(record.losses[0] - record.reference_losses[0]) <= 1e-5 * abs(record.reference_losses[0])
        assert record.step_ci_low_s <= record.step_median_s <= record.step_ci_high_s
        assert len(record.step_s) == 10 and record.model_flops == pytest.approx(record.analytic_flops, rel=0.05)
    embedded = {r.mode: r for r in records if r.backend == "embedded"}
    assert embedded["eager"].launches_per_step > 100 and embedded["compile"].launches_per_step <= 4
    assert embedded["eager"].compile_requests == embedded["eager"].compile_hits + embedded["eager"].compile_misses

    table = cli("compare", "results/*.parquet", "--plot", "plot.png", "--price", "1.2", "--peak-tflops", "1")
    assert table.returncode == 0 and (tmp_path / "plot.png").stat().st_size > 5000
    data = json.loads(cli("compare", "results", "--format", "json", "--baseline", "torch:eager").stdout)["groups"]
    assert len(data) == 1 and {r["status"] for r in data[0]["rows"]} == {"ok"}
    assert all(r["ratio_ci_low"] <= r["ratio"] <= r["ratio_ci_high"] for r in data[0]["rows"])


def test_a_quick_run_and_what_list_says_of_it(cli, tmp_path):
    got = cli("run", "resnet", "--size", "tiny", "--backend", "torch", "--mode", "eager,lazy", "--steps", "6")
    assert got.returncode == 0, got.stderr
    assert "torch:lazy: unsupported: mode lazy: PyTorch has no lazy mode" in got.stdout
    assert "2 records in results:" in got.stdout
    listed = cli("list")
    assert listed.returncode == 0 and listed.stderr == ""
    lines = listed.stdout.splitlines()
    assert lines[0] == "workloads"
    at = lines.index("  resnet: ResNet-18 and ResNet-50, image classification (train, infer)")
    assert lines[at : at + 5] == [
        "  resnet: ResNet-18 and ResNet-50, image classification (train, infer)",
        "    tiny      ResNet-18 of an eighth of the width, 32x32, 10 classes, batch 8",
        "    small     ResNet-18, 64x64, batch 16",
        "    resnet18  ResNet-18, 224x224, batch 32",
        "    full      ResNet-50, 224x224, batch 32",
    ]
    assert "    --mode eager           yes" in lines
    assert "    --mode lazy            no: PyTorch has no lazy mode" in lines


def test_compare_prints_this(cli, tmp_path):
    """Golden text: hand-made records, the whole output."""
    from records import make_record, make_spec

    for n, (backend, mode, scale) in enumerate([("torch", "eager", 1.0), ("embedded", "compile", 0.5)], 1):
        record = make_record(scale=scale, number=n, spec=make_spec(backend=backend, mode=mode), compile_s=float(n))
        store.write(record, tmp_path / "results")
    got = cli("compare", "results/*.parquet", "--price", "3.6", "--peak-tflops", "1")
    assert got.stderr == "" and got.returncode == 0
    assert got.stdout == (Path(__file__).parent / "golden" / "compare.txt").read_text()


@pytest.mark.slow
def test_the_wheel_holds_all_three_packages_and_the_catalogue(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT],
        check=True,
    )
    (wheel,) = tmp_path.glob("tpubench-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "tpubench/cli.py", "tpubench/data/chips.csv", "tpubench/data/prices.csv", "tpubench/py.typed",
        "backend/embedded/lower/convolution.py", "workloads/models/resnet.py",
    ):  # fmt: skip
        assert name in names
    assert not any(name.startswith(("tests/", "bench/")) for name in names)


def test_what_runs_is_told_to_the_user_and_written_where_asked(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("TPUBENCH_TRACE_OPS", "1")
    arguments = ("run", "resnet", "--size", "tiny", "--phase", "infer", "--batch", "1", "--steps", "3")
    got = cli(*arguments, "--dump-hlo", "hlo", "--cache", "off")
    assert got.returncode == 0, got.stderr
    array, time = r"f32\[\S+\]", r"[\d.]+ ms"
    assert re.search(rf"^aten_relu {array} -> {array} compiled {time}, launch {time}$", got.stderr, re.M), got.stderr
    assert re.search(rf"^aten_relu {array} -> {array} hit, launch {time}$", got.stderr, re.M)
    (record,) = store.read_many([str(tmp_path / "results")])[0]
    assert record.disk_requests is None and record.compile_misses > 5
    assert [w.split(":")[0] for w in record.warnings] == [
        "the first step and the warm-up hold the writing of HLO", "TPUBENCH_TRACE_OPS is set",
    ]  # fmt: skip
    (folder,) = (tmp_path / "hlo").iterdir()
    index = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    assert len(index) >= record.compile_misses and f"hlo: hlo/{folder.name} ({len(index)} programs)" in got.stderr
    assert all((folder / line[kind]).stat().st_size for line in index for kind in ("stablehlo", "optimised"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "compile", "eager-fused"])
def test_a_warm_cell_compiles_nothing_and_a_cold_one_everything(cli, tmp_path, mode):
    arguments = ("run", "resnet", "--size", "tiny", "--mode", mode, "--steps", "3", "--cache-dir", "caches")
    got = cli(*arguments, "--cache", "warm,cold,off")
    assert got.returncode == 0, got.stderr
    found = {r.cache: r for r in store.read_many([str(tmp_path / "results")])[0]}
    warm, cold, off = found["warm"], found["cold"], found["off"]
    assert all(r.status == "ok" and r.correctness == "matched" for r in found.values())
    assert warm.losses == cold.losses == off.losses
    assert warm.compile_misses == warm.disk_misses == 0 and warm.disk_hits == cold.compile_misses == off.compile_misses
    assert cold.disk_hits == 0 and cold.disk_misses == cold.compile_misses and cold.disk_written_bytes > 0
    assert warm.disk_read_bytes > 0 and warm.disk_written_bytes == 0
    assert off.disk_requests is None
    assert warm.compile_hits + warm.disk_hits == warm.compile_requests
