"""Roofline and bandwidth of a row, worked out by hand."""

import dataclasses

import pytest
from records import make_record

from tpubench.accounting import Assumptions, account
from tpubench.catalog import memory


def row(given=None, **fields):
    """A row whose step takes 0.1 s, of known bytes and FLOPs."""
    record = dataclasses.replace(make_record(), bytes_moved=2e9, chip=None, chips=None)
    return account(dataclasses.replace(record, **fields), given)


KNOWN = Assumptions(peak_tflops=1.0, peak_gbps=100.0)


def test_bandwidth_is_bytes_over_the_median_step():
    got = row()
    assert got.achieved_gbps == pytest.approx(20.0)
    assert got.roofline is None and "give --peak-gbps, or --chip" in got.roofline_reason


def test_a_step_bound_by_memory_stands_at_its_share():
    got = row(KNOWN)  # 2e9 bytes at 100 GB/s: 20 ms of the 100; 2e9 FLOPs at 1 TFLOP/s: 2 ms
    assert got.roofline == pytest.approx(0.2) and got.bound_by == "memory" and got.roofline_reason is None
    assert got.peak_gbps_source == "given with --peak-gbps"


def test_a_step_bound_by_arithmetic_stands_at_its_share():
    got = row(KNOWN, model_flops=5e10, analytic_flops=5e10)
    assert got.roofline == pytest.approx(0.5) == pytest.approx(got.mfu) and got.bound_by == "compute"


def test_chips_share_the_work():
    assert row(KNOWN, chips=2).roofline == pytest.approx(0.1)


def test_a_step_without_products_has_a_roofline_and_no_mfu():
    got = row(Assumptions(peak_gbps=100.0), model_flops=0.0, analytic_flops=0.0)
    assert got.roofline == pytest.approx(0.2) and got.mfu is None
    assert got.mfu_reason == "a step without products of matrices has none"


def test_without_a_peak_there_is_no_roofline():
    got = row(Assumptions(peak_gbps=100.0))
    assert got.roofline is None and got.roofline_reason == got.mfu_reason and "--peak-tflops" in got.mfu_reason


def test_more_than_the_roofline_is_refused():
    got = row(Assumptions(peak_tflops=1.0, peak_gbps=10.0))
    assert got.roofline is None and got.roofline_reason.startswith("refused: the step takes 2.00 times less")


def test_the_catalogue_gives_the_bandwidth_of_a_chip():
    got = row(Assumptions(chip="v5e"), dtype="bfloat16")
    assert got.peak_gbps == memory("v5e").gbps and got.peak_gbps_source.startswith("v5e: ")
    assert got.roofline == pytest.approx(2e9 / (memory("v5e").gbps * 1e9) / 0.1)


def test_a_row_of_unknown_bytes_says_so_and_keeps_no_older_roofline():
    got = row(KNOWN, bytes_moved=None, roofline=0.5, bound_by="memory")
    assert got.roofline is got.bound_by is got.achieved_gbps is None
    assert got.roofline_reason == "the bytes that a step must move are not known"


def test_time_an_op_is_the_hosts_and_the_devices_apart():
    got = row(item="op", items_per_step=1000.0, dispatch_s=[0.01, 0.02, 0.03], device_s=0.005)
    assert got.host_s_per_op == pytest.approx(20e-6) and got.device_s_per_op == pytest.approx(5e-6)
    assert row(item="image", items_per_step=1000.0, dispatch_s=[0.01]).host_s_per_op is None
