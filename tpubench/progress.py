"""What a person sees while cells run: one line a cell, on standard error."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tpubench.conditions import TRACE_VARIABLE
from tpubench.spec import Spec
from tpubench.sweep import Sweep


class CellProgress:
    """Follows the events of a sweep: a live line on a terminal, plain lines elsewhere."""

    def __init__(self, sweep: Sweep) -> None:
        self._console = Console(stderr=True, highlight=False)
        # A line that is redrawn and lines that come between do not mix.
        self._live = self._console.is_terminal and not os.environ.get(TRACE_VARIABLE)
        self._sweep = sweep
        self._done = 0
        self._began = time.monotonic()
        self._task: TaskID | None = None
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._live,
            transient=True,
        )

    def __enter__(self) -> CellProgress:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def __call__(self, spec: Spec, event: dict[str, Any]) -> None:
        """Take one event of the cell ``spec``."""
        name = event["event"]
        place = f"[{self._done + 1}/{self._done + self._sweep.left}] {self._sweep.name(spec)}"
        if name == "start":
            self._began = time.monotonic()
            if self._live:
                self._task = self._progress.add_task(f"{place} starting", total=None)
            else:
                self._console.print(f"{place} ...", soft_wrap=True, markup=False)
        elif name == "phase":
            self._describe(f"{place} {event['name']}")
        elif name == "step":
            compiled = f", {event['compiles']} compiled" if event["compiles"] else ""
            self._describe(f"{place} {event['phase']} step {event['i'] + 1}, {event['s']:.3g} s{compiled}")
        elif name == "end":
            if self._task is not None:
                self._progress.remove_task(self._task)
                self._task = None
            seconds = time.monotonic() - self._began
            why = f": {event['reason']}" if event["reason"] else ""
            self._console.print(f"{place} {event['status']} in {seconds:.0f} s{why}", soft_wrap=True, markup=False)
            self._done += 1

    def _describe(self, text: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=text)
