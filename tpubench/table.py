"""A comparison as text: aligned columns, markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from tpubench.compare import Comparison, Group, Row
from tpubench.stats import Interval

FORMATS = ("table", "md", "csv", "json")

NOTHING = "-"


def render(comparison: Comparison, fmt: str) -> str:
    """``comparison`` in one of :data:`FORMATS`, ending in a newline."""
    if fmt == "csv":
        return _csv(comparison)
    if fmt == "json":
        return json.dumps([_group_data(g) for g in comparison.groups], indent=2) + "\n"
    parts = [_markdown(g) if fmt == "md" else _plain(g) for g in comparison.groups]
    return "\n".join(parts)


# -- for people ---------------------------------------------------------------------------------------
def seconds(value: float) -> str:
    """A duration in the unit that gives it three digits before rounding: 12.3 us, 45.6 ms, 1.23 s."""
    for unit, scale in (("us", 1e6), ("ms", 1e3)):
        if value * scale < 999.5:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s" if value < 999.5 else f"{value:.0f} s"


def _span(interval: Interval, scale: float) -> str:
    """The interval's ends to the digits that its value is given in."""
    if interval.low is None or interval.high is None:
        return ""
    return f" [{interval.low * scale:.4g}, {interval.high * scale:.4g}]"


def _step(row: Row) -> str:
    if row.step is None:
        return row.record.status
    return f"{row.step.value * 1e3:.4g}{_span(row.step, 1e3)}"


def _ratio(row: Row) -> str:
    if row.is_baseline:
        return "baseline"
    if row.ratio is None:
        return NOTHING
    mark = "~" if row.undecided else ""
    return f"{mark}{row.ratio.value:.3g}{_span(row.ratio, 1.0)}"


def _number(value: float | None, form: str = ".3g", unit: str = "") -> str:
    return NOTHING if value is None else f"{value:{form}}{unit}"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"


def _columns(group: Group) -> list[tuple[str, list[str], bool]]:
    """``(title, cells, left-aligned)`` of each column; a column that no row fills is left out."""
    rows = group.rows
    item = next((r.record.item for r in rows if r.record.item), None) or "item"

    def of(measure: Any) -> list[str]:
        return [measure(r) if r.step is not None else NOTHING for r in rows]

    columns = [
        ("cell", [r.name for r in rows], True),
        ("step ms [95% CI]", [_step(r) for r in rows], True),
        ("x baseline [95% CI]", [_ratio(r) for r in rows], True),
        (f"{item}s/s", of(lambda r: _number(r.record.items_per_s, ".4g")), False),
        ("first step s", of(lambda r: _number(r.record.first_step_s)), False),
        ("compile s", of(lambda r: _number(r.record.compile_s)), False),
        ("cache hits", of(lambda r: _share(r.hit_rate)), False),
        ("launches/step", of(lambda r: _number(r.record.launches_per_step, ".4g")), False),
        ("MFU", of(lambda r: _share(r.record.mfu)), False),
        ("USD/step", of(lambda r: _number(r.record.usd_per_step, ".3g")), False),
        (f"USD/1M {item}s", of(lambda r: _number(r.record.usd_per_million_items, ".3g")), False),
        ("peak MiB", of(lambda r: _number(_mib(r.record.peak_memory_bytes), ".0f")), False),
        ("loss", of(lambda r: r.record.correctness or "not checked"), True),
    ]
    kept = {"cell", "step ms [95% CI]", "x baseline [95% CI]", "MFU", "USD/step"}
    return [c for c in columns if c[0] in kept or any(v != NOTHING for v in c[1])]


def _mib(size: int | None) -> float | None:
    return None if size is None else size / 2**20


def _legend(group: Group) -> list[str]:
    lines = []
    base = group.baseline
    if base is not None and base.step is not None:
        lines.append(f"baseline: {base.name}, {seconds(base.step.value)} a step; below 1 is faster, ~ is undecided")
    lines += [f"{r.name}: {r.record.status}: {r.record.reason}" for r in group.rows if r.record.reason]
    return [*lines, *group.notes]


def _plain(group: Group) -> str:
    columns = _columns(group)
    widths = [max(len(title), *map(len, cells)) for title, cells, _ in columns]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            f"{cell:<{width}}" if left else f"{cell:>{width}}"
            for cell, width, (_, _, left) in zip(cells, widths, columns, strict=True)
        )
        return "  ".join(aligned).rstrip()

    lines = [group.title, line([c[0] for c in columns]), line(["-" * w for w in widths])]
    lines += [line([c[1][i] for c in columns]) for i in range(len(group.rows))]
    lines += [f"  {text}" for text in _legend(group)]
    return "\n".join(lines) + "\n"


def _markdown(group: Group) -> str:
    columns = _columns(group)

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    lines = [f"**{group.title}**", "", line([c[0] for c in columns])]
    lines.append(line(["---" if left else "---:" for _, _, left in columns]))
    lines += [line([c[1][i] for c in columns]) for i in range(len(group.rows))]
    lines += ["", *(f"- {text}" for text in _legend(group))]
    return "\n".join(lines) + "\n"


# -- for programs -------------------------------------------------------------------------------------
_FIELDS = (
    "status",
    "reason",
    "device",
    "device_name",
    "items_per_s",
    "first_step_s",
    "warmup_overhead_s",
    "compile_s",
    "compile_requests",
    "compile_hits",
    "compile_misses",
    "launches_per_step",
    "achieved_tflops",
    "mfu",
    "mfu_reason",
    "usd_per_step",
    "usd_per_million_items",
    "cost_reason",
    "price_source",
    "peak_memory_bytes",
    "peak_memory_kind",
    "correctness",
    "correctness_detail",
    "fingerprint",
    "run_id",
)


def _row_data(row: Row) -> dict[str, Any]:
    step, ratio = row.step, row.ratio
    return {
        "cell": row.name,
        "backend": row.record.backend,
        "mode": row.record.mode,
        "baseline": row.is_baseline,
        "runs": len(row.runs),
        "step_median_s": step.value if step else None,
        "step_ci_low_s": step.low if step else None,
        "step_ci_high_s": step.high if step else None,
        "ratio": ratio.value if ratio else None,
        "ratio_ci_low": ratio.low if ratio else None,
        "ratio_ci_high": ratio.high if ratio else None,
        "undecided": row.undecided,
        "hit_rate": row.hit_rate,
        **{name: getattr(row.record, name) for name in _FIELDS},
    }


def _group_data(group: Group) -> dict[str, Any]:
    return {"work": group.work, "rows": [_row_data(r) for r in group.rows], "notes": list(group.notes)}


def _csv(comparison: Comparison) -> str:
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for group in comparison.groups:
        for row in group.rows:
            data = {**group.work, **_row_data(row)}
            if writer is None:
                writer = csv.DictWriter(text, data, lineterminator="\n")
                writer.writeheader()
            writer.writerow(data)
    return text.getvalue()
