"""What a reader must know before a ratio is believed: the lines under a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tpubench.steadiness import instability

if TYPE_CHECKING:
    from tpubench.compare import Row

#: What makes rows of a table unlike each other beyond backend and mode, as far as it differs.
_UNLIKE = (
    "device",
    "device_name",
    "chip",
    "host",
    "cpu_model",
    "cpu_count",
    "threads",
    "os",
    "matmul_precision",
    "compile_scope",
    "cache",
    "cpu_fallback",
    "cpu_fallbacks",
    "graph_breaks",
    "peak_memory_kind",
    "flops_convention",
    "seed",
    "steps",
    "warmup_min",
    "warmup_max",
    "python_version",
    "torch_version",
    "jax_version",
    "libtpu_version",
    "tpubench_version",
)
#: From this p on Mann-Whitney's test makes no claim.
_SURE = 0.05
#: Of fewer processes than these Student's t makes an interval wide.
_FEW = 5
#: Values, and names beside a value, that a line lists before it only counts the rest.
_MOST = 6


def notes(rows: Sequence[Row]) -> list[str]:
    """The lines for the rows of one table, one line each: what differs, what is doubtful, what is assumed."""
    measured = [row for row in rows if row.step is not None]
    return [
        *_differences(measured),
        *(line for row in measured for line in _doubts(row)),
        *_shared(measured, "device_s_reason", "device time"),
        *_shared(measured, "mfu_reason", "no MFU"),
        *_shared(measured, "peak_source", "peak"),
        *_shared([row for row in measured if row.record.bytes_moved is not None], "roofline_reason", "no roofline"),
        *_shared(measured, "peak_gbps_source", "bandwidth"),
        *_shared(measured, "cost_reason", "no cost"),
        *_shared(measured, "price_source", "price"),
        *_disagreements(measured),
        *_moved(measured),
        *_processes(measured),
    ]


def _differences(rows: Sequence[Row]) -> list[str]:
    lines = []
    for field in _UNLIKE:
        values = _grouped((getattr(row.record, field), row.name) for row in rows)
        if len(values) > 1:
            shown = [f"{'unknown' if value is None else value} [{_list(names)}]" for value, names in values.items()]
            lines.append(f"differs: {field}: {_list(shown, '; ')}")
    return lines


def _doubts(row: Row) -> list[str]:
    record, lines = row.record, []
    if record.correctness != "matched":
        detail = f": {record.correctness_detail}" if record.correctness_detail else ""
        lines.append(f"correctness {record.correctness or 'not checked'}{detail}")
    if record.cpu_fallback_ops:
        lines.append(f"ran on the CPU: {', '.join(record.cpu_fallback_ops)}")
    doubts = _grouped((text, i) for i, run in enumerate(row.measured, 1) for text in instability(run.step_s))
    for text, runs in doubts.items():
        lines.append(text if len(row.measured) == 1 else f"run {_list(map(str, runs))}: {text}")
    warnings = _grouped((text, i) for i, run in enumerate(row.measured) for text in run.warnings)
    return [f"{row.name}: {line}" for line in (*lines, *warnings)]


def _shared(rows: Sequence[Row], field: str, title: str) -> list[str]:
    """``field`` of every row, each text once, with the rows it holds for unless it holds for all."""
    texts = _grouped((text, row.name) for row in rows if (text := getattr(row.record, field)))
    return [
        f"{title}{'' if len(names) == len(rows) else f' [{_list(names)}]'}: {text}" for text, names in texts.items()
    ]


def _disagreements(rows: Sequence[Row]) -> list[str]:
    """Rows called different by the interval, and not by Mann-Whitney though it has the samples to."""
    lines = []
    for row in rows:
        if row.p_value is None or row.is_baseline or row.undecided or row.p_value < _SURE:
            continue
        lines.append(
            f"{row.name}: the interval leaves out 1, Mann-Whitney's p is {row.p_value:.2g}: measure in more processes"
        )
    return lines


def _moved(rows: Sequence[Row]) -> list[str]:
    """What differs between rows and what each is held against, where that is the same cell of other records."""
    held = [(row, row.base) for row in rows if row.base is not None and row.base.fingerprint == row.record.fingerprint]
    lines = []
    for field in _UNLIKE:
        changes = _grouped(
            ((getattr(base, field), getattr(row.record, field)), row.name)
            for row, base in held
            if getattr(base, field) != getattr(row.record, field)
        )
        for (old, new), names in changes.items():
            shown = " then, ".join("unknown" if value is None else str(value) for value in (old, new))
            lines.append(f"changed: {field}: {shown} now [{_list(names)}]")
    return lines


def _processes(rows: Sequence[Row]) -> list[str]:
    single = [row.name for row in rows if len(row.measured) == 1]
    few = [row.name for row in rows if 1 < len(row.measured) < _FEW]
    lines = []
    if single:
        whose = "a cell" if len(single) == len(rows) else f"[{_list(single)}]"
        lines.append(f"one process {whose}: how much processes differ was not measured")
    if few:
        lines.append(f"fewer than {_FEW} processes [{_list(few)}]: so few make a wide interval: measure in more")
    return lines


def _grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Second members by first, both in the order in which they came."""
    groups: dict[Any, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _list(items: Iterable[str], separator: str = ", ") -> str:
    """``items``, each once, and how many more there are where they are many."""
    distinct = list(dict.fromkeys(items))
    more = len(distinct) - _MOST
    return separator.join([*distinct[:_MOST], f"{more} more"] if more > 0 else distinct)
