"""Comparing: who is held against whom, and with what numbers."""

import pytest
from records import comparable as rows
from records import make_record, make_spec

from tpubench.accounting import account
from tpubench.compare import Comparison
from tpubench.errors import BadValue, BaselineNotFound
from tpubench.record import Status


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


def test_a_group_without_the_baseline_has_no_ratios_and_says_so():
    other = account(make_record(number=9, spec=make_spec(batch=32)))
    groups = Comparison.of([*rows(), other], "torch:eager").groups
    assert groups[1].baseline is None and groups[1].rows[0].ratio is None
    assert "no ratios: no row with numbers matches the baseline backend=torch, mode=eager" in groups[1].notes


def test_rows_of_the_same_backend_and_mode_are_told_apart():
    cells = [
        make_record(number=1, spec=make_spec(seed=0)),
        make_record(number=2, spec=make_spec(seed=3)),
        make_record(number=3, spec=make_spec(seed=3), host="other"),
        make_record(number=4, spec=make_spec(mode="compile")),
    ]
    names = [row.name for row in Comparison.of(map(account, cells)).groups[0].rows]
    assert names == [
        "embedded:eager seed=0 host=box", "embedded:eager seed=3 host=box", "embedded:eager seed=3 host=other",
        "embedded:compile",
    ]  # fmt: skip


def test_the_numbers_of_a_pooled_row_agree_with_its_step_time():
    runs = [account(make_record(number=n, scale=s)) for n, s in ((1, 1.0), (2, 2.0), (3, 1.2))]
    (row,) = Comparison.of(runs).groups[0].rows
    assert row.step.value == pytest.approx(0.14) == pytest.approx(row.record.step_median_s)
    assert row.record.items_per_s == pytest.approx(16 / 0.14)
    assert row.step.low < 0.11 and row.step.high > 0.18  # the runs differ by more than their steps


def test_an_ok_record_without_steps_has_no_numbers():
    (row,) = Comparison.of([account(make_record(step_s=[]))]).groups[0].rows
    assert row.step is row.ratio is None and not row.is_baseline
