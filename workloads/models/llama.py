"""The decoder of Llama 3 and Qwen3 in plain torch.nn, with the names of the weights that transformers uses.

RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467), rotary positions (Su et al. 2021, arXiv 2104.09864),
grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245), SwiGLU (Shazeer 2020, arXiv 2002.05202), as put
together in Llama (Touvron et al. 2023, arXiv 2302.13971). Qwen3 normalises queries and keys head by head
beside (arXiv 2505.09388). A state_dict of transformers' LlamaForCausalLM or Qwen3ForCausalLM loads here.
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
class RopeScaling:
    """Llama 3.1's stretching of rotary wavelengths to a longer context (arXiv 2407.21783, section 3.4.2)."""

    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's sizes, all that its module and the formula of its FLOPs need."""

    vocabulary: int
    width: int
    hidden: int  # of the SwiGLU block
    layers: int
    heads: int
    key_heads: int
    head_width: int
    theta: float
    epsilon: float
    tied: bool  # the table of tokens is the output layer too
    normed: bool = False  # queries and keys are normalised head by head
    scaling: RopeScaling | None = None
    std: float = 0.02  # of the weights drawn


class RMSNorm(nn.Module):
    """x / sqrt(mean(x**2) + epsilon) * weight over the last axis, the mean in float32 or wider."""

    def __init__(self, width: int, epsilon: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width) to the same."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Causal self-attention with rotary positions and fewer heads of keys than of queries."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape = shape
        heads, key_heads = shape.heads * shape.head_width, shape.key_heads * shape.head_width
        self.q_proj = linear(shape.width, heads, dtype)
        self.k_proj = linear(shape.width, key_heads, dtype)
        self.v_proj = linear(shape.width, key_heads, dtype)
        self.o_proj = linear(heads, shape.width, dtype)
        if shape.normed:
            self.q_norm = RMSNorm(shape.head_width, shape.epsilon, dtype)
            self.k_norm = RMSNorm(shape.head_width, shape.epsilon, dtype)

    def forward(
        self,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        cache: Cache | None,
        place: Place | None,
    ) -> torch.Tensor:
        """(N, L, width) to the same; ``rotation`` is :func:`rotation` of the L positions."""
        n, length, _ = x.shape
        query = self.q_proj(x).view(n, length, -1, self.shape.head_width)
        key = self.k_proj(x).view(n, length, -1, self.shape.head_width)
        value = self.v_proj(x).view(n, length, -1, self.shape.head_width)
        if self.shape.normed:
            query, key = self.q_norm(query), self.k_norm(key)
        query, key = rotate(query.transpose(1, 2), rotation), rotate(key.transpose(1, 2), rotation)
        mixed = attend(query, key, value.transpose(1, 2), cache, place)
        return self.o_proj(mixed.transpose(1, 2).reshape(n, length, -1))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate_proj = linear(shape.width, shape.hidden, dtype)
        self.up_proj = linear(shape.width, shape.hidden, dtype)
        self.down_proj = linear(shape.hidden, shape.width, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width) to the same."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and round a shortcut."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self.self_attn = Attention(shape, dtype)
        self.mlp = FeedForward(shape, dtype)
        self.input_layernorm = RMSNorm(shape.width, shape.epsilon, dtype)
        self.post_attention_layernorm = RMSNorm(shape.width, shape.epsilon, dtype)

    def forward(
        self,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        cache: Cache | None,
        place: Place | None,
    ) -> torch.Tensor:
        """(N, L, width) to the same."""
        x = x + self.self_attn(self.input_layernorm(x), rotation, cache, place)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Trunk(nn.Module):
    """Tokens to normalised features."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self.embed_tokens = embedding(shape.vocabulary, shape.width, dtype)
        self.layers = nn.ModuleList(Block(shape, dtype) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width, shape.epsilon, dtype)
        # Kept as wide as it was made: angles rounded to bfloat16 would turn far tokens by whole radians.
        angles = frequencies(shape, torch.promote_types(dtype, torch.float32))
        self.register_buffer("frequencies", angles, persistent=False)

    def forward(
        self, tokens: torch.Tensor, cache: tuple[torch.Tensor, ...], position: torch.Tensor | None
    ) -> torch.Tensor:
        """(N, L) to (N, L, width)."""
        x = self.embed_tokens(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device) if position is None else position
        turned = rotation(self.frequencies, positions, x.dtype)  # type: ignore[arg-type]
        place = None if position is None else Place.at(position, cache[0].shape[2])
        for block, kept in zip(self.layers, by_layer(cache, len(self.layers)), strict=True):
            x = block(x, turned, kept, place)
        return self.norm(x)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A language model: tokens to logits of the next one."""

    def __init__(self, shape: Shape, dtype: torch.dtype = torch.float32) -> None:
        """Weights from N(0, std**2), norms 1, in ``dtype``, from torch's global generator."""
        super().__init__()
        self.model = Trunk(shape, dtype)
        self.lm_head = linear(shape.width, shape.vocabulary, dtype)
        if shape.tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                draw_normal(parameter, shape.std)

    def forward(
        self, tokens: torch.Tensor, cache: tuple[torch.Tensor, ...] = (), position: torch.Tensor | None = None
    ) -> torch.Tensor:
        """int64 (N, L) to logits: (N, L, vocabulary); with a cache (N, vocabulary), of the last token.

        ``cache`` is (keys, values) of every layer, flat, each (N, key heads, context, head width), written in
        place: all L = context of it where ``position`` is None, else the one place ``position``, int64 (1,).
        """
        x = self.model(tokens, cache, position)
        return self.lm_head(x[:, -1] if cache else x)  # type: ignore[no-any-return]


def frequencies(shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """(head width / 2,) radians a position, stretched where the shape says so.

    Wavelengths beyond ``original / low`` tokens are stretched by ``factor``, those below ``original / high`` left
    alone, those between blended: https://github.com/meta-llama/llama-models/blob/main/models/llama3/model.py.
    """
    exponents = torch.arange(0, shape.head_width, 2, dtype=dtype) / shape.head_width
    plain = 1.0 / shape.theta**exponents
    if shape.scaling is None:
        return plain
    turns = shape.scaling.original * plain / (2 * math.pi)  # over the context that was trained first
    blend = ((turns - shape.scaling.low) / (shape.scaling.high - shape.scaling.low)).clamp(0, 1)
    return blend * plain + (1 - blend) * plain / shape.scaling.factor


def rotation(
    frequencies: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position, each (L, head width) in ``dtype``: the half-width twice over."""
    angles = positions.to(frequencies.dtype)[:, None] * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """(N, heads, L, head width) turned: element i pairs with i + half, as transformers' checkpoints lie."""
    cosines, sines = rotation
    low, high = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-high, low), dim=-1) * sines
