"""``tpubench run``: measure cells, write a record of each."""

from __future__ import annotations

import dataclasses
import signal
import sys
from pathlib import Path

import typer

from tpubench.accounting import Assumptions
from tpubench.cells import Asked, cells, default_size, load_workload
from tpubench.conditions import Conditions
from tpubench.record import Record, Status
from tpubench.spec import Spec
from tpubench.sweep import Sweep

#: How a run may end without being anybody's failure.
_FINE = {Status.OK, Status.UNSUPPORTED, Status.SKIPPED}


@dataclasses.dataclass(frozen=True, slots=True)
class How:
    """What of a run is no part of its cells: times in seconds."""

    out: Path
    timeout: float
    given: Assumptions
    conditions: Conditions
    processes: int = 1


def run(asked: Asked, how: How) -> int:
    """Run every cell that ``asked`` names; returns the exit code: 1 where a cell failed."""
    from tpubench.store import ensure_writable

    specs = cells(asked)
    how.given.ensure()
    how.conditions.ensure(specs)
    ensure_writable(how.out)
    if how.conditions.dump_hlo is not None:
        ensure_writable(how.conditions.dump_hlo, "--dump-hlo")
    _say_sizes(asked, specs)
    sweep = Sweep(specs, how.processes)
    records, paths, interrupted = _measure(sweep, how)
    if records:
        _print_summary(records)
        typer.echo(f"\n{len(paths)} record{'s' if len(paths) != 1 else ''} in {how.out}:")
        for path in paths:
            typer.echo(f"  {path.name}")
        if how.conditions.dump_hlo is not None:
            _say_dumps(specs, how.conditions)
        typer.echo(f"\ncompare: tpubench compare '{how.out}/*.parquet'")
    if interrupted:
        left, what = sweep.left, "cells" if how.processes == 1 else "runs"
        typer.echo(f"interrupted: {left} of {len(records) + left} {what} did not run", err=True)
        return 130
    return 0 if all(record.status in _FINE for record in records) else 1


def _say_dumps(specs: list[Spec], conditions: Conditions) -> None:
    for spec in dict.fromkeys(specs):
        folder = conditions.dump_folder(spec)
        index = folder / "index.jsonl"
        if index.exists():
            count = len(index.read_text().splitlines())
            typer.echo(f"hlo: {folder} ({count} programs)", err=True)
        else:
            typer.echo(f"hlo: none of {spec.label}: its worker made no program, or its backend writes none", err=True)


def _say_sizes(asked: Asked, specs: list[Spec]) -> None:
    """Name what a default size is: nobody should take a small model's number for the published one's."""
    if asked.size is not None or asked.shape is not None:
        return
    workload = load_workload(asked.workload)
    for device in dict.fromkeys(spec.device for spec in specs):
        name = default_size(device, workload)
        batches = ", ".join(str(b) for b in dict.fromkeys(spec.batch for spec in specs if spec.device == device))
        published = workload.published
        hint = f"; --size {published} for the published size" if name != published else ""
        what = f"{workload.sizes[name].summary}, batch {batches}"
        typer.echo(f"size {name} (the default on {device}): {what}{hint}", err=True)


def _measure(sweep: Sweep, how: How) -> tuple[list[Record], list[Path], bool]:
    """``(records, their files, whether it was interrupted)``."""
    from tpubench.progress import CellProgress
    from tpubench.runner import run_cells

    records: list[Record] = []
    paths: list[Path] = []
    # As a scheduler ends a job: the worker and its caches go, the finished rows stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with CellProgress(sweep) as progress:
        runs = run_cells(
            sweep.runs(),
            how.out,
            timeout=how.timeout,
            given=how.given,
            on_event=progress,
            conditions=how.conditions,
        )
        try:
            for record, path in runs:
                records.append(record)
                paths.append(path)
                sweep.add(record)
        except KeyboardInterrupt:
            return records, paths, True
    return records, paths, False


def _print_summary(records: list[Record]) -> None:
    from tpubench.compare import Comparison
    from tpubench.table import render, terminal_width

    typer.echo(render(Comparison.of(records), "table", terminal_width()), nl=False)
