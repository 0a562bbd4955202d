"""``TPUBENCH_TRACE_OPS`` and ``TPUBENCH_DUMP_HLO``: what runs, told by line and by program."""

import json
import re

import jax
import numpy as np
import pytest
import torch

from backend.embedded import disk, dump, oplog
from backend.embedded.disk import Disk
from backend.embedded.dispatch import Op

aten = torch.ops.aten


@pytest.fixture
def traced(pjrt, monkeypatch):
    monkeypatch.setenv(oplog.VARIABLE, "1")


@pytest.fixture
def kept(tmp_path):
    mine = Disk(tmp_path / "kept")
    before = disk.use(mine)
    yield mine
    disk.use(before)


def lines(capsys):
    return [re.sub(r"\d+\.\d+ ms", "T ms", line) for line in capsys.readouterr().err.splitlines()]


def test_each_launch_is_a_line_that_says_how_its_program_came_about(traced, kept, capsys):
    x = torch.ones(4, 4, device="pjrt")
    capsys.readouterr()
    for add in (Op(aten.add.Tensor), Op(aten.add.Tensor)):
        add((x, x), {})
        add((x, x), {})
    assert lines(capsys) == [
        "aten_add_Tensor f32[4,4] f32[4,4] -> f32[4,4] compiled T ms, launch T ms",
        "aten_add_Tensor f32[4,4] f32[4,4] -> f32[4,4] hit, launch T ms",
        "aten_add_Tensor f32[4,4] f32[4,4] -> f32[4,4] disk T ms, launch T ms",
        "aten_add_Tensor f32[4,4] f32[4,4] -> f32[4,4] hit, launch T ms",
    ]


def test_a_compiled_graph_is_a_line_a_launch(traced, capsys):
    x = torch.ones(3, device="pjrt")
    run = torch.compile(lambda x: torch.sin(x) * 2 + x, backend="pjrt", fullgraph=True)
    run(x)
    capsys.readouterr()
    run(x)
    (line,) = lines(capsys)
    assert re.fullmatch(r"graph_\d+ f32\[3\] -> f32\[3\] hit, launch T ms", line)


@pytest.mark.parametrize("value", [None, "", "0"])
def test_a_program_made_without_the_variable_launches_as_ever(pjrt, monkeypatch, capsys, value):
    monkeypatch.delenv(oplog.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(oplog.VARIABLE, value)
    monkeypatch.setattr(oplog, "traced", lambda *_: pytest.fail("the launch was wrapped"))
    add = Op(aten.add.Tensor)
    add((torch.ones(2, device="pjrt"), 3), {})
    assert capsys.readouterr().err == ""


def test_a_reader_that_is_gone_ends_no_run(traced, monkeypatch):
    monkeypatch.setenv(oplog.DESCRIPTOR_VARIABLE, "9999")
    x = torch.ones(2, device="pjrt")
    assert Op(aten.mul.Tensor)((x, x), {}).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", "f32"), ("bfloat16", "bf16"), ("float16", "f16"), ("int64", "s64"), ("uint8", "u8"), ("bool", "pred"),
     ("complex64", "c64")],
)  # fmt: skip
def test_dtypes_are_written_as_xla_does(dtype, expected):
    assert oplog.listed([jax.ShapeDtypeStruct((2, 3), dtype)]) == f"{expected}[2,3] "


def test_of_many_arrays_the_first_few_are_named():
    assert oplog.listed([np.zeros(())] * 9) == "f64[] " * 6 + "and 3 more "


@pytest.fixture
def dumped(pjrt, tmp_path, monkeypatch):
    monkeypatch.setattr(dump, "_written", 0)
    monkeypatch.setenv(dump.VARIABLE, str(tmp_path / "hlo"))
    return tmp_path / "hlo"


def index(folder):
    return [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]


def test_each_program_is_written_before_and_after_xla_once(dumped):
    x = torch.ones(4, 4, device="pjrt")
    matmul = Op(aten.mm.default)
    for _ in range(3):
        matmul((x, x), {})
    run = torch.compile(lambda x: torch.sin(x) @ x, backend="pjrt", fullgraph=True)
    run(x), run(x)
    found = {line["name"]: line for line in index(dumped)}
    assert [line["number"] for line in index(dumped)] == list(range(1, len(found) + 1))
    line = found["aten_mm"]
    assert line["signature"] == "f32[4,4] f32[4,4] -> f32[4,4]" and line["origin"] == "compiled"
    assert line["flops"] == 2 * 4**3 and line["bytes"] >= 3 * 64 and line["seconds"] > 0
    assert "stablehlo.dot_general" in (dumped / line["stablehlo"]).read_text()
    assert (dumped / line["optimised"]).read_text().startswith("HloModule jit_aten_mm")
    (graph,) = (name for name in found if name.startswith("graph_"))
    assert "stablehlo.sine" in (dumped / found[graph]["stablehlo"]).read_text()
    assert len(list(dumped.iterdir())) == 2 * len(found) + 1


def test_a_program_from_disk_is_written_too_and_says_so(dumped, kept):
    x = torch.ones(3, device="pjrt")
    Op(aten.exp.default)((x,), {})
    Op(aten.exp.default)((x,), {})
    first, second = (line for line in index(dumped) if line["name"] == "aten_exp")
    assert (first["origin"], second["origin"]) == ("compiled", "disk")
    texts = [(dumped / line["stablehlo"]).read_text() for line in (first, second)]
    assert texts[0] == texts[1] and (dumped / second["optimised"]).stat().st_size


def test_what_an_earlier_process_wrote_is_replaced_and_other_files_are_not(dumped, monkeypatch):
    x = torch.ones(3, device="pjrt")
    Op(aten.exp.default)((x,), {})
    (dumped / "mine.txt").touch()
    old = set(dumped.iterdir())
    monkeypatch.setattr(dump, "_written", 0)
    Op(aten.log.default)((x,), {})
    assert [line["name"] for line in index(dumped)] == ["aten_log"]
    assert len(list(dumped.iterdir())) == 4 and dumped / "mine.txt" in old
