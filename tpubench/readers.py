"""The commands that read records, as the command line has them. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpubench.options import Bandwidth, Chip, Debug, Files, Peak, Price, Where


def add_to(app: typer.Typer) -> None:
    """Make the commands of this module known to ``app``."""
    for command in (compare,):
        app.command()(command)


def compare(
    files: Files,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="What the others are held against: backend:mode, or field=value,..."),
    ] = None,
    where: Where = None,
    across: Annotated[
        str, typer.Option("--across", help="Compare work that differs in these fields: batch, dtype, ...")
    ] = "",
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help="Hold each cell against the same cell of these records. Several times."),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="A table of two axes instead: workload,mode or work,backend+mode.")
    ] = None,
    show: Annotated[
        str,
        typer.Option(
            "--show",
            help="With --by: step, ratio, rate, first, compile, device, hits, mfu, roofline, memory or usd.",
        ),
    ] = "step",
    fail_if_slower: Annotated[
        str | None,
        typer.Option("--fail-if-slower", help="Exit with 1 where a row is surely slower by more than this: 5%."),
    ] = None,
    fmt: Annotated[str, typer.Option("--format", help="table, md, csv or json.")] = "table",
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a picture: .png, .svg or .pdf.")] = None,
    chip: Chip = None,
    price: Price = None,
    peak_tflops: Peak = None,
    peak_gbps: Bandwidth = None,
    debug: Debug = False,
) -> None:
    """Put records side by side: step times with intervals, ratios, MFU, cost."""
    from tpubench.accounting import Assumptions
    from tpubench.commands.compare import Question
    from tpubench.commands.compare import compare as command

    given = Assumptions(chip=chip, price=price, peak_tflops=peak_tflops, peak_gbps=peak_gbps)
    asked = Question(baseline, where, across, tuple(against or ()), by, show, fail_if_slower)
    raise typer.Exit(command(files, asked, fmt, plot, given))
