"""Compiled programs on disk: a folder that any number of processes fill and read at once.

One file an entry, under the name of its key, there whole or not at all: written beside and renamed. An entry
that is torn or altered is thrown away and made anew. Nothing here fails a run: what cannot be read is a miss,
what cannot be written is counted and left out.

An entry is machine code that the reader runs: the folder must be writable for its owner alone, and is made so.

    magic | length of header (4 bytes, big endian) | header (JSON) | program | SHA-256 of all before
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: Where the cache lies (none: no cache on disk), and how many bytes it may hold.
FOLDER_VARIABLE = "TPUBENCH_CACHE_DIR"
BYTES_VARIABLE = "TPUBENCH_CACHE_BYTES"
#: Other backends' caches may lie beside ours.
SUBFOLDER = "embedded"
DEFAULT_BYTES = 4 * 2**30

_MAGIC = b"tpubench-program-1\n"
_SUFFIX = ".program"
_PARTIAL = ".partial"
_DIGEST = hashlib.sha256().digest_size
#: Eviction goes down to this share of the limit, so that it is not due again at the next entry.
_ROOM = 0.9
#: The folder is counted anew after this share of the limit was written: others write too.
_RECOUNT = 1 / 16
#: Seconds after which a file that was never finished is taken for a dead process's.
_ABANDONED = 3600.0
#: Errors that will meet the next write as well.
_LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}


class BadLimit(ValueError):
    """``TPUBENCH_CACHE_BYTES`` is no number of bytes."""

    remedy = "give whole bytes of 1 or more, as 4294967296 for 4 GiB"

    def __init__(self, text: str) -> None:
        super().__init__(f"{BYTES_VARIABLE} cannot be '{text}': {self.remedy}")
        self.text = text


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A program as it lies on disk: ``notes`` is what its maker needs beside it, JSON-ready."""

    name: str
    program: bytes
    notes: Any
    compile_s: float


@dataclasses.dataclass(slots=True)
class Use:
    """What one process did with the cache. A request is a hit only where the program could be loaded."""

    requests: int = 0
    hits: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    seconds: float = 0.0  # reading, loading, and writing
    rejected: int = 0  # entries torn, altered or not loadable: thrown away
    unwritten: int = 0  # programs that could not be written
    evicted: int = 0

    @property
    def misses(self) -> int:
        """Requests whose program had to be compiled."""
        return self.requests - self.hits


class Disk:
    """The cache in ``folder``, which is made at the first write, and holds at most ``limit`` bytes of programs."""

    def __init__(self, folder: Path, limit: int = DEFAULT_BYTES) -> None:
        self.folder = folder
        self.limit = limit
        self.use = Use()
        #: Why nothing more is written, None while it is.
        self.closed: str | None = None
        self._held: int | None = None  # bytes in the folder as last counted, and ours since
        self._since = 0

    def load(self, key: str, accept: Callable[[Entry], T]) -> T | None:
        """What ``accept`` makes of the entry of ``key``, None where there is none that it takes.

        An entry for which ``accept`` raises is thrown away like a torn one.
        """
        start = time.perf_counter()
        self.use.requests += 1
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            self.use.seconds += time.perf_counter() - start
            return None
        self.use.read_bytes += len(data)
        try:
            accepted = accept(_unpacked(data, key))
        except Exception:
            # Another process may have put a good one in its place just now: that is a miss more, no fault.
            with contextlib.suppress(OSError):
                path.unlink()
            self.use.rejected += 1
            self.use.seconds += time.perf_counter() - start
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used goes first
        self.use.hits += 1
        self.use.seconds += time.perf_counter() - start
        return accepted

    def miss(self) -> None:
        """Count a request for a program that has no key, and so can never be found."""
        self.use.requests += 1

    def store(self, key: str, entry: Entry) -> None:
        """Keep ``entry``, unless it cannot be written, or is larger than the whole cache."""
        start = time.perf_counter()
        try:
            data = _packed(key, entry)
        except (TypeError, ValueError):  # notes that are no JSON
            self.use.unwritten += 1
            return
        if self.closed is not None or len(data) > self.limit:
            self.use.unwritten += 1
            return
        try:
            self._write(key, data)
        except OSError as error:
            self.use.unwritten += 1
            if error.errno in _LASTING:
                self.closed = f"{self.folder}: {error.strerror or error}"
        else:
            self.use.written_bytes += len(data)
            self._make_room(len(data))
        self.use.seconds += time.perf_counter() - start

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _write(self, key: str, data: bytes) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self.folder / f"{key}.{os.getpid()}.{secrets.token_hex(4)}{_PARTIAL}"
        try:
            partial.write_bytes(data)
            partial.replace(self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise

    def _files(self, *suffixes: str) -> Iterator[Path]:
        try:
            with os.scandir(self.folder) as found:
                names = [entry.name for entry in found]
        except OSError:
            return
        yield from (self.folder / name for name in names if name.endswith(suffixes))

    def _entries(self) -> list[tuple[float, Path, int]]:
        """``(last use, path, bytes)`` of every entry, those that vanish meanwhile left out."""
        entries = []
        for path in self._files(_SUFFIX):
            with contextlib.suppress(OSError):
                stat = path.stat()
                entries.append((stat.st_mtime, path, stat.st_size))
        return entries

    def _make_room(self, written: int) -> None:
        """Evict what was used longest ago where the limit is passed. Two processes may do so at once."""
        self._since += written
        if self._held is not None:
            self._held += written
            if self._held <= self.limit and self._since <= self.limit * _RECOUNT:
                return
        entries = self._entries()
        self._held, self._since = sum(size for _, _, size in entries), 0
        self._sweep()
        if self._held <= self.limit:
            return
        for _, path, size in sorted(entries):
            if self._held <= self.limit * _ROOM:
                break
            # A process that is reading it reads on: the file goes when it is closed.
            with contextlib.suppress(OSError):
                path.unlink()
                self.use.evicted += 1
            self._held -= size

    def _sweep(self) -> None:
        """Remove what processes left that died while they wrote."""
        for path in self._files(_PARTIAL):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()


def _packed(key: str, entry: Entry) -> bytes:
    header = {"key": key, "name": entry.name, "notes": entry.notes, "compile_s": entry.compile_s}
    text = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join((_MAGIC, len(text).to_bytes(4, "big"), text, entry.program))
    return body + hashlib.sha256(body).digest()


def _unpacked(data: bytes, key: str) -> Entry:
    """The entry in ``data``.

    Raises:
        ValueError: it is no whole entry of ``key``.
    """
    start = len(_MAGIC) + 4
    if not data.startswith(_MAGIC) or len(data) < start + _DIGEST:
        raise ValueError("no entry")
    body, digest = memoryview(data)[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("torn or altered")
    length = int.from_bytes(data[start - 4 : start], "big")
    header = json.loads(data[start : start + length])
    if header["key"] != key:
        raise ValueError("the entry of another key")
    return Entry(header["name"], bytes(body[start + length :]), header["notes"], header["compile_s"])


def limit_of(text: str | None) -> int:
    """What ``TPUBENCH_CACHE_BYTES`` says, or its default.

    Raises:
        BadLimit: it is no number of bytes.
    """
    if not text:
        return DEFAULT_BYTES
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) < 1:
        raise BadLimit(text)
    return int(text)


_disk: Disk | None = None
_opened = False


def current() -> Disk | None:
    """The cache of this process, by the environment at its first use; None: there is none."""
    global _disk, _opened
    if not _opened:
        folder = os.environ.get(FOLDER_VARIABLE)
        _disk = Disk(Path(folder) / SUBFOLDER, limit_of(os.environ.get(BYTES_VARIABLE))) if folder else None
        _opened = True
    return _disk


def use(disk: Disk | None) -> Disk | None:
    """Take ``disk`` from here on; returns what was used before."""
    global _disk, _opened
    before, _disk, _opened = current(), disk, True
    return before
