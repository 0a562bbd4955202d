"""The part of a graph that lives on the CPU: an optimizer's step count and what follows from it.

PyTorch's optimizers keep their step count as a 0-d CPU tensor and compute bias corrections from it.
That part runs on the host before the launch, so that nothing is read back and nothing waits. It is
computed in float64: the eager optimizer computes it with Python floats.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

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
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        for node in graph.nodes:
            if node.op == "placeholder":
                inside = _on_cpu(node)
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
        self.handed = [n for n in self.nodes if any(u not in self.nodes and u.op != "output" for u in n.users)]
        self.handed = [n for n in self.handed if isinstance(n.meta.get("val"), torch.Tensor)]

    def run(self, args: Sequence[Any], numbers: Iterable[tuple[Node, Any]] = ()) -> dict[Node, Any]:
        """Every node's value; ``args`` are the graph's. CPU tensors that the graph writes are written."""
        values: dict[Node, Any] = dict(numbers)
        for node, index in self.placeholders.items():
            values[node] = _wide(args[index])
        with torch.no_grad():
            for node in self.nodes:
                if node in values or node.target is torch.ops.aten.copy_.default:
                    continue
                given, named = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: values[n])
                values[node] = node.target(*given, **named)  # type: ignore[operator]
            for index, source in self.written.items():
                args[index].copy_(values[source])
        return values
