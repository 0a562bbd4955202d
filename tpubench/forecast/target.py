"""What a chip of the catalogue is to the TPU compiler."""

from __future__ import annotations

import dataclasses
from typing import Any

from tpubench import catalog
from tpubench.errors import UnknownName


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One chip: the topology that libtpu names it by, and the clock its cycle estimates are read at.

    ``devices`` is how many devices a program sees it as; a forecast is of one of them.
    """

    chip: str
    topology: str
    clock_ghz: float
    clock_reason: str
    devices: int
    options: tuple[tuple[str, Any], ...] = ()

    def request(self) -> dict[str, Any]:
        """What :mod:`tpubench.forecast.compiler` is told first."""
        return {"topology": self.topology, "bounds": [1, 1, 1], "options": dict(self.options)}


_MADE = "assumed: {arrays} make the published bfloat16 peak at it"
_PUBLISHED = "Jouppi et al., ISCA 2023, arXiv 2304.01433, table 4"
_128, _256 = "arrays of 128x128", "arrays of 256x256"
#: Topology, clock in GHz, where the clock comes from. The compiler says neither clock nor seconds.
_TARGETS: dict[str, tuple[str, float, str]] = {
    "v2": ("v2:1x1", 0.7, _PUBLISHED),
    "v3": ("v3:1x1", 0.94, _PUBLISHED),
    "v4": ("v4:1x1x1", 1.05, _PUBLISHED),
    "v5e": ("v5e:1x1", 1.5, _MADE.format(arrays=f"4 {_128}")),
    "v5p": ("v5p:1x1x1", 1.75, _MADE.format(arrays=f"8 {_128}")),
    "v6e": ("v6e:1x1", 1.75, _MADE.format(arrays=f"4 {_256}")),
    "v7x": ("tpu7x:1x1x1", 2.2, _MADE.format(arrays=f"4 {_256} a device")),
}


def names() -> list[str]:
    """Every chip that a forecast can be of."""
    return list(_TARGETS)


def target(chip: str) -> Target:
    """What ``chip`` is to the compiler.

    Raises:
        UnknownName: it is no chip that the TPU compiler compiles for here.
    """
    if chip not in _TARGETS:
        raise UnknownName("TPU", chip, _TARGETS)
    topology, clock, reason = _TARGETS[chip]
    # A v4 is two cores that run one program as one device, which has to be asked for.
    options = (("chip_config_name", "megacore"),) if chip == "v4" else ()
    return Target(chip, topology, clock, reason, catalog.devices_per_chip(chip), options)
