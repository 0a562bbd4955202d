"""Llama 3: the decoder at the sizes that Meta publishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workloads.decoder import Counts, Decoder
from workloads.protocol import Size

if TYPE_CHECKING:
    import torch

# https://huggingface.co/meta-llama/Llama-3.2-1B and Llama-3.1-8B, config.json; the widths are also in table 3 of
# arXiv 2407.21783.
_PUBLISHED = {"vocabulary": 128_256, "theta": 500_000.0, "epsilon": 1e-5}
_SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocabulary": 256, "width": 64, "hidden": 160, "layers": 2, "heads": 4, "key_heads": 2, "head_width": 16,
        "theta": 500_000.0, "epsilon": 1e-5, "tied": True, "stretch": 32.0,
    },
    "small": {
        "vocabulary": 8_192, "width": 384, "hidden": 1_024, "layers": 6, "heads": 6, "key_heads": 2, "head_width": 64,
        "theta": 500_000.0, "epsilon": 1e-5, "tied": True, "stretch": 32.0,
    },
    "1b": {
        **_PUBLISHED, "width": 2_048, "hidden": 8_192, "layers": 16, "heads": 32, "key_heads": 8, "head_width": 64,
        "tied": True, "stretch": 32.0,
    },
    "8b": {
        **_PUBLISHED, "width": 4_096, "hidden": 14_336, "layers": 32, "heads": 32, "key_heads": 8, "head_width": 128,
        "tied": False, "stretch": 8.0,
    },
}  # fmt: skip


class Rotary(Decoder):
    """A decoder of :mod:`workloads.models.llama`; ``shapes`` are its sizes, by name."""

    shapes: Mapping[str, Mapping[str, Any]]

    def counts(self, size: str) -> Counts:
        """See :class:`workloads.decoder.Decoder`."""
        shape = self.shapes[size]
        width, head_width = shape["width"], shape["head_width"]
        projections = 2 * width * head_width * (shape["heads"] + shape["key_heads"])
        return Counts(
            shape["vocabulary"],
            width,
            shape["layers"],
            shape["heads"],
            shape["key_heads"],
            head_width,
            block_weights=projections + 3 * width * shape["hidden"],
        )

    def module(self, size: str, dtype: torch.dtype) -> torch.nn.Module:
        """See :class:`workloads.decoder.Decoder`."""
        from workloads.models import llama

        given = dict(self.shapes[size])
        stretch = given.pop("stretch", None)
        scaling = None if stretch is None else llama.RopeScaling(stretch)
        return llama.Decoder(llama.Shape(**given, scaling=scaling), dtype)


class Llama(Rotary):
    """Llama 3 on random tokens."""

    name = "llama"
    summary = "Llama 3, a decoder with rotary positions and grouped-query attention"
    published = "1b"
    shapes = _SHAPES
    sizes: Mapping[str, Size] = {
        "tiny": Size("2 layers of width 64, 256 tokens", batch=2, seq_len=32),
        "small": Size("6 layers of width 384, 8192 tokens", batch=2, seq_len=128),
        "1b": Size("Llama-3.2-1B", batch=4, seq_len=2048),
        "8b": Size("Llama-3.1-8B", batch=1, seq_len=2048),
    }
