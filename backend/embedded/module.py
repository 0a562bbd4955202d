"""What PyTorch asks a device's module: ``torch.pjrt``."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any

import torch

from backend.embedded.backend import DEVICE_NAME
from backend.embedded.errors import refuse_index


class DeviceModule:
    """``torch.pjrt``: devices, waiting, random state, autocast."""

    #: Checkpointing looks here before it keeps the random state.
    _initialized = True

    def is_initialized(self) -> bool:
        """Whether the device can be used: it is made known as a whole."""
        return True

    def is_available(self) -> bool:
        """Whether there is such a device."""
        return True

    def _is_in_bad_fork(self) -> bool:
        from backend.embedded.fork import in_fork

        return in_fork()

    def device_count(self) -> int:
        """How many devices there are."""
        return 1

    def current_device(self) -> int:
        """The index that ``torch.device("pjrt")`` stands for."""
        return 0

    def set_device(self, device: Any) -> None:
        """Choose the device that ``"pjrt"`` stands for.

        Raises:
            NoSuchDevice: there is no such one.
        """
        refuse_index(torch.device(DEVICE_NAME, device).index if isinstance(device, int) else torch.device(device).index)

    def device(self, index: Any) -> Any:
        """``with torch.pjrt.device(0):`` chooses a device for the block; a negative index leaves it.

        Raises:
            NoSuchDevice: there is no such one.
        """
        if not (isinstance(index, int) and index < 0):
            self.set_device(index)
        return contextlib.nullcontext()

    def synchronize(self, device: Any = None) -> None:
        """Wait for everything that was launched."""
        from backend.embedded.buffer import synchronize

        synchronize()

    def manual_seed(self, seed: int) -> None:
        """Start the device's random stream from ``seed``; ``torch.manual_seed`` does so too."""
        self.manual_seed_all(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Start the random stream from ``seed``: one stream serves all devices."""
        from backend.embedded.seed import GENERATOR

        GENERATOR.manual_seed(seed)

    def seed(self) -> None:
        """Start the random stream from a seed that the operating system draws."""
        self.manual_seed_all(int.from_bytes(os.urandom(8), "little"))

    seed_all = seed

    def initial_seed(self) -> int:
        """The seed that the random stream started from."""
        from backend.embedded.seed import GENERATOR

        return GENERATOR.initial_seed()

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """The random stream's state, (16,) uint8."""
        from backend.embedded.seed import GENERATOR

        return GENERATOR.state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Put the random stream's state back."""
        from backend.embedded.seed import GENERATOR

        GENERATOR.set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """The lower precisions of ``torch.autocast("pjrt")``."""
        return [torch.bfloat16, torch.float16]


def install() -> None:
    """Have ``torch.accelerator.synchronize`` wait for the device: PyTorch asks C++, which a Python device is not."""
    original = torch.accelerator.synchronize

    @functools.wraps(original)
    def synchronize(device: Any = None, /) -> None:
        if torch.accelerator.current_accelerator() == torch.device(DEVICE_NAME):
            DeviceModule().synchronize(device)
        else:
            original(device)

    torch.accelerator.synchronize = synchronize
    choose = torch.accelerator.set_device_index

    @functools.wraps(choose)
    def set_device_index(device: Any, /) -> None:
        if torch.accelerator.current_accelerator() == torch.device(DEVICE_NAME):
            DeviceModule().set_device(device)
        else:
            choose(device)

    torch.accelerator.set_device_index = set_device_index
