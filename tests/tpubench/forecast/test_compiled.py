"""Compiles by a process that may do anything, and what is kept of them."""

import dataclasses

import pytest

from tpubench.errors import MissingPackage, WorkerFailed
from tpubench.forecast.compiled import Compiler, versions
from tpubench.forecast.kept import Kept
from tpubench.forecast.target import target


@pytest.fixture
def kept(tmp_path):
    kept = Kept(tmp_path / "kept")
    for name in ("good", "bad", "slow", "fat", "odd", "check"):
        kept.stablehlo(name).write_text(f"module @{name}")
    return kept


@pytest.fixture(autouse=True)
def behaviour(monkeypatch):
    monkeypatch.setenv(
        "FAKE_BEHAVIOUR", '{"bad": "die", "slow": "hang", "fat": "oom", "odd": "refuse", "check": "abort"}'
    )


def test_a_crash_costs_its_own_program_and_no_other(kept, compiler_python):
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        outcomes = [compiler.compile(name, 60) for name in ("good", "bad", "fat", "odd")]
        again = compiler.compile("good", 60)
    assert [o.status for o in outcomes] == ["ok", "error", "oom", "error"]
    assert outcomes[1].reason == "the TPU compiler was ended by SIGSEGV"
    assert "exceeds available HBM (15.75G)" in outcomes[2].reason
    assert outcomes[3].reason == "the TPU compiler refuses it: UNIMPLEMENTED: not on this chip"
    assert again == outcomes[0] and "ENTRY" in again.text()


def test_a_failed_check_says_what_it_said(kept, compiler_python):
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        outcome = compiler.compile("check", 60)
    assert outcome.reason == "the TPU compiler was ended by SIGABRT: Check failed: loops"


def test_a_compile_that_takes_too_long_is_given_up_and_the_next_goes_on(kept, compiler_python):
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        assert compiler.compile("slow", 1.5).status == "timeout"
        assert compiler.compile("good", 60).status == "ok"


def test_what_was_compiled_is_not_compiled_again(kept, compiler_python, asked):
    for _ in range(2):
        with Compiler(target("v5e"), kept, compiler_python) as compiler:
            first = [dataclasses.asdict(compiler.compile(name, 60)) for name in ("good", "bad")]
    count = len(asked())
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        assert compiler.known("good") is not None
        assert [dataclasses.asdict(compiler.compile(name, 60)) for name in ("good", "bad")] == first
    assert len(asked()) == count, "nothing was asked of libtpu"
    with Compiler(target("v6e"), kept, compiler_python) as compiler:
        assert compiler.known("good") is None, "another chip is another program"


def test_retry_compiles_what_failed_and_nothing_else(kept, compiler_python, monkeypatch, asked):
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        compiler.compile("good", 60), compiler.compile("bad", 60)
    monkeypatch.setenv("FAKE_BEHAVIOUR", "{}")
    with Compiler(target("v5e"), kept, compiler_python, retry=True) as compiler:
        assert compiler.known("good") is not None and compiler.known("bad") is None
        assert compiler.compile("bad", 60).status == "ok"


def test_a_time_out_counts_up_to_the_time_it_was_given(kept, compiler_python, monkeypatch):
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        assert compiler.compile("slow", 1.5).status == "timeout"
        assert compiler.compile("slow", 1.0).status == "timeout"
        monkeypatch.setenv("FAKE_BEHAVIOUR", "{}")
        assert compiler.compile("slow", 60).status == "ok"


def test_a_torn_entry_is_compiled_anew(kept, compiler_python):
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        compiler.compile("good", 60)
    for path in (kept.folder / "compiled").glob("*.json"):
        path.write_text("{")
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        assert compiler.known("good") is None and compiler.compile("good", 60).status == "ok"


def test_the_compiler_says_how_much_memory_there_is(kept, compiler_python):
    with Compiler(target("v5e"), kept, compiler_python) as compiler:
        assert compiler.capacity() == int(15.75 * 2**30)


def test_a_python_without_libtpu_is_named_with_the_remedy(tmp_path):
    python = tmp_path / "bare"
    python.write_text("#!/bin/sh\necho 0.10.2 -\n")
    python.chmod(0o755)
    with pytest.raises(MissingPackage, match=r"libtpu is not installed .*pip install 'tpubench\[tpu\]'"):
        versions(str(python))


def test_a_python_that_is_none_is_named(tmp_path):
    with pytest.raises(WorkerFailed, match="cannot be asked for its packages: name a Python with --tpu-python"):
        versions(str(tmp_path / "nowhere"))
