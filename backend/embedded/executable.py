"""A compiled program, from disk where it is there, and the quickest way to launch it."""

from __future__ import annotations

import functools
import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental import serialize_executable

from backend.embedded import disk, dump, oplog
from backend.embedded import shadow as shadows
from backend.embedded.cache import COUNTERS
from backend.embedded.disk import Entry
from backend.embedded.identity import NoKey, digest

Launch = Callable[[list[jax.Array]], Sequence[jax.Array]]


class Executable:
    """``function``, compiled for arrays like ``arguments``; :attr:`launch` takes them as one list.

    ``function`` returns a flat sequence of arrays. Launching is asynchronous. The arrays at the places
    in ``donated`` are gone after a launch: their memory is the outputs' where it fits.

    ``key`` gives the program's name on disk (:func:`backend.embedded.identity.key`); without one it is compiled
    anew in every process. ``describe`` gives what its maker learns while it is traced, JSON-ready: it is kept
    with the program and comes back as :attr:`notes`.
    """

    __slots__ = ("compiled", "launch", "notes")

    def __init__(
        self, function: Callable[..., Any], arguments: Sequence[Any], name: str,
        key: Callable[[], str] | None = None, describe: Callable[[], Any] | None = None,
        donated: Sequence[int] = (),
    ) -> None:  # fmt: skip
        def program(*arrays: jax.Array) -> list[jax.Array]:
            return list(function(*arrays))

        # XLA names its module after the function: the name is what a profile shows.
        program.__name__ = re.sub(r"\W", "_", name)
        jitted = jax.jit(program, keep_unused=True, donate_argnums=tuple(donated))
        shadow = shadows.current()
        if shadow is not None:
            self.compiled, self.launch = None, shadow.launcher(jitted, arguments, name)
            self.notes = describe() if describe is not None else None
            return
        lower = functools.partial(jitted.lower, *arguments)
        kept = disk.current()
        place = _place(key, donated) if kept is not None else None
        if kept is not None and place is None:
            kept.miss()
        start = time.perf_counter()
        loaded = kept.load(place, lambda entry: _loaded(entry, arguments)) if kept is not None and place else None
        if loaded is not None:
            self.compiled, self.notes = loaded
            origin, seconds, lowered = "disk", time.perf_counter() - start, None
            COUNTERS.loads += 1
        else:
            start = time.perf_counter()
            with warnings.catch_warnings():
                # Not every array that is free fits an output, and jax would say so each time.
                warnings.filterwarnings("ignore", "Some donated buffers were not usable")
                lowered = lower()
            self.compiled = lowered.compile()
            origin, seconds = "compiled", time.perf_counter() - start
            COUNTERS.compile_s += seconds
            COUNTERS.misses += 1
            self.notes = describe() if describe is not None else None
            if kept is not None and place is not None:
                _keep(kept, place, name, self.compiled, self.notes, seconds)
        self.launch: Launch = _direct(self.compiled) or _public(self.compiled)
        if oplog.wanted():
            self.launch = oplog.traced(self.launch, name, f"{origin} {seconds * 1e3:.2f} ms")
        where = dump.folder()
        if where is not None:
            dump.write(where, name, lowered or lower(), self.compiled, arguments, origin, seconds)


def _place(key: Callable[[], str] | None, donated: Sequence[int]) -> str | None:
    """The name on disk of what ``key`` names, compiled with ``donated``; None: it has none."""
    if key is None:
        return None
    try:
        return digest(key(), str(sorted(donated)))
    except NoKey:
        return None


def _keep(kept: disk.Disk, place: str, name: str, compiled: Any, notes: Any, seconds: float) -> None:
    try:
        program, _, out = serialize_executable.serialize(compiled)
    except Exception:
        # What PJRT cannot write out (a host callback): it is compiled anew each time.
        kept.use.unwritten += 1
        return
    kept.store(place, Entry(name, program, {"outputs": out.num_leaves, "notes": notes}, seconds))


def _loaded(entry: Entry, arguments: Sequence[Any]) -> tuple[Any, Any]:
    """``(compiled, notes)``; raises whatever is wrong with the entry."""
    given = jax.tree_util.tree_structure((tuple(arguments), {}))
    returned = jax.tree_util.tree_structure([0] * entry.notes["outputs"])
    placed = next((sorted(a.devices(), key=lambda d: d.id) for a in arguments if isinstance(a, jax.Array)), None)
    devices = placed or jax.devices()[:1]
    compiled = serialize_executable.deserialize_and_load(
        entry.program, given, returned, backend=devices[0].client, execution_devices=devices
    )
    return compiled, entry.notes["notes"]


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
