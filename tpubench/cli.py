"""The command line. Everything a command needs is imported when it runs: ``--help`` answers at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from tpubench import __version__, measurers, readers, tracing
from tpubench.errors import TpubenchError
from tpubench.options import (
    Batch,
    Debug,
    Device,
    Dtype,
    Optimizer,
    Phase,
    Price,
    Python,
    SeqLen,
    Shape,
    SizeName,
)

app = typer.Typer(
    name="tpubench",
    help="Benchmarks and profiles the ways of running a PyTorch model on a TPU, beside CPU and GPU baselines.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# UsageError, which typer takes from click or, lately, has of its own; it exports BadParameter alone.
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(f"tpubench {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


measurers.add_to(app)
readers.add_to(app)


tracing.add_to(app)


@app.command()
def forecast(
    workload: Annotated[str, typer.Argument(help="A workload of `tpubench list`.")],
    chip: Annotated[str, typer.Option("--chip", help="TPUs, separated by commas.")] = "v5e,v5p,v6e,v7x",
    mode: Annotated[str, typer.Option("--mode", help="compile, eager, eager-fused, or a list.")] = "compile",
    size: SizeName = None,
    dtype: Dtype = "float32",
    phase: Phase = None,
    batch: Batch = None,
    seq_len: SeqLen = None,
    shape: Shape = None,
    optimizer: Optimizer = None,
    price: Price = None,
    launch_us: Annotated[
        float, typer.Option("--launch-us", help="Microseconds a launch is assumed to take, at the upper end.", min=0.0)
    ] = 20.0,
    fmt: Annotated[str, typer.Option("--format", help="table, md, csv or json.")] = "table",
    top: Annotated[int, typer.Option("--top", help="Show this many of the heaviest ops.", min=0, max=10)] = 0,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for one program's compile.", min=1.0)] = 1800.0,
    cache_dir: Annotated[
        Path | None, typer.Option("--cache-dir", help="Where results are kept. [~/.cache/tpubench/forecast]")
    ] = None,
    tpu_python: Annotated[
        str | None, typer.Option("--tpu-python", help="A Python that has jax and libtpu; this one by default.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Compile again what failed before.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compile nothing: rooflines, and what was compiled before.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Predict a step on TPUs from what the TPU compiler makes of it. No TPU is needed."""
    from tpubench.cells import Asked
    from tpubench.commands.forecast import How, command

    asked = Asked(
        workload, mode, "embedded", size, "tpu", dtype, phase, batch, seq_len=seq_len, shape=shape, optimizer=optimizer
    )
    raise typer.Exit(
        command(asked, How(chip, fmt, top, price, launch_us, timeout, cache_dir, tpu_python, retry, quick))
    )


@app.command("list")
def list_(python: Python = None, debug: Debug = False) -> None:
    """Show workloads, backends, and which modes and devices work here."""
    from tpubench.commands.list import list_all
    from tpubench.interpreter import chosen

    raise typer.Exit(list_all(chosen(python or [])))


@app.command()
def cache(
    action: Annotated[str, typer.Argument(help="info or clear.")],
    cache_dir: Annotated[Path | None, typer.Option("--cache-dir", help="The folder that `run` was given.")] = None,
    debug: Debug = False,
) -> None:
    """Say what compile caches hold on disk, or empty them."""
    from tpubench.commands.cache import cache as command

    raise typer.Exit(command(action, cache_dir))


@app.command()
def ops(
    op: Annotated[list[str] | None, typer.Option("--op", help="Only ops of this name; * and ? match.")] = None,
    backend: Annotated[str, typer.Option("--backend", help="A backend of `tpubench list`.")] = "embedded",
    device: Device = "cpu",
    dtype: Annotated[str, typer.Option("--dtype", help="Dtypes, separated by commas.")] = "float32",
    samples: Annotated[int, typer.Option("--samples", help="Samples an op, spread over OpInfo's; 0: all.", min=0)] = 10,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds after which an op is given up.", min=1.0)] = 300,
    out: Annotated[Path | None, typer.Option("--out", help="Keep the rows in a file in this folder.")] = None,
    format: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
    check: Annotated[Path | None, typer.Option("--check", help="Fail where an op no longer passes that did.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show the ops that pass as well.")] = False,
    debug: Debug = False,
) -> None:
    """Run PyTorch's OpInfo samples of every op, forward and backward, and compare with the CPU."""
    from tpubench.commands.ops import ops as command

    dtypes = [d.strip() for d in dtype.split(",") if d.strip()]
    raise typer.Exit(command(backend, device, dtypes, op or [], samples, timeout, out, format, check, everything))


def main() -> None:
    """The console script: a user's mistake is one line and exit code 2, never a traceback."""
    debug = "--debug" in sys.argv
    try:
        code = app(standalone_mode=False)
    except TpubenchError as error:
        if debug:
            raise
        typer.echo(f"tpubench: error: {error}", err=True)
        sys.exit(error.exit_code)
    except _UsageError as error:
        typer.echo(f"tpubench: error: {_usage(error)}", err=True)
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        text = " ".join(str(error).split())
        what = f"{type(error).__name__}: {text}"
        typer.echo(f"tpubench: internal error: {what}; run again with --debug for the traceback", err=True)
        sys.exit(1)
    sys.exit(code or 0)


def _usage(error: Exception) -> str:
    """What the parser of options says, with where to look it up."""
    text = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    names = []
    while context and context.parent:
        names.append(context.info_name)
        context = context.parent
    command = " ".join(["tpubench", *reversed(names)])
    return f"{text}: see `{command} --help`"
