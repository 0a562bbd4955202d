"""What a record cannot say: a null that everything needs, a number that is none, a step that took no time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

#: A loss may be no number: the row says what it means.
_MAY_BE_NAN = ("losses", "reference_losses")


def flaw(fields: Mapping[str, Any], required: Iterable[str]) -> str | None:
    """What is wrong with the fields of a record, None where nothing is. ``required`` must not be null."""
    for name in required:
        if fields[name] is None:
            return f"{name} is null"
    for name, value in fields.items():
        odd = no_number(name, value)
        if odd is not None:
            return f"{name} holds {odd}"
    steps = fields.get("step_s")
    return f"step_s holds {min(steps):g}" if steps and min(steps) <= 0 else None


def no_number(name: str, value: Any) -> str | None:
    """The first part of the column ``name``'s ``value`` that is null in a list, not a number or infinite."""
    kind = type(value)
    if kind is float:
        return None if isfinite(value) or name in _MAY_BE_NAN else str(value)
    if kind is not list or name in _MAY_BE_NAN:
        return None
    for part in value:
        if part is None:
            return "null"
        if type(part) is float and not isfinite(part):
            return str(part)
    return None
