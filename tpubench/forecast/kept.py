"""What forecasts have found out, on disk: steps captured, programs compiled. Entries are whole or not there.

    steps/KEY.json             what a step launches
    programs/DIGEST.mlir, .hlo each program, as StableHLO and as HLO before anything is optimised
    compiled/KEY.json, .hlo.gz what a compiler made of a program, or why it made nothing

jax's own cache cannot be read back without the device (``PjRtCompiler`` has no client to load into).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tpubench.errors import UnwritableDirectory

#: What is written in every key: change it where an entry means something else than before.
_VERSION = 1


def default_folder() -> Path:
    """``tpubench/forecast`` in the user's cache folder (XDG Base Directory Specification)."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "tpubench" / "forecast"


def digest(*parts: Any) -> str:
    """32 hex digits for ``parts``, JSON-ready."""
    text = json.dumps([_VERSION, *parts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Kept:
    """The cache in ``folder``.

    Raises:
        UnwritableDirectory: it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            for name in ("steps", "programs", "compiled"):
                (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnwritableDirectory(folder, error.strerror or str(error), "--cache-dir") from error

    def stablehlo(self, digest: str) -> Path:
        """Where the program of that digest lies."""
        return self.folder / "programs" / f"{digest}.mlir"

    def before(self, digest: str) -> Path:
        """Where its HLO lies, nothing optimised."""
        return self.folder / "programs" / f"{digest}.hlo"

    def hlo(self, key: str) -> Path:
        """Where what a compiler made of a program lies."""
        return self.folder / "compiled" / f"{key}.hlo.gz"

    def read(self, kind: str, key: str) -> dict[str, Any] | None:
        """The entry, None where there is none that can be read."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.folder / kind / f"{key}.json").read_text())
            return found if isinstance(found, dict) else None
        return None

    def write(self, kind: str, key: str, entry: dict[str, Any]) -> None:
        """Keep ``entry``, by atomic rename.

        Raises:
            UnwritableDirectory: it cannot be written.
        """
        path = self.folder / kind / f"{key}.json"
        partial = path.with_suffix(f".{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps(entry))
            partial.replace(path)
        except OSError as error:
            raise UnwritableDirectory(self.folder, error.strerror or str(error), "--cache-dir") from error
