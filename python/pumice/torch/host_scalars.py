"""Find the nodes of a captured graph that compute only scalars (sizes, ints and floats). The host evaluates these nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def is_float_argument(node: Any) -> bool:
    """Return whether an argument is a Python float, which torch passes as a one-element tensor and reads with `item`."""
    argument = node.meta.get("grapharg")
    return bool(getattr(argument, "pass_arg_as_tensor", False)) and all(map(_is_item_call, node.users))


def _is_item_call(node: Any) -> bool:
    return bool(node.op == "call_method" and node.target == "item")


def find_host_scalar_nodes(graph: Any) -> set[Any]:
    """Return the nodes that compute numbers from sizes, ints and floats only, including `torch.scalar_tensor`, which wraps a float."""
    numbers: set[Any] = set()
    host_only: set[Any] = set()
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder":
            if not isinstance(value, torch.Tensor) or is_float_argument(node):
                numbers.add(node)
        elif node.op in ("call_function", "call_method") and node.all_input_nodes:
            is_number = not isinstance(value, torch.Tensor) or node.target is torch.scalar_tensor
            if is_number and numbers.issuperset(node.all_input_nodes):
                numbers.add(node)
                host_only.add(node)
    return host_only


def find_used_nodes(graph: Any) -> set[Any]:
    """Return the nodes on which tensor operators depend; results do not count as uses."""
    on_host = find_host_scalar_nodes(graph)
    used: set[Any] = set()
    for node in reversed(graph.graph.nodes):
        if node.op != "output" and (node not in on_host or node in used):
            used.update(node.all_input_nodes)
    return used


def make_host_scalar_function(graph: Any, kinds: Sequence[Any]) -> Callable[..., tuple[Any, ...]] | None:
    """Return a function that computes the results of kind "host" from the graph's arguments; None if there are none."""
    if "host" not in kinds:
        return None
    host_only_nodes = find_host_scalar_nodes(graph)
    copied_graph = torch.fx.Graph()
    copied_nodes: dict[Any, Any] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            copied_nodes[node] = copied_graph.placeholder(node.name)
        elif node in host_only_nodes:
            copied_nodes[node] = copied_graph.node_copy(node, copied_nodes.__getitem__)
        elif node.op == "output":
            host_results = [
                host_result for host_result, kind in zip(node.args[0], kinds, strict=True) if kind == "host"
            ]
            copied_graph.output(tuple(copied_nodes[host_result] for host_result in host_results))
    function: Callable[..., tuple[Any, ...]] = torch.fx.GraphModule(torch.nn.Module(), copied_graph)
    return function


def make_scalar_key(value: Any) -> Any:
    """Return a dictionary key for a number. Floats are keyed by their bits, because -0.0 == 0.0 and NaN != NaN."""
    if isinstance(value, torch.Tensor):
        return float(value.item()).hex()
    return value
