"""Compile mode: the ``torch.compile`` backend. A graph becomes one executable over device buffers.

Sizes: a graph that Dynamo made over symbolic sizes is compiled once for each set of sizes it is called
with; XLA knows no other kind of program. Such a compile counts as a miss in the cache's counters.

The memory of what a graph writes (parameters, optimizer state, running statistics) is handed to XLA
for the new values; see :mod:`backend.embedded.donation`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

from backend.embedded.backend import DEVICE_NAME
from backend.embedded.buffer import buffer_of, is_dense, is_whole, launched, rebind, wrap, wrap_strided
from backend.embedded.cache import COUNTERS
from backend.embedded.decompose import decompositions
from backend.embedded.donation import own
from backend.embedded.dtype import from_numpy, to_jax
from backend.embedded.errors import DevicesDiffer
from backend.embedded.executable import Executable
from backend.embedded.graphs import GraphCode, SavedGraph, kept_graphs
from backend.embedded.host import HostPart
from backend.embedded.identity import key as disk_key
from backend.embedded.interpreter import Interpreter
from backend.embedded.layout import layout_of, memory_order, read, write
from backend.embedded.seed import GENERATOR, key_of
from backend.embedded.shadow import on_host
from backend.embedded.symbols import Symbols
from backend.embedded.untraced import untraced


@dataclasses.dataclass(slots=True)
class _Compiled:
    """One executable of a graph: what it takes over, and how each output is delivered.

    ``outputs`` has an entry an output: what makes the tensor of its array, a number as it is, or None.
    """

    executable: Executable
    donated: tuple[int, ...]
    outputs: list[Any]

    @classmethod
    def of(cls, executable: Executable, donated: tuple[int, ...]) -> _Compiled:
        """With what the executable's maker, of this process or another, noted of each output."""
        return cls(executable, donated, [_maker(*note) for note in executable.notes])


class GraphProgram:
    """One graph, compiled for each set of input layouts it is called with (one, as a rule)."""

    def __init__(self, graph: torch.fx.GraphModule | SavedGraph, name: str) -> None:
        module = graph.module() if isinstance(graph, SavedGraph) else graph
        self.host = HostPart(module.graph)
        self.interpreter = Interpreter(module, self.host.nodes)
        self.saved = graph if isinstance(graph, SavedGraph) else SavedGraph.of(self.interpreter)
        self.name = name
        self.compiled: dict[tuple[Any, ...], _Compiled] = {}
        output = next(n for n in self.interpreter.nodes if n.op == "output")
        self.promised: list[Any] = list(output.args[0])
        COUNTERS.graphs += 1

    def __call__(self, *args: Any) -> list[Any]:
        """Run on device tensors (and plain numbers); writes go to their tensors, outputs come back.

        Raises:
            DevicesDiffer: a tensor is on neither this device nor, as the graph was told, the CPU.
        """
        on_host = self.host.run(args) if self.host.nodes else {}
        arrays, signature = [], []
        places: dict[int, int] = {}
        for index, (arg, node) in enumerate(zip(args, self.interpreter.placeholders, strict=True)):
            if node in self.host.nodes:
                signature.append(None)
            elif not isinstance(arg, torch.Tensor):
                signature.append((type(arg), arg))
            elif arg.device.type == DEVICE_NAME:
                places[index] = len(arrays)
                arrays.append(buffer_of(arg).array)
                layout = None if is_whole(arg, arrays[-1]) else layout_of(arg)
                signature.append((arrays[-1].shape, arrays[-1].dtype, layout))
            else:
                raise DevicesDiffer(f"the compiled graph {self.name}", arg.device)
        for array in self.host.hand_over(on_host):
            arrays.append(jax.device_put(array))
            signature.append((array.shape, array.dtype))
        if self.interpreter.random:
            arrays.append(jax.device_put(GENERATOR.next_key()))
        key = tuple(signature)
        COUNTERS.requests += 1
        compiled = self.compiled.get(key)
        if compiled is None:
            compiled = self.compiled[key] = self._compile(signature, arrays, places)
        outputs: Sequence[jax.Array] = ()
        if self.interpreter.lowerings or arrays:
            launched(())  # it holds the latest outputs, which may be what this launch takes over
            own(arrays, compiled.donated)
            COUNTERS.launches += 1
            outputs = compiled.executable.launch(arrays)
            launched(outputs)
        results = iter(outputs)
        for index in self.interpreter.written:
            rebind(args[index], next(results))
        delivered = []
        for make, source in zip(compiled.outputs, self.promised, strict=True):
            if make is _HOST:
                value = on_host[source]
                delivered.append(
                    value.to(source.meta["val"].dtype, copy=True) if isinstance(value, torch.Tensor) else value
                )
            else:
                delivered.append(make(next(results)) if callable(make) else make)
        return delivered

    def _compile(self, signature: Sequence[Any], arrays: Sequence[jax.Array], places: dict[int, int]) -> _Compiled:
        interpreter, host = self.interpreter, self.host
        own_arguments = len(interpreter.placeholders)
        notes: list[Any] = []

        def traced(*given: jax.Array) -> list[jax.Array]:
            held = list(given)
            key = key_of(held.pop()) if interpreter.random else None
            inputs: list[Any] = []
            for index, entry in enumerate(signature[:own_arguments]):
                if index not in places:
                    inputs.append(None if entry is None else entry[1])
                else:
                    base, layout = held[places[index]], entry[2]
                    inputs.append(base if layout is None else read(base, layout))
            handed = host.received(held[len(places) :])
            values, written = interpreter(key, *inputs, given=handed)
            results = []
            for index, value in written.items():
                base, layout = held[places[index]], signature[index][2]
                results.append(value if layout is None else write(base, layout, value))
            symbols = Symbols(interpreter.placeholders, [getattr(i, "shape", i) for i in inputs])
            notes.clear()
            for value, source in zip(values, self.promised, strict=True):
                array, note = _laid_out(value, source, symbols, source in host.nodes)
                notes.append(note)
                if array is not None:
                    results.append(array)
            return results

        donated = tuple(places[index] for index in interpreter.written)

        def key() -> str:
            return disk_key("graph", self.name, self.saved.text(), list(signature), list(arrays), donated)

        return _Compiled.of(Executable(traced, arrays, self.name, key, lambda: list(notes), donated), donated)


_HOST = object()


def _maker(kind: str, *rest: Any) -> Any:
    """How an output is delivered, from what :func:`_laid_out` noted."""
    if kind == "strided":
        size, stride = map(tuple, rest)
        return lambda array: wrap_strided(array, size, stride)
    return {"wrap": wrap, "cpu": _to_host, "host": _HOST}.get(kind) or rest[0]


def _laid_out(value: Any, source: Any, symbols: Symbols, on_host: bool) -> tuple[jax.Array | None, list[Any]]:
    """An output in memory order under the strides that the graph promised, and how to deliver it, JSON-ready."""
    if on_host:
        return None, ["host"]
    meta = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
    if not isinstance(meta, torch.Tensor):
        return None, ["value", value]  # None, or a size that backward will ask for
    array = jnp.asarray(value).astype(to_jax(meta.dtype))
    if meta.device.type == "cpu":
        return array, ["cpu"]
    size, stride = symbols.numbers(meta.shape), symbols.numbers(meta.stride())
    order = None if is_dense(size, stride) else memory_order(size, stride)
    if order is None:
        return array, ["wrap"]
    return array.transpose(order), ["strided", list(size), list(stride)]


def _to_host(array: jax.Array) -> torch.Tensor:
    """A ``.cpu()`` inside a graph: waits, as it does anywhere."""
    return from_numpy(on_host(array))


def _compiler(kind: str) -> SerializableAOTDispatchCompiler:
    def compile_graph(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> GraphCode:
        return GraphCode.of(GraphProgram(module, f"{kind}_{COUNTERS.graphs}"))

    return SerializableAOTDispatchCompiler(GraphCode, compile_graph)


def backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Any:
    """The ``torch.compile`` backend ``pjrt``: forward and backward each one executable."""
    with kept_graphs():
        return aot_autograd(
            fw_compiler=_compiler("forward"),
            bw_compiler=_compiler("backward"),
            inference_compiler=_compiler("graph"),
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )(module, example_inputs)


def _leave_steps_on_the_cpu() -> None:
    """Dynamo moves an optimizer's step count to the device where it traces a step again; there it is float32.

    Eager PyTorch works the corrections out of it in Python's float64: left on the CPU it is known for a number.
    """
    original = OptimizerVariable.move_step_if_cpu

    def move(self: OptimizerVariable) -> None:
        if not any(p.device.type == DEVICE_NAME for group in self.value.param_groups for p in group["params"]):
            original(self)

    OptimizerVariable.move_step_if_cpu = move  # type: ignore[method-assign]


def register() -> None:
    """Make ``torch.compile(..., backend="pjrt")`` known, and keep Dynamo out of what runs below an op."""
    _leave_steps_on_the_cpu()
    register_backend(backend, name=DEVICE_NAME)
    untraced(GraphCode.__call__)


__all__ = ["GraphProgram", "backend", "register"]
