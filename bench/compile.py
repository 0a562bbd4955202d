"""A compiled training step of the embedded backend beside hand-written ``jax.jit``, Inductor and torch eager.

    python bench/compile.py                          # ResNet-18 at 64x64 and a small decoder
    python bench/compile.py --model decoder --rounds 30 --peers jit
    python bench/compile.py --out results/bench/compile.json

All variants train the same weights on the same batch in one process, a step each in turn, every step
waited for. A line a variant: the median step, and the median over rounds of embedded's time over its.
The first losses are compared: a variant that computes something else is an error.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

Step = Callable[[], float]
PEERS = ("jit", "inductor", "eager")


def embedded_step(module: Any, loss: Any, optimizer: Any, batch: tuple[Any, ...], apart: bool) -> Step:
    """The backend's compile mode: one executable, or three where ``apart``."""
    import torch

    from backend.embedded.buffer import synchronize
    from backend.embedded.whole import compile_step

    module = copy.deepcopy(module).to("pjrt")
    on_device = tuple(b.to("pjrt") for b in batch)
    moved = optimizer(module)
    if not apart:
        whole = compile_step(lambda *b: loss(module, *b), moved)
        return lambda: float(whole(*on_device))
    forward = torch.compile(loss, backend="pjrt", fullgraph=True, dynamic=False)
    plain = _plain_step(module, forward, moved, torch.compile(moved.step, backend="pjrt", dynamic=False), on_device)

    def waited() -> float:
        value = plain()
        synchronize()  # the loss is there before backward is
        return value

    return waited


def _plain_step(module: Any, loss: Any, optimizer: Any, update: Any, batch: tuple[Any, ...]) -> Step:
    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        value = loss(module, *batch)
        value.backward()
        update()
        return float(value.detach())

    return step


def torch_step(module: Any, loss: Any, optimizer: Any, batch: tuple[Any, ...], inductor: bool) -> Step:
    """PyTorch on the CPU: eager, or forward, backward and optimizer each by Inductor."""
    import torch

    module = copy.deepcopy(module)
    moved = optimizer(module)
    if not inductor:
        return _plain_step(module, loss, moved, moved.step, batch)
    forward = torch.compile(loss, fullgraph=True, dynamic=False)
    return _plain_step(module, forward, moved, torch.compile(moved.step, dynamic=False), batch)


def _carried(step: Any, state: list[Any], batch: tuple[Any, ...]) -> Step:
    """A JAX step whose state is what it returned last; the loss comes last."""

    def run() -> float:
        *state[:], loss = step(*state, *batch)
        return float(loss)

    return run


def resnet() -> tuple[Any, Any, Any, tuple[Any, ...], Step]:
    """``(module, loss, optimizer of a module, batch, JAX step)`` of the workload ``resnet`` at ``small``."""
    import jax.numpy as jnp
    import torch

    from bench.twins import resnet as twin
    from workloads.optimizers import make_optimizer
    from workloads.resnet import ResNet

    workload = ResNet()
    built = workload.build("small", "train", torch.float32, 0)
    batch = built.make_batch(workload.sizes["small"].batch, None, 0)
    parameters, running = twin.state_of(built.module)
    images, labels = jnp.array(batch[0].permute(0, 2, 3, 1).contiguous().numpy()), jnp.array(batch[1].numpy())
    state = [parameters, twin.zeros_like(parameters), running]
    optimizer = functools.partial(make_optimizer, workload.optimizer)
    return built.module, built.compute, optimizer, batch, _carried(twin.make_step(), state, (images, labels))


def decoder() -> tuple[Any, Any, Any, tuple[Any, ...], Step]:
    """The same of the small decoder."""
    import jax.numpy as jnp
    import torch

    from bench.twins import decoder as twin
    from bench.twins.resnet import zeros_like

    torch.manual_seed(0)
    shape = twin.Shape()
    module = twin.Decoder(shape)
    tokens = torch.randint(shape.vocabulary, (shape.batch, shape.length + 1))
    parameters = twin.state_of(module)
    state = [parameters, zeros_like(parameters), zeros_like(parameters), jnp.zeros((), jnp.float32)]

    def optimizer(m: Any) -> Any:
        return torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.01)

    step = _carried(twin.make_step(shape), state, (jnp.array(tokens.numpy()),))
    return module, twin.torch_loss, optimizer, (tokens,), step


MODELS = {"resnet": resnet, "decoder": decoder}


def measure(name: str, rounds: int, warmup: int, peers: tuple[str, ...], apart: bool) -> dict[str, list[float]]:
    """Seconds of every step by variant.

    Raises:
        ValueError: a variant's first losses differ from torch's by more than float32's rounding.
    """
    module, loss, optimizer, batch, jit = MODELS[name]()
    variants: dict[str, Step] = {"embedded": embedded_step(module, loss, optimizer, batch, False)}
    if apart:
        variants["embedded, three programs"] = embedded_step(module, loss, optimizer, batch, True)
    if "jit" in peers:
        variants["jit"] = jit
    if "inductor" in peers:
        variants["inductor"] = torch_step(module, loss, optimizer, batch, True)
    if "eager" in peers:
        variants["eager"] = torch_step(module, loss, optimizer, batch, False)
    losses = {variant: [step() for _ in range(warmup)] for variant, step in variants.items()}
    for variant, values in losses.items():
        if any(abs(a - b) > 2e-3 * abs(b) for a, b in zip(values[:3], losses["embedded"], strict=False)):
            raise ValueError(f"{name}: the losses of {variant} are {values[:3]}, embedded's {losses['embedded'][:3]}")
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    rng = random.Random(0)
    for _ in range(rounds):
        for variant in rng.sample(sorted(variants), len(variants)):
            start = time.perf_counter()
            variants[variant]()
            times[variant].append(time.perf_counter() - start)
    return times


def main() -> None:
    """Print a line a variant, and the geometric mean over models of the ratio to ``jax.jit``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append", help="one model (default: all)")
    parser.add_argument("--rounds", type=int, default=20, help="timed steps of each variant")
    parser.add_argument("--warmup", type=int, default=4, help="steps before the first timed one, at least 3")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--apart", action="store_true", help="also forward, backward and optimizer as a program each")
    parser.add_argument("--out", type=Path, help="write medians and ratios as JSON")
    given = parser.parse_args()
    from backend.embedded.device import activate

    activate()
    result: dict[str, Any] = {"cpus": os.cpu_count(), "machine": platform.machine(), "rounds": given.rounds}
    ratios = []
    for name in given.model or MODELS:
        times = measure(name, given.rounds, max(3, given.warmup), tuple(given.peers.split(",")), given.apart)
        result[name] = {}
        for variant, seconds in times.items():
            ratio = statistics.median(a / b for a, b in zip(times["embedded"], seconds, strict=True))
            result[name][variant] = {"median_s": statistics.median(seconds), "embedded_over_it": ratio}
            print(f"{name:8} {variant:26} {statistics.median(seconds) * 1e3:8.1f} ms  embedded is {ratio:.3f} x")
            if variant == "jit":
                ratios.append(ratio)
    if ratios:
        result["geometric_mean_over_jit"] = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"embedded over jax.jit, geometric mean: {result['geometric_mean_over_jit']:.3f}")
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
