"""TensorBoard as a child process on the loopback address, ready before its address is given."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any

from tpubench.errors import ServerFailed
from tpubench.trace.logdir import CapturedRun

_HOST = "127.0.0.1"
#: Seconds that TensorBoard gets to come up: it takes one or two, more on a loaded machine.
_PATIENCE = 60.0


class TensorBoard:
    """TensorBoard over ``logdir``; a context manager that ends it.

    Raises:
        ServerFailed: TensorBoard or its profile plugin is missing, the port is taken, or it does not
            come up.
    """

    def __init__(self, logdir: Path, port: int = 0) -> None:
        self._logdir = logdir
        self._port = port
        self.url = ""

    def __enter__(self) -> TensorBoard:
        _ensure_installed()
        if self._port:
            _ensure_free(self._port)
        self._log: IO[bytes] = tempfile.TemporaryFile()
        command = [sys.executable, "-P", "-m", "tensorboard.main", "--logdir", str(self._logdir)]
        command += ["--host", _HOST, "--port", str(self._port)]
        # The plugin imports torch and TensorFlow where it finds them: neither may reach for a TPU.
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "JAX_PLATFORMS": "cpu"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **quiet},
            start_new_session=True,  # Ctrl-C reaches us alone; we end it in order
        )
        try:
            self.url = self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()

    def link(self, run: CapturedRun) -> str:
        """The trace viewer's own address for ``run``: the start page is half blank without the internet."""
        query = urllib.parse.urlencode({"run": run.name, "tag": "trace_viewer@", "host": run.host})
        return f"{self.url}/?{query}#profile"

    def wait(self) -> None:
        """Return when TensorBoard ends."""
        self._process.wait()

    def _wait(self) -> str:
        """The address, once the profile plugin answers there with runs."""
        deadline = time.monotonic() + _PATIENCE
        url = ""
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerFailed(f"TensorBoard ended with code {self._process.returncode}", self._said())
            url = url or self._address()
            if url and self._has_runs(url):
                return url
            time.sleep(0.1)
        raise ServerFailed(f"TensorBoard was not ready after {_PATIENCE:g} s", self._said())

    def _address(self) -> str:
        self._log.seek(0)
        match = re.search(rb"TensorBoard \S+ at (http://\S+?)/? \(Press", self._log.read())
        return match[1].decode() if match else ""

    @staticmethod
    def _has_runs(url: str) -> bool:
        try:
            plugins = fetch(f"{url}/data/plugins_listing")
            return bool(plugins["profile"]["enabled"] and fetch(f"{url}/data/plugin/profile/runs"))
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _said(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"


def fetch(url: str) -> Any:
    """The JSON at ``url``; the plugin answers in gzip whether asked or not."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        body = answer.read()
    return json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)


def _ensure_installed() -> None:
    for module, package in (("tensorboard", "tensorboard"), ("xprof", "xprof tensorboard-plugin-profile")):
        if importlib.util.find_spec(module) is None:
            raise ServerFailed(f"{module} is not installed", f"pip install {package}, or use --no-serve")


def _ensure_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise ServerFailed(
                f"port {port} cannot be used ({error.strerror})", "give another --port, or 0 for a free one"
            ) from error
