"""Topological sort of a model's nodes."""

from __future__ import annotations

import heapq

from ...base.errors import graph_error
from .recipe import NodeRecipe


def in_order(nodes: list[NodeRecipe], known: set[str]) -> list[NodeRecipe]:
    """Sort the nodes topologically, keeping the file's order if possible. Raise GraphError if there is a cycle."""
    makers = _makers(nodes, known)
    waiting: list[int] = []  # number of unmet dependencies of each node
    readers: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        needed = {_maker(makers, node, name) for name in node.reads if name and name not in known}
        waiting.append(len(needed))
        for maker in needed:
            readers.setdefault(maker, []).append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for reader in readers.get(index, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        raise _cycle(nodes, makers, {index for index, count in enumerate(waiting) if count})
    return order


def _makers(nodes: list[NodeRecipe], known: set[str]) -> dict[str, int]:
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in known:
                raise graph_error("node", node.name, f"makes '{name}', which is an input or an initializer")
            if name in makers:
                first = nodes[makers[name]].name
                raise graph_error("node", node.name, f"makes '{name}', which node '{first}' makes too")
            makers[name] = index
    return makers


def _maker(makers: dict[str, int], node: NodeRecipe, name: str) -> int:
    if name not in makers:
        expected = "the name of an input, an initializer or a node's output"
        raise graph_error("node", node.name, f"input: expected {expected}, given '{name}'")
    return makers[name]


def _cycle(nodes: list[NodeRecipe], makers: dict[str, int], stuck: set[int]) -> Exception:
    path = [min(stuck)]
    while path.count(path[-1]) == 1:
        path.append(next(m for name in nodes[path[-1]].reads if (m := makers.get(name, -1)) in stuck))
    names = [nodes[index].name for index in path[path.index(path[-1]) :]]
    return graph_error("node", names[0], f"needs its own result: {' <- '.join(names)}")


def needed(nodes: list[NodeRecipe], outputs: list[str]) -> list[NodeRecipe]:
    """Return the nodes on which some output depends. `nodes` must be topologically sorted."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(filter(None, node.outputs)):
            kept.append(node)
            wanted.update(node.reads)
    return kept[::-1]
