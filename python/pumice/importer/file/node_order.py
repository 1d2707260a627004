"""Topological sort of a model's nodes."""

from __future__ import annotations

import heapq

from ...base.errors import graph_error
from .graph_recipe import NodeRecipe


def sort_topologically(nodes: list[NodeRecipe], available: set[str]) -> list[NodeRecipe]:
    """Sort the nodes topologically, keeping the file's order where possible. Raise GraphError for a cycle.

    available: values that need no producer.
    """
    producers = _find_producers(nodes, available)
    num_pending: list[int] = []  # number of unmet dependencies of each node
    consumers: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        dependencies = {_get_producer(producers, node, name) for name in node.reads if name and name not in available}
        num_pending.append(len(dependencies))
        for producer in dependencies:
            consumers.setdefault(producer, []).append(index)
    ready = [index for index, count in enumerate(num_pending) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for consumer in consumers.get(index, ()):
            num_pending[consumer] -= 1
            if num_pending[consumer] == 0:
                heapq.heappush(ready, consumer)
    if len(order) < len(nodes):
        raise _make_cycle_error(nodes, producers, {index for index, count in enumerate(num_pending) if count})
    return order


def _find_producers(nodes: list[NodeRecipe], available: set[str]) -> dict[str, int]:
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in available:
                raise graph_error("node", node.name, f"produces '{name}', which is an input or an initializer")
            if name in producers:
                first = nodes[producers[name]].name
                raise graph_error("node", node.name, f"produces '{name}', which node '{first}' also produces")
            producers[name] = index
    return producers


def _get_producer(producers: dict[str, int], node: NodeRecipe, name: str) -> int:
    if name not in producers:
        expected = "the name of an input, an initializer or a node's output"
        raise graph_error("node", node.name, f"input: expected {expected}, given '{name}'")
    return producers[name]


def _make_cycle_error(nodes: list[NodeRecipe], producers: dict[str, int], unresolved: set[int]) -> Exception:
    path = [min(unresolved)]
    while path.count(path[-1]) == 1:
        path.append(next(m for name in nodes[path[-1]].reads if (m := producers.get(name, -1)) in unresolved))
    names = [nodes[index].name for index in path[path.index(path[-1]) :]]
    return graph_error("node", names[0], f"depends on its own result: {' <- '.join(names)}")


def keep_required_nodes(nodes: list[NodeRecipe], outputs: list[str]) -> list[NodeRecipe]:
    """Return the nodes on which some output depends. `nodes` must be topologically sorted."""
    required = set(outputs)
    required_nodes = []
    for node in reversed(nodes):
        if required.intersection(filter(None, node.outputs)):
            required_nodes.append(node)
            required.update(node.reads)
    return required_nodes[::-1]
