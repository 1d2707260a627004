"""Elementwise operators after any operator: the same result whether fused into its kernel, run separately or computed by the host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from cases import CASES, Case, values_in
from elementwise_epilogues import MAPS

Array = npt.NDArray[Any]
KINDS = {"contraction", "window", "reduce"}
AT_ONCE = 7  # elementwise ops per graph: no more with constants can be fused in sequence
JUMPS = (
    "Ceil",
    "Floor",
    "Round",
    "Sign",
    "Cast",
    "Where",
    "Mod",
    "ThresholdedRelu",
    "Shrink",
)  # discontinuous: rounding shows
# Kernels without an epilogue, and kernels with integer results.
NEVER = {"Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "QLinearConv", "QLinearMatMul"}


def is_small(case: Case) -> bool:
    return not case.large and all(one is None or one.array(np.random.default_rng(0)).size < 5000 for one in case.inputs)


def producers() -> dict[str, Case]:
    """Return one or two cases of each operator that supports an epilogue."""
    rows = {row.name: row for row in pumice.operators() if row.domain in ("ai.onnx", "pumice")}
    found: dict[str, Case] = {}
    for case in CASES:
        row = rows[case.op]
        follows = (row.skeleton in KINDS and case.op not in NEVER) or case.op == "BatchNormalization"
        is_float = case.has_floats and all(one is None or one.dtype != "float64" for one in case.inputs)
        if (
            follows
            and is_float
            and case.outputs == 1
            and is_small(case)
            and sum(c.op == case.op for c in found.values()) < 2
        ):
            found[str(case)] = case
    return found


PRODUCERS = producers()


def results(case: Case, maps: list[str], context: pumice.Context, fuse: bool) -> tuple[dict[str, Array], int]:
    """Return the results of each elementwise op after the case's operator, and how many were fused into its kernel."""
    graph = pumice.Graph("followed")
    values, given = values_in(graph, case, case.arrays())
    for name in maps:
        graph.output(name, MAPS[name](graph, graph.add(case.op, *values, **case.attributes)))
    program = graph.compile(context, fuse=fuse)
    return dict(program(given)), sum(row["fusion"] == "epilogue" for row in program.report())


def same(a: Array, b: Array) -> bool:
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | ((a != a) & (b != b))).all())


def apart(case: Case, maps: list[str], context: pumice.Context) -> dict[str, Array]:
    """Run each elementwise op in a second program, on the case's result as an input."""
    graph = pumice.Graph("before")
    values, given = values_in(graph, case, case.arrays())
    graph.output("y", graph.add(case.op, *values, **case.attributes))
    result = np.asarray(graph.compile(context)(given)["y"])
    assert result.dtype == np.float32, f"{case}: the result is {result.dtype}"
    graph = pumice.Graph("after")
    value = graph.input("y", "float32", list(result.shape))
    for name in maps:
        graph.output(name, MAPS[name](graph, value))
    return dict(graph.compile(context, fuse=False)({"y": result}))


def different(case: Case, maps: list[str], context: pumice.Context) -> list[str]:
    fused, count = results(case, maps, context, True)
    forms = {"unfused": results(case, maps, context, False)[0], "apart": apart(case, maps, context)}
    assert count > 0, f"{case}: nothing was fused"
    found = []
    for form, others in forms.items():
        for name in maps:
            given, other = fused[name].ravel(), others[name].ravel()
            if not same(given, other):
                at = int(np.flatnonzero(given.view(np.uint32) != other.view(np.uint32))[0])
                found.append(f"{case}, {name}: {given[at]!r} fused, {other[at]!r} {form}")
    return found


@pytest.mark.parametrize("producer", PRODUCERS)
def test_what_follows_a_result_is_applied_to_all_of_it(context: pumice.Context, producer: str) -> None:
    """Always Reciprocal, which reveals an expression inserted without parentheses, and four others by turns."""
    place = list(PRODUCERS).index(producer)
    names = list(MAPS)
    maps = ["Reciprocal", *(names[(place * 4 + k) % len(names)] for k in range(4))]
    assert not different(PRODUCERS[producer], list(dict.fromkeys(maps)), context)


@pytest.mark.slow
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_map_follows_every_result(context: pumice.Context, producer: str) -> None:
    names = list(MAPS)
    for first in range(0, len(names), AT_ONCE):
        assert not different(PRODUCERS[producer], names[first : first + AT_ONCE], context)


def of_pairs(pairs: list[tuple[str, str]], context: pumice.Context, fuse: bool, fold: bool = False) -> dict[str, Array]:
    """Apply the second op of each pair to the first. `fold`: x is a constant, so the host computes both."""
    x = np.concatenate([np.linspace(-3, 3, 25), [0.0, -0.0, 0.5, -0.5, 1.5, np.inf, -np.inf, np.nan]]).astype("float32")
    graph = pumice.Graph("pairs")
    value = graph.constant(x) if fold else graph.input("x", "float32", [x.size])
    for first, second in pairs:
        graph.output(f"{second} of {first}", MAPS[second](graph, MAPS[first](graph, value)))
    return dict(graph.compile(context, fuse=fuse)({} if fold else {"x": x}))


def wrong_pairs(pairs: list[tuple[str, str]], context: pumice.Context) -> list[str]:
    fused, plain = of_pairs(pairs, context, True), of_pairs(pairs, context, False)
    found = [f"{name}: {fused[name]} fused, {plain[name]} else" for name in plain if not same(fused[name], plain[name])]
    with np.errstate(all="ignore"):
        for name, folded in of_pairs(pairs, context, True, fold=True).items():
            scale = np.maximum(np.abs(plain[name]), 1.0)
            if name.startswith(JUMPS):
                continue
            # For a large tangent, the error is 1 + tan^2 times the rounding error of its argument.
            steep = 4e-6 * scale**2 if name.startswith("Tan of") else 0.0
            near = np.abs(folded - plain[name]) <= 2e-4 * scale + steep
            if not (near | (folded == plain[name]) | ((folded != folded) & (plain[name] != plain[name]))).all():
                found.append(f"{name}: {folded} by the host, {plain[name]} by the device")
    return found


def test_a_map_before_a_map_is_the_same_fused(context: pumice.Context) -> None:
    names = list(MAPS)
    pairs = [(names[k], names[(7 * k + 3) % len(names)]) for k in range(0, len(names), 2)]  # each map in one pair
    assert not wrong_pairs(pairs, context)


@pytest.mark.slow
@pytest.mark.parametrize("first", MAPS)
def test_every_map_before_every_map_is_the_same_fused(context: pumice.Context, first: str) -> None:
    assert not wrong_pairs([(first, second) for second in MAPS], context)


def test_a_pasted_source_has_unique_names() -> None:
    """Fused ops are inserted in a single shader file, in functions of named arguments."""
    shaders = Path(__file__).resolve().parents[2] / "shaders"
    pasted = {
        path.name
        for path in shaders.rglob("*")
        if path.suffix in {".comp", ".glsl"}
        for line in path.read_text().splitlines()
        if re.search(r"\bEPILOGUE\(", line) and not line.startswith(("#", "//"))
    }
    assert pasted == {"epilogue.glsl"}
