"""``tpubench run``: from what is typed to cells, records and the exit code."""

import re

import pytest

from tpubench import store
from tpubench.cells import Asked, cells
from tpubench.errors import BadValue, UnknownName


def test_what_is_not_said_is_embedded_eager_at_the_small_size():
    (spec,) = cells(Asked("resnet"))
    assert (spec.backend, spec.mode, spec.size, spec.batch, spec.device) == ("embedded", "eager", "small", 16, "cpu")
    assert (spec.dtype, spec.phase, spec.seed, spec.steps, spec.cache) == ("float32", "train", 0, 30, "cold")


def test_elsewhere_than_on_a_cpu_the_published_size_is_the_default():
    for device in ("tpu", "gpu", "cuda"):
        (spec,) = cells(Asked("resnet", backend="torch" if device == "cuda" else "embedded", device=device))
        assert (spec.size, spec.batch) == ("full", 32)


def test_off_the_cpu_the_published_size_is_the_default(plugin, monkeypatch):
    import tpubench_test_plugin

    assert [spec.size for spec in cells(Asked("load", device="cpu,tpu"))] == ["small", "full"]
    monkeypatch.setattr(tpubench_test_plugin.Load, "published", "tiny")
    assert [spec.size for spec in cells(Asked("load", device="cpu,tpu"))] == ["small", "tiny"]


def test_lists_make_every_combination_in_the_order_typed():
    found = cells(
        Asked("resnet", mode="compile,eager", backend="torch,embedded", size="tiny", dtype="f32,bf16", batch="4,2")
    )
    assert len(found) == len({spec.fingerprint for spec in found}) == 16
    assert [(s.dtype, s.batch, s.backend, s.mode) for s in found][:5] == [
        ("float32", 4, "torch", "compile"),
        ("float32", 4, "torch", "eager"),
        ("float32", 4, "embedded", "compile"),
        ("float32", 4, "embedded", "eager"),
        ("float32", 2, "torch", "compile"),
    ]


def test_optimizers_and_data_multiply_cells_and_only_training_has_an_optimizer():
    found = cells(Asked("resnet", phase="train,infer", optimizer="sgd,adamw", data="device,host"))
    assert [(s.phase, s.optimizer, s.data) for s in found] == [
        ("train", "sgd", "device"),
        ("train", "adamw", "device"),
        ("train", "sgd", "host"),
        ("train", "adamw", "host"),
        ("infer", "", "device"),
        ("infer", "", "host"),
    ]


def test_the_default_optimizer_is_the_workloads():
    assert [s.optimizer for s in cells(Asked("resnet", phase="train,infer"))] == ["sgd", ""]


def test_what_is_named_twice_runs_once():
    assert len(cells(Asked("resnet", mode="eager,eager", batch="4,4"))) == 1


@pytest.mark.parametrize(
    ("typed", "dtype"),
    [
        ("float32", "float32"), ("f32", "float32"), ("fp32", "float32"), ("float64", "float64"), ("f64", "float64"),
        ("bfloat16", "bfloat16"), ("bf16", "bfloat16"),
        ("bf16-autocast", "bfloat16-autocast"),
        ("float16", "float16"), ("f16", "float16"),
    ],
)  # fmt: skip
def test_spellings_of_a_dtype_are_one_cell(typed, dtype):
    (spec,) = cells(Asked("resnet", dtype=typed))
    assert spec.dtype == dtype
    assert spec.fingerprint == cells(Asked("resnet", dtype=dtype))[0].fingerprint


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"workload": ""}, UnknownName),
        ({"size": ""}, BadValue),
        ({"size": "Small"}, UnknownName),
        ({"mode": "eager,"}, BadValue),
        ({"batch": "4.5"}, BadValue),
        ({"batch": "-4"}, BadValue),
        ({"batch": "٣"}, BadValue),
        ({"batch": "9" * 19}, BadValue),
        ({"batch": "9" * 5000}, BadValue),
        ({"steps": 2**63}, BadValue),
        ({"seed": 2**63}, BadValue),
        ({"backend": "embedded,nope"}, UnknownName),
    ],
)
def test_what_cannot_be_meant_is_refused_before_a_cell_is_made(fields, error):
    with pytest.raises(error):
        cells(Asked(**{"workload": "resnet", **fields}))


def test_the_largest_numbers_that_a_record_holds_are_taken():
    (spec,) = cells(Asked("resnet", seed=2**63 - 1, steps=2**63 - 1, batch=str(2**63 - 1)))
    assert spec.seed == spec.steps == spec.batch == 2**63 - 1


def anonymous(text):
    """``text`` with its times and fingerprints replaced by what they are."""
    text = re.sub(r"\d{8}T\d{9}Z", "TIME", text)
    text = re.sub(r"_[0-9a-f]{8}\.parquet", "_FINGERPRINT.parquet", text)
    return re.sub(r" in \d+ s", " in N s", text)


STDERR = """\
size small (the default on cpu): small, batch 4; --size full for the published size
[1/2] load/small fake:eager ...
[1/2] load/small fake:eager ok in N s
[2/2] load/small fake:lazy ...
[2/2] load/small fake:lazy unsupported in N s: mode lazy: this backend is not lazy
"""
END = """\

2 records in out:
  TIME_load-small-train_fake-eager_cpu_float32_b4_FINGERPRINT.parquet
  TIME_load-small-train_fake-lazy_cpu_float32_b4_FINGERPRINT.parquet

compare: tpubench compare 'out/*.parquet'
"""


def test_a_run_prints_this(cli, plugin, tmp_path):
    """Golden text round the table, whose own is in test_table.py. What a backend cannot do is no failure."""
    got = cli("run", "load", "--backend", "fake", "--mode", "eager,lazy", "--steps", "3", "--out", "out")
    assert got.returncode == 0
    assert anonymous(got.stderr) == STDERR
    table, said, end = anonymous(got.stdout).partition("\n2 records")
    assert said + end == END
    assert table.startswith("load/small, train (sgd), batch 4, float32\n")
    assert "fake:eager" in table and "fake:lazy: unsupported: mode lazy: this backend is not lazy" in table
    records, problems = store.read_many([str(tmp_path / "out")])
    assert not problems and [(r.mode, r.status) for r in records] == [("eager", "ok"), ("lazy", "unsupported")]


def test_each_cell_runs_in_as_many_processes_as_asked_and_what_cannot_run_once(cli, plugin, tmp_path):
    arguments = ["run", "load", "--backend", "fake", "--size", "tiny", "--mode", "eager,lazy", "--steps", "3"]
    got = cli(*arguments, "--processes", "2", "--out", "out")
    assert got.returncode == 0
    started = [line for line in got.stderr.splitlines() if line.endswith("...")]
    assert sorted(line.partition("] ")[2] for line in started) == [
        "load/tiny fake:eager, process 1 of 2 ...",
        "load/tiny fake:eager, process 2 of 2 ...",
        "load/tiny fake:lazy, process 1 of 2 ...",
    ]
    assert started[-1].startswith("[3/3]") and "3 records in out:" in got.stdout
    assert "fewer than 5 processes" in got.stdout
    records, _ = store.read_many([str(tmp_path / "out")])
    assert sorted((r.mode, r.status) for r in records) == [("eager", "ok"), ("eager", "ok"), ("lazy", "unsupported")]


def test_the_batch_that_is_told_is_the_one_that_runs(cli, plugin):
    got = cli("run", "load", "--backend", "fake", "--mode", "lazy", "--batch", "2,8")
    assert got.stderr.splitlines()[0].endswith(": small, batch 2, 8; --size full for the published size")


def test_a_size_that_was_named_needs_no_telling(cli, plugin):
    got = cli("run", "load", "--backend", "fake", "--mode", "lazy", "--size", "tiny")
    assert got.returncode == 0 and got.stderr.startswith("[1/1] load/tiny fake:lazy")


def test_a_failed_cell_makes_the_exit_code_1_and_its_row_says_why(cli, plugin, tmp_path):
    got = cli("run", "load", "--backend", "fake", "--size", "raises", "--out", "out")
    assert got.returncode == 1 and "Traceback" not in got.stderr
    assert "[1/1] load/raises fake:eager error in" in got.stderr and ": the model is broken" in got.stderr
    (record,) = store.read_many([str(tmp_path / "out")])[0]
    assert record.status == "error"


@pytest.mark.parametrize(
    "mistake", [("--backend", "fake,nope"), ("--size", "tiny,huge"), ("--dtype", "f32,f31"), ("--chip", "v99")]
)
def test_one_mistake_in_a_list_and_no_cell_of_it_runs(cli, plugin, tmp_path, mistake):
    got = cli("run", "load", "--backend", "fake", "--out", "out", *mistake)
    assert got.returncode == 2 and got.stderr.count("\n") == 1 and got.stderr.startswith("tpubench: error: unknown ")
    assert got.stdout == "" and not (tmp_path / "out").exists()


def test_a_cell_that_outlives_its_timeout_is_a_row(cli, plugin, tmp_path):
    got = cli("run", "load", "--backend", "fake", "--size", "hangs", "--timeout", "4", "--out", "out")
    assert got.returncode == 1 and "timeout in 4 s: no result after 4 s: raise --timeout" in got.stderr
    (record,) = store.read_many([str(tmp_path / "out")])[0]
    assert record.status == "timeout"


def test_what_is_said_of_the_chip_reaches_the_record(cli, plugin, tmp_path):
    arguments = ["run", "load", "--backend", "fake", "--size", "tiny", "--steps", "3", "--out", "out"]
    assert cli(*arguments, "--price", "3.6", "--peak-tflops", "1").returncode == 0
    (record,) = store.read_many([str(tmp_path / "out")])[0]
    assert record.usd_per_step == pytest.approx(record.step_median_s * 3.6 / 3600)
    assert record.mfu == pytest.approx(record.model_flops / record.step_median_s / 1e12)
