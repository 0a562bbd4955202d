"""Time to the first step from a warm cache on disk, as a share of that from a cold one.

    python bench/cache.py                                        # resnet small, eager and compiled
    python bench/cache.py --size full --batch 4 --repeat 3 --out results/cache-cpu

Cold and warm cells of ResNet take turns, each in a process of its own; starting the process and imports are not in it.
A line a mode: medians over the repetitions of the first step cold and warm, of a later step (which is in either), and
the share. Every run is a record in ``--out``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from tpubench.accounting import Assumptions
from tpubench.cells import Asked, cells
from tpubench.conditions import Conditions
from tpubench.record import Record
from tpubench.runner import run_cells


def main() -> None:
    """Print a line a mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small", help="size of resnet")
    parser.add_argument("--batch", default=None, help="batch, the size's own by default")
    parser.add_argument("--mode", default="eager,compile", help="modes of the embedded backend")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions")
    parser.add_argument("--out", type=Path, default=None, help="where the records go; nowhere by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tpubench-bench-") as scratch:
        out, caches = given.out or Path(scratch) / "records", Path(scratch) / "caches"
        asked = Asked(
            "resnet", mode=given.mode, size=given.size, batch=given.batch, steps=6, cache="cold,warm"
        )  # fmt: skip
        runs: dict[tuple[str, str], list[Record]] = {}
        for _ in range(given.repeat):
            conditions = Conditions(cache_dir=caches)
            for record, _path in run_cells(cells(asked), out, timeout=3600, given=Assumptions(), conditions=conditions):
                if not record.ok:
                    raise SystemExit(f"{record.spec.label}: {record.status}: {record.reason}")
                runs.setdefault((record.mode, record.cache), []).append(record)
    first = runs[next(iter(runs))][0]
    print(f"resnet {first.size}, batch {first.batch}, training, {first.cpu_model}, {first.threads} threads")
    print(f"{'mode':<10} {'cold s':>8} {'warm s':>8} {'step s':>8} {'warm/cold':>10} {'compiled':>9} {'from disk':>10}")
    for mode in given.mode.split(","):
        cold, warm = runs[mode, "cold"], runs[mode, "warm"]
        figures = [statistics.median(r.warmup_s[0] for r in of) for of in (cold, warm)]
        step = statistics.median(r.step_median_s or 0 for r in warm)
        share = figures[1] / figures[0]
        counts = f"{cold[-1].compile_misses:>9} {warm[-1].disk_hits:>10}"
        print(f"{mode:<10} {figures[0]:8.2f} {figures[1]:8.2f} {step:8.2f} {share:10.1%} {counts}")


if __name__ == "__main__":
    main()
