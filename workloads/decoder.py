"""What the decoders share: train, prefill and decode steps, and the FLOPs of each by formula."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workloads.protocol import Built, MakeBatch, Size
from workloads.synthetic import Synthetic

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What the formula needs of a decoder's size."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    key_heads: int
    head_width: int
    block_weights: int  # that a token meets in the matrix products of one layer


class Decoder:
    """A language model on uniform random tokens. Cross-entropy of the next token; greedy steps read no value."""

    name: str
    summary: str
    sizes: Mapping[str, Size]
    published: str
    item = "token"
    phases = ("train", "prefill", "decode")
    optimizer = "adamw"
    flops_convention = (
        "matrix products and attention, 2 FLOPs a multiply-add, causal attention halved (decode sees its whole "
        "cache), the table of tokens as output layer only; backward twice forward; norms, rotations, softmax, "
        "optimizer left out"
    )

    def counts(self, size: str) -> Counts:
        """The sizes that the formula needs."""
        raise NotImplementedError

    def module(self, size: str, dtype: torch.dtype) -> torch.nn.Module:
        """The module, its weights drawn from torch's global generator."""
        raise NotImplementedError

    def build(self, size: str, phase: str, dtype: torch.dtype, seed: int) -> Built:
        """The module with seeded weights at ``dtype``; see :class:`workloads.protocol.Workload`.

        Batches: tokens and targets, int64 (N, L), for train; tokens (N, L) and an empty cache for prefill; one
        token (N, 1), its position and a full cache for decode, always the cache's last place.
        """
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.module(size, dtype)
        module.train(phase == "train")
        counts = self.counts(size)
        if phase == "train":
            return Built(module, _text(counts.vocabulary), _loss)
        make, compute = (_prompt, _prefill) if phase == "prefill" else (_token, _decode)
        return Built(module, make(counts, dtype), compute, streamed=1)

    def flops(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Model FLOPs of one step, after PaLM (Chowdhery et al. 2022, arXiv 2204.02311), appendix B.

        A token costs 2 FLOPs a weight of the matrix products it meets, and attention 4 x layers x heads x head
        width a key it sees; training three times as much. PaLM counts every key; here a token of a sequence
        sees half of them. Prefill makes logits of the last token only.
        """
        assert seq_len is not None
        counts = self.counts(size)
        body = 2.0 * counts.layers * counts.block_weights
        head = 2.0 * counts.vocabulary * counts.width
        key = 4.0 * counts.layers * counts.heads * counts.head_width
        if phase == "decode":
            return batch * (body + head + key * seq_len)
        sequence = seq_len * (body + key * seq_len / 2)
        if phase == "prefill":
            return batch * (sequence + head)
        return 3 * batch * (sequence + seq_len * head)

    def items(self, size: str, phase: str, batch: int, seq_len: int | None) -> float:
        """Tokens a step: those read in, or the one a sequence that decode adds."""
        assert seq_len is not None
        return batch if phase == "decode" else batch * seq_len


def _text(vocabulary: int) -> MakeBatch:
    def make_batch(
        batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
    ) -> tuple[torch.Tensor, ...]:
        assert seq_len is not None
        text = Synthetic(seed, device).integers(vocabulary, batch, seq_len + 1)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    return make_batch


def _prompt(counts: Counts, dtype: torch.dtype) -> MakeBatch:
    def make_batch(
        batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
    ) -> tuple[torch.Tensor, ...]:
        import torch

        assert seq_len is not None
        shape = (batch, counts.key_heads, seq_len, counts.head_width)
        cache = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(2 * counts.layers)]
        return (Synthetic(seed, device).integers(counts.vocabulary, batch, seq_len), *cache)

    return make_batch


def _token(counts: Counts, dtype: torch.dtype) -> MakeBatch:
    def make_batch(
        batch: int, seq_len: int | None, seed: int, device: str | torch.device = "cpu"
    ) -> tuple[torch.Tensor, ...]:
        import torch

        assert seq_len is not None
        data = Synthetic(seed, device)
        token = data.integers(counts.vocabulary, batch, 1)
        shape = (batch, counts.key_heads, seq_len, counts.head_width)
        cache = [data.noise(*shape, dtype=dtype) for _ in range(2 * counts.layers)]
        return (token, torch.full((1,), seq_len - 1, device=device), *cache)

    return make_batch


def _loss(module: torch.nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    import torch
    from torch.nn import functional

    logits = module(tokens).flatten(0, 1)
    # A sum over the vocabulary in half precision would lose the loss's third digit.
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(wide, targets.flatten())


def _prefill(module: torch.nn.Module, tokens: torch.Tensor, *cache: torch.Tensor) -> torch.Tensor:
    return module(tokens, cache)  # type: ignore[no-any-return]


def _decode(module: torch.nn.Module, token: torch.Tensor, position: torch.Tensor, *cache: torch.Tensor) -> torch.Tensor:
    return module(token, cache, position)  # type: ignore[no-any-return]
