"""``tpubench compare``: records in, a table, a picture and a verdict out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import typer

from tpubench.accounting import Assumptions, account
from tpubench.errors import NothingToCompare, UnknownName
from tpubench.record import Record
from tpubench.table import FORMATS


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the records, as the options have it; None and empty: not asked."""

    baseline: str | None = None
    where: str | None = None
    across: str = ""
    against: Sequence[str] = ()
    by: str | None = None
    shown: str = "step"
    fail_if_slower: str | None = None


def compare(files: list[str], asked: Question, fmt: str, plot: Path | None, given: Assumptions) -> int:
    """Print the comparison of the records in ``files``; returns the exit code: 1 where a row is too slow."""
    from tpubench import gate
    from tpubench.compare import Comparison
    from tpubench.table import render, terminal_width

    if fmt not in FORMATS:
        raise UnknownName("format", fmt, FORMATS)
    limit = None if asked.fail_if_slower is None else gate.parse(asked.fail_if_slower)
    given.ensure()
    records = load(files, asked.where, given)
    if not records:
        return 2
    against = load(asked.against, asked.where, given) if asked.against else None
    across = [field.strip() for field in asked.across.split(",") if field.strip()]
    comparison = Comparison.of(records, asked.baseline, across, against)
    if asked.by is not None:
        typer.echo(_pivoted(comparison, asked.by, asked.shown, fmt), nl=False)
    else:
        typer.echo(render(comparison, fmt, terminal_width()), nl=False)
    if plot is not None:
        from tpubench.plot import save

        save(comparison, plot)
        typer.echo(f"plot: {plot}", err=True)
    if limit is None:
        return 0
    verdict = gate.judge(comparison, limit)
    for line in verdict.lines():
        typer.echo(line, err=True)
    return 1 if verdict.slower else 0


def load(files: Sequence[str], where: str | None, given: Assumptions) -> list[Record]:
    """The accounted records in ``files`` that ``where`` keeps; what is no record is named and passed over.

    Raises:
        NoFilesMatch: no file is named.
        NothingToCompare: there are records, and ``where`` keeps none.
        BadValue: ``where`` cannot be read.
    """
    from tpubench.filters import Filter
    from tpubench.store import read_many

    kept = None if where is None else Filter.parse("--where", where)
    records, problems = read_many(files)
    for problem in problems:
        typer.echo(f"tpubench: passed over: {problem}", err=True)
    found = [record for record in records if kept is None or kept.matches(record)]
    if records and not found:
        raise NothingToCompare(f"--where '{where}' keeps none of {len(records)} records", "ask for less")
    return [account(record, given) for record in found]


def _pivoted(comparison: object, by: str, shown: str, fmt: str) -> str:
    import csv
    import io

    from tpubench.compare import Comparison
    from tpubench.grid import markdown, plain
    from tpubench.pivot import Pivot
    from tpubench.table import terminal_width

    assert isinstance(comparison, Comparison)
    pivot = Pivot.of(comparison, by, shown)
    if fmt == "json":
        return json.dumps(pivot.data(), indent=2) + "\n"
    if fmt == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, [pivot.axes[0], *pivot.along], lineterminator="\n")
        writer.writeheader()
        writer.writerows(pivot.data())
        return text.getvalue()
    if fmt == "md":
        return "\n".join([f"**{pivot.title}**", "", *markdown(pivot.columns())]) + "\n"
    return "\n".join([pivot.title, *plain(pivot.columns(), terminal_width())]) + "\n"
