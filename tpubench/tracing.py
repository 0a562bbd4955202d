"""The commands that capture and read profiles, as the command line has them; each imports what it needs when run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tpubench.options import (
    Batch,
    Debug,
    Device,
    Dtype,
    Fallback,
    Optimizer,
    Phase,
    Python,
    Seed,
    SeqLen,
    Shape,
    SizeName,
    Timeout,
)

Format = Annotated[str, typer.Option("--format", help="Of the summary: table, md, csv or json.")]
Top = Annotated[int, typer.Option("--top", help="Ops to show.", min=1)]
Serve = Annotated[bool, typer.Option("--serve/--no-serve", help="Serve TensorBoard until Ctrl-C.")]
OpenBrowser = Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")]
Port = Annotated[int, typer.Option("--port", help="TensorBoard's port; 0: a free one.", min=0, max=65535)]

_DEFAULT = "capture"


class _Trace(TyperGroup):
    """``tpubench trace resnet`` is ``tpubench trace capture resnet``: what names no command goes to the default one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help"):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


def add_to(app: typer.Typer) -> None:
    """Make ``tpubench trace`` and its commands known to ``app``."""
    group = typer.Typer(
        cls=_Trace,
        help="Capture a profile, check it, sum it up, and show it in TensorBoard's trace viewer.",
        epilog="tpubench trace WORKLOAD is tpubench trace capture WORKLOAD.",
        rich_markup_mode=None,
    )
    group.command(_DEFAULT)(capture)
    group.command("open")(open_)
    app.add_typer(group, name="trace")


def capture(
    workload: Annotated[
        str | None, typer.Argument(help="A workload to capture; none: show what was captured before.")
    ] = None,
    mode: Annotated[str, typer.Option("--mode", help="One execution mode.")] = "eager",
    backend: Annotated[str, typer.Option("--backend", help="One backend.")] = "embedded",
    size: SizeName = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    phase: Phase = None,
    batch: Batch = None,
    seq_len: SeqLen = None,
    shape: Shape = None,
    optimizer: Optimizer = None,
    seed: Seed = 0,
    steps: Annotated[int, typer.Option("--steps", help="Steps to capture.", min=1, max=1000)] = 10,
    directory: Annotated[Path, typer.Option("--dir", help="Where captures lie.")] = Path("traces"),
    fmt: Format = "table",
    top: Top = 10,
    serve: Serve = True,
    open_browser: OpenBrowser = True,
    port: Port = 0,
    timeout: Timeout = 1800.0,
    cpu_fallback: Fallback = False,
    python: Python = None,
    debug: Debug = False,
) -> None:
    """Capture a profile of a workload; without one, show what was captured before."""
    from tpubench.cells import Asked
    from tpubench.commands.trace import Capture, View
    from tpubench.commands.trace import trace as command
    from tpubench.conditions import Conditions
    from tpubench.interpreter import chosen

    asked = None
    if workload is not None:
        asked = Asked(
            workload, mode, backend, size, device, dtype, phase, batch, seed, steps, cpu_fallback,
            seq_len=seq_len, shape=shape, optimizer=optimizer,
        )  # fmt: skip
    view = View(fmt=fmt, top=top, serve=serve, open_browser=open_browser, port=port)
    raise typer.Exit(command(Capture(asked, directory, steps, timeout, Conditions(pythons=chosen(python or []))), view))


def open_(
    path: Annotated[Path, typer.Argument(help="A .xplane.pb, a Chrome trace (.json, .json.gz), or a folder of them.")],
    fmt: Format = "table",
    top: Top = 10,
    serve: Serve = True,
    open_browser: OpenBrowser = True,
    port: Port = 0,
    debug: Debug = False,
) -> None:
    """Sum up and show a trace made elsewhere: by a TPU VM, by torch.profiler, by any program with jax.profiler."""
    from tpubench.commands.trace import View, open_trace

    raise typer.Exit(open_trace(path, View(fmt=fmt, top=top, serve=serve, open_browser=open_browser, port=port)))
