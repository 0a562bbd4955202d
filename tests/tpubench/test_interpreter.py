"""Backends that another interpreter serves: virtual environments made here, and programs that are none."""

import platform
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from tpubench import interpreter, store
from tpubench.errors import BadValue


@pytest.fixture
def bare(tmp_path):
    """A virtual environment of this Python with nothing in it."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@pytest.fixture
def furnished(bare):
    """The same, which finds what is installed here."""
    site = Path(sysconfig.get_path("purelib", vars={"base": str(bare)}))
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return bare


@pytest.fixture(autouse=True)
def forgetful():
    interpreter._asked.cache_clear()


def script(tmp_path, text):
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_an_interpreter_is_asked_what_it_can_do_itself(bare):
    python = interpreter.program(bare)
    assert python == bare / "bin" / "python"
    there = interpreter.offer("torch", python)
    assert there.error is None and there.python == python
    assert there.version == platform.python_version()
    assert there.modes["eager"] == "torch is not installed (pip install tpubench)"
    here = interpreter.offer("torch", None)
    assert here.modes["eager"] is None and here.python is None


def test_what_is_installed_beside_us_is_not_found_by_another_interpreter(bare, tmp_path, monkeypatch):
    """In an installed wheel our packages lie among everybody's: only ours may be seen."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "links"
    folder.mkdir()
    python, variables = interpreter.start_of(bare / "bin" / "python", folder)
    code = "from importlib.util import find_spec; print([bool(find_spec(n)) for n in ('tpubench', 'backend', 'torch')])"
    got = subprocess.run([python, "-P", "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert got.stdout == "[True, True, False]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo no libpython >&2; exit 3", "exit code 3: no libpython"),
        ("exit 0", "exit code 0: it said nothing"),
        ("""echo '{"error": "it is Python 3.8.1, and 3.11 or newer is needed"}'""", "it is Python 3.8.1, and 3.11"),
        ("echo hello", "Expecting value"),
        ("kill -9 $$", "exit code -9: it said nothing"),
    ],
)
def test_what_is_no_python_of_ours_is_a_reason(tmp_path, text, says):
    path = script(tmp_path, text)
    there = interpreter.offer("torch", path)
    assert there.error is not None and there.error.startswith(f"{path} does not serve torch: ") and says in there.error
    assert there.reason("eager", "cpu", "torch") == there.error


def test_an_interpreter_that_hangs_is_ended_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(interpreter, "_PATIENCE", 0.3)
    path = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    assert interpreter.offer("torch", path).error == f"{path} does not serve torch: no answer in 0.3 s"
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("its child still runs")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("torch", "write BACKEND=PATH"),
        ("=/usr/bin/python3", "write BACKEND=PATH"),
        ("torch=", "write BACKEND=PATH"),
        ("tocrh=/usr/bin/python3", "no backend is called 'tocrh': one of embedded, "),
        ("torch=/nowhere/python", "no program is there"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(option, says):
    with pytest.raises(BadValue, match=says):
        interpreter.chosen([option])


def test_the_last_of_two_interpreters_counts(bare, tmp_path):
    chosen = interpreter.chosen([f"torch={script(tmp_path, '')}", f"torch={bare}"])
    assert chosen == {"torch": bare / "bin" / "python"}


def test_a_cell_runs_where_its_backend_is_served(cli, plugin, bare, furnished, tmp_path):
    got = cli("run", "load", "--backend", "fake", "--size", "tiny", "--steps", "6", "--python", f"fake={furnished}")
    assert got.returncode == 0, got.stderr
    assert "fake:eager" in got.stdout and "matched" in got.stdout
    next(furnished.rglob("ours.pth")).unlink()
    got = cli("run", "load", "--backend", "fake", "--size", "tiny", "--steps", "6", "--python", f"fake={bare}")
    assert got.returncode == 1 and "No module named 'torch'" in got.stdout


def test_a_backend_that_its_interpreter_lacks_is_an_unsupported_row(cli, bare, tmp_path):
    got = cli("run", "resnet", "--backend", "torch", "--size", "tiny", "--python", f"torch={bare}", "--out", "out")
    assert got.returncode == 0
    ((record,), _) = store.read_many([str(tmp_path / "out")])
    assert (
        record.status == "unsupported" and record.reason == "mode eager: torch is not installed (pip install tpubench)"
    )


def test_list_says_which_interpreter_serves_a_backend(cli, bare, tmp_path):
    got = cli("list", "--python", f"torch={bare}")
    assert f"    served by {bare}/bin/python (Python " in got.stdout
    assert "    --mode eager           no: torch is not installed" in got.stdout
    broken = script(tmp_path, "echo boom >&2; exit 1")
    got = cli("list", "--python", f"torch={broken}")
    assert got.returncode == 0 and f"    {broken} does not serve torch: exit code 1: boom\n" in got.stdout
