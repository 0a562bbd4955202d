"""A worker process as whoever asks it sees it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tpubench.conditions import TRACE_FD_VARIABLE, TRACE_VARIABLE, Conditions
from tpubench.interpreter import start_of
from tpubench.spec import Spec

Event = dict[str, Any]
OnEvent = Callable[[Event], None]

#: Events that end a request.
_FINAL = ("record", "primed", "trace", "error")
#: Lines of a dead worker's output that its row keeps.
_TAIL = 20
#: Seconds between two looks at whether a silent worker has ended.
_LOOK = 0.5


def _our_stderr() -> int | None:
    """A descriptor of our standard error for a worker to inherit: its own goes into a file."""
    try:
        return os.dup(2)
    except OSError:
        return None  # closed


class Worker:
    """A worker process: its own group, its own scratch folder, its output kept apart from its events.

    Its compile caches lie in ``caches``, or, where that is None, in the scratch folder, which is empty.
    """

    def __init__(self, spec: Spec, request: dict[str, Any], conditions: Conditions, caches: Path | None = None) -> None:
        from backend import registry

        self._scratch = Path(tempfile.mkdtemp(prefix="tpubench-"))
        try:
            backend = registry.load(spec.backend)
            environment = backend.environment(spec.device, spec.mode, spec.cache, caches or self._scratch)
            environment |= conditions.environment(spec)
            (self._scratch / "packages").mkdir()
            python, path = start_of(conditions.pythons.get(spec.backend), self._scratch / "packages")
            environment |= path
            ours = _our_stderr() if TRACE_VARIABLE in os.environ else None
            if ours is not None:
                environment[TRACE_FD_VARIABLE] = str(ours)
            self._output: IO[bytes] = (self._scratch / "output").open("w+b")
            self._process = subprocess.Popen(
                # -P: a folder of the user's called "workloads" must not stand for ours.
                [python, "-P", "-m", "tpubench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output,
                text=True,
                env=os.environ | environment,
                start_new_session=True,
                pass_fds=() if ours is None else (ours,),
            )
            if ours is not None:
                os.close(ours)
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({**request, "cache_dir": str(self._scratch)}) + "\n")
            self._process.stdin.flush()

    def __enter__(self) -> Worker:
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
            if event["event"] in _FINAL:
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
