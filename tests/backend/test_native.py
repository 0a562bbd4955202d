"""PyTorch as it comes: real steps on the CPU. Compiled ones run in a worker's stead, in their own process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from backend.native import Native, chip_of
from backend.protocol import Unsupported
from tpubench import catalog
from workloads.optimizers import make_optimizer
from workloads.resnet import ResNet

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass
class Step:
    module: torch.nn.Module
    batch: tuple[torch.Tensor, ...]
    compute: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer | None


def resnet(phase: str, dtype: torch.dtype = torch.float32) -> Step:
    built = ResNet().build("tiny", phase, dtype, seed=0)
    optimizer = make_optimizer("sgd", built.module) if phase == "train" else None
    return Step(built.module, built.make_batch(8, None, 0), built.compute, optimizer)


def opened(mode: str = "eager") -> Native:
    backend = Native()
    assert backend.open("cpu", mode, cpu_fallback=False) == torch.device("cpu")
    return backend


def test_a_train_step_is_the_loop_that_a_user_would_write() -> None:
    step, mine = resnet("train"), resnet("train")
    run = opened().prepare(step, "eager")
    assert mine.optimizer is not None
    for _ in range(3):
        mine.optimizer.zero_grad()
        loss = mine.compute(mine.module, *mine.batch)
        loss.backward()
        mine.optimizer.step()
        got = run()
        assert not got.requires_grad
        assert torch.equal(got, loss.detach())
    for a, b in zip(step.module.state_dict().values(), mine.module.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_an_inference_step_changes_nothing_and_keeps_no_graph() -> None:
    step = resnet("infer")
    before = {k: v.clone() for k, v in step.module.state_dict().items()}
    output = opened().prepare(step, "eager")()
    assert output.shape == (8, 10)
    assert output.grad_fn is None
    # A tensor of inference_mode could not be used here; some backends cannot make one at all.
    assert not output.is_inference()
    assert all(torch.equal(v, before[k]) for k, v in step.module.state_dict().items())


def test_eager_compiles_nothing_and_says_so() -> None:
    backend = opened()
    run = backend.prepare(resnet("infer"), "eager")
    for _ in range(2):
        backend.synchronize(run())
    assert backend.compile_count() == 0
    assert backend.cache_stats() == {
        "requests": None,
        "hits": None,
        "misses": None,
        "compile_s": 0.0,
        "disk_requests": None,
        "disk_hits": None,
        "disk_misses": None,
    }
    assert backend.counters()["compile_scope"] == "op"
    assert backend.memory_stats() == {}


def test_the_cpu_is_described_without_a_chip() -> None:
    described = opened().describe()
    assert described["chip"] is None
    assert described["matmul_precision"] == "float32"
    assert described["threads"] == torch.get_num_threads()
    assert described["torch_version"] == torch.__version__


def test_modes_and_devices_are_told_without_torch() -> None:
    script = (
        "import sys; from backend.native import Native; n = Native(); n.modes(); n.devices(); "
        "from pathlib import Path; n.environment('cpu', 'eager', 'cold', Path('x')); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0


def test_every_mode_of_the_suite_is_there_with_a_reason_where_it_is_not_to_be_had() -> None:
    modes = Native().modes()
    assert set(modes) == {"eager", "eager-blocking", "eager-fused", "lazy", "compile"}
    assert modes["eager"] is None
    for absent in ("eager-fused", "lazy"):
        assert modes[absent]


def test_compile_without_a_compiler_says_which_one_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = Native().modes()["compile"]
    assert reason is not None and "C++ compiler" in reason and "PATH" in reason
    with pytest.raises(Unsupported, match=r"C\+\+ compiler"):
        Native().open("cpu", "compile", cpu_fallback=False)
    compiler = tmp_path / "my-compiler"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("CXX", "my-compiler")
    assert Native().modes()["compile"] is None


@pytest.mark.parametrize(
    ("device", "mode", "why"),
    [
        ("cpu", "lazy", "no lazy mode"),
        ("cpu", "eager-fused", "defers no ops"),
        ("cpu", "eager-blocking", "done when its call returns"),
        ("cpu", "fast", "no mode is called 'fast'"),
        ("tpu", "eager", "no device is called 'tpu'"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(device: str, mode: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why) as caught:
        Native().open(device, mode, cpu_fallback=False)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_is_refused_where_there_is_none() -> None:
    assert Native().devices()["cuda"]
    with pytest.raises(Unsupported, match="torch eager on cuda: "):
        Native().open("cuda", "eager", cpu_fallback=False)


def test_the_environment_keeps_caches_in_the_cell_and_the_shells_settings_out(tmp_path: Path) -> None:
    cold = Native().environment("cpu", "compile", "cold", tmp_path)
    assert cold["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    assert Path(cold["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(tmp_path)
    assert Path(cold["TRITON_CACHE_DIR"]).is_relative_to(tmp_path)
    assert cold["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] == "0"
    assert cold["CUDA_LAUNCH_BLOCKING"] == "0"
    assert Native().environment("cpu", "compile", "warm", tmp_path) == cold
    off = Native().environment("cpu", "compile", "off", tmp_path)
    assert off["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] == "1"
    assert Native().environment("cuda", "eager-blocking", "off", tmp_path)["CUDA_LAUNCH_BLOCKING"] == "1"


@pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_a_switched_off_dynamo_is_no_compiled_run(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(Unsupported, match=f"{variable}=1"):
        Native().prepare(resnet("infer"), "compile")


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100 80GB PCIe", "A100-80"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_a_chip_is_named_only_where_the_whole_name_fits(name: str, chip: str | None) -> None:
    assert chip_of(name) == chip
    assert chip is None or chip in catalog.chips()


# -- compiled: Inductor takes tens of seconds on a CPU ------------------------------------------------

_WORKER = """
import json, os, sys, dataclasses
from pathlib import Path
from backend.native import Native
asked = json.loads(sys.argv[1])
backend = Native()
os.environ.update(backend.environment("cpu", asked["mode"], asked["cache"], Path(asked["cache_dir"])))
import torch
sys.path.insert(0, asked["tests"])
from test_native import Step, resnet
{body}
"""

_TRAIN_SMALL = """
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
step = Step(module, (torch.randn(4, 8),), lambda m, x: m(x).square().mean(), optimizer)
backend.open("cpu", asked["mode"], cpu_fallback=False)
run = backend.prepare(step, asked["mode"])
losses, counts = [], []
for _ in range(4):
    losses.append(float(run())); counts.append(backend.compile_count())
answer = {"losses": losses, "counts": counts, "stats": backend.cache_stats(), "counters": backend.counters()}
print(json.dumps(answer))
"""

_TRAIN_RESNET = """
step = resnet("train", torch.float64)
backend.open("cpu", asked["mode"], cpu_fallback=False)
run = backend.prepare(step, asked["mode"])
losses = [float(run()) for _ in range(5)]
torch.save({k: v for k, v in step.module.state_dict().items()}, asked["cache_dir"] + "/state.pt")
print(json.dumps({"losses": losses, "counters": backend.counters()}))
"""

_NEW_SHAPES = """
torch._dynamo.config.recompile_limit = 2
step = Step(torch.nn.Identity(), (torch.zeros(1),), lambda m, x: m(x) + 1, None)
backend.open("cpu", "compile", cpu_fallback=False)
answers = []
for size in range(2, 6):
    step.batch = (torch.zeros(size),)
    try:
        if size == 2:
            run = backend.prepare(step, "compile")
        answers.append(run().tolist())
    except Exception as error:
        answers.append(type(error).__name__)
print(json.dumps({"answers": answers, "scope": backend.counters()["compile_scope"]}))
"""


def work(body: str, cache_dir: Path, cache: str = "cold", mode: str = "compile") -> dict[str, Any]:
    """What a process of its own prints that runs ``body`` as a worker would."""
    asked = {"mode": mode, "cache": cache, "cache_dir": str(cache_dir), "tests": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", _WORKER.replace("{body}", body), json.dumps(asked)],
        cwd=ROOT,
        env={**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
def test_the_cache_is_cold_then_warm_and_off_when_it_is_off(tmp_path: Path) -> None:
    eager = work(_TRAIN_SMALL, tmp_path, mode="eager")
    cold = work(_TRAIN_SMALL, tmp_path, "cold")
    warm = work(_TRAIN_SMALL, tmp_path, "warm")
    off = work(_TRAIN_SMALL, tmp_path, "off")
    for compiled in (cold, warm, off):
        assert compiled["losses"] == pytest.approx(eager["losses"], rel=1e-5)
        assert compiled["counts"] == [1, 1, 1, 1]
        assert {k: compiled["stats"][k] for k in ("requests", "hits", "misses")} == {
            "requests": 4,
            "hits": 3,
            "misses": 1,
        }
        assert compiled["counters"]["graph_breaks"] == 0
        assert compiled["counters"]["compile_scope"] == "forward+backward"
    disk = ("disk_requests", "disk_hits", "disk_misses")
    assert [cold["stats"][k] for k in disk] == [2, 0, 2]
    assert [warm["stats"][k] for k in disk] == [2, 2, 0]
    assert [off["stats"][k] for k in disk] == [None, None, None]
    assert cold["stats"]["compile_s"] > warm["stats"]["compile_s"] > 0


@pytest.mark.slow
def test_compiled_resnet_trains_as_eager_does(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "c").mkdir()
    eager = work(_TRAIN_RESNET, tmp_path / "e", mode="eager")
    compiled = work(_TRAIN_RESNET, tmp_path / "c")
    assert compiled["losses"] == pytest.approx(eager["losses"], rel=1e-9)
    one, other = (torch.load(tmp_path / d / "state.pt") for d in "ec")
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
    assert compiled["counters"]["graphs"] == 1


@pytest.mark.slow
def test_a_new_shape_every_step_is_an_error_and_never_eager_in_silence(tmp_path: Path) -> None:
    answer = work(_NEW_SHAPES, tmp_path)
    assert answer["answers"][:2] == [[1.0] * 2, [1.0] * 3]
    assert all(isinstance(a, str) and "Recompile" in a for a in answer["answers"][2:])
    assert answer["scope"] == "forward"


# -- on a GPU --------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device in this machine")
@pytest.mark.parametrize("mode", ["eager", "eager-blocking"])
def test_cuda_trains_as_the_cpu_does(mode: str) -> None:
    reference = opened().prepare(resnet("train", torch.float64), "eager")
    backend = Native()
    device = backend.open("cuda", mode, cpu_fallback=False)
    built = ResNet().build("tiny", "train", torch.float64, seed=0)
    module = built.module.to(device)
    batch = tuple(x.to(device) for x in built.make_batch(8, None, 0))
    run = backend.prepare(Step(module, batch, built.compute, make_optimizer("sgd", module)), mode)
    for _ in range(3):
        loss = run()
        backend.synchronize(loss)
        assert float(loss) == pytest.approx(float(reference()), rel=1e-9)
    assert backend.memory_stats()["peak_bytes"] > 0
