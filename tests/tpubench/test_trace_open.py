"""``tpubench trace open``: traces of others, written here from the published schemas, by other hands than ours."""

import gzip
import json

import jax
import pytest

from tpubench.errors import TraceIncomplete, TraceNotFound
from tpubench.trace.source import locate, planes_of, shown
from tpubench.trace.summary import summed

#: A TPU VM's profile as xplane.proto has it: 3 steps of 10 ms, 2 ms apart; in each 6 ms of a fusion, named by its
#: whole HLO text, 2 ms of a collective, and a copy in flight that is no op. The device's clock starts at 1 ms.
MS = 10**9  # picoseconds
STARTS = [0, 12 * MS, 24 * MS]
FUSION = "%fusion.1 = bf16[8,8]{1,0:T(8,128)} fusion(%p.0), kind=kOutput, calls=%fused_computation"


def events(metadata_id, offset, duration, stats=""):
    return "".join(
        f"events {{ metadata_id: {metadata_id} offset_ps: {s + offset} duration_ps: {duration} {stats} }}\n"
        for s in STARTS
    )


TPU = f"""
planes {{
  id: 1 name: "/device:TPU:0"
  lines {{ id: 1 name: "Steps" timestamp_ns: 1000000 {events(1, 0, 10 * MS)} }}
  lines {{ id: 2 name: "XLA Modules" timestamp_ns: 1000000 {events(2, 0, 10 * MS)} }}
  lines {{ id: 3 name: "XLA Ops" timestamp_ns: 1000000 {events(3, 0, 6 * MS)} {events(4, 7 * MS, 2 * MS)} }}
  lines {{ id: 4 name: "Async XLA Ops" timestamp_ns: 1000000 {events(5, 0, 10 * MS)} }}
  event_metadata {{ key: 1 value {{ id: 1 name: "0" }} }}
  event_metadata {{ key: 2 value {{ id: 2 name: "jit_step(7)" }} }}
  event_metadata {{ key: 3 value {{ id: 3 name: "{FUSION}" display_name: "fusion.1"
    stats {{ metadata_id: 1 str_value: "convolution fusion" }} stats {{ metadata_id: 2 ref_value: 3 }} }} }}
  event_metadata {{ key: 4 value {{ id: 4 name: "%all-reduce.2 = all-reduce(%x)" display_name: "all-reduce.2" }} }}
  event_metadata {{ key: 5 value {{ id: 5 name: "copy-start.1" }} }}
  stat_metadata {{ key: 1 value {{ id: 1 name: "hlo_category" }} }}
  stat_metadata {{ key: 2 value {{ id: 2 name: "hlo_module" }} }}
  stat_metadata {{ key: 3 value {{ id: 3 name: "jit_step" }} }}
}}
planes {{ id: 2 name: "/host:CPU" lines {{ id: 1 name: "python" }} }}
hostnames: "t1v-n-1234-w-0"
"""


@pytest.fixture
def tpu(tmp_path):
    path = tmp_path / "downloads" / "t1v-n-1234-w-0.xplane.pb"
    path.parent.mkdir()
    path.write_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(TPU))
    return path


def test_a_tpu_vms_trace_is_summed_up_exactly(tpu):
    summary = summed(tpu, planes_of(tpu))
    (plane,) = summary.planes
    assert (plane.name, plane.is_device, summary.steps) == ("/device:TPU:0", True, 3)
    assert plane.step_ns == (10e6, 10e6, 10e6) and plane.window_ns == 34e6
    assert plane.busy_ns == 24e6 and plane.idle_share == pytest.approx(10 / 34)
    assert [(o.name, o.module, o.category, o.count, o.total_ns, o.share) for o in plane.ops] == [
        ("fusion.1", "jit_step", "convolution fusion", 3, 18e6, 0.75),
        ("all-reduce.2", "", "collective", 3, 6e6, 0.25),
    ]


def test_it_is_opened_from_the_command_line(tpu, cli):
    for path in (tpu, tpu.parent):
        got = cli("trace", "open", str(path), "--no-serve", "--format", "json")
        assert got.returncode == 0, got.stderr
        (plane,) = json.loads(got.stdout)["planes"]
        assert plane["idle_share"] == pytest.approx(10 / 34)
        assert [(o["name"], o["share"]) for o in plane["ops"]] == [("fusion.1", 0.75), ("all-reduce.2", 0.25)]


def test_a_trace_without_marked_steps_is_summed_up_over_its_ops(tmp_path):
    path = tmp_path / "a.xplane.pb"
    text = TPU.replace('"Steps"', '"Other"')
    path.write_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(text))
    summary = summed(path, planes_of(path))
    # From the first op's start to the last one's end: 24 + 9 ms.
    assert summary.steps == 0 and summary.planes[0].window_ns == 33e6 and summary.planes[0].busy_ns == 24e6


#: What torch.profiler writes of two steps: its own step marker, an op in an op, a kernel on a stream.
TORCH = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        *(
            event
            for i in range(2)
            for event in (
                {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": 5e9 + 100 * i, "dur": 80},
                {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "ts": 5e9 + 100 * i + 10, "dur": 40},
                {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 5e9 + 100 * i + 20, "dur": 10},
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "gemm",
                    "ts": 5e9 + 100 * i + 40,
                    "dur": 20,
                    "args": {"device": 0},
                },
            )
        ),
    ],
}
for event in TORCH["traceEvents"]:
    event.update(pid=1, tid=7 if event.get("cat") == "kernel" else 1)


@pytest.mark.parametrize("packed", [True, False])
def test_a_torch_trace_is_summed_up_exactly(tmp_path, packed):
    text = json.dumps(TORCH).encode()
    path = tmp_path / ("worker.1.pt.trace.json" + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(text) if packed else text)
    summary = summed(path, planes_of(path))
    host, device = sorted(summary.planes, key=lambda p: p.is_device)
    assert summary.steps == 2 and host.step_ns == (80e3, 80e3) and host.window_ns == 180e3
    assert {o.name: o.total_ns for o in host.ops} == {"aten::linear": 60e3, "aten::addmm": 20e3}
    assert (device.name, device.ops[0].name, device.ops[0].total_ns) == ("/device:GPU:0", "gemm", 40e3)
    assert device.idle_share == pytest.approx(1 - 40 / 180)


def test_the_chrome_trace_of_xlas_tools_is_summed_up_too(tmp_path):
    names = [
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "/device:TPU:0"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 1, "args": {"name": "Steps"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 2, "args": {"name": "XLA Ops"}},
    ]
    spans = [
        {"ph": "X", "pid": 3, "tid": 1, "name": "0", "ts": 10, "dur": 100},
        {"ph": "X", "pid": 3, "tid": 2, "name": "fusion", "ts": 20, "dur": 25, "args": {"hlo_category": "loop fusion"}},
    ]
    path = tmp_path / "vm.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": names + spans}).encode()))
    (plane,) = summed(path, planes_of(path)).planes
    assert plane.step_ns == (100e3,) and plane.idle_share == 0.75 and plane.ops[0].category == "loop fusion"


def test_what_cannot_be_opened_is_said_in_one_line(tpu, tmp_path, cli):
    (tmp_path / "empty").mkdir()
    torn = tmp_path / "torn.xplane.pb"
    torn.write_bytes(tpu.read_bytes()[:-9])
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(json.dumps(TORCH).encode())[:-20])
    other = tmp_path / "other.json"
    other.write_text('{"loss": 1}')
    nothing = tmp_path / "nothing.xplane.pb"
    nothing.write_bytes(b"")
    for path, code, says in (
        (tmp_path / "empty", 2, "no capture is in"),
        (tmp_path / "nowhere", 2, "there is no"),
        (torn, 1, "cannot be read (no XSpace, or one that ends early)"),
        (cut, 1, "cannot be read (no JSON, or JSON that ends early)"),
        (other, 1, "cannot be read (JSON without a list of trace events)"),
        (nothing, 1, "cannot be read (nothing is in it)"),
    ):
        with pytest.raises((TraceIncomplete, TraceNotFound)) as error:
            source = locate(path)
            summed(source.path, planes_of(source.path))
        assert says in str(error.value) and str(path) in str(error.value) and error.value.exit_code == code
    got = cli("trace", "open", str(torn), "--no-serve")
    assert got.returncode == 1 and got.stderr.count("\n") == 1 and "cannot be read" in got.stderr


def test_a_folder_inside_a_log_directory_says_which_is_meant(tpu, tmp_path):
    run = tmp_path / "logs" / "plugins" / "profile" / "run-1"
    run.mkdir(parents=True)
    (run / tpu.name).write_bytes(tpu.read_bytes())
    for folder in (run.parent, run.parent.parent):
        with pytest.raises(TraceNotFound, match=f"lies inside a log directory: give '{tmp_path / 'logs'}'"):
            locate(folder)
    for named in (tmp_path / "logs", run, run / tpu.name):
        source = locate(named)
        assert source.path == run / tpu.name and source.directory == tmp_path / "logs"
        assert (source.run.name, source.run.host) == ("run-1", "t1v-n-1234-w-0")


def test_a_loose_trace_is_shown_from_a_log_directory_of_its_own(tmp_path):
    path = tmp_path / "worker.1.pt.trace.json"
    path.write_text(json.dumps(TORCH))
    with shown(locate(path)) as (directory, run):
        assert (run.name, run.host) == ("worker.1", "worker.1")
        assert run.path == directory / "plugins" / "profile" / "worker.1" / "worker.1.xplane.pb"
        assert [p.name for p in planes_of(run.path)] == ["/host:CPU", "/device:GPU:0"]
    assert not directory.exists() and path.exists()


@pytest.mark.parametrize(
    ("cut", "says"),
    [("XLA Ops", "nothing ran on /device:TPU:0"), ("/device:TPU:0", "tpubench trace captures")],
)
def test_a_trace_without_ops_says_what_to_do(tmp_path, cut, says):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(TPU.replace(cut, "other")))
    with pytest.raises(TraceIncomplete, match=says):
        summed(path, planes_of(path))


def test_what_names_no_command_of_trace_is_a_workload(cli):
    for arguments, says in (
        (["nosuch", "--no-serve"], "unknown workload 'nosuch'"),
        (["--size", "tiny", "nosuch", "--no-serve"], "unknown workload 'nosuch'"),
        (["capture", "open", "--no-serve"], "unknown workload 'open'"),
        (["open", "--bad"], "see `tpubench trace open --help`"),
    ):
        got = cli("trace", *arguments)
        assert got.returncode == 2 and says in got.stderr, got.stderr
