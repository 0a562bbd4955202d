"""Chrome traces as XSpace: torch.profiler's, and those that XLA's tools write beside a ``.xplane.pb``.

The format is https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU; times in it are
microseconds.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backend.xspace import PlaneWriter, XSpace

Span = dict[str, Any]

#: torch.profiler's categories; early releases wrote some of them as in the second column.
_OLD_CATEGORIES = {"Operator": "cpu_op", "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
_HOST = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"}
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}
#: ``torch.profiler.profile.step`` marks a step by the first, our own captures by the second.
_STEP = re.compile(r"(ProfilerStep|step)#(\d+)")


class NotAChromeTrace(ValueError):
    """The text is no Chrome trace, or ends early, or holds nothing that can be placed."""


def read_events(path: Path) -> list[Span]:
    """The events of a Chrome trace file, ``.json`` or ``.json.gz``.

    Raises:
        NotAChromeTrace: it is something else, or ends early.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    try:
        loaded = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise NotAChromeTrace("no JSON, or JSON that ends early") from error
    events = loaded.get("traceEvents") if isinstance(loaded, dict) else loaded
    if not isinstance(events, list) or not all(isinstance(e, dict) for e in events):
        raise NotAChromeTrace("JSON without a list of trace events")
    return events


def chrome_to_xspace(events: list[Span], host: str) -> bytes:
    """Chrome trace events as a serialised XSpace.

    Of torch.profiler's, host threads become lines of ``/host:CPU``, CUDA streams lines of ``/device:GPU:n``. Where
    XLA's tools named processes and threads after planes and lines, these are had back. Times count from the first
    event: xprof takes absolute ones for idleness.

    Raises:
        NotAChromeTrace: there is no span in it that can be placed.
    """
    try:
        spans = list(_torch_spans(events) or _xla_spans(events))
    except (TypeError, ValueError, KeyError) as error:
        raise NotAChromeTrace(f"an event lacks what its kind has ({error})") from error
    if not spans:
        raise NotAChromeTrace("no span of torch.profiler or of XLA in it")
    origin = min(start for _, _, _, start, _, _ in spans)
    space = XSpace()
    space.hostnames.append(host)
    planes: dict[str, PlaneWriter] = {}
    lines: dict[tuple[str, str], Any] = {}
    for plane, line, name, start, duration, stats in sorted(spans, key=lambda s: (s[3], -s[4])):
        if plane not in planes:
            planes[plane] = PlaneWriter(space, plane)
        if (plane, line) not in lines:
            lines[plane, line] = planes[plane].line(line)
        planes[plane].event(lines[plane, line], name, (start - origin) * 1e3, duration * 1e3, stats)
    return bytes(space.SerializeToString())


#: Plane, line, name, start and duration in microseconds, stats.
_Placed = tuple[str, str, str, float, float, dict[str, Any]]


def _torch_spans(events: Iterable[Span]) -> list[_Placed]:
    placed: list[_Placed] = []
    for event in events:
        category = str(event.get("cat"))
        category = _OLD_CATEGORIES.get(category, category)
        if event.get("ph") != "X" or category not in _HOST | _KERNELS:
            continue
        on_device = category in _KERNELS
        args = event.get("args") or {}
        plane = f"/device:GPU:{args.get('device', 0)}" if on_device else "/host:CPU"
        line = f"{'stream' if on_device else 'thread'} {event['tid']}"
        name, stats = str(event["name"]), {}
        if found := _STEP.fullmatch(name):
            # The name of our own captures, whoever made the trace.
            name, stats = "step", {"_r": 1, "step_num": int(found[2])}
        elif on_device or category == "cpu_op":
            stats = {"tf_op": f"{name}:{name.removeprefix('aten::')}"}
        placed.append((plane, line, name, float(event["ts"]), float(event["dur"]), stats))
    return placed


def _xla_spans(events: Iterable[Span]) -> list[_Placed]:
    events = list(events)
    processes = {e["pid"]: str(e["args"]["name"]) for e in events if e.get("name") == "process_name"}
    threads = {(e["pid"], e["tid"]): str(e["args"]["name"]) for e in events if e.get("name") == "thread_name"}
    placed: list[_Placed] = []
    for event in events:
        plane = processes.get(event.get("pid"), "")
        if event.get("ph") != "X" or not plane.startswith(("/device:", "/host:")):
            continue
        stats = {key: value for key, value in (event.get("args") or {}).items() if isinstance(value, str | int | float)}
        if "step_num" in stats:
            stats["_r"] = 1  # a stat of XLA's own use, which it does not write out
        line = threads.get((event["pid"], event["tid"]), str(event["tid"]))
        placed.append((plane, line, str(event["name"]), float(event["ts"]), float(event.get("dur", 0)), stats))
    return placed
