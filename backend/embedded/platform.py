"""Which platform programs are made for: some lowerings know a better form for one of them."""

from __future__ import annotations

import jax

#: The platform programs are compiled for where it is not the default device's (a forecast's chip).
_target: str | None = None


def compile_for(platform: str | None) -> None:
    """Make programs for ``platform`` (``cpu``, ``gpu``, ``tpu``); None: for the default device."""
    global _target
    _target = platform


def target() -> str:
    """The platform that programs are made for."""
    return _target or jax.default_backend()
