"""Torch dtypes and JAX dtypes, one to one: nothing is narrowed on the way."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch

from backend.embedded.errors import DtypeNotSupported

_PAIRS = {
    torch.float64: jnp.float64,
    torch.float32: jnp.float32,
    torch.float16: jnp.float16,
    torch.bfloat16: jnp.bfloat16,
    torch.complex64: jnp.complex64,
    torch.complex128: jnp.complex128,
    torch.int64: jnp.int64,
    torch.int32: jnp.int32,
    torch.int16: jnp.int16,
    torch.int8: jnp.int8,
    torch.uint8: jnp.uint8,
    torch.bool: jnp.bool_,
}
TO_JAX: dict[torch.dtype, np.dtype] = {t: jnp.dtype(j) for t, j in _PAIRS.items()}
TO_TORCH: dict[np.dtype, torch.dtype] = {j: t for t, j in TO_JAX.items()}


def to_jax(dtype: torch.dtype) -> np.dtype:
    """The JAX dtype that holds the same values.

    Raises:
        DtypeNotSupported: there is none.
    """
    try:
        return TO_JAX[dtype]
    except KeyError:
        raise DtypeNotSupported(dtype) from None


def to_torch(dtype: np.dtype) -> torch.dtype:
    """The torch dtype that holds the same values.

    Raises:
        DtypeNotSupported: there is none.
    """
    try:
        return TO_TORCH[dtype]
    except KeyError:
        raise DtypeNotSupported(dtype) from None


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A CPU tensor's values as a numpy array of their own (bfloat16 as ml_dtypes has it)."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().copy().view(jnp.bfloat16)
    return tensor.numpy().copy()


def from_numpy(array: np.ndarray) -> torch.Tensor:
    """A CPU tensor of its own with ``array``'s values."""
    array = np.array(array, order="C", copy=True)
    if array.dtype == jnp.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
