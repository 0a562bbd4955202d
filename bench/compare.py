"""How long ``tpubench compare`` takes over many records, beside an interpreter that imports pyarrow.

    python bench/compare.py                      # 1000 and 10000 files
    python bench/compare.py --files 1000 --repeat 5

Each file is a record as ``tpubench run`` writes it, with 30 invented step times; nothing is measured but
``compare`` itself. A line a case: files, how they fall into cells, the fastest of the repetitions.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tpubench import store
from tpubench.record import Record, Status
from tpubench.spec import Spec

MODES = (("torch", "eager"), ("torch", "compile"), ("embedded", "eager"), ("embedded", "compile"))


def synthesize(directory: Path, files: int, runs: int) -> None:
    """Write ``files`` records: cells of ``runs`` runs, four modes a piece of work."""
    rng = random.Random(0)
    for number in range(files):
        cell = number // runs
        backend, mode = MODES[cell % len(MODES)]
        spec = Spec("resnet", "small", backend, mode, optimizer="sgd", batch=1 + cell // len(MODES))
        steps = [0.1 * rng.lognormvariate(0, 0.05) for _ in range(spec.steps)]
        created = f"2026-12-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}.000Z"
        record = Record.of(
            spec, run_id=f"{number}-{spec.fingerprint}", created=created, status=Status.OK, step_s=steps,
            warmup_s=[2.0, 0.1, 0.1, 0.1], losses=[7.0] * 5, reference_losses=[7.0], item="image",
            items_per_step=float(spec.batch), model_flops=1e10, analytic_flops=1e10, chips=1, host="invented",
            device_name="cpu", correctness="matched",
        )  # fmt: skip
        store.write(record, directory)


def fastest(command: list[str], repeat: int) -> float:
    """Seconds of the fastest of ``repeat`` runs of ``command``.

    Raises:
        CalledProcessError: it failed.
    """
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="1000,10000", help="numbers of files, separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, of which the fastest counts")
    given = parser.parse_args()
    base = fastest(["-c", "import pyarrow"], given.repeat)
    print(f"import pyarrow                        {base:7.2f} s")
    for files in (int(n) for n in given.files.split(",")):
        for runs in (1, 5):
            with tempfile.TemporaryDirectory(prefix="tpubench-bench-") as folder:
                synthesize(Path(folder), files, runs)
                took = fastest(["-P", "-m", "tpubench", "compare", folder], given.repeat)
            what = f"compare, {files} files, {runs} run{'s' if runs > 1 else ''} a cell"
            print(f"{what:<37} {took:7.2f} s  {took / base:6.1f} x", flush=True)


if __name__ == "__main__":
    main()
