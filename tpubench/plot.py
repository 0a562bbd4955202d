"""A comparison as a picture: step time by cell with its interval, a panel a piece of work."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from tpubench.compare import Comparison, Group, Row
from tpubench.digits import seconds
from tpubench.errors import BadValue, NothingToCompare, UnwritableDirectory
from tpubench.stats import Interval

SUFFIXES = (".png", ".svg", ".pdf")

_MEASURED, _BASELINE, _FAILED = "#2f6f9f", "#6b7280", "#b03a2e"
#: More rows and panels than these are no picture any more; it says how many it leaves to the table.
_MOST_ROWS, _MOST_PANELS = 40, 12
#: Of a failed row's reason; the table has all of it.
_MOST_CHARACTERS = 88
#: From here on the slowest row would leave the fastest no length to see.
_LOGARITHMIC_FROM = 20.0


def save(comparison: Comparison, path: Path) -> None:
    """Draw ``comparison`` into ``path``.

    Raises:
        BadValue: the suffix is no picture's.
        NothingToCompare: no row has a number.
        UnwritableDirectory: it cannot be written there.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise BadValue("--plot", path, f"end the name in {', '.join(SUFFIXES)}")
    groups = [g for g in comparison.groups if any(r.step is not None for r in g.rows)]
    if not groups:
        raise NothingToCompare("no row has a step time to draw", "run cells that end with status ok")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    left_out = len(groups) - _MOST_PANELS
    groups = groups[:_MOST_PANELS]
    heights = [1.1 + 0.42 * min(len(g.rows), _MOST_ROWS) for g in groups]
    figure, axes = pyplot.subplots(
        len(groups), 1, figsize=(8.5, sum(heights)), squeeze=False,
        gridspec_kw={"height_ratios": heights}, layout="constrained",
    )  # fmt: skip
    for axis, group in zip(axes[:, 0], groups, strict=True):
        _panel(axis, group)
    if left_out > 0:
        figure.supxlabel(f"{left_out} more pieces of work are in the table", fontsize=9)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UnwritableDirectory(path.parent, error.strerror or str(error)) from error
    finally:
        pyplot.close(figure)


def _panel(axis: Any, group: Group) -> None:
    rows = group.rows[:_MOST_ROWS]
    measured = [r.step.value for r in rows if r.step is not None]
    logarithmic = max(measured) > _LOGARITHMIC_FROM * min(measured)
    if logarithmic:
        axis.set_xscale("log")
    for place, row in enumerate(rows):
        if row.step is None:
            text = " ".join(f"{row.record.status}: {row.record.reason or ''}".split())
            axis.text(0.01, place, textwrap.shorten(text, _MOST_CHARACTERS, placeholder=" ..."), color=_FAILED,
                      va="center", fontsize=8, transform=axis.get_yaxis_transform())  # fmt: skip
        else:
            _mark(axis, place, row, row.step, logarithmic)
    axis.set_yticks(range(len(rows)), [r.name for r in rows], fontsize=9)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    if logarithmic:
        axis.set_xlim(min(measured) * 1e3 / 2, max(measured) * 1e3 * 6)
    else:
        axis.set_xlim(0, max(measured) * 1e3 * 1.32)
    scale = "ms, logarithmic" if logarithmic else "ms"
    axis.set_xlabel(f"step time, {scale}: median and its 95 % interval", fontsize=9)
    more = len(group.rows) - len(rows)
    title = f"{group.title}{f' ({more} more rows are in the table)' if more > 0 else ''}"
    axis.set_title(title, fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_axisbelow(True)
    axis.grid(axis="x", alpha=0.25)


def _mark(axis: Any, place: int, row: Row, step: Interval, logarithmic: bool) -> None:
    """A row's bar or dot, its interval and its label."""
    value, colour = step.value * 1e3, _BASELINE if row.is_baseline else _MEASURED
    low, high = (value if end is None else end * 1e3 for end in (step.low, step.high))
    if logarithmic:  # a bar has no honest length without a zero
        axis.plot(value, place, "o", color=colour)
    else:
        axis.barh(place, value, height=0.6, color=colour)
    if low < high:
        axis.errorbar(value, place, xerr=[[value - low], [high - value]], color="black", capsize=3, linewidth=1)
    against = ""
    if row.is_baseline:
        against = "  baseline"
    elif row.ratio is not None:
        against = f"  {'~' if row.undecided else ''}{row.ratio.value:.3g} x"
    axis.annotate(f"{seconds(step.value)}{against}", (high, place), xytext=(6, 0), textcoords="offset points",
                  va="center", fontsize=8)  # fmt: skip
