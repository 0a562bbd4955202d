"""A small decoder of Llama's kind: RMSNorm, rotary positions, grouped-query attention, SwiGLU (arXiv 2302.13971).

The model in plain torch.nn, and its training step by hand in JAX with AdamW, state donated.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from torch import nn
from torch.nn import functional

State = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of the decoder."""

    layers: int = 4
    width: int = 256
    heads: int = 8
    groups: int = 2  # heads of keys and values
    hidden: int = 688
    vocabulary: int = 4096
    length: int = 128
    batch: int = 8

    @property
    def head(self) -> int:
        """Dimensions of a head."""
        return self.width // self.heads


class RMSNorm(nn.Module):
    """``x`` over its root mean square, scaled (arXiv 1910.07467)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width) to the same."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], -1)


class Block(nn.Module):
    """Attention and the gated feed-forward, each round a shortcut."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.norm1, self.norm2 = RMSNorm(shape.width), RMSNorm(shape.width)
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.kv = nn.Linear(shape.width, 2 * shape.groups * shape.head, bias=False)
        self.o = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """(N, length, width) to the same."""
        s, (batch, length, _) = self.shape, x.shape
        y = self.norm1(x)
        q = self.q(y).view(batch, length, s.heads, s.head).transpose(1, 2)
        k, v = self.kv(y).view(batch, length, 2, s.groups, s.head).permute(2, 0, 3, 1, 4)
        q, k = _rotated(q, cosine, sine), _rotated(k, cosine, sine)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(seen.transpose(1, 2).reshape(batch, length, s.width))
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * value)


class Decoder(nn.Module):
    """Token numbers to the logits of the next token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        angle = torch.outer(torch.arange(shape.length), 10000 ** -(torch.arange(0, shape.head, 2) / shape.head))
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(N, length) to (N, length, vocabulary)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.head(self.norm(x))


def torch_loss(module: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each token given those before it; ``tokens`` is (N, length + 1)."""
    logits = module(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def state_of(module: nn.Module) -> State:
    """The parameters by PyTorch's names; linear weights as (in, out), JAX's usual choice."""

    def array(name: str, value: torch.Tensor) -> jax.Array:
        value = value.detach().cpu()
        turned = value.ndim == 2 and not name.startswith("embedding")
        return jnp.array((value.t() if turned else value).contiguous().numpy())

    return {name: array(name, p) for name, p in module.named_parameters()}


def loss_of(p: State, tokens: jax.Array, shape: Shape) -> jax.Array:
    """The same maths as :func:`torch_loss` of a :class:`Decoder`."""
    angle = jnp.outer(jnp.arange(shape.length), 10000 ** -(jnp.arange(0, shape.head, 2) / shape.head))
    cosine, sine = jnp.cos(angle).astype(jnp.float32), jnp.sin(angle).astype(jnp.float32)

    def norm(x: jax.Array, name: str) -> jax.Array:
        return x * lax.rsqrt(jnp.mean(lax.square(x), -1, keepdims=True) + 1e-5) * p[f"{name}.weight"]

    def rotated(x: jax.Array) -> jax.Array:
        low, high = jnp.split(x, 2, -1)
        c, s = cosine[:, None], sine[:, None]
        return jnp.concatenate([low * c - high * s, high * c + low * s], -1)

    x = p["embedding.weight"][tokens[:, :-1]]
    batch, length = x.shape[:2]
    for i in range(shape.layers):
        at = f"blocks.{i}"
        y = norm(x, f"{at}.norm1")
        q = rotated((y @ p[f"{at}.q.weight"]).reshape(batch, length, shape.heads, shape.head))
        kv = (y @ p[f"{at}.kv.weight"]).reshape(batch, length, 2, shape.groups, shape.head)
        seen = jax.nn.dot_product_attention(q, rotated(kv[:, :, 0]), kv[:, :, 1], is_causal=True)
        x = x + seen.reshape(batch, length, shape.width) @ p[f"{at}.o.weight"]
        gate, value = jnp.split(norm(x, f"{at}.norm2") @ p[f"{at}.up.weight"], 2, -1)
        x = x + (jax.nn.silu(gate) * value) @ p[f"{at}.down.weight"]
    logits = norm(x, "norm") @ p["head.weight"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1))


def make_step(shape: Shape, rate: float = 1e-3, decay: float = 0.01) -> Any:
    """``step(parameters, first, second, count, tokens)``, AdamW (arXiv 1711.05101); state donated."""
    beta1, beta2, eps = 0.9, 0.999, 1e-8

    def step(
        parameters: State, first: State, second: State, count: jax.Array, tokens: jax.Array
    ) -> tuple[State, State, State, jax.Array, jax.Array]:
        loss, g = jax.value_and_grad(loss_of)(parameters, tokens, shape)
        count = count + 1
        first = {k: beta1 * m + (1 - beta1) * g[k] for k, m in first.items()}
        second = {k: beta2 * v + (1 - beta2) * lax.square(g[k]) for k, v in second.items()}
        step_size = rate / (1 - beta1**count)
        root = jnp.sqrt(1 - beta2**count)
        parameters = {
            k: p * (1 - rate * decay) - step_size * first[k] / (jnp.sqrt(second[k]) / root + eps)
            for k, p in parameters.items()
        }
        return parameters, first, second, count, loss

    return jax.jit(step, donate_argnums=(0, 1, 2, 3))
