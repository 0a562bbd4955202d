"""One cell in one fresh process: a request comes in as JSON, events go out as JSON, one a line.

Started as ``python -P -m tpubench.worker`` under any interpreter that has numpy, torch or jax, and
these packages on its path: nothing else is imported, but protobuf where a trace is read. The request
is one line on standard input, which stays open: when it closes, whoever asked is gone, and the
process group ends itself.

    {"run": SPEC, "cache_dir": DIR, "primes": BOOL}        -> phase, step, ..., measured, ..., record | primed
    {"trace": SPEC, "cache_dir": DIR, "directory": DIR,
     "run_name": NAME, "steps": N}                         -> phase, step, ..., trace

Every request ends with one ``record``, ``primed``, ``trace`` or ``error`` event. ``primed`` comes of a worker
that ``primes``: it found its caches on disk wanting, filled them in its warm-up, and measured nothing.
``measured`` holds what the record will, as far as the timed steps go: it is what is left if the process dies in
what follows.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tpubench import __version__, facts, machine
from tpubench.failure import failure, one_line, plain
from tpubench.record import Status
from tpubench.spec import Spec

Emit = Callable[[dict[str, Any]], None]


def main() -> None:
    """Serve one request and leave, past every runtime's teardown."""
    channel = _claim_stdout()

    def emit(event: dict[str, Any]) -> None:
        channel.write(json.dumps(event, default=plain) + "\n")
        channel.flush()

    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_the_asker, daemon=True).start()
    _have_the_kernel_end_us()
    emit({"event": "hello", "pid": os.getpid(), "version": __version__, "python": sys.version.split()[0]})
    try:
        if "trace" in request:
            emit({"event": "trace", "path": str(_trace(request, emit))})
        else:
            scratch = Path(request["cache_dir"])
            fields = _run(Spec.from_dict(request["run"]), scratch, emit, primes=request.get("primes", False))
            emit({"event": "primed"} if fields is None else {"event": "record", "fields": fields})
    except BaseException as error:
        traceback.print_exc()
        emit({"event": "error", **failure(error)})
    channel.flush()
    with contextlib.suppress(OSError, ValueError):  # a step may have closed it
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
    if _leads_its_group():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _leads_its_group() -> bool:
    """False where somebody started the worker by hand, in the group of a shell."""
    return os.getpgrp() == os.getpid()


def _have_the_kernel_end_us() -> None:
    """On Linux, have the kernel end the group when standard input closes (fcntl(2): O_ASYNC, F_SETSIG).

    The thread that waits for the same cannot act while a step holds the interpreter's lock, or while the process
    is stopped. It stays for other systems, and for an input that was closed already.
    """
    import fcntl

    # Of a terminal, what is typed would send the signal too.
    if not hasattr(fcntl, "F_SETSIG") or not stat.S_ISFIFO(os.fstat(0).st_mode):
        return
    fcntl.fcntl(0, fcntl.F_SETOWN, -os.getpgrp() if _leads_its_group() else os.getpid())
    fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)


def _open(spec: Spec, emit: Emit) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """``(workload, backend, step, run, counters)``: everything up to the first step, and what it has cost."""
    from backend import registry as backends
    from tpubench.step import build, place
    from workloads import registry as workloads

    emit({"event": "phase", "name": "build"})
    workload = workloads.load(spec.workload)
    backend = backends.load(spec.backend)
    device = backend.open(spec.device, spec.mode, cpu_fallback=spec.cpu_fallback)
    step = place(build(workload, spec), spec, device)
    backend.synchronize((step.resident, step.live()))
    run = backend.prepare(step, spec.mode)
    return workload, backend, step, run, facts.so_far(backend)


def _run(spec: Spec, scratch: Path, emit: Emit, *, primes: bool) -> dict[str, Any] | None:
    """The record's fields; None: a worker that ``primes`` found that there was something to fill."""
    from tpubench.check import MISMATCHED
    from tpubench.measure import Samples, time_steps, warm_up

    workload, backend, step, run, before = _open(spec, emit)
    samples = Samples()
    try:
        emit({"event": "phase", "name": "warmup"})
        warm_up(backend, run, step.live, spec, _notify(emit, backend), samples)
        if primes and backend.cache_stats().get("disk_misses"):
            return None
        emit({"event": "phase", "name": "timed"})
        time_steps(backend, run, step.live, spec, samples)
    except BaseException as error:
        # The steps before the one that failed are part of what happened.
        traceback.print_exc()
        return {**failure(error), **samples.fields()}
    fields = _measured(workload, backend, spec, samples, before)
    emit({"event": "measured", "fields": fields})
    emit({"event": "phase", "name": "device time"})
    fields |= facts.device_time(backend, run, scratch)
    emit({"event": "phase", "name": "count"})
    facts.flops(workload, spec, fields)
    emit({"event": "phase", "name": "check"})
    fields |= _checked(workload, spec, samples)
    fields["status"] = str(Status.OK)
    if samples.compiled_in_timed:
        fields["status"] = str(Status.RECOMPILED)
        fields["reason"] = (
            f"{samples.compiled_in_timed} programs were compiled or loaded in the {spec.steps} timed steps: "
            "a value or shape changes from step to step"
        )
    elif fields["correctness"] == MISMATCHED:
        fields["status"] = str(Status.MISMATCHED)
        fields["reason"] = fields["correctness_detail"]
    return fields


def _measured(workload: Any, backend: Any, spec: Spec, samples: Any, before: dict[str, Any]) -> dict[str, Any]:
    """The samples and what goes with them, taken before anything else runs in this process."""
    fields: dict[str, Any] = {"warnings": [], **samples.fields(), **machine.describe(), "tpubench_version": __version__}
    facts.add(fields, "peak memory", lambda: facts.memory(backend))
    facts.of_backend(backend, fields, before)
    fields["warnings"] += facts.doubts(spec, fields)
    facts.add(
        fields,
        "throughput",
        lambda: {
            "item": workload.item,
            "items_per_step": float(workload.items(spec.size, spec.phase, spec.batch, spec.seq_len)),
        },
    )
    facts.add(fields, "bytes moved", lambda: facts.traffic(workload, spec))
    return fields


def _checked(workload: Any, spec: Spec, samples: Any) -> dict[str, Any]:
    """The verdict on the first step; a reference that fails leaves the run unchecked, not unmeasured."""
    from tpubench.check import NOT_CHECKED, check

    try:
        verdict = check(workload, spec, samples.losses, samples.first_output)
    except Exception as error:
        traceback.print_exc()
        detail = f"plain PyTorch on the CPU failed: {type(error).__name__}: {one_line(error)}"
        return {"correctness": NOT_CHECKED, "correctness_detail": detail}
    return {
        "correctness": verdict.correctness,
        "correctness_detail": verdict.detail,
        "reference_losses": verdict.reference_losses,
    }


def _notify(emit: Emit, backend: Any) -> Callable[[str, int, float], None]:
    def notify(phase: str, index: int, seconds: float) -> None:
        emit({"event": "step", "phase": phase, "i": index, "s": seconds, "compiles": backend.compile_count()})

    return notify


def _trace(request: dict[str, Any], emit: Emit) -> Path:
    from tpubench.measure import Samples, warm_up

    spec = Spec.from_dict(request["trace"])
    _, backend, step, run, _ = _open(spec, emit)

    emit({"event": "phase", "name": "warmup"})
    warm_up(backend, run, step.live, spec, _notify(emit, backend), Samples())
    emit({"event": "phase", "name": "capture"})
    path: Path = backend.trace(Path(request["directory"]), request["run_name"], request["steps"], run)
    return path


if __name__ == "__main__":
    main()
