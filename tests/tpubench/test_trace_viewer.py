"""TensorBoard as a user sees it: served, found, ended; its trace viewer in a real browser."""

import base64
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tpubench.errors import ServerFailed
from tpubench.trace.logdir import runs
from tpubench.trace.server import TensorBoard, fetch


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A log directory with a capture of the embedded backend and one of torch."""
    folder = tmp_path_factory.mktemp("traces")
    for backend in ("torch", "embedded"):
        options = ["--size", "tiny", "--backend", backend, "--steps", "4", "--no-serve", "--dir", str(folder)]
        got = subprocess.run(
            [sys.executable, "-P", "-m", "tpubench", "trace", "resnet", *options],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert got.returncode == 0, got.stderr
        expected = "aten::convolution_backward" if backend == "torch" else "jit_aten_convolution"
        assert "4 steps in" in got.stdout and expected in got.stdout
    return folder


def test_captures_of_both_backends_lie_in_one_log_directory(traces):
    found = runs(traces)
    assert ["torch" in r.name for r in found] == [True, False]
    assert all(r.path.stat().st_size < 5 * 2**20 for r in found)


def test_the_server_is_ready_when_it_says_so_and_ends_with_us(traces):
    with TensorBoard(traces) as board:
        assert board.url.startswith("http://127.0.0.1:")
        assert set(fetch(f"{board.url}/data/plugin/profile/runs")) == {r.name for r in runs(traces)}
        pid = board._process.pid
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(OSError):
        urllib.request.urlopen(board.url, timeout=2)


def test_a_busy_port_is_named(traces, cli):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"port {port} cannot be used"):
            TensorBoard(traces, port).__enter__()
        got = cli("trace", "--dir", str(traces), "--port", str(port))
        assert got.returncode == 2 and f"port {port} cannot be used" in got.stderr and "Traceback" not in got.stderr


def test_a_missing_plugin_is_named(traces, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ServerFailed, match="tensorboard is not installed: pip install"):
        TensorBoard(traces).__enter__()


def test_tracing_ends_on_ctrl_c_with_everything_it_started(traces, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tpubench", "trace", "--dir", str(traces), "--no-open"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("trace viewer: "):
            break
    link = lines[-1].split()[-1]
    assert "tag=trace_viewer%40" in link and link.endswith("#profile")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 0 and "Traceback" not in stderr
    with pytest.raises(OSError):
        urllib.request.urlopen(re.match(r"http://[^/]+", link)[0], timeout=2)


class Browser:
    """A headless Chromium, driven through chromedriver's own protocol (https://www.w3.org/TR/webdriver2/)."""

    FLAGS = (
        "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync --window-size=1400,900 "
        "--disable-background-networking --disable-component-update --disable-dev-shm-usage"
    )

    def __init__(self, folder):
        self._folder = folder

    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={self._port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options = {
            "args": [*self.FLAGS.split(), f"--user-data-dir={self._folder}"],
            "binary": shutil.which("chromium"),
        }
        deadline = time.monotonic() + 60
        while True:
            try:
                body = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
                self._session = self._call("POST", "/session", body)["sessionId"]
                return self
            except OSError:
                assert time.monotonic() < deadline, "chromedriver did not come up"
                time.sleep(0.2)

    def __exit__(self, *_):
        try:
            self._call("DELETE", f"/session/{self._session}")
        finally:
            self._driver.terminate()
            self._driver.wait()

    def _call(self, method, path, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self._call("POST", f"/session/{self._session}/url", {"url": url})

    def run(self, script):
        return self._call("POST", f"/session/{self._session}/execute/sync", {"script": script, "args": []})

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._call("GET", f"/session/{self._session}/screenshot")))


#: The names of the slices that the trace viewer holds, from its own model, wherever its frame is.
SLICES = """
function find(start) {
  const stack = [start];
  while (stack.length) {
    const root = stack.pop();
    if (!root || typeof root.querySelectorAll !== 'function') continue;
    for (const element of Array.from(root.querySelectorAll('*'))) {
      if (element.tagName === 'TR-UI-TIMELINE-VIEW' && element.model) return element.model;
      stack.push(element.shadowRoot);
      if (element.tagName === 'IFRAME') stack.push(element.contentDocument);
    }
  }
  return null;
}
const model = find(document);
if (!model) return null;
const names = {};
for (const event of model.getDescendantEvents()) names[event.title] = (names[event.title] || 0) + 1;
return names;
"""


@pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)",
)
@pytest.mark.parametrize("backend", ["embedded", "torch"])
def test_the_trace_viewer_shows_steps_and_ops(traces, tmp_path, backend):
    run = next(r for r in runs(traces) if f"_{backend}-" in r.name)
    with TensorBoard(traces) as board, Browser(tmp_path / "profile") as browser:
        browser.open(board.link(run))
        deadline, names = time.monotonic() + 120, None
        while not names:
            assert time.monotonic() < deadline, "the trace viewer showed nothing"
            time.sleep(0.5)
            names = browser.run(SLICES)
        shot = tmp_path / "viewer.png"
        browser.screenshot(shot)
    assert sum(n for title, n in names.items() if re.fullmatch(r"step( \d+)?", title)) >= 4, names
    op = "convolution" if backend == "embedded" else "aten::convolution_backward"
    assert any(op in title for title in names), sorted(names)[:50]
    assert shot.stat().st_size > 10_000
