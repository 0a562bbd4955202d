"""What a run is told by besides its samples: counters, memory, device time, FLOPs."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tpubench import machine
from tpubench.conditions import DUMP_VARIABLE, TRACE_VARIABLE
from tpubench.failure import one_line
from tpubench.spec import Spec

#: Steps of the short trace from which the device time is taken, after the timed ones.
_TRACED = 3
#: A Record's columns, and what :meth:`Backend.cache_stats` calls them.
_CACHE = {
    "compile_requests": "requests",
    "compile_hits": "hits",
    "compile_misses": "misses",
    "compile_s": "compile_s",
    "disk_requests": "disk_requests",
    "disk_hits": "disk_hits",
    "disk_misses": "disk_misses",
    "disk_s": "disk_s",
    "disk_read_bytes": "disk_read_bytes",
    "disk_written_bytes": "disk_written_bytes",
    "disk_rejected": "disk_rejected",
    "disk_unwritten": "disk_unwritten",
}
_COUNTERS = ("graphs", "graph_breaks", "cpu_fallbacks", "cpu_fallback_ops", "compile_scope")
_DESCRIBED = (
    "device_name", "chip", "chips", "torch_version", "jax_version", "libtpu_version", "matmul_precision", "threads",
)  # fmt: skip


def add(fields: dict[str, Any], what: str, give: Callable[[], Mapping[str, Any]]) -> None:
    """Add to ``fields`` what ``give`` returns. Where it fails a warning says so: what was measured before stands."""
    try:
        fields.update(give())
    except Exception as error:
        traceback.print_exc()
        fields["warnings"].append(f"no {what}: {type(error).__name__}: {one_line(error)}")


def so_far(backend: Any) -> dict[str, Any]:
    """The cache counters before the first step: what making the data on the device has cost. Empty: not known."""
    try:
        return _cache(backend.cache_stats())
    except Exception:
        return {}  # asked again after the steps, where a failure is told


def of_backend(backend: Any, fields: dict[str, Any], before: Mapping[str, Any]) -> None:
    """The backend's counters, less what they stood at ``before``, and its description.

    Only what its protocol names can become a column.
    """
    add(fields, "cache counters", lambda: _since(_cache(backend.cache_stats()), before))
    add(fields, "counters", lambda: _known(backend.counters(), _COUNTERS))
    add(fields, "description of the device", lambda: _known(backend.describe(), _DESCRIBED))


def _cache(stats: Mapping[str, Any]) -> dict[str, Any]:
    return {column: stats.get(name) for column, name in _CACHE.items()}


def _since(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else value - (before.get(name) or 0) for name, value in now.items()}


def doubts(spec: Spec, fields: Mapping[str, Any]) -> list[str]:
    """Where a warm cell was not wholly warm, where programs could not be kept, and what debugging added."""
    missed, requests, unwritten = (fields.get(f"disk_{name}") for name in ("misses", "requests", "unwritten"))
    found = []
    if spec.cache == "warm" and missed:
        found.append(f"not wholly warm: {missed} of {requests} programs were not in the cache on disk")
    if unwritten:
        found.append(f"{unwritten} programs could not be kept on disk: is the folder full, or not to be written to?")
    if os.environ.get(DUMP_VARIABLE):
        found.append("the first step and the warm-up hold the writing of HLO")
    if os.environ.get(TRACE_VARIABLE, "0") not in ("", "0"):
        found.append(f"{TRACE_VARIABLE} is set: every step holds the writing of a line a launch")
    return found


def _known(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def memory(backend: Any) -> dict[str, Any]:
    """The peak so far: the device's, or the whole process's resident memory."""
    stats = backend.memory_stats()
    if stats:
        return {"peak_memory_bytes": stats["peak_bytes"], "peak_memory_kind": stats["kind"]}
    return {"peak_memory_bytes": machine.peak_rss_bytes(), "peak_memory_kind": "host-rss"}


def device_time(backend: Any, run: Callable[[], Any], scratch: Path) -> dict[str, Any]:
    """The time a step in which at least one op ran, from a trace of its own."""
    try:
        from tpubench.trace.summary import summarize

        summary = summarize(backend.trace(scratch, "device-time", _TRACED, run))
    except Exception as error:
        # The wall-clock times stand without it.
        traceback.print_exc()
        return {"device_s_reason": f"no trace: {type(error).__name__}: {one_line(error)}"}
    plane = next((p for p in summary.planes if p.is_device), summary.planes[0])
    what = "" if plane.is_device else ", whose threads run the ops"
    return {
        "device_s": plane.busy_ns / 1e9 / summary.steps,
        "device_s_reason": f"mean of {summary.steps} traced steps: when an op ran on {plane.name}{what}",
    }


def flops(workload: Any, spec: Spec, fields: dict[str, Any]) -> None:
    """Model FLOPs, counted and by formula. Where they disagree no MFU will be given."""
    from tpubench.flops import count, disagreement
    from tpubench.step import build_on_meta

    try:
        counted = count(build_on_meta(workload, spec), spec.phase, spec.batch, spec.seq_len, spec.seed)
        fields |= {
            "parameter_count": counted.parameters,
            "parameter_bytes": counted.parameter_bytes,
            "activation_bytes": counted.activation_bytes,
        }
        analytic = float(workload.flops(spec.size, spec.phase, spec.batch, spec.seq_len))
    except Exception as error:
        # A step that reads values cannot run on meta tensors: the measurement stands without its FLOPs.
        traceback.print_exc()
        what = "the formula of the FLOPs fails" if "parameter_bytes" in fields else "the FLOPs cannot be counted"
        fields["mfu_reason"] = f"{what}: {type(error).__name__}: {one_line(error)}"
        fields["warnings"].append(fields["mfu_reason"])
        return
    fields |= {
        "model_flops": counted.total,
        "analytic_flops": analytic,
        "flops_convention": workload.flops_convention,
    }
    apart = disagreement(counted.total, analytic)
    if apart > 0.05:
        fields["mfu_reason"] = f"the FLOPs counted op by op and the formula's differ by {apart:.0%}"
        fields["warnings"].append(fields["mfu_reason"])


def traffic(workload: Any, spec: Spec) -> dict[str, Any]:
    """The bytes that a step moves, where the workload's formula says."""
    from tpubench.step import AUTOCAST, torch_dtype
    from workloads.protocol import Moving

    if not isinstance(workload, Moving) or spec.dtype in AUTOCAST:
        return {}
    itemsize = torch_dtype(spec.dtype).itemsize
    return {"bytes_moved": float(workload.bytes_moved(spec.size, spec.phase, spec.batch, spec.seq_len, itemsize))}
