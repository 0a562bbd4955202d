"""A cell of a benchmark as plain data, and the fingerprint that names it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

#: What the compile caches on disk hold when a cell begins.
CACHES = ("cold", "warm", "off")
#: Where the data of a step is when the step begins.
DATA = ("device", "host")


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """One cell: everything that decides what work is done and how, and nothing that is measured.

    ``batch`` and ``seq_len`` are resolved before a Spec is made, never by a model: what the
    fingerprint says is what ran.
    """

    workload: str
    size: str
    backend: str
    mode: str
    batch: int
    device: str = "cpu"
    dtype: str = "float32"
    phase: str = "train"  # train | infer | prefill | decode
    optimizer: str = ""  # sgd | adamw; none outside train
    data: str = "device"  # device: made there once | host: copied from the host in every step
    seq_len: int | None = None
    cache: str = "cold"  # cold: every compile cache starts empty | warm: filled by earlier runs | off: none on disk
    mesh: str = ""
    seed: int = 0
    steps: int = 30
    warmup_min: int = 3
    warmup_max: int = 20
    cpu_fallback: bool = False  # ops without a lowering run on the CPU, counted, instead of failing

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, JSON-ready."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Spec:
        """The inverse of :meth:`to_dict`.

        Raises:
            TypeError: a field is missing or unknown.
        """
        return cls(**fields)

    @property
    def fingerprint(self) -> str:
        """16 hex digits of SHA-256 over every field, in canonical JSON."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """How a person names the cell: ``resnet/small embedded:eager``, with its cache where that is not cold."""
        cache = "" if self.cache == "cold" else f" cache={self.cache}"
        return f"{self.workload}/{self.size} {self.backend}:{self.mode}{cache}"
