"""``tpubench forecast``: what a TPU would do with a step, from its own compiler, with no TPU."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path

import typer

from tpubench import catalog
from tpubench.cells import Asked, cells
from tpubench.errors import BadValue, UnknownName
from tpubench.forecast import target as targets
from tpubench.forecast.compiled import Compiler, versions
from tpubench.forecast.forecast import Forecast, forecast
from tpubench.forecast.kept import Kept, default_folder
from tpubench.forecast.programs import CannotCapture, Step, capture
from tpubench.forecast.progress import ForecastProgress
from tpubench.forecast.report import FORMATS, render
from tpubench.record import Status
from tpubench.spec import Spec

#: Modes whose launches a step over shapes shows.
MODES = ("eager", "eager-fused", "compile")
#: Answers: a step that does not fit is one.
_FINE = {Status.OK, Status.OOM, Status.UNSUPPORTED}


@dataclasses.dataclass(frozen=True, slots=True)
class How:
    """The options of the command beside the cell's."""

    chips: str
    fmt: str = "table"
    top: int = 0
    price: str | None = None
    launch_us: float = 20.0
    timeout: float = 1800.0
    cache_dir: Path | None = None
    python: str | None = None
    retry: bool = False
    quick: bool = False


def command(asked: Asked, how: How) -> int:
    """Print the forecast of every cell on every chip; 1 where one could not be made.

    Raises:
        UnknownName: a chip, mode or format nobody offers.
        BadValue: a price that is none.
        MissingPackage: there is no libtpu.
        UnwritableDirectory: nothing can be kept in the cache's folder.
    """
    specs = cells(asked)
    chips = list(dict.fromkeys(chip.strip() for chip in how.chips.split(",")))
    found = [targets.target(chip) for chip in chips]
    for spec in specs:
        if spec.mode not in MODES:
            raise BadValue("--mode", spec.mode, f"a forecast is of {', '.join(MODES)}")
    if how.fmt not in FORMATS:
        raise UnknownName("format", how.fmt, FORMATS)
    if how.price is not None:
        catalog.price(how.price, None)
    python = how.python or sys.executable
    versions(python)
    kept = Kept(how.cache_dir or default_folder())
    rows: list[Forecast] = []
    with ForecastProgress(len(specs) * len(found)) as progress:
        for spec, target in itertools.product(specs, found):
            progress.start(f"{spec.workload}/{spec.size} batch {spec.batch} {spec.mode} on {target.chip}")
            row = _one(spec, target, kept, python, how, progress)
            rows.append(row)
            progress.end(row.status, row.reason)
    typer.echo(render(rows, how.fmt, how.top), nl=False)
    return 0 if all(row.status in _FINE for row in rows) else 1


def _one(spec: Spec, target: targets.Target, kept: Kept, python: str, how: How, progress: ForecastProgress) -> Forecast:
    try:
        step: Step = capture(spec, kept, how.timeout, lambda name: progress.at(f"following the step: {name}"))
    except CannotCapture as error:
        status, reason = error.fields["status"], error.fields["reason"]
        if status == Status.OOM:  # of this machine: it says nothing of the chip's
            status, reason = Status.ERROR, f"this machine has not the memory to follow the step: {reason}"
        return Forecast(spec, target.chip, status, reason)
    with Compiler(target, kept, python, how.retry) as compiler:
        return forecast(
            spec, step, compiler, timeout=how.timeout, launch_s=how.launch_us * 1e-6, price=how.price,
            quick=how.quick,
            on_program=lambda number, total, program, compiles: progress.at(
                f"{'compiling' if compiles else 'reading'} {program.name}, {number} of {total}"
            ),
        )  # fmt: skip
