"""The part of a graph that lives on the CPU: an optimizer's step count and what follows from it.

PyTorch's optimizers keep their step count as a 0-d CPU tensor and compute bias corrections from it.
That part runs on the host before the launch, so that nothing is read back and nothing waits. It is
computed in float64: the eager optimizer computes it with Python floats.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import torch

from backend.embedded.dtype import to_numpy

Node = torch.fx.Node


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _tensors(entry)


def _on_cpu(node: Node) -> bool:
    """Whether the node gives tensors, all of them on the CPU."""
    found = list(_tensors(node.meta.get("val")))
    return bool(found) and all(t.device.type == "cpu" for t in found)


def _wide(value: torch.Tensor) -> torch.Tensor:
    """0-d float32 and narrower as float64."""
    return value.detach().double() if value.ndim == 0 and value.is_floating_point() else value.detach()


def _draws(node: Node) -> bool:
    """Whether ``node`` draws from the CPU's generator."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _leaves(node: Node) -> bool:
    """Whether the host has to compute ``node``: the graph returns it, or it draws."""
    return _draws(node) or any(user.op == "output" for user in node.users)


class HostPart:
    """The nodes of ``graph`` that depend on CPU tensors only.

    Attributes:
        nodes: the placeholders and the ops, in the graph's order.
        handed: those whose value the rest of the graph uses.
        written: placeholder index to the node whose value its CPU tensor gets.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.nodes: dict[Node, None] = {}
        self.written: dict[int, Node] = {}
        self.placeholders: dict[Node, int] = {}
        self.constants: dict[Node, Any] = {}
        self.packs: list[list[Node]] = []
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        for node in graph.nodes:
            if node.op == "placeholder":
                inside = _on_cpu(node)
            elif node.op == "get_attr":
                self.constants[node] = getattr(graph.owning_module, node.target, None)
                inside = isinstance(self.constants[node], torch.Tensor) and self.constants[node].device.type == "cpu"
            else:
                inputs = node.all_input_nodes
                is_op = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
                is_item = node.target is operator.getitem
                inside = (is_op or is_item) and all(n in self.nodes for n in inputs) and _on_cpu(node)
            if inside:
                self.nodes[node] = None
        for i, node in enumerate(placeholders):
            if node in self.nodes:
                self.placeholders[node] = i
        for node in self.nodes:
            if node.target is torch.ops.aten.copy_.default:
                self.written[self.placeholders[node.args[0]]] = node.args[1]
        if not self.placeholders and not any(_leaves(n) for n in self.nodes):
            self.nodes = {}  # constants on their way to the device: the program holds them
        self.handed = [n for n in self.nodes if any(u not in self.nodes and u.op != "output" for u in n.users)]
        # A list is handed over by its entries.
        self.handed = [n for n in self.handed if not isinstance(n.meta.get("val"), list | tuple)]

    def run(self, args: Sequence[Any]) -> dict[Node, Any]:
        """Every node's value; ``args`` are the graph's. CPU tensors that the graph writes are written."""
        values: dict[Node, Any] = {}
        seen: dict[Any, Any] = {}  # every parameter has the same step count: what follows is computed once
        for node, index in self.placeholders.items():
            value = _wide(args[index])
            values[node] = value if value.ndim else seen.setdefault((value.dtype, value.item()), value)
        for node, constant in self.constants.items():
            values[node] = _wide(constant) if isinstance(constant, torch.Tensor) else constant
        with torch.no_grad():
            for node in self.nodes:
                if node in values or node.target is torch.ops.aten.copy_.default:
                    continue
                values[node] = self._compute(node, values, seen)
            for index, source in self.written.items():
                args[index].copy_(values[source])
        return values

    def _compute(self, node: Node, values: dict[Node, Any], seen: dict[Any, Any]) -> Any:
        given = [values[a] if isinstance(a, Node) else a for a in node.args]
        plain = not node.kwargs and all(isinstance(a, torch.Tensor | int | float) for a in given) and not _draws(node)
        if not plain:
            inner, named = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: values[n])
            return node.target(*inner, **named)  # type: ignore[operator]
        # 1, 1.0 and True are equal: their types tell them apart.
        key = (node.target, *(id(a) if isinstance(a, torch.Tensor) else (type(a), a) for a in given))
        if key not in seen:
            seen[key] = node.target(*given)  # type: ignore[operator]
        return seen[key]

    def hand_over(self, values: dict[Node, Any]) -> list[np.ndarray]:
        """What :attr:`handed` are worth, as few arrays: the 0-d ones of a dtype lie in one vector."""
        packs: dict[Any, list[Node]] = {}
        for node in self.handed:
            packs.setdefault(node if values[node].ndim else values[node].dtype, []).append(node)
        self.packs = list(packs.values())
        return [to_numpy(torch.stack([values[n] for n in pack])) for pack in self.packs]

    def received(self, arrays: Sequence[jax.Array]) -> dict[Node, jax.Array]:
        """The inverse of :meth:`hand_over`, inside the program."""
        return {n: array[i] for pack, array in zip(self.packs, arrays, strict=True) for i, n in enumerate(pack)}
