"""What a person sees while forecasts are made, on standard error: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class ForecastProgress:
    """A line for each of ``total`` forecasts, with what it is at."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._place = ""
        self._task: TaskID | None = None
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=self._console,
            disable=not self._console.is_terminal, transient=True,
        )  # fmt: skip

    def __enter__(self) -> ForecastProgress:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def start(self, label: str) -> None:
        """The forecast called ``label`` begins."""
        self._place = f"[{self._done + 1}/{self._total}] {label}"
        self._began = time.monotonic()
        if self._console.is_terminal:
            self._task = self._progress.add_task(self._place, total=None)
        else:
            self._console.print(f"{self._place} ...", soft_wrap=True, markup=False)

    def at(self, what: str) -> None:
        """It is at ``what`` now."""
        if self._task is not None:
            self._progress.update(self._task, description=f"{self._place} {what}")

    def end(self, status: str, reason: str | None) -> None:
        """It has ended."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        why = f": {reason}" if reason else ""
        seconds = time.monotonic() - self._began
        self._console.print(f"{self._place} {status} in {seconds:.0f} s{why}", soft_wrap=True, markup=False)
        self._done += 1
