"""Comparing: who is held against whom, and with what numbers."""

import dataclasses

import pytest
from records import comparable as rows
from records import make_record, make_spec

from tpubench.accounting import account
from tpubench.compare import Comparison
from tpubench.errors import BadValue, BaselineNotFound, DifferentWork, NothingToCompare, UnknownName
from tpubench.notes import notes
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
        with pytest.raises((BadValue, UnknownName), match="--baseline"):
            Comparison.of(rows(), text)


def test_a_group_without_the_baseline_has_no_ratios_and_says_so():
    other = account(make_record(number=9, spec=make_spec(batch=32)))
    groups = Comparison.of([*rows(), other], "torch:eager").groups
    assert groups[1].baseline is None and groups[1].rows[0].ratio is None
    assert "no ratios: no row with numbers matches the baseline torch:eager" in groups[1].notes


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


def two_batches(**fields):
    """Eager and compile at batches 16 and 32; a step of 32 takes 1.5 times one of 16."""
    return [
        account(make_record(number=n, scale=scale, spec=make_spec(batch=batch, mode=mode), **fields))
        for n, (batch, mode, scale) in enumerate(
            [(16, "eager", 1.0), (16, "compile", 0.5), (32, "eager", 1.5), (32, "compile", 0.6)], 1
        )
    ]


def test_a_baseline_that_did_other_work_is_refused_and_the_field_is_named():
    with pytest.raises(DifferentWork, match=r"rows differ in batch \(16, 32\): add --across batch"):
        Comparison.of(two_batches(), "batch=16")
    with pytest.raises(DifferentWork, match="rows differ in dtype"):
        other = account(make_record(number=9, spec=make_spec(dtype="float64")))
        Comparison.of([*two_batches()[:1], other], "mode=eager,dtype=float64")
    with pytest.raises(UnknownName, match="--across"):
        Comparison.of(two_batches(), across=["colour"])


def test_work_that_differs_is_compared_where_one_is_told_to():
    comparison = Comparison.of(two_batches(), "batch=16,mode=eager", across=["batch"])
    (group,) = comparison.groups
    found = {row.name: (row.ratio, row.ratio_per_item) for row in group.rows}
    assert group.title == "resnet/small, train (sgd), float32" and "batch" not in group.work
    ratio, per_item = found["embedded:eager batch=32"]
    assert ratio.value == pytest.approx(1.5) and per_item.value == pytest.approx(0.75)
    assert per_item.low == pytest.approx(ratio.low / 2)
    assert group.baseline.name == "embedded:eager batch=16" and not any(row.best for row in group.rows)


def test_what_keeps_groups_apart_is_named():
    assert Comparison.of(two_batches()).differing == {"batch": [16, 32]}
    assert Comparison.of(two_batches(), across=["batch"]).differing == {}


def test_the_fastest_is_marked_and_what_is_not_told_apart_from_it():
    near = [account(make_record(number=n, spec=make_spec(seed=n), scale=s)) for n, s in ((1, 1.0), (2, 1.001), (3, 2))]
    assert [row.best for row in Comparison.of(near).groups[0].rows] == [True, True, False]
    assert [row.best for row in Comparison.of(near[:1]).groups[0].rows] == [False]
    few = account(make_record(number=4, spec=make_spec(mode="compile"), step_s=[0.2] * 3))
    assert [row.best for row in Comparison.of([near[0], few]).groups[0].rows] == [True, False]


def test_each_cell_is_held_against_itself_in_other_records():
    old = [account(make_record(number=1)), account(make_record(number=2, spec=make_spec(mode="compile")))]
    new = [account(make_record(number=3, scale=1.2, torch_version="2.14.0")), account(make_record(number=4, host="b"))]
    (group,) = Comparison.of(new, against=old).groups
    assert [row.ratio.value for row in group.rows] == [pytest.approx(1.0), pytest.approx(1.2)]
    assert group.baseline is None and group.rows[1].base.step_median_s == pytest.approx(0.1)
    assert any(n.startswith("changed: torch_version: 2.13.0 then, 2.14.0 now [") for n in group.notes)
    assert any(n.startswith("changed: host: box then, b now [") for n in group.notes)


def test_a_cell_is_held_against_its_own_machine_where_that_has_run_it():
    old = [account(make_record(number=n, scale=s, host=h)) for n, s, h in ((1, 1.0, "a"), (2, 2.0, "b"), (3, 4.0, "c"))]
    for host, base in (("a", 0.1), ("b", 0.2), ("elsewhere", 0.4)):
        ((row,),) = (g.rows for g in Comparison.of([account(make_record(number=9, host=host))], against=old).groups)
        assert row.base.step_median_s == pytest.approx(base)


def test_against_what_has_no_such_cell_is_an_error():
    with pytest.raises(NothingToCompare, match="--against"):
        Comparison.of(two_batches(), against=[account(make_record(spec=make_spec(seed=5)))])
    with pytest.raises(BadValue, match="--against each cell is held against itself"):
        Comparison.of(two_batches(), "embedded:eager", against=two_batches())


def test_an_interval_without_1_and_a_test_that_is_not_sure_are_said():
    group = Comparison.of(rows()).groups[0]
    (half,) = (row for row in group.rows if row.name == "embedded:compile")
    assert half.p_value < 1e-3 and not any("Mann-Whitney" in note for note in group.notes)
    (line,) = (n for n in notes([dataclasses.replace(half, p_value=0.21)]) if "Mann-Whitney" in n)
    assert line == ("embedded:compile: the interval leaves out 1, Mann-Whitney's p is 0.21: measure in more processes")
