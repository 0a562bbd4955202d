"""The worker's side of the channel, spoken to as the runner does, and what it makes of an exception."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from records import make_spec

from backend.protocol import Unsupported
from tpubench import facts
from tpubench.failure import failure, one_line, plain

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel sends a signal when a pipe closes")


def request(scratch, size="tiny", **fields):
    base = {"workload": "load", "size": size, "backend": "fake", "mode": "eager", "batch": 4, "steps": 4}
    return {"run": make_spec(**{**base, **fields}).to_dict(), "cache_dir": str(scratch)}


@contextlib.contextmanager
def start(*command, stdin=subprocess.PIPE):
    """A worker, or ``command``, in a group of its own, which ends with the block whatever becomes of it."""
    process = subprocess.Popen(
        [*(command or (sys.executable, "-P", "-m", "tpubench.worker"))],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
            with contextlib.suppress(OSError):
                stream.close()


def ask(process, message):
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def answer(message):
    """Every event of a request, the exit code, and what was printed beside."""
    with start() as process:
        ask(process, message)
        events = [json.loads(line) for line in process.stdout]
        return events, process.wait(timeout=30), process.stderr.read()


def test_a_cell_from_request_to_record(plugin, tmp_path):
    events, code, _ = answer(request(tmp_path))
    assert code == 0
    assert events[0]["event"] == "hello" and events[-1]["event"] == "record"
    steps = [e for e in events if e["event"] == "step"]
    assert [(e["phase"], e["i"], e["compiles"]) for e in steps] == [("warmup", i, 0) for i in range(3)]
    kinds = [e["event"] for e in events]
    (measured,) = (e["fields"] for e in events if e["event"] == "measured")
    assert kinds.index("measured") == [e.get("name") for e in events].index("device time") - 1
    record = events[-1]["fields"]
    assert measured["step_s"] == record["step_s"] and len(record["step_s"]) == 4 and "status" not in measured
    # The reference and the trace come later and are not in the peak.
    assert measured["peak_memory_bytes"] == record["peak_memory_bytes"]


@pytest.mark.parametrize("size", ["prints", "oom"])
def test_standard_output_holds_events_and_nothing_else(plugin, tmp_path, size):
    events, code, printed = answer(request(tmp_path, size))
    assert code == 0 and [e["event"] for e in events].count("record") == 1
    if size == "prints":
        assert '{"event": "record", "fields": {}}' in printed and "from a child" in printed
    else:
        assert events[-1]["fields"]["status"] == "oom" and "Traceback" in printed


def test_a_workload_nobody_offers_is_an_error_event(tmp_path):
    events, code, _ = answer(request(tmp_path, workload="nothing"))
    assert code == 0
    assert events[-1] == {
        "event": "error", "status": "error", "reason": "no workload is called 'nothing'",
        "error_class": "UnknownWorkload",
    }  # fmt: skip


def test_a_trace_is_written_where_it_was_asked_for(plugin, tmp_path):
    spec = request(tmp_path)["run"]
    where = tmp_path / "traces"
    message = {
        "trace": spec, "cache_dir": str(tmp_path), "directory": str(where), "run_name": "one", "steps": 2
    }  # fmt: skip
    events, code, _ = answer(message)
    assert code == 0 and [e["name"] for e in events if e["event"] == "phase"] == ["build", "warmup", "capture"]
    path = Path(events[-1]["path"])
    assert events[-1]["event"] == "trace" and path.stat().st_size > 100
    assert path.parent == where / "plugins" / "profile" / "one"


@pytest.mark.parametrize(
    "size",
    ["hangs", pytest.param("holds-the-lock", marks=LINUX), pytest.param("stops", marks=LINUX)],
)
def test_a_worker_ends_when_whoever_asked_is_gone(plugin, tmp_path, size):
    with start() as process:
        ask(process, request(tmp_path, size))
        for line in process.stdout:
            if json.loads(line).get("name") == "warmup":
                break
        deadline = time.monotonic() + 20
        while size != "hangs" and not (tmp_path / "pid").exists():
            assert time.monotonic() < deadline, "it never came to its step"
            time.sleep(0.05)
        process.stdin.close()
        assert process.wait(timeout=20) == -signal.SIGKILL


@pytest.mark.parametrize("through", ["pipe", "socket"])
def test_a_worker_started_by_hand_ends_itself_and_not_the_shell(plugin, tmp_path, through):
    """Of a socket the kernel sends no signal: there the worker's own thread has to see the end."""
    ours, theirs = socket.socketpair()
    command = f"{sys.executable} -P -m tpubench.worker; echo the shell lives"
    with ours, theirs, start("sh", "-c", command, stdin=theirs if through == "socket" else subprocess.PIPE) as process:
        theirs.close()
        stdin = process.stdin or ours.makefile("w")
        stdin.write(json.dumps(request(tmp_path, "hangs")) + "\n")
        stdin.flush()
        lines = []
        for line in process.stdout:
            lines.append(line)
            if '"warmup"' in line:
                stdin.close()
                ours.close()
        assert process.wait(timeout=20) == 0 and lines[-1] == "the shell lives\n"


def test_a_cell_needs_no_package_but_torch_and_numpy(plugin, tmp_path):
    """A worker may run in an interpreter that has nothing of what the command line needs."""
    (plugin / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import sys

            NAMES = {"typer", "rich", "pyarrow", "matplotlib", "pandas", "tensorboard", "xprof", "jax"}

            def without(finder):
                class Finder:
                    def find_spec(name, path=None, target=None):
                        if name.partition(".")[0] in NAMES or name == "google.protobuf":
                            return None
                        return finder.find_spec(name, path, target)

                    find_distributions = getattr(finder, "find_distributions", lambda context: ())

                return Finder

            sys.meta_path[:] = map(without, sys.meta_path)
            """
        )
    )
    events, code, printed = answer(request(tmp_path))
    record = events[-1]["fields"]
    assert code == 0 and record["status"] == "ok" and record["correctness"] == "matched", printed
    # A trace is protobuf: its absence costs the device time, and the row says so.
    assert record["device_s_reason"] == "no trace: ModuleNotFoundError: No module named 'google.protobuf'"


class Wrapped(Exception):
    """As torch.compile wraps what its backend raises."""

    def __init__(self, inner):
        super().__init__("backend failed")
        self.inner_exception = inner


STACK = (
    "Tried to allocate 9 GB Exception raised from malloc at Alloc.cpp:7 (most recent call first):\nframe #0: c10::Error"
)


@pytest.mark.parametrize(
    ("error", "status", "reason", "error_class"),
    [
        (Unsupported("no such mode"), "unsupported", "no such mode", "Unsupported"),
        (MemoryError(), "oom", "MemoryError", "MemoryError"),
        (RuntimeError("RESOURCE_EXHAUSTED: too big"), "oom", "RESOURCE_EXHAUSTED: too big", "RuntimeError"),
        (RuntimeError("CUDA out of memory."), "oom", "CUDA out of memory.", "RuntimeError"),
        (RuntimeError(STACK), "error", "Tried to allocate 9 GB", "RuntimeError"),
        (ValueError("two\n  lines"), "error", "two lines", "ValueError"),
        (ValueError(), "error", "ValueError", "ValueError"),
        (SystemExit(3), "error", "the step asked to leave the process (exit code 3)", "SystemExit"),
        (SystemExit(), "error", "the step asked to leave the process (exit code 0)", "SystemExit"),
        (Wrapped(Unsupported("no lowering")), "unsupported", "no lowering", "Unsupported"),
        (Wrapped(MemoryError("full")), "oom", "full", "MemoryError"),
    ],
)
def test_an_exception_is_a_status_and_one_line(error, status, reason, error_class):
    assert failure(error) == {"status": status, "reason": reason, "error_class": error_class}


def test_a_long_message_is_cut():
    assert one_line(ValueError("x" * 9999)) == "x" * 500 + " ..."


def test_what_json_has_no_word_for_becomes_plain():
    import numpy
    import torch

    values = [numpy.int64(3), numpy.float32(0.5), torch.tensor(2), Path("a")]
    assert json.dumps(values, default=plain) == '[3, 0.5, 2, "a"]'


def test_what_cannot_be_told_is_a_warning_and_the_rest_stands(capsys):
    fields = {"warnings": []}

    def fails():
        raise RuntimeError("asleep")

    facts.add(fields, "weather", fails)
    facts.add(fields, "time", lambda: {"hour": 3})
    assert fields == {"warnings": ["no weather: RuntimeError: asleep"], "hour": 3}
    assert "RuntimeError: asleep" in capsys.readouterr().err


class Told:
    """A backend's memory by its own count."""

    def memory_stats(self):
        return {"peak_bytes": 123, "kind": "device"}


class Untold:
    def memory_stats(self):
        return {}


def test_the_peak_is_the_devices_own_or_else_the_process_resident_memory():
    assert facts.memory(Told()) == {"peak_memory_bytes": 123, "peak_memory_kind": "device"}
    got = facts.memory(Untold())
    assert got["peak_memory_kind"] == "host-rss" and got["peak_memory_bytes"] > 10**7


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc on this system")
def test_the_resident_peak_is_not_the_parents():
    """getrusage's would be: exec keeps it."""
    code = "from tpubench import machine; print(machine.peak_rss_bytes())"
    big = (
        "import subprocess, sys; x = bytearray(400 << 20); "
        f"print(subprocess.run([sys.executable, '-P', '-c', {code!r}], capture_output=True, text=True).stdout)"
    )
    got = subprocess.run([sys.executable, "-P", "-c", big], capture_output=True, text=True, env=dict(os.environ))
    assert 0 < int(got.stdout) < 200 << 20
