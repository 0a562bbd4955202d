"""Chips and prices: data with a source and a date, shipped as CSV beside the code."""

from __future__ import annotations

import csv
import dataclasses
import functools
from importlib import resources

from tpubench.errors import BadValue, UnknownChip


@dataclasses.dataclass(frozen=True, slots=True)
class Peak:
    """One chip's dense peak at one dtype, as a source gives it."""

    tflops: float
    source: str


@dataclasses.dataclass(frozen=True, slots=True)
class Price:
    """USD per chip-hour, with where and when it was read; "given" where a user gave it."""

    usd_per_chip_hour: float
    source: str


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """One chip's memory: GB (1e9 bytes) and GB/s, as a source gives them."""

    gb: float
    gbps: float
    source: str


@functools.cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    text = resources.files("tpubench").joinpath("data", name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _cited(row: dict[str, str]) -> str:
    doubt = "" if row["sure"] == "yes" else ", unconfirmed"
    return f"{row['source']}, read {row['read_on']}{doubt}"


def chips() -> list[str]:
    """Every chip of the catalogue, in its order."""
    return list(dict.fromkeys(row["chip"] for row in _rows("chips.csv")))


def ensure_chip(chip: str) -> str:
    """``chip`` itself.

    Raises:
        UnknownChip: the catalogue does not list it.
    """
    if chip not in chips():
        raise UnknownChip(chip, chips())
    return chip


_SHORT = {"float16": "fp16", "bfloat16": "bf16", "bfloat16-autocast": "bf16", "float64": "fp64", "int8": "int8"}
_FLOAT32_IN = {"float32": "fp32", "tf32": "tf32", "bfloat16": "bf16"}


def multiplied_in(dtype: str, precision: str | None) -> str | None:
    """The catalogue's name of what a matrix product of ``dtype`` multiplies in; None where it is not known.

    ``precision`` is the row's ``matmul_precision``: a TPU multiplies float32 in one bfloat16 pass by
    default (https://docs.jax.dev/en/latest/jax.lax.html#jax.lax.Precision), a GPU may in TF32.
    """
    if dtype == "float32":
        return None if precision is None else _FLOAT32_IN.get(precision)
    return _SHORT.get(dtype, dtype)


def peak(chip: str, dtype: str, precision: str | None) -> Peak | None:
    """The dense peak of ``chip`` for ``dtype``; None where the catalogue has none. Nothing stands in for it."""
    wanted = multiplied_in(dtype, precision)
    # A tensor core multiplies fp16 as fast as bf16 on every NVIDIA and AMD chip listed.
    for name in ("fp16", "bf16") if wanted == "fp16" else (wanted,):
        for row in _rows("chips.csv"):
            if row["chip"] == chip and row["dtype"] == name and (name == wanted or row["kind"] == "gpu"):
                return Peak(float(row["peak_tflops"]), f"{chip} {name}: {_cited(row)}")
    return None


def devices_per_chip(chip: str) -> int:
    """How many devices a program sees ``chip`` as; each has its share of the chip's peak and memory.

    Raises:
        UnknownChip: the catalogue does not list it.
    """
    ensure_chip(chip)
    return next(int(row["devices_per_chip"]) for row in _rows("chips.csv") if row["chip"] == chip)


def memory(chip: str) -> Memory | None:
    """The memory of ``chip``; None where the catalogue has none."""
    for row in _rows("chips.csv"):
        if row["chip"] == chip and row["hbm_gb"] and row["hbm_gbps"]:
            return Memory(float(row["hbm_gb"]), float(row["hbm_gbps"]), f"{chip}: {_cited(row)}")
    return None


def providers() -> list[str]:
    """Every provider with a price."""
    return sorted({row["provider"] for row in _rows("prices.csv")})


def price(wanted: str, chip: str | None) -> Price | None:
    """The price that ``wanted`` (a provider, or USD per chip-hour) gives ``chip``; None where there is none.

    Raises:
        BadValue: ``wanted`` is neither.
    """
    if wanted in providers():
        for row in _rows("prices.csv"):
            if row["chip"] == chip and row["provider"] == wanted:
                where = f"{row['provider']} {row['region']}, {row['basis']}"
                return Price(float(row["usd_per_chip_hour"]), f"{where}: {_cited(row)}")
        return None
    try:
        usd = float(wanted)
    except ValueError:
        usd = -1.0
    if not 0 < usd < float("inf"):
        remedy = f"give USD per chip-hour, or one of {', '.join(providers())}"
        raise BadValue("--price", wanted, remedy)
    return Price(usd, "given with --price")
