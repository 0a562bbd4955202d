"""The process that compiles for a TPU with no TPU: requests come in as JSON, answers go out as JSON, one a line.

    {"topology": NAME, "bounds": [1, 1, 1], "options": {...}}  -> {"ready": DEVICE_KIND, "devices": N}, then
    {"stablehlo": PATH, "hlo": PATH, "options": {...}}         -> {"memory": {...}, "seconds": S}
                                                                  or {"refused": TEXT}, {"oom": TEXT}

Run as a file, under any interpreter that has jax and libtpu: it imports nothing of ours. libtpu has ended its process
on programs that it could not compile, so whoever asks must be ready to start another.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

#: Before jax is imported: no look for a TPU or a metadata server, no lock against other processes of libtpu.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # silences libtpu whatever is compiled for
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


def main() -> None:
    """Serve requests until the input ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.update(ENVIRONMENT)

    def emit(answer: dict[str, Any]) -> None:
        channel.write(json.dumps(answer) + "\n")
        channel.flush()

    # A compile holds the interpreter for minutes: the asker's end of the pipe closing is seen by a thread of its own.
    requests: list[str] = []
    arrived = threading.Condition()

    def read() -> None:
        for line in sys.stdin:
            with arrived:
                requests.append(line)
                arrived.notify()
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    devices: Any = None
    while True:
        with arrived:
            arrived.wait_for(lambda: requests)
            request = json.loads(requests.pop(0))
        try:
            if "topology" in request:
                devices = _devices(request)
                emit({"ready": devices[0].device_kind, "devices": len(devices)})
            else:
                emit(_compiled(request, devices))
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            emit({"oom" if _OUT_OF_MEMORY in text else "refused": text[:2000]})


def _devices(request: dict[str, Any]) -> Any:
    import jax

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    from jax.experimental import topologies

    found = topologies.get_topology_desc(
        platform="tpu", topology_name=request["topology"], chips_per_host_bounds=tuple(request["bounds"]),
        **request["options"],
    )  # fmt: skip
    return found.devices


def _compiled(request: dict[str, Any], devices: Any) -> dict[str, Any]:
    # Private to jax as of 0.10: the public way compiles only what this process itself has traced.
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax  # type: ignore[attr-defined]
    from jaxlib.mlir import ir

    device = devices[0]
    options = compiler.get_compile_options(
        num_replicas=1, num_partitions=1, env_options_overrides=request.get("options") or None
    )
    start = time.perf_counter()
    with mlir.make_ir_context():
        module = ir.Module.parse(Path(request["stablehlo"]).read_text())
        made = device.client.compile(module, _jax.DeviceList((device,)), options)
    seconds = time.perf_counter() - start
    stats = made.get_compiled_memory_stats()
    with gzip.open(request["hlo"], "wt", encoding="utf-8", compresslevel=3) as file:
        file.write(made.hlo_modules()[0].to_string())
    memory = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "aliased": stats.alias_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
        "code": stats.generated_code_size_in_bytes,
    }
    return {"memory": memory, "seconds": seconds}


if __name__ == "__main__":
    main()
