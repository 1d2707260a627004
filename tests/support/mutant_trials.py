"""Mutants of the kernels of small models, killed or not by a validation.

As a program it takes tasks as lines of JSON and answers each with a line, as layer_faults does: see `answered`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pumice
from fault_layer import Layer
from fault_models import SAMPLES, Sample
from layer_faults import LayerSubject, change_of, named
from layer_models import LAYER_MODELS
from pumice.base.host_arrays import same_bits
from spirv_mutants import Mutant, mutants

MODELS: dict[str, Callable[[], Sample]] = {**SAMPLES, **LAYER_MODELS}


def modules(subject: LayerSubject) -> dict[int, list[str]]:
    """The nodes that each shader module of the plain program runs for.

    Casts run for every tensor of the program without fusion, which a validation reads first, so that any node may be accused of them.
    """
    nodes = [node.name for node in subject.sample.proto.graph.node]
    found: dict[int, list[str]] = {}
    for place in subject.places:
        known = found.setdefault(place.dispatch["module"], [])
        known += nodes if place.is_cast else place.nodes
    return {module: sorted(set(names)) for module, names in found.items()}


def tried(subject: LayerSubject, module: int, nodes: list[str], mutant: Mutant) -> dict[str, Any]:
    """What comes of one mutant: whether a bit of the results changes, and what a validation says."""
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
    if all(map(same_bits, subject.clean, results)):
        return {}
    record: dict[str, Any] = {"effect": True, "change": change_of(subject.clean, results), "seen": subject.layer.count}
    report = pumice.validate(model, [tuple(subject.inputs)], context=context)
    accused = named(report)
    return record | {
        "state": report.state,
        "named": accused,
        "at": bool(set(accused) & set(nodes)),
        "summary": report.summary[:300],
    }


def answered(tasks: Iterator[str]) -> Iterator[dict[str, Any]]:
    """What comes of each task: model and precision give its modules; with module, count, seed and number, one mutant of these is tried."""
    layer = Layer()
    subject, key = None, None
    by_module: dict[tuple[int, int, int], list[Mutant]] = {}
    for line in tasks:
        task = json.loads(line)
        if key != (task["model"], task["precision"]):
            key = task["model"], task["precision"]
            subject, by_module = LayerSubject(layer, MODELS[key[0]](), key[1]), {}
        assert subject is not None
        nodes = modules(subject)
        if "module" not in task:
            yield {"modules": list(nodes)}
            continue
        drawn = task["module"], task["count"], task["seed"]
        if drawn not in by_module:
            by_module[drawn] = mutants(layer.code(drawn[0]), *drawn[1:])
        found = by_module[drawn]
        if task["number"] >= len(found):
            yield {"ended": True}
        else:
            yield tried(subject, drawn[0], nodes[drawn[0]], found[task["number"]])


if __name__ == "__main__":
    for answer in answered(sys.stdin):
        print(json.dumps(answer), flush=True)
