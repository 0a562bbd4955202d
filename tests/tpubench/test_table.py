"""A comparison as text, in every format: golden text of hand-made records, as a user gets it."""

import csv
import io
import json
from pathlib import Path

import pytest
from records import comparable as rows
from records import make_record, make_spec

from tpubench import store
from tpubench.accounting import account
from tpubench.compare import Comparison
from tpubench.digits import seconds
from tpubench.record import Status
from tpubench.table import render

GOLDEN = Path(__file__).parent / "golden"


def several():
    """Two batches; a cell of three runs; a fallback; precision that differs; failures."""
    tpu = {"chip": "v5e", "matmul_precision": "bfloat16", "threads": 2}
    eager, fused, compiled = (make_spec(mode=mode) for mode in ("eager", "eager-fused", "compile"))
    yield make_record(number=1, spec=make_spec(backend="torch"), compile_s=0.0, matmul_precision="float32", threads=2)
    for n, scale in ((2, 0.5), (3, 0.52), (4, 0.51)):
        cache = {"compile_s": 2.0 + n, "compile_requests": 40, "compile_hits": 36, "compile_scope": "forward+backward"}
        yield make_record(number=n, spec=compiled, scale=scale, **tpu, **cache)
    yield make_record(
        number=5, scale=1.001, spec=eager, **tpu, compile_s=1.0, compile_requests=500, compile_hits=450,
        launches_per_step=210.0, device_s=0.0912, device_s_reason="mean of 3 traced steps",
        cpu_fallbacks=3, cpu_fallback_ops=["aten::nonzero"], compile_scope="op",
        correctness="not checked", correctness_detail=None,
    )  # fmt: skip
    yield make_record(Status.OOM, number=6, spec=fused, reason="the device has 16 GiB, the program needs 17.2 GiB")
    yield make_record(number=7, spec=make_spec(batch=32), step_s=[0.0003, 0.0003, 0.0003, 0.001])
    yield make_record(
        Status.TIMEOUT, number=8, spec=make_spec(batch=32, mode="compile"), reason="no | result\nafter 9 s"
    )


@pytest.mark.parametrize("fmt", ["table", "md", "csv", "json"])
def test_compare_prints_the_golden_text(cli, tmp_path, fmt):
    for record in several():
        store.write(record, tmp_path / "results")
    got = cli("compare", "results", "--format", fmt)
    assert (got.returncode, got.stderr) == (0, "")
    assert got.stdout == (GOLDEN / f"several.{fmt}").read_text()


def test_the_table_as_it_is_printed():
    lines = render(Comparison.of(rows()), "table").splitlines()
    assert lines[0] == "resnet/small, train (sgd), batch 16, float32"
    assert lines[1].split("  ")[0] == "cell" and "x baseline [95% CI]" in lines[1]
    assert lines[3].startswith("embedded:compile") and "50.00 [49.50, 50.50]" in lines[3] and "97.0%" in lines[3]
    assert lines[4].startswith("torch:eager") and "100.0 [99.0, 101.0]" in lines[4] and "baseline" in lines[4]
    assert lines[5].startswith("embedded:eager") and " ~1.00 [" in lines[5] and lines[5].endswith("not checked")
    assert lines[6].startswith("embedded:eager-fused") and "unsupported" in lines[6]
    assert all(line == line.rstrip() for line in lines)


def test_what_a_reader_must_know_is_under_the_table():
    text = render(Comparison.of(rows()), "table")
    for part in (
        "baseline: torch:eager, 100 ms a step",
        "embedded:eager-fused: unsupported: not built yet",
        "embedded:eager: correctness not checked",
        "no MFU: no peak is known for 'Test CPU': give --chip or --peak-tflops",
        "no cost: no chip is known: give --price in USD per chip-hour",
        "one process a cell",
    ):
        assert part in text, part


@pytest.mark.parametrize("status", [Status.RECOMPILED, Status.MISMATCHED])
def test_withheld_numbers_are_nowhere(status):
    bad = account(make_record(status, number=2, scale=0.01, spec=make_spec(mode="compile"), reason="why"))
    comparison = Comparison.of([*rows()[:1], bad])
    for fmt in ("table", "md", "csv", "json"):
        text = render(comparison, fmt)
        assert str(status) in text and "1600" not in text and "0.001" not in text


def test_csv_has_a_line_a_row_at_full_precision():
    table = list(csv.DictReader(io.StringIO(render(Comparison.of(rows()), "csv"))))
    assert [r["cell"] for r in table] == ["embedded:compile", "torch:eager", "embedded:eager", "embedded:eager-fused"]
    assert float(table[0]["step_median_s"]) == 0.05 and table[3]["step_median_s"] == ""
    assert table[0]["workload"] == "resnet" and table[3]["status"] == "unsupported"


def test_json_holds_groups_rows_and_notes():
    (group,) = json.loads(render(Comparison.of(rows()), "json"))["groups"]
    assert group["work"]["batch"] == 16 and len(group["rows"]) == 4 and group["notes"]
    assert group["rows"][1]["baseline"] is True and group["rows"][3]["ratio"] is None


def test_markdown_is_a_table_with_a_list_below():
    lines = render(Comparison.of(rows()), "md").splitlines()
    assert lines[0] == "**resnet/small, train (sgd), batch 16, float32**"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 6 and len({line.count("|") for line in table}) == 1
    assert any(line.startswith("- baseline: torch:eager") for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.23e-5, "12.3 us"), (0.0456, "45.6 ms"), (0.9999, "1 s"), (1.234, "1.23 s"), (1234.5, "1234 s")],
)
def test_durations_read_well(value, text):
    assert seconds(value) == text


def test_a_table_too_wide_for_the_terminal_is_broken_and_nothing_is_cut():
    comparison = Comparison.of(map(account, several()))
    wide, narrow = render(comparison, "table").splitlines(), render(comparison, "table", 80).splitlines()
    table = [line for line in narrow if line and not line.startswith("  ")]
    assert max(map(len, table)) <= 80 < max(map(len, wide))
    assert sorted(set(" ".join(wide).split())) == sorted(set(" ".join(narrow).split()))


def test_a_column_wider_than_the_terminal_is_shown_all_the_same():
    assert "50.00 [49.50, 50.50]" in render(Comparison.of(rows()), "table", 10)


def test_numbers_of_a_row_that_is_not_ok_are_null_for_programs_too():
    bad = account(make_record(Status.RECOMPILED, compile_s=3.0, device_s=1.0, reason="why"))
    (row,) = json.loads(render(Comparison.of([bad]), "json"))["groups"][0]["rows"]
    numbers = {k for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    assert numbers == {"runs", "runs_measured", "seed"} and row["reason"] == "why"


def test_large_rates_have_no_exponent():
    fast = account(make_record(step_s=[0.001] * 10, items_per_step=1.5e5))
    assert " 150000000 " in render(Comparison.of([fast]), "table")


def test_several_pieces_of_work_end_in_a_mean_over_them():
    more = [account(make_record(number=9, spec=make_spec(batch=32, backend="torch"))),
            account(make_record(number=8, spec=make_spec(batch=32, mode="compile"), scale=0.125))]  # fmt: skip
    lines = render(Comparison.of([*rows(), *more], "torch:eager"), "table").splitlines()
    at = lines.index("over 2 pieces of work")
    assert lines[at + 1].startswith(
        "cell              geometric mean x baseline [95% CI]  of works  fastest in  baseline"
    )
    assert lines[at + 3].startswith("embedded:compile  0.250 [0.24") and lines[at + 3].endswith(
        "2           2  torch:eager"
    )
    assert lines[-1].endswith("they differ in batch (16, 32); --across batch would")


def test_across_batches_there_is_a_ratio_an_item():
    both = [account(make_record(number=n, spec=make_spec(batch=b), scale=b / 16)) for n, b in ((1, 16), (2, 32))]
    text = render(Comparison.of(both, "batch=16", across=["batch"]), "table")
    assert "x baseline a image" in text and "~1.00 [" in text and "2.00 [" in text
