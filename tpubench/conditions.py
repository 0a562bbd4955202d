"""How the workers of a run are started, as far as it is no part of the work: not in a cell's fingerprint."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from backend.embedded.disk import BYTES_VARIABLE, BadLimit, limit_of
from tpubench.errors import BadValue
from tpubench.spec import Spec

#: Where a backend that makes HLO writes it; see :mod:`backend.embedded.dump`.
DUMP_VARIABLE = "TPUBENCH_DUMP_HLO"
#: With this set, every launch of the embedded backend is a line on the standard error of whoever set it; its
#: descriptor goes to the worker in the other. See :mod:`backend.embedded.oplog`.
TRACE_VARIABLE = "TPUBENCH_TRACE_OPS"
TRACE_FD_VARIABLE = "TPUBENCH_TRACE_FD"


@dataclasses.dataclass(frozen=True, slots=True)
class Conditions:
    """``cache_dir`` holds the compile caches of warm cells from run to run; HLO goes to ``dump_hlo``.

    ``pythons`` are the interpreters of the backends that have one of their own.
    """

    cache_dir: Path | None = None
    dump_hlo: Path | None = None
    pythons: Mapping[str, Path] = dataclasses.field(default_factory=dict)

    def ensure(self, specs: list[Spec]) -> None:
        """Refuse what cannot be meant.

        Raises:
            BadValue: a folder for caches that no cell would use, or one that is a file, or a size that is none.
        """
        try:
            limit_of(os.environ.get(BYTES_VARIABLE))
        except BadLimit as error:
            raise BadValue(BYTES_VARIABLE, error.text, error.remedy) from None
        if self.cache_dir is not None:
            if not any(spec.cache == "warm" for spec in specs):
                raise BadValue(
                    "--cache-dir",
                    self.cache_dir,
                    "a cold cell starts from an empty folder of its own: add --cache warm",
                )
            if self.cache_dir.exists() and not self.cache_dir.is_dir():
                raise BadValue("--cache-dir", self.cache_dir, "it is a file: name a folder")

    def environment(self, spec: Spec) -> dict[str, str]:
        """The variables of a worker of ``spec`` beside its backend's."""
        return {DUMP_VARIABLE: "" if self.dump_hlo is None else str(self.dump_folder(spec).resolve())}

    def dump_folder(self, spec: Spec) -> Path:
        """Where the HLO of ``spec`` goes: a folder of its own, named as the cell is, in ``dump_hlo``."""
        assert self.dump_hlo is not None
        name = f"{spec.workload[-32:]}-{spec.size}-{spec.phase}_{spec.backend}-{spec.mode}_{spec.fingerprint[:8]}"
        return self.dump_hlo / re.sub(r"[^A-Za-z0-9_.-]", "-", name)

    @contextlib.contextmanager
    def caches(self, spec: Spec) -> Iterator[Path | None]:
        """The folder of the compile caches of ``spec``; None: each of its workers has an empty one."""
        if spec.cache != "warm":
            yield None
        elif self.cache_dir is not None:
            yield self.cache_dir.resolve()
        else:
            with tempfile.TemporaryDirectory(prefix="tpubench-caches-", ignore_cleanup_errors=True) as folder:
                yield Path(folder)
