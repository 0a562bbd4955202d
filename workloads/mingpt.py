"""minGPT: GPT-2's decoder, from toy sizes to GPT-2 itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from workloads.decoder import Counts, Decoder
from workloads.protocol import Size

if TYPE_CHECKING:
    import torch

# Vocabulary, context, width, layers, heads. Widths and depths: the model types of minGPT's mingpt/model.py
# (https://github.com/karpathy/minGPT); the toys have the vocabulary and context of its projects/chargpt.
_SHAPES = {
    "tiny": (65, 64, 48, 3, 3),
    "small": (65, 128, 192, 6, 6),
    "gpt-nano": (65, 128, 48, 3, 3),
    "gpt-micro": (65, 128, 128, 4, 4),
    "gpt-mini": (65, 128, 192, 6, 6),
    "gpt2": (50_257, 1_024, 768, 12, 12),
}


class MinGPT(Decoder):
    """GPT-2 on random tokens."""

    name = "mingpt"
    summary = "minGPT, GPT-2's decoder, without dropout and with tied tables"
    published = "gpt2"
    sizes: Mapping[str, Size] = {
        "tiny": Size("gpt-nano over 65 characters, a context of 64", batch=2, seq_len=32, longest=64),
        "small": Size("gpt-mini over 65 characters", batch=4, seq_len=128, longest=128),
        "gpt-nano": Size("3 layers of width 48 over 65 characters", batch=64, seq_len=128, longest=128),
        "gpt-micro": Size("4 layers of width 128 over 65 characters", batch=64, seq_len=128, longest=128),
        "gpt-mini": Size("6 layers of width 192 over 65 characters", batch=64, seq_len=128, longest=128),
        "gpt2": Size("GPT-2 124M", batch=8, seq_len=1024, longest=1024),
    }

    def counts(self, size: str) -> Counts:
        """See :class:`workloads.decoder.Decoder`."""
        vocabulary, _, width, layers, heads = _SHAPES[size]
        return Counts(vocabulary, width, layers, heads, heads, width // heads, block_weights=12 * width * width)

    def module(self, size: str, dtype: torch.dtype) -> torch.nn.Module:
        """See :class:`workloads.decoder.Decoder`."""
        from workloads.models import gpt

        return gpt.GPT(gpt.Shape(*_SHAPES[size]), dtype)
