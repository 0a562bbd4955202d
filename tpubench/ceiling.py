"""Where a step stands under the roofline: bandwidth achieved, the least time the chip allows, and what bounds it.

S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009, doi 10.1145/1498765.1498785.
"""

from __future__ import annotations

import statistics

from tpubench import catalog
from tpubench.record import Record

#: What throughput counts where a step is so many launches of one op.
_OP = "op"


def add_ceiling(row: Record, peak_gbps: float | None) -> None:
    """Fill the fields of bandwidth, roofline and time an op of ``row``, whose step time and peak are known by now.

    ``peak_gbps``, GB/s of one chip's memory, overrides the catalogue's.
    """
    _per_op(row)
    row.achieved_gbps = row.peak_gbps = row.peak_gbps_source = row.roofline = row.bound_by = row.roofline_reason = None
    if row.bytes_moved is None or row.step_median_s is None:
        row.roofline_reason = "the bytes that a step must move are not known"
        return
    row.achieved_gbps = row.bytes_moved / row.step_median_s / 1e9
    if peak_gbps is not None:
        row.peak_gbps, row.peak_gbps_source = peak_gbps, "given with --peak-gbps"
    else:
        memory = catalog.memory(row.chip) if row.chip else None
        if memory is None:
            what = row.chip or (row.cpu_model if row.device_name in (None, "cpu") else row.device_name) or "this device"
            row.roofline_reason = f"no bandwidth is known for '{what}': give --peak-gbps, or --chip"
            return
        row.peak_gbps, row.peak_gbps_source = memory.gbps, memory.source
    _place(row)


def _place(row: Record) -> None:
    """The share of the roofline, from the bandwidth and, where there is arithmetic, the peak."""
    assert row.bytes_moved is not None and row.peak_gbps is not None and row.step_median_s is not None
    chips = row.chips or 1
    memory_s = row.bytes_moved / (chips * row.peak_gbps * 1e9)
    compute_s = 0.0
    if row.model_flops is None or (row.model_flops and row.peak_tflops is None):
        row.roofline_reason = row.mfu_reason or "the model's FLOPs are not known"
        return
    if row.model_flops and row.peak_tflops is not None:
        compute_s = row.model_flops / (chips * row.peak_tflops * 1e12)
    least = max(memory_s, compute_s)
    share = least / row.step_median_s
    if share > 1:
        row.roofline_reason = (
            f"refused: the step takes {share:.2f} times less than peak and bandwidth allow; one of them, the chip or "
            "the timing is wrong, or the operands stay in a cache: give larger ones"
        )
        return
    row.roofline, row.bound_by = share, "compute" if compute_s > memory_s else "memory"


def _per_op(row: Record) -> None:
    row.host_s_per_op = row.device_s_per_op = None
    if row.item != _OP or not row.items_per_step:
        return
    if row.dispatch_s:
        row.host_s_per_op = statistics.median(row.dispatch_s) / row.items_per_step
    if row.device_s is not None:
        row.device_s_per_op = row.device_s / row.items_per_step
