"""The TPU chips that are plugged into this host, by their PCI numbers: nothing is imported, started or asked."""

from __future__ import annotations

from pathlib import Path

_GOOGLE = "0x1ae0"
#: Device numbers, and what the catalogue calls the chip. jax/_src/hardware_utils.py (jax 0.10.2), _TPU_PCI_DEVICE_IDS;
#: 0x0027 is v2 and v3 alike, so that it names neither.
_CHIPS: dict[str, str | None] = {
    "0x0027": None,
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "v7x",
}
_DEVICES = Path("/sys/bus/pci/devices")


def _numbers() -> list[str]:
    """The PCI device numbers of the TPU chips here, one a chip."""
    found = []
    for vendor in _DEVICES.glob("*/vendor"):
        try:
            if vendor.read_text().strip() == _GOOGLE:
                found.append((vendor.parent / "device").read_text().strip())
        except OSError:
            continue  # unplugged meanwhile, or not to be read by us
    return [number for number in found if number in _CHIPS]


def chips() -> int:
    """How many TPU chips are plugged in."""
    return len(_numbers())


def chip_name() -> str | None:
    """What the catalogue calls them; None where there are none, or the number does not tell."""
    names = {_CHIPS[number] for number in _numbers()}
    return names.pop() if len(names) == 1 else None


def reason() -> str | None:
    """Why no TPU can be used here; None: there is one, or something that may reach one."""
    return None if _numbers() else "no TPU in this machine"
