"""Comparing: who is held against whom, what is said of it, and the text of every format."""

import csv
import io
import json

import pytest
from records import make_record, make_spec

from tpubench.accounting import account
from tpubench.compare import Comparison
from tpubench.errors import BadValue, BaselineNotFound, NothingToCompare, UnwritableDirectory
from tpubench.plot import save
from tpubench.record import Status
from tpubench.table import render, seconds


def rows():
    """Torch eager at 0.1 s, embedded compile at half, embedded eager at about the same, one that cannot."""
    return [
        account(r)
        for r in (
            make_record(number=1, spec=make_spec(backend="torch", mode="eager"), compile_s=0.0),
            make_record(scale=0.5, number=2, spec=make_spec(mode="compile"), compile_requests=100, compile_hits=97),
            make_record(scale=1.001, number=3, spec=make_spec(mode="eager"), correctness="not checked"),
            make_record(Status.UNSUPPORTED, number=4, spec=make_spec(mode="eager-fused"), reason="not built yet"),
        )
    ]


def test_the_table_as_it_is_printed():
    lines = render(Comparison.of(rows()), "table").splitlines()
    assert lines[0] == "resnet/small, train, batch 16, float32"
    assert lines[1].split("  ")[0] == "cell" and "x baseline [95% CI]" in lines[1]
    assert lines[3].startswith("embedded:compile") and "50 [49.5, 50.5]" in lines[3] and "97.0%" in lines[3]
    assert lines[4].startswith("torch:eager") and "100 [99, 101]" in lines[4] and "baseline" in lines[4]
    assert lines[5].startswith("embedded:eager") and " ~1 [" in lines[5] and lines[5].endswith("not checked")
    assert lines[6].startswith("embedded:eager-fused") and "unsupported" in lines[6]
    assert all(line == line.rstrip() for line in lines)


def test_what_a_reader_must_know_is_under_the_table():
    text = render(Comparison.of(rows()), "table")
    for part in (
        "baseline: torch:eager, 100 ms a step",
        "embedded:eager-fused: unsupported: not built yet",
        "embedded:eager: correctness not checked",
        "no MFU: no peak is known for 'Test CPU': give --chip or --peak-tflops",
        "no cost: no chip: give --price USD",
        "one process a cell",
    ):
        assert part in text, part


def test_what_differs_is_said_with_whose_it_is():
    left = account(make_record(number=1, spec=make_spec(backend="torch")))
    right = account(make_record(number=2, threads=8, matmul_precision="tf32"))
    notes = Comparison.of([left, right]).groups[0].notes
    assert "differs: threads: unknown [torch:eager]; 8 [embedded:eager]" in notes
    assert any(n.startswith("differs: matmul_precision") for n in notes)
    assert not any(n.startswith("differs: host") for n in notes)


def test_ratios_have_intervals_and_an_undecided_one_is_marked():
    group = Comparison.of(rows()).groups[0]
    by_name = {row.name: row for row in group.rows}
    half = by_name["embedded:compile"].ratio
    assert half.value == pytest.approx(0.5) and half.low < 0.5 < half.high
    assert not by_name["embedded:compile"].undecided
    assert by_name["embedded:eager"].undecided and by_name["torch:eager"].is_baseline


def test_only_the_same_work_is_compared():
    other = account(make_record(number=9, spec=make_spec(batch=32)))
    groups = Comparison.of([*rows(), other]).groups
    assert [g.work["batch"] for g in groups] == [16, 32]
    assert groups[1].baseline.name == "embedded:eager"


def test_runs_of_a_cell_are_pooled_but_not_across_machines():
    runs = [account(make_record(number=n, scale=s)) for n, s in ((1, 1.0), (2, 1.1))]
    (group,) = Comparison.of(runs).groups
    assert len(group.rows) == 1 and len(group.rows[0].runs) == 2
    assert not any("one process" in n for n in group.notes)
    elsewhere = account(make_record(number=3, host="other"))
    assert len(Comparison.of([*runs, elsewhere]).groups[0].rows) == 2


def test_a_failed_run_does_not_hide_a_good_one():
    good = account(make_record(number=1))
    failed = account(make_record(Status.TIMEOUT, number=2, reason="late"))
    names = [(r.record.status, r.step is not None) for r in Comparison.of([good, failed]).groups[0].rows]
    assert names == [("ok", True), ("timeout", False)]


@pytest.mark.parametrize("status", [Status.RECOMPILED, Status.MISMATCHED])
def test_withheld_numbers_are_nowhere(status):
    bad = account(make_record(status, number=2, scale=0.01, spec=make_spec(mode="compile"), reason="why"))
    comparison = Comparison.of([*rows()[:1], bad])
    for fmt in ("table", "md", "csv", "json"):
        text = render(comparison, fmt)
        assert str(status) in text and "1600" not in text and "0.001" not in text


@pytest.mark.parametrize("baseline", ["embedded:compile", "embedded:eager", "backend=embedded,mode=eager", "torch"])
def test_the_baseline_can_be_chosen(baseline):
    group = Comparison.of(rows(), baseline).groups[0]
    wanted = {"embedded:compile": "embedded:compile", "torch": "torch:eager"}.get(baseline, "embedded:eager")
    assert group.baseline.name == wanted


def test_a_baseline_that_is_none_is_an_error():
    with pytest.raises(BaselineNotFound, match="embedded:compile, embedded:eager, torch:eager"):
        Comparison.of(rows(), "jax:eager")
    with pytest.raises(BaselineNotFound):
        Comparison.of(rows(), "embedded:eager-fused")
    for text in ("colour=red", "mode=", ":eager", "torch:"):
        with pytest.raises(BadValue, match="--baseline"):
            Comparison.of(rows(), text)


def test_csv_has_a_line_a_row_at_full_precision():
    table = list(csv.DictReader(io.StringIO(render(Comparison.of(rows()), "csv"))))
    assert [r["cell"] for r in table] == ["embedded:compile", "torch:eager", "embedded:eager", "embedded:eager-fused"]
    assert float(table[0]["step_median_s"]) == 0.05 and table[3]["step_median_s"] == ""
    assert table[0]["workload"] == "resnet" and table[3]["status"] == "unsupported"


def test_json_holds_groups_rows_and_notes():
    (group,) = json.loads(render(Comparison.of(rows()), "json"))
    assert group["work"]["batch"] == 16 and len(group["rows"]) == 4 and group["notes"]
    assert group["rows"][1]["baseline"] is True and group["rows"][3]["ratio"] is None


def test_markdown_is_a_table_with_a_list_below():
    lines = render(Comparison.of(rows()), "md").splitlines()
    assert lines[0] == "**resnet/small, train, batch 16, float32**"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 6 and len({line.count("|") for line in table}) == 1
    assert any(line.startswith("- baseline: torch:eager") for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.23e-5, "12.3 us"), (0.0456, "45.6 ms"), (0.9999, "1 s"), (1.234, "1.23 s"), (1234.5, "1234 s")],
)
def test_durations_read_well(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_plot_is_drawn(tmp_path, suffix):
    path = tmp_path / f"plot{suffix}"
    slow = account(make_record(number=7, scale=100, spec=make_spec(backend="torch", mode="compile")))
    save(Comparison.of([*rows(), slow]), path)
    assert path.stat().st_size > 2000
    if suffix == ".svg":
        assert "<svg" in path.read_text()


def test_a_plot_that_cannot_be_drawn_is_an_error(tmp_path):
    with pytest.raises(BadValue, match=r"\.png"):
        save(Comparison.of(rows()), tmp_path / "plot.txt")
    with pytest.raises(UnwritableDirectory):
        save(Comparison.of(rows()), tmp_path / "none" / "plot.png")
    with pytest.raises(NothingToCompare):
        save(Comparison.of(rows()[3:]), tmp_path / "plot.png")
