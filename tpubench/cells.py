"""From what a user asks for to cells: names checked, defaults filled in, lists multiplied out."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from tpubench.errors import BadValue, TpubenchError, UnknownName
from tpubench.failure import one_line
from tpubench.spec import CACHES, DATA, Spec

if TYPE_CHECKING:
    from backend.protocol import Backend
    from workloads.protocol import Shaped, Size, Workload

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
    "bfloat16-autocast": "bfloat16-autocast",
    "bf16-autocast": "bfloat16-autocast",
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
    phase: str | None = None
    batch: str | None = None
    seed: int = 0
    steps: int = 30
    cpu_fallback: bool = False
    cache: str = "cold"
    seq_len: str | None = None
    shape: str | None = None
    optimizer: str | None = None
    data: str = "device"


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


def _counts(option: str, text: str) -> list[int]:
    counts = []
    for word in _listed(option, text):
        # Python reads no integer of more than 4300 digits.
        if not word.isascii() or not word.isdigit() or len(word) > 19 or not 1 <= int(word) <= _LARGEST:
            raise BadValue(option, word, "give whole numbers of 1 or more, below 2**63")
        counts.append(int(word))
    return counts


def default_size(device: str, workload: Workload) -> str:
    """``small`` on a CPU, the published size elsewhere."""
    return "small" if device == "cpu" else workload.published


def size_of(workload: Workload, name: str) -> Size:
    """What the workload says of a size that :func:`cells` has let through: a named one, or a shape written out."""
    return workload.sizes[name] if name in workload.sizes else cast("Shaped", workload).shaped(name)


def _sizes(asked: Asked, workload: Workload, device: str) -> list[str]:
    if asked.shape is None:
        default = default_size(device, workload)
        return _chosen("--size", "size", default if asked.size is None else asked.size, list(workload.sizes))
    from workloads.protocol import Shaped

    if asked.size is not None:
        raise BadValue("--shape", asked.shape, "give --size or --shape, not both")
    if not isinstance(workload, Shaped):
        sizes = ", ".join(workload.sizes)
        raise BadValue("--shape", asked.shape, f"{asked.workload} has named sizes only: --size {sizes}")
    shapes = []
    for word in _listed("--shape", asked.shape):
        try:
            workload.shaped(word)
        except ValueError as error:
            raise BadValue(
                "--shape", word, f"{one_line(error)}: {asked.workload} takes {workload.shape_form}"
            ) from None
        shapes.append(word)
    return shapes


def _phases(asked: Asked, workload: Workload) -> list[str]:
    if asked.phase is None:
        return [workload.phases[0]]
    words = _listed("--phase", asked.phase)
    if "prefill" in workload.phases:  # what inference of a decoder begins with
        words = ["prefill" if word == "infer" else word for word in words]
    return _chosen("--phase", "phase", ",".join(words), workload.phases)


def _lengths(asked: Asked, size: Size) -> Sequence[int | None]:
    if asked.seq_len is None:
        return [size.seq_len]
    if size.seq_len is None:
        raise BadValue("--seq-len", asked.seq_len, f"{asked.workload} works on no sequences: leave it out")
    lengths = _counts("--seq-len", asked.seq_len)
    for length in lengths:
        if size.longest is not None and length > size.longest:
            raise BadValue("--seq-len", length, f"this size of {asked.workload} knows {size.longest} positions")
    return lengths


def _optimizers(asked: Asked, workload: Workload, phases: Sequence[str]) -> dict[str, list[str]]:
    """The optimizers of each phase; only training has any."""
    from workloads.optimizers import NAMES

    if asked.optimizer is None:
        chosen = [workload.optimizer]
    elif "train" in phases:
        chosen = _chosen("--optimizer", "optimizer", asked.optimizer, NAMES)
    else:
        raise BadValue("--optimizer", asked.optimizer, f"phase {', '.join(phases)} has none: leave it out")
    return {phase: chosen if phase == "train" else [""] for phase in phases}


def cells(asked: Asked) -> list[Spec]:
    """Every combination of what was asked for, in the order it was typed.

    What a known backend knows but cannot do here is a cell like any other: its row says why not.

    Raises:
        UnknownName: a workload, backend, mode, size, dtype, device, phase, optimizer or place for data nobody offers.
        BadValue: a number that cannot be meant, a shape that cannot be read, an option that means nothing here.
    """
    workload = load_workload(asked.workload)
    names = _listed("--backend", asked.backend)
    backends = [load_backend(name) for name in names]
    modes = _chosen("--mode", "mode", asked.mode, sorted({m for b in backends for m in b.modes()}))
    devices = _chosen("--device", "device", asked.device, sorted({d for b in backends for d in b.devices()}))
    phases = _phases(asked, workload)
    optimizers = _optimizers(asked, workload, phases)
    data = _chosen("--data", "place for data", asked.data, DATA)
    caches = _chosen("--cache", "cache state", asked.cache, CACHES)
    dtypes = [DTYPES[d] for d in _chosen("--dtype", "dtype", asked.dtype, list(DTYPES))]
    if not 1 <= asked.steps <= _LARGEST:
        raise BadValue("--steps", asked.steps, "give 1 or more, below 2**63; 30 make a 95 % interval worth having")
    if not 0 <= asked.seed <= _LARGEST:
        raise BadValue("--seed", asked.seed, "give 0 or more, below 2**63")
    found = []
    for device in devices:
        for size in _sizes(asked, workload, device):
            one = size_of(workload, size)
            batches = [one.batch] if asked.batch is None else _counts("--batch", asked.batch)
            lengths = _lengths(asked, one)
            for phase, dtype, batch, length, place, name, mode, cache in itertools.product(
                phases, dtypes, batches, lengths, data, names, modes, caches
            ):
                found += [
                    Spec(
                        workload=asked.workload,
                        size=size,
                        backend=name,
                        mode=mode,
                        batch=batch,
                        device=device,
                        dtype=dtype,
                        phase=phase,
                        optimizer=optimizer,
                        data=place,
                        seq_len=length,
                        cache=cache,
                        seed=asked.seed,
                        steps=asked.steps,
                        cpu_fallback=asked.cpu_fallback,
                    )
                    for optimizer in optimizers[phase]
                ]
    return found
