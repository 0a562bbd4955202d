"""What a compiled program depends on, as text from which its key on disk is made.

A key that holds too much costs a compile; one that holds too little gives a wrong result. So what is not known
to be written out in full has no key at all: :class:`NoKey`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import operator
import os
import platform as host
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from backend.embedded.dtype import to_numpy
from backend.embedded.platform import target as platform_target


class NoKey(Exception):
    """A program depends on something that is not known to be written out in full."""


def _source() -> str:
    """A digest of every module of this backend: a change of a lowering must never find an old program."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


#: Taken at import, when the modules themselves are read: a file edited later is not what runs.
SOURCE = _source()

#: Packages whose functions the versions below tell of.
_LIBRARIES = {"jax", "jaxlib", "numpy", "torch"}
#: Environment variables that XLA and the TPU's compiler read.
_FLAGS = ("XLA_", "LIBTPU_", "TF_XLA_", "NPROC", "OMP_NUM_THREADS")
#: Settings of jax that change no program.
_NEUTRAL = (
    "jax_compilation_cache", "jax_persistent_cache", "jax_enable_compilation_cache", "jax_raise_persistent_cache",
    "jax_debug_log_modules", "jax_logging_level", "jax_log_compiles", "jax_explain_cache_misses", "jax_dump_ir",
    "jax_pprint", "jax_traceback", "jax_tracer_error", "jax_check_tracer_leaks", "jax_compiler_detailed_logging",
)  # fmt: skip


@functools.cache
def surroundings() -> str:
    """Versions, platform, processor and flags: what does not change in a process."""
    import importlib.metadata

    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "none"

    devices = jax.devices()
    client = devices[0].client
    parts = [
        SOURCE,
        f"python {sys.version_info[:2]} {sys.byteorder}",
        *(f"{package} {version(package)}" for package in ("torch", "jax", "jaxlib", "libtpu", "numpy")),
        f"torch {torch.version.git_version}",
        f"{client.platform} {client.platform_version} {devices[0].device_kind} {len(devices)}",
        f"{host.system()} {host.machine()} {_processor()} {_processors()}",
        *(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(_FLAGS)),
    ]
    return "\n".join(parts)


def _processors() -> int:
    """How many processors the process may use: XLA splits loops by it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    """The processor's model and features: code for one that has more must not be run on this one."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return host.processor()
    kept = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    return "; ".join(line for line in text.splitlines() if line.startswith(kept))


def _settings() -> str:
    """What a user may change while a process runs."""
    known = jax.config.values
    settings = {name: value for name, value in known.items() if not name.startswith(_NEUTRAL)}
    return "\n".join(
        (
            platform_target(),
            str(torch.get_default_dtype()),
            torch.get_float32_matmul_precision(),
            str(torch.are_deterministic_algorithms_enabled()),
            repr(sorted((name, repr(value)) for name, value in settings.items())),
            repr([_context(value) for value in _trace_context()]),
        )
    )


def _trace_context() -> tuple[Any, ...]:
    """jax's settings of this thread: a ``with jax.default_matmul_precision(...)`` is in no global."""
    from jax._src import config

    return tuple(config.trace_context())


def _context(value: Any) -> str:
    text = repr(value)
    if " object at 0x" not in text:
        return text
    if all(hasattr(value, name) for name in ("axis_sizes", "spmd_axis_names")):
        return f"{value.axis_sizes} {value.spmd_axis_names}"
    raise NoKey(text)


def key(kind: str, *parts: Any) -> str:
    """The name on disk of the program that ``parts`` define, 64 hex digits.

    Raises:
        NoKey: something in ``parts``, or set in jax, is not known to be written out in full.
    """
    return digest(kind, surroundings(), _settings(), *map(text_of, parts))


def digest(*texts: str) -> str:
    """64 hex digits for ``texts``."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def known(*functions: Callable[..., Any]) -> None:
    """Refuse a function that somebody else may change.

    Raises:
        NoKey: one is not of this backend or of a library whose version is in the key.
    """
    for function in functions:
        module = getattr(function, "__module__", None) or "none"
        if module.partition(".")[0] not in _LIBRARIES and not module.startswith("backend.embedded."):
            raise NoKey(f"{function} is of module {module}")


def text_of(value: Any) -> str:
    """``value`` in full: two values that a program could tell apart have two texts.

    Arrays and meta tensors stand for their shape, dtype, layout and device; their values are inputs.

    Raises:
        NoKey: a value of a kind that is not known here.
    """
    if value is None or isinstance(value, bool | str):
        return repr(value)
    if type(value) is int:
        return f"i{value}"
    if type(value) is float:
        return f"f{value.hex()}"
    if type(value) is complex:
        return f"c{value.real.hex()},{value.imag.hex()}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(text_of, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{text_of(k)}:{text_of(v)}' for k, v in value.items())}}}"
    if isinstance(value, jax.Array):
        places = sorted(d.id for d in value.devices())
        return f"array({value.shape},{value.dtype},{value.weak_type},{value.format.layout},{places})"
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"array({value.shape},{value.dtype},{value.weak_type},{value.sharding})"
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, torch._ops.OpOverload):
        return f"{value}{value._schema}"
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format | np.dtype):
        return str(value)
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("backend.embedded"):
        fields = (getattr(value, field.name) for field in dataclasses.fields(value))
        return f"{type(value).__qualname__}({','.join(map(text_of, fields))})"
    raise NoKey(f"{type(value)} in a signature")


def graph_text(module: torch.fx.GraphModule) -> str:
    """A graph of ops in full: nodes by position, constants by their bytes.

    Raises:
        NoKey: a node holds something that is not known here.
    """
    place = {node: i for i, node in enumerate(module.graph.nodes)}

    def argument(value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return f"%{place[value]}"
        if isinstance(value, list | tuple):
            return f"[{','.join(map(argument, value))}]"
        return text_of(value)

    lines = []
    for node in module.graph.nodes:
        target = node.target
        if node.op == "get_attr":
            what = _constant(functools.reduce(getattr, target.split("."), module))
        elif node.op == "call_function":
            what = "getitem" if target is operator.getitem else text_of(target)
        else:
            what = ""  # a placeholder's name is its place
        named = ",".join(f"{name}={argument(value)}" for name, value in node.kwargs.items())
        lines.append(f"{node.op} {node.name} {what} {argument(node.args)} {named} {text_of(node.meta.get('val'))}")
    return "\n".join(lines)


def _constant(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return text_of(value)
    array = to_numpy(value.cpu())
    return f"constant({array.shape},{array.dtype},{hashlib.sha256(array.tobytes()).hexdigest()})"


def _tensor(value: torch.Tensor) -> str:
    """A tensor that stands for its metadata.

    Raises:
        NoKey: it holds values, or a size that is a symbol.
    """
    if value.device.type != "meta" and not isinstance(value, torch._subclasses.FakeTensor):
        raise NoKey("a tensor with values")
    shape, stride = tuple(value.shape), tuple(value.stride())
    if not all(type(n) is int for n in (*shape, *stride)):
        raise NoKey("a size that is a symbol")
    return f"tensor({shape},{stride},{value.dtype},{value.device})"
