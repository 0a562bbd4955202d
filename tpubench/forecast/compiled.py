"""What libtpu makes of programs: each compile in a process that may die of it, and kept on disk."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tpubench.errors import MissingPackage, WorkerFailed
from tpubench.forecast.child import Child, Died
from tpubench.forecast.kept import Kept, digest
from tpubench.forecast.target import Target
from tpubench.record import Status

_SCRIPT = Path(__file__).with_name("compiler.py")
#: Seconds that libtpu may take to come up: half a second as a rule, more from a cold disk.
_START = 120.0
#: The compile option of jax for a compiler that does not search.
_LEAST = {"exec_time_optimization_effort": -1.0}
#: A terabyte: what does not fit says how much would.
_PROBE = """module @probe {
  func.func public @main(%a: tensor<274877906944xf32>) -> tensor<274877906944xf32> {
    %0 = stablehlo.add %a, %a : tensor<274877906944xf32>
    return %0 : tensor<274877906944xf32>
  }
}
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one compile. ``memory``, bytes a device: arguments, outputs, aliased, temporaries, code."""

    status: str
    reason: str | None = None
    memory: dict[str, int] | None = None
    seconds: float | None = None  # of compiling, when it was compiled
    hlo: Path | None = None

    def text(self) -> str:
        """The optimised program of an outcome that is ok."""
        assert self.hlo is not None
        with gzip.open(self.hlo, "rt", encoding="utf-8") as file:
            return file.read()


@functools.cache
def versions(python: str) -> tuple[str, str]:
    """``(jax, libtpu)`` of the interpreter ``python``.

    Raises:
        MissingPackage: it has no libtpu.
        WorkerFailed: it cannot be run.
    """
    code = (
        "import importlib.metadata as m\n"
        "def v(p):\n"
        "    try: return m.version(p)\n"
        "    except m.PackageNotFoundError: return '-'\n"
        "print(v('jax'), v('libtpu'))"
    )
    try:
        got = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True)
        jax, libtpu = got.stdout.split()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise WorkerFailed(f"'{python}' cannot be asked for its packages", "name a Python with --tpu-python") from error
    for package, version in (("libtpu", libtpu), ("jax", jax)):
        if version == "-":
            raise MissingPackage(
                package, f"it holds the TPU compiler, and {python} has none",
                "pip install 'tpubench[tpu]', or name a Python that has it with --tpu-python",
            )  # fmt: skip
    return jax, libtpu


class Compiler:
    """libtpu for one chip, under the interpreter ``python``; a process is started when something is to be compiled."""

    def __init__(self, target: Target, kept: Kept, python: str = sys.executable, retry: bool = False) -> None:
        self.target = target
        self.versions = versions(python)
        self._kept = kept
        self._python = python
        self._retry = retry
        self._child: Child | None = None

    def __enter__(self) -> Compiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def known(self, program: str, least: bool = False) -> Outcome | None:
        """What became of the program of that digest earlier; None: it has to be compiled."""
        key = self._key(program, least)
        entry = self._kept.read("compiled", key)
        if entry is None or (self._retry and entry["status"] != Status.OK):
            return None
        hlo = self._kept.hlo(key)
        if entry["status"] == Status.OK and not hlo.exists():
            return None
        return Outcome(**entry, hlo=hlo)

    def before(self, program: str) -> str:
        """The HLO of the program of that digest, nothing optimised."""
        return self._kept.before(program).read_text()

    def compile(self, program: str, timeout: float, least: bool = False) -> Outcome:
        """The program of that digest, compiled, from the cache where it is there. Never raises for what it does.

        With the ``least`` effort libtpu is 5 to 20 times as fast and does not search: memory and what is computed are
        much the same, the cycles are not.
        """
        found = self.known(program, least)
        if found is not None and not (found.status == Status.TIMEOUT and (found.seconds or 0) < timeout):
            return found
        key = self._key(program, least)
        hlo = self._kept.hlo(key)
        outcome = self._compiled(self._kept.stablehlo(program), hlo, timeout, _LEAST if least else {})
        entry = dataclasses.asdict(outcome)
        del entry["hlo"]
        self._kept.write("compiled", key, entry)
        return outcome

    def capacity(self) -> int | None:
        """Bytes of HBM that a program of one device can have, by the compiler's own word; None: it does not say."""
        path = self._kept.stablehlo("probe")
        path.write_text(_PROBE)
        reason = self.compile("probe", _START).reason or ""
        found = re.search(r"\((\d+(?:\.\d+)?)([KMGT])\)\.?$|of (\d+(?:\.\d+)?)([KMGT]) hbm", reason)
        if found is None:
            return None
        number, unit = (found[1], found[2]) if found[1] else (found[3], found[4])
        return int(float(number) * 1024.0 ** (" KMGT".index(unit)))

    def _key(self, program: str, least: bool) -> str:
        return digest("compiled", program, self.target.request(), self.versions, _LEAST if least else {})

    def _compiled(self, stablehlo: Path, hlo: Path, timeout: float, options: dict[str, Any]) -> Outcome:
        try:
            child = self._child or self._started()
            child.send({"stablehlo": str(stablehlo), "hlo": str(hlo), "options": options})
            answer = child.receive(time.monotonic() + timeout)
        except TimeoutError:
            self._end()
            return Outcome(Status.TIMEOUT, f"not compiled within {timeout:g} s: raise --timeout", seconds=timeout)
        except Died as death:
            self._end()
            return Outcome(Status.ERROR, f"the TPU compiler {death.why}")
        except WorkerFailed as error:
            self._end()
            return Outcome(Status.ERROR, str(error))
        if "oom" in answer:
            return Outcome(Status.OOM, answer["oom"])
        if "refused" in answer:
            return Outcome(Status.ERROR, f"the TPU compiler refuses it: {answer['refused']}")
        return Outcome(Status.OK, memory=answer["memory"], seconds=answer["seconds"], hlo=hlo)

    def _started(self) -> Child:
        self._child = Child([self._python, "-P", str(_SCRIPT)], {})
        self._child.send(self.target.request())
        try:
            answer = self._child.receive(time.monotonic() + _START)
        except TimeoutError:
            raise WorkerFailed(f"libtpu did not come up for {self.target.topology}", f"waited {_START:g} s") from None
        if "ready" not in answer:
            why: Any = answer.get("refused") or answer.get("oom")
            raise WorkerFailed(f"libtpu does not know {self.target.topology}", str(why))
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
