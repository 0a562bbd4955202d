"""``tpubench cache``: what compile caches hold on disk, and emptying them. Imports neither torch nor jax."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import typer

from tpubench.errors import BadValue, UnknownName, UnwritableDirectory

#: The folders that backends keep in a cache's, and what is in them.
_PARTS = {
    "embedded": "programs of the embedded backend",
    "graphs": "graphs of the embedded backend",
    "inductor": "Inductor's",
    "triton": "Triton's",
}


def cache(action: str, folder: Path | None) -> int:
    """Print what is in ``folder``, or remove it; returns the exit code.

    Raises:
        UnknownName: an action nobody offers.
        BadValue: no folder was named, or it is none.
        UnwritableDirectory: something in it cannot be removed.
    """
    if action not in ("info", "clear"):
        raise UnknownName("action", action, ("info", "clear"))
    root = _named(folder)
    for name, what in _PARTS.items():
        files, size = _measured(root / name)
        if action == "clear" and files:
            _remove(root / name)
        done = "removed " if action == "clear" else ""
        typer.echo(f"  {what}: {done}{files} files, {size / 2**20:.1f} MiB")
    return 0


def _named(folder: Path | None) -> Path:
    from backend.embedded.disk import FOLDER_VARIABLE

    if folder is None and os.environ.get(FOLDER_VARIABLE):
        folder = Path(os.environ[FOLDER_VARIABLE])
    if folder is None:
        raise BadValue("--cache-dir", "", f"name the folder that `tpubench run` was given, or set {FOLDER_VARIABLE}")
    if not folder.is_dir():
        raise BadValue("--cache-dir", folder, "there is no such folder")
    typer.echo(f"{folder}")
    return folder


def _measured(part: Path) -> tuple[int, int]:
    """Files and their bytes, those that vanish meanwhile left out."""
    sizes = []
    for path in part.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)


def _remove(part: Path) -> None:
    try:
        shutil.rmtree(part)
    except FileNotFoundError:
        pass  # another process was quicker
    except OSError as error:
        raise UnwritableDirectory(part, error.strerror or str(error), "--cache-dir") from error
