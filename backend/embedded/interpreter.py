"""An FX graph of ATen ops as one JAX function."""

from __future__ import annotations

import re
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
    return not isinstance(target, torch._ops.OperatorBase)


#: What a checkpointed draw becomes in a compiled graph: forward keeps the state, backward draws from it again.
_KEEP, _REPEAT = torch._prims.rng_prims.run_and_save_rng_state, torch._prims.rng_prims.run_with_rng_state
#: Bytes of a random state in a graph: what PyTorch reserves for it (its CPU generator's state).
_STATE_BYTES = torch.get_rng_state().numel()


def _state_of(key: jax.Array) -> jax.Array:
    """A key as a graph hands it from forward to backward: (n,) uint8, zeros after the key's own bytes."""
    data = jax.lax.bitcast_convert_type(jax.random.key_data(key), jnp.uint8).reshape(-1)
    return jnp.pad(data, (0, _STATE_BYTES - data.shape[0]))


def _key_in(state: jax.Array) -> jax.Array:
    """The inverse of :func:`_state_of`."""
    words = jax.random.key_data(jax.random.key(0)).shape[0]
    data = jax.lax.bitcast_convert_type(state[: 4 * words].reshape(words, 4), jnp.uint32)
    return jax.random.wrap_key_data(data)


def _scope(node: torch.fx.Node) -> str:
    """What XLA calls what a node becomes: the module of the model that asked for it, where that is known, and the node.

    Of a backward graph's node it is the module of the forward that is differentiated.
    """
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    paths = [str(entry[0]) for entry in stack.values() if entry]
    path = re.sub(r"^L\['?\w+'?\]\.?|[^\w.]+", "", paths[-1]) if paths else ""
    return f"{path}/{node.name}" if path else node.name


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
            elif node.target in (_KEEP, _REPEAT):
                self.lowerings[node] = lowering_of(node.args[node.target is _REPEAT])
            else:
                self.lowerings[node] = lowering_of(node.target)
        drawing = (n for n, lowering in self.lowerings.items() if lowering.random)
        self.random = any(node.target is not _REPEAT for node in drawing)

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
            if node.target is _REPEAT:
                values[node] = lowering.function(*args[2:], **kwargs, key=_key_in(args[0]))
                continue
            if lowering.random:
                assert key is not None, "a graph that draws is given a key"
                kwargs = {**kwargs, "key": jax.random.fold_in(key, drawn)}
                drawn += 1
            if node.target is _KEEP:
                values[node] = (_state_of(kwargs["key"]), lowering.function(*args[1:], **kwargs))
                continue
            with jax.named_scope(_scope(node)):
                result = lowering.function(*args, **kwargs)
            values[node] = _conformed(node.target, result, node.meta.get("val"), symbols)
        return output, {i: values[n] for i, n in self.written.items()}


def as_function(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """A graph without writes as ``function(*inputs, key=None)``."""
    interpreter = Interpreter(module)

    def function(*inputs: Any, key: jax.Array | None = None) -> Any:
        return interpreter(key, *inputs)[0]

    return function
