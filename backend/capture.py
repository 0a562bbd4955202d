"""Profiles of a step, as XSpace under ``<directory>/plugins/profile/<run>/``, where TensorBoard looks."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.chrome import chrome_to_xspace, read_events

#: What every backend calls a step's marker.
STEP_NAME = "step"

Run = Callable[[], Any]
Synchronize = Callable[[Any], None]


def run_folder(directory: Path, run: str) -> Path:
    """Where the files of a run lie under a TensorBoard log directory."""
    return directory / "plugins" / "profile" / run


def jax_profile(directory: Path, run: str, steps: int, step: Run, synchronize: Synchronize) -> Path:
    """Capture ``steps`` steps with jax.profiler; returns the ``.xplane.pb``.

    Each step is marked, and waited for inside its marker: a marker round an asynchronous launch
    would say how long launching took.

    Raises:
        RuntimeError: a profile is being captured already, or none was written.
    """
    import jax

    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 2  # on a CPU the ops are host events of this level
    options.python_tracer_level = 0  # the user's Python would fill the buffer before the ops do
    options.session_id = run
    jax.profiler.start_trace(directory, profiler_options=options)
    try:
        for i in range(steps):
            with jax.profiler.StepTraceAnnotation(STEP_NAME, step_num=i):
                synchronize(step())
    finally:
        jax.profiler.stop_trace()
    found = sorted(run_folder(directory, run).glob("*.xplane.pb"))
    if not found:
        raise RuntimeError(f"jax.profiler wrote no profile to {run_folder(directory, run)}")
    return found[0]


def torch_profile(directory: Path, run: str, steps: int, step: Run, synchronize: Synchronize) -> Path:
    """Capture ``steps`` steps with torch.profiler and write them as XSpace; returns the ``.xplane.pb``.

    The Chrome trace that Perfetto opens is kept beside it.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        for i in range(steps):
            with record_function(f"{STEP_NAME}#{i}"):
                synchronize(step())
    folder = run_folder(directory, run)
    folder.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname()
    # Not *.trace.json.gz: TensorBoard would take that for its own.
    chrome = folder / f"{host}.perfetto.json.gz"
    profiler.export_chrome_trace(str(chrome))
    path = folder / f"{host}.xplane.pb"
    path.write_bytes(chrome_to_xspace(read_events(chrome), host))
    return path
