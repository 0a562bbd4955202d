"""Every program as text, before and after XLA: ``TPUBENCH_DUMP_HLO=DIR``.

    0001_add_Tensor_1f0c9a52.stablehlo.mlir     what was lowered
    0001_add_Tensor_1f0c9a52.optimised.hlo      what XLA made of it
    index.jsonl                                 a line a program

A program is written when it is made, once: no later step knows of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.embedded.oplog import listed

VARIABLE = "TPUBENCH_DUMP_HLO"
INDEX = "index.jsonl"

_written = 0


def folder() -> Path | None:
    """Where to write, None: nowhere."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def write(
    where: Path, name: str, lowered: Any, compiled: Any, arguments: Sequence[Any], origin: str, seconds: float
) -> None:
    """Write one program of jax's: ``lowered`` and ``compiled``, which took ``seconds``.

    ``origin`` is ``compiled`` or ``disk``: of a program from disk the StableHLO is lowered anew, and ``seconds`` is
    what loading took.

    Raises:
        OSError: it cannot be written.
    """
    global _written
    where.mkdir(parents=True, exist_ok=True)
    if _written == 0:
        _clear(where)
    _written += 1
    before, after = lowered.as_text(), compiled.as_text()
    stem = (
        f"{_written:04d}_{re.sub(r'[^A-Za-z0-9_]', '-', name)[:64]}_{hashlib.sha256(before.encode()).hexdigest()[:8]}"
    )
    files = {"stablehlo": f"{stem}.stablehlo.mlir", "optimised": f"{stem}.optimised.hlo"}
    (where / files["stablehlo"]).write_text(before)
    (where / files["optimised"]).write_text(after)
    costs = _costs(compiled)
    line = {
        "number": _written,
        "name": name,
        **files,
        "signature": _signature(arguments, lowered),
        "origin": origin,
        "seconds": seconds,
        "flops": costs.get("flops"),
        "bytes": costs.get("bytes accessed"),
    }
    with (where / INDEX).open("a") as index:
        index.write(json.dumps(line) + "\n")


def _signature(arguments: Sequence[Any], lowered: Any) -> str:
    """``f32[4,4] f32[] -> f32[4,4]``, whole."""
    import jax

    def whole(arrays: Sequence[Any]) -> str:
        return "".join(listed([a]) for a in arrays)

    return f"{whole(arguments)}-> {whole(jax.tree_util.tree_leaves(lowered.out_info))}".rstrip()


def _costs(compiled: Any) -> dict[str, float]:
    """XLA's own count of floating-point operations and bytes accessed, empty where the platform has none."""
    try:
        return dict(compiled.cost_analysis() or {})
    except Exception:
        return {}


def _clear(where: Path) -> None:
    """Remove what an earlier process wrote there, by its index."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        for line in (where / INDEX).read_text().splitlines():
            entry = json.loads(line)
            for kind in ("stablehlo", "optimised"):
                (where / Path(entry[kind]).name).unlink(missing_ok=True)
    (where / INDEX).unlink(missing_ok=True)
