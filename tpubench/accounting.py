"""From raw samples to the numbers of a row: summary, throughput, MFU, cost. Null comes with its reason."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from tpubench import catalog
from tpubench.ceiling import add_ceiling
from tpubench.record import Record
from tpubench.stats import Interval, median_ci

#: What of several runs is a median, what falls as the step time grows, and what grows with it.
_TIMES = ("first_step_s", "warmup_overhead_s", "device_s", "compile_s", "host_s_per_op", "device_s_per_op")
_RATES = ("items_per_s", "achieved_tflops", "mfu", "achieved_gbps", "roofline")
_COSTS = ("usd_per_step", "usd_per_million_items")


@dataclasses.dataclass(frozen=True, slots=True)
class Assumptions:
    """What a user says about the chip: each overrides what the row or the catalogue says."""

    chip: str | None = None
    chips: int | None = None
    price: str | None = None  # a provider, or USD per chip-hour
    peak_tflops: float | None = None
    peak_gbps: float | None = None

    def ensure(self) -> None:
        """Check what was given.

        Raises:
            UnknownChip: the catalogue does not list ``chip``.
            BadValue: ``price`` is neither a provider nor a number.
        """
        if self.chip is not None:
            catalog.ensure_chip(self.chip)
        if self.price is not None:
            catalog.price(self.price, self.chip)


def account(record: Record, given: Assumptions | None = None) -> Record:
    """``record`` with every derived field worked out anew from its raw ones.

    A row that is not ok gets none: its numbers may not be compared.
    """
    given = given or Assumptions()
    row = dataclasses.replace(record)
    row.chip = given.chip or row.chip
    row.chips = given.chips or row.chips
    if row.warmup_s:
        row.first_step_s = row.warmup_s[0]
    if not row.ok or not row.step_s:
        return row
    interval = median_ci(row.step_s)
    row.step_median_s, row.step_ci_low_s, row.step_ci_high_s = interval.value, interval.low, interval.high
    row.warmup_overhead_s = sum(row.warmup_s) - len(row.warmup_s) * interval.value
    if row.items_per_step is not None:
        row.items_per_s = row.items_per_step / interval.value
    _utilise(row, given)
    add_ceiling(row, given.peak_gbps)
    _cost(row, given)
    return row


def pooled(records: Sequence[Record], step: Interval) -> Record:
    """The accounted runs of one cell as one row, whose step time is ``step``; the rest is the last run's.

    First step, warm-up, device and compile times are medians over the runs; throughput, MFU, roofline and cost are
    those of ``step``.
    """
    row = dataclasses.replace(records[-1])
    last, row.step_median_s, row.step_ci_low_s, row.step_ci_high_s = row.step_median_s, step.value, step.low, step.high
    for name in _TIMES:
        known = [value for r in records if (value := getattr(r, name)) is not None]
        setattr(row, name, statistics.median(known) if known else None)
    if last:
        for name, factor in (
            *(
                (name, last / step.value)
                for name in ("items_per_s", "achieved_tflops", "mfu", "achieved_gbps", "roofline")
            ),
            *((name, step.value / last) for name in ("usd_per_step", "usd_per_million_items")),
        ):
            value = getattr(row, name)
            setattr(row, name, None if value is None else value * factor)
    return row


def _utilise(row: Record, given: Assumptions) -> None:
    """MFU = model FLOPs / (step time x chips x dense peak), PaLM (arXiv 2204.02311), appendix B."""
    row.mfu = row.peak_tflops = row.peak_source = None
    if row.model_flops is None or row.step_median_s is None:
        row.mfu_reason = row.mfu_reason or "the model's FLOPs are not known"
        return
    row.achieved_tflops = row.model_flops / row.step_median_s / 1e12
    if row.analytic_flops and abs(row.model_flops - row.analytic_flops) > 0.05 * row.analytic_flops:
        row.mfu_reason = row.mfu_reason or "the model's FLOPs by count and by formula disagree by more than 5 %"
        return
    row.mfu_reason = None
    if row.model_flops == 0:
        row.mfu_reason = "a step without products of matrices has none"
        return
    if given.peak_tflops is not None:
        row.peak_tflops, row.peak_source = given.peak_tflops, "given with --peak-tflops"
    elif row.chip is None:
        what = row.device_name if row.device_name not in (None, "cpu") else row.cpu_model or "this device"
        row.mfu_reason = f"no peak is known for '{what}': give --chip or --peak-tflops"
        return
    else:
        peak = catalog.peak(row.chip, row.dtype, row.matmul_precision)
        if peak is None:
            how = f" multiplied in {row.matmul_precision or 'no known precision'}" if row.dtype == "float32" else ""
            row.mfu_reason = f"the catalogue has no peak of {row.chip} for {row.dtype}{how}: give --peak-tflops"
            return
        row.peak_tflops, row.peak_source = peak.tflops, peak.source
    mfu = row.achieved_tflops / ((row.chips or 1) * row.peak_tflops)
    if mfu > 1:
        row.mfu_reason = (
            f"refused: {mfu:.0%} of the peak of {row.peak_tflops:g} TFLOP/s cannot be; "
            "the peak, the chip or the timing is wrong"
        )
        return
    row.mfu = mfu


def _cost(row: Record, given: Assumptions) -> None:
    """Step time x chips x USD per chip-hour / 3600."""
    row.usd_per_chip_hour = row.price_source = row.usd_per_step = row.usd_per_million_items = None
    wanted = given.price or ("gcp" if row.chip else None)
    price = catalog.price(wanted, row.chip) if wanted else None
    if price is None and given.price is None and row.chip:
        found = (catalog.price(p, row.chip) for p in catalog.providers())
        price = next((p for p in found if p is not None), None)
    if price is None or row.step_median_s is None:
        who = given.price or "the catalogue"
        what = f"{who} has no price for {row.chip}" if row.chip else "no chip is known"
        row.cost_reason = f"{what}: give --price in USD per chip-hour" + ("" if row.chip else ", or --chip")
        return
    row.cost_reason = None
    row.usd_per_chip_hour, row.price_source = price.usd_per_chip_hour, price.source
    row.usd_per_step = row.step_median_s * (row.chips or 1) * price.usd_per_chip_hour / 3600
    if row.items_per_step:
        row.usd_per_million_items = row.usd_per_step / row.items_per_step * 1e6
