"""What a run ran on, and how much memory its process held. Standard library only."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from pathlib import Path


def describe() -> dict[str, str | int | None]:
    """``host, cpu_model, cpu_count, os, python_version`` of this machine."""
    return {
        "host": socket.gethostname(),
        "cpu_model": cpu_model(),
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "os": f"{platform.system()} {platform.release()}",
        "python_version": platform.python_version(),
    }


def cpu_model() -> str | None:
    """The processor's own name, None where the system does not tell it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or None
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def peak_rss_bytes() -> int | None:
    """The most memory this process has held, in bytes.

    From VmHWM of /proc/self/status (proc(5)). Not from getrusage: there Linux lets a child begin
    with its parent's maximum, which exec does not clear.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    match = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    return int(match[1]) * 1024 if match else None
