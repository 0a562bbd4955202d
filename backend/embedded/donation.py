"""Which arrays a launch may take the memory of: those that nobody could read afterwards.

A graph that writes an input leaves the old array behind. XLA may put the new values into its memory
if only the storage's :class:`~backend.embedded.buffer.Buffer` holds that array. Tensors that share the
storage (views, ``detach()``) share the buffer and see the new values, so they do not count; another
buffer, a cache, or the same array passed twice does. Python's reference count of the array tells.
A host view of the memory (``np.asarray``) is known to PJRT, which then does not reuse it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import jax

from backend.embedded.buffer import Buffer
from backend.embedded.shadow import copied


def _references(arrays: Sequence[object], position: int) -> int:
    return sys.getrefcount(arrays[position])


def _count_of_sole() -> int:
    """The count of an array that one buffer and the list of a launch's arguments hold."""
    holder = Buffer.__new__(Buffer)
    holder.value = object()  # type: ignore[assignment]
    return _references([holder.value], 0)


_SOLE = _count_of_sole()


def own(arrays: list[jax.Array], positions: Sequence[int]) -> int:
    """Make ``arrays`` at ``positions`` the launch's own: one that is held elsewhere too becomes a copy.

    Returns the number of copies. The caller holds no reference beside the list and the buffers.
    """
    copies = 0
    for position in positions:
        if _references(arrays, position) > _SOLE:
            arrays[position] = copied(arrays[position])
            copies += 1
    return copies
