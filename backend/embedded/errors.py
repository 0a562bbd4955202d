"""What the embedded backend refuses, by name.

RuntimeError
└── EmbeddedError
    ├── DtypeNotSupported    a dtype that cannot be held without narrowing it
    ├── LoweringMismatch     a lowering gave another shape than PyTorch says: a fault of ours
    ├── DevicesDiffer        operands on two devices
    ├── GeneratorOnDevice    a torch.Generator that cannot drive the device
    ├── StorageNotOnHost     a storage's bytes asked for by their address
    ├── DeviceAfterFork      the device used in a forked process
    ├── NoSuchDevice         an index beyond the devices there are
    ├── ValuesUnknown        a value asked for where there are only shapes
    ├── MemoryOverlaps       a write through a tensor whose elements share memory
    └── OpFailed             XLA could not run an op, in eager-blocking mode
NotImplementedError
└── OpNotLowered             an ATen op that has no lowering
"""

from __future__ import annotations


class EmbeddedError(RuntimeError):
    """The embedded backend cannot do this."""


class OpNotLowered(NotImplementedError):
    """An ATen op that has neither a lowering nor a decomposition into ops that have one."""

    def __init__(self, op: object, why: str = "") -> None:
        detail = f" ({why})" if why else ""
        super().__init__(
            f"the embedded backend has no lowering for {op}{detail}: "
            "rewrite the model without it, or allow it on the CPU with --cpu-fallback "
            "(backend.embedded.fallback.allow(True) in a program), where it is counted"
        )
        self.op = str(op)


class ValuesUnknown(EmbeddedError):
    """A value asked for in a process that has shapes only (:mod:`backend.embedded.shadow`)."""

    def __init__(self) -> None:
        super().__init__(
            "the step reads a value of a device tensor (item(), a copy to the CPU, a shape that depends on values), "
            "and a forecast has none: it can follow a step only as far as shapes decide what it launches"
        )


class DtypeNotSupported(EmbeddedError):
    """A dtype that cannot be held on the device without narrowing it."""

    def __init__(self, dtype: object) -> None:
        super().__init__(
            f"the embedded backend cannot hold {dtype}: convert to one of float32, float64, float16, bfloat16, "
            "complex64, complex128, bool, uint8, int8, int16, int32, int64"
        )


class LoweringMismatch(EmbeddedError):
    """A lowering gave another result shape than PyTorch's own shape function."""

    def __init__(self, op: object, got: object, expected: object) -> None:
        super().__init__(
            f"the lowering of {op} gave shape {got} where PyTorch says {expected}: this is a fault in tpubench, "
            "please report it with the op and its shapes"
        )


class DevicesDiffer(EmbeddedError):
    """Operands on two devices, in PyTorch's own words."""

    def __init__(self, op: object, device: object) -> None:
        super().__init__(
            f"Expected all tensors to be on the same device, but found at least two devices, pjrt:0 and {device}! "
            f"(in a call of {op}; move the operand with .to('pjrt'))"
        )


class MemoryOverlaps(EmbeddedError):
    """A write through a tensor whose elements share memory, in PyTorch's own words."""

    def __init__(self, op: object) -> None:
        super().__init__(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            f"Please clone() the tensor before performing the operation. (in a call of {op})"
        )


class OpFailed(EmbeddedError):
    """XLA could not compile or run an op; ``line`` is where the user's code called it."""

    def __init__(self, op: object, line: str, error: Exception) -> None:
        super().__init__(f"{op} failed, called from {line}: {error}")
        self.op = str(op)
        self.line = line


class GeneratorOnDevice(EmbeddedError):
    """A generator of another device, in PyTorch's own words."""

    def __init__(self, op: object, device: object) -> None:
        super().__init__(
            f"Expected a 'pjrt' device type for generator but found '{device}' (in a call of {op}): "
            "make it with torch.Generator(device='pjrt'), or torch.Generator() for the CPU's, which drives it too"
        )


class StorageNotOnHost(EmbeddedError):
    """The bytes of a device's storage, asked for by their address."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"a storage on the pjrt device has no bytes that {what} could reach: "
            "go by way of a tensor (tensor.cpu().untyped_storage(), tensor.copy_(...))"
        )


class DeviceAfterFork(EmbeddedError):
    """The device, used in a process that was forked from one that uses it."""

    def __init__(self) -> None:
        super().__init__(
            "cannot use the pjrt device in a forked process: its threads stayed with the parent. "
            "Keep a data set's tensors on the CPU, or start workers with multiprocessing's 'spawn' "
            "(DataLoader(multiprocessing_context='spawn'))"
        )


class NoSuchDevice(EmbeddedError):
    """An index beyond the devices there are."""

    def __init__(self, index: object) -> None:
        super().__init__(
            f"pjrt:{index}: invalid device ordinal: one device is usable from a process, pjrt:0 "
            "(PyTorch's autograd knows one device of a backend that is written in Python); run a process a device"
        )


def refuse_index(index: int | None) -> None:
    """Refuse every device but the first.

    Raises:
        NoSuchDevice: another is asked for.
    """
    if index:
        raise NoSuchDevice(index)
