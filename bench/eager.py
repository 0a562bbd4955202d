"""What one op costs on the host: the embedded device beside ``jnp.add``, torch on the CPU, and what a call is made of.

    python bench/eager.py
    python bench/eager.py --rounds 40 --json results/bench/eager.json

Every case runs in every round, one after the other in one process, so that a disturbance meets them all; a case's
figure is the median over rounds, and its ratio the median of the rounds' ratios to ``jnp.add``. Launches are
asynchronous; what is pending is waited for between cases, outside the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

PEER = "jnp.add"


def cases() -> dict[str, tuple[Callable[[], Any], int]]:
    """By name: what runs, and how many ops one call of it is."""
    import jax
    import jax.numpy as jnp
    import torch

    from backend.embedded.buffer import buffer_of
    from backend.embedded.device import activate

    activate()
    host = torch.ones(4, 4)
    x, y = torch.ones(4, 4, device="pjrt"), torch.ones(4, 4, device="pjrt")
    leaf = torch.ones(4, 4, device="pjrt", requires_grad=True)
    target = torch.zeros(4, 4, device="pjrt")
    a, b = buffer_of(x).array, buffer_of(y).array
    jitted = jax.jit(lambda p, q: p + q)
    chain = 50

    recorded = _Recorded(chain)
    return {
        "torch CPU a + b": (lambda: host + host, 1),
        PEER: (lambda: jnp.add(a, b), 1),
        "jax jitted add": (lambda: jitted(a, b), 1),
        "embedded a + b": (lambda: x + y, 1),
        "embedded a + 2.5": (lambda: x + 2.5, 1),
        "embedded a + b, recording a gradient": (lambda: leaf + y, 1),
        "embedded a.add_(b)": (lambda: target.add_(y), 1),
        "embedded a.t(), a view": (lambda: x.t(), 1),
        "embedded a.sum().item(), waits": (lambda: x.sum().item(), 2),
        f"embedded fused, {chain} ops and their launch": (lambda: recorded(x, y), chain),
    }


class _Recorded:
    """A chain of adds recorded and launched; the mode is switched outside the clock by :func:`measure`."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, x: Any, y: Any) -> Any:
        from backend.embedded.mode import MODE

        for _ in range(self.length):
            x = x + y
        assert MODE.recording is not None
        MODE.recording.flush()
        return x


def measure(rounds: int, calls: int) -> dict[str, list[float]]:
    """Microseconds an op, by case, one figure a round."""
    import torch

    from backend.embedded.buffer import synchronize
    from backend.embedded.mode import set_mode

    times: dict[str, list[float]] = {}
    with torch.no_grad():
        found = cases()
    for round_ in range(rounds + 2):
        for name, (run, ops) in found.items():
            set_mode("eager-fused" if "fused" in name else "eager")
            with torch.set_grad_enabled("gradient" in name):
                count = max(1, calls // ops)
                start = time.perf_counter()
                for _ in range(count):
                    run()
                took = time.perf_counter() - start
            synchronize()
            if round_ >= 2:
                times.setdefault(name, []).append(took / (count * ops) * 1e6)
    set_mode("eager")
    return times


def main() -> None:
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=2000, help="ops a case and round")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    given = parser.parse_args()
    times = measure(given.rounds, given.calls)
    rows = {
        name: {
            "us": round(statistics.median(one), 2),
            "to_jnp_add": round(statistics.median(t / p for t, p in zip(one, times[PEER], strict=True)), 3),
        }
        for name, one in times.items()
    }
    print(f"{'':<46} {'us an op':>9} {'x jnp.add':>10}")
    for name, row in rows.items():
        print(f"{name:<46} {row['us']:9.2f} {row['to_jnp_add']:10.2f}")
    if given.json:
        import jax
        import torch

        where = {"jax": jax.__version__, "torch": torch.__version__, "cpu": platform.machine(), "cores": os.cpu_count()}
        record = {"what": "host time an op", **where, "rounds": given.rounds, "cases": rows}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
