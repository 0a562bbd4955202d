"""The process that finds out what a step launches: a request comes in as JSON, answers go out as JSON, one a line.

    {"spec": SPEC, "folder": DIR} -> {"event": "phase", "name": NAME}, ..., then {"event": "captured", "step": STEP}
                                     or {"event": "error", "status": STATUS, "reason": TEXT, "error_class": NAME}

The step runs on the embedded backend over shapes (:mod:`backend.embedded.shadow`): nothing is computed. DIR gets the
StableHLO and the unoptimised HLO of each distinct program, named by its digest.
When standard input closes, whoever asked is gone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpubench.failure import failure
from tpubench.spec import Spec

Emit = Callable[[dict[str, Any]], None]
#: Steps before the one that counts: optimizers make their state in the first, and programs follow it in the second.
_WARM_UP = 2


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
        emit({"event": "captured", "step": _capture(Spec.from_dict(request["spec"]), Path(request["folder"]), emit)})
    except BaseException as error:
        traceback.print_exc()
        emit({"event": "error", **failure(error)})
    channel.flush()
    os._exit(0)


def _leave_with_the_asker() -> None:
    while sys.stdin.readline():
        pass
    os._exit(1)


def _capture(spec: Spec, folder: Path, emit: Emit) -> dict[str, Any]:
    """The fields of :class:`tpubench.forecast.step.Step`."""
    emit({"event": "phase", "name": "import"})
    from backend import registry as backends
    from backend.embedded.shadow import hlo, shadow_for
    from tpubench.step import build_on_meta, place
    from workloads import registry as workloads

    workload = workloads.load(spec.workload)
    backend = backends.load("embedded")
    device = backend.open("cpu", spec.mode, cpu_fallback=False)
    shadow = shadow_for("tpu")
    emit({"event": "phase", "name": "build"})
    built = build_on_meta(workload, spec)
    built = dataclasses.replace(built, module=built.module.to_empty(device=device))
    run = backend.prepare(place(built, spec, device), spec.mode)
    for number in range(_WARM_UP + 1):
        emit({"event": "phase", "name": f"step {number + 1}"})
        shadow.launches.clear()
        output = run()  # held until it is launched
        backend.synchronize(output)
    programs: dict[str, dict[str, Any]] = {}
    for done, (program, launches) in enumerate(shadow.launches.items()):
        emit({"event": "phase", "name": f"lower {done + 1} of {len(shadow.launches)}"})
        plain, named = program.stablehlo()
        digest = hashlib.sha256(plain.encode()).hexdigest()
        (folder / f"{digest}.mlir").write_text(named)
        (folder / f"{digest}.hlo").write_text(hlo(plain))
        one = programs.setdefault(
            digest, {"digest": digest, "name": program.name, "launches": 0, "beside_bytes": launches.beside_bytes}
        )
        one["launches"] += launches.count
        one["beside_bytes"] = max(one["beside_bytes"], launches.beside_bytes)
    emit({"event": "phase", "name": "count"})
    return {"programs": list(programs.values()), **_work(workload, spec)}


def _work(workload: Any, spec: Spec) -> dict[str, Any]:
    """What the step does by the model's own count."""
    from tpubench import facts

    fields: dict[str, Any] = {"warnings": []}
    facts.flops(workload, spec, fields)
    return {
        "item": workload.item,
        "items": float(workload.items(spec.size, spec.phase, spec.batch, spec.seq_len)),
        "model_flops": fields.get("model_flops"),
        "parameter_count": fields.get("parameter_count"),
        "warnings": fields["warnings"],
    }


if __name__ == "__main__":
    main()
