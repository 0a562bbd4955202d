"""A process that answers requests, JSON a line each way, as whoever asks sees it. It may die of any of them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

#: Lines of a dead process's output that are kept.
_TAIL = 20
#: Characters of its last words.
_WORDS = 300


class Died(Exception):
    """It ended without an answer. ``why`` is one line; ``signal`` the signal's number where one ended it."""

    def __init__(self, why: str, signal: int | None, tail: str) -> None:
        super().__init__(why)
        self.why = why
        self.signal = signal
        self.tail = tail


class Child:
    """A process of ``command`` in a group of its own; what it prints beside its answers is kept apart."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._output = tempfile.TemporaryFile("w+b")  # noqa: SIM115  (closed with the child)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._output, text=True,
            env={**os.environ, **environment}, start_new_session=True,
        )  # fmt: skip
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed while reading
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        self._output.close()

    def send(self, request: Mapping[str, Any]) -> None:
        """Ask for something; an input that is closed shows in the next :meth:`receive`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next answer.

        Raises:
            TimeoutError: there is none when ``time.monotonic()`` is ``deadline``.
            Died: the process ended first.
        """
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError from None
            if line is None:
                raise self._death()
            try:
                answer: dict[str, Any] = json.loads(line)
            except ValueError:
                continue  # the last line of a process killed while writing it
            return answer

    def _death(self) -> Died:
        code = self._process.wait()
        self._output.seek(0)
        printed = self._output.read().decode(errors="replace")
        tail = "\n".join(printed.splitlines()[-_TAIL:])
        if code >= 0:
            return Died(f"ended with exit code {code}", None, tail)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (often the kernel, out of memory)" if -code == signal.SIGKILL else ""
        # What a failed check of Google's logging library says: the line with an F.
        fatal = re.search(r"^F\d{4} [^\]]*\] (.*)$", printed, re.MULTILINE)
        why = f": {fatal[1][:_WORDS]}" if fatal else hint
        return Died(f"was ended by {name}{why}", -code, tail)
