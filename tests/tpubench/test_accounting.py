"""MFU, cost and throughput: right by hand, null with a reason, refused above 100 %."""

import dataclasses

import pytest
from records import STEPS, make_record, make_spec

from tpubench import catalog
from tpubench.accounting import Assumptions, account, pooled
from tpubench.errors import BadValue, UnknownChip
from tpubench.record import Status
from tpubench.stats import Interval


def test_times_and_throughput():
    row = account(make_record())
    assert row.step_median_s == pytest.approx(0.1)
    assert row.step_ci_low_s <= 0.1 <= row.step_ci_high_s
    assert row.first_step_s == 5.0
    assert row.warmup_overhead_s == pytest.approx(6.1 - 3 * 0.1)
    assert row.items_per_s == pytest.approx(160)
    assert row.step_s == STEPS


def test_mfu_and_cost_by_hand():
    # 197 TFLOP/s, 1.20 USD a chip-hour; 1e12 FLOPs in 0.1 s are 10 TFLOP/s.
    row = account(make_record(spec=make_spec(dtype="bfloat16"), model_flops=1e12, analytic_flops=1e12, chip="v5e"))
    assert row.mfu == pytest.approx(10 / 197)
    assert row.usd_per_step == pytest.approx(0.1 * 1.20 / 3600)
    assert row.usd_per_million_items == pytest.approx(row.usd_per_step / 16 * 1e6)
    assert "2026" in row.price_source and "2026" in row.peak_source


def test_chips_count_in_both():
    one = account(make_record(model_flops=1e12, analytic_flops=1e12), Assumptions(peak_tflops=100, price="2"))
    four = account(make_record(model_flops=1e12, analytic_flops=1e12), Assumptions(peak_tflops=100, price="2", chips=4))
    assert four.mfu == pytest.approx(one.mfu / 4) and four.usd_per_step == pytest.approx(4 * one.usd_per_step)


def test_an_unknown_chip_gives_null_and_says_what_to_give():
    row = account(make_record())
    assert row.mfu is None and "'Test CPU'" in row.mfu_reason and "--peak-tflops" in row.mfu_reason
    assert row.usd_per_step is None and "--price" in row.cost_reason


def test_a_dtype_without_a_peak_gives_null():
    row = account(make_record(spec=make_spec(dtype="float64"), chip="v5e"))
    assert row.mfu is None and "float64" in row.mfu_reason


def test_more_than_the_peak_is_refused():
    row = account(make_record(model_flops=1e12, analytic_flops=1e12), Assumptions(peak_tflops=5))
    assert row.mfu is None and "refused: 200%" in row.mfu_reason


def test_flops_that_disagree_give_no_mfu():
    row = account(
        make_record(model_flops=2e9, analytic_flops=1e9, mfu_reason="they differ"), Assumptions(peak_tflops=5)
    )
    assert row.mfu is None and row.mfu_reason == "they differ"


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_a_row_that_is_not_ok_gets_no_numbers(status):
    row = account(make_record(status), Assumptions(peak_tflops=100, price="1"))
    assert (row.step_median_s, row.items_per_s, row.mfu, row.usd_per_step) == (None,) * 4


def test_accounting_again_gives_the_same():
    once = account(make_record(chip="v6e"))
    assert account(once) == once
    assert dataclasses.replace(account(once, Assumptions(price="9"))).usd_per_chip_hour == 9


def test_a_tpu_multiplies_float32_in_bfloat16_and_a_gpu_may_in_tf32():
    assert catalog.peak("v5e", "float32", "bfloat16").tflops == 197
    assert catalog.peak("H100-SXM", "float32", "tf32").tflops == 494.5
    assert catalog.peak("H100-SXM", "float32", "float32").tflops == 67
    assert catalog.peak("H100-SXM", "float16", "float32").tflops == 989
    assert catalog.peak("v5e", "float16", None) is None


@pytest.mark.parametrize("precision", [None, "float16x3"])
def test_float32_multiplied_in_who_knows_what_has_no_peak(precision):
    assert catalog.peak("H100-SXM", "float32", precision) is None
    row = account(make_record(chip="H100-SXM", matmul_precision=precision))
    assert row.mfu is None and f"float32 multiplied in {precision or 'no known precision'}" in row.mfu_reason
    assert "--peak-tflops" in row.mfu_reason


def test_a_missing_price_says_whose_and_what_to_give():
    assert account(make_record(chip="v7x")).cost_reason.startswith("the catalogue has no price for v7x: give --price")
    assert account(make_record(chip="v5e"), Assumptions(price="aws")).cost_reason.startswith("aws has no price for v5e")
    assert account(make_record(), Assumptions(price="gcp")).cost_reason.endswith("or --chip")


def test_runs_of_a_cell_make_one_row_whose_numbers_agree():
    spec = make_spec(dtype="bfloat16")
    runs = [
        account(make_record(number=n, scale=s, spec=spec, chip="v5e", compile_s=c, warmup_s=[c, 1.0]))
        for n, s, c in ((1, 1.0, 3.0), (2, 2.0, 5.0))
    ]
    row = pooled(runs, Interval(0.15, 0.1, 0.2))
    assert (row.step_median_s, row.step_ci_low_s, row.step_ci_high_s, row.compile_s, row.first_step_s) == (
        (0.15, 0.1, 0.2, 4.0, 4.0)
    )  # fmt: skip
    assert row.items_per_s == pytest.approx(16 / 0.15)
    assert row.mfu == pytest.approx(2e9 / 0.15 / 197e12) == pytest.approx(row.achieved_tflops / 197)
    assert row.usd_per_step == pytest.approx(0.15 * 1.20 / 3600) and runs[-1].step_median_s == pytest.approx(0.2)


def test_every_line_of_the_catalogue_can_be_used():
    for row in catalog._rows("chips.csv"):
        if row["dtype"] == "fp32":
            assert catalog.peak(row["chip"], "float32", "float32").tflops == float(row["peak_tflops"])
            continue
        names = {short: name for name, short in catalog._SHORT.items()}
        found = catalog.peak(row["chip"], names.get(row["dtype"], row["dtype"]), None)
        assert found is not None and found.tflops > 0 and row["read_on"] in found.source
    for row in catalog._rows("prices.csv"):
        assert catalog.price(row["provider"], row["chip"]).usd_per_chip_hour > 0
        assert row["chip"] in catalog.chips()


def test_doubtful_facts_say_so():
    assert "unconfirmed" in catalog.peak("v2", "bfloat16", None).source
    assert "unconfirmed" not in catalog.peak("v5e", "bfloat16", None).source


@pytest.mark.parametrize("price", ["azure", "-1", "0", "nan", "inf", ""])
def test_a_price_that_is_none_is_refused(price):
    with pytest.raises(BadValue, match="USD per chip-hour"):
        catalog.price(price, "v5e")


def test_an_unknown_chip_is_refused_with_the_nearest():
    with pytest.raises(UnknownChip, match="did you mean 'H100-SXM'"):
        Assumptions(chip="H100-SMX").ensure()
