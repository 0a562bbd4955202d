"""Qwen3: Llama's decoder with queries and keys normalised head by head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.llama import Rotary
from workloads.protocol import Size

# https://huggingface.co/Qwen/Qwen3-0.6B and Qwen3-1.7B, config.json; arXiv 2505.09388, table 1.
_COMMON = {"theta": 1_000_000.0, "epsilon": 1e-6, "tied": True, "normed": True}
_PUBLISHED = {**_COMMON, "vocabulary": 151_936, "layers": 28, "heads": 16, "key_heads": 8, "head_width": 128}
_SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        **_COMMON, "vocabulary": 256, "width": 64, "hidden": 192, "layers": 2, "heads": 4, "key_heads": 2,
        "head_width": 32,
    },
    "small": {
        **_COMMON, "vocabulary": 8_192, "width": 384, "hidden": 1_152, "layers": 6, "heads": 6, "key_heads": 3,
        "head_width": 128,
    },
    "0.6b": {**_PUBLISHED, "width": 1_024, "hidden": 3_072},
    "1.7b": {**_PUBLISHED, "width": 2_048, "hidden": 6_144},
}  # fmt: skip


class Qwen(Rotary):
    """Qwen3 on random tokens."""

    name = "qwen"
    summary = "Qwen3, Llama's decoder with normalised queries and keys"
    published = "0.6b"
    shapes = _SHAPES
    sizes: Mapping[str, Size] = {
        "tiny": Size("2 layers of width 64, 256 tokens", batch=2, seq_len=32),
        "small": Size("6 layers of width 384, 8192 tokens", batch=2, seq_len=128),
        "0.6b": Size("Qwen3-0.6B", batch=4, seq_len=2048),
        "1.7b": Size("Qwen3-1.7B", batch=2, seq_len=2048),
    }
