"""The process that runs OpInfo's samples: a request comes in as JSON, rows go out as JSON, one a line.

    {"backend": NAME, "device": NAME, "dtype": NAME, "patterns": [...], "samples": N, "skip": [OP, ...]}
        -> {"total": N}, then for every entry {"start": OP} and {"row": ROW}, and at the end {"end": true}
        or {"error": TEXT}

When its standard input closes, whoever asked is gone, and it ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from typing import Any


def main() -> None:
    """Serve one request and leave."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def emit(event: dict[str, Any]) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_the_asker, daemon=True).start()
    try:
        _serve(request, emit)
    except BaseException as error:
        from tpubench.failure import one_line

        emit({"error": f"{type(error).__name__}: {one_line(error)}"})
    channel.flush()
    os._exit(0)


def _leave_with_the_asker() -> None:
    while sys.stdin.readline():
        pass
    os._exit(1)


def _serve(request: dict[str, Any], emit: Any) -> None:
    from backend import registry

    backend = registry.load(request["backend"])
    device = str(backend.open(request["device"], "eager", cpu_fallback=False))
    import torch

    from tpubench.ops.opinfo import entries, name_of, survey

    dtype = getattr(torch, request["dtype"])
    skip = set(request["skip"])
    found = list(entries(request["patterns"], dtype))
    emit({"total": len(found)})
    for op in found:
        if name_of(op) in skip:
            continue
        emit({"start": name_of(op)})
        emit({"row": dataclasses.asdict(survey(op, dtype, device, request["samples"]))})
    emit({"end": True})


if __name__ == "__main__":
    main()
