"""``tpubench list``: what there is to run, and what can run here. Imports neither torch nor jax."""

from __future__ import annotations

import typer

from tpubench.cells import BrokenPlugin, load_backend, load_workload


def list_all() -> int:
    """Print workloads with their sizes, and backends with their modes and devices."""
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
        offered = {f"--mode {k}": why for k, why in backend.modes().items()}
        offered |= {f"--device {k}": why for k, why in backend.devices().items()}
        width = max(map(len, offered))
        for option, why in offered.items():
            typer.echo(f"    {option:<{width}}  {'no: ' + why if why else 'yes'}")
    return 0
