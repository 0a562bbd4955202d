"""A compiled program, and the quickest way to launch it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from backend.embedded.cache import COUNTERS

Launch = Callable[[list[jax.Array]], Sequence[jax.Array]]


class Executable:
    """``function``, compiled for arrays like ``arguments``; :attr:`launch` takes them as one list.

    ``function`` returns a flat sequence of arrays. Launching is asynchronous, and takes the arrays at
    the positions in ``donate``: nobody may read those afterwards.
    """

    __slots__ = ("compiled", "launch")

    def __init__(
        self, function: Callable[..., Any], arguments: Sequence[Any], name: str, donate: Sequence[int] = ()
    ) -> None:
        def program(*arrays: jax.Array) -> list[jax.Array]:
            return list(function(*arrays))

        # XLA names its module after the function: the name is what a profile shows.
        program.__name__ = re.sub(r"\W", "_", name)
        start = time.perf_counter()
        self.compiled = jax.jit(program, keep_unused=True, donate_argnums=tuple(donate)).lower(*arguments).compile()
        COUNTERS.compile_s += time.perf_counter() - start
        COUNTERS.misses += 1
        self.launch: Launch = _direct(self.compiled) or _public(self.compiled)


def _public(compiled: Any) -> Launch:
    """Launching through the public API."""
    return lambda arrays: compiled(*arrays)


def _direct(compiled: Any) -> Launch | None:
    """Launching past the public API's checks of arguments we made ourselves: 3.8 us where that takes 5.0.

    The names are private to jaxlib; where one is missing the public way is taken.
    """
    try:
        inner = compiled._executable.unsafe_call
        loaded, handlers = inner.xla_executable, inner.out_handler.handlers
        if inner.ordered_effects or inner.has_unordered_effects or inner.has_host_callbacks:
            return None
        execute = loaded.execute_sharded
    except AttributeError:
        return None
    return lambda arrays: execute(arrays).consume_with_handlers(handlers)  # type: ignore[no-any-return]
