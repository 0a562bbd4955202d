"""Workloads by name: our own, and those that other packages announce. Imports no torch."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

from workloads.protocol import Workload

GROUP = "tpubench.workloads"
# Ours are found without installed metadata, and nobody else's package can take their names.
_BUILTIN = {
    "attention": "workloads.micro.product:Attention",
    "conv": "workloads.micro.product:Conv",
    "dispatch": "workloads.micro.dispatch:Dispatch",
    "dlrm": "workloads.dlrm:DLRM",
    "elementwise": "workloads.micro.stream:Elementwise",
    "embedding": "workloads.micro.stream:Embedding",
    "hbm-copy": "workloads.micro.stream:HbmCopy",
    "layernorm": "workloads.micro.stream:LayerNorm",
    "llama": "workloads.llama:Llama",
    "matmul": "workloads.micro.product:Matmul",
    "mingpt": "workloads.mingpt:MinGPT",
    "qwen": "workloads.qwen:Qwen",
    "resnet": "workloads.resnet:ResNet",
    "softmax": "workloads.micro.stream:Softmax",
    "unet": "workloads.unet:UNet",
}


class UnknownWorkload(LookupError):
    """No workload has that name."""

    def __init__(self, name: str, offered: list[str]) -> None:
        super().__init__(f"no workload is called '{name}'")
        self.name = name
        self.offered = offered


class BrokenWorkload(ImportError):
    """A package announces a workload that does not import, or that is none. The message is one line."""


def _announced() -> dict[str, str]:
    found = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=GROUP)}
    return {**found, **_BUILTIN}


def names() -> list[str]:
    """Every name on offer, in order. A name here may still be broken: :func:`load` says why."""
    return sorted(_announced())


def load(name: str) -> Workload:
    """The workload of that name, a new instance.

    Raises:
        UnknownWorkload: nobody offers it.
        BrokenWorkload: what is announced under the name does not import, or is no workload.
    """
    announced = _announced()
    if name not in announced:
        raise UnknownWorkload(name, sorted(announced))
    where = announced[name]
    try:
        workload: Workload = EntryPoint(name, where, GROUP).load()()
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise BrokenWorkload(f"the workload '{name}' ({where}) does not import: {why}") from error
    missing = [part for part in _parts() if not hasattr(workload, part)]
    if missing:
        raise BrokenWorkload(f"the workload '{name}' ({where}) has no {', '.join(missing)}")
    return workload


def _parts() -> list[str]:
    """What the protocol asks for, attributes and methods."""
    methods = [part for part in vars(Workload) if not part.startswith("_")]
    return [*Workload.__annotations__, *methods]
