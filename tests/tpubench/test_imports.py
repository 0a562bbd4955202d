"""What a command imports: torch and jax live in workers, and --help answers at once."""

import json
import subprocess
import sys
import time

import pytest
from records import make_record

from tpubench import store

PROBE = """
import json, sys, io, contextlib
sys.argv = ["tpubench", *sys.argv[1:]]
from tpubench.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out:
    try:
        main()
    except SystemExit as end:
        code = end.code
heavy = ["torch", "jax", "jaxlib", "pandas", "matplotlib", "tensorboard", "pyarrow", "numpy"]
print(json.dumps({"code": code or 0, "loaded": [m for m in heavy if m in sys.modules], "out": out.getvalue()}))
"""


def loaded(cwd, *arguments):
    got = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, cwd=cwd)
    answer = json.loads(got.stdout)
    assert answer["code"] == 0 and answer["out"], got.stderr
    return set(answer["loaded"])


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("run", "--help"), ("list",)])
def test_what_shows_text_imports_nothing_heavy(tmp_path, arguments):
    assert loaded(tmp_path, *arguments) == set()


def test_compare_imports_neither_torch_nor_jax_nor_what_draws(tmp_path):
    store.write(make_record(), tmp_path)
    assert loaded(tmp_path, "compare", str(tmp_path)) == {"pyarrow", "numpy"}


def test_help_answers_within_twice_the_time_of_its_libraries(tmp_path):
    def fastest(*command):
        times = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, capture_output=True, cwd=tmp_path)
            times.append(time.perf_counter() - start)
        return min(times)

    assert fastest("-P", "-m", "tpubench", "--help") < 2 * fastest("-c", "import typer, rich")


def test_the_worker_needs_nothing_of_the_parents(tmp_path):
    """It must run in an interpreter that has torch or jax, numpy, and our packages: nothing else of ours."""
    code = (
        "import sys; import tpubench.worker, tpubench.measure, tpubench.check, tpubench.step, tpubench.flops; "
        "print([m for m in ('typer', 'rich', 'pyarrow', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert got.stdout == "[]\n", got.stderr


def test_a_users_own_folder_of_our_names_is_not_taken_for_ours(tmp_path):
    for name in ("workloads", "backend"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    got = subprocess.run([sys.executable, "-P", "-m", "tpubench", "list"], capture_output=True, text=True, cwd=tmp_path)
    assert got.returncode == 0 and "resnet" in got.stdout
