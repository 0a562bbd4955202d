"""What PyTorch does to a storage from Python: on the device the memory behind one is a buffer, not an address."""

from __future__ import annotations

from typing import Any

import torch

from backend.embedded.backend import DEVICE_NAME
from backend.embedded.buffer import Buffer, create
from backend.embedded.errors import StorageNotOnHost

_set = torch.ops.aten.set_.source_Storage_storage_offset
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)


def _new_storage(nbytes: int) -> torch.UntypedStorage:
    tensor = create((0,), torch.uint8)
    storage = tensor.untyped_storage()
    if nbytes:
        _set.redispatch(_META, tensor, storage, 0, (nbytes,), (1,))
    return storage


def _clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of its own with the same values, which are shared until one of the two is written."""
    copy = _new_storage(storage.nbytes())
    held = getattr(storage, "buffer", None)
    if held is not None:
        copy.buffer = Buffer(held.value, held.form)  # type: ignore[attr-defined]
    return copy


def _fill(storage: torch.UntypedStorage, source: torch.UntypedStorage) -> torch.UntypedStorage:
    """Give a device's storage the bytes of ``source``: as ``torch.load(map_location=...)`` does."""
    if source.device.type == DEVICE_NAME:
        held = getattr(source, "buffer", None)
        if held is not None:
            storage.buffer = Buffer(held.value, held.form)  # type: ignore[attr-defined]
        return storage
    host = torch.empty(0, dtype=torch.uint8, device="cpu").set_(source)
    there = torch.empty(0, dtype=torch.uint8, device=storage.device)
    _set.redispatch(_META, there, storage, 0, (source.nbytes(),), (1,))
    there.copy_(host)
    storage.bytes_only = True  # type: ignore[attr-defined]
    return storage


def _refusing(name: str) -> Any:
    original = getattr(torch.UntypedStorage, name)

    def method(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == DEVICE_NAME:
            raise StorageNotOnHost(name)
        return original(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, original.__doc__
    return method


#: Methods that read or write a storage's bytes by their address.
_BY_ADDRESS = ("__getitem__", "__setitem__", "tolist", "cpu", "fill_", "byteswap", "_write_file")


def install() -> None:
    """Have a device's storages copied by their buffer, and refuse by name what needs an address."""
    clone, make, fill = torch.UntypedStorage.clone, torch.UntypedStorage.__new__, torch.UntypedStorage.copy_
    pointer = torch.UntypedStorage.data_ptr

    def cloned(self: torch.UntypedStorage) -> torch.UntypedStorage:
        return _clone(self) if self.device.type == DEVICE_NAME else clone(self)

    def filled(self: torch.UntypedStorage, source: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if DEVICE_NAME not in (self.device.type, source.device.type):
            return fill(self, source, *args, **kwargs)
        if self.device.type != DEVICE_NAME:
            raise StorageNotOnHost("copy_")
        return _fill(self, source)

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == DEVICE_NAME:
            if len(args) == 1 and isinstance(args[0], int):
                return _new_storage(args[0])
            raise StorageNotOnHost("UntypedStorage(values)")
        return make(cls, *args, **kwargs)

    def address(self: torch.UntypedStorage) -> int:
        # There is no address. PyTorch tells storages apart by it, and takes 0 for one that holds nothing.
        return self._cdata if self.device.type == DEVICE_NAME else pointer(self)

    torch.UntypedStorage.data_ptr = address  # type: ignore[method-assign]
    torch.UntypedStorage.clone = cloned  # type: ignore[method-assign]
    torch.UntypedStorage.copy_ = filled  # type: ignore[method-assign,assignment]
    torch.UntypedStorage.__new__ = new  # type: ignore[method-assign,assignment]
    for name in _BY_ADDRESS:
        setattr(torch.UntypedStorage, name, _refusing(name))
