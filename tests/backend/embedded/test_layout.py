"""Reading and writing through strides, against torch's own as_strided."""

import math

import jax
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.embedded.layout import Layout, memory_order, read, write

jax.config.update("jax_enable_x64", True)


@st.composite
def windows(draw):
    """A storage's length with a size, stride and offset that stay within it, boxes and odd ones alike."""
    rank = draw(st.integers(0, 4))
    size = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    stride = tuple(draw(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 12, 24])) for _ in range(rank))
    offset = draw(st.integers(0, 9))
    needed = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    return needed + draw(st.integers(0, 7)), size, stride, offset


@settings(max_examples=80, deadline=None)
@given(windows())
def test_reading_is_as_strided(window):
    length, size, stride, offset = window
    flat = torch.arange(length, dtype=torch.int32)
    expected = flat.as_strided(size, stride, offset)
    got = read(jax.numpy.asarray(flat.numpy()), Layout(size, stride, offset, np.dtype("int32")))
    assert np.array_equal(np.asarray(got), expected.numpy())


def overlaps(size, stride):
    places = np.zeros(size, np.int64)
    for axis, step in enumerate(stride):
        places += (np.arange(size[axis]) * step).reshape([-1 if a == axis else 1 for a in range(len(size))])
    return len(np.unique(places)) < places.size


@settings(max_examples=80, deadline=None)
@given(windows())
def test_writing_is_as_strideds_copy(window):
    length, size, stride, offset = window
    if overlaps(size, stride):
        return  # PyTorch refuses to write there
    flat = torch.arange(length, dtype=torch.int32)
    value = -1 - torch.arange(math.prod(size), dtype=torch.int32).reshape(size)
    expected = flat.clone()
    expected.as_strided(size, stride, offset).copy_(value)
    layout = Layout(size, stride, offset, np.dtype("int32"))
    got = write(jax.numpy.asarray(flat.numpy()), layout, jax.numpy.asarray(value.numpy()))
    assert np.array_equal(np.asarray(got), expected.numpy())


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(4)), st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_memory_order_undoes_a_permutation(permutation, size):
    view = torch.arange(math.prod(size)).reshape(size).permute(permutation)
    order = memory_order(tuple(view.shape), view.stride())
    assert torch.equal(view.permute(order).reshape(-1), torch.arange(math.prod(size)))


def test_memory_order_of_a_view_with_gaps_is_none():
    assert memory_order((2, 2), (4, 1)) is None
