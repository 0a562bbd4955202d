"""The picture of a comparison."""

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
