"""XSpace: what is written is read back, and jax's own files are understood."""

import jax
import pytest

from backend.capture import jax_profile
from backend.chrome import chrome_to_xspace
from backend.xspace import NotAnXSpace, PlaneWriter, XSpace, parse


def test_what_is_written_is_read_back():
    space = XSpace()
    plane = PlaneWriter(space, "/device:TPU:0")
    line = plane.line("XLA Ops")
    plane.event(line, "fusion.1", 1000.5, 250.25, {"hlo_op": "fusion.1", "n": 3, "share": 0.5})
    plane.event(line, "fusion.1", 2000, 1)
    (got,) = parse(space.SerializeToString())
    assert got.name == "/device:TPU:0"
    first, second = got.lines[0].events
    assert (first.name, first.start_ns, first.duration_ns) == ("fusion.1", 1000.5, 250.25)
    assert first.stats == {"hlo_op": "fusion.1", "n": 3, "share": 0.5}
    assert second.end_ns == 2001


@pytest.mark.parametrize("data", [b"not a profile", b"\x0a\xff\xff"])
def test_other_bytes_are_refused(data):
    with pytest.raises(NotAnXSpace):
        parse(data)


def test_a_torn_file_is_refused():
    space = XSpace()
    plane = PlaneWriter(space, "/host:CPU")
    plane.event(plane.line("thread"), "op", 0, 1)
    with pytest.raises(NotAnXSpace):
        parse(space.SerializeToString()[:-3])


def test_jaxs_own_profile_is_understood(tmp_path):
    step = jax.jit(lambda x: (x @ x).sum())
    x = jax.numpy.ones((64, 64))
    step(x).block_until_ready()
    path = jax_profile(tmp_path, "run-1", 3, lambda: step(x), jax.block_until_ready)
    assert path.parent == tmp_path / "plugins" / "profile" / "run-1"
    # jax's reader of the same bytes is the peer.
    theirs = jax.profiler.ProfileData.from_file(str(path))
    ours = {p.name: p for p in parse(path.read_bytes())}
    assert {p.name for p in theirs.planes} == set(ours)
    host = next(p for p in theirs.planes if p.name == "/host:CPU")
    counted = sum(1 for line in host.lines for _ in line.events)
    assert sum(len(line.events) for line in ours["/host:CPU"].lines) == counted
    steps = [e for line in ours["/host:CPU"].lines for e in line.events if "step_num" in e.stats]
    assert sorted(e.stats["step_num"] for e in steps) == [0, 1, 2]


def test_chrome_events_become_planes_lines_and_steps():
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "step#0", "ts": 100.0, "dur": 50.0, "tid": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 110.0, "dur": 20.0, "tid": 1},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 120.0, "dur": 5.0, "tid": 7, "args": {"device": 2}},
        {"ph": "M", "name": "process_name"},
    ]
    planes = {p.name: p for p in parse(chrome_to_xspace(events, "host"))}
    step, op = planes["/host:CPU"].lines[0].events
    assert step.stats == {"_r": 1, "step_num": 0} and (step.start_ns, step.duration_ns) == (0, 50_000)
    assert op.stats["tf_op"] == "aten::mm:mm" and op.start_ns == 10_000
    (kernel,) = planes["/device:GPU:2"].lines[0].events
    assert (kernel.name, kernel.start_ns) == ("gemm", 20_000)
