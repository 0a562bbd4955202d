"""One cell in one fresh process: a request comes in as JSON, events go out as JSON, one a line.

Started as ``python -P -m tpubench.worker`` under any interpreter that has numpy, torch or jax, and
these packages on its path: nothing else is imported. The request is one line on standard input,
which stays open: when it closes, whoever asked is gone, and the process group ends itself.

    {"run": SPEC, "cache_dir": DIR}                        -> phase, step, ..., record
    {"trace": SPEC, "cache_dir": DIR, "directory": DIR,
     "run_name": NAME, "steps": N}                         -> phase, step, ..., trace

Every request ends with one ``record``, ``trace`` or ``error`` event.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tpubench import __version__, machine
from tpubench.record import Status
from tpubench.spec import Spec

Emit = Callable[[dict[str, Any]], None]


def main() -> None:
    """Serve one request and leave, past every runtime's teardown."""
    channel = _claim_stdout()

    def emit(event: dict[str, Any]) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_the_asker, daemon=True).start()
    emit({"event": "hello", "pid": os.getpid(), "version": __version__, "python": sys.version.split()[0]})
    try:
        if "trace" in request:
            emit({"event": "trace", "path": str(_trace(request, emit))})
        else:
            scratch = Path(request["cache_dir"])
            emit({"event": "record", "fields": _run(Spec.from_dict(request["run"]), scratch, emit)})
    except BaseException as error:
        traceback.print_exc()
        emit({"event": "error", **failure(error)})
    channel.flush()
    sys.stderr.flush()
    os._exit(0)


def _claim_stdout() -> TextIO:
    """The channel for events; whatever else prints to standard output goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def _leave_with_the_asker() -> None:
    while sys.stdin.readline():
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory", "OutOfMemory", "can't allocate memory")


def failure(error: BaseException) -> dict[str, Any]:
    """``status, reason, error_class`` of what a cell raised."""
    from backend.protocol import Unsupported

    # torch.compile wraps what its backend raises.
    cause = getattr(error, "inner_exception", None) or error
    text = " ".join(str(cause).split()) or type(cause).__name__
    status = Status.ERROR
    if isinstance(cause, Unsupported):
        status = Status.UNSUPPORTED
    elif isinstance(cause, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY):
        status = Status.OOM
    return {"status": str(status), "reason": text[:2000], "error_class": type(cause).__name__}


def _open(spec: Spec, emit: Emit) -> tuple[Any, Any, Any, Any]:
    """``(workload, backend, step, run)``: everything up to the first step."""
    from backend import registry as backends
    from tpubench.step import build, place
    from workloads import registry as workloads

    emit({"event": "phase", "name": "build"})
    workload = workloads.load(spec.workload)
    backend = backends.load(spec.backend)
    device = backend.open(spec.device, spec.mode, cpu_fallback=spec.cpu_fallback)
    step = place(build(workload, spec), spec, device)
    return workload, backend, step, backend.prepare(step, spec.mode)


def _run(spec: Spec, scratch: Path, emit: Emit) -> dict[str, Any]:
    from tpubench.check import MISMATCHED, check
    from tpubench.measure import LOSSES, measure

    workload, backend, step, run = _open(spec, emit)

    def notify(phase: str, index: int, seconds: float) -> None:
        emit({"event": "step", "phase": phase, "i": index, "s": seconds, "compiles": backend.compile_count()})

    emit({"event": "phase", "name": "measure"})
    samples = measure(backend, run, step.live, spec, notify)
    fields: dict[str, Any] = {
        "status": str(Status.OK),
        "warmup_s": samples.warmup_s,
        "step_s": samples.step_s,
        "dispatch_s": samples.dispatch_s,
        "losses": samples.losses[:LOSSES],
        "launches_per_step": samples.launches_per_step,
        "item": workload.item,
        "items_per_step": float(workload.items(spec.size, spec.phase, spec.batch, spec.seq_len)),
        "warnings": [],
        **_of_backend(backend),
        **_memory(backend),
        **machine.describe(),
        "tpubench_version": __version__,
    }
    emit({"event": "phase", "name": "device time"})
    fields |= _device_time(backend, run, scratch)
    emit({"event": "phase", "name": "count"})
    _count(workload, spec, fields)
    emit({"event": "phase", "name": "check"})
    verdict = check(workload, spec, samples.losses, samples.first_output)
    fields |= {
        "correctness": verdict.correctness,
        "correctness_detail": verdict.detail,
        "reference_losses": verdict.reference_losses,
    }
    if samples.compiled_in_timed:
        fields["status"] = str(Status.RECOMPILED)
        fields["reason"] = (
            f"{samples.compiled_in_timed} programs were compiled in the {spec.steps} timed steps: "
            "a value or shape changes from step to step"
        )
    elif verdict.correctness == MISMATCHED:
        fields["status"] = str(Status.MISMATCHED)
        fields["reason"] = verdict.detail
    return fields


def _of_backend(backend: Any) -> dict[str, Any]:
    """The backend's counters and description under the Record's names."""
    stats = backend.cache_stats()
    counters = dict(backend.counters())
    counters.pop("launches", None)
    return {
        "compile_requests": stats["requests"],
        "compile_hits": stats["hits"],
        "compile_misses": stats["misses"],
        "compile_s": stats["compile_s"],
        "disk_requests": stats["disk_requests"],
        "disk_hits": stats["disk_hits"],
        "disk_misses": stats["disk_misses"],
        **counters,
        **backend.describe(),
    }


def _memory(backend: Any) -> dict[str, Any]:
    """The peak so far: the device's, or the whole process's resident memory."""
    stats = backend.memory_stats()
    if stats:
        return {"peak_memory_bytes": stats["peak_bytes"], "peak_memory_kind": stats["kind"]}
    return {"peak_memory_bytes": machine.peak_rss_bytes(), "peak_memory_kind": "host-rss"}


#: Steps of the short trace from which the device time is taken, after the timed ones.
_TRACED = 3


def _device_time(backend: Any, run: Callable[[], Any], scratch: Path) -> dict[str, Any]:
    """The time a step in which at least one op ran, from a trace of its own."""
    try:
        from tpubench.trace.summary import summarize

        summary = summarize(backend.trace(scratch, "device-time", _TRACED, run))
    except Exception as error:
        # The wall-clock times stand without it.
        traceback.print_exc()
        return {"device_s_reason": f"no trace: {type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    plane = next((p for p in summary.planes if p.is_device), summary.planes[0])
    what = "" if plane.is_device else ", whose threads run the ops"
    return {
        "device_s": plane.busy_ns / 1e9 / summary.steps,
        "device_s_reason": f"mean of {summary.steps} traced steps: when an op ran on {plane.name}{what}",
    }


def _count(workload: Any, spec: Spec, fields: dict[str, Any]) -> None:
    """Model FLOPs, counted and by formula. Where they disagree no MFU will be given."""
    from tpubench.flops import count, disagreement
    from tpubench.step import build

    try:
        counted = count(build(workload, spec), spec.phase, spec.batch, spec.seq_len, spec.seed)
    except Exception as error:
        # A step that reads values cannot run on meta tensors: the measurement stands without its FLOPs.
        traceback.print_exc()
        fields["mfu_reason"] = (
            f"the FLOPs cannot be counted: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        )
        fields["warnings"].append(fields["mfu_reason"])
        return
    analytic = float(workload.flops(spec.size, spec.phase, spec.batch, spec.seq_len))
    fields |= {
        "model_flops": counted.total,
        "analytic_flops": analytic,
        "flops_convention": workload.flops_convention,
        "parameter_bytes": counted.parameter_bytes,
    }
    apart = disagreement(counted.total, analytic)
    if apart > 0.05:
        fields["mfu_reason"] = f"the FLOPs counted op by op and the formula's differ by {apart:.0%}"
        fields["warnings"].append(fields["mfu_reason"])


def _trace(request: dict[str, Any], emit: Emit) -> Path:
    from tpubench.measure import Samples, warm_up

    spec = Spec.from_dict(request["trace"])
    _, backend, step, run = _open(spec, emit)

    def notify(phase: str, index: int, seconds: float) -> None:
        emit({"event": "step", "phase": phase, "i": index, "s": seconds, "compiles": backend.compile_count()})

    emit({"event": "phase", "name": "warmup"})
    warm_up(backend, run, step.live, spec, notify, Samples())
    emit({"event": "phase", "name": "capture"})
    path: Path = backend.trace(Path(request["directory"]), request["run_name"], request["steps"], run)
    return path


if __name__ == "__main__":
    main()
