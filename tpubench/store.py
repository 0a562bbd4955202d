"""Records on disk: one parquet file a run, there whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import re
import types
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tpubench.errors import NoFilesMatch, NotARecordFile, TpubenchError, UnknownSchema, UnwritableDirectory
from tpubench.record import SCHEMA_VERSION, Record

_VERSION_KEY = b"tpubench.schema"
_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}


def _arrow_type(annotation: Any) -> pa.DataType:
    """``str``, ``int | None`` and ``list[float]`` as parquet has them."""
    if isinstance(annotation, types.UnionType):
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
    if typing.get_origin(annotation) is list:
        return pa.list_(_arrow_type(typing.get_args(annotation)[0]))
    return _TYPES[annotation]


def schema() -> pa.Schema:
    """The columns of a record file. Null columns and empty lists keep their types."""
    hints = typing.get_type_hints(Record)
    fields = [pa.field(f.name, _arrow_type(hints[f.name])) for f in dataclasses.fields(Record)]
    return pa.schema(fields, metadata={_VERSION_KEY: str(SCHEMA_VERSION).encode()})


def file_name(record: Record) -> str:
    """A name that sorts by time and that a person can read."""
    parts = (
        re.sub(r"[^0-9TZ]", "", record.created),
        f"{record.workload}-{record.size}-{record.phase}",
        f"{record.backend}-{record.mode}",
        record.device,
        record.dtype,
        f"b{record.batch}",
        record.fingerprint[:8],
    )
    return re.sub(r"[^\w.-]", "-", "_".join(parts)) + ".parquet"


def ensure_writable(directory: Path) -> None:
    """Make ``directory``, and try it.

    Raises:
        UnwritableDirectory: nothing can be written there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UnwritableDirectory(directory, error.strerror or str(error)) from error


def write(record: Record, directory: Path) -> Path:
    """Put ``record`` into ``directory`` under a name of its own, by atomic rename; returns the path.

    Raises:
        UnwritableDirectory: it cannot be written there.
    """
    row = {name: [value] for name, value in record.to_dict().items()}
    table = pa.Table.from_pydict(row, schema=schema())
    path = directory / file_name(record)
    partial = directory / f".{path.name}.{os.getpid()}.partial"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as sink:
            pq.write_table(table, sink)
            sink.flush()
            os.fsync(sink.fileno())
        path = _unused(path)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise UnwritableDirectory(directory, error.strerror or str(error)) from error
    return path


def _unused(path: Path) -> Path:
    """``path``, or the same with a number where a run of the same millisecond has it."""
    candidate, number = path, 2
    while candidate.exists():
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return candidate


def read(path: Path) -> Record:
    """The record in ``path``.

    Raises:
        NotARecordFile: it is no parquet file, is torn, or holds something else.
        UnknownSchema: a newer tpubench wrote it.
    """
    try:
        # A file of one row: the reader's threads and prefetching cost more than the reading.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            version = (file.schema_arrow.metadata or {}).get(_VERSION_KEY)
            if version is None:
                raise NotARecordFile(path, "a parquet file of something else")
            if not version.isdigit() or not 1 <= int(version) <= SCHEMA_VERSION:
                raise UnknownSchema(path, version.decode(errors="replace"), SCHEMA_VERSION)
            rows = file.read(use_threads=False).to_pylist()
    except (pa.ArrowException, OSError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no parquet file"
        raise NotARecordFile(path, why.lower()) from error
    if len(rows) != 1:
        raise NotARecordFile(path, f"{len(rows)} rows where a run is one")
    known = {f.name: f for f in dataclasses.fields(Record)}
    row = {name: value for name, value in rows[0].items() if name in known}
    for name, field in known.items():
        if field.default_factory is not dataclasses.MISSING and row.get(name) is None:
            row[name] = []
    try:
        return Record(**row)
    except TypeError as error:
        raise NotARecordFile(path, "columns are missing") from error


def expand(patterns: Sequence[str]) -> list[Path]:
    """The files that ``patterns`` (files, folders, globs) name, each once, in order.

    Raises:
        NoFilesMatch: a pattern names nothing.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            matches: Iterable[Path] = sorted(path.glob("*.parquet"))
        elif path.exists() or not glob.has_magic(pattern):
            matches = [path] if path.exists() else []
        else:
            matches = [Path(m) for m in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207  (patterns may be absolute)
        matches = list(matches)
        if not matches:
            raise NoFilesMatch(pattern)
        found.update(dict.fromkeys(matches))
    return list(found)


def read_many(patterns: Sequence[str]) -> tuple[list[Record], list[TpubenchError]]:
    """The records that ``patterns`` name, and what is wrong with the files that hold none.

    Raises:
        NoFilesMatch: a pattern names nothing.
    """
    records: list[Record] = []
    problems: list[TpubenchError] = []
    for path in expand(patterns):
        try:
            records.append(read(path))
        except TpubenchError as error:
            problems.append(error)
    return records, problems
