"""Python interpreters: a backend whose packages conflict with ours runs in one of its own.

The worker is the same file under every interpreter. Our three packages reach it through a folder of links: the
folder they are installed in may hold a torch of another version.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpubench.errors import BadValue
from tpubench.failure import one_line

#: What a worker imports of ours.
PACKAGES = ("tpubench", "backend", "workloads")
#: The oldest Python that the worker runs under.
OLDEST = (3, 11)
#: Seconds in which an interpreter has to say what a backend can do in it. Nothing heavy is imported for that.
_PATIENCE = 60.0

# Read by interpreters of any age.
_ASK = """
import json, sys
version = "%d.%d.%d" % tuple(sys.version_info[:3])
if tuple(sys.version_info[:2]) < (3, 11):
    print(json.dumps({"error": "it is Python %s, and 3.11 or newer is needed" % version}))
    sys.exit()
from backend import registry
try:
    backend = registry.load(sys.argv[1])
except LookupError:
    error = "no backend is called '%s' there: install the package that announces it" % sys.argv[1]
    print(json.dumps({"error": error, "python": version}))
else:
    print(json.dumps({"python": version, "modes": dict(backend.modes()), "devices": dict(backend.devices())}))
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a backend can do: reasons by name as :meth:`backend.protocol.Backend.modes` gives them.

    ``python`` is where it was asked; None: here. ``error`` says why it could not be, and is None where it could.
    """

    modes: Mapping[str, str | None]
    devices: Mapping[str, str | None]
    python: Path | None = None
    version: str | None = None
    error: str | None = None

    def reason(self, mode: str, device: str, backend: str) -> str | None:
        """Why ``mode`` on ``device`` cannot be had, as far as it is known without starting anything; None: it can."""
        if self.error is not None:
            return self.error
        for kind, offered, name in (("mode", self.modes, mode), ("device", self.devices, device)):
            if name not in offered:
                return f"{backend} has no {kind} '{name}'"
            if offered[name]:
                return f"{kind} {name}: {offered[name]}"
        return None


def chosen(options: Sequence[str]) -> dict[str, Path]:
    """The interpreter of each backend that has one of its own; ``options`` are ``BACKEND=PATH``.

    Raises:
        BadValue: an option that is no such pair, names no backend, or no program.
    """
    from backend import registry

    found: dict[str, Path] = {}
    for option in options:
        name, pair, path = option.partition("=")
        if not pair or not name or not path:
            raise BadValue("--python", option, "write BACKEND=PATH, as in torch-xla=/opt/xla/bin/python")
        if name not in registry.names():
            raise BadValue("--python", option, f"no backend is called '{name}': one of {', '.join(registry.names())}")
        found[name] = program(path)
    return found


def program(path: str | Path, option: str = "--python") -> Path:
    """The interpreter at ``path``, which may name a folder of a virtual environment.

    Raises:
        BadValue: no program is there.
    """
    given = Path(path).expanduser()
    if given.is_dir():
        given = given / "bin" / "python"
    where = shutil.which(given)
    if where is None:
        raise BadValue(
            option, path, "no program is there: name a Python interpreter, or a virtual environment's folder"
        )
    # Links stay as they are: a virtual environment's interpreter is one.
    return Path(where).absolute()


def offer(name: str, python: Path | None) -> Offer:
    """What the backend called ``name`` can do under ``python``; None: under this interpreter.

    Raises:
        UnknownBackend: nobody offers it here.
        BrokenBackend: what is announced here does not import.
    """
    if python is not None:
        return _asked(name, python)
    from backend import registry

    backend = registry.load(name)
    return Offer(backend.modes(), backend.devices())


@functools.cache
def _asked(name: str, python: Path) -> Offer:
    try:
        answer = _answer(name, python)
    except (OSError, ValueError) as error:
        answer = {"error": one_line(error)}
    if "error" in answer:
        return Offer({}, {}, python, answer.get("python"), f"{python} does not serve {name}: {answer['error']}")
    return Offer(answer["modes"], answer["devices"], python, answer["python"])


def _answer(name: str, python: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tpubench-ask-") as folder:
        process = subprocess.Popen(
            [str(python), "-c", _ASK, name],
            cwd=folder,  # `python -c` looks there first
            env=os.environ | {"PYTHONPATH": search_path(Path(folder))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, said = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            return {"error": f"no answer in {_PATIENCE:g} s"}
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # it, and what it started
            process.wait()
    if process.returncode != 0 or not out.strip():
        last = (said.strip() or "it said nothing").splitlines()[-1]
        return {"error": f"exit code {process.returncode}: {last}"}
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def search_path(folder: Path) -> str:
    """``PYTHONPATH`` of another interpreter: links to our packages, made in ``folder``, then what the user has set."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.submodule_search_locations, "we run from it"
        (folder / name).symlink_to(Path(next(iter(spec.submodule_search_locations))).resolve())
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def start_of(python: Path | None, folder: Path) -> tuple[str, dict[str, str]]:
    """``(interpreter, variables)`` to start a worker with; ``folder`` is empty and stays as long as the worker."""
    if python is None:
        return sys.executable, {}
    return str(python), {"PYTHONPATH": search_path(folder)}
