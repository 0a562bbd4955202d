"""Cold, warm and off: what a cell finds on disk, and that a warm one is truly warm."""

import pytest
from records import make_spec

from tpubench import runner, store
from tpubench.cells import Asked, cells
from tpubench.conditions import Conditions
from tpubench.errors import BadValue, UnknownName

pytestmark = pytest.mark.usefixtures("plugin")


def run(size="cached", cache="warm", **conditions):
    """``(record, how often a worker was built)``."""
    events = []
    spec = make_spec(workload="load", size=size, backend="fake", mode="eager", batch=4, steps=6, cache=cache)
    record = runner.run_cell(spec, timeout=60, on_event=events.append, conditions=Conditions(**conditions))
    return record, sum(e.get("name") == "build" for e in events)


def test_a_warm_cell_without_an_earlier_run_is_primed_and_measured_in_another_process(tmp_path):
    record, workers = run()
    assert record.status == "ok" and workers == 2 and len(record.step_s) == 6
    assert (record.disk_hits, record.disk_misses, record.warnings) == (1, 0, [])


def test_a_warm_cell_that_finds_all_it_needs_is_measured_at_once(tmp_path):
    assert run(cache_dir=tmp_path / "caches")[1] == 2
    record, workers = run(cache_dir=tmp_path / "caches")
    assert workers == 1 and record.disk_hits == 1 and record.status == "ok"


def test_what_cannot_be_kept_is_measured_and_said(tmp_path):
    record, workers = run("uncacheable")
    assert record.status == "ok" and workers == 2 and record.disk_unwritten == 1
    assert record.warnings == [
        "not wholly warm: 1 of 1 programs were not in the cache on disk",
        "1 programs could not be kept on disk: is the folder full, or not to be written to?",
    ]


def test_a_cold_cell_finds_nothing_whatever_was_kept(tmp_path):
    run(cache_dir=tmp_path / "caches")
    record, workers = run(cache="cold", cache_dir=tmp_path / "caches")
    assert workers == 1 and record.disk_hits == 0 and record.disk_misses == 1


def test_a_backend_that_keeps_nothing_on_disk_needs_no_priming():
    record, workers = run("tiny")
    assert record.status == "ok" and workers == 1 and record.disk_requests is None and record.warnings == []


def test_a_warm_cell_that_fails_says_so_once():
    record, workers = run("raises")
    assert record.status == "error" and record.reason == "the model is broken" and workers == 1


def test_a_cell_names_its_cache_where_it_is_not_cold():
    names = [spec.label for spec in cells(Asked("load", size="tiny", cache="cold,warm,off"))]
    assert names == [f"load/tiny embedded:eager{end}" for end in ("", " cache=warm", " cache=off")]


def test_cache_states_are_an_axis_and_an_unknown_one_is_refused():
    found = cells(Asked("load", size="tiny", mode="eager,compile", cache="cold,warm"))
    assert [(s.mode, s.cache) for s in found] == [
        ("eager", "cold"), ("eager", "warm"), ("compile", "cold"), ("compile", "warm"),
    ]  # fmt: skip
    assert len({s.fingerprint for s in found}) == 4
    with pytest.raises(UnknownName, match="unknown cache state 'hot': one of cold, off, warm"):
        cells(Asked("load", cache="hot"))


def test_a_folder_that_no_cell_would_use_is_refused(tmp_path):
    with pytest.raises(BadValue, match="a cold cell starts from an empty folder of its own: add --cache warm"):
        Conditions(cache_dir=tmp_path).ensure(cells(Asked("load", size="tiny", cache="cold,off")))
    (tmp_path / "file").touch()
    with pytest.raises(BadValue, match="it is a file: name a folder"):
        Conditions(cache_dir=tmp_path / "file").ensure(cells(Asked("load", size="tiny", cache="warm")))


def test_a_size_that_is_none_is_refused_before_anything_runs(cli, monkeypatch):
    monkeypatch.setenv("TPUBENCH_CACHE_BYTES", "4GiB")
    got = cli("run", "load", "--backend", "fake", "--size", "tiny", "--cache", "warm")
    assert got.returncode == 2 and got.stderr.startswith("tpubench: error: TPUBENCH_CACHE_BYTES cannot be '4GiB': give")


def test_naming_a_folder_asks_for_warm_cells(cli, tmp_path):
    arguments = ("run", "load", "--backend", "fake", "--size", "cached", "--steps", "3", "--out", "out")
    got = cli(*arguments, "--cache-dir", "caches")
    assert got.returncode == 0, got.stderr
    assert "[1/1] load/cached fake:eager cache=warm ok in" in got.stderr and (tmp_path / "caches" / "program").exists()
    (record,) = store.read_many([str(tmp_path / "out")])[0]
    assert record.cache == "warm" and record.disk_hits == 1


def test_hlo_that_a_backend_does_not_write_is_said(cli, tmp_path):
    arguments = ("run", "load", "--backend", "fake", "--size", "tiny", "--steps", "3", "--out", "out")
    got = cli(*arguments, "--dump-hlo", "hlo")
    assert got.returncode == 0
    assert "hlo: none of load/tiny fake:eager: its worker made no program, or its backend writes none" in got.stderr
    (tmp_path / "file").touch()
    got = cli(*arguments, "--dump-hlo", "file/below")
    assert got.returncode == 2 and "name a writable folder with --dump-hlo" in got.stderr


def test_what_caches_hold_is_told_and_removed_and_nothing_else_is(cli, tmp_path):
    (tmp_path / "caches" / "embedded").mkdir(parents=True)
    (tmp_path / "caches" / "embedded" / "a.program").write_bytes(b"0" * 2**20)
    (tmp_path / "caches" / "mine.txt").touch()
    got = cli("cache", "info", "--cache-dir", "caches")
    assert got.returncode == 0 and got.stdout.splitlines()[:2] == [
        "caches", "  programs of the embedded backend: 1 files, 1.0 MiB"
    ]  # fmt: skip
    got = cli("cache", "clear", "--cache-dir", "caches")
    assert got.returncode == 0 and "programs of the embedded backend: removed 1 files, 1.0 MiB" in got.stdout
    assert [p.name for p in (tmp_path / "caches").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("info",), "--cache-dir cannot be '': name the folder"),
        (("info", "--cache-dir", "nowhere"), "--cache-dir cannot be 'nowhere': there is no such folder"),
        (("empty",), "unknown action 'empty': one of clear, info"),
    ],
)
def test_a_cache_that_is_not_named_or_not_there(cli, monkeypatch, arguments, error):
    monkeypatch.delenv("TPUBENCH_CACHE_DIR", raising=False)
    got = cli("cache", *arguments)
    assert got.returncode == 2 and got.stderr.startswith(f"tpubench: error: {error}") and got.stderr.count("\n") == 1
