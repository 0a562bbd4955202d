"""Captures in a TensorBoard log directory: ``<logdir>/plugins/profile/<run>/<host>.xplane.pb``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tpubench.errors import TraceNotFound

_SUFFIX = ".xplane.pb"


@dataclasses.dataclass(frozen=True, slots=True)
class CapturedRun:
    """One capture."""

    name: str
    host: str
    path: Path


def runs(directory: Path, option: str = "--dir ") -> list[CapturedRun]:
    """The captures in ``directory``, oldest first. ``option`` is what the user gives folders with.

    Raises:
        TraceNotFound: there is none; where the folder is part of a log directory, it says of which.
    """
    if not directory.is_dir():
        raise TraceNotFound(f"there is no folder '{directory}'", "capture one: tpubench trace resnet")
    found = sorted((directory / "plugins" / "profile").glob(f"*/*{_SUFFIX}"), key=lambda p: p.stat().st_mtime)
    if found:
        return [CapturedRun(p.parent.name, p.name.removesuffix(_SUFFIX), p) for p in found]
    for folder in directory.resolve().parents:
        if any((folder / "plugins" / "profile").glob(f"*/*{_SUFFIX}")):
            raise TraceNotFound(f"'{directory}' lies inside a log directory", f"give {option}'{folder}'")
    deeper = sorted(p for p in directory.glob("*/plugins/profile") if any(p.glob(f"*/*{_SUFFIX}")))
    if deeper:
        raise TraceNotFound(f"'{directory}' holds log directories", f"give {option}'{deeper[0].parent.parent}'")
    raise TraceNotFound(
        f"no capture is in '{directory}'",
        "capture one: tpubench trace resnet, or name a trace's file: tpubench trace open FILE",
    )
