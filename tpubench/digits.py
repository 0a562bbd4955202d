"""Numbers as people read them: as many digits as they are worth, with their unit."""

from __future__ import annotations

import math

from tpubench.grid import NOTHING
from tpubench.stats import Interval


def seconds(value: float) -> str:
    """A duration in the unit that gives it three digits before rounding: 12.3 us, 45.6 ms, 1.23 s."""
    for unit, scale in (("us", 1e6), ("ms", 1e3)):
        if value * scale < 999.5:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s" if value < 999.5 else f"{value:.0f} s"


def with_interval(interval: Interval, digits: int, scale: float = 1.0) -> str:
    """The value to ``digits`` significant digits, and the ends of its interval to as many decimals."""
    value = interval.value * scale
    decimals = max(0, digits - 1 - math.floor(math.log10(value))) if value > 0 else 0
    ends = ""
    if interval.low is not None and interval.high is not None:
        ends = f" [{interval.low * scale:.{decimals}f}, {interval.high * scale:.{decimals}f}]"
    return f"{value:.{decimals}f}{ends}"


def ratio(interval: Interval) -> str:
    """A ratio, ``~`` before one whose interval holds 1."""
    return ("~" if interval.holds(1.0) else "") + with_interval(interval, 3)


def number(value: float | None, form: str = ".3g", unit: str = "") -> str:
    """``value`` in ``form``, or the sign for nothing."""
    return NOTHING if value is None else f"{value:{form}}{unit}"


def rate(value: float | None) -> str:
    """Four digits, and none of them behind an exponent."""
    return NOTHING if value is None else f"{value:.4g}" if value < 9999.5 else f"{value:.0f}"


def share(value: float | None, form: str = ".1f") -> str:
    """0 to 1 in percent."""
    return NOTHING if value is None else f"{value * 100:{form}}%"


def milli(value: float | None) -> float | None:
    """Seconds in milliseconds."""
    return None if value is None else value * 1e3


def micro(value: float | None) -> float | None:
    """Seconds in microseconds."""
    return None if value is None else value * 1e6


def mebibytes(size: int | None) -> float | None:
    """Bytes in MiB."""
    return None if size is None else size / 2**20
