"""A step over shapes instead of values: what would be launched, for a platform that need not be here.

In a shadowed process a :class:`Hollow` stands for every array: programs are traced, and launching one notes it
and gives the shapes of its outputs. Nothing is compiled or computed, and a model takes no memory. There is no way
back: programs made so would outlive it.

    shadow = shadow_for("tpu")
    ...                       # steps, as ever
    shadow.launches           # program -> how it was launched, since `launches.clear()`
    program.stablehlo()       # what XLA for that platform would be given, plain and with names
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from backend.embedded import platform
from backend.embedded.errors import ValuesUnknown


class Hollow:
    """An array's shape and dtype. The shadow that made it knows how many bytes such arrays would hold."""

    __slots__ = ("_shadow", "dtype", "nbytes", "shape")

    def __init__(self, shadow: Shadow, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.nbytes = math.prod(shape) * self.dtype.itemsize
        self._shadow = shadow
        shadow.live_bytes += self.nbytes

    def __del__(self) -> None:
        self._shadow.live_bytes -= self.nbytes

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def copy(self) -> Hollow:
        """Another array of the same shape."""
        return Hollow(self._shadow, self.shape, self.dtype)

    def struct(self) -> jax.ShapeDtypeStruct:
        """The shape as jax traces with it."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype)


class Shadowed:
    """One program: traced, not compiled."""

    __slots__ = ("_platform", "_traced", "name")

    def __init__(self, traced: Any, name: str, platform: str) -> None:
        self._traced = traced
        self._platform = platform
        self.name = name

    def stablehlo(self) -> tuple[str, str]:
        """The program as its platform's compiler is given it, donations marked; and with the names of its ops."""
        lowered = self._traced.lower(lowering_platforms=(self._platform,))
        return str(lowered.as_text()), str(lowered.as_text(debug_info=True))

    @property
    def results(self) -> list[Any]:
        """The shapes and dtypes that a launch gives."""
        return jax.tree_util.tree_leaves(self._traced.out_info)


@dataclasses.dataclass(slots=True)
class Launches:
    """How a program was launched: ``count`` times; ``beside_bytes`` were held beside its arguments, at most."""

    count: int = 0
    beside_bytes: int = 0


class Shadow:
    """What a shadowed process has launched since ``launches`` was last cleared, and what its arrays would hold."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.launches: dict[Shadowed, Launches] = {}
        self.live_bytes = 0

    def launcher(self, jitted: Any, arguments: Sequence[Any], name: str) -> Callable[[list[Any]], Sequence[Any]]:
        """What stands for the launch of ``jitted`` on arrays like ``arguments``."""
        shapes = [a.struct() if isinstance(a, Hollow) else a for a in arguments]
        program = Shadowed(jitted.trace(*shapes), name, self.platform)
        results = [(a.shape, a.dtype) for a in program.results]

        def launch(arrays: list[Any]) -> Sequence[Any]:
            noted = self.launches.setdefault(program, Launches())
            own = {id(a): a.nbytes for a in arrays if isinstance(a, Hollow)}
            noted.count += 1
            noted.beside_bytes = max(noted.beside_bytes, self.live_bytes - sum(own.values()))
            return [Hollow(self, shape, dtype) for shape, dtype in results]

        return launch


_current: Shadow | None = None


def shadow_for(name: str) -> Shadow:
    """Shadow this process from now on, its programs made for platform ``name`` (``tpu``)."""
    global _current
    platform.compile_for(name)
    _current = Shadow(name)
    return _current


def current() -> Shadow | None:
    """What this process is shadowed by; None: it has values."""
    return _current


def hlo(stablehlo: str) -> str:
    """A StableHLO program as HLO, nothing optimised: a dot for each product that is asked for.

    Private to jaxlib as of 0.10.
    """
    from jax._src.lib import _jax

    made = _jax.mlir.mlir_module_to_xla_computation(stablehlo, use_tuple_args=False, return_tuple=False)
    return str(made.get_hlo_module().to_string())


def on_device(array: np.ndarray) -> jax.Array:
    """``array`` on the device, or its shape."""
    if _current is not None:
        return Hollow(_current, array.shape, array.dtype)  # type: ignore[return-value]
    return jax.device_put(array)


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> jax.Array:
    """Zeros on the device, or their shape."""
    if _current is not None:
        return Hollow(_current, shape, dtype)  # type: ignore[return-value]
    return jax.device_put(np.zeros(shape, dtype))


def on_host(array: jax.Array) -> np.ndarray:
    """The values of a device array; waits for them.

    Raises:
        ValuesUnknown: there are none in a shadowed process.
    """
    if isinstance(array, Hollow):
        raise ValuesUnknown
    return np.asarray(array)


def copied(array: jax.Array) -> jax.Array:
    """A copy of ``array`` on the device."""
    if isinstance(array, Hollow):
        return array.copy()  # type: ignore[return-value]
    return jax.numpy.array(array, copy=True)
