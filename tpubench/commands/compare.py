"""``tpubench compare``: records in, a table and a plot out."""

from __future__ import annotations

from pathlib import Path

import typer

from tpubench.accounting import Assumptions, account
from tpubench.errors import UnknownName
from tpubench.table import FORMATS


def compare(files: list[str], baseline: str | None, fmt: str, plot: Path | None, given: Assumptions) -> int:
    """Print the comparison of the records in ``files``; returns the exit code."""
    from tpubench.compare import Comparison
    from tpubench.store import read_many
    from tpubench.table import render, terminal_width

    if fmt not in FORMATS:
        raise UnknownName("format", fmt, FORMATS)
    given.ensure()
    records, problems = read_many(files)
    for problem in problems:
        typer.echo(f"tpubench: passed over: {problem}", err=True)
    if not records:
        return 2
    comparison = Comparison.of([account(record, given) for record in records], baseline)
    typer.echo(render(comparison, fmt, terminal_width()), nl=False)
    if plot is not None:
        from tpubench.plot import save

        save(comparison, plot)
        typer.echo(f"plot: {plot}", err=True)
    return 0
