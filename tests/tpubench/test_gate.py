"""The limit on slowdown: what fails, what does not, and the exit code."""

import pytest
from records import make_record, make_spec

from tpubench import gate, store
from tpubench.accounting import account
from tpubench.compare import Comparison
from tpubench.errors import BadValue, NothingToCompare


@pytest.mark.parametrize(("text", "limit"), [("5%", 1.05), ("0%", 1.0), ("2.5 %", 1.025), ("100%", 2.0)])
def test_a_limit_is_a_percentage(text, limit):
    assert gate.parse(text) == pytest.approx(limit)


@pytest.mark.parametrize("text", ["5", "0.05", "-1%", "five%", "", "nan%", "inf%", "5%x"])
def test_what_is_no_percentage_is_refused(text):
    with pytest.raises(BadValue, match="give a percentage with its sign: 5%"):
        gate.parse(text)


def held(*scales, **fields):
    """Cells of these scales against eager at 1."""
    records = [make_record(number=1), *(
        make_record(number=n, scale=s, spec=make_spec(seed=n), **fields) for n, s in enumerate(scales, 2)
    )]  # fmt: skip
    return Comparison.of(map(account, records), "seed=0")


def test_only_what_is_surely_slower_fails():
    verdict = gate.judge(held(1.2, 1.051, 1.0, 0.5), 1.05)
    assert [row.record.seed for _, row in verdict.slower] == [2]
    assert [row.record.seed for _, row in verdict.undecided] == [3] and verdict.passed == 2
    told = verdict.lines()
    assert told[0].startswith("slower by more than 5 %: embedded:eager seed=2 of resnet/small, train (sgd)")
    assert "1.200 x [1.1" in told[0] and told[1].startswith("not shown to be slower")


def test_a_ratio_without_an_interval_fails_nothing():
    verdict = gate.judge(held(9.0, step_s=[0.9] * 3), 1.05)
    assert not verdict.slower and len(verdict.undecided) == 1 and "no interval" in verdict.lines()[0]


def test_without_a_ratio_there_is_nothing_to_judge():
    with pytest.raises(NothingToCompare, match="has no ratio to judge"):
        gate.judge(held(), 1.05)


@pytest.mark.parametrize(("scale", "code"), [(1.2, 1), (1.01, 0), (0.5, 0)])
def test_the_exit_code_tells(cli, tmp_path, scale, code):
    store.write(make_record(number=1), tmp_path / "old")
    store.write(make_record(number=2, scale=scale), tmp_path / "new")
    got = cli("compare", "new", "--against", "old", "--fail-if-slower", "5%")
    assert got.returncode == code, got.stderr
    assert ("slower by more than 5 %: embedded:eager" in got.stderr) is (code == 1)
    assert "x baseline" in got.stdout and "against ms" in got.stdout
