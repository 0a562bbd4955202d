"""Backends by name: our own, and those that other packages announce. Imports neither torch nor jax."""

from __future__ import annotations

import importlib
import importlib.metadata

from backend.protocol import Backend

GROUP = "tpubench.backends"
_BUILTIN = {"embedded": "backend.embedded:Embedded", "torch": "backend.native:Native"}


class UnknownBackend(LookupError):
    """No backend has that name."""

    def __init__(self, name: str, offered: list[str]) -> None:
        super().__init__(f"no backend is called '{name}'")
        self.name = name
        self.offered = offered


class BrokenBackend(ImportError):
    """A package announces a backend that cannot be imported."""


def _announced() -> dict[str, str]:
    found = {e.name: e.value for e in importlib.metadata.entry_points(group=GROUP)}
    return {**found, **_BUILTIN}


def names() -> list[str]:
    """Every name on offer, in order."""
    return sorted(_announced())


def load(name: str) -> Backend:
    """The backend of that name.

    Raises:
        UnknownBackend: nobody offers it.
        BrokenBackend: the package that offers it does not import.
    """
    announced = _announced()
    if name not in announced:
        raise UnknownBackend(name, sorted(announced))
    module, _, attribute = announced[name].partition(":")
    try:
        backend: Backend = getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise BrokenBackend(f"the backend '{name}' ({announced[name]}) does not import: {error}") from error
    return backend
