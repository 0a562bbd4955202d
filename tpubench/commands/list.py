"""``tpubench list``: what there is to run, and what can run here. Imports neither torch nor jax."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from tpubench.cells import BrokenPlugin, load_backend, load_workload
from tpubench.interpreter import offer


def list_all(pythons: Mapping[str, Path]) -> int:
    """Print workloads with their sizes, and backends with their modes and devices.

    ``pythons`` are the interpreters of the backends that have one of their own.
    """
    from backend import registry as backends
    from workloads import registry as workloads

    typer.echo("workloads")
    for name in workloads.names():
        try:
            workload = load_workload(name)
        except BrokenPlugin as error:
            typer.echo(f"  {name}: {error}")
            continue
        typer.echo(f"  {name}: {workload.summary} ({', '.join(workload.phases)})")
        width = max(map(len, workload.sizes))
        for size, one in workload.sizes.items():
            typer.echo(f"    {size:<{width}}  {one.summary}, batch {one.batch}")
    typer.echo("\nbackends")
    for name in backends.names():
        try:
            backend = load_backend(name)
        except BrokenPlugin as error:
            typer.echo(f"  {name}: {error}")
            continue
        typer.echo(f"  {name}: {backend.summary}")
        there = offer(name, pythons.get(name))
        if there.error is not None:
            typer.echo(f"    {there.error}")
            continue
        if there.python is not None:
            typer.echo(f"    served by {there.python} (Python {there.version})")
        offered = {f"--mode {k}": why for k, why in there.modes.items()}
        offered |= {f"--device {k}": why for k, why in there.devices.items()}
        width = max(map(len, offered))
        for option, why in offered.items():
            typer.echo(f"    {option:<{width}}  {'no: ' + why if why else 'yes'}")
    return 0
