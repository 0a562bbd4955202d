import sys
import textwrap
from pathlib import Path

import pytest

HLO = Path(__file__).parent / "hlo"

FAKE = '''
    """Speaks as tpubench/forecast/compiler.py does; what it makes of a program is written in the program's name."""
    import gzip, json, os, signal, sys, time
    from pathlib import Path

    def answer(what):
        print(json.dumps(what), flush=True)

    for line in sys.stdin:
        request = json.loads(line)
        with open(os.environ["FAKE_LOG"], "a") as log:
            log.write(line)
        if "topology" in request:
            answer({"ready": "TPU fake", "devices": 1})
            continue
        text = Path(request["stablehlo"]).read_text()
        behaviour = json.loads(os.environ.get("FAKE_BEHAVIOUR", "{}"))
        does = next((d for word, d in behaviour.items() if word in text), "compile")
        if request["options"]:  # less effort may do
            does = next((d for word, d in json.loads(os.environ.get("FAKE_LEAST", "{}")).items() if word in text), does)
        if "@probe" in text:
            answer({"oom": "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
                           "temporaries (1.00T) exceeds available HBM (15.75G)."})
        elif does == "die":
            print("stack overflow in libtpu", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        elif does == "abort":
            print("F1207 09:45:19.918675    5730 fusion_util.cc:3959] Check failed: loops", file=sys.stderr, flush=True)
            os.abort()
        elif does == "hang":
            time.sleep(600)
        elif does == "oom":
            answer({"oom": "RESOURCE_EXHAUSTED: ... (23.51G) exceeds available HBM (15.75G)."})
        elif does == "refuse":
            answer({"refused": "UNIMPLEMENTED: not on this chip"})
        else:
            with gzip.open(request["hlo"], "wt") as file:
                file.write(Path(os.environ["FAKE_HLO"]).read_text())
            sizes = {"arguments": 2**26, "outputs": 2**25, "aliased": 0, "temporaries": int(does) if does.isdigit()
                     else 0, "code": 0}
            answer({"memory": sizes, "seconds": 0.25})
'''


@pytest.fixture
def compiler_python(tmp_path, monkeypatch):
    """A "Python" in place of one that has libtpu: ``FAKE_BEHAVIOUR`` maps words of a program to what becomes of it."""
    script = tmp_path / "fake_compiler.py"
    script.write_text(textwrap.dedent(FAKE))
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nif [ "$2" = -c ]; then echo 0.10.2 0.0.42.1; else exec {sys.executable} {script}; fi\n'
    )
    python.chmod(0o755)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_HLO", str(HLO / "matmul.hlo"))
    return str(python)


@pytest.fixture
def asked(tmp_path):
    """The requests that the fake compiler had, as text."""
    return lambda: (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []
