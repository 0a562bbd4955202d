"""Programs on disk: whole or not there, bounded, shared by processes, and never a reason to fail."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.embedded import disk
from backend.embedded.disk import BadLimit, Disk, Entry, limit_of

ROOT = Path(__file__).parents[3]
KEY, OTHER = "a" * 64, "b" * 64


def entry(program=b"code" * 100, **fields):
    return Entry(**{"name": "add", "program": program, "notes": {"outputs": 1}, "compile_s": 0.5, **fields})


def found(kept, key=KEY):
    return kept.load(key, lambda given: given)


def file(kept, key=KEY):
    return kept.folder / f"{key}.program"


def test_what_is_kept_is_found_by_another_process_alone_under_its_key(tmp_path):
    Disk(tmp_path / "new").store(KEY, entry())
    kept = Disk(tmp_path / "new")
    assert found(kept) == entry() and found(kept, OTHER) is None
    assert (kept.use.requests, kept.use.hits, kept.use.misses) == (2, 1, 1)
    assert kept.use.read_bytes == file(kept).stat().st_size


def test_the_folder_is_for_its_owner_alone(tmp_path):
    kept = Disk(tmp_path / "new")
    kept.store(KEY, entry())
    assert kept.folder.stat().st_mode & 0o077 == 0


def flip(data):
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: b"",
        lambda data: data[:1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: os.urandom(len(data)),
        flip,
        lambda data: data.replace(b"tpubench-program-1", b"tpubench-program-2"),
    ],
    ids=["empty", "a byte", "half", "one short", "one long", "garbage", "a bit", "version"],
)
def test_an_entry_that_is_not_whole_is_thrown_away_and_made_anew(tmp_path, harm):
    kept = Disk(tmp_path)
    kept.store(KEY, entry())
    file(kept).write_bytes(harm(file(kept).read_bytes()))
    assert found(kept) is None and not file(kept).exists()
    assert (kept.use.rejected, kept.use.misses) == (1, 1)
    kept.store(KEY, entry())
    assert found(kept) == entry()


def test_an_entry_under_the_name_of_another_is_not_taken(tmp_path):
    kept = Disk(tmp_path)
    kept.store(KEY, entry())
    file(kept).rename(file(kept, OTHER))
    assert found(kept, OTHER) is None and kept.use.rejected == 1


def test_an_entry_that_cannot_be_loaded_is_a_miss_and_goes(tmp_path):
    kept = Disk(tmp_path)
    kept.store(KEY, entry())

    def refuse(given):
        raise RuntimeError("built for another machine")

    assert kept.load(KEY, refuse) is None
    assert (kept.use.hits, kept.use.rejected) == (0, 1) and not file(kept).exists()


def failing(code):
    def write(self, data):
        raise OSError(code, os.strerror(code))

    return write


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_where_nothing_can_be_written_the_run_goes_on_and_no_more_is_tried(tmp_path, monkeypatch, code):
    kept = Disk(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", failing(code))
    kept.store(KEY, entry())
    monkeypatch.undo()
    kept.store(OTHER, entry())
    assert kept.use.unwritten == 2 and os.strerror(code) in kept.closed
    assert list(tmp_path.iterdir()) == [] and found(kept) is None


def test_a_passing_fault_costs_one_entry(tmp_path, monkeypatch):
    kept = Disk(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", failing(errno.EINTR))
    kept.store(KEY, entry())
    monkeypatch.undo()
    kept.store(OTHER, entry())
    assert kept.use.unwritten == 1 and found(kept, OTHER) == entry()


def test_a_disk_that_fills_up_in_the_middle_of_an_entry_leaves_nothing(tmp_path, monkeypatch):
    def half(self, data):
        with self.open("wb") as sink:
            sink.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = Disk(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", half)
    kept.store(KEY, entry())
    assert list(tmp_path.iterdir()) == [] and kept.use.unwritten == 1


def test_a_folder_that_is_a_file_is_no_cache(tmp_path):
    (tmp_path / "file").write_text("hello")
    kept = Disk(tmp_path / "file" / "below")
    kept.store(KEY, entry())
    assert found(kept) is None and kept.use.unwritten == 1 and kept.closed


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_read(tmp_path):
    Disk(tmp_path).store(KEY, entry())
    tmp_path.chmod(0o500)
    kept = Disk(tmp_path)
    assert found(kept) == entry()
    kept.store(OTHER, entry())
    assert kept.use.unwritten == 1
    tmp_path.chmod(0o700)


def size_of(tmp_path):
    kept = Disk(tmp_path / "probe")
    kept.store(KEY, entry())
    return kept.use.written_bytes


def test_what_was_used_longest_ago_goes_first(tmp_path):
    one = size_of(tmp_path)
    kept = Disk(tmp_path / "cache", limit=4 * one + one // 2)
    keys = [f"{i:064d}" for i in range(5)]
    for age, key in enumerate(keys[:4]):
        kept.store(key, entry())
        os.utime(file(kept, key), (1000 + age, 1000 + age))
    assert found(kept, keys[0])  # and so it is not the oldest any more
    kept.store(keys[4], entry())
    left = {path.stem for path in kept.folder.iterdir()}
    assert keys[0] in left and keys[4] in left and keys[1] not in left
    assert sum(path.stat().st_size for path in kept.folder.iterdir()) <= kept.limit
    assert kept.use.evicted == 5 - len(left)


def test_several_processes_together_stay_within_the_limit(tmp_path):
    one = size_of(tmp_path)
    limit = 20 * one
    both = [Disk(tmp_path / "cache", limit) for _ in range(3)]
    for i in range(60):
        both[i % 3].store(f"{i:064d}", entry())
        held = sum(path.stat().st_size for path in both[0].folder.iterdir())
        assert held <= limit * (1 + 3 / 16) + one


def test_what_is_larger_than_the_whole_cache_is_left_out(tmp_path):
    kept = Disk(tmp_path, limit=100)
    kept.store(KEY, entry())
    assert kept.use.unwritten == 1 and list(tmp_path.iterdir()) == []


def test_notes_that_cannot_be_written_cost_the_entry_alone(tmp_path):
    kept = Disk(tmp_path)
    kept.store(KEY, entry(notes={"size": object()}))
    kept.store(OTHER, entry())
    assert kept.use.unwritten == 1 and found(kept) is None and found(kept, OTHER) == entry()


def test_files_of_dead_writers_go_and_those_of_living_ones_stay(tmp_path):
    dead, living = tmp_path / "x.1.partial", tmp_path / "y.2.partial"
    dead.touch(), living.touch()
    os.utime(dead, (time.time() - 7200,) * 2)
    Disk(tmp_path).store(KEY, entry())
    assert not dead.exists() and living.exists()


def test_an_entry_that_vanishes_while_room_is_made_harms_nobody(tmp_path, monkeypatch):
    one = size_of(tmp_path)
    kept = Disk(tmp_path / "cache", limit=2 * one)
    unlink = Path.unlink

    def after_another(self, missing_ok=False):
        unlink(self, missing_ok=True)
        return unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", after_another)
    for i in range(6):
        kept.store(f"{i:064d}", entry())
    assert kept.closed is None and kept.use.unwritten == 0


@pytest.mark.parametrize("text", ["0", "-1", "4GiB", "1.5", "", None, "9" * 30, "٣"])
def test_a_limit_is_whole_bytes(text):
    if not text:
        assert limit_of(text) == 4 * 2**30
        return
    with pytest.raises(BadLimit, match=r"TPUBENCH_CACHE_BYTES cannot be .*: give whole bytes"):
        limit_of(text)


def test_the_environment_says_where_and_how_much(tmp_path, monkeypatch):
    before = disk.current()
    try:
        for folder, expected in (("", None), (str(tmp_path), tmp_path / "embedded")):
            monkeypatch.setattr(disk, "_opened", False)
            monkeypatch.setenv("TPUBENCH_CACHE_DIR", folder)
            monkeypatch.setenv("TPUBENCH_CACHE_BYTES", "5000")
            kept = disk.current()
            assert (kept and kept.folder) == expected
        assert kept.limit == 5000 and disk.current() is kept
    finally:
        disk.use(before)


_FILL = """
import random, sys
from pathlib import Path
from backend.embedded.disk import Disk, Entry

folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
kept = Disk(folder, limit=60_000)

def program(i):
    return bytes([i]) * (500 + 37 * i)

for _ in range(rounds):
    for i in rng.sample(range(64), 32):
        key = f"{i:064d}"
        got = kept.load(key, lambda e: e)
        if got is None:
            kept.store(key, Entry(f"op{i}", program(i), [i], 0.1))
        else:
            assert (got.name, got.program, got.notes) == (f"op{i}", program(i), [i]), i
assert kept.use.rejected == kept.use.unwritten == 0, kept.use
assert kept.use.hits and kept.use.evicted, kept.use
print("whole")
"""


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_processes_that_fill_and_empty_one_cache_at_once_see_whole_entries_only(tmp_path, rounds):
    fillers = [
        subprocess.Popen(
            [sys.executable, "-c", _FILL, str(tmp_path / "cache"), str(rounds), str(seed)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for seed in range(2)
    ]  # fmt: skip
    for filler in fillers:
        out, error = filler.communicate(timeout=120)
        assert out == "whole\n", error
