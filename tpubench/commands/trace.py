"""``tpubench trace``: capture a profile, or open one, check it, sum it up, show it."""

from __future__ import annotations

import dataclasses
import datetime
import os
import sys
from pathlib import Path

import typer

from tpubench.cells import Asked, cells
from tpubench.conditions import Conditions
from tpubench.errors import BadValue, UnknownName
from tpubench.spec import Spec
from tpubench.trace import report
from tpubench.trace.logdir import CapturedRun, runs


@dataclasses.dataclass(frozen=True, slots=True)
class Capture:
    """What to capture, into which log directory; nothing: show what is there."""

    asked: Asked | None
    directory: Path
    steps: int
    timeout: float
    conditions: Conditions


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """How to show it."""

    fmt: str
    top: int
    serve: bool
    open_browser: bool
    port: int


def trace(capture: Capture, view: View) -> int:
    """Capture if asked to, print the summary, serve TensorBoard until Ctrl-C; returns the exit code."""
    from tpubench.trace.summary import summarize

    _ensure_format(view)
    if capture.asked is not None:
        run = _capture(capture, capture.asked)
    else:
        run = runs(capture.directory)[-1]
    summary = summarize(run.path)
    typer.echo(report.render(summary, view.fmt, view.top), nl=False)
    _say(f"trace: {run.path} ({summary.size_bytes / 2**20:.1f} MiB, {summary.steps} steps)")
    if view.serve:
        return _serve(capture.directory, run, view)
    _say(f"show it: tpubench trace --dir '{capture.directory}'")
    return 0


def open_trace(path: Path, view: View) -> int:
    """Print the summary of a trace made anywhere, serve TensorBoard until Ctrl-C; returns the exit code."""
    from tpubench.trace.source import locate, planes_of, shown
    from tpubench.trace.summary import summed

    _ensure_format(view)
    source = locate(path)
    summary = summed(source.path, planes_of(source.path))
    typer.echo(report.render(summary, view.fmt, view.top), nl=False)
    _say(f"trace: {source.path} ({summary.size_bytes / 2**20:.1f} MiB, {summary.steps} steps)")
    if not view.serve:
        return 0
    with shown(source) as (directory, run):
        return _serve(directory, run, view)


def _ensure_format(view: View) -> None:
    if view.fmt not in report.FORMATS:
        raise UnknownName("format", view.fmt, report.FORMATS)


def _say(text: str) -> None:
    """What is about the run and not its result goes to standard error."""
    typer.echo(text, err=True)


def _capture(capture: Capture, asked: Asked) -> CapturedRun:
    from tpubench.progress import CellProgress
    from tpubench.runner import capture as run_capture
    from tpubench.store import ensure_writable
    from tpubench.sweep import Sweep

    specs = cells(asked)
    if len(specs) != 1:
        raise BadValue("trace", f"{len(specs)} cells", "give one mode, backend, size, dtype, phase and batch")
    spec = specs[0]
    ensure_writable(capture.directory)
    name = run_name(spec)
    with CellProgress(Sweep(specs)) as progress:
        progress(spec, {"event": "start"})
        path = run_capture(
            spec,
            capture.directory,
            name,
            capture.steps,
            timeout=capture.timeout,
            on_event=lambda event: progress(spec, event),
            conditions=capture.conditions,
        )
        progress(spec, {"event": "end", "status": "captured", "reason": None})
    return CapturedRun(name, path.name.removesuffix(".xplane.pb"), path)


def run_name(spec: Spec) -> str:
    """A name that no earlier capture has: xprof keeps what it read under a name for good."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S%f")[:-3]
    return f"{spec.workload}-{spec.size}-{spec.phase}_{spec.backend}-{spec.mode}_{now}"


def _serve(directory: Path, run: CapturedRun, view: View) -> int:
    import signal
    import webbrowser

    from tpubench.trace.server import TensorBoard

    # A stop by SIGTERM ends TensorBoard as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with TensorBoard(directory, view.port) as board:
            link = board.link(run)
            _say(f"TensorBoard: {board.url} (Ctrl-C ends it)")
            _say(f"trace viewer: {link}")
            if view.open_browser and _has_display():
                webbrowser.open(link)
            board.wait()
    except KeyboardInterrupt:
        _say("")
    return 0


def _has_display() -> bool:
    """Whether a browser would have somewhere to open: over ssh it would hang in the terminal."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
