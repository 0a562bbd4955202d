"""Compile mode: the ``torch.compile`` backend. A graph becomes one executable over device buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch._dynamo import trace_rules
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

from backend.embedded.backend import DEVICE_NAME
from backend.embedded.buffer import buffer_of, is_dense, is_whole, launched, rebind, wrap, wrap_strided
from backend.embedded.cache import COUNTERS
from backend.embedded.decompose import decompositions
from backend.embedded.dtype import from_numpy, to_jax, to_numpy
from backend.embedded.errors import DevicesDiffer
from backend.embedded.executable import Executable
from backend.embedded.graphs import GraphCode, SavedGraph, kept_graphs
from backend.embedded.identity import key as disk_key
from backend.embedded.interpreter import Interpreter
from backend.embedded.layout import Layout, layout_of, memory_order, read, write
from backend.embedded.seed import GENERATOR, key_of

Compiled = Callable[..., list[Any]]


class GraphProgram:
    """One graph, compiled for each set of input layouts it is called with (one, as a rule).

    ``saved`` stands for the graph where it comes from disk: it is only read where a program has to be compiled.
    """

    def __init__(self, graph: torch.fx.GraphModule | SavedGraph, name: str) -> None:
        if isinstance(graph, SavedGraph):
            self._interpreter: Interpreter | None = None
            self.saved = graph
        else:
            self._interpreter = Interpreter(graph)
            self.saved = SavedGraph.of(self._interpreter)
        self.name = name
        self.executables: dict[tuple[Any, ...], Executable] = {}
        self.outputs: list[tuple[bool, tuple[int, ...], tuple[int, ...]] | None] = []
        COUNTERS.graphs += 1

    @property
    def interpreter(self) -> Interpreter:
        """The graph as a function."""
        if self._interpreter is None:
            self._interpreter = Interpreter(self.saved.module())
        return self._interpreter

    def __call__(self, *args: Any) -> list[Any]:
        """Run on device tensors (and plain numbers); writes go to their tensors, outputs come back."""
        arrays, signature = [], []
        for arg in args:
            if not isinstance(arg, torch.Tensor):
                signature.append((type(arg), arg))
            elif arg.device.type == DEVICE_NAME:
                array = buffer_of(arg).array
                arrays.append(array)
                layout = None if is_whole(arg, array) else layout_of(arg)
                signature.append((array.shape, array.dtype, layout))
            elif arg.device.type == "cpu" and arg.ndim == 0:
                # Optimizers keep their step count on the CPU; it comes along as a number would.
                arrays.append(jax.device_put(to_numpy(arg)))
                signature.append(((), arrays[-1].dtype, None))
            else:
                raise DevicesDiffer(f"the compiled graph {self.name}", arg.device)
        key = tuple(signature)
        COUNTERS.requests += 1
        executable = self.executables.get(key)
        if self.saved.random:
            arrays.insert(0, jax.device_put(GENERATOR.next_key()))
        if executable is None:
            executable = self.executables[key] = self._compile(signature, arrays)
        COUNTERS.launches += 1
        outputs = executable.launch(arrays)
        launched(outputs)
        results = iter(outputs)
        for index in self.saved.written:
            if args[index].device.type == DEVICE_NAME:
                rebind(args[index], next(results))
            else:
                args[index].copy_(from_numpy(np.asarray(next(results))))
        return [None if make is None else _made(next(results), *make) for make in self.outputs]

    def _compile(self, signature: Sequence[tuple[Any, ...]], arrays: Sequence[jax.Array]) -> Executable:
        saved = self.saved

        def traced(*given: jax.Array) -> list[jax.Array]:
            key, interpreter = None, self.interpreter
            if saved.random:
                key, given = key_of(given[0]), given[1:]
            held = iter(given)
            inputs, bases = [], []
            for entry in signature:
                if len(entry) == 2:
                    inputs.append(entry[1])
                    bases.append(None)
                    continue
                base, layout = next(held), entry[2]
                bases.append((base, layout))
                inputs.append(base if layout is None else read(base, layout))
            outputs, written = interpreter(key, *inputs)
            results = []
            for index, value in written.items():
                base, layout = bases[index]  # type: ignore[misc]
                results.append(value if layout is None else write(base, layout, value))
            return results + self._laid_out(outputs)

        def key() -> str:
            return disk_key("graph", self.name, saved.text(), list(signature), list(arrays))

        executable = Executable(traced, arrays, self.name, key, lambda: self.outputs)
        # Of a program from disk nothing was traced.
        self.outputs = [None if o is None else (o[0], tuple(o[1]), tuple(o[2])) for o in executable.notes]
        return executable

    def _laid_out(self, outputs: Sequence[Any]) -> list[jax.Array]:
        """The outputs in memory order under the strides that the graph promised, and how to wrap each."""
        node = next(n for n in self.interpreter.nodes if n.op == "output")
        promised = node.args[0]
        self.outputs, arrays = [], []
        for value, source in zip(outputs, promised, strict=True):
            if value is None:
                self.outputs.append(None)
                continue
            meta = source.meta["val"] if isinstance(source, torch.fx.Node) else None
            array = jnp.asarray(value)
            size, stride = array.shape, None
            if isinstance(meta, torch.Tensor):
                array = array.astype(to_jax(meta.dtype))
                size, stride = tuple(meta.shape), tuple(meta.stride())
            order = None
            if stride is not None and not is_dense(size, stride):
                order = memory_order(size, stride)
            if order is not None and stride is not None:
                array = array.transpose(order)
                self.outputs.append((True, size, stride))
            else:
                self.outputs.append((False, size, ()))
            arrays.append(array)
        return arrays


def _made(array: jax.Array, strided: bool, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    return wrap_strided(array, size, stride) if strided else wrap(array)


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


def register() -> None:
    """Make ``torch.compile(..., backend="pjrt")`` known, and keep Dynamo out of what runs below an op."""
    register_backend(backend, name=DEVICE_NAME)
    # In a frame that Dynamo resumes after a graph break, it looks into every Python function that is called:
    # also into a kernel that an op ends in.
    for module in ("backend.embedded", "jax", "jaxlib"):
        trace_rules.add(module)


__all__ = ["GraphProgram", "Layout", "backend", "register"]
