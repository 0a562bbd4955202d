"""The lines under a table: what differs, what is doubtful, what is assumed."""

import pytest
from records import STEPS, comparable, make_record, make_spec

from tpubench.accounting import Assumptions, account
from tpubench.compare import Comparison
from tpubench.record import Status


def notes(*records, given=None):
    (group,) = Comparison.of(account(r, given) for r in records).groups
    return list(group.notes)


def test_what_differs_is_said_with_whose_it_is():
    left = account(make_record(number=1, spec=make_spec(backend="torch")))
    right = account(make_record(number=2, threads=8, matmul_precision="tf32"))
    lines = notes(left, right)
    assert "differs: threads: unknown [torch:eager]; 8 [embedded:eager]" in lines
    assert any(n.startswith("differs: matmul_precision") for n in lines)
    assert not any(n.startswith("differs: host") for n in lines)


def test_one_machine_one_process_nothing_odd_is_one_line_besides_the_money():
    lines = notes(make_record(), given=Assumptions(peak_tflops=1, price="2"))
    assert lines == [
        "peak: given with --peak-tflops",
        "price: given with --price",
        "one process a cell: how much processes differ was not measured",
    ]


def test_what_was_not_checked_and_what_ran_on_the_cpu_is_said():
    lines = notes(
        make_record(correctness=None, correctness_detail=None, cpu_fallback_ops=["aten::a", "aten::b"], warnings=["w"])
    )
    assert lines[:3] == [
        "embedded:eager: correctness not checked",
        "embedded:eager: ran on the CPU: aten::a, aten::b",
        "embedded:eager: w",
    ]


def test_a_doubtful_run_of_several_is_named_by_its_number():
    noisy = make_record(number=2, step_s=[*STEPS[:-1], 0.3])
    lines = notes(make_record(number=1), noisy, make_record(number=3))
    assert any(line.startswith("embedded:eager: run 2: the standard deviation") for line in lines)
    assert not any("run 1" in line or "run 3" in line for line in lines)
    assert "fewer than 5 processes [embedded:eager]: so few make a wide interval: measure in more" in lines


def test_what_the_sources_are_is_said_with_whose_they_are():
    chip = make_record(number=1, chip="v5e", matmul_precision="bfloat16")
    lines = notes(chip, make_record(number=2, spec=make_spec(mode="compile")))
    assert "peak [embedded:eager]: v5e bf16: Cloud TPU docs v5e, read 2026-12" in lines
    assert any(line.startswith("price [embedded:eager]: gcp us, on-demand") and "2026-12" in line for line in lines)
    assert any(line.startswith("no cost [embedded:compile]: no chip is known") for line in lines)


def test_rows_without_numbers_are_not_held_against_others():
    lines = notes(make_record(), make_record(Status.OOM, spec=make_spec(mode="compile"), host="other", threads=9))
    assert not any(line.startswith("differs") for line in lines)


@pytest.mark.parametrize("count", [7, 300])
def test_a_line_names_a_few_and_counts_the_rest(count):
    lines = notes(*(make_record(number=n % 60, spec=make_spec(seed=n)) for n in range(count)))
    (line,) = (line for line in lines if line.startswith("differs: seed"))
    assert line.endswith(f"; {count - 6} more") and "5 [embedded:eager seed=5]" in line and len(line) < 300


def test_the_comparable_rows_have_their_lines():
    (group,) = Comparison.of(comparable()).groups
    assert "embedded:eager: correctness not checked: loss of step 1: 1e-7 relative, within 1e-05" in group.notes
