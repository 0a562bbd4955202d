"""Records on disk: one parquet file a run, there whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import io
import os
import re
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tpubench import seal
from tpubench.errors import NoFilesMatch, NotARecordFile, TpubenchError, UnknownSchema, UnwritableDirectory
from tpubench.flaws import flaw, no_number
from tpubench.record import SCHEMA_VERSION, Record

_VERSION_KEY = b"tpubench.schema"
#: Characters of a name that stands in a file name.
_LONGEST = 32
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


@functools.cache
def schema() -> pa.Schema:
    """The columns of a record file. Null columns and empty lists keep their types."""
    hints = typing.get_type_hints(Record)
    return pa.schema([pa.field(f.name, _arrow_type(hints[f.name])) for f in dataclasses.fields(Record)])


@functools.cache
def _columns() -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema()}


def _only_choice(fields: dict[str, Any]) -> dict[str, Any]:
    """What a row of an earlier version does not say because there was no choice."""
    if fields["schema"] >= 3:
        return {}
    return {"optimizer": "sgd" if fields.get("phase") == "train" else "", "data": "device"}


@functools.cache
def _required() -> tuple[str, ...]:
    """The columns that every version has."""
    missing = dataclasses.MISSING
    return tuple(f.name for f in dataclasses.fields(Record) if f.default is missing is f.default_factory)


def file_name(record: Record) -> str:
    """A name that sorts by time and that a person can read."""
    parts = (
        re.sub(r"[^0-9TZ]", "", record.created),
        # A workload may be a path of any length; a file name may have 255 bytes. The fingerprint tells.
        f"{record.workload[-_LONGEST:]}-{record.size[:_LONGEST]}-{record.phase}",
        f"{record.backend[:_LONGEST]}-{record.mode[:_LONGEST]}",
        record.device,
        record.dtype,
        f"b{record.batch}",
        record.fingerprint[:8],
    )
    return re.sub(r"[^A-Za-z0-9_.-]", "-", "_".join(parts)) + ".parquet"


def ensure_writable(directory: Path, option: str = "--out") -> None:
    """Make ``directory``, which ``option`` named, and try it.

    Raises:
        UnwritableDirectory: nothing can be written there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UnwritableDirectory(directory, error.strerror or str(error), option) from error


def write(record: Record, directory: Path) -> Path:
    """Put ``record`` into ``directory`` under a name of its own, by atomic rename; returns the path.

    Raises:
        UnwritableDirectory: it cannot be written there.
    """
    content = _content(record)
    partial = directory / f".{file_name(record)}.{os.getpid()}.partial"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        return _publish(partial, directory / file_name(record))
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise UnwritableDirectory(directory, error.strerror or str(error)) from error


def _content(record: Record) -> bytes:
    """The file of ``record``."""
    table = _table(record)
    sink = io.BytesIO()
    # One row has nothing to compress or index, and the Arrow schema says nothing that parquet's
    # does not: without them a file is half as large, and a fifth faster to read.
    with pq.ParquetWriter(
        sink, table.schema, compression="NONE", use_dictionary=False, write_statistics=False,
        store_schema=False, write_page_checksum=True,
    ) as writer:  # fmt: skip
        writer.write_table(table)
        (fields,) = table.to_pylist()
        writer.add_key_value_metadata({_VERSION_KEY: str(SCHEMA_VERSION), seal.KEY: seal.blank(fields)})
    return seal.seal(sink.getvalue())


def _table(record: Record) -> pa.Table:
    """One row. A value that its column cannot hold, as a third party's backend may report, becomes null.

    The row's warnings name it: one bad field must not lose the others.
    """
    row, lost = record.to_dict(), []
    for field in schema():
        try:
            pa.array([row[field.name]], field.type)
            if no_number(field.name, row[field.name]):
                raise ValueError
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            lost.append(f"{field.name} is not recorded: {ascii(row[field.name])[:80]} is no {field.type}")
            row[field.name] = [] if pa.types.is_list(field.type) else None
    row["warnings"] = [*row["warnings"], *lost]
    return pa.Table.from_pylist([row], schema=schema())


def _publish(partial: Path, path: Path) -> Path:
    """Give ``partial`` its name, or that with a number where another run of the same millisecond has it."""
    target, number = path, 1
    while True:
        try:
            os.link(partial, target)  # unlike a rename, never over another file
            partial.unlink()
            return target
        except OSError:
            if not target.exists():  # a file system without hard links
                return partial.replace(target)
        number += 1
        target = path.with_name(f"{path.stem}-{number}{path.suffix}")


def read(path: Path) -> Record:
    """The record in ``path``.

    Raises:
        NotARecordFile: it is no parquet file, is torn, or holds something else.
        UnknownSchema: a newer tpubench wrote it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotARecordFile(path, (error.strerror or str(error)).lower()) from error
    sealed = seal.unseal(content)
    fields = _columns_of(path, content) if sealed is None else sealed
    version = fields.get("schema", 0)
    if version is None or not 1 <= version <= SCHEMA_VERSION:
        raise UnknownSchema(path, version, SCHEMA_VERSION)
    fields = {name: value for name, value in fields.items() if name in _columns()} | _only_choice(fields)
    missing = [name for name in _required() if name not in fields]
    if missing:
        raise NotARecordFile(path, f"columns are missing: {', '.join(missing)}")
    wrong = flaw(fields, (name for name in _required() if name != "seq_len"))
    if wrong:
        raise NotARecordFile(path, wrong)
    return Record(**fields)


def _columns_of(path: Path, content: bytes) -> dict[str, Any]:
    """The fields of a file without a valid seal, read from its columns."""
    try:
        # A file of one row: the reader's threads and prefetching, and whole-table conversion, cost more
        # than the reading.
        with pq.ParquetFile(io.BytesIO(content), pre_buffer=False, page_checksum_verification=True) as file:
            version = (file.metadata.metadata or {}).get(_VERSION_KEY)
            if version is None:
                raise NotARecordFile(path, "a parquet file of something else")
            if not version.isdigit() or not 1 <= int(version) <= SCHEMA_VERSION:
                raise UnknownSchema(path, version.decode(errors="replace"), SCHEMA_VERSION)
            table = file.read(use_threads=False)
        if len(table) != 1:
            raise NotARecordFile(path, f"{len(table)} rows where a run is one")
        columns = dict(zip(table.column_names, table.columns, strict=True))
        fields: dict[str, Any] = {}
        for name, expected in _columns().items():
            column = columns.get(name)
            if column is None:
                continue
            if column.type != expected:
                raise NotARecordFile(path, f"{name} is {column.type}")
            value = column[0].as_py()
            if value is not None or not pa.types.is_list(expected):
                fields[name] = value
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no parquet file"
        raise NotARecordFile(path, why.lower()) from error
    return fields


def expand(pattern: str) -> list[Path]:
    """The files that ``pattern`` (a file, a folder, or a glob of either) names, in order.

    Raises:
        NoFilesMatch: it names nothing.
    """
    path = Path(pattern)
    if path.exists():
        named = [path]
    else:
        named = [Path(m) for m in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207  (may be absolute)
    found = [file for n in named for file in (sorted(n.glob("*.parquet")) if n.is_dir() else [n])]
    if not found:
        raise NoFilesMatch(pattern)
    return found


def read_many(patterns: Sequence[str]) -> tuple[list[Record], list[TpubenchError]]:
    """The records that ``patterns`` name, each once, and what is wrong with the rest.

    A pattern that names nothing is a problem like a file that holds no record: it harms no other.

    Raises:
        NoFilesMatch: not one file is named.
    """
    paths: dict[Path, None] = {}
    records: list[Record] = []
    problems: list[TpubenchError] = []
    for pattern in patterns:
        try:
            paths.update(dict.fromkeys(expand(pattern)))
        except NoFilesMatch as error:
            problems.append(error)
    if not paths:
        raise NoFilesMatch("', '".join(patterns))
    for path in paths:
        try:
            records.append(read(path))
        except TpubenchError as error:
            problems.append(error)
    return records, problems
