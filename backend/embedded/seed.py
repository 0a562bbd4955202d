"""The device's random state: a seed and a count of draws, from which every draw's key follows."""

from __future__ import annotations

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

    def next_key(self) -> np.ndarray:
        """What the next drawing program takes: (3,) uint32, the seed's halves and the draw's number."""
        if self.seed is None:
            self.manual_seed(torch.initial_seed())
        assert self.seed is not None
        self.draws += 1
        return np.array([self.seed >> 32, self.seed & 0xFFFFFFFF, self.draws & 0xFFFFFFFF], np.uint32)

    def state(self) -> torch.Tensor:
        """The state as bytes, (16,) uint8."""
        if self.seed is None:
            self.manual_seed(torch.initial_seed())
        assert self.seed is not None
        return torch.from_numpy(np.array([self.seed, self.draws], np.uint64).view(np.uint8).copy())

    def set_state(self, state: torch.Tensor) -> None:
        """The inverse of :meth:`state`."""
        seed, draws = state.cpu().numpy().view(np.uint64)
        self.seed, self.draws = int(seed), int(draws)


GENERATOR = Generator()


def key_of(data: jax.Array) -> jax.Array:
    """The JAX key of what :meth:`Generator.next_key` gave, inside a program."""
    return jax.random.fold_in(jax.random.wrap_key_data(data[:2].astype(jnp.uint32)), data[2])
