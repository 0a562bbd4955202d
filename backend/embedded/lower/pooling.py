"""Max and average pooling over two spatial dimensions, adaptive pooling, and their gradients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from backend.embedded.lower.convolution import spread
from backend.embedded.lower.table import aten, lowers
from backend.embedded.platform import target

Sizes = Sequence[int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Window:
    """A pooling window over an image of ``image`` pixels: two numbers each, rows then columns."""

    image: tuple[int, int]
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    output: list[int]
    excess: list[int]  # rows and columns that ceil_mode reaches past the padded image

    @classmethod
    def of(
        cls, image: tuple[int, int], kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
    ) -> _Window:
        sizes, pad, gap = spread(kernel, 2), spread(padding, 2), spread(dilation, 2)
        step = spread(stride, 2) if stride else sizes
        output, excess = [], []
        for i in range(2):
            reach = gap[i] * (sizes[i] - 1) + 1
            room = image[i] + 2 * pad[i] - reach
            count = (room + (step[i] - 1 if ceil else 0)) // step[i] + 1
            # PyTorch drops a last window that would start in the padding after the image.
            if ceil and (count - 1) * step[i] >= image[i] + pad[i]:
                count -= 1
            output.append(count)
            excess.append(max(0, (count - 1) * step[i] + reach - image[i] - 2 * pad[i]))
        return cls(image, sizes, step, pad, gap, output, excess)

    @property
    def pads(self) -> list[tuple[int, int]]:
        return [(p, p + e) for p, e in zip(self.padding, self.excess, strict=True)]

    def offsets(self) -> Iterator[tuple[int, int]]:
        """The first pixel, in the padded image, that each position of the kernel sees."""
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                yield row * self.dilation[0], column * self.dilation[1]

    def cut(self, padded: jax.Array, offset: tuple[int, int]) -> jax.Array:
        """What one position of the kernel sees of a padded (..., H, W) image, a value an output pixel."""
        rows, columns = (
            slice(o, o + (n - 1) * s + 1, s) for o, n, s in zip(offset, self.output, self.stride, strict=True)
        )
        return padded[..., rows, columns]

    def put(self, value: jax.Array, offset: tuple[int, int], padded: tuple[int, int]) -> jax.Array:
        """The transpose of :meth:`cut`: ``value`` laid into zeros of the padded image's size."""
        config = [(0, 0, 0)] * (value.ndim - 2)
        for o, n, s, p in zip(offset, self.output, self.stride, padded, strict=True):
            config.append((o, p - (o + (n - 1) * s + 1), s - 1))
        return lax.pad(value, jnp.zeros((), value.dtype), config)

    @property
    def padded(self) -> tuple[int, int]:
        rows, columns = (n + low + high for n, (low, high) in zip(self.image, self.pads, strict=True))
        return rows, columns

    def crop(self, padded: jax.Array) -> jax.Array:
        """The image within a padded one."""
        (top, left), (rows, columns) = self.padding, self.image
        return padded[..., top : top + rows, left : left + columns]


def _lowest(dtype: np.dtype) -> jax.Array:
    floating = jnp.issubdtype(dtype, jnp.floating)
    return jnp.asarray(-jnp.inf if floating else jnp.iinfo(dtype).min, dtype)


def _positions(window: _Window, fill: int) -> jax.Array:
    """The flat index of each pixel of the padded image, ``fill`` in the padding."""
    index = jnp.arange(math.prod(window.image), dtype=jnp.int32).reshape(window.image)
    return jnp.pad(index, window.pads, constant_values=fill)


@lowers(aten.max_pool2d_with_indices.default)
def max_pool(
    x: jax.Array,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """The largest value under each window, and its flat position in the image: the first of equals, or a NaN."""
    window = _Window.of(x.shape[-2:], kernel, stride, padding, dilation, ceil_mode)
    outer = [(0, 0)] * (x.ndim - 2)
    padded = jnp.pad(x, outer + window.pads, constant_values=_lowest(x.dtype))
    positions = _positions(window, 0)
    best = index = None
    for offset in window.offsets():
        value = window.cut(padded, offset)
        where = jnp.broadcast_to(window.cut(positions, offset), value.shape)
        if best is None or index is None:
            best, index = value, where
        else:
            better = (value > best) | jnp.isnan(value)
            best, index = jnp.where(better, value, best), jnp.where(better, where, index)
    assert best is not None and index is not None, "a kernel has at least one position"
    if target() == "tpu":
        # Where the index is not asked for, XLA for TPU would fuse the comparisons into the convolution that reads
        # the result, and make each of them several times over: by its own cycles 2/3 of ResNet-18's inference.
        ones = (1,) * (x.ndim - 2)
        best = lax.reduce_window(
            x, _lowest(x.dtype), lax.max, (*ones, *window.kernel), (*ones, *window.stride), outer + window.pads,
            window_dilation=(*ones, *window.dilation),
        )  # fmt: skip
    return best, index.astype(jnp.int64)


@lowers(aten.max_pool2d_with_indices_backward.default)
def max_pool_backward(
    grad: jax.Array,
    x: jax.Array,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    indices: jax.Array,
) -> jax.Array:
    """Each output's gradient goes to the pixel it came from.

    Not a scatter: for each position of the kernel, the gradients whose index is the pixel at that
    position are laid into place, and the layers are added. XLA fuses all of it into one pass.
    """
    window = _Window.of(x.shape[-2:], kernel, stride, padding, dilation, ceil_mode)
    positions = _positions(window, -1)
    chosen = indices.astype(jnp.int32)
    total = jnp.zeros((*grad.shape[:-2], *window.padded), grad.dtype)
    for offset in window.offsets():
        hit = chosen == window.cut(positions, offset)
        part = jnp.where(hit, grad, jnp.zeros((), grad.dtype))
        total = total + window.put(part, offset, window.padded)
    return window.crop(total)


def _divisors(window: _Window, count_include_pad: bool, divisor: int | None) -> jax.Array:
    """What each output's sum is divided by, of shape ``window.output``."""
    if divisor is not None:
        return jnp.full(window.output, divisor, jnp.float32)
    counts = []
    for axis in range(2):
        start = np.arange(window.output[axis]) * window.stride[axis] - window.padding[axis]
        limit = window.image[axis] + window.padding[axis]
        end = np.minimum(start + window.kernel[axis], limit)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, window.image[axis])
        counts.append(end - start)
    return jnp.asarray(np.outer(*counts), jnp.float32)


@lowers(aten.avg_pool2d.default)
def average_pool(
    x: jax.Array,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> jax.Array:
    """The mean under each window."""
    window = _Window.of(x.shape[-2:], kernel, stride, padding, (1,), ceil_mode)
    ones = (1,) * (x.ndim - 2)
    value = x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x
    total = lax.reduce_window(
        value,
        jnp.zeros((), value.dtype),
        lax.add,
        (*ones, *window.kernel),
        (*ones, *window.stride),
        [(0, 0)] * len(ones) + window.pads,
    )
    return total / _divisors(window, count_include_pad, divisor_override).astype(value.dtype)


@lowers(aten.avg_pool2d_backward.default)
def average_pool_backward(
    grad: jax.Array,
    x: jax.Array,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> jax.Array:
    """Each output's gradient, divided, goes to every pixel under its window."""
    window = _Window.of(x.shape[-2:], kernel, stride, padding, (1,), ceil_mode)
    share = grad / _divisors(window, count_include_pad, divisor_override).astype(grad.dtype)
    total = jnp.zeros((*grad.shape[:-2], *window.padded), grad.dtype)
    for offset in window.offsets():
        total = total + window.put(share, offset, window.padded)
    return window.crop(total)


def _adaptive_weights(length: int, output: int) -> np.ndarray:
    """The (output, length) matrix that averages PyTorch's adaptive bins along one axis."""
    weights = np.zeros((output, length))
    for i in range(output):
        start, end = (i * length) // output, -((-(i + 1) * length) // output)
        weights[i, start:end] = 1 / (end - start)
    return weights


@lowers(aten._adaptive_avg_pool2d.default)
def adaptive_average_pool(x: jax.Array, output_size: Sizes) -> jax.Array:
    """The mean over each of ``output_size`` bins."""
    rows, columns = (_adaptive_weights(n, o) for n, o in zip(x.shape[-2:], output_size, strict=True))
    return jnp.einsum("oh,...hw,pw->...op", rows.astype(x.dtype), x, columns.astype(x.dtype), precision="highest")


@lowers(aten._adaptive_avg_pool2d_backward.default)
def adaptive_average_pool_backward(grad: jax.Array, x: jax.Array) -> jax.Array:
    """The transpose of :func:`adaptive_average_pool`."""
    return jax.linear_transpose(lambda v: adaptive_average_pool(v, grad.shape[-2:]), x)(grad)[0]
