"""``torch.Generator`` on the device: random streams beside the default one.

PyTorch asks C++ for a device's generator, so one cannot be made from Python. A generator on the device is
therefore one of PyTorch's CPU generators that names the device: its state, its seed and its pickle are
PyTorch's, and each draw on the device takes its key from it. A CPU generator drives the device likewise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from backend.embedded.backend import DEVICE_NAME
from backend.embedded.errors import GeneratorOnDevice, refuse_index
from backend.embedded.seed import drawing_from

_Plain = torch._C.Generator


class _Kind(type(_Plain)):  # type: ignore[misc]
    """Any generator is an instance of ``torch.Generator``, whichever device it is on."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Plain)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return _Plain in subclass.__mro__


class DeviceGenerator(_Plain):
    """A generator on the device: PyTorch's CPU generator, from which each draw takes its key."""

    _index: int

    def __new__(cls, device: torch.device | str | int = DEVICE_NAME) -> DeviceGenerator:
        self = super().__new__(cls)
        self._index = torch.device(device).index or 0
        refuse_index(self._index)
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that it draws for."""
        return torch.device(DEVICE_NAME, self._index)

    def clone_state(self) -> DeviceGenerator:
        """Another generator in the same state."""
        other = DeviceGenerator(self.device)
        other.set_state(self.get_state())
        return other

    def __reduce__(self) -> Any:
        return _rebuilt, (str(self.device), self.get_state())

    def __deepcopy__(self, memo: Any) -> DeviceGenerator:
        return self.clone_state()

    def __repr__(self) -> str:
        return f"<torch.Generator on {self.device}>"


def _rebuilt(device: str, state: torch.Tensor) -> DeviceGenerator:
    made = DeviceGenerator(device)
    made.set_state(state)
    return made


class Generator(_Plain, metaclass=_Kind):
    """What stands for ``torch.Generator``: makes a generator on the device, or PyTorch's own elsewhere."""

    def __new__(cls, device: Any = "cpu") -> Any:
        if torch.device(device).type == DEVICE_NAME:
            return DeviceGenerator(device)
        return _Plain(device)


def driven(op: torch._ops.OpOverload, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, the kernel of ``op``, drawing from the generator that it is given, where ``op`` takes one."""
    place = next((i for i, a in enumerate(op._schema.arguments) if "Generator" in str(a.type)), None)
    if place is None:
        return run
    name = op._schema.arguments[place].name

    @functools.wraps(run)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        source = kwargs.pop(name, None)
        if place < len(args):
            source = args[place]
            args = (*args[:place], None, *args[place + 1 :]) if place + 1 < len(args) else args[:place]
        if source is None:
            return run(*args, **kwargs)
        held = _Plain.device.__get__(source)  # a generator on the device is the CPU's underneath
        if held.type != "cpu":
            raise GeneratorOnDevice(op, held)
        with drawing_from(source):
            return run(*args, **kwargs)

    return kernel


def install() -> None:
    """Have ``torch.Generator(device=...)`` know the device."""
    Generator.__name__ = Generator.__qualname__ = "Generator"
    Generator.__module__ = "torch"
    torch.Generator = Generator  # type: ignore[misc]
