"""Cells in workers: every way to end is a row, nothing finished is lost, nothing is left running."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from records import make_spec

from tpubench import runner, store
from tpubench.accounting import Assumptions
from tpubench.record import Status

pytestmark = pytest.mark.usefixtures("plugin")


def spec(size="tiny", **fields):
    base = {"workload": "load", "size": size, "backend": "fake", "mode": "eager", "batch": 4, "steps": 6}
    return make_spec(**{**base, **fields})


def run(size="tiny", timeout=60, **fields):
    events = []
    return runner.run_cell(spec(size, **fields), timeout=timeout, on_event=events.append), events


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A zombie has ended; whoever should reap it has not yet.
    return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


PHASES = ["build", "warmup", "timed", "device time", "count", "check"]


def test_a_good_cell():
    record, events = run()
    assert record.status == "ok" and record.reason is None, record
    assert len(record.step_s) == len(record.dispatch_s) == 6 and len(record.warmup_s) == 3
    assert all(0 < d <= s for d, s in zip(record.dispatch_s, record.step_s, strict=True))
    assert record.correctness == "matched" and len(record.losses) == 3
    assert record.model_flops == record.analytic_flops == 2 * 2 * 4 * 3 * 2
    assert record.items_per_step == 4 and record.item == "sample"
    assert record.peak_memory_bytes > 10**7 and record.peak_memory_kind == "host-rss"
    assert record.torch_version and record.cpu_count and record.host and record.created.endswith("Z")
    assert [e["name"] for e in events if e["event"] == "phase"] == PHASES
    assert record.spec == spec()
    assert 0 < record.device_s < 1 and "3 traced steps" in record.device_s_reason


def test_a_run_that_cannot_be_traced_keeps_its_times():
    record, _ = run("untraceable")
    assert record.status == "ok" and record.device_s is None
    assert record.device_s_reason == "no trace: RuntimeError: no profiler here"


def test_inference_is_checked_by_its_output():
    record, _ = run(phase="infer")
    assert record.status == "ok" and record.losses == []
    assert record.correctness_detail.startswith("output against plain PyTorch")


@pytest.mark.parametrize(
    ("size", "status", "reason"),
    [
        ("raises", "error", "the model is broken"),
        ("oom", "oom", "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes"),
        ("unsupported", "unsupported", "not with this model"),
        ("dies", "error", "the worker was ended by SIGKILL (often the kernel, out of memory)"),
        ("segfaults", "error", "the worker was ended by SIGSEGV"),
        ("recompiles", "recompiled", "1 programs were compiled or loaded in the 6 timed steps"),
        (
            "always-compiles",
            "error",
            "warm-up never settled: something was still compiled in the last 2 of its 20 steps",
        ),
        ("wrong", "mismatched", "more than 1e-05"),
        ("nan", "mismatched", "finite on one side only, step 1: nan"),
        ("strange-signal", "error", f"the worker was ended by signal {signal.SIGRTMIN + 3}"),
        ("leaves", "error", "the step asked to leave the process (exit code 3)"),
    ],
)
def test_every_way_to_fail_is_a_row(size, status, reason):
    record, _ = run(size)
    assert record.status == status and reason in record.reason
    assert "\n" not in record.reason


def test_what_fails_after_the_timed_steps_costs_its_own_fields_only():
    record, _ = run("no-reference")
    assert record.status == "ok" and len(record.step_s) == 6 and record.reference_losses == []
    assert record.correctness == "not checked"
    assert record.correctness_detail == "plain PyTorch on the CPU failed: MemoryError: the reference does not fit"
    record, _ = run("no-formula")
    assert record.status == "ok" and len(record.step_s) == 6 and record.model_flops is None
    assert record.mfu_reason == "the formula of the FLOPs fails: ValueError: nobody worked it out"
    assert record.mfu_reason in record.warnings


def test_a_backend_that_says_odd_things_costs_no_row_and_overrules_nothing():
    record, _ = run("odd-facts")
    assert record.status == "ok" and record.seed == 0 and record.threads == 3
    assert record.compile_requests is None and record.warnings == ["no cache counters: KeyError: 'lost'"]


@pytest.mark.parametrize(
    ("size", "timeout", "status", "reason"),
    [
        ("trace-crashes", 60, "error", "the worker was ended by SIGSEGV"),
        pytest.param("trace-hangs", 8, "timeout", "no result after 8 s", marks=pytest.mark.slow),
    ],
)
def test_samples_outlive_a_worker_that_ends_after_its_timed_steps(size, timeout, status, reason):
    record, _ = run(size, timeout=timeout)
    assert record.status == status and record.reason.startswith(reason)
    assert record.reason.endswith("the timed steps were done before, their samples are kept")
    assert len(record.step_s) == 6 and len(record.losses) == 3 and record.peak_memory_bytes and record.torch_version


def test_the_steps_before_one_that_fails_are_kept():
    record, _ = run("fails-late")
    assert record.status == "error" and record.reason == "not today" and record.error_class == "ValueError"
    assert len(record.warmup_s) == 3 and len(record.step_s) == 2
    record, _ = run("always-compiles")
    assert len(record.warmup_s) == record.warmup_max == 20 and record.step_s == []


def test_a_backend_without_an_environment_is_a_row():
    record, _ = run(mode="homeless")
    assert record.status == "error" and record.error_class == "RuntimeError"
    assert record.reason == "no worker could be started: no home for this mode"


def test_a_dead_worker_is_noticed_although_its_child_holds_the_pipe():
    began = time.monotonic()
    record, _ = run("forks", timeout=50)
    assert record.status == "error" and record.exit_signal == signal.SIGKILL
    assert time.monotonic() - began < 40


def test_no_end_of_time_is_a_timeout_too():
    record, _ = run(timeout=float("inf"))
    assert record.status == "ok"


def test_what_a_dead_worker_printed_is_kept():
    record, _ = run("raises")
    assert record.error_class == "ValueError" and 'raise ValueError("the model' in record.error_output
    record, _ = run("segfaults")
    assert record.exit_signal == signal.SIGSEGV and record.error_class == "WorkerDied"


def test_numbers_of_a_row_that_is_not_ok_are_withheld(tmp_path):
    for size in ("recompiles", "wrong"):
        ((record, path),) = runner.run_cells([spec(size)], tmp_path, timeout=60, given=Assumptions(peak_tflops=1))
        assert len(record.step_s) == 6
        assert (record.step_median_s, record.items_per_s, record.mfu) == (None, None, None)
        assert store.read(path) == record


def test_a_cell_that_hangs_is_given_up_and_everything_it_started_ends(tmp_path):
    record, _ = run("spawns", timeout=8)
    assert record.status == "timeout" and "no result after 8 s: raise --timeout" in record.reason
    child = int((tmp_path / "pid").read_text())
    wait_for(lambda: gone(child))


def test_what_a_model_prints_is_not_taken_for_an_answer():
    record, _ = run("prints")
    assert record.status == "ok" and len(record.step_s) == 6


def test_what_is_known_to_be_impossible_starts_nothing(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    for fields, reason in (
        ({"mode": "lazy"}, "mode lazy: this backend is not lazy"),
        ({"mode": "eager-fused"}, "fake has no mode 'eager-fused'"),
        ({"device": "tpu"}, "fake has no device 'tpu'"),
    ):
        record, _ = run(**fields)
        assert record.status == "unsupported" and reason in record.reason


def test_each_row_is_on_disk_before_the_next_cell_starts(tmp_path):
    out = tmp_path / "out"
    seen = []

    def watch(cell, event):
        if event["event"] == "start":
            seen.append(len(list(out.glob("*.parquet"))))

    specs = [spec(seed=n) for n in range(3)]
    list(runner.run_cells(specs, out, timeout=60, given=Assumptions(), on_event=watch))
    assert seen == [0, 1, 2]


def start_cli(tmp_path, *sizes):
    """Four cells on the way: ``tpubench run`` in a process of its own."""
    command = [sys.executable, "-P", "-m", "tpubench", "run", "load", "--backend", "fake", "--size", ",".join(sizes)]
    return subprocess.Popen(
        [*command, "--steps", "6", "--out", "out"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def workers_of(pid):
    """The worker processes whose parent is ``pid``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"tpubench.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


@pytest.mark.parametrize("stuck", ["hangs", "holds-the-lock"])
def test_killing_the_runner_loses_no_finished_row_and_leaves_no_worker(tmp_path, stuck):
    process = start_cli(tmp_path, "tiny", "small", stuck, "full")
    out = tmp_path / "out"
    wait_for(lambda: len(list(out.glob("*.parquet"))) == 2, 60)
    wait_for(lambda: workers_of(process.pid))
    (worker,) = workers_of(process.pid)
    if stuck == "holds-the-lock":
        wait_for((tmp_path / "pid").exists)
    process.kill()
    process.wait()
    wait_for(lambda: gone(worker))
    records, problems = store.read_many([str(out)])
    assert [r.size for r in records] == ["tiny", "small"] and all(r.ok for r in records) and not problems


def test_killing_a_worker_costs_its_row_alone(tmp_path):
    process = start_cli(tmp_path, "tiny", "hangs", "small", "full")
    out = tmp_path / "out"
    wait_for(lambda: len(list(out.glob("*.parquet"))) == 1, 60)
    wait_for(lambda: workers_of(process.pid))
    time.sleep(1)  # into its first step
    (worker,) = workers_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == 1
    records, _ = store.read_many([str(out)])
    assert [(r.size, r.status) for r in records] == [
        ("tiny", "ok"), ("hangs", "error"), ("small", "ok"), ("full", "ok")
    ]  # fmt: skip
    assert records[1].exit_signal == signal.SIGKILL


def test_ctrl_c_ends_cleanly_and_keeps_what_is_finished(tmp_path):
    process = start_cli(tmp_path, "tiny", "hangs", "small")
    out = tmp_path / "out"
    wait_for(lambda: len(list(out.glob("*.parquet"))) == 1, 60)
    wait_for(lambda: workers_of(process.pid))
    (worker,) = workers_of(process.pid)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in stderr
    assert "interrupted: 2 of 3 cells did not run" in stderr and "load/tiny" in stdout
    assert gone(worker) and len(list(out.glob("*.parquet"))) == 1


def test_a_scheduler_ends_it_cleanly_too(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    process = start_cli(tmp_path, "tiny", "hangs")
    wait_for(lambda: len(list((tmp_path / "out").glob("*.parquet"))) == 1, 60)
    wait_for(lambda: workers_of(process.pid))
    (worker,) = workers_of(process.pid)
    process.terminate()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in stderr
    assert gone(worker) and not list(scratch.glob("tpubench-*"))


def test_a_run_says_what_it_did_and_what_to_type_next(tmp_path):
    process = start_cli(tmp_path, "tiny", "raises")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "[1/2] load/tiny fake:eager ok in" in stderr and "[2/2] load/raises fake:eager error in" in stderr
    assert "2 records in out:" in stdout and "compare: tpubench compare 'out/*.parquet'" in stdout


def test_statuses_are_what_the_design_names():
    named = {"ok", "oom", "timeout", "error", "unsupported", "recompiled", "mismatched", "skipped"}
    assert {str(s) for s in Status} == named
