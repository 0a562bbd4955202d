import os
import sys
from pathlib import Path

import pytest

# The record factory is a plain module beside the tests.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The fake backend and workload of ``fakes``, known here and in every process started from here."""
    import fakes

    folder = tmp_path / "plugin"
    folder.mkdir()
    fakes.install(folder)
    monkeypatch.syspath_prepend(str(folder))
    # Before what is there: a checkout elsewhere may be named by it.
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("TPUBENCH_TEST_PID", str(tmp_path / "pid"))
    return folder
