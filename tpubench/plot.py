"""A comparison as a picture: step time by cell with its interval, a panel a piece of work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpubench.compare import Comparison, Group
from tpubench.errors import BadValue, NothingToCompare, UnwritableDirectory

SUFFIXES = (".png", ".svg", ".pdf")

_MEASURED, _BASELINE, _FAILED = "#2f6f9f", "#6b7280", "#b03a2e"


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

    heights = [1.1 + 0.42 * len(g.rows) for g in groups]
    figure, axes = pyplot.subplots(
        len(groups), 1, figsize=(8.5, sum(heights)), squeeze=False,
        gridspec_kw={"height_ratios": heights}, layout="constrained",
    )  # fmt: skip
    for axis, group in zip(axes[:, 0], groups, strict=True):
        _panel(axis, group)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UnwritableDirectory(path.parent, error.strerror or str(error)) from error
    finally:
        pyplot.close(figure)


def _panel(axis: Any, group: Group) -> None:
    base = group.baseline
    measured = [r.step.value * 1e3 for r in group.rows if r.step is not None]
    logarithmic = max(measured) > 20 * min(measured)
    if logarithmic:
        axis.set_xscale("log")
    names = []
    for place, row in enumerate(group.rows):
        names.append(row.name)
        if row.step is None:
            text = f"{row.record.status}: {row.record.reason or ''}"
            axis.text(0.01, place, text[:90], color=_FAILED, va="center", fontsize=8,
                      transform=axis.get_yaxis_transform())  # fmt: skip
            continue
        value = row.step.value * 1e3
        low = value if row.step.low is None else row.step.low * 1e3
        high = value if row.step.high is None else row.step.high * 1e3
        colour = _BASELINE if row.is_baseline else _MEASURED
        if logarithmic:  # a bar has no honest length without a zero
            axis.plot(value, place, "o", color=colour)
        else:
            axis.barh(place, value, height=0.6, color=colour)
        axis.errorbar(value, place, xerr=[[value - low], [high - value]], color="black", capsize=3, linewidth=1)
        ratio = ""
        if row.ratio is not None and not row.is_baseline:
            ratio = f"  {'~' if row.undecided else ''}{row.ratio.value:.3g} x"
        axis.annotate(f"{value:.4g} ms{ratio}", (high, place), xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=8)  # fmt: skip
    axis.set_yticks(range(len(names)), names, fontsize=9)
    axis.set_ylim(len(names) - 0.4, -0.6)
    if logarithmic:
        axis.set_xlim(min(measured) / 2, max(measured) * 6)
    else:
        axis.set_xlim(0, max(measured) * 1.32)
    against = f", x is the ratio to {base.name}" if base is not None else ""
    axis.set_xlabel(f"median step time, ms (95 % interval{against})", fontsize=9)
    axis.set_title(group.title, fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="x", alpha=0.25)
