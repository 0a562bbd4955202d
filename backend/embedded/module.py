"""What PyTorch asks a device's module: ``torch.pjrt``."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch


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
        return False

    def device_count(self) -> int:
        """How many devices there are."""
        return 1

    def current_device(self) -> int:
        """The index that ``torch.device("pjrt")`` stands for."""
        return 0

    def set_device(self, device: Any) -> None:
        """Choose the device that ``"pjrt"`` stands for."""

    def device(self, index: Any) -> Any:
        """``with torch.pjrt.device(1):`` chooses a device for the block."""
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
