"""``tpubench ops``: which of PyTorch's ops a backend runs, and runs right. Imports neither torch nor jax."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from tpubench.cells import load_backend
from tpubench.errors import BadValue, MissingPackage, UnknownName
from tpubench.ops import coverage
from tpubench.ops.coverage import Outcome, Row
from tpubench.ops.survey import survey

_DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "bool", "complex64", "complex128")
_FORMATS = ("table", "csv", "json")


def ops(
    backend: str, device: str, dtypes: Sequence[str], patterns: Sequence[str], samples: int, timeout: float,
    out: Path | None, format: str, check: Path | None, everything: bool,
) -> int:  # fmt: skip
    """Run OpInfo's samples and print a row an op; 1 where a value is wrong or, with ``check``, something was lost.

    Raises:
        UnknownName: a dtype or format nobody offers.
        BadValue: a device or mode of the backend that cannot be had here, or a pattern that matches no op.
        MissingPackage: OpInfo needs expecttest.
    """
    for dtype in dtypes:
        if dtype not in _DTYPES:
            raise UnknownName("dtype", dtype, _DTYPES)
    if format not in _FORMATS:
        raise UnknownName("format", format, _FORMATS)
    before = coverage.read(check) if check is not None else []
    offered = load_backend(backend)
    reason = offered.devices().get(device, "no such device") or offered.modes().get("eager", "no eager mode")
    if reason:
        raise BadValue("--device", device, f"{backend}: {reason}")
    if importlib.util.find_spec("expecttest") is None:
        raise MissingPackage("expecttest", "PyTorch's OpInfo database imports it", "pip install 'tpubench[ops]'")

    def progress(row: Row, done: int, total: int) -> None:
        if sys.stderr.isatty():
            typer.echo(f"\r\033[K{done}/{total or '?'} {row.dtype} {row.op}", err=True, nl=False)

    rows: list[Row] = []
    for dtype in dtypes:
        rows += survey(backend, device, dtype, patterns, samples, timeout, progress)
    if sys.stderr.isatty():
        typer.echo("\r\033[K", err=True, nl=False)
    if not rows:
        raise BadValue("--op", ",".join(patterns), "no op of OpInfo's database in that dtype is called so")
    _print(rows, format, everything)
    if out is not None:
        path = out / f"{backend}-{device}.csv"
        coverage.write(rows, path)
        typer.echo(f"rows: {path}", err=True)
    gone = coverage.lost(before, rows)
    for row in gone:
        typer.echo(f"passed in {check}: {row.op} {row.dtype}: now {row.outcome}: {row.detail}", err=True)
    return 1 if gone or any(r.outcome in (Outcome.WRONG, Outcome.CRASHED) for r in rows) else 0


def _print(rows: Sequence[Row], format: str, everything: bool) -> None:
    if format == "csv":
        typer.echo(coverage.to_csv(rows), nl=False)
    elif format == "json":
        typer.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        shown = rows if everything else [r for r in rows if r.outcome != Outcome.PASSED]
        if shown:
            typer.echo("\n".join(coverage.table(shown)) + "\n")
        typer.echo("\n".join(coverage.summary(rows)))
