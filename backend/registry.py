"""Backends by name: our own, and those that other packages announce. Imports neither torch nor jax."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

from backend.protocol import Backend

GROUP = "tpubench.backends"
# Ours are found without installed metadata, and nobody else's package can take their names.
_BUILTIN = {
    "embedded": "backend.embedded:Embedded",
    "torch": "backend.native:Native",
    "torch-xla": "backend.torchxla:TorchXla",
}


class UnknownBackend(LookupError):
    """No backend has that name."""

    def __init__(self, name: str, offered: list[str]) -> None:
        super().__init__(f"no backend is called '{name}'")
        self.name = name
        self.offered = offered


class BrokenBackend(ImportError):
    """A package announces a backend that does not import, or that is none. The message is one line."""


def _announced() -> dict[str, str]:
    found = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=GROUP)}
    return {**found, **_BUILTIN}


def names() -> list[str]:
    """Every name on offer, in order. A name here may still be broken: :func:`load` says why."""
    return sorted(_announced())


def load(name: str) -> Backend:
    """The backend of that name, a new instance.

    Raises:
        UnknownBackend: nobody offers it.
        BrokenBackend: what is announced under the name does not import, or is no backend.
    """
    announced = _announced()
    if name not in announced:
        raise UnknownBackend(name, sorted(announced))
    where = announced[name]
    try:
        backend: Backend = EntryPoint(name, where, GROUP).load()()
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise BrokenBackend(f"the backend '{name}' ({where}) does not import: {why}") from error
    missing = [part for part in _parts() if not hasattr(backend, part)]
    if missing:
        raise BrokenBackend(f"the backend '{name}' ({where}) has no {', '.join(missing)}")
    return backend


def _parts() -> list[str]:
    """What the protocol asks for, attributes and methods."""
    methods = [part for part in vars(Backend) if not part.startswith("_")]
    return [*Backend.__annotations__, *methods]
