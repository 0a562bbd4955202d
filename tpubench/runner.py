"""Cells, one after the other, each in a worker process of its own. Whatever a cell does becomes a row."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tpubench import machine
from tpubench.accounting import Assumptions, account
from tpubench.errors import WorkerFailed
from tpubench.failure import one_line
from tpubench.record import Record, Status
from tpubench.spec import Spec
from tpubench.store import write

Event = dict[str, Any]
OnEvent = Callable[[Event], None]

#: Lines of a dead worker's output that its row keeps.
_TAIL = 20
#: Seconds between two looks at whether a silent worker has ended.
_LOOK = 0.5
#: What an ``error`` event says.
_FAILED = ("status", "reason", "error_class")


def now() -> str:
    """ISO 8601, UTC, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unsupported(spec: Spec) -> str | None:
    """Why the backend of ``spec`` cannot do it here, as far as it is known without starting anything."""
    from backend import registry

    backend = registry.load(spec.backend)
    for kind, offered, name in (
        ("mode", backend.modes(), spec.mode),
        ("device", backend.devices(), spec.device),
    ):
        if name not in offered:
            return f"{spec.backend} has no {kind} '{name}'"
        if offered[name]:
            return f"{kind} {name}: {offered[name]}"
    if spec.cache == "warm":
        return "cache warm: no backend keeps a cache from run to run yet"
    return None


def run_cell(spec: Spec, *, timeout: float, on_event: OnEvent = lambda event: None) -> Record:
    """Run one cell; never raises for what the cell does.

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

    reason = unsupported(spec)
    if reason is not None:
        return row(Status.UNSUPPORTED, reason=reason)
    try:
        worker = _Worker(spec, {"run": spec.to_dict()})
    except Exception as error:
        # A plug-in's environment, or a system that starts no more processes.
        reason = f"no worker could be started: {one_line(error)}"
        return row(Status.ERROR, reason=reason, error_class=type(error).__name__)
    with worker:
        try:
            final = worker.wait(timeout, watch)
        except TimeoutError:
            worker.kill()
            reason = f"no result after {timeout:g} s: raise --timeout, or take a smaller --size or --batch"
            return row(Status.TIMEOUT, reason=reason, error_output=worker.tail())
        if final is None:
            return row(**_death(worker.returncode(), worker.tail()))
        measured.clear()  # the answer holds it
        fields = final["fields"] if final["event"] == "record" else {k: final[k] for k in _FAILED}
        if "error_class" in fields:
            fields["error_output"] = worker.tail()
        return row(**fields)


def _death(code: int, tail: str) -> dict[str, Any]:
    """The row of a worker that ended without an answer."""
    fields: dict[str, Any] = {"status": Status.ERROR, "error_class": "WorkerDied", "error_output": tail}
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
    specs: Sequence[Spec],
    directory: Path,
    *,
    timeout: float,
    given: Assumptions,
    on_event: Callable[[Spec, Event], None] = lambda spec, event: None,
) -> Iterator[tuple[Record, Path]]:
    """Run cells in order; each row is on disk before the next cell starts.

    Raises:
        UnwritableDirectory: a row cannot be written.
    """
    for spec in specs:
        on_event(spec, {"event": "start"})
        record = run_cell(spec, timeout=timeout, on_event=lambda event, spec=spec: on_event(spec, event))  # type: ignore[misc]
        record = account(record, given)
        path = write(record, directory)
        on_event(spec, {"event": "end", "status": record.status, "reason": record.reason})
        yield record, path


def capture(spec: Spec, directory: Path, run_name: str, steps: int, *, timeout: float, on_event: OnEvent) -> Path:
    """Trace ``steps`` steps of a cell; returns the ``.xplane.pb`` that its worker wrote.

    Raises:
        WorkerFailed: there is none, and why.
    """
    reason = unsupported(spec)
    if reason is not None:
        raise WorkerFailed(f"cannot trace {spec.label}: {reason}", "see `tpubench list`")
    request = {
        "trace": spec.to_dict(),
        "directory": str(directory.resolve()),
        "run_name": run_name,
        "steps": steps,
    }
    try:
        worker = _Worker(spec, request)
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


class _Worker:
    """A worker process: its own group, its own compile caches, its output kept apart from its events."""

    def __init__(self, spec: Spec, request: dict[str, Any]) -> None:
        from backend import registry

        self._scratch = Path(tempfile.mkdtemp(prefix="tpubench-"))
        try:
            environment = registry.load(spec.backend).environment(spec.device, spec.mode, spec.cache, self._scratch)
            self._output: IO[bytes] = (self._scratch / "output").open("w+b")
            self._process = subprocess.Popen(
                # -P: a folder of the user's called "workloads" must not stand for ours.
                [sys.executable, "-P", "-m", "tpubench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output,
                text=True,
                env=os.environ | environment,
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({**request, "cache_dir": str(self._scratch)}) + "\n")
            self._process.stdin.flush()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self._output.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def wait(self, timeout: float, on_event: OnEvent) -> Event | None:
        """The final event, None where the worker died without one.

        Raises:
            TimeoutError: there was none in ``timeout`` seconds.
        """
        lines: queue.Queue[str | None] = queue.Queue()
        stdout = self._process.stdout
        assert stdout is not None

        def read() -> None:
            with contextlib.suppress(ValueError):  # closed while reading
                for line in stdout:
                    lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        deadline = time.monotonic() + timeout
        ended = False
        while True:
            try:
                line = lines.get(timeout=min(_LOOK, max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                if ended:
                    return None
                # A child that it forked may hold the pipe open. What is in the pipe is still read.
                ended = self._process.poll() is not None
                if not ended and time.monotonic() >= deadline:
                    raise TimeoutError from None
                continue
            if line is None:
                return None
            try:
                event: Event = json.loads(line)
            except ValueError:
                continue  # the last line of a worker killed while writing it
            if event["event"] in ("record", "trace", "error"):
                return event
            on_event(event)

    def returncode(self) -> int:
        """The exit code of a worker that has ended, negative for a signal."""
        return self._process.wait()

    def kill(self) -> None:
        """End the worker and everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def tail(self) -> str:
        """The last lines the worker printed."""
        self._output.flush()
        text = (self._scratch / "output").read_text(errors="replace")
        return "\n".join(text.splitlines()[-_TAIL:])
