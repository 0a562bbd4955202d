"""ResNet-18 training by hand in JAX: the same maths as ``workloads/models/resnet.py`` with SGD and momentum.

What a competent JAX user writes: plain functions over dictionaries, one ``jax.jit`` with parameters,
momentum and running statistics donated. Images are NHWC and kernels HWIO, JAX's usual choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

State = dict[str, jax.Array]
BLOCKS = (2, 2, 2, 2)


def state_of(module: torch.nn.Module) -> tuple[State, State]:
    """``(parameters, running statistics)`` by PyTorch's names, kernels as HWIO, the classifier as (in, out)."""

    def array(value: torch.Tensor) -> jax.Array:
        value = value.detach().cpu()
        order = (2, 3, 1, 0) if value.ndim == 4 else tuple(reversed(range(value.ndim)))
        return jnp.array(value.permute(order).contiguous().numpy())

    parameters = {name: array(p) for name, p in module.named_parameters()}
    statistics = {name: array(b) for name, b in module.named_buffers()}
    return parameters, statistics


def _convolve(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    pad = kernel.shape[0] // 2
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _batch_norm(x: jax.Array, name: str, parameters: State, old: State, new: State, momentum: float = 0.1) -> jax.Array:
    mean = jnp.mean(x, (0, 1, 2))
    variance = jnp.mean(lax.square(x - mean), (0, 1, 2))
    count = x.size // x.shape[-1]
    new[f"{name}.running_mean"] = (1 - momentum) * old[f"{name}.running_mean"] + momentum * mean
    new[f"{name}.running_var"] = (1 - momentum) * old[f"{name}.running_var"] + momentum * variance * count / (count - 1)
    new[f"{name}.num_batches_tracked"] = old[f"{name}.num_batches_tracked"] + 1
    scale = parameters[f"{name}.weight"] * lax.rsqrt(variance + 1e-5)
    return (x - mean) * scale + parameters[f"{name}.bias"]


def _max_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])


def loss_of(parameters: State, old: State, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, State]:
    """``(cross-entropy, new running statistics)`` of images (N, H, W, 3)."""
    new: State = {}

    def norm(x: jax.Array, name: str) -> jax.Array:
        return _batch_norm(x, name, parameters, old, new)

    x = _max_pool(jax.nn.relu(norm(_convolve(images, parameters["conv1.weight"], 2), "bn1")))
    for stage, depth in enumerate(BLOCKS, 1):
        for block in range(depth):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = jax.nn.relu(norm(_convolve(x, parameters[f"{at}.conv1.weight"], stride), f"{at}.bn1"))
            y = norm(_convolve(y, parameters[f"{at}.conv2.weight"], 1), f"{at}.bn2")
            if f"{at}.downsample.0.weight" in parameters:
                x = norm(_convolve(x, parameters[f"{at}.downsample.0.weight"], stride), f"{at}.downsample.1")
            x = jax.nn.relu(x + y)
    logits = jnp.mean(x, (1, 2)) @ parameters["fc.weight"] + parameters["fc.bias"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -jnp.mean(chosen), new


def make_step(rate: float = 0.01, momentum: float = 0.9) -> Any:
    """``step(parameters, velocity, statistics, images, labels)`` to the same three and the loss; all three donated."""

    def step(
        parameters: State, velocity: State, statistics: State, images: jax.Array, labels: jax.Array
    ) -> tuple[State, State, State, jax.Array]:
        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            parameters, statistics, images, labels
        )
        velocity = {k: momentum * v + gradients[k] for k, v in velocity.items()}
        parameters = {k: p - rate * velocity[k] for k, p in parameters.items()}
        return parameters, velocity, statistics, loss

    return jax.jit(step, donate_argnums=(0, 1, 2))


def zeros_like(parameters: Mapping[str, jax.Array]) -> State:
    """A momentum of nothing."""
    return {k: jnp.zeros_like(p) for k, p in parameters.items()}
