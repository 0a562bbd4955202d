"""From what a user asks for to cells: names checked, defaults filled in, lists multiplied out."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tpubench.errors import BadValue, TpubenchError, UnknownName
from tpubench.failure import one_line
from tpubench.spec import CACHES, Spec

if TYPE_CHECKING:
    from backend.protocol import Backend
    from workloads.protocol import Workload

T = TypeVar("T")

#: Every spelling of a dtype, and what torch calls it.
DTYPES = {
    "float32": "float32",
    "f32": "float32",
    "fp32": "float32",
    "float64": "float64",
    "f64": "float64",
    "fp64": "float64",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "f16": "float16",
    "fp16": "float16",
}

_REPAIR = "repair or uninstall the package that announces it"
#: What a column of whole numbers holds, and a seed of torch's.
_LARGEST = 2**63 - 1


class BrokenPlugin(TpubenchError):
    """A package announces a backend or workload that does not import."""


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``run`` and ``trace`` as they were typed: lists are separated by commas."""

    workload: str
    mode: str = "eager"
    backend: str = "embedded"
    size: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    phase: str = "train"
    batch: str | None = None
    seed: int = 0
    steps: int = 30
    cpu_fallback: bool = False
    cache: str = "cold"


def load_workload(name: str) -> Workload:
    """The workload of that name.

    Raises:
        UnknownName: nobody offers it.
        BrokenPlugin: it does not import.
    """
    from workloads import registry

    return _loaded("workload", name, registry.load, registry.UnknownWorkload, registry.BrokenWorkload)


def load_backend(name: str) -> Backend:
    """The backend of that name.

    Raises:
        UnknownName: nobody offers it.
        BrokenPlugin: it does not import, or fails when asked what it can do.
    """
    from backend import registry

    backend = _loaded("backend", name, registry.load, registry.UnknownBackend, registry.BrokenBackend)
    try:
        backend.modes(), backend.devices()
    except Exception as error:
        why = f"the backend '{name}' cannot say what it does: {type(error).__name__}: {one_line(error)}"
        raise BrokenPlugin(why, _REPAIR) from error
    return backend


def _loaded(kind: str, name: str, load: Callable[[str], T], unknown: type[LookupError], broken: type[ImportError]) -> T:
    """What ``load(name)`` gives; the two layers' errors become ours."""
    try:
        return load(name)
    except unknown as error:
        raise UnknownName(kind, name, error.offered) from None  # type: ignore[attr-defined]
    except broken as error:
        raise BrokenPlugin(str(error), _REPAIR) from error


def _listed(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise BadValue(option, text, "separate names with single commas")
    return list(dict.fromkeys(words))


def _chosen(option: str, kind: str, text: str, offered: Sequence[str]) -> list[str]:
    words = _listed(option, text)
    for word in words:
        if word not in offered:
            raise UnknownName(kind, word, offered)
    return words


def _batches(text: str | None, default: int) -> list[int]:
    if text is None:
        return [default]
    batches = []
    for word in _listed("--batch", text):
        # Python reads no integer of more than 4300 digits.
        if not word.isascii() or not word.isdigit() or len(word) > 19 or not 1 <= int(word) <= _LARGEST:
            raise BadValue("--batch", word, "give whole numbers of 1 or more, below 2**63")
        batches.append(int(word))
    return batches


def default_size(device: str, workload: Workload) -> str:
    """``small`` on a CPU, the published size elsewhere, where the workload has one."""
    return "full" if device != "cpu" and "full" in workload.sizes else "small"


def cells(asked: Asked) -> list[Spec]:
    """Every combination of what was asked for, in the order it was typed.

    What a known backend knows but cannot do here is a cell like any other: its row says why not.

    Raises:
        UnknownName: a workload, backend, mode, size, dtype, device or phase nobody offers.
        BadValue: a number that cannot be meant.
    """
    workload = load_workload(asked.workload)
    names = _listed("--backend", asked.backend)
    backends = [load_backend(name) for name in names]
    modes = _chosen("--mode", "mode", asked.mode, sorted({m for b in backends for m in b.modes()}))
    devices = _chosen("--device", "device", asked.device, sorted({d for b in backends for d in b.devices()}))
    phases = _chosen("--phase", "phase", asked.phase, workload.phases)
    caches = _chosen("--cache", "cache state", asked.cache, CACHES)
    dtypes = [DTYPES[d] for d in _chosen("--dtype", "dtype", asked.dtype, list(DTYPES))]
    if not 1 <= asked.steps <= _LARGEST:
        raise BadValue("--steps", asked.steps, "give 1 or more, below 2**63; 30 make a 95 % interval worth having")
    if not 0 <= asked.seed <= _LARGEST:
        raise BadValue("--seed", asked.seed, "give 0 or more, below 2**63")
    found = []
    for device in devices:
        default = default_size(device, workload)
        sizes = _chosen("--size", "size", default if asked.size is None else asked.size, list(workload.sizes))
        for size in sizes:
            batches = _batches(asked.batch, workload.sizes[size].batch)
            for phase, dtype, batch, name, mode, cache in itertools.product(
                phases, dtypes, batches, names, modes, caches
            ):
                found.append(
                    Spec(
                        workload=asked.workload,
                        size=size,
                        backend=name,
                        mode=mode,
                        batch=batch,
                        device=device,
                        dtype=dtype,
                        phase=phase,
                        seq_len=workload.sizes[size].seq_len,
                        cache=cache,
                        seed=asked.seed,
                        steps=asked.steps,
                        cpu_fallback=asked.cpu_fallback,
                    )
                )
    return found
