"""Cells, one after the other, each in a worker process of its own. Whatever a cell does becomes a row."""

from __future__ import annotations

import datetime
import functools
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tpubench import machine
from tpubench.accounting import Assumptions, account
from tpubench.conditions import Conditions
from tpubench.errors import WorkerFailed
from tpubench.failure import one_line
from tpubench.interpreter import offer
from tpubench.process import Event, OnEvent, Worker
from tpubench.record import Record, Status
from tpubench.spec import Spec
from tpubench.store import write
from tpubench.sweep import DIED

#: As a run is, where nothing is said of it.
_PLAIN = Conditions()
#: What an ``error`` event says.
_FAILED = ("status", "reason", "error_class")


def now() -> str:
    """ISO 8601, UTC, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unsupported(spec: Spec, conditions: Conditions = _PLAIN) -> str | None:
    """Why the backend of ``spec`` cannot do it here, as far as it is known without starting a worker."""
    offered = offer(spec.backend, conditions.pythons.get(spec.backend))
    return offered.reason(spec.mode, spec.device, spec.backend)


def run_cell(
    spec: Spec, *, timeout: float, on_event: OnEvent = lambda event: None, conditions: Conditions = _PLAIN
) -> Record:
    """Run one cell; never raises for what the cell does.

    A warm cell whose caches turn out not to be filled is run twice, and the second run is the row.

    A cell that outlives ``timeout`` seconds is killed, and its row says so. A worker that ends after its timed
    steps and before its answer leaves a row with the samples.
    """
    created = now()
    run_id = f"{created.translate(str.maketrans('', '', ':-.'))}-{spec.fingerprint}"
    measured: dict[str, Any] = {}

    def row(status: Status | str, **fields: Any) -> Record:
        known = {**machine.describe(), **measured, **fields}
        if measured and "reason" in fields:
            known["reason"] += "; the timed steps were done before, their samples are kept"
        return Record.of(spec, run_id=run_id, created=created, status=Status(status), **known)

    def watch(event: Event) -> None:
        if event["event"] == "measured":
            measured.update(event["fields"])
        else:
            on_event(event)

    reason = unsupported(spec, conditions)
    if reason is not None:
        return row(Status.UNSUPPORTED, reason=reason)
    with conditions.caches(spec) as caches:
        fields = _attempt(spec, timeout, watch, conditions, caches, primes=spec.cache == "warm")
        if fields is None:
            fields = _attempt(spec, timeout, watch, conditions, caches, primes=False)
        assert fields is not None, "only a worker that may prime says that it did"
        if "step_s" in fields:
            measured.clear()  # the answer holds it
        return row(**fields)


def _attempt(
    spec: Spec, timeout: float, watch: OnEvent, conditions: Conditions, caches: Path | None, *, primes: bool
) -> dict[str, Any] | None:
    """What the row of one worker says; None: it was one that ``primes``, and filled the caches instead."""
    try:
        worker = Worker(spec, {"run": spec.to_dict(), "primes": primes}, conditions, caches)
    except Exception as error:
        # A plug-in's environment, or a system that starts no more processes.
        reason = f"no worker could be started: {one_line(error)}"
        return {"status": Status.ERROR, "reason": reason, "error_class": type(error).__name__}
    with worker:
        try:
            final = worker.wait(timeout, watch)
        except TimeoutError:
            worker.kill()
            reason = f"no result after {timeout:g} s: raise --timeout, or take a smaller --size or --batch"
            return {"status": Status.TIMEOUT, "reason": reason, "error_output": worker.tail()}
        if final is None:
            return _death(worker.returncode(), worker.tail())
        if final["event"] == "primed":
            return None
        fields: dict[str, Any] = final["fields"] if final["event"] == "record" else {k: final[k] for k in _FAILED}
        if "error_class" in fields:
            fields["error_output"] = worker.tail()
        return fields


def _death(code: int, tail: str) -> dict[str, Any]:
    """The row of a worker that ended without an answer."""
    fields: dict[str, Any] = {"status": Status.ERROR, "error_class": DIED, "error_output": tail}
    if code < 0:
        name = _signal_name(-code)
        hint = " (often the kernel, out of memory)" if -code == signal.SIGKILL else ""
        return {**fields, "exit_signal": -code, "reason": f"the worker was ended by {name}{hint}"}
    return {**fields, "reason": f"the worker ended with exit code {code} and no result"}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal between the two that have names


def run_cells(
    specs: Iterable[Spec],
    directory: Path,
    *,
    timeout: float,
    given: Assumptions,
    on_event: Callable[[Spec, Event], None] = lambda spec, event: None,
    conditions: Conditions = _PLAIN,
) -> Iterator[tuple[Record, Path]]:
    """Run cells in order; each row is on disk, and has been given out, before the next cell is asked for.

    Raises:
        UnwritableDirectory: a row cannot be written.
    """
    for spec in specs:
        on_event(spec, {"event": "start"})
        watch = functools.partial(on_event, spec)
        record = run_cell(spec, timeout=timeout, on_event=watch, conditions=conditions)
        record = account(record, given)
        path = write(record, directory)
        on_event(spec, {"event": "end", "status": record.status, "reason": record.reason})
        yield record, path


def capture(
    spec: Spec,
    directory: Path,
    run_name: str,
    steps: int,
    *,
    timeout: float,
    on_event: OnEvent,
    conditions: Conditions = _PLAIN,
) -> Path:
    """Trace ``steps`` steps of a cell; returns the ``.xplane.pb`` that its worker wrote.

    Raises:
        WorkerFailed: there is none, and why.
    """
    reason = unsupported(spec, conditions)
    if reason is not None:
        raise WorkerFailed(f"cannot trace {spec.label}: {reason}", "see `tpubench list`")
    request = {
        "trace": spec.to_dict(),
        "directory": str(directory.resolve()),
        "run_name": run_name,
        "steps": steps,
    }
    try:
        worker = Worker(spec, request, conditions)
    except Exception as error:
        raise WorkerFailed(f"no trace of {spec.label}", f"no worker could be started: {one_line(error)}") from error
    with worker:
        try:
            final = worker.wait(timeout, on_event)
        except TimeoutError:
            worker.kill()
            raise WorkerFailed(f"no trace of {spec.label} after {timeout:g} s", "raise --timeout") from None
        if final is not None and final["event"] == "trace":
            return directory / Path(final["path"]).relative_to(directory.resolve())
        failed = final or _death(worker.returncode(), worker.tail())
        raise WorkerFailed(f"no trace of {spec.label}", str(failed["reason"]))
