"""``tpubench ops``: rows of OpInfo samples, from a real subprocess, and what becomes of what goes wrong."""

import json
from pathlib import Path

import pytest
import torch

from tpubench.errors import NotASurvey
from tpubench.ops import coverage, latitude, sample
from tpubench.ops.coverage import Outcome, Row
from tpubench.ops.survey import survey

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "results" / "ops-embedded-cpu" / "embedded-cpu.csv"


def test_a_row_an_op_and_a_summary(cli):
    got = cli("ops", "--op", "add", "--op", "nn.functional.relu", "--samples", "2", "--all")
    assert got.returncode == 0, got.stderr
    assert got.stdout == (
        "op                  dtype    outcome  compared  forward  backward  in-place  detail\n"
        "------------------  -------  -------  --------  -------  --------  --------  ------\n"
        "add                 float32  passed   values    2        2         2\n"
        "nn.functional.relu  float32  passed   values    2        2         0\n"
        "\n"
        "float32: 2 of 2 entries pass (2 ops)\n"
    )


def test_rows_are_kept_and_checked_against(cli, tmp_path):
    assert cli("ops", "--op", "neg", "--samples", "1", "--out", "kept").returncode == 0
    path = tmp_path / "kept" / "embedded-cpu.csv"
    (row,) = coverage.read(path)
    assert (row.op, row.outcome, row.forward) == ("neg", "passed", 1)
    # What passed before and is now refused is lost.
    path.write_text(path.read_text().replace("neg,", "fft.hfft2,"))
    coverage.write([*coverage.read(path), Row("svd_lowrank", "float32", "passed", "values", 1)], path)
    got = cli("ops", "--op", "svd_lowrank", "--backend", "torch", "--samples", "1", "--check", str(path))
    assert got.returncode == 0, got.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "float31"], "unknown dtype 'float31': did you mean 'float32'?"),
        (["--format", "xml"], "unknown format 'xml'"),
        (["--backend", "nobody"], "unknown backend 'nobody'"),
        (["--device", "abacus"], "--device cannot be 'abacus'"),
        (["--op", "no_such_op"], "--op cannot be 'no_such_op'"),
        (["--check", "absent.csv"], "'absent.csv' is no table of `tpubench ops`"),
    ],
)
def test_mistakes_are_one_line(cli, arguments, message):
    got = cli("ops", *arguments)
    assert got.returncode == 2 and got.stdout == ""
    assert got.stderr.startswith(f"tpubench: error: {message}") and got.stderr.count("\n") == 1


def test_json_holds_every_field(cli):
    got = cli("ops", "--op", "neg", "--dtype", "int64", "--samples", "1", "--format", "json")
    assert [set(row) == set(coverage.FIELDS) for row in json.loads(got.stdout)] == [True]


def rows():
    return [
        Row("add", "float32", "passed", "values", 3, 3, 1),
        Row("svd", "float32", "wrong", "values", 1, 0, 0, 0.5, 2.0, "sample 1: off by 0.5, relatively 2"),
        Row("add", "int64", "not lowered", "values", detail='a "quoted", one'),
    ]


def test_what_is_written_is_what_is_read(tmp_path):
    coverage.write(rows(), tmp_path / "a" / "rows.csv")
    assert sorted(coverage.read(tmp_path / "a" / "rows.csv"), key=str) == sorted(rows(), key=str)
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("text", ["", "op,dtype\nadd,float32\n", "\x00\x01", "a,b\n1,2\n"])
def test_a_file_of_another_kind_is_named(tmp_path, text):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(NotASurvey, match=r"x\.csv"):
        coverage.read(path)


def test_summary_counts_entries_and_ops():
    found = [
        *rows(),
        Row("fft.fft", "float32", "passed"),
        Row("std.unbiased", "float32", "passed"),
        Row("std", "float32", "passed"),
    ]
    assert coverage.summary(found) == [
        "float32: 4 of 5 entries pass (3 ops); 1 wrong",
        "int64: 0 of 1 entries pass (0 ops); 1 not lowered",
    ]


def test_lost_is_what_passed_and_was_run_again():
    now = [Row("add", "float32", "wrong"), Row("mul", "float32", "error")]
    assert coverage.lost(rows(), now) == now[:1]
    assert coverage.lost(rows(), rows()) == []


def test_a_worker_that_dies_costs_one_entry(plugin_ops):
    found = {r.op: r for r in survey("flaky", "cpu", "float32", ["neg", "abs", "tanh", "cos"], 1, 60.0)}
    assert found["cos"].outcome == Outcome.CRASHED and "17" in found["cos"].detail
    assert {found[op].outcome for op in ("abs", "neg", "tanh")} == {Outcome.PASSED}


def test_a_worker_that_hangs_costs_one_entry(plugin_ops):
    found = {r.op: r for r in survey("flaky", "cpu", "float32", ["neg", "tan"], 1, 20.0)}
    assert found["tan"].outcome == Outcome.TIMEOUT and found["neg"].outcome == Outcome.PASSED


def test_wrong_values_and_refusals_are_told_apart(plugin_ops):
    found = {r.op: r for r in survey("flaky", "cpu", "float32", ["exp", "log", "sqrt"], 1, 60.0)}
    assert found["exp"].outcome == Outcome.WRONG and found["exp"].absolute == pytest.approx(1.0)
    assert found["log"].outcome == Outcome.NOT_LOWERED
    assert found["sqrt"].outcome == Outcome.ERROR and "no roots today" in found["sqrt"].detail


@pytest.fixture
def plugin_ops(tmp_path, monkeypatch):
    """A backend on the CPU that crashes at cos, hangs at tan, errs at exp and refuses log and sqrt."""
    folder = tmp_path / "plugin"
    (folder / "flaky-1.dist-info").mkdir(parents=True)
    (folder / "flaky-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: flaky\nVersion: 1\n")
    (folder / "flaky-1.dist-info" / "entry_points.txt").write_text("[tpubench.backends]\nflaky = flaky:Flaky\n")
    (folder / "flaky.py").write_text(
        """
import os, time
from backend.native import Native

class Flaky(Native):
    name = "flaky"

    def open(self, device, mode, *, cpu_fallback):
        import torch

        def at_the_second(right, then):
            # The first call is the reference, the second the device's.
            calls = []

            def run(x):
                calls.append(x)
                return then(x) if len(calls) == 2 else right(x)

            return run

        def refuse(error):
            raise error

        self.library = torch.library.Library("aten", "IMPL")
        faults = {
            "cos": at_the_second(lambda x: torch.sin(x + 1), lambda x: os._exit(17)),
            "tan": at_the_second(lambda x: torch.sin(x), lambda x: time.sleep(600)),
            "exp": at_the_second(lambda x: x * 0 + 1, lambda x: x * 0 + 2),
            "log": at_the_second(lambda x: x * 0, lambda x: refuse(NotImplementedError("no logarithms"))),
            "sqrt": at_the_second(lambda x: x * 0, lambda x: refuse(RuntimeError("no roots today"))),
        }
        for name, function in faults.items():
            self.library.impl(name, function, "CPU")
        return super().open(device, mode, cpu_fallback=cpu_fallback)
"""
    )
    monkeypatch.syspath_prepend(str(folder))
    import os

    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


def test_a_copy_keeps_what_it_shows_of_its_storage():
    base = torch.arange(12.0)
    view = base.as_strided((2, 3), (4, 1), 1)
    copy = sample.moved(view, "cpu")
    assert copy.stride() == (4, 1) and copy.storage_offset() == 1 and torch.equal(copy, view)
    assert torch.equal(copy.as_strided((12,), (1,), 0), base) and copy.data_ptr() != view.data_ptr()


def test_the_cpus_own_error_is_allowed_and_no_more():
    expected = torch.tensor([1.0, 2.0])
    exact = torch.tensor([1.002, 2.0], dtype=torch.float64)
    sample.compare(torch.tensor([1.004, 2.0]), expected, True, lambda: exact)
    with pytest.raises(sample.Mismatch):
        sample.compare(torch.tensor([1.1, 2.0]), expected, True, lambda: exact)
    with pytest.raises(sample.Mismatch):
        sample.compare(torch.tensor([float("nan"), 2.0]), expected, True, lambda: exact)
    with pytest.raises(sample.Mismatch):
        sample.compare(torch.tensor([1, 3]), torch.tensor([1, 2]), True, lambda: exact)


def settle_and_compare(name, got, expected, given):
    sample.compare(*latitude.settled(name, got, expected, given), True)


def test_equals_may_stand_in_any_order_and_no_other():
    x = torch.tensor([2, 1, 2])
    expected = x.sort()
    swapped = torch.return_types.sort((expected.values, torch.tensor([1, 2, 0])))
    settle_and_compare("sort", swapped, expected, (x, [], {}))
    settle_and_compare("argsort", swapped.indices, expected.indices, (x, [], {}))
    wrong = [[0, 1, 2], [1, 2, 2], [1, 0, 3]]
    for indices in wrong:
        with pytest.raises(sample.Mismatch):
            settle_and_compare("argsort", torch.tensor(indices), expected.indices, (x, [], {}))
        with pytest.raises(sample.Mismatch):
            settle_and_compare("sort", (expected.values, torch.tensor(indices)), tuple(expected), (x, [], {}))
    with pytest.raises(sample.Mismatch):
        settle_and_compare("sort", swapped, expected, (x, [], {"stable": True}))
    # The largest two in no order, and a position with its dimension taken away.
    settle_and_compare("topk", x.topk(2)[:2], (torch.tensor([2, 2]), torch.tensor([2, 0])), (x, [2], {"sorted": False}))
    settle_and_compare("median", (torch.tensor(2), torch.tensor(0)), (torch.tensor(2), torch.tensor(2)), (x, [0], {}))
    with pytest.raises(sample.Mismatch):
        settle_and_compare(
            "median", (torch.tensor(2), torch.tensor(1)), (torch.tensor(2), torch.tensor(2)), (x, [0], {})
        )


def test_statistics_may_be_wider_than_the_cpus_and_no_other_result():
    half, full = torch.ones(2, dtype=torch.bfloat16), torch.ones(2)
    settle_and_compare("native_layer_norm", (half, full), (half, half), (half, [], {}))
    with pytest.raises(sample.Mismatch):
        settle_and_compare("add", full, half, (half, [], {}))


def test_samples_are_spread_from_first_to_last():
    assert sample.spread(list(range(10)), 4) == [0, 3, 6, 9]
    assert sample.spread(list(range(3)), 0) == [0, 1, 2] and sample.spread([7, 8], 1) == [7]


QUICK = """
add sub mul div addmm bmm matmul where sum mean cumsum max.reduction_with_dim sort topk tril expand permute transpose
cat stack gather scatter index_select index_put softmax log_softmax
nn.functional.linear nn.functional.conv2d nn.functional.batch_norm nn.functional.layer_norm nn.functional.group_norm
nn.functional.embedding nn.functional.embedding_bag nn.functional.cross_entropy nn.functional.relu nn.functional.gelu
nn.functional.silu nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.interpolate_bilinear
nn.functional.scaled_dot_product_attention
""".split()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_ops_of_the_workloads_pass(dtype):
    kept = {(r.op, r.dtype) for r in coverage.read(COMMITTED) if r.outcome == Outcome.PASSED}
    found = survey("embedded", "cpu", dtype, QUICK, 1, 300.0)
    assert found and [r for r in found if r.outcome in (Outcome.WRONG, Outcome.CRASHED, Outcome.TIMEOUT)] == []
    assert coverage.lost([r for r in coverage.read(COMMITTED) if (r.op, r.dtype) in kept], found) == []
    if dtype != "int64":
        assert [r.op for r in found if r.outcome != Outcome.PASSED] == []


def test_the_committed_count_stands():
    passed = [r for r in coverage.read(COMMITTED) if r.outcome == Outcome.PASSED and r.dtype == "float32"]
    assert len(passed) >= 400
    assert [r.op for r in coverage.read(COMMITTED) if r.outcome in (Outcome.WRONG, Outcome.CRASHED)] == []


@pytest.mark.slow
def test_no_op_that_passed_is_lost():
    found = survey("embedded", "cpu", "float32", [], 2, 300.0)
    assert coverage.lost(coverage.read(COMMITTED), found) == []
