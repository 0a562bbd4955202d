"""A comparison as text: aligned columns, markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from tpubench.compare import Comparison, Group, Row
from tpubench.stats import Interval

FORMATS = ("table", "md", "csv", "json")

NOTHING = "-"

_Column = tuple[str, list[str], bool]  # title, cells, whether they stand to the left


def render(comparison: Comparison, fmt: str, width: int | None = None) -> str:
    """``comparison`` in one of :data:`FORMATS`, ending in a newline.

    ``width``, in characters, breaks a table that is wider into one below the other, each with the
    cells' names. Nothing is ever cut off.
    """
    if fmt == "csv":
        return _csv(comparison)
    if fmt == "json":
        return json.dumps([_group_data(g) for g in comparison.groups], indent=2) + "\n"
    parts = [_markdown(g) if fmt == "md" else _plain(g, width) for g in comparison.groups]
    return "\n".join(parts)


# -- for people ---------------------------------------------------------------------------------------
def seconds(value: float) -> str:
    """A duration in the unit that gives it three digits before rounding: 12.3 us, 45.6 ms, 1.23 s."""
    for unit, scale in (("us", 1e6), ("ms", 1e3)):
        if value * scale < 999.5:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s" if value < 999.5 else f"{value:.0f} s"


def _with_interval(interval: Interval, digits: int, scale: float = 1.0) -> str:
    """The value to ``digits`` significant digits, and the ends of its interval to as many decimals."""
    value = interval.value * scale
    decimals = max(0, digits - 1 - math.floor(math.log10(value))) if value > 0 else 0
    ends = ""
    if interval.low is not None and interval.high is not None:
        ends = f" [{interval.low * scale:.{decimals}f}, {interval.high * scale:.{decimals}f}]"
    return f"{value:.{decimals}f}{ends}"


def _step(row: Row) -> str:
    return row.record.status if row.step is None else _with_interval(row.step, 4, 1e3)


def _ratio(row: Row) -> str:
    if row.is_baseline:
        return "baseline"
    if row.ratio is None:
        return NOTHING
    return ("~" if row.undecided else "") + _with_interval(row.ratio, 3)


def _number(value: float | None, form: str = ".3g", unit: str = "") -> str:
    return NOTHING if value is None else f"{value:{form}}{unit}"


def _rate(value: float | None) -> str:
    """Four digits, and none of them behind an exponent."""
    return NOTHING if value is None else f"{value:.4g}" if value < 9999.5 else f"{value:.0f}"


def _share(value: float | None, form: str = ".1f") -> str:
    return NOTHING if value is None else f"{value * 100:{form}}%"


def _columns(group: Group) -> list[_Column]:
    """The columns of ``group``; a column that no row fills is left out."""
    rows = group.rows
    item = next((r.record.item for r in rows if r.record.item), None) or "item"

    def of(measure: Any) -> list[str]:
        return [measure(r) if r.step is not None else NOTHING for r in rows]

    kinds = {r.record.peak_memory_kind for r in rows if r.record.peak_memory_kind}
    memory = f"peak MiB ({kinds.pop()})" if len(kinds) == 1 else "peak MiB"
    several = any(len(r.measured) > 1 for r in rows)
    moves = any(r.record.bytes_moved is not None and r.record.model_flops for r in rows)
    columns = [
        ("cell", [r.name for r in rows], True),
        ("step ms [95% CI]", [_step(r) for r in rows], True),
        ("x baseline [95% CI]", [_ratio(r) for r in rows], True),
        ("runs", of(lambda r: str(len(r.measured)) if several else NOTHING), False),
        (f"{item}s/s", of(lambda r: _rate(r.record.items_per_s)), False),
        ("device ms", of(lambda r: _number(_milli(r.record.device_s), ".4g")), False),
        ("first step s", of(lambda r: _number(r.record.first_step_s)), False),
        ("warm-up s", of(lambda r: _number(r.record.warmup_overhead_s)), False),
        ("compile s", of(lambda r: _number(r.record.compile_s)), False),
        ("cache hits", of(lambda r: _share(r.hit_rate)), False),
        ("launches/step", of(lambda r: _rate(r.record.launches_per_step)), False),
        ("host us/op", of(lambda r: _number(_micro(r.record.host_s_per_op))), False),
        ("device us/op", of(lambda r: _number(_micro(r.record.device_s_per_op))), False),
        ("TFLOP/s", of(lambda r: _number(r.record.achieved_tflops) if moves else NOTHING), False),
        ("GB/s", of(lambda r: _number(r.record.achieved_gbps)), False),
        ("roofline", of(lambda r: _share(r.record.roofline, ".3g")), False),
        ("bound by", of(lambda r: r.record.bound_by or NOTHING), True),
        ("MFU", of(lambda r: _share(r.record.mfu, ".3g")), False),
        ("USD/step", of(lambda r: _number(r.record.usd_per_step, ".3g")), False),
        (f"USD/1M {item}s", of(lambda r: _number(r.record.usd_per_million_items, ".3g")), False),
        (memory, of(lambda r: _number(_mib(r.record.peak_memory_bytes), ".0f")), False),
        ("loss", of(lambda r: r.record.correctness or "not checked"), True),
    ]
    kept = {"cell", "step ms [95% CI]", "x baseline [95% CI]", "MFU", "USD/step"}
    return [c for c in columns if c[0] in kept or any(v != NOTHING for v in c[1])]


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _mib(size: int | None) -> float | None:
    return None if size is None else size / 2**20


def _legend(group: Group) -> list[str]:
    lines = []
    base = group.baseline
    if base is not None and base.step is not None:
        how = "below 1 is faster, ~ marks an interval that holds 1"
        lines.append(f"baseline: {base.name}, {seconds(base.step.value)} a step; {how}")
    lines += [f"{r.name}: {r.record.status}: {r.record.reason}" for r in group.rows if r.record.reason]
    return [" ".join(line.split()) for line in (*lines, *group.notes)]


def terminal_width() -> int | None:
    """How many characters standard output shows in a line; None where it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _plain(group: Group, width: int | None) -> str:
    lines = [group.title]
    for i, columns in enumerate(_blocks(_columns(group), width)):
        widths = [_width(column) for column in columns]

        def line(cells: Sequence[str], columns: Sequence[_Column] = columns, widths: list[int] = widths) -> str:
            aligned = (
                f"{cell:<{size}}" if left else f"{cell:>{size}}"
                for cell, size, (_, _, left) in zip(cells, widths, columns, strict=True)
            )
            return "  ".join(aligned).rstrip()

        lines += [""] if i else []
        lines += [line([title for title, _, _ in columns]), line(["-" * size for size in widths])]
        lines += [line([cells[row] for _, cells, _ in columns]) for row in range(len(group.rows))]
    lines += [f"  {text}" for text in _legend(group)]
    return "\n".join(lines) + "\n"


def _width(column: _Column) -> int:
    title, cells, _ = column
    return max(len(title), *map(len, cells))


def _blocks(columns: Sequence[_Column], width: int | None) -> list[list[_Column]]:
    """The columns in blocks no wider than ``width``, where a column allows it; the first column heads each."""
    head, *rest = columns
    blocks, used = [[head]], _width(head)
    for column in rest:
        if width is not None and len(blocks[-1]) > 1 and used + 2 + _width(column) > width:
            blocks.append([head])
            used = _width(head)
        blocks[-1].append(column)
        used += 2 + _width(column)
    return blocks


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
_FIELDS = tuple(
    """
    status reason device device_name chip items_per_s first_step_s warmup_overhead_s device_s
    compile_s compile_requests compile_hits compile_misses disk_requests disk_hits disk_misses compile_scope
    launches_per_step graphs graph_breaks cpu_fallbacks
    model_flops achieved_tflops peak_tflops peak_source mfu mfu_reason
    bytes_moved achieved_gbps peak_gbps peak_gbps_source roofline bound_by roofline_reason
    host_s_per_op device_s_per_op
    usd_per_chip_hour price_source usd_per_step usd_per_million_items cost_reason
    peak_memory_bytes peak_memory_kind correctness correctness_detail matmul_precision
    cache seed host cpu_model threads torch_version jax_version libtpu_version tpubench_version
    fingerprint run_id
    """.split()
)


def _withheld(row: Row, field: str) -> Any:
    """``field`` of a row; null where it is a number of a row whose numbers may not be compared."""
    value = getattr(row.record, field)
    return value if row.step is not None or isinstance(value, str) or field in ("seed", "threads") else None


def _row_data(row: Row) -> dict[str, Any]:
    step, ratio = row.step, row.ratio
    return {
        "cell": row.name,
        "backend": row.record.backend,
        "mode": row.record.mode,
        "baseline": row.is_baseline,
        "runs": len(row.runs),
        "runs_measured": len(row.measured),
        "step_median_s": step.value if step else None,
        "step_ci_low_s": step.low if step else None,
        "step_ci_high_s": step.high if step else None,
        "ratio": ratio.value if ratio else None,
        "ratio_ci_low": ratio.low if ratio else None,
        "ratio_ci_high": ratio.high if ratio else None,
        "undecided": row.undecided,
        "hit_rate": row.hit_rate,
        **{name: _withheld(row, name) for name in _FIELDS},
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
