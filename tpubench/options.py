"""Options that several commands share, as typer reads them."""

from __future__ import annotations

from typing import Annotated

import typer

Mode = Annotated[str, typer.Option("--mode", help="Execution modes, separated by commas: eager, compile, ...")]
BackendNames = Annotated[str, typer.Option("--backend", help="Backends of `tpubench list`, separated by commas.")]
SizeName = Annotated[str | None, typer.Option("--size", help="Named size; small on a CPU, else the published one.")]
Device = Annotated[str, typer.Option("--device", help="Device of the backend: cpu, gpu, tpu, cuda.")]
Dtype = Annotated[str, typer.Option("--dtype", help="float32, bfloat16, bfloat16-autocast, float16 or float64.")]
Phase = Annotated[str | None, typer.Option("--phase", help="train, infer, prefill or decode; by default the first.")]
SeqLen = Annotated[str | None, typer.Option("--seq-len", help="Sequence lengths; the size's own by default.")]
Shape = Annotated[str | None, typer.Option("--shape", help="Shapes of a micro workload, in place of --size.")]
Optimizer = Annotated[str | None, typer.Option("--optimizer", help="sgd or adamw; the workload's own by default.")]
Batch = Annotated[str | None, typer.Option("--batch", help="Batch sizes; the size's own by default.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of weights and data.")]
Processes = Annotated[
    int, typer.Option("--processes", help="Fresh processes a cell, spread at random over the run.", min=1, max=10000)
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds after which a cell is given up.", min=1.0)]
Fallback = Annotated[bool, typer.Option("--cpu-fallback", help="Run ops without a lowering on the CPU, counted.")]
Python = Annotated[
    list[str] | None,
    typer.Option("--python", help="BACKEND=PATH: the interpreter that serves a backend. May be given several times."),
]
Files = Annotated[list[str], typer.Argument(help="Record files, folders or patterns.")]
Where = Annotated[str | None, typer.Option("--where", help="Only records of these: backend:mode, or field=value,...")]
Chip = Annotated[str | None, typer.Option("--chip", help="Take the peak and price of this chip.")]
Price = Annotated[str | None, typer.Option("--price", help="A provider (gcp, aws), or USD per chip-hour.")]
Peak = Annotated[float | None, typer.Option("--peak-tflops", help="Dense peak of one chip.", min=1e-6)]
Bandwidth = Annotated[float | None, typer.Option("--peak-gbps", help="GB/s of one chip's memory.", min=1e-6)]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
