"""A profile's summary as text: aligned, markdown, CSV or JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from tpubench.trace.summary import PlaneSummary, Summary

FORMATS = ("table", "md", "csv", "json")

_TITLES = ("op", "program", "category", "count", "ms", "share")


def render(summary: Summary, fmt: str, top: int) -> str:
    """``summary`` in one of :data:`FORMATS`, ``top`` ops a plane, ending in a newline."""
    if fmt == "json":
        return json.dumps(_data(summary, top), indent=2) + "\n"
    if fmt == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["plane", *_TITLES])
        for plane in summary.planes:
            writer.writerows([plane.name, *row] for row in _rows(plane, top))
        return text.getvalue()
    parts = []
    for plane in summary.planes:
        lines = [_headline(plane)]
        rows = [[str(cell) for cell in row] for row in _rows(plane, top)]
        lines += _markdown(rows) if fmt == "md" else _aligned(rows)
        left = len(plane.ops) - len(rows)
        if left > 0:
            share = sum(op.share for op in plane.ops[top:])
            lines.append(f"{'' if fmt == 'md' else '  '}{left} more ops, {share:.1%}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _headline(plane: PlaneSummary) -> str:
    kind = "" if plane.is_device else " (time summed over threads: it may exceed the clock's)"
    median = plane.step_median_ns
    step = f", median step {median / 1e6:.4g} ms" if median is not None else ""
    return (
        f"{plane.name}: {len(plane.step_ns)} steps in {plane.window_ns / 1e6:.4g} ms{step}, "
        f"ops running {1 - plane.idle_share:.1%} of it{kind}"
    )


def _rows(plane: PlaneSummary, top: int) -> list[list[Any]]:
    return [
        [op.name, op.module, op.category, op.count, f"{op.total_ns / 1e6:.3f}", f"{op.share:.1%}"]
        for op in plane.ops[:top]
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(t), *(len(r[i]) for r in rows)) for i, t in enumerate(_TITLES)]

    def line(cells: Sequence[str]) -> str:
        left = [f"{c:<{w}}" for c, w in zip(cells[:3], widths[:3], strict=True)]
        right = [f"{c:>{w}}" for c, w in zip(cells[3:], widths[3:], strict=True)]
        return "  " + "  ".join(left + right)

    return [line(_TITLES), line(["-" * w for w in widths]), *(line(r) for r in rows)]


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["", "| " + " | ".join(_TITLES) + " |", "| --- | --- | --- | ---: | ---: | ---: |"]
    return [*lines, *("| " + " | ".join(c.replace("|", "\\|") for c in r) + " |" for r in rows), ""]


def _data(summary: Summary, top: int) -> dict[str, Any]:
    planes = []
    for plane in summary.planes:
        data = dataclasses.asdict(plane) | {
            "idle_share": plane.idle_share,
            "step_median_ns": plane.step_median_ns,
            "ops": [dataclasses.asdict(op) for op in plane.ops[:top]],
        }
        planes.append(data)
    return {
        "file": PurePath(summary.path).name,
        "size_bytes": summary.size_bytes,
        "steps": summary.steps,
        "planes": planes,
    }
