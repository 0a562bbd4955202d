"""Two processes that fill one cache on disk at the same time, with programs of real ops."""

import os
import subprocess
import sys

import pytest

#: A hundred rounds: every round needs a program that the other process is making just now.
WORK = """
import sys, torch
from backend.embedded.device import activate
from backend.embedded.cache import COUNTERS

activate()
rounds = int(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for size in range(1, rounds + 1):
    host = torch.arange(float(size))
    x = host.to("pjrt")
    got = ((x * 2.5 + 1).cumsum(0) - x.flip(0)).cpu()
    assert torch.equal(got, (host * 2.5 + 1).cumsum(0) - host.flip(0)) or torch.allclose(
        got, (host * 2.5 + 1).cumsum(0) - host.flip(0), rtol=1e-6
    ), size
from backend.embedded import disk
use = disk.current().use
print(COUNTERS.misses, use.hits, use.rejected, use.unwritten, flush=True)
"""


@pytest.mark.slow
def test_two_processes_fill_one_cache_for_a_hundred_rounds(tmp_path):
    environment = {**os.environ, "TPUBENCH_CACHE_DIR": str(tmp_path)}

    def start():
        return subprocess.Popen(
            [sys.executable, "-c", WORK, "100"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment,
        )  # fmt: skip

    both = [start(), start()]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    figures = []
    for process in both:
        printed, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        figures.append([int(n) for n in printed.split()])
    assert all(rejected == unwritten == 0 for _, _, rejected, unwritten in figures)
    with start() as third:
        printed, error = third.communicate("go\n", timeout=300)
    assert third.returncode == 0, error
    misses, hits, *_ = (int(n) for n in printed.split()[1:])
    assert misses == 0 and hits >= 300
