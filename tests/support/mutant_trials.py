"""Mutate the kernels of small models, and check whether validation kills the mutants.

As a program it reads tasks as lines of JSON and answers each with a line, like layer_faults: see `answered`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pumice
from fault_layer import Layer
from fault_models import SAMPLES, Sample
from layer_faults import LayerSubject, change_of, named
from layer_models import LAYER_MODELS
from pumice.base.host_arrays import bitwise_equal
from spirv_mutants import Mutant, Words, mutants

MODELS: dict[str, Callable[[], Sample]] = {**SAMPLES, **LAYER_MODELS}


def modules(subject: LayerSubject) -> dict[int, list[str]]:
    """Return the nodes that each shader module of the unfused program runs for.

    Casts run for every tensor of the unfused program, which a validation reads first, so any node may be blamed for them.
    """
    nodes = [node.name for node in subject.sample.proto.graph.node]
    found: dict[int, list[str]] = {}
    for place in subject.places:
        known = found.setdefault(place.dispatch["module"], [])
        known += nodes if place.is_cast else place.nodes
    return {module: sorted(set(names)) for module, names in found.items()}


def tried(subject: LayerSubject, module: int, nodes: list[str], mutant: Mutant) -> dict[str, Any]:
    """Return the outcome of one mutant: whether a bit of the results changes, and the verdict of a validation."""
    record: dict[str, Any] = {"kind": mutant.kind, "text": mutant.text, "nodes": nodes, "effect": False}
    subject.layer.replace(module, mutant.words)
    try:
        with pumice.Context() as context:
            record |= _outcome(subject, context, nodes)
    except pumice.Error as error:
        record |= {"effect": True, "state": "raised", "at": True, "summary": str(error)[:300]}
    finally:
        subject.layer.clear()
    return record


def _outcome(subject: LayerSubject, context: pumice.Context, nodes: list[str]) -> dict[str, Any]:
    model = pumice.Model(subject.source, context=context, precision=subject.precision)
    results = subject.results(model)
    if all(map(bitwise_equal, subject.clean, results)):
        return {}
    record: dict[str, Any] = {"effect": True, "change": change_of(subject.clean, results), "seen": subject.layer.count}
    report = pumice.validate(model, subject.cases, context=context)
    accused = named(report)
    return record | {
        "state": report.state,
        "named": accused,
        "at": bool(set(accused) & set(nodes)),
        "summary": report.summary[:300],
    }


class Drawn:
    """The mutants of a module, generated lazily."""

    def __init__(self, module: Words, seed: int) -> None:
        self._left = mutants(module, seed)
        self._made: list[Mutant] = []

    def get(self, number: int) -> Mutant | None:
        """Return the mutant with that number; None if there are fewer."""
        self._made += islice(self._left, number + 1 - len(self._made)) if number >= len(self._made) else ()
        return self._made[number] if number < len(self._made) else None


def answered(tasks: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Answer each task: model and precision return the modules; with module, seed and number, one mutant is tried."""
    layer = Layer()
    subject, key = None, None
    drawn: dict[tuple[int, int], Drawn] = {}
    for line in tasks:
        task = json.loads(line)
        if subject is None or key != (task["model"], task["precision"]):
            key = task["model"], task["precision"]
            subject, drawn = LayerSubject(layer, MODELS[key[0]](), key[1]), {}
        nodes = modules(subject)
        if "module" not in task:
            yield {"modules": list(nodes)}
            continue
        module, seed = task["module"], task["seed"]
        if (module, seed) not in drawn:
            drawn[module, seed] = Drawn(layer.code(module), seed)
        mutant = drawn[module, seed].get(task["number"])
        yield {"ended": True} if mutant is None else tried(subject, module, nodes[module], mutant)


if __name__ == "__main__":
    for answer in answered(sys.stdin):
        print(json.dumps(answer), flush=True)
