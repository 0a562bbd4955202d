"""Traces wherever they lie: a file, a run's folder, a log directory; an XSpace or a Chrome trace."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

from backend.chrome import NotAChromeTrace, chrome_to_xspace, read_events
from backend.xspace import NotAnXSpace, Plane, parse
from tpubench.errors import TraceIncomplete, TraceNotFound
from tpubench.trace.logdir import CapturedRun, runs

_XSPACE = ".xplane.pb"
_CHROME = (".json", ".json.gz")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A trace that somebody named. ``directory``: the log directory that it lies in, if it does."""

    path: Path
    directory: Path | None

    @property
    def run(self) -> CapturedRun:
        """The trace as TensorBoard knows it, by the names of its folder and file."""
        name = self.path.name
        for suffix in (_XSPACE, ".pb", *reversed(_CHROME), ".pt.trace", ".trace"):
            name = name.removesuffix(suffix)
        return CapturedRun(self.path.parent.name if self.directory else name, name, self.path)


def locate(path: Path) -> Source:
    """The trace that ``path`` names: a file, a folder with files in it (the newest), or a log directory (its newest).

    Raises:
        TraceNotFound: there is none; where the folder is near one, it says where.
    """
    if path.is_file():
        return _source(path)
    if not path.exists():
        raise TraceNotFound(f"there is no '{path}'", "name a .xplane.pb, a Chrome trace (.json, .json.gz) or a folder")
    for suffixes in ((_XSPACE,), _CHROME):
        found = [p for p in path.iterdir() if p.name.endswith(suffixes) and p.is_file()]
        if found:
            return _source(max(found, key=lambda p: p.stat().st_mtime))
    return _source(runs(path, option="")[-1].path)


def _source(path: Path) -> Source:
    # <logdir>/plugins/profile/<run>/<host>.xplane.pb
    folders = path.resolve().parents
    inside = len(folders) > 3 and (folders[2].name, folders[1].name) == ("plugins", "profile")
    return Source(path, folders[3] if inside and path.name.endswith(_XSPACE) else None)


def xspace_of(path: Path) -> bytes:
    """The trace ``path`` as a serialised XSpace, whatever it is written in.

    Raises:
        TraceIncomplete: it cannot be read, is none, or ends early.
    """
    try:
        data = path.read_bytes()
        if path.name.endswith(_CHROME) or data[:1] in (b"{", b"[", b"\x1f"):
            return chrome_to_xspace(read_events(path), "host")
    except (NotAChromeTrace, OSError) as error:
        raise _unreadable(path, error) from error
    return data


def planes_of(path: Path) -> list[Plane]:
    """The planes of the trace ``path``.

    Raises:
        TraceIncomplete: it cannot be read, is none, or ends early.
    """
    data = xspace_of(path)
    try:
        planes = parse(data)
    except NotAnXSpace as error:
        raise _unreadable(path, error) from error
    if not planes:
        raise _unreadable(path, NotAnXSpace("nothing is in it"))
    return planes


def _unreadable(path: Path, error: Exception) -> TraceIncomplete:
    return TraceIncomplete(
        f"'{path}' cannot be read ({error})", "copy or capture it again; a file that is being written ends early"
    )


@contextlib.contextmanager
def shown(source: Source) -> Iterator[tuple[Path, CapturedRun]]:
    """A log directory that TensorBoard finds ``source`` in, and its name there; a temporary one if need be."""
    if source.directory is not None:
        yield source.directory, source.run
        return
    run = source.run
    with tempfile.TemporaryDirectory(prefix="tpubench-trace-") as folder:
        path = Path(folder) / "plugins" / "profile" / run.name / f"{run.host}{_XSPACE}"
        path.parent.mkdir(parents=True)
        path.write_bytes(xspace_of(source.path))
        yield Path(folder), dataclasses.replace(run, path=path)
