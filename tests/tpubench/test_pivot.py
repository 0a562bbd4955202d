"""Two axes, one number a place."""

import csv
import io
import json

import pytest
from records import make_record, make_spec

from tpubench import store
from tpubench.accounting import account
from tpubench.compare import Comparison
from tpubench.errors import BadValue, SeveralCells, UnknownName
from tpubench.grid import plain
from tpubench.pivot import SHOWN, Pivot
from tpubench.record import Status


def records():
    scales = {(16, "eager"): 1.0, (16, "compile"): 0.5, (32, "eager"): 1.5, (32, "compile"): 3.0}
    for n, ((batch, mode), scale) in enumerate(scales.items(), 1):
        yield make_record(number=n, scale=scale, spec=make_spec(batch=batch, mode=mode))
    yield make_record(Status.OOM, number=9, spec=make_spec(batch=64), reason="too large")


def pivot(by="batch,mode", shown="step", baseline="embedded:eager"):
    return Pivot.of(Comparison.of(map(account, records()), baseline), by, shown)


def test_steps_by_batch_and_mode():
    lines = plain(pivot().columns())
    assert lines[0].split() == ["batch", "compile", "eager"]
    assert lines[2].split()[:2] == ["16", "50.00"] and "150.0 [148.5, 151.5] *" in lines[3]
    assert lines[4].split() == ["64", "-", "oom"]


def test_ratios_end_in_their_geometric_mean_where_every_line_has_one():
    kept = [r for r in records() if r.batch < 64]
    table = Pivot.of(Comparison.of(map(account, kept), "embedded:eager"), "work,cell", "ratio")
    last = plain(table.columns())[-1]
    assert last.startswith("geometric mean") and "1.00" in last  # 0.5 and 2
    assert "geometric mean" not in "\n".join(plain(pivot(shown="ratio").columns()))


def test_axes_can_be_joined_and_made_of_the_work():
    assert pivot("work,backend+mode").along == ("embedded compile", "embedded eager")
    assert pivot("cell,batch").down == ("embedded:compile", "embedded:eager")


@pytest.mark.parametrize("shown", SHOWN)
def test_every_number_can_be_shown(shown):
    table = pivot(shown=shown)
    assert len(table.columns()) == 3 and len(table.data()) == 3


def test_two_cells_in_one_place_are_refused_with_what_tells_them_apart():
    with pytest.raises(SeveralCells, match=r"2 cells fall into workload resnet, mode compile .* they differ in batch"):
        pivot("workload,mode")


@pytest.mark.parametrize("by", ["mode", "mode,", "", "a,b,c"])
def test_what_is_not_two_axes_is_refused(by):
    with pytest.raises(BadValue, match="--by cannot be"):
        pivot(by)


def test_unknown_axes_and_numbers_are_named():
    with pytest.raises(UnknownName, match="unknown axis of --by 'mod': did you mean 'mode'"):
        pivot("batch,mod")
    with pytest.raises(UnknownName, match="unknown number to show 'speed'"):
        pivot(shown="speed")


def test_the_command_prints_it_in_every_format(cli, tmp_path):
    for record in records():
        store.write(record, tmp_path / "r")

    def printed(fmt):
        got = cli("compare", "r", "--by", "batch,mode", "--format", fmt)
        assert (got.returncode, got.stderr) == (0, "")
        return got.stdout

    assert printed("table").splitlines()[0] == "step ms [95% CI] by batch and mode"
    assert printed("md").splitlines()[2] == "| batch | compile | eager |"
    assert json.loads(printed("json"))[0] == {"batch": "16", "compile": 0.05, "eager": pytest.approx(0.1)}
    assert list(csv.DictReader(io.StringIO(printed("csv"))))[2] == {"batch": "64", "compile": "", "eager": ""}
