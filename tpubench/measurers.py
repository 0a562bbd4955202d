"""The commands that measure cells, as the command line has them. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpubench.options import (
    BackendNames,
    Bandwidth,
    Batch,
    Chip,
    Debug,
    Device,
    Dtype,
    Fallback,
    Mode,
    Optimizer,
    Peak,
    Phase,
    Price,
    Processes,
    Python,
    Seed,
    SeqLen,
    Shape,
    SizeName,
    Timeout,
)


def add_to(app: typer.Typer) -> None:
    """Make the commands of this module known to ``app``."""
    for command in (run,):
        app.command()(command)


def run(
    workload: Annotated[str, typer.Argument(help="A workload of `tpubench list`.")],
    mode: Mode = "eager",
    backend: BackendNames = "embedded",
    size: SizeName = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    phase: Phase = None,
    batch: Batch = None,
    seq_len: SeqLen = None,
    shape: Shape = None,
    optimizer: Optimizer = None,
    data: Annotated[str, typer.Option("--data", help="device: made there; host: copied in every step.")] = "device",
    seed: Seed = 0,
    steps: Annotated[int, typer.Option("--steps", help="Timed steps, after the warm-up.")] = 30,
    out: Annotated[Path, typer.Option("--out", help="Where the records go.")] = Path("results"),
    processes: Processes = 1,
    timeout: Timeout = 1800.0,
    cpu_fallback: Fallback = False,
    cache: Annotated[
        str | None, typer.Option("--cache", help="Compile caches at the start: cold, warm, off, or a list. [cold]")
    ] = None,
    cache_dir: Annotated[
        Path | None, typer.Option("--cache-dir", help="Keep the caches of warm cells here; implies --cache warm.")
    ] = None,
    dump_hlo: Annotated[
        Path | None, typer.Option("--dump-hlo", help="Write each program's StableHLO and optimised HLO here.")
    ] = None,
    chip: Chip = None,
    price: Price = None,
    peak_tflops: Peak = None,
    peak_gbps: Bandwidth = None,
    python: Python = None,
    debug: Debug = False,
) -> None:
    """Measure a workload: every combination of the lists given is one cell, in a process of its own."""
    from tpubench.accounting import Assumptions
    from tpubench.cells import Asked
    from tpubench.commands.run import How
    from tpubench.commands.run import run as command
    from tpubench.conditions import Conditions
    from tpubench.interpreter import chosen

    state = cache if cache is not None else "cold" if cache_dir is None else "warm"
    asked = Asked(
        workload, mode, backend, size, device, dtype, phase, batch, seed, steps, cpu_fallback, state,
        seq_len=seq_len, shape=shape, optimizer=optimizer, data=data,
    )  # fmt: skip
    given = Assumptions(chip=chip, price=price, peak_tflops=peak_tflops, peak_gbps=peak_gbps)
    conditions = Conditions(cache_dir, dump_hlo, chosen(python or []))
    raise typer.Exit(command(asked, How(out, timeout, given, conditions, processes)))
