"""What is read from a profile, against profiles whose content is known."""

import csv
import io
import json

import pytest

from backend.xspace import Event, PlaneWriter, XSpace
from tpubench.errors import TraceIncomplete, TraceNotFound
from tpubench.trace.logdir import runs
from tpubench.trace.report import render
from tpubench.trace.summary import categorise, self_times, summarize

MS = 1e6


def tpu_profile():
    """Two steps of 10 ms on a TPU, 1 ms apart: 8 ms and 6 ms of ops in them."""
    space = XSpace()
    host = PlaneWriter(space, "/host:CPU")
    line = host.line("python")
    for i in range(2):
        host.event(line, "step", i * 11 * MS, 10 * MS, {"_r": 1, "step_num": i})
    device = PlaneWriter(space, "/device:TPU:0")
    steps, ops = device.line("Steps"), device.line("XLA Ops")
    other = device.line("XLA Modules")
    fusion = {"hlo_category": "convolution fusion", "hlo_module": "jit_step"}
    for i in range(2):
        start = i * 11 * MS
        device.event(steps, str(i), start, 10 * MS)
        device.event(other, "jit_step", start, 10 * MS)
        device.event(ops, "fusion.1", start, 4 * MS, fusion)
        device.event(ops, "all-reduce.2", start + 4 * MS, 2 * MS)
        if i == 0:
            device.event(
                ops,
                "fusion.1",
                start + 8 * MS,
                2 * MS,
                {"hlo_category": "convolution fusion", "hlo_module": "jit_step"},
            )
    device.event(ops, "before", -5 * MS, 1 * MS)
    return space.SerializeToString()


@pytest.fixture
def write(tmp_path):
    def put(data, run="run-1"):
        path = tmp_path / "plugins" / "profile" / run / "host.xplane.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        return path

    return put


def test_a_tpus_profile_is_summed_up_exactly(write):
    (plane,) = summarize(write(tpu_profile())).planes
    assert plane.name == "/device:TPU:0" and plane.is_device
    assert plane.step_ns == (10 * MS, 10 * MS) and plane.step_median_ns == 10 * MS
    assert plane.window_ns == 21 * MS and plane.busy_ns == 14 * MS
    assert plane.idle_share == pytest.approx(1 / 3)
    first, second = plane.ops
    assert (first.name, first.module, first.category, first.count) == ("fusion.1", "jit_step", "convolution fusion", 3)
    assert first.total_ns == 10 * MS and first.share == pytest.approx(10 / 14)
    assert (second.name, second.category, second.total_ns) == ("all-reduce.2", "collective", 4 * MS)


def test_ops_inside_ops_are_counted_once():
    events = [Event("outer", 0, 10, {}), Event("inner", 2, 3, {}), Event("leaf", 3, 1, {}), Event("next", 10, 5, {})]
    own = {event.name: time for event, time in self_times(events)}
    assert own == {"outer": 7, "inner": 2, "leaf": 1, "next": 5}


def test_threads_that_overlap_are_busy_once(write):
    space = XSpace()
    host = PlaneWriter(space, "/host:CPU")
    host.event(host.line("python"), "step", 0, 10 * MS, {"_r": 1, "step_num": 0})
    for thread in range(2):
        line = host.line(f"thread {thread}")
        host.event(line, "dot.1", 1 * MS, 4 * MS, {"hlo_op": "dot.1", "hlo_module": "jit_f"})
        host.event(line, "ThunkExecutor::Execute", 0, 9 * MS)
    (plane,) = summarize(write(space.SerializeToString())).planes
    assert plane.busy_ns == 4 * MS and plane.ops[0].total_ns == 8 * MS and not plane.is_device
    assert plane.ops[0].category == "matmul" and len(plane.ops) == 1


def without(what):
    space = XSpace()
    host = PlaneWriter(space, "/host:CPU")
    line = host.line("thread")
    if what != "steps":
        host.event(line, "step", 0, MS, {"_r": 1, "step_num": 0})
    if what != "ops":
        host.event(line, "dot", 0, MS, {"hlo_op": "dot"})
    return space.SerializeToString()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (without("steps"), "marks no steps"),
        (without("ops"), "holds no ops"),
        (tpu_profile()[:-7], "cannot be read"),
        (b"", "nothing is in it"),
        (b"no profile", "cannot be read"),
    ],
)
def test_what_is_missing_is_said(write, data, says):
    with pytest.raises(TraceIncomplete, match=says) as error:
        summarize(write(data))
    assert error.value.exit_code == 1


def test_the_summary_reads_well_in_every_format(write):
    summary = summarize(write(tpu_profile()))
    table = render(summary, "table", top=1).splitlines()
    assert table[0] == "/device:TPU:0: 2 steps in 21 ms, median step 10 ms, ops running 66.7% of it"
    assert table[3].split() == ["fusion.1", "jit_step", "convolution", "fusion", "3", "10.000", "71.4%"]
    assert table[4].strip() == "1 more ops, 28.6%"
    rows = list(csv.DictReader(io.StringIO(render(summary, "csv", top=10))))
    assert [r["op"] for r in rows] == ["fusion.1", "all-reduce.2"] and rows[0]["plane"] == "/device:TPU:0"
    data = json.loads(render(summary, "json", top=10))
    assert data["steps"] == 2 and data["planes"][0]["ops"][1]["category"] == "collective"
    assert "| fusion.1 | jit_step |" in render(summary, "md", top=10)


@pytest.mark.parametrize(
    ("name", "module", "category"),
    [
        ("convolution.3", "jit_backward_1", "convolution"),
        ("wrapped_add.57", "jit_aten__foreach_add_List", "elementwise"),
        ("fusion.2", "jit_aten_convolution", "convolution"),
        ("aten::addmm", "", "matmul"),
        ("aten::copy_", "", "copy"),
        ("reduce-window.1", "jit_f", "reduction"),
        ("ynn_fusion.62", "jit_forward_0", "library"),
        ("thing", "", "other"),
    ],
)
def test_ops_are_put_into_categories(name, module, category):
    assert categorise(name, module) == category


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(TraceNotFound, match=f"no capture is in '{tmp_path}'"):
        runs(tmp_path)


def test_captures_are_found_newest_last(write, tmp_path):
    import os

    for n, run in enumerate(("b", "a")):
        os.utime(write(tpu_profile(), run), (n, n))
    assert [(r.name, r.host) for r in runs(tmp_path)] == [("b", "host"), ("a", "host")]


def test_a_folder_without_captures_says_which_is_right(write, tmp_path):
    path = write(tpu_profile())
    with pytest.raises(TraceNotFound, match="there is no folder"):
        runs(tmp_path / "nowhere")
    with pytest.raises(TraceNotFound, match=f"lies inside a log directory: give --dir '{tmp_path}'"):
        runs(path.parent.parent)
    with pytest.raises(TraceNotFound, match=f"give --dir '{tmp_path}'"):
        runs(tmp_path.parent)
