"""Estimates of programs that libtpu 0.0.42.1 compiled for v5e."""

from pathlib import Path

import pytest

from tpubench.forecast import hlo
from tpubench.forecast.estimate import estimate, roofline
from tpubench.forecast.target import target

_HLO = Path(__file__).parent / "hlo"


def _estimate(name, boundary=0.0, chip="v5e", change=lambda text: text):
    return estimate(hlo.parse(change((_HLO / f"{name}.hlo").read_text())), target(chip), boundary)


def test_a_product_takes_from_the_peaks_time_to_the_compilers_cycles():
    found = _estimate("matmul", 3 * 4096 * 4096 * 2)
    assert found.low_s == pytest.approx(2 * 4096**3 / 197e12)
    assert found.high_s == pytest.approx(found.cycles_s, rel=0.2) and found.high_s > found.low_s
    assert found.ops[0].product


def test_an_int8_product_takes_half_of_a_bfloat16_one():
    """The compiler's optimal_seconds charges it at the bfloat16 peak."""
    assert _estimate("int8").low_s == pytest.approx(_estimate("matmul").low_s / 2, rel=0.01)


def test_a_loops_body_takes_its_time_as_often_as_it_runs():
    twelve = _estimate("scan")
    one = _estimate("scan", change=lambda text: text.replace("constant(12)", "constant(1)"))
    assert twelve.low_s == pytest.approx(12 * one.low_s)
    assert 11 < twelve.high_s / one.high_s <= 12
    assert {op.runs for op in twelve.ops if op.product} == {12}


def test_a_loop_of_unknown_length_has_no_time_and_says_why():
    found = _estimate("scan", change=lambda text: text.replace("direction=LT", "direction=NE"))
    assert found.low_s is None and found.high_s is None
    assert found.reason == "how often while runs is not known before it runs"


def test_more_bytes_at_the_boundary_take_longer_and_bound_it():
    found = _estimate("matmul", 819e9)
    assert found.low_s == pytest.approx(1.0) and found.compute_s == 0
    assert found.high_s >= found.low_s


@pytest.mark.parametrize("name", ["matmul", "int8", "conv", "batched", "convgrad", "scan"])
def test_the_ends_are_in_order_and_never_negative(name):
    found = _estimate(name)
    assert 0 < found.low_s <= found.high_s
    assert all(op.seconds >= 0 and op.bytes >= 0 for op in found.ops)
    assert [op.seconds for op in found.ops] == sorted((op.seconds for op in found.ops), reverse=True)


def test_what_the_compiler_says_no_cycles_of_is_counted_by_name():
    line = '  %odd = f32[8]{0} custom-call(), custom_call_target="Sorted"\n'
    entry = "%copy-start = ("
    found = _estimate("matmul", change=lambda text: text.replace(f"  {entry}", f"{line}  {entry}", 1))
    assert _estimate("matmul").uncounted == {} and found.uncounted == {"Sorted": 1}


def test_without_a_compile_there_is_a_least_time_and_no_greatest():
    found, least = roofline(hlo.parse((_HLO / "matmul.hlo").read_text()), target("v5e"))
    assert found.high_s is None and found.low_s == pytest.approx(2 * 4096**3 / 197e12)
    assert least == 2 * 4096 * 4096 * 2, "two arguments are more than one result"


def test_most_of_a_large_products_time_is_the_arithmetic():
    found = _estimate("matmul")
    assert found.compute_s == pytest.approx(found.high_s)
