"""Programs and graphs from disk do what compiled ones do, and are found only where they are the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import torch

from backend.embedded import disk, identity
from backend.embedded.cache import COUNTERS
from backend.embedded.disk import Disk
from backend.embedded.dispatch import Op
from backend.embedded.identity import NoKey, text_of
from backend.embedded.layout import Layout
from backend.embedded.lower import TABLE

ROOT = Path(__file__).parents[3]

_PROCESS = """
import json, os, sys
import torch
from backend.embedded import disk
from backend.embedded.cache import COUNTERS
from backend.embedded.device import activate
from backend.embedded.mode import set_mode
from torch._dynamo.utils import counters

activate()
mode = sys.argv[1]
set_mode(mode)
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Dropout(0.25),
    torch.nn.Linear(48, 4)
).to("pjrt").double()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.randn(5, 1, 6, 6, dtype=torch.float64).to("pjrt").transpose(2, 3)
torch.manual_seed(1)

def compute(model, x):
    return torch.nn.functional.cross_entropy(model(x), torch.arange(5, device="pjrt") % 4)

if mode == "compile":
    compute = torch.compile(compute, backend="pjrt", fullgraph=True, dynamic=False)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = compute(model, x)
    loss.backward()
    optimizer.step()
    losses.append(loss.item().hex())
with torch.no_grad():
    total = float(sum(p.double().abs().sum() for p in model.state_dict().values()))
use = disk.current().use
print(json.dumps({
    "losses": losses, "total": total.hex(), "compiled": COUNTERS.misses, "loaded": COUNTERS.loads,
    "hits": COUNTERS.hits, "requests": COUNTERS.requests, "compile_s": COUNTERS.compile_s,
    "disk": [use.requests, use.hits, use.misses], "rejected": use.rejected, "written": use.written_bytes,
    "graphs": [counters["aot_autograd"][f"autograd_cache_{what}"] for what in ("hit", "miss", "saved", "bypass")],
}))
"""


def start(folder, mode, **variables):
    return subprocess.Popen(
        [sys.executable, "-c", _PROCESS, mode],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TPUBENCH_CACHE_DIR": str(folder), **variables},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def answer(process):
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return json.loads(out.splitlines()[-1])


def work(folder, mode, **variables):
    """What a process of its own says that trains a small model with its cache in ``folder``."""
    return answer(start(folder, mode, **variables))


@pytest.mark.parametrize("mode", ["eager", pytest.param("eager-fused", marks=pytest.mark.slow), "compile"])
def test_a_second_process_compiles_nothing_and_computes_the_same_bits(tmp_path, mode):
    cold, warm = work(tmp_path, mode), work(tmp_path, mode)
    assert (warm["losses"], warm["total"]) == (cold["losses"], cold["total"])
    assert cold["loaded"] == 0 and cold["compiled"] == cold["disk"][2] > 0 and cold["written"] > 0
    assert warm["compiled"] == warm["compile_s"] == warm["written"] == 0
    assert warm["loaded"] == cold["compiled"] and warm["disk"] == [cold["compiled"], cold["compiled"], 0]
    assert warm["hits"] + warm["loaded"] == warm["requests"] == cold["requests"]
    if mode == "compile":
        hit, miss, saved, bypass = cold["graphs"]
        assert (hit, bypass) == (0, 0) and miss == saved > 0
        assert warm["graphs"] == [miss, 0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "compile"])
def test_other_flags_find_nothing(tmp_path, mode):
    cold = work(tmp_path, mode)
    other = work(tmp_path, mode, XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert other["loaded"] == other["graphs"][0] == 0 and other["losses"] == cold["losses"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "compile"])
def test_what_is_torn_on_disk_is_compiled_anew_and_the_next_process_is_warm_again(tmp_path, mode):
    cold = work(tmp_path, mode)
    programs = sorted(tmp_path.glob("embedded/*.program"))
    for i, path in enumerate(programs):
        data = path.read_bytes()
        path.write_bytes((data[: len(data) // 2], b"", data[:-40] + b"0" * 40)[i % 3])
    for path in tmp_path.glob("graphs/**/*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:100])
    mended = work(tmp_path, mode)
    assert mended["rejected"] == mended["compiled"] == len(programs) and mended["losses"] == cold["losses"]
    warm = work(tmp_path, mode)
    assert warm["compiled"] == warm["rejected"] == 0 and warm["losses"] == cold["losses"]


@pytest.mark.slow
def test_a_graph_whose_programs_were_evicted_is_compiled_from_what_is_left(tmp_path):
    cold = work(tmp_path, "compile")
    for path in tmp_path.glob("embedded/*.program"):
        path.unlink()
    again = work(tmp_path, "compile")
    assert again["graphs"][0] > 0 and again["compiled"] == cold["compiled"]
    assert again["losses"] == cold["losses"]


@pytest.mark.slow
def test_two_processes_that_fill_one_cache_agree(tmp_path):
    for mode in ("eager", "compile"):
        both = [answer(p) for p in [start(tmp_path / mode, mode), start(tmp_path / mode, mode)]]
        assert both[0]["losses"] == both[1]["losses"] and not any(b["rejected"] for b in both)
        assert work(tmp_path / mode, mode)["compiled"] == 0


@pytest.fixture
def kept(tmp_path):
    """A cache of this test's own in this process."""
    mine = Disk(tmp_path / "kept")
    before = disk.use(mine)
    yield mine
    disk.use(before)


def again(op, *args, **kwargs):
    """``(programs compiled, loaded)`` by a call of ``op`` that no earlier one is remembered of."""
    compiled, loaded = COUNTERS.misses, COUNTERS.loads
    Op(op)(args, kwargs)
    return COUNTERS.misses - compiled, COUNTERS.loads - loaded


def test_a_program_is_found_where_all_it_depends_on_is_the_same(pjrt, kept):
    aten, x = torch.ops.aten, torch.arange(12.0, device=pjrt).reshape(3, 4)
    calls = [
        (aten.add.Tensor, (x, x)),
        (aten.add.Tensor, (x, x[0])),
        (aten.add.Tensor, (x.t(), x.t())),
        (aten.add.Tensor, (x, 1)),
        (aten.add.Tensor, (x, 1.0)),
        (aten.add.Tensor, (x, True)),
        (aten.add.Tensor, (x, 2)),
        (aten.add.Tensor, (x, 2.5)),
        (aten.add.Tensor, (x.double(), x.double())),
        (aten.add.Tensor, (x.int(), x.int())),
        (aten.sub.Tensor, (x, x)),
        (aten.sum.dim_IntList, (x, [0])),
        (aten.sum.dim_IntList, (x, [1])),
        (aten.sum.dim_IntList, (x, [0], True)),
        (aten.clamp.default, (x, 0.0, 1.0)),
        (aten.clamp.default, (x, -0.0, 1.0)),
        (aten.pow.Tensor_Scalar, (x, 2)),
        (aten.pow.Tensor_Scalar, (x, 3)),
        (aten.hardsigmoid_backward.default, (x, x)),  # by its decomposition
    ]
    for op, args in calls:
        assert again(op, *args) == (1, 0), (op, "was taken for another")
    for op, args in calls:
        assert again(op, *args) == (0, 1), (op, "was not found again")
    assert kept.use.hits == len(calls)


def test_a_numbers_value_that_is_an_input_needs_no_program_of_its_own(pjrt, kept):
    x = torch.ones(3, device=pjrt)
    assert again(torch.ops.aten.mul.Tensor, x, 2.5) == (1, 0)
    assert again(torch.ops.aten.mul.Tensor, x, 3.5) == (0, 1)


def settings():
    yield "default dtype", torch.set_default_dtype, torch.float64, torch.float32
    yield "torch's precision", torch.set_float32_matmul_precision, "medium", "highest"
    yield "determinism", torch.use_deterministic_algorithms, True, False
    yield "jax's precision", lambda v: jax.config.update("jax_default_matmul_precision", v), "bfloat16", None
    yield "64 bits", lambda v: jax.config.update("jax_enable_x64", v), False, True
    yield "promotion", lambda v: jax.config.update("jax_numpy_dtype_promotion", v), "strict", "standard"


@pytest.mark.parametrize("setting", settings(), ids=lambda s: s[0])
def test_a_setting_that_programs_depend_on_is_in_their_key(pjrt, setting):
    _, change, other, usual = setting
    before = identity.key("op")
    try:
        change(other)
        assert identity.key("op") != before
    finally:
        change(usual)
    assert identity.key("op") == before


def test_a_setting_of_one_thread_is_in_the_key_too(pjrt):
    before = identity.key("op")
    with jax.default_matmul_precision("bfloat16"):
        assert identity.key("op") != before


@pytest.mark.parametrize("part", ["SOURCE", "_processor"])
def test_another_source_or_processor_finds_nothing(pjrt, monkeypatch, part):
    before = identity.key("op")
    monkeypatch.setattr(identity, part, "another" if part == "SOURCE" else lambda: "another")
    identity.surroundings.cache_clear()
    try:
        assert identity.key("op") != before
    finally:
        monkeypatch.undo()
        identity.surroundings.cache_clear()


def test_every_module_of_the_backend_is_in_the_source(tmp_path, monkeypatch):
    import shutil

    copy = tmp_path / "embedded"
    shutil.copytree(Path(identity.__file__).parent, copy)
    monkeypatch.setattr(identity, "__file__", str(copy / "identity.py"))
    before = identity._source()
    assert before == identity.SOURCE
    for path in (copy / "lower" / "matmul.py", copy / "program.py"):
        path.write_text(path.read_text() + "\n")
        assert identity._source() != before
        before = identity._source()


def test_a_lowering_of_somebody_elses_is_never_kept(pjrt, kept, monkeypatch):
    import dataclasses

    op = torch.ops.aten.relu.default
    monkeypatch.setitem(TABLE, op, dataclasses.replace(TABLE[op], function=lambda x: x * 0 + 7))
    x = torch.ones(3, device=pjrt)
    requests, written = kept.use.requests, kept.use.written_bytes
    for _ in range(2):
        assert again(op, x) == (1, 0)
    assert kept.use.requests == kept.use.misses == requests + 2 and kept.use.written_bytes == written


def test_the_lowerings_of_this_backend_are_all_known(pjrt):
    identity.known(*(lowering.function for lowering in TABLE.values()))


def test_two_values_that_a_program_tells_apart_have_two_texts(pjrt):
    meta = torch.empty(2, 3, device="meta")
    values = [
        None, True, False, 1, 0, 1.0, 0.0, -0.0, float("nan"), float("inf"), 1j, "1", "True", [], [1], [1, 1], [[1], 1],
        [1, [1]], [None], {}, {"a": 1}, {"b": 1}, {"a": 2}, torch.float32, torch.float64, torch.strided,
        torch.contiguous_format, torch.channels_last, torch.device("pjrt", 0), torch.device("cpu"), int, float,
        Layout((2,), (1,), 0, jax.numpy.dtype("float32")), Layout((2,), (1,), 1, jax.numpy.dtype("float32")),
        torch.ops.aten.add.Tensor, torch.ops.aten.add.Scalar, meta, meta.t(), meta.double(),
        torch.empty(6, device="meta"),
        jax.ShapeDtypeStruct((2, 3), "float32"), jax.ShapeDtypeStruct((3, 2), "float32"),
        jax.ShapeDtypeStruct((2, 3), "int32"), jax.numpy.ones((2, 3)), jax.jit(lambda: 1.0)(), jax.numpy.float32(1.0),
    ]  # fmt: skip
    texts = [text_of(value) for value in values]
    assert len(set(texts)) == len(values)
    assert texts == [text_of(value) for value in values]


@pytest.mark.parametrize("value", [object(), torch.ones(2), {1, 2}, lambda: None, b"x"], ids=lambda v: type(v).__name__)
def test_what_is_not_known_to_be_written_in_full_has_no_key(value):
    with pytest.raises(NoKey):
        text_of([1, value])


def test_a_program_that_cannot_be_written_out_runs_all_the_same(pjrt, kept, monkeypatch):
    from jax.experimental import serialize_executable

    def fail(compiled):
        raise ValueError("Compilation does not support serialization")

    monkeypatch.setattr(serialize_executable, "serialize", fail)
    x = torch.ones(3, device=pjrt)
    assert again(torch.ops.aten.add.Tensor, x, x) == (1, 0) and kept.use.unwritten == 1


def test_a_program_from_disk_can_be_launched_by_the_public_way_too(pjrt, kept, monkeypatch):
    from backend.embedded import executable

    x, add = torch.ones(3, device=pjrt), torch.ops.aten.add.Tensor
    assert again(add, x, x) == (1, 0)
    monkeypatch.setattr(executable, "_direct", lambda compiled: None)
    loaded = COUNTERS.loads
    assert Op(add)((x, x), {}).tolist() == [2, 2, 2] and COUNTERS.loads == loaded + 1
