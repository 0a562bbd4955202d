"""The cells of LSTM and GRU that PyTorch runs as one op on a device, with gradients.

After ``aten/src/ATen/native/cuda/RNN.cu``; half precision is computed in float32, as there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from backend.embedded.lower.table import aten, lowers

Bias = jax.Array | None


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


def _with_bias(gates: jax.Array, bias: Bias) -> jax.Array:
    return _wide(gates) if bias is None else _wide(gates) + _wide(bias)


@lowers(aten._thnn_fused_lstm_cell.default)
def lstm_cell(
    inputs: jax.Array, hidden: jax.Array, cx: jax.Array, input_bias: Bias = None, hidden_bias: Bias = None
) -> tuple[jax.Array, ...]:
    """``(hy, cy, workspace)`` from gates (batch, 4 x hidden) in the order in, forget, cell, out.

    The workspace holds the gates after their activations.
    """
    gates = _with_bias(inputs, input_bias) + _with_bias(hidden, hidden_bias)
    i, f, g, o = jnp.split(gates, 4, axis=1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    cy = f * _wide(cx) + i * g
    held = jnp.concatenate([i, f, g, o], axis=1).astype(inputs.dtype)
    return (o * jnp.tanh(cy)).astype(cx.dtype), cy.astype(cx.dtype), held


@lowers(aten._thnn_fused_lstm_cell_backward_impl.default)
def lstm_cell_backward(
    grad_hy: Bias, grad_cy: Bias, cx: jax.Array, cy: jax.Array, workspace: jax.Array, has_bias: bool
) -> tuple[jax.Array | None, ...]:
    """Gradients of the gates, of ``cx`` and of a bias."""
    i, f, g, o = jnp.split(_wide(workspace), 4, axis=1)
    tanh = jnp.tanh(_wide(cy))
    above = jnp.zeros_like(tanh) if grad_hy is None else _wide(grad_hy)
    cell = above * o * (1 - tanh * tanh) + (0 if grad_cy is None else _wide(grad_cy))
    gates = [cell * g * i * (1 - i), cell * _wide(cx) * f * (1 - f), cell * i * (1 - g * g), above * tanh * o * (1 - o)]
    grad = jnp.concatenate(gates, axis=1)
    bias = grad.sum(0).astype(workspace.dtype) if has_bias else None
    return grad.astype(workspace.dtype), (cell * f).astype(cx.dtype), bias


@lowers(aten._thnn_fused_gru_cell.default)
def gru_cell(
    inputs: jax.Array, hidden: jax.Array, hx: jax.Array, input_bias: Bias = None, hidden_bias: Bias = None
) -> tuple[jax.Array, jax.Array]:
    """``(hy, workspace)`` from gates (batch, 3 x hidden) in the order reset, update, new.

    The workspace holds the gates after their activations, ``hx``, and the hidden part of the new gate.
    """
    ir, iz, fresh = jnp.split(_with_bias(inputs, input_bias), 3, axis=1)
    hr, hz, kept = jnp.split(_with_bias(hidden, hidden_bias), 3, axis=1)
    r, z, before = jax.nn.sigmoid(ir + hr), jax.nn.sigmoid(iz + hz), _wide(hx)
    n = jnp.tanh(fresh + r * kept)
    held = jnp.concatenate([r, z, n, before, kept], axis=1).astype(inputs.dtype)
    return (n + z * (before - n)).astype(hx.dtype), held


@lowers(aten._thnn_fused_gru_cell_backward.default)
def gru_cell_backward(grad_hy: jax.Array, workspace: jax.Array, has_bias: bool) -> tuple[jax.Array | None, ...]:
    """Gradients of both gates, of ``hx`` and of both biases."""
    r, z, n, before, kept = jnp.split(_wide(workspace), 5, axis=1)
    above = _wide(grad_hy)
    new = above * (1 - z) * (1 - n * n)
    reset, update = new * kept * r * (1 - r), above * (before - n) * z * (1 - z)
    inputs = jnp.concatenate([reset, update, new], axis=1)
    hidden = jnp.concatenate([reset, update, new * r], axis=1)
    dtype = workspace.dtype
    biases = (inputs.sum(0).astype(dtype), hidden.sum(0).astype(dtype)) if has_bias else (None, None)
    return inputs.astype(dtype), hidden.astype(dtype), (above * z).astype(dtype), *biases


@lowers(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    grad: jax.Array, v: jax.Array, g: jax.Array, norms: jax.Array, dim: int
) -> tuple[jax.Array, jax.Array]:
    """Gradients of direction and length of ``w = v x g / norm(v)``, the norm over every other dimension."""
    axes = tuple(a for a in range(v.ndim) if a != dim % v.ndim)
    along = (grad * v).sum(axes, keepdims=True)
    return g / norms * (grad - v * along / (norms * norms)), along / norms
