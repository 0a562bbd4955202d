"""The commands that read records, as the command line has them. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpubench.options import Bandwidth, Chip, Debug, Peak, Price


def add_to(app: typer.Typer) -> None:
    """Make the commands of this module known to ``app``."""
    for command in (compare,):
        app.command()(command)


def compare(
    files: Annotated[list[str], typer.Argument(help="Record files, folders or patterns.")],
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="backend:mode that the others are held against.")
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
    from tpubench.commands.compare import compare as command

    given = Assumptions(chip=chip, price=price, peak_tflops=peak_tflops, peak_gbps=peak_gbps)
    raise typer.Exit(command(files, baseline, fmt, plot, given))
