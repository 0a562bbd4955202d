"""A comparison for programs: CSV and JSON, every number at full precision."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from tpubench.compare import Comparison, Group, Row
from tpubench.overall import Overall, overall
from tpubench.stats import Interval

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


def as_json(comparison: Comparison) -> str:
    """``{"groups": [{"work", "rows", "notes"}], "overall": [...], "differing": {field: values}}``, with a newline."""
    data = {
        "groups": [_group_data(g, comparison.across) for g in comparison.groups],
        "overall": [_overall_data(mean) for mean in overall(comparison)],
        "differing": comparison.differing,
    }
    return json.dumps(data, indent=2) + "\n"


def as_csv(comparison: Comparison) -> str:
    """A line a row, its work before its numbers."""
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for group in comparison.groups:
        for row in group.rows:
            data = {**group.work, **_row_data(row, comparison.across)}
            if writer is None:
                writer = csv.DictWriter(text, data, lineterminator="\n")
                writer.writeheader()
            writer.writerow(data)
    return text.getvalue()


def _withheld(row: Row, field: str) -> Any:
    """``field`` of a row; null where it is a number of a row whose numbers may not be compared."""
    value = getattr(row.record, field)
    return value if row.step is not None or isinstance(value, str) or field in ("seed", "threads") else None


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    return {
        name: interval.value if interval else None,
        f"{name}_ci_low": interval.low if interval else None,
        f"{name}_ci_high": interval.high if interval else None,
    }


def _row_data(row: Row, across: tuple[str, ...]) -> dict[str, Any]:
    step = row.step
    return {
        "cell": row.name,
        "backend": row.record.backend,
        "mode": row.record.mode,
        **{field: getattr(row.record, field) for field in across},
        "baseline": row.is_baseline,
        "best": row.best,
        "runs": len(row.runs),
        "runs_measured": len(row.measured),
        "step_median_s": step.value if step else None,
        "step_ci_low_s": step.low if step else None,
        "step_ci_high_s": step.high if step else None,
        "base_step_median_s": row.base.step_median_s if row.base else None,
        **_ends("ratio", row.ratio),
        **_ends("ratio_per_item", row.ratio_per_item),
        "undecided": row.undecided,
        "p_mann_whitney": row.p_value,
        "hit_rate": row.hit_rate,
        **{name: _withheld(row, name) for name in _FIELDS},
    }


def _group_data(group: Group, across: tuple[str, ...]) -> dict[str, Any]:
    return {"work": group.work, "rows": [_row_data(r, across) for r in group.rows], "notes": list(group.notes)}


def _overall_data(mean: Overall) -> dict[str, Any]:
    return {
        "cell": mean.name,
        "baseline": mean.baseline,
        **_ends("geometric_mean_ratio", mean.ratio),
        "works": mean.works,
        "fastest_in": mean.fastest,
    }
