"""What every test shares. The environment is set before anything imports torch or jax."""

import os

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs ``tpubench ARGUMENTS`` as a user does, in an empty folder."""

    def run(*arguments: str, cwd: Path = tmp_path, timeout: float = 300) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-P", "-m", "tpubench", *arguments],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
        )

    return run


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make the ``pjrt`` device known before any test calls ``backward()``: autograd counts devices once."""
    if any("pjrt" in getattr(item, "fixturenames", ()) for item in session.items):
        from backend.embedded.device import activate

        activate()


@pytest.fixture(scope="session")
def pjrt():
    """The embedded backend's torch device."""
    from backend.embedded.device import activate

    return activate()
