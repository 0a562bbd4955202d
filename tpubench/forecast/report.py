"""Forecasts as text: a table, markdown, CSV or JSON, and what is to know of them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from tpubench.forecast.forecast import Forecast

FORMATS = ("table", "md", "csv", "json")
#: What every table ends with: what these numbers are.
PREDICTED = (
    "predicted, not measured: no TPU ran this. Steps range from the roofline of each program (none is faster) to the "
    "TPU compiler's cycles of products and the bandwidth of everything else, one after the other; what overlaps is "
    "faster, what the compiler does not foresee is slower"
)
_NOTHING = "-"


def render(rows: Sequence[Forecast], fmt: str, top: int = 0) -> str:
    """``rows`` in one of :data:`FORMATS`, ending in a newline; with ``top``, as many of each row's heaviest ops."""
    if fmt == "json":
        return json.dumps([data(row) for row in rows], indent=2) + "\n"
    if fmt == "csv":
        return _csv(rows)
    blocks = []
    for work in dict.fromkeys(_work(row) for row in rows):
        same = [row for row in rows if _work(row) == work]
        blocks.append(_block(work, same, fmt, top))
    return "\n".join(blocks)


def _work(row: Forecast) -> str:
    spec = row.spec
    phase = f"{spec.phase} ({spec.optimizer})" if spec.optimizer else spec.phase
    length = [f"sequence {spec.seq_len}"] if spec.seq_len else []
    return ", ".join([f"{spec.workload}/{spec.size}", phase, f"batch {spec.batch}", *length, spec.dtype])


def _block(work: str, rows: Sequence[Forecast], fmt: str, top: int) -> str:
    item = next((row.item for row in rows if row.item), "item")
    titles = [
        "chip", "mode", "fits", "GiB", "of GiB", "programs", "launches", "step ms", "bound by", f"{item}s/s", "MFU %",
        f"USD/1M {item}s", "compile s",
    ]  # fmt: skip
    cells = [_cells(row) for row in rows]
    kept = [i for i, title in enumerate(titles) if i < 3 or any(line[i] != _NOTHING for line in cells)]
    table = [[line[i] for i in kept] for line in (titles, *cells)]
    notes = [*_notes(rows), PREDICTED]
    ops = [line for row in rows for line in _ops(row, top)]
    if fmt == "md":
        lines = ["| " + " | ".join(line) + " |" for line in table]
        rule = "| " + " | ".join("---" if i < 3 else "---:" for i in range(len(kept))) + " |"
        text = ["```", *ops, "```", ""] if ops else []
        return "\n".join([f"**{work}**", "", lines[0], rule, *lines[1:], "", *text, *(f"- {n}" for n in notes)]) + "\n"
    widths = [max(len(line[i]) for line in table) for i in range(len(kept))]
    aligned = [
        "  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in table
    ]
    rule = "  ".join("-" * w for w in widths)
    lines = [work, aligned[0].rstrip(), rule, *(line.rstrip() for line in aligned[1:]), *ops]
    return "\n".join([*lines, *(f"  {note}" for note in notes)]) + "\n"


def _cells(row: Forecast) -> list[str]:
    fits = _NOTHING if row.fits is None else "yes" if row.fits else "no"
    return [
        row.chip,
        row.spec.mode,
        fits if row.ok or row.fits is False else row.status,
        ("" if row.memory_whole else "> ") + _one(row.memory_bytes, 1 / 2**30),
        _one(row.capacity_bytes, 1 / 2**30),
        str(row.programs) if row.programs else _NOTHING,
        str(row.launches) if row.launches else _NOTHING,
        span(row.low_s, row.high_s, 1e3),
        _bound(row),
        span(row.rate(row.high_s), row.rate(row.low_s)),
        span(row.mfu_low, row.mfu_high, 100),
        span(row.usd_per_million(row.usd_low), row.usd_per_million(row.usd_high)),
        _one(row.compile_s),
    ]


def _bound(row: Forecast) -> str:
    if row.bound_by is None or row.bound_share is None:
        return row.bound_by or _NOTHING
    return f"{row.bound_by} {row.bound_share:.0%}"


def span(low: float | None, high: float | None, scale: float = 1.0) -> str:
    """``1.2 - 3.4``; one end where the other is not known, a dash where neither is."""
    if low is None and high is None:
        return _NOTHING
    if low is None or high is None:
        return f"> {_digits(low * scale)}" if low is not None else f"< {_digits((high or 0.0) * scale)}"
    return f"{_digits(low * scale)} - {_digits(high * scale)}"


def _digits(value: float) -> str:
    """Three digits, and none of them behind an exponent where there are whole ones."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _one(value: float | None, scale: float = 1.0) -> str:
    return _NOTHING if value is None else _digits(value * scale)


def _ops(row: Forecast, top: int) -> list[str]:
    if not top or not row.ops:
        return []
    lines = [f"  heaviest on {row.chip}, {row.spec.mode}:"]
    for op in row.ops[:top]:
        share = _NOTHING if op["share"] is None else f"{op['share'] * 100:.1f}%"
        kind = "product" if op["product"] else "bytes"
        where = f"{_place(op['source'])} ({op['op']})" if op["source"] else op["op"]
        lines.append(f"    {op['seconds'] * 1e3:9.4f} ms  {share:>6}  {kind:<7}  {op['program']}: {where}")
    return lines


def _place(source: str) -> str:
    """What an op comes from, without the program before it and jax's own op behind it."""
    parts = [part for part in source.split("/") if not part.startswith("jit(")]
    return "/".join(parts[:-1]) or source.rpartition("/")[2]


def _notes(rows: Sequence[Forecast]) -> list[str]:
    """Why rows have no numbers, then every note once, with the rows it holds for unless it holds for all."""
    lines = [f"{row.chip} {row.spec.mode}: {row.status}: {row.reason}" for row in rows if row.reason]
    shared: dict[str, list[str]] = {}
    for row in rows:
        for note in dict.fromkeys([*row.notes, *_sources(row)]):
            shared.setdefault(note, []).append(f"{row.chip} {row.spec.mode}")
    for note, whose in shared.items():
        lines.append(note if len(whose) == len(rows) else f"[{', '.join(whose)}] {note}")
    return lines


def _sources(row: Forecast) -> list[str]:
    notes = []
    if row.price_source:
        notes.append(f"price: {row.price_source}")
    if row.high_s is not None:
        notes.append(f"{row.launch_s * 1e6:g} us a launch assumed at the upper end (--launch-us), none at the lower")
    if row.libtpu_version:
        notes.append(f"compiled by libtpu {row.libtpu_version}, jax {row.jax_version}")
    return notes


_FIELDS: tuple[tuple[str, Callable[[Forecast], Any]], ...] = (
    ("items_per_s_low", lambda row: row.rate(row.high_s)),
    ("items_per_s_high", lambda row: row.rate(row.low_s)),
    ("usd_per_million_items_low", lambda row: row.usd_per_million(row.usd_low)),
    ("usd_per_million_items_high", lambda row: row.usd_per_million(row.usd_high)),
)


def data(row: Forecast) -> dict[str, Any]:
    """A forecast as JSON has it: the cell's fields, the forecast's, and each program with its memory and times."""
    spec = {k: v for k, v in row.spec.to_dict().items() if k in _OF_THE_CELL}
    names = [f.name for f in dataclasses.fields(row) if f.name not in ("spec", "parts")]
    return {
        "predicted": True,
        **spec,
        **{name: getattr(row, name) for name in names},
        **{name: give(row) for name, give in _FIELDS},
        "parts": [_part(part) for part in row.parts],
    }


_OF_THE_CELL = ("workload", "size", "mode", "batch", "dtype", "phase", "optimizer", "seq_len", "mesh")


def _part(part: Any) -> dict[str, Any]:
    one = part.estimate
    return {
        "program": part.program.name,
        "launches": part.program.launches,
        "beside_bytes": part.program.beside_bytes,
        "status": part.outcome.status,
        "reason": part.outcome.reason,
        "memory": part.memory,
        "compile_s": part.outcome.seconds,
        "low_s": one and one.low_s,
        "high_s": one and one.high_s,
        "compiler_cycles_s": one and one.cycles_s,
        "compute_s": one and one.compute_s,
        "how": part.how,
        "flops": one and one.flops,
        "hbm_bytes": one and one.hbm_bytes,
        "no_cycles": one and one.uncounted,
    }


def _csv(rows: Sequence[Forecast]) -> str:
    text = io.StringIO()
    left_out = ("ops", "parts", "notes")
    found = [{k: v for k, v in data(row).items() if k not in left_out} for row in rows]
    writer = csv.DictWriter(text, found[0] if found else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()
