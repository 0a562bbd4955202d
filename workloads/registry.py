"""Workloads by name: our own, and those that other packages announce. Imports no torch."""

from __future__ import annotations

import importlib
import importlib.metadata

from workloads.protocol import Workload

GROUP = "tpubench.workloads"
_BUILTIN = {"resnet": "workloads.resnet:ResNet"}


class UnknownWorkload(LookupError):
    """No workload has that name."""

    def __init__(self, name: str, offered: list[str]) -> None:
        super().__init__(f"no workload is called '{name}'")
        self.name = name
        self.offered = offered


class BrokenWorkload(ImportError):
    """A package announces a workload that cannot be imported."""


def _announced() -> dict[str, str]:
    found = {e.name: e.value for e in importlib.metadata.entry_points(group=GROUP)}
    return {**found, **_BUILTIN}


def names() -> list[str]:
    """Every name on offer, in order."""
    return sorted(_announced())


def load(name: str) -> Workload:
    """The workload of that name.

    Raises:
        UnknownWorkload: nobody offers it.
        BrokenWorkload: the package that offers it does not import.
    """
    announced = _announced()
    if name not in announced:
        raise UnknownWorkload(name, sorted(announced))
    module, _, attribute = announced[name].partition(":")
    try:
        workload: Workload = getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise BrokenWorkload(f"the workload '{name}' ({announced[name]}) does not import: {error}") from error
    return workload
