import dataclasses

import pytest
from records import make_record, make_spec

from tpubench.record import Record, Status
from tpubench.spec import Spec


def test_the_fingerprint_names_every_field():
    base = make_spec()
    seen = {base.fingerprint}
    for field in dataclasses.fields(Spec):
        value = getattr(base, field.name)
        other = (
            not value if isinstance(value, bool) else (value or 0) + 1 if isinstance(value, int | None) else f"{value}x"
        )
        changed = dataclasses.replace(base, **{field.name: other})
        assert changed.fingerprint not in seen, field.name
        seen.add(changed.fingerprint)


def test_the_fingerprint_is_stable():
    # Results on disk are found again by it: a change here orphans them.
    assert make_spec().fingerprint == "af54730363f8825b"
    assert Spec.from_dict(make_spec(batch=3).to_dict()) == make_spec(batch=3)


def test_a_spec_with_an_unknown_field_is_refused():
    with pytest.raises(TypeError):
        Spec.from_dict({**make_spec().to_dict(), "colour": "red"})


def test_a_record_keeps_its_cell():
    spec = make_spec(mode="compile", seed=4)
    record = make_record(spec=spec)
    assert record.spec == spec and record.fingerprint == spec.fingerprint and record.ok
    assert not make_record(Status.TIMEOUT).ok


def test_a_record_takes_no_unknown_field():
    with pytest.raises(TypeError):
        Record.of(make_spec(), run_id="x", created="y", status=Status.OK, colour="red")
