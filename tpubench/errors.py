"""One named error for each mistake a user can make: what, which value, and the remedy, in one line.

TpubenchError
├── UnknownName            a workload, backend, mode, size, dtype, device, phase or cache state nobody offers
├── UnknownChip            a chip that the catalogue does not list
├── BadValue               a number or list that cannot be meant
├── NoFilesMatch           a pattern or folder without one result file
├── NotARecordFile         a file that is no parquet, or no record of ours
├── UnknownSchema          a record written by another version of the schema
├── UnwritableDirectory    results or traces cannot be written there
├── NothingToCompare       no row is left to put in a table
├── BaselineNotFound       the baseline's filter matches no row
├── DifferentWork          a baseline whose work other rows did not do
├── SeveralCells           more than one cell falls into one place of a pivot
├── MissingPackage         a package that only one command needs
├── NotASurvey             a file that `tpubench ops` did not write
├── WorkerFailed           a worker process ended without an answer
├── TraceIncomplete        a capture without steps or ops
├── TraceNotFound          no capture in that folder
└── ServerFailed           TensorBoard did not come up
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class TpubenchError(Exception):
    """A mistake a user can make. The command line prints it as one line and exits with 2."""

    exit_code = 2

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class UnknownName(TpubenchError):
    """A name nobody offers: says which, what is offered, and the nearest of those."""

    def __init__(self, kind: str, name: str, offered: Iterable[str]) -> None:
        names = sorted(offered)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        super().__init__(f"unknown {kind} '{name}'", f"{hint}one of {', '.join(names) or 'none'}")


class UnknownChip(UnknownName):
    """A chip that the catalogue does not list."""

    def __init__(self, name: str, offered: Iterable[str]) -> None:
        super().__init__("chip", name, offered)


class BadValue(TpubenchError):
    """A number or list that cannot be meant."""

    def __init__(self, option: str, value: object, remedy: str) -> None:
        super().__init__(f"{option} cannot be '{value}'", remedy)


class MissingPackage(TpubenchError):
    """A package that only one command needs is not installed."""

    def __init__(self, package: str, why: str, remedy: str) -> None:
        super().__init__(f"{package} is not installed ({why})", remedy)


class NotASurvey(TpubenchError):
    """A file that ``tpubench ops`` did not write."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"'{path}' is no table of `tpubench ops` ({why})", "name a file that `tpubench ops --out` wrote"
        )


class NoFilesMatch(TpubenchError):
    """A pattern or folder without one result file."""

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"no result file matches '{pattern}'", "run `tpubench run` first, or name the folder it wrote to"
        )


class NotARecordFile(TpubenchError):
    """A file that is no parquet, or a parquet that is no record of ours."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"'{path}' is no tpubench record ({why})", "name files that `tpubench run` wrote")


class UnknownSchema(TpubenchError):
    """A record written under a schema version this installation does not read."""

    def __init__(self, path: object, found: object, known: int) -> None:
        super().__init__(
            f"'{path}' has record schema {found}, this tpubench reads 1 to {known}",
            "upgrade tpubench, or run the cell again",
        )


class UnwritableDirectory(TpubenchError):
    """Results or traces cannot be written there."""

    def __init__(self, path: object, why: str, option: str = "--out") -> None:
        super().__init__(f"cannot write to '{path}' ({why})", f"name a writable folder with {option}")


class NothingToCompare(TpubenchError):
    """No row is left to put in a table."""


class BaselineNotFound(TpubenchError):
    """The baseline's filter matches no row."""

    def __init__(self, wanted: str, offered: Iterable[str]) -> None:
        super().__init__(f"no row matches the baseline '{wanted}'", f"one of {', '.join(offered)}")


class DifferentWork(TpubenchError):
    """A baseline's filter asks for work that other rows did not do."""

    def __init__(self, field: str, values: Sequence[object], baseline: str) -> None:
        super().__init__(
            f"the baseline '{baseline}' did different work: rows differ in {field} ({', '.join(map(str, values))})",
            f"add --across {field} to compare them all the same, or keep one {field} with --where",
        )


class SeveralCells(TpubenchError):
    """More than one cell falls into one place of a pivot."""

    def __init__(self, place: str, names: Sequence[str], differ: Sequence[str]) -> None:
        super().__init__(
            f"{len(names)} cells fall into {place} ({', '.join(names)})",
            f"they differ in {', '.join(differ)}: join it to an axis of --by with +, or keep one with --where",
        )


class WorkerFailed(TpubenchError):
    """A worker process ended without an answer where an answer was the point (trace, list)."""


class TraceIncomplete(TpubenchError):
    """A capture without steps or ops. Exit code 1: the command was right, its outcome was not."""

    exit_code = 1


class TraceNotFound(TpubenchError):
    """No capture in that folder."""


class ServerFailed(TpubenchError):
    """TensorBoard did not come up."""
