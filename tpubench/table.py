"""A comparison as text: aligned columns or markdown for people, CSV or JSON for programs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any

from tpubench.compare import Comparison, Group, Row
from tpubench.digits import mebibytes, micro, milli, number, rate, ratio, seconds, share, with_interval
from tpubench.export import as_csv, as_json
from tpubench.grid import NOTHING, Column, markdown, plain
from tpubench.overall import overall

FORMATS = ("table", "md", "csv", "json")

#: Columns that are there although no row fills them: what a user would ask for.
_ALWAYS = {"cell", "step ms [95% CI]", "x baseline [95% CI]", "MFU", "USD/step"}


def render(comparison: Comparison, fmt: str, width: int | None = None) -> str:
    """``comparison`` in one of :data:`FORMATS`, ending in a newline.

    ``width``, in characters, breaks a table that is wider into one below the other, each with the
    cells' names. Nothing is ever cut off.
    """
    if fmt == "csv":
        return as_csv(comparison)
    if fmt == "json":
        return as_json(comparison)
    return text(comparison, fmt, width)


def text(comparison: Comparison, fmt: str, width: int | None = None) -> str:
    """The tables of all groups, then that of the cells over all of them, and why groups are apart."""
    show = _shown(fmt, width)
    parts = [show(g.title, columns(g, comparison.across), legend(g)) for g in comparison.groups]
    over = overall(comparison)
    if over:
        table: list[Column] = [
            ("cell", [m.name for m in over], True),
            ("geometric mean x baseline [95% CI]", [ratio(m.ratio) for m in over], True),
            ("of works", [str(m.works) for m in over], False),
            ("fastest in", [str(m.fastest) for m in over], False),
            ("baseline", [m.baseline for m in over], True),
        ]
        parts.append(show(f"over {len(comparison.groups)} pieces of work", table, []))
    apart = comparison.differing
    if apart:
        values = "; ".join(f"{field} ({_few(given)})" for field, given in apart.items())
        line = (
            f"rows of different work are not held against one another: they differ in {values}; "
            f"--across {','.join(apart)} would"
        )
        parts.append(("- " if fmt == "md" else "  ") + line + "\n")
    return "\n".join(parts)


def _few(values: list[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:6])
    return shown if len(values) <= 6 else f"{shown}, {len(values) - 6} more"


def _shown(fmt: str, width: int | None) -> Callable[[str, list[Column], list[str]], str]:
    def as_plain(title: str, table: list[Column], lines: list[str]) -> str:
        return "\n".join([title, *plain(table, width), *(f"  {line}" for line in lines)]) + "\n"

    def as_markdown(title: str, table: list[Column], lines: list[str]) -> str:
        below = ["", *(f"- {line}" for line in lines)] if lines else []
        return "\n".join([f"**{title}**", "", *markdown(table), *below]) + "\n"

    return as_markdown if fmt == "md" else as_plain


def _step(row: Row) -> str:
    return row.record.status if row.step is None else with_interval(row.step, 4, 1e3) + (" *" if row.best else "")


def _ratio(row: Row) -> str:
    if row.is_baseline:
        return "baseline"
    return NOTHING if row.ratio is None else ratio(row.ratio)


def _against(row: Row) -> str:
    """What a row's ratio is to, where that is no row of the table."""
    if row.base is None or row.base.step_median_s is None or row.base.fingerprint != row.record.fingerprint:
        return NOTHING
    return NOTHING if row.is_baseline else number(milli(row.base.step_median_s), ".4g")


def columns(group: Group, across: tuple[str, ...] = ()) -> list[Column]:
    """The columns of ``group``; a column that no row fills is left out."""
    rows = group.rows
    item = next((r.record.item for r in rows if r.record.item), None) or "item"

    def of(measure: Any) -> list[str]:
        return [measure(r) if r.step is not None else NOTHING for r in rows]

    kinds = {r.record.peak_memory_kind for r in rows if r.record.peak_memory_kind}
    memory = f"peak MiB ({kinds.pop()})" if len(kinds) == 1 else "peak MiB"
    several = any(len(r.measured) > 1 for r in rows)
    moves = any(r.record.bytes_moved is not None and r.record.model_flops for r in rows)
    per_item = across and any(r.ratio_per_item and r.ratio_per_item != r.ratio for r in rows)
    found: list[Column] = [
        ("cell", [r.name for r in rows], True),
        ("step ms [95% CI]", [_step(r) for r in rows], True),
        ("against ms", of(_against) if group.baseline is None else [NOTHING] * len(rows), False),
        ("x baseline [95% CI]", [_ratio(r) for r in rows], True),
        (f"x baseline a {item}", of(lambda r: _per_item(r) if per_item else NOTHING), True),
        ("runs", of(lambda r: str(len(r.measured)) if several else NOTHING), False),
        (f"{item}s/s", of(lambda r: rate(r.record.items_per_s)), False),
        ("device ms", of(lambda r: number(milli(r.record.device_s), ".4g")), False),
        ("first step s", of(lambda r: number(r.record.first_step_s)), False),
        ("warm-up s", of(lambda r: number(r.record.warmup_overhead_s)), False),
        ("compile s", of(lambda r: number(r.record.compile_s)), False),
        ("cache hits", of(lambda r: share(r.hit_rate)), False),
        ("launches/step", of(lambda r: rate(r.record.launches_per_step)), False),
        ("host us/op", of(lambda r: number(micro(r.record.host_s_per_op))), False),
        ("device us/op", of(lambda r: number(micro(r.record.device_s_per_op))), False),
        ("TFLOP/s", of(lambda r: number(r.record.achieved_tflops) if moves else NOTHING), False),
        ("GB/s", of(lambda r: number(r.record.achieved_gbps)), False),
        ("roofline", of(lambda r: share(r.record.roofline, ".3g")), False),
        ("bound by", of(lambda r: r.record.bound_by or NOTHING), True),
        ("MFU", of(lambda r: share(r.record.mfu, ".3g")), False),
        ("USD/step", of(lambda r: number(r.record.usd_per_step, ".3g")), False),
        (f"USD/1M {item}s", of(lambda r: number(r.record.usd_per_million_items, ".3g")), False),
        (memory, of(lambda r: number(mebibytes(r.record.peak_memory_bytes), ".0f")), False),
        ("loss", of(lambda r: r.record.correctness or "not checked"), True),
    ]
    return [c for c in found if c[0] in _ALWAYS or any(v != NOTHING for v in c[1])]


def _per_item(row: Row) -> str:
    if row.is_baseline:
        return "baseline"
    return NOTHING if row.ratio_per_item is None else ratio(row.ratio_per_item)


def legend(group: Group) -> list[str]:
    """The lines under a table."""
    lines = []
    base = group.baseline
    how = "below 1 is faster, ~ marks an interval that holds 1"
    if base is not None and base.step is not None:
        lines.append(f"baseline: {base.name}, {seconds(base.step.value)} a step; {how}")
    elif any(r.ratio for r in group.rows):
        lines.append(f"baseline: the same cell of the other records; {how}")
    if any(r.best for r in group.rows):
        lines.append("* the fastest, and what is not told apart from it")
    lines += [f"{r.name}: {r.record.status}: {r.record.reason}" for r in group.rows if r.record.reason]
    return [" ".join(line.split()) for line in (*lines, *group.notes)]


def terminal_width() -> int | None:
    """How many characters standard output shows in a line; None where it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
