"""The arithmetic read from programs that libtpu 0.0.42.1 compiled for v5e. What the compiler's own cost_analysis() said
of each stands beside it."""

import ast
import re
from pathlib import Path

import pytest

from tpubench.forecast import hlo, loops
from tpubench.forecast.roofline import bound
from tpubench.forecast.work import Work, work

_HLO = Path(__file__).parent / "hlo"


def _text(name: str) -> str:
    return (_HLO / f"{name}.hlo").read_text()


def _work(name: str) -> Work:
    return work(hlo.parse(_text(name)))


@pytest.mark.parametrize(
    ("name", "dtype", "flops"),
    [
        ("matmul", "bf16", 2 * 4096**3),
        ("int8", "s8", 2 * 4096**3),
        ("conv", "bf16", 2 * 32 * 64 * 64 * (3 * 56 - 2) ** 2),  # 3x3 over 56x56: the padding is not multiplied
        ("batched", "bf16", 2 * 4 * 8 * 512 * 512 * 64),  # the batch is a dilated spatial dimension on a TPU
        # Stride 2, so padding at one end only: forward, and backward by the kernel and by the input.
        ("convgrad", "bf16", 3 * 2 * 8 * 32 * 64 * (3 * 28 - 1) ** 2),
    ],
)
def test_flops_are_those_of_the_mathematics(name: str, dtype: str, flops: int) -> None:
    assert _work(name).flops == {dtype: flops}


def test_the_body_of_a_loop_counts_as_often_as_it_runs() -> None:
    """cost_analysis() said 2149580800 of this scan of 12 products: one product."""
    found = _work("scan")
    assert found.flops == {"bf16": 12 * 2 * 1024**3}
    assert found.cycles == 12 * (10856 + 21340)
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("written", "instead", "trips"),
    [
        ("constant(12)", "constant(7)", 7),
        ("%constant.5 = s32[]{:T(128)} constant(0)", "%constant.5 = s32[]{:T(128)} constant(5)", 7),
        ("sunk = s32[]{:T(128)} constant(1)", "sunk = s32[]{:T(128)} constant(5)", 3),  # 0, 5, 10
        ("constant(12)", "constant(0)", 0),
        ("direction=LT", "direction=NE", None),
        ("constant(12)", "custom-call()", None),
        ("sunk = s32[]{:T(128)} constant(1)", "sunk = s32[]{:T(128)} constant(-1)", None),
    ],
)
def test_a_trip_count_is_read_or_is_unknown(written: str, instead: str, trips: int | None) -> None:
    text = _text("scan")
    assert text.count(written) == 1
    module = hlo.parse(text.replace(written, instead))
    loop = next(i for i in module.computations[module.entry].values() if i.opcode == "while")
    assert loops.trip_count(module, module.computations[module.entry], loop) == trips
    assert work(module).unknown == (() if trips is not None else ("while",))


def test_what_the_compiler_gives_no_cycles_for_is_named() -> None:
    assert _work("matmul").uncounted == {"copy-start": 1, "copy-done": 1}


def test_an_int8_product_is_charged_at_the_int8_peak() -> None:
    """optimal_seconds was 0.79 ms for this product, at the bfloat16 peak: v5e does it in half of 0.70 ms."""
    assert bound("v5e", _work("int8").flops, 0).seconds == pytest.approx(2 * 4096**3 / 394e12)
    assert bound("v5e", _work("matmul").flops, 0).seconds == pytest.approx(2 * 4096**3 / 197e12)


def test_the_bound_is_compute_or_memory_whichever_is_longer() -> None:
    compute, memory = bound("v5e", {"bf16": 197e12}, 819e6), bound("v5e", {"bf16": 197e6}, 819e9)
    assert (compute.seconds, compute.bound_by) == (pytest.approx(1.0), "compute")
    assert (memory.seconds, memory.bound_by) == (pytest.approx(1.0), "memory")


def test_a_device_has_its_share_of_the_chip() -> None:
    """A v7x is two devices: a program on one of them has 2307/2 TFLOP/s and 7380/2 GB/s."""
    found = bound("v7x", {"bf16": 2307e12}, 7380e9)
    assert (found.compute_s, found.memory_s) == (pytest.approx(2.0), pytest.approx(2.0))


def test_no_other_peak_stands_in_for_one_the_catalogue_lacks() -> None:
    found = bound("v7x", {"s8": 1e12, "bf16": 1e12}, 1.0)
    assert found.seconds is None and found.bound_by is None
    assert found.reason == "no peak of v7x for s8 is in the catalogue"


@pytest.mark.parametrize("name", ["matmul", "int8", "conv", "batched", "convgrad", "scan"])
def test_the_compilers_cycles_are_no_less_than_the_roofline(name: str) -> None:
    """At 1.5 GHz, the clock at which v5e's 4 arrays of 128x128 make its published peak."""
    found = _work(name)
    assert found.cycles / 1.5e9 >= 0.98 * (bound("v5e", found.flops, 0).seconds or 0)


def test_nothing_asks_the_compiler_for_its_optimal_seconds() -> None:
    """It is negative for a program with a ConcatBitcast, and counts a loop's body once."""
    for path in Path(hlo.__file__).parents[1].rglob("*.py"):
        constants = [n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)]
        assert not [c for c in constants if isinstance(c, str) and re.fullmatch(r"optimal.seconds", c)], path


def test_a_text_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="no entry computation"):
        hlo.parse("HloModule empty\n")
