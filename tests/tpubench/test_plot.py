"""The picture of a comparison."""

import matplotlib
import pytest
from records import comparable as rows
from records import make_record, make_spec

from tpubench.accounting import account
from tpubench.compare import Comparison
from tpubench.errors import BadValue, NothingToCompare, UnwritableDirectory
from tpubench.plot import save


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


def drawn(tmp_path, records):
    """The words of the picture."""
    matplotlib.rcParams["svg.fonttype"] = "none"
    save(Comparison.of(map(account, records)), tmp_path / "plot.svg")
    return (tmp_path / "plot.svg").read_text()


def test_the_picture_names_every_row_its_time_its_ratio_and_why_one_has_none(tmp_path):
    text = drawn(tmp_path, rows())
    for part in (
        "resnet/small, train (sgd), batch 16, float32",
        "torch:eager", "100 ms  baseline", "embedded:compile", "50 ms  0.5 x",
        "100 ms  ~1 x", "embedded:eager-fused", "unsupported: not built yet", "95 % interval",
    ):  # fmt: skip
        assert part in text, part
    assert "logarithmic" not in text


def test_times_far_apart_are_drawn_on_a_logarithmic_axis(tmp_path):
    assert "logarithmic" in drawn(tmp_path, [*rows(), make_record(number=7, scale=100, spec=make_spec(backend="x"))])


def test_a_thousand_rows_are_a_picture_that_says_what_it_leaves_out(tmp_path):
    many = [make_record(number=n % 60, spec=make_spec(seed=n)) for n in range(1000)]
    assert "960 more rows are in the table" in drawn(tmp_path, many)
    works = [make_record(number=n, spec=make_spec(batch=n)) for n in range(1, 15)]
    assert "2 more pieces of work are in the table" in drawn(tmp_path, works)
