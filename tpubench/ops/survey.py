"""The rows of a whole database: a worker that dies or hangs costs the entry it was at, and no other."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tpubench.errors import WorkerFailed
from tpubench.ops.coverage import Outcome, Row

#: Seconds that a worker may take before its first entry.
_START = 600.0
#: What whoever asked is told after every row: rows so far, and of how many.
OnRow = Callable[[Row, int, int], None]


def survey(
    backend: str, device: str, dtype: str, patterns: Sequence[str], samples: int, timeout: float,
    on_row: OnRow = lambda row, done, total: None,
) -> list[Row]:  # fmt: skip
    """A row an entry that has ``dtype`` and matches one of ``patterns``; ``timeout`` seconds an entry.

    Raises:
        WorkerFailed: the worker cannot begin.
    """
    rows: list[Row] = []
    while True:
        request = {
            "backend": backend, "device": device, "dtype": dtype, "patterns": list(patterns), "samples": samples,
            "skip": [r.op for r in rows],
        }  # fmt: skip
        started, why = _one_worker(request, timeout, rows, on_row)
        if why is None:
            return rows
        if started is None:
            raise WorkerFailed(f"tpubench ops on {backend}", why)
        row = Row(started, dtype).ended(Outcome.TIMEOUT if why == "timeout" else Outcome.CRASHED, why)
        if why == "timeout":
            row.detail = f"not done after {timeout:.0f} s"
        rows.append(row)
        on_row(row, len(rows), 0)


def _one_worker(
    request: dict[str, Any], timeout: float, rows: list[Row], on_row: OnRow
) -> tuple[str | None, str | None]:
    """``(entry it was at, why it ended there)``; ``why`` is None where it came to the end."""
    from backend import registry

    with tempfile.TemporaryDirectory(prefix="tpubench-") as scratch:
        environment = registry.load(request["backend"]).environment(request["device"], "eager", "off", Path(scratch))
        with (Path(scratch) / "output").open("w+b") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tpubench.ops.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True,
                env=os.environ | environment, start_new_session=True,
            )  # fmt: skip
            try:
                ended = _followed(process, request, timeout, rows, on_row)
                if ended[1] == "died":
                    output.seek(0)
                    last = output.read().decode(errors="replace").strip().splitlines()[-1:]
                    ended = ended[0], f"exit code {process.wait()}" + (f": {last[0][:200]}" if last else "")
                return ended
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                for stream in (process.stdin, process.stdout):
                    with contextlib.suppress(OSError):
                        stream.close()  # type: ignore[union-attr]


def _followed(
    process: subprocess.Popen[str], request: dict[str, Any], timeout: float, rows: list[Row], on_row: OnRow
) -> tuple[str | None, str | None]:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        with contextlib.suppress(ValueError):
            for line in process.stdout or ():
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    started, total = None, 0
    while True:
        try:
            # Importing torch, jax and the database is no op's time.
            line = lines.get(timeout=timeout if started else max(timeout, _START))
        except queue.Empty:
            return started, "timeout"
        if line is None:
            return started, "died"
        event = json.loads(line)
        if "error" in event:
            return None, str(event["error"])
        if "end" in event:
            return started, None
        total = event.get("total", total)
        started = event.get("start", started)
        if "row" in event:
            rows.append(Row(**event["row"]))
            on_row(rows[-1], len(rows), total)
