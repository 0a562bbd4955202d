"""An FX graph of ATen ops as one JAX function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch

from backend.embedded.dtype import to_jax, to_numpy
from backend.embedded.errors import LoweringMismatch, OpNotLowered
from backend.embedded.lower import Lowering, find
from backend.embedded.symbols import Symbols


def lowering_of(op: Any) -> Lowering:
    """The lowering of ``op``.

    Raises:
        OpNotLowered: it has none.
    """
    lowering = find(op)
    if lowering is None:
        raise OpNotLowered(op)
    return lowering


def _conformed(target: Any, result: Any, meta: Any, symbols: Symbols) -> Any:
    """Every array in the dtype the graph says, refused in another shape."""
    if isinstance(meta, torch.Tensor):
        array = jnp.asarray(result)
        shape = symbols.numbers(meta.shape)
        if 0 in shape:
            # Nothing is saved there (a batch norm's statistics in evaluation).
            return jnp.zeros(shape, to_jax(meta.dtype))
        if array.shape != shape:
            raise LoweringMismatch(target, array.shape, shape)
        return array.astype(to_jax(meta.dtype))
    if isinstance(meta, list | tuple) and isinstance(result, list | tuple):
        return [_conformed(target, r, m, symbols) for r, m in zip(result, meta, strict=False)]
    return result


def _constant(module: torch.fx.GraphModule, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return jnp.asarray(to_numpy(value.cpu())) if isinstance(value, torch.Tensor) else value


def _is_arithmetic(target: Any) -> bool:
    """Whether a node is Python over sizes and lists rather than an op over tensors."""
    return not isinstance(target, torch._ops.OpOverload)


class Interpreter:
    """``module`` (ops of the table, ``getitem``, constants) as a function of its placeholders.

    Ops that write (``copy_`` at a graph's end, onto a placeholder) return through :attr:`written`:
    placeholder index to the node whose value it gets. Nodes in ``known`` are not computed: their
    values are given.
    """

    def __init__(self, module: torch.fx.GraphModule, known: Collection[torch.fx.Node] = ()) -> None:
        self.module = module
        self.known = known
        self.nodes = list(module.graph.nodes)
        self.placeholders = [n for n in self.nodes if n.op == "placeholder"]
        self.written: dict[int, torch.fx.Node] = {}
        self.lowerings: dict[torch.fx.Node, Lowering] = {}
        index = {n: i for i, n in enumerate(self.placeholders)}
        for node in self.nodes:
            if node in known or node.op != "call_function" or _is_arithmetic(node.target):
                continue
            if node.target is torch.ops.aten.copy_.default:
                self.written[index[node.args[0]]] = node
            else:
                self.lowerings[node] = lowering_of(node.target)
        self.random = any(lowering.random for lowering in self.lowerings.values())

    def __call__(
        self, key: jax.Array | None, *inputs: Any, given: Mapping[torch.fx.Node, Any] | None = None
    ) -> tuple[Any, dict[int, jax.Array]]:
        """``(outputs in the graph's own nesting, what was written by placeholder index)``.

        An output that is in ``known`` and not in ``given`` comes back as None.
        """
        values: dict[torch.fx.Node, Any] = dict(zip(self.placeholders, inputs, strict=True))
        values.update(given or {})
        symbols = Symbols(self.placeholders, [getattr(i, "shape", i) for i in inputs])
        drawn = 0
        output: Any = None

        def look(argument: Any) -> Any:
            return torch.fx.node.map_arg(argument, lambda n: values[n])

        for node in self.nodes:
            if node.op == "placeholder" or node in self.known:
                values.setdefault(node, None)
                continue
            if node.op == "get_attr":
                values[node] = _constant(self.module, node.target)
                continue
            args, kwargs = look(node.args), look(dict(node.kwargs))
            if node.op == "output":
                output = args[0]
                continue
            if _is_arithmetic(node.target):
                values[node] = node.target(*args, **kwargs)
                continue
            if node.target is torch.ops.aten.copy_.default:
                source = jnp.broadcast_to(args[1], args[0].shape).astype(args[0].dtype)
                values[node] = source
                continue
            lowering = self.lowerings[node]
            if lowering.random:
                assert key is not None, "a graph that draws is given a key"
                kwargs = {**kwargs, "key": jax.random.fold_in(key, drawn)}
                drawn += 1
            with jax.named_scope(node.name):
                result = lowering.function(*args, **kwargs)
            values[node] = _conformed(node.target, result, node.meta.get("val"), symbols)
        return output, {i: values[n] for i, n in self.written.items()}


def as_function(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """A graph without writes as ``function(*inputs, key=None)``."""
    interpreter = Interpreter(module)

    def function(*inputs: Any, key: jax.Array | None = None) -> Any:
        return interpreter(key, *inputs)[0]

    return function
