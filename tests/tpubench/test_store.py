"""Records on disk: whole or not there, read back as they were, and bad files named and passed over."""

import dataclasses
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from records import make_record, make_spec

from tpubench import store
from tpubench.errors import NoFilesMatch, NotARecordFile, UnknownSchema, UnwritableDirectory
from tpubench.record import SCHEMA_VERSION, Status


def test_what_is_written_is_read_back(tmp_path):
    for record in (make_record(), make_record(Status.ERROR, reason="a, 'b'\n\"c\"", exit_signal=9, number=2)):
        assert store.read(store.write(record, tmp_path / "new")) == record


def test_records_of_every_earlier_version_are_read():
    found = [store.read(path) for path in sorted((Path(__file__).parents[2] / "results").glob("**/*.parquet"))]
    assert {1, 2} <= {record.schema for record in found}
    assert all(record.step_s for record in found if record.ok)
    for record in found:
        if record.schema < 3:
            # Then a training step was SGD's, and data were on the device.
            assert (record.optimizer, record.data) == ("sgd" if record.phase == "train" else "", "device")


def test_names_are_readable_and_no_run_overwrites_another(tmp_path):
    first, second = (store.write(make_record(), tmp_path) for _ in range(2))
    assert first != second and first.exists() and second.exists()
    start, _, end = first.stem.rpartition("_")
    assert start == "20261201T000001000Z_resnet-small-train_embedded-eager_cpu_float32_b16"
    assert end == make_spec().fingerprint[:8]


def test_a_workload_given_by_path_makes_a_plain_file_name(tmp_path):
    for workload in ("./my/model.py:make", "/deep" * 60 + "/modell\u00e9.py:make"):
        path = store.write(make_record(spec=make_spec(workload=workload)), tmp_path)
        assert path.parent == tmp_path and path.name.isascii() and store.read(path).workload == workload


def test_nothing_partial_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UnwritableDirectory, match="No space left"):
        store.write(make_record(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def torn(tmp_path):
    path = store.write(make_record(), tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    return path


def empty(tmp_path):
    path = tmp_path / "empty.parquet"
    path.touch()
    return path


def text(tmp_path):
    path = tmp_path / "text.parquet"
    path.write_text("hello")
    return path


def foreign(tmp_path):
    path = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    return path


def two_rows(tmp_path):
    path = store.write(make_record(), tmp_path)
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)
    return path


@pytest.mark.parametrize("make", [torn, empty, text, foreign, two_rows])
def test_what_is_no_record_is_named_and_harms_no_other(tmp_path, make):
    bad = make(tmp_path / "bad" if (tmp_path / "bad").mkdir() is None else tmp_path)
    with pytest.raises(NotARecordFile, match=bad.name):
        store.read(bad)
    good = store.write(make_record(), tmp_path / "good")
    records, problems = store.read_many([str(bad), str(good)])
    assert records == [make_record()] and len(problems) == 1


@pytest.mark.parametrize("version", [str(SCHEMA_VERSION + 1), "0", "new"])
def test_another_schema_is_refused_by_its_version(tmp_path, version):
    path = store.write(make_record(), tmp_path)
    table = pq.read_table(path).replace_schema_metadata({b"tpubench.schema": version.encode()})
    pq.write_table(table, path)
    with pytest.raises(UnknownSchema, match=f"schema {version}"):
        store.read(path)


def test_a_column_that_an_older_version_lacked_is_null(tmp_path):
    path = store.write(make_record(), tmp_path)
    pq.write_table(pq.read_table(path).drop_columns(["mfu", "warnings"]), path)
    assert store.read(path) == dataclasses.replace(make_record(), mfu=None, warnings=[])


def test_columns_keep_their_types_when_they_are_empty(tmp_path):
    path = store.write(make_record(Status.UNSUPPORTED), tmp_path)
    assert pq.read_schema(path).field("step_s").type == pa.list_(pa.float64())
    assert pq.read_schema(path).field("exit_signal").type == pa.int64()


def test_files_folders_and_patterns_each_once_in_order(tmp_path):
    paths = [store.write(make_record(number=n), tmp_path) for n in (1, 2, 3)]
    for pattern in (str(tmp_path), str(tmp_path / "*_cpu_*.parquet"), str(tmp_path.parent / f"{tmp_path.name}*")):
        assert store.expand(pattern) == paths
    records, problems = store.read_many([str(paths[2]), str(tmp_path), str(paths[0])])
    assert [r.created[17:19] for r in records] == ["03", "01", "02"] and problems == []


def test_a_folder_whose_name_looks_like_a_pattern_is_that_folder(tmp_path):
    path = store.write(make_record(), tmp_path / "runs[1]*")
    assert store.expand(str(path.parent)) == store.expand(str(path)) == [path]


def test_a_pattern_without_files_harms_no_other(tmp_path):
    path = store.write(make_record(), tmp_path)
    records, (problem,) = store.read_many(["none/*.parquet", str(path)])
    assert records == [make_record()] and isinstance(problem, NoFilesMatch) and "none/*.parquet" in str(problem)


def test_a_damaged_byte_is_never_taken_for_a_value(tmp_path):
    path = store.write(make_record(), tmp_path)
    whole = path.read_bytes()
    pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")  # the footer has no checksum
    for place in range(0, pages, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :])
        try:
            assert store.read(path) == make_record(), place
        except (NotARecordFile, UnknownSchema):
            continue


def test_a_column_of_another_type_is_no_record(tmp_path):
    path = store.write(make_record(), tmp_path)
    table = pq.read_table(path)
    wrong = table.set_column(table.schema.names.index("batch"), "batch", pa.array(["16"]))
    pq.write_table(wrong, path)
    with pytest.raises(NotARecordFile, match="batch is string"):
        store.read(path)


def test_a_value_that_its_column_cannot_hold_is_named_and_loses_no_other(tmp_path):
    record = make_record(compile_hits="many", device_name=7, losses=[1.0, "nan?"], graphs=2**70, warnings=["before"])
    got = store.read(store.write(record, tmp_path))
    assert (
        got.step_s == record.step_s and got.compile_hits is got.device_name is got.graphs is None and got.losses == []
    )
    assert got.warnings[0] == "before" and "compile_hits is not recorded: 'many' is no int64" in got.warnings
    assert len(got.warnings) == 5


def test_no_run_overwrites_another_where_hard_links_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(95, "Operation not supported")))
    paths = {store.write(make_record(), tmp_path) for _ in range(3)}
    assert set(tmp_path.iterdir()) == paths and len(paths) == 3


@pytest.mark.parametrize("pattern", ["none/*.parquet", "none.parquet", "."])
def test_a_pattern_without_files_is_an_error(tmp_path, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoFilesMatch):
        store.read_many([pattern])


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableDirectory):
        store.ensure_writable(tmp_path / "file" / "results")
    with pytest.raises(UnwritableDirectory):
        store.write(make_record(), tmp_path / "file" / "results")
