"""``tpubench run``: measure cells, write a record of each."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import typer

from tpubench.accounting import Assumptions
from tpubench.cells import Asked, cells, default_size, load_workload
from tpubench.conditions import Conditions
from tpubench.record import Record, Status
from tpubench.spec import Spec

#: How a run may end without being anybody's failure.
_FINE = {Status.OK, Status.UNSUPPORTED, Status.SKIPPED}


def run(asked: Asked, out: Path, timeout: float, given: Assumptions, conditions: Conditions) -> int:
    """Run every cell that ``asked`` names; returns the exit code: 1 where a cell failed."""
    from tpubench.store import ensure_writable

    specs = cells(asked)
    given.ensure()
    conditions.ensure(specs)
    ensure_writable(out)
    if conditions.dump_hlo is not None:
        ensure_writable(conditions.dump_hlo, "--dump-hlo")
    _say_sizes(asked, specs)
    records, paths, interrupted = _measure(specs, out, timeout, given, conditions)
    if records:
        _print_summary(records)
        typer.echo(f"\n{len(paths)} record{'s' if len(paths) != 1 else ''} in {out}:")
        for path in paths:
            typer.echo(f"  {path.name}")
        if conditions.dump_hlo is not None:
            _say_dumps(specs, conditions)
        typer.echo(f"\ncompare: tpubench compare '{out}/*.parquet'")
    if interrupted:
        typer.echo(f"interrupted: {len(specs) - len(records)} of {len(specs)} cells did not run", err=True)
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


def _measure(
    specs: list[Spec], out: Path, timeout: float, given: Assumptions, conditions: Conditions
) -> tuple[list[Record], list[Path], bool]:
    from tpubench.progress import CellProgress
    from tpubench.runner import run_cells

    records: list[Record] = []
    paths: list[Path] = []
    # As a scheduler ends a job: the worker and its caches go, the finished rows stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with CellProgress(len(specs)) as progress:
        try:
            for record, path in run_cells(
                specs, out, timeout=timeout, given=given, on_event=progress, conditions=conditions
            ):
                records.append(record)
                paths.append(path)
        except KeyboardInterrupt:
            return records, paths, True
    return records, paths, False


def _print_summary(records: list[Record]) -> None:
    from tpubench.compare import Comparison
    from tpubench.table import render, terminal_width

    typer.echo(render(Comparison.of(records), "table", terminal_width()), nl=False)
