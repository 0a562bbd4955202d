"""Which records are meant: ``backend:mode``, or ``field=value`` pairs."""

from __future__ import annotations

import dataclasses
import fnmatch
from typing import Any

from tpubench.errors import BadValue, UnknownName
from tpubench.record import Record
from tpubench.spec import Spec

FIELDS = tuple(f.name for f in dataclasses.fields(Record))
#: Those that tell one cell from another: what was asked, and on what it ran.
TELLING = (
    *(f.name for f in dataclasses.fields(Spec)),
    *"status chip chips host device_name cpu_model torch_version jax_version libtpu_version tpubench_version".split(),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that a record meets all of: (field, pattern, whether it must match or must not)."""

    text: str
    conditions: tuple[tuple[str, str, bool], ...]

    @classmethod
    def parse(cls, option: str, text: str) -> Filter:
        """``torch:eager``, ``torch``, or ``batch=8,dtype!=float32,mode=eager*``, as ``option`` was given it.

        Raises:
            BadValue: it is none of these.
            UnknownName: a record has no such field.
        """
        if "=" not in text:
            backend, colon, mode = text.partition(":")
            if not backend or (colon and not mode):
                raise BadValue(option, text, "give backend:mode, or field=value pairs separated by commas")
            return cls(text, (("backend", backend, True), *((("mode", mode, True),) if colon else ())))
        conditions = []
        for pair in text.split(","):
            name, _, value = (part.strip() for part in pair.partition("="))
            wanted = not name.endswith("!")
            name = name.removesuffix("!").strip()
            if not name or not value:
                raise BadValue(option, pair, "give field=value or field!=value pairs: backend=torch,mode!=compile")
            if name not in FIELDS:
                raise UnknownName(f"field of a record in {option}", name, TELLING)
            conditions.append((name, value, wanted))
        return cls(text, tuple(conditions))

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it asks for."""
        return tuple(name for name, _, _ in self.conditions)

    def matches(self, record: Record) -> bool:
        """Whether ``record`` meets every condition; ``*`` and ``?`` in a value match as in file names."""
        return all(
            fnmatch.fnmatchcase(written(getattr(record, name)), value) is wanted
            for name, value, wanted in self.conditions
        )


def written(value: Any) -> str:
    """A field's value as a filter writes it: ``true``, ``none``, and the rest as Python does."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
