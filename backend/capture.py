"""Profiles of a step, as XSpace under ``<directory>/plugins/profile/<run>/``, where TensorBoard looks."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.xspace import PlaneWriter, XSpace

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
    with gzip.open(chrome, "rt", encoding="utf-8") as text:
        events = json.load(text)["traceEvents"]
    path = folder / f"{host}.xplane.pb"
    path.write_bytes(chrome_to_xspace(events, host))
    return path


_OPS = {"cpu_op", "user_annotation"}
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}


def chrome_to_xspace(events: list[dict[str, Any]], host: str) -> bytes:
    """torch.profiler's Chrome trace events (microseconds) as a serialised XSpace.

    Host threads become lines of ``/host:CPU``, CUDA streams lines of ``/device:GPU:n``. Times count
    from the first event: xprof takes absolute ones for idleness.
    """
    spans = [e for e in events if e.get("ph") == "X" and e.get("cat") in _OPS | _KERNELS]
    origin = min((e["ts"] for e in spans), default=0.0)
    space = XSpace()
    space.hostnames.append(host)
    planes: dict[str, PlaneWriter] = {}
    lines: dict[tuple[str, str], Any] = {}
    for span in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
        on_device = span["cat"] in _KERNELS
        device = span.get("args", {}).get("device", 0)
        plane = f"/device:GPU:{device}" if on_device else "/host:CPU"
        line = f"stream {span['tid']}" if on_device else f"thread {span['tid']}"
        if plane not in planes:
            planes[plane] = PlaneWriter(space, plane)
        if (plane, line) not in lines:
            lines[plane, line] = planes[plane].line(line)
        name, stats = str(span["name"]), {}
        title, mark, number = name.partition("#")
        if mark and title == STEP_NAME and number.isdigit():
            name, stats = STEP_NAME, {"_r": 1, "step_num": int(number)}
        elif on_device or span["cat"] == "cpu_op":
            stats = {"tf_op": f"{name}:{name.removeprefix('aten::')}"}
        planes[plane].event(lines[plane, line], name, (span["ts"] - origin) * 1e3, span["dur"] * 1e3, stats)
    return bytes(space.SerializeToString())
