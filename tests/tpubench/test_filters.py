"""Filters: which records are meant."""

import pytest
from records import make_record, make_spec

from tpubench.errors import BadValue, UnknownName
from tpubench.filters import Filter


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("embedded", True), ("embedded:eager", True), ("embedded:compile", False), ("torch:eager", False),
        ("batch=16", True), ("batch=1", False), ("batch!=16", False), ("batch!=8", True), ("mode=eag*", True),
        ("backend=embedded, mode=eager", True), ("backend=embedded,mode!=eager", False), ("chip=none", True),
        ("cpu_fallback=false", True), ("chips=1", True),
    ],
)  # fmt: skip
def test_a_filter_matches(text, wanted):
    assert Filter.parse("--where", text).matches(make_record(spec=make_spec())) is wanted


@pytest.mark.parametrize("text", ["", ":eager", "torch:", "mode=", "=eager", "mode=eager,", "!=3"])
def test_what_is_no_filter_is_refused(text):
    with pytest.raises(BadValue, match="--where cannot be"):
        Filter.parse("--where", text)


def test_an_unknown_field_is_named_with_the_nearest():
    with pytest.raises(UnknownName, match="unknown field of a record in --where 'bach': did you mean 'batch'"):
        Filter.parse("--where", "bach=8")
