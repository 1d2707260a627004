"""Faults of single dispatches: candidates of a model, and whether validation finds them.

As a program it reads tasks from standard input as lines of JSON and answers each with a line: see `answered`. The process needs the fault
layer, so start it with fault_layer.environment().
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import pumice
from fault_layer import Layer, LayerFault
from fault_models import Sample
from layer_models import LAYER_MODELS
from pumice.base.host_arrays import bitwise_equal

PRECISIONS = ("fp32", "fp16")
# Nodes of the control-flow model's dispatch lists, in submission order; it has no plan that names them.
FLOW_OWNERS = (["before"], ["loop"], ["loop"], ["loop"], ["loop"], ["sum", "greater"], ["if"], ["softmax"])
# Bits to flip in weights: signs, exponents and leading significand bits of fp32, fp16 and int8. Lower bits are within the rounding errors
# of a sum.
WEIGHT_BITS = (22, 23, 29, 30, 31)
WORDS = (0, 0x3F800000, 0x3C003C00, 0x7FC07E00)  # 0, ones, NaN
SEED = 11


class Candidate(NamedTuple):
    """A fault, the dispatch list that has it, by signature, and the nodes of which one must be named.

    word: buffer and offset of a memory word that changes permanently; the fault itself is then none.
    """

    fault: LayerFault
    signatures: list[int]
    nodes: list[str]
    word: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        return "weights for good" if self.word else self.fault.kind


class Place(NamedTuple):
    """A dispatch of the unfused program: its list, its index in it, its nodes, and its bindings by number."""

    signatures: list[int]
    index: int
    dispatch: dict[str, Any]
    nodes: list[str]
    weights: list[int]
    written: int
    is_cast: bool = False


class LayerSubject:
    """A model loaded under the layer, with its clean results and dispatches."""

    def __init__(self, layer: Layer, sample: Sample, precision: str) -> None:
        self.layer = layer
        self.sample = sample
        self.precision = precision
        self.source = sample.proto.SerializeToString()
        self.model = pumice.Model(self.source, precision=precision)
        self.inputs = list(sample.inputs)
        self.cases = [sample.inputs, *sample.more]
        layer.clear()
        self.clean = self.results()  # the first run creates kernels and weights
        layer.begin_log()
        self.results()
        self.lists = layer.log()
        report = self.validated()
        assert report.ok, f"{precision}, without a fault: {report.summary}"
        self._members = [list(row.members) or [row.node] for row in report.kernels]
        self._outputs = {row.output: list(row.members) for row in report.kernels}

    def results(self, model: pumice.Model | None = None) -> list[Any]:
        """Return copies of one run's outputs, for another load of the model if given."""
        result = (model or self.model)(*self.inputs)
        return [np.array(item) for item in (result if isinstance(result, tuple | list) else [result])]

    def validated(self, repeat: int = 0) -> Any:
        return pumice.validate(self.model, self.cases, repeat=repeat)

    @property
    def places(self) -> list[Place]:
        """Return every dispatch of the unfused program."""
        if self.model.program.has_control_flow:
            assert len(self.lists) == len(FLOW_OWNERS), [len(command_list) for command_list in self.lists]
            return [
                Place([d["signature"] for d in dispatches], i, d, owners, [], len(d["bindings"]) - 1)
                for dispatches, owners in zip(self.lists, FLOW_OWNERS, strict=True)
                for i, d in enumerate(dispatches)
            ]
        (dispatches,) = self.lists
        plan = self.model.program.plan([value.shape for value in self.inputs])
        signatures = [d["signature"] for d in dispatches]
        return [self._place(signatures, i, *pair) for i, pair in enumerate(zip(dispatches, plan, strict=True))]

    def _place(self, signatures: list[int], index: int, dispatch: dict[str, Any], step: dict[str, Any]) -> Place:
        operands = step["operands"]
        weights = [i for i, item in enumerate(operands) if item["place"] == "persistent" and item["read"]]
        written = [i for i, operand in enumerate(operands) if operand["write"]]
        is_cast = step["label"].startswith("cast '")
        return Place(signatures, index, dispatch, self._nodes(step["label"]), weights, written[0], is_cast)

    def _nodes(self, label: str) -> list[str]:
        """Return the nodes of a step: the members of kernels with its label, or the producer or readers of a tensor that it casts."""
        if cast := re.fullmatch(r"cast '(.*)' to \w+", label):
            readers = [node.name for node in self.sample.proto.graph.node if cast[1] in node.input]
            return self._outputs.get(cast[1]) or [name for reader in readers for name in self._nodes(reader)]
        return sorted({name for members in self._members if label in members for name in members} | {label})


def candidates(subject: LayerSubject) -> Iterator[Candidate]:
    """Yield faults of every kind for each dispatch, identical in every process."""
    random = np.random.default_rng(SEED)
    has_plan = not subject.model.program.has_control_flow
    places = subject.places
    for place in places:
        target, index = place.signatures, place.index
        if not has_plan and len(target) > 2:  # observed loops run in other lists with the same dispatches
            signature = place.dispatch["signature"]
            target, index = [signature], 0
            owners = sorted({node for other in places if signature in other.signatures for node in other.nodes})
            place = place._replace(nodes=owners)
        for fault in _faults(place, index, random, has_plan):
            nodes = _racing(places, place.index, fault.exact) if fault.kind == "no barrier" else place.nodes
            yield Candidate(fault, target, nodes)
        for binding in place.weights:
            buffer, offset, size = place.dispatch["bindings"][binding]
            word, bit = int(random.integers(size // 4)), int(random.choice(WEIGHT_BITS))
            changed = LayerFault("none", index, mask=1 << bit)
            yield Candidate(changed, target, place.nodes, (buffer, offset + 4 * word))


def _racing(places: list[Place], index: int, exact: bool) -> list[str]:
    """Return the nodes between the barriers before and after a removed barrier: all of them race without it.

    In an observed program the copies of earlier results race too.
    """
    begin, end = index - 1, index + 1
    for _ in range(1 if exact else 2):
        while begin > 0 and not places[begin].dispatch["barrier"]:
            begin -= 1
        begin = begin if exact else max(begin - 1, 0)
    while end < len(places) and not places[end].dispatch["barrier"]:
        end += 1
    return sorted({name for place in places[begin:end] for name in place.nodes})


def _faults(place: Place, index: int, random: np.random.Generator, has_plan: bool) -> Iterator[LayerFault]:
    dispatch = place.dispatch
    groups = int(np.prod(dispatch["groups"]))
    yield LayerFault("drop", index)
    if groups > 1 and not dispatch["indirect"]:
        yield from (LayerFault("halve", index, a=axis) for axis in range(3) if dispatch["groups"][axis] > 1)
        yield from (LayerFault("skip group", index, a=group) for group in sorted({0, groups // 2, groups - 1}))
    if dispatch["push"]:
        for word in random.choice(dispatch["push"], min(4, dispatch["push"]), replace=False):
            yield LayerFault("push", index, a=int(word), mask=1 << int(random.integers(6)))
    yield LayerFault("other set", index)
    if has_plan and dispatch["barrier"]:
        yield LayerFault("no barrier", index, exact=True)
        yield LayerFault("no barrier", index)
    for binding in place.weights:
        size = dispatch["bindings"][binding][2]
        for bit in random.choice(WEIGHT_BITS, 2, replace=False):
            yield LayerFault("weights", index, binding, int(random.integers(max(size // 4, 1))), 1 << int(bit))
    size = dispatch["bindings"][place.written][2]
    for word in random.choice(WORDS, 2, replace=False):
        yield LayerFault("overwrite", index, place.written, int(random.integers(max(size // 4, 1))), int(word))


def named(report: Any) -> list[str]:
    """Return the nodes that a report blames first: members of a wrong kernel, else a wrong node, else nodes named by race findings."""
    for row in report.kernels:
        if row.verdict == "wrong":
            return [row.node, *row.members]
    for row in report.rows:
        if row.verdict == "wrong" and row.op != "output":
            return [row.node]
    return [
        name
        for finding in report.findings
        if finding.kind in RACES and finding.node
        for name in finding.node.split(", ")
    ]


def change_of(clean: list[Any], results: list[Any]) -> float:
    """Return the largest difference relative to the result's largest clean value; infinite for other shapes, NaN and infinity."""
    found = 0.0
    for item, other in zip(clean, results, strict=True):
        if item.shape != other.shape:
            return float("inf")
        with np.errstate(all="ignore"):
            apart = np.abs(item.astype(np.float64) - other.astype(np.float64)).max(initial=0)
            found = max(found, float(apart / np.abs(item.astype(np.float64)).max(initial=0)))
    return found if np.isfinite(found) else float("inf")


RACES = ("race", "not deterministic", "fused program", "bisected")


def tried(
    subject: LayerSubject, number: int, candidate: Candidate, repeat: int, shares: list[tuple[int, int]]
) -> dict[str, Any]:
    """Return the outcome of one candidate: whether it has an effect, and the verdict of a validation for each (period, phase).

    lasts: whether results stay wrong after its removal, because it has overwritten weights.
    """
    layer, fault = subject.layer, candidate.fault
    record = {"number": number, "kind": candidate.kind, "fault": list(fault), "nodes": candidate.nodes, "effect": False}
    try:
        _inject(layer, candidate, 1, 0)
        results = subject.results()
        record["effect"] = not all(map(bitwise_equal, subject.clean, results))
        record["change"] = change_of(subject.clean, results)
        record["validations"] = []
        if record["effect"]:
            for period, phase in shares:
                _inject(layer, candidate, 0 if candidate.word else period, phase)
                record["validations"].append(
                    _validation(subject, candidate, repeat) | {"period": period, "phase": phase}
                )
    finally:
        if candidate.word:
            layer.flip(*candidate.word, fault.mask)
        layer.clear()
    record["lasts"] = not all(map(bitwise_equal, subject.clean, subject.results()))
    return record


def _inject(layer: Layer, candidate: Candidate, period: int, phase: int) -> None:
    """Inject the fault; a period of 0 leaves a memory word unchanged."""
    if not candidate.word:
        layer.inject(candidate.fault._replace(period=period, phase=phase), candidate.signatures)
    elif period:
        layer.flip(*candidate.word, candidate.fault.mask)


def _validation(subject: LayerSubject, candidate: Candidate, repeat: int) -> dict[str, Any]:
    begin = time.perf_counter()
    try:
        report = subject.validated(repeat)
    except pumice.Error as error:
        return {"state": "raised", "named": [], "seen": subject.layer.count, "summary": str(error)[:300], "at": False}
    accused = named(report)
    return {
        "state": report.state,
        "named": accused,
        "at": bool(set(accused) & set(candidate.nodes)),
        "seen": 1 if candidate.word else subject.layer.count,
        "seconds": round(time.perf_counter() - begin, 3),
        "summary": report.summary[:300],
        "findings": sorted({finding.kind for finding in report.findings}),
    }


def answered(tasks: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Answer each task, a line of JSON: model, precision; number, repeat and shares, or none of these for a count."""
    layer = Layer()
    subject, key, found = None, None, []
    for line in tasks:
        task = json.loads(line)
        if subject is None or key != (task["model"], task["precision"]):
            key = task["model"], task["precision"]
            try:
                subject = LayerSubject(layer, LAYER_MODELS[key[0]](), key[1])
            except pumice.UnsupportedError as error:
                yield {"refused": str(error)}
                continue
            found = list(candidates(subject))
        if "number" not in task:
            yield {"kinds": [match.kind for match in found]}
            continue
        record = tried(subject, task["number"], found[task["number"]], task["repeat"], task["shares"])
        if record["lasts"]:
            subject = None
        yield record


if __name__ == "__main__":
    for answer in answered(sys.stdin):
        print(json.dumps(answer), flush=True)
