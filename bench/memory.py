"""Peak memory of a ResNet-50 training step: the embedded backend beside PyTorch on the CPU.

    python bench/memory.py                                   # batch 8 at 224x224
    python bench/memory.py --batch 4 --image 112 --out results/bench/memory.json

Each variant trains in a process of its own. The peak of resident memory is reset after warm-up (Linux:
``/proc/self/clear_refs``), so that the peak of the steps and that of compiling are apart. What the
interpreter and the libraries hold before the model is built is subtracted from neither.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ("torch eager", "embedded eager", "embedded compile", "embedded compile, three programs")


def _status(field: str) -> float:
    """A line of ``/proc/self/status``, in MB."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(next(line for line in text.splitlines() if line.startswith(field)).split()[1]) / 1024


def train(variant: str, batch: int, image: int, steps: int) -> dict[str, float]:
    """MB: held before the model, the peak of warm-up, the peak of ``steps`` steps."""
    import torch
    from torch.nn import functional

    from backend.embedded.buffer import synchronize
    from backend.embedded.device import activate
    from backend.embedded.whole import compile_step
    from workloads.models.resnet import resnet50

    embedded = variant.startswith("embedded")
    device = activate() if embedded else torch.device("cpu")
    torch.manual_seed(0)
    before = _status("VmRSS")
    module = resnet50().to(device)
    images, labels = torch.randn(batch, 3, image, image).to(device), torch.randint(1000, (batch,)).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(module(x), y)

    forward: Any = loss
    update: Any = optimizer.step
    if variant.endswith("three programs"):
        forward = torch.compile(loss, backend="pjrt", fullgraph=True, dynamic=False)
        update = torch.compile(optimizer.step, backend="pjrt", dynamic=False)
    whole = compile_step(loss, optimizer) if variant == "embedded compile" else None

    def step() -> None:
        if whole is not None:
            whole(images, labels)
        else:
            optimizer.zero_grad(set_to_none=True)
            forward(images, labels).backward()
            update()
        if embedded:
            synchronize()

    for _ in range(3):
        step()
    warm = _status("VmHWM")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    for _ in range(steps):
        step()
    return {"before_mb": before, "warmup_peak_mb": warm, "step_peak_mb": _status("VmHWM")}


def main() -> None:
    """Print a line a variant: both peaks, and their ratio to torch eager's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--image", type=int, default=224, help="pixels a side")
    parser.add_argument("--steps", type=int, default=2, help="steps whose peak counts")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.variant:
        print(json.dumps(train(given.variant, given.batch, given.image, given.steps)))
        return
    shape = ["--batch", str(given.batch), "--image", str(given.image), "--steps", str(given.steps)]
    environment = {
        "JAX_PLATFORMS": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TF_CPP_MIN_LOG_LEVEL": "3",
        **os.environ, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    result: dict[str, Any] = {"model": "resnet50", "batch": given.batch, "image": given.image}
    for variant in VARIANTS:
        command = [sys.executable, __file__, "--variant", variant, *shape]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        found = result[variant] = json.loads(run.stdout.splitlines()[-1])
        found["over_torch"] = found["step_peak_mb"] / result["torch eager"]["step_peak_mb"]
        print(
            f"{variant:33} step {found['step_peak_mb']:7.0f} MB  {found['over_torch']:5.2f} x"
            f"  warm-up {found['warmup_peak_mb']:7.0f} MB",
            flush=True,
        )
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
