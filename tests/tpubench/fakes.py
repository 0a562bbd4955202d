"""A backend and a workload for tests of what drives them: a plug-in package, written to a folder."""

import textwrap
from pathlib import Path

_PLUGIN = '''
import ctypes, os, signal, sys, time
from pathlib import Path

from backend.native import Native
from backend.protocol import Unsupported
from workloads.protocol import Built, Size
from workloads.synthetic import Synthetic


class Fake(Native):
    """torch on the CPU; the size of the workload tells what goes wrong."""

    name = "fake"
    summary = "for tests"

    def __init__(self):
        super().__init__()
        self.compiled = 0
        self.found = 0
        self.ran = False

    def modes(self):
        return {"eager": None, "compile": None, "homeless": None, "lazy": "this backend is not lazy"}

    def environment(self, device, mode, cache, cache_dir):
        if mode == "homeless":
            raise RuntimeError("no home for this mode")
        given = super().environment(device, mode, cache, cache_dir)
        return {**given, "TPUBENCH_TEST_CACHE": str(cache_dir)}

    def describe(self):
        told = super().describe()
        if WORKLOAD.size == "odd-facts":
            import numpy
            told |= {"colour": "red", "status": "splendid", "seed": 5, "threads": numpy.int64(3)}
        return told

    def cache_stats(self):
        if WORKLOAD.size == "odd-facts":
            raise KeyError("lost")
        if WORKLOAD.size in ("cached", "uncacheable") and self.ran:
            # One program, which a process finds where an earlier one left it.
            return {"requests": 1, "misses": 1 - self.found, "disk_requests": 1, "disk_hits": self.found,
                    "disk_misses": 1 - self.found, "disk_unwritten": int(WORKLOAD.size == "uncacheable")}
        return super().cache_stats()

    def devices(self):
        return {"cpu": None}

    def compile_count(self):
        return self.compiled

    def trace(self, directory, run, steps, step):
        if WORKLOAD.size == "untraceable":
            raise RuntimeError("no profiler here")
        if WORKLOAD.size == "trace-crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if WORKLOAD.size == "trace-hangs":
            time.sleep(600)
        return super().trace(directory, run, steps, step)

    def prepare(self, step, mode):
        program = Path(os.environ.get("TPUBENCH_TEST_CACHE", ".")) / "program"
        self.found = int(program.exists())
        if WORKLOAD.size == "cached":
            program.parent.mkdir(parents=True, exist_ok=True)
            program.touch()
        run = super().prepare(step, "eager")
        calls = 0

        def counted():
            nonlocal calls
            calls += 1
            self.ran = True
            if WORKLOAD.size == "always-compiles" or (WORKLOAD.size == "recompiles" and calls == 8):
                self.compiled += 1
            if WORKLOAD.size == "slow":
                time.sleep(0.2)
            return run()

        return counted


class WORKLOAD:
    size = None
    steps = 0
    built = 0


class Load:
    name = "load"
    summary = "for tests"
    item = "sample"
    phases = ("train", "infer")
    published = "full"
    optimizer = "sgd"
    flops_convention = "matmuls"
    sizes = {
        name: Size(name, batch=4)
        for name in (
            "tiny", "small", "full", "hangs", "dies", "segfaults", "oom", "raises", "prints", "unsupported",
            "always-compiles", "recompiles", "wrong", "nan", "slow", "spawns", "untraceable",
            "odd-facts", "trace-crashes", "trace-hangs", "no-reference", "no-formula", "forks", "strange-signal",
            "leaves", "holds-the-lock", "stops", "fails-late",
            "cached", "uncacheable",
        )
    }

    def build(self, size, phase, dtype, seed):
        import torch

        first = WORKLOAD.size is None
        WORKLOAD.size = size
        WORKLOAD.built += 1
        nth = WORKLOAD.built
        torch.manual_seed(seed)
        module = torch.nn.Linear(3, 2).to(dtype)

        def compute(module, x):
            y = module(x).square().mean()
            WORKLOAD.steps += 1
            # The first is measured, the second gives its FLOPs, the third is the reference.
            if size == "no-reference" and nth == 3:
                raise MemoryError("the reference does not fit")
            if size == "fails-late" and WORKLOAD.steps == 6:
                raise ValueError("not today")
            if size == "forks":
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            if size == "strange-signal":
                os.kill(os.getpid(), signal.SIGRTMIN + 3)
            if size == "leaves":
                sys.exit(3)
            if size in ("holds-the-lock", "stops"):
                Path(os.environ["TPUBENCH_TEST_PID"]).write_text(str(os.getpid()))
            if size == "holds-the-lock":
                ctypes.PyDLL(None).sleep(600)
            if size == "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
            if size == "hangs":
                time.sleep(600)
            if size == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if size == "segfaults":
                os.kill(os.getpid(), signal.SIGSEGV)
            if size == "oom":
                raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes")
            if size == "raises":
                raise ValueError("the model\\nis broken")
            if size == "prints":
                print('{"event": "record", "fields": {}}')
                os.system("echo from a child")
            if size == "unsupported":
                raise Unsupported("not with this model")
            if size == "wrong" and first:
                y = y * 1.001
            if size == "nan" and first:
                y = y * float("nan")
            if size == "spawns":
                import subprocess
                child = subprocess.Popen(["sleep", "600"])
                Path(os.environ["TPUBENCH_TEST_PID"]).write_text(str(child.pid))
                time.sleep(600)
            return y

        def make_batch(batch, seq_len, seed, device="cpu"):
            return (Synthetic(seed, device).noise(batch, 3, dtype=dtype),)

        return Built(module, make_batch, compute)

    def flops(self, size, phase, batch, seq_len):
        if size == "no-formula":
            raise ValueError("nobody worked it out")
        return (2 if phase == "train" else 1) * 2.0 * batch * 3 * 2

    def items(self, size, phase, batch, seq_len):
        return batch
'''

_ENTRY_POINTS = """
[tpubench.backends]
fake = tpubench_test_plugin:Fake

[tpubench.workloads]
load = tpubench_test_plugin:Load
"""


def install(folder: Path) -> None:
    """Write the plug-in into ``folder``, which then goes on a process's path."""
    (folder / "tpubench_test_plugin.py").write_text(textwrap.dedent(_PLUGIN))
    info = folder / "tpubench_test_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tpubench-test-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
