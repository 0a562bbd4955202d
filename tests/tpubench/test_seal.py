"""The copy in a record's footer: believed only as it was written."""

import pyarrow.parquet as pq
import pytest
from records import make_record

from tpubench import seal, store
from tpubench.errors import NotARecordFile, TpubenchError


@pytest.fixture
def path(tmp_path):
    return store.write(make_record(losses=[1.0, float("nan")], reason="caf\u00e9 \U0001f600", exit_signal=9), tmp_path)


def test_copy_and_columns_say_the_same(path):
    fields = seal.unseal(path.read_bytes())
    (columns,) = pq.read_table(path).to_pylist()
    assert str(fields) == str(columns)  # nan is not equal to itself
    assert fields["reason"] == "caf\u00e9 \U0001f600"


def test_a_changed_byte_anywhere_breaks_the_seal(path):
    whole = path.read_bytes()
    for place in range(0, len(whole), 41):
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        assert seal.unseal(changed) is None, place
    for length in range(0, len(whole), 997):
        assert seal.unseal(whole[:length]) is None, length


def test_a_file_written_anew_is_read_by_its_columns(path):
    table = pq.read_table(path)
    assert b"tpubench.record" in table.schema.metadata
    pq.write_table(table.drop_columns(["exit_signal"]), path)
    assert store.read(path).exit_signal is None
    renamed = ["width" if name == "batch" else name for name in table.column_names]
    pq.write_table(table.rename_columns(renamed).replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(NotARecordFile, match="columns are missing: batch"):
        store.read(path)


def test_no_byte_string_raises_but_what_the_reader_names(path):
    whole = path.read_bytes()
    marker = whole.rindex(seal.KEY) + len(seal.KEY)
    for tail in (b"", b"\x18", b"\x18\xff", b"\x18" + b"\xff" * 9, b"\x18\x05abcde", b"\x18\x41" + b"0" * 65):
        assert seal.unseal(whole[:marker] + tail) is None
        path.write_bytes(whole[:marker] + tail)
        with pytest.raises(TpubenchError, match=path.name):
            store.read(path)
