"""The device's random state: a seed and a count of draws, from which every draw's key follows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import torch


class Generator:
    """Counter-based: the n-th draw after a seed is the same on every platform and in every mode."""

    def __init__(self) -> None:
        self.seed: int | None = None
        self.draws = 0

    def manual_seed(self, seed: int) -> None:
        """Start again from ``seed``, of which the low 64 bits count."""
        self.seed, self.draws = seed & 0xFFFFFFFFFFFFFFFF, 0

    def initial_seed(self) -> int:
        """The seed it started from: PyTorch's, where none was given."""
        if self.seed is None:
            self.manual_seed(torch.initial_seed())
        assert self.seed is not None
        return self.seed

    def next_key(self) -> np.ndarray:
        """What the next drawing program takes: (3,) uint32, the seed's halves and the draw's number.

        Within :func:`drawing_from` it comes from that generator: 64 bits of its stream, and no number.
        """
        source = _sources.generator
        if source is not None:
            high, low = torch.empty(2, dtype=torch.int64, device="cpu").random_(0, 2**32, generator=source).tolist()
            return np.array([high, low, 0], np.uint32)
        seed = self.initial_seed()
        self.draws += 1
        return np.array([seed >> 32, seed & 0xFFFFFFFF, self.draws & 0xFFFFFFFF], np.uint32)

    def state(self) -> torch.Tensor:
        """The state as bytes, (16,) uint8."""
        return torch.from_numpy(np.array([self.initial_seed(), self.draws], np.uint64).view(np.uint8).copy())

    def set_state(self, state: torch.Tensor) -> None:
        """The inverse of :meth:`state`."""
        seed, draws = state.cpu().numpy().view(np.uint64)
        self.seed, self.draws = int(seed), int(draws)


class _Sources(threading.local):
    generator: torch.Generator | None = None


_sources = _Sources()


@contextlib.contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Have this thread's draws take their keys from ``generator``, a CPU generator."""
    outer, _sources.generator = _sources.generator, generator
    try:
        yield
    finally:
        _sources.generator = outer


GENERATOR = Generator()


def key_of(data: jax.Array) -> jax.Array:
    """The JAX key of what :meth:`Generator.next_key` gave, inside a program."""
    return jax.random.fold_in(jax.random.wrap_key_data(data[:2].astype(jnp.uint32)), data[2])
