"""GPT-2 in plain torch.nn, as minGPT builds it (https://github.com/karpathy/minGPT), dropout left out.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners": learned positions, a norm before each
block, tanh GELU. The table of tokens is the output layer too, as in the published checkpoints; minGPT itself has a
second one. Names are those of transformers' GPT2LMHeadModel, whose Conv1D weights lie transposed.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional

from workloads.models.attention import Cache, Place, attend, by_layer
from workloads.models.weights import draw_normal, embedding, linear


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A GPT's sizes, all that its module and the formula of its FLOPs need."""

    vocabulary: int
    context: int
    width: int
    layers: int
    heads: int

    @property
    def key_heads(self) -> int:
        """Every head has keys of its own."""
        return self.heads

    @property
    def head_width(self) -> int:
        """Elements a head."""
        return self.width // self.heads


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self.head_width = shape.head_width
        self.c_attn = linear(shape.width, 3 * shape.width, dtype, bias=True)
        self.c_proj = linear(shape.width, shape.width, dtype, bias=True)

    def forward(self, x: torch.Tensor, cache: Cache | None, place: Place | None) -> torch.Tensor:
        """(N, L, width) to the same."""
        n, length, width = x.shape
        query, key, value = (
            part.view(n, length, -1, self.head_width).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2)
        )
        mixed = attend(query, key, value, cache, place)
        return self.c_proj(mixed.transpose(1, 2).reshape(n, length, width))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Two linear layers round a GELU."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self.c_fc = linear(shape.width, 4 * shape.width, dtype, bias=True)
        self.c_proj = linear(4 * shape.width, shape.width, dtype, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width) to the same."""
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and round a shortcut."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width, dtype=dtype)
        self.attn = Attention(shape, dtype)
        self.ln_2 = nn.LayerNorm(shape.width, dtype=dtype)
        self.mlp = FeedForward(shape, dtype)

    def forward(self, x: torch.Tensor, cache: Cache | None, place: Place | None) -> torch.Tensor:
        """(N, L, width) to the same."""
        x = x + self.attn(self.ln_1(x), cache, place)
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Trunk(nn.Module):
    """Tokens to normalised features."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self.wte = embedding(shape.vocabulary, shape.width, dtype)
        self.wpe = embedding(shape.context, shape.width, dtype)
        self.h = nn.ModuleList(Block(shape, dtype) for _ in range(shape.layers))
        self.ln_f = nn.LayerNorm(shape.width, dtype=dtype)

    def forward(
        self, tokens: torch.Tensor, cache: tuple[torch.Tensor, ...], position: torch.Tensor | None
    ) -> torch.Tensor:
        """(N, L) to (N, L, width)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device) if position is None else position
        place = None if position is None else Place.at(position, cache[0].shape[2])
        x = self.wte(tokens) + self.wpe(positions)
        for block, kept in zip(self.h, by_layer(cache, len(self.h)), strict=True):
            x = block(x, kept, place)
        return self.ln_f(x)  # type: ignore[no-any-return]


class GPT(nn.Module):
    """A language model: tokens to logits of the next one."""

    def __init__(self, shape: Shape, dtype: torch.dtype = torch.float32) -> None:
        """Weights in ``dtype`` from torch's global generator.

        N(0, 0.02**2), projections back onto the shortcut by sqrt(2 x layers) less (Radford et al. 2019, section
        2.3, as minGPT draws them), biases 0.
        """
        super().__init__()
        self.transformer = Trunk(shape, dtype)
        self.lm_head = linear(shape.width, shape.vocabulary, dtype)
        self.lm_head.weight = self.transformer.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                onto_shortcut = name.endswith("c_proj.weight")
                draw_normal(parameter, 0.02 / math.sqrt(2 * shape.layers) if onto_shortcut else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(
        self, tokens: torch.Tensor, cache: tuple[torch.Tensor, ...] = (), position: torch.Tensor | None = None
    ) -> torch.Tensor:
        """int64 (N, L) to logits, with and without a cache as :meth:`workloads.models.llama.Decoder.forward`."""
        x = self.transformer(tokens, cache, position)
        return self.lm_head(x[:, -1] if cache else x)  # type: ignore[no-any-return]
