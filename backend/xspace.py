"""XSpace, the profile format of XLA's tools: its messages, a writer and a reader. Needs protobuf only.

No package exports the generated classes, so they are built when this module is imported, from the
published schema (https://github.com/openxla/xla/blob/main/xla/tsl/profiler/protobuf/xplane.proto).
A plane is a device or a host, a line is a thread or a stream, an event is a span on it. Names and
the names of stats are written once a plane and referred to by number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_INT64, _UINT64, _DOUBLE, _STRING, _BYTES = (
    _Field.TYPE_INT64,
    _Field.TYPE_UINT64,
    _Field.TYPE_DOUBLE,
    _Field.TYPE_STRING,
    _Field.TYPE_BYTES,
)
_PACKAGE = "tpubench.profiler"

#: Message: its fields as (name, number, type or message name, repeated, oneof).
_SCHEMA: dict[str, list[tuple[str, int, Any, bool, str | None]]] = {
    "XStat": [
        ("metadata_id", 1, _INT64, False, None),
        ("double_value", 2, _DOUBLE, False, "value"),
        ("uint64_value", 3, _UINT64, False, "value"),
        ("int64_value", 4, _INT64, False, "value"),
        ("str_value", 5, _STRING, False, "value"),
        ("bytes_value", 6, _BYTES, False, "value"),
        ("ref_value", 7, _UINT64, False, "value"),
    ],
    "XEvent": [
        ("metadata_id", 1, _INT64, False, None),
        ("offset_ps", 2, _INT64, False, "data"),
        ("num_occurrences", 5, _INT64, False, "data"),
        ("duration_ps", 3, _INT64, False, None),
        ("stats", 4, "XStat", True, None),
    ],
    "XEventMetadata": [
        ("id", 1, _INT64, False, None),
        ("name", 2, _STRING, False, None),
        ("metadata", 3, _BYTES, False, None),
        ("display_name", 4, _STRING, False, None),
        ("stats", 5, "XStat", True, None),
        ("child_id", 6, _INT64, True, None),
    ],
    "XStatMetadata": [
        ("id", 1, _INT64, False, None),
        ("name", 2, _STRING, False, None),
        ("description", 3, _STRING, False, None),
    ],
    "XLine": [
        ("id", 1, _INT64, False, None),
        ("name", 2, _STRING, False, None),
        ("timestamp_ns", 3, _INT64, False, None),
        ("events", 4, "XEvent", True, None),
        ("duration_ps", 9, _INT64, False, None),
        ("display_id", 10, _INT64, False, None),
        ("display_name", 11, _STRING, False, None),
    ],
    "XPlane": [
        ("id", 1, _INT64, False, None),
        ("name", 2, _STRING, False, None),
        ("lines", 3, "XLine", True, None),
        ("event_metadata", 4, "map:XEventMetadata", True, None),
        ("stat_metadata", 5, "map:XStatMetadata", True, None),
        ("stats", 6, "XStat", True, None),
    ],
    "XSpace": [
        ("planes", 1, "XPlane", True, None),
        ("errors", 2, _STRING, True, None),
        ("warnings", 3, _STRING, True, None),
        ("hostnames", 4, _STRING, True, None),
    ],
}


def _field(owner: Any, name: str, number: int, kind: Any, repeated: bool) -> Any:
    field = owner.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if isinstance(kind, str):
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = kind
    return field


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="tpubench/xplane.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _SCHEMA.items():
        one = file.message_type.add(name=name)
        for field_name, number, kind, repeated, oneof in fields:
            if isinstance(kind, str) and kind.startswith("map:"):
                entry = "".join(part.capitalize() for part in field_name.split("_")) + "Entry"
                pair = one.nested_type.add(name=entry)
                pair.options.map_entry = True
                _field(pair, "key", 1, _INT64, False)
                _field(pair, "value", 2, kind.removeprefix("map:"), False)
                kind = f"{name}.{entry}"
            field = _field(one, field_name, number, kind, repeated)
            if oneof is not None:
                if not one.oneof_decl:
                    one.oneof_decl.add(name=oneof)
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.XSpace"))


XSpace = _message_class()

Value = int | float | str
PS_PER_NS = 1000


class NotAnXSpace(ValueError):
    """The bytes are no XSpace, or end early."""


class PlaneWriter:
    """Adds lines and events to a plane of a new XSpace."""

    def __init__(self, space: Any, name: str) -> None:
        self._plane = space.planes.add(id=len(space.planes), name=name)
        self._events: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def line(self, name: str) -> Any:
        """A new line. Times on it count from the start of the profile."""
        number = len(self._plane.lines) + 1
        return self._plane.lines.add(id=number, display_id=number, name=name)

    def event(
        self,
        line: Any,
        name: str,
        start_ns: float,
        duration_ns: float,
        stats: Mapping[str, Value] | None = None,
    ) -> None:
        """A span on ``line``."""
        event = line.events.add(
            metadata_id=self._number(self._events, self._plane.event_metadata, name),
            offset_ps=round(start_ns * PS_PER_NS),
            duration_ps=round(duration_ns * PS_PER_NS),
        )
        for key, value in (stats or {}).items():
            stat = event.stats.add(metadata_id=self._number(self._stats, self._plane.stat_metadata, key))
            if isinstance(value, str):
                stat.str_value = value
            elif isinstance(value, float):
                stat.double_value = value
            else:
                stat.int64_value = value

    @staticmethod
    def _number(known: dict[str, int], metadata: Any, name: str) -> int:
        number = known.get(name)
        if number is None:
            number = known[name] = len(known) + 1
            metadata[number].id = number
            metadata[number].name = name
        return number


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A span: nanoseconds from the start of the profile, with its stats by name."""

    name: str
    start_ns: float
    duration_ns: float
    stats: dict[str, Any]

    @property
    def end_ns(self) -> float:
        """Where it ends."""
        return self.start_ns + self.duration_ns


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A thread or stream, its events in the order of the file."""

    name: str
    events: list[Event]


@dataclasses.dataclass(frozen=True, slots=True)
class Plane:
    """A device or a host."""

    name: str
    lines: list[Line]


def parse(data: bytes) -> list[Plane]:
    """The planes of a serialised XSpace.

    Raises:
        NotAnXSpace: ``data`` is something else, or ends early.
    """
    space = XSpace()
    try:
        space.ParseFromString(data)
    except message.DecodeError as error:
        raise NotAnXSpace("no XSpace, or one that ends early") from error
    return [_plane(p) for p in space.planes]


def read(path: Path) -> list[Plane]:
    """The planes of a ``.xplane.pb`` file.

    Raises:
        NotAnXSpace: it is something else, or ends early.
        OSError: it cannot be read.
    """
    return parse(path.read_bytes())


def _plane(plane: Any) -> Plane:
    names = {number: stat.name for number, stat in plane.stat_metadata.items()}

    def stats(owner: Any) -> Iterator[tuple[str, Any]]:
        for stat in owner.stats:
            kind = stat.WhichOneof("value")
            value = getattr(stat, kind) if kind else None
            yield names.get(stat.metadata_id, ""), names.get(value, "") if kind == "ref_value" else value

    shared = {number: dict(stats(m)) for number, m in plane.event_metadata.items()}
    # A TPU's op is named by its whole HLO text, and displayed by its name.
    titles = {number: m.display_name or m.name for number, m in plane.event_metadata.items()}
    lines = []
    for line in plane.lines:
        events = [
            Event(
                titles.get(e.metadata_id, ""),
                line.timestamp_ns + e.offset_ps / PS_PER_NS,
                e.duration_ps / PS_PER_NS,
                {**shared.get(e.metadata_id, {}), **dict(stats(e))},
            )
            for e in line.events
        ]
        lines.append(Line(line.display_name or line.name, events))
    return Plane(plane.name, lines)
