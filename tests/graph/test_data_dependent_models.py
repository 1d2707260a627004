"""Models split where the device computes shapes: random ones, and ONNX's own tests of such operators."""

from __future__ import annotations

import importlib
import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pumice
from onnx_models import check_standard, model, node, value
from sync_point_models import check

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class RandomModel:
    """Vectors that are sliced, concatenated and computed from each other, with sizes counted from their elements."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.vectors, self.numbers = ["x"], ["one"]
        for _ in range(self.random.randrange(4, 14)):
            self.vectors.append(self.vector(self.random.choice(self.vectors)))
        constants = {
            name: np.array([number]) for name, number in (("flat", -1), ("zero", 0), ("one", 1), ("far", 1 << 31))
        }
        constants |= {"none": np.array(0), "step": np.array(1), "half": np.array(0.3, np.float32)}
        outputs = list(dict.fromkeys([*self.vectors[-3:], self.numbers[-1]]))
        outputs = [name for name in outputs if name not in ("x", "one")]
        sizes = self.random.choice([["N"], [9]])
        self.sizes = [9] if sizes == [9] else [9, 0, 70]
        self.proto = model(self.nodes, [value("x", sizes)], outputs, constants, opset=18)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(node(op, list(inputs), [output], **attributes))
        return output

    def number(self) -> str:
        if self.random.random() < 0.5:
            return self.random.choice(self.numbers)
        source = self.random.choice(self.vectors)
        made = [
            lambda: self.add("Reshape", self.add("Size", source), "flat"),
            lambda: self.add("ReduceSum", self.add("Cast", self.add("Greater", source, "half"), to=INT64), "zero"),
            lambda: self.add("Shape", self.add("NonZero", self.add("Relu", source)), start=1),
            lambda: self.add("Add", self.number(), "one"),
        ]
        self.numbers.append(self.random.choice(made)())
        return self.numbers[-1]

    def vector(self, source: str) -> str:
        def found() -> str:
            return self.add("Reshape", self.add("NonZero", self.add("Greater", source, "half")), "flat")

        def counted() -> str:
            return self.add("Range", "none", self.add("Squeeze", self.number(), "zero"), "step")

        made = [
            lambda: self.add("Gather", source, found()),
            lambda: self.add("Compress", source, self.add("Less", source, "half"), axis=0),
            lambda: self.add("Slice", source, "zero", self.number()),
            lambda: self.add("Slice", source, self.number(), "far"),
            lambda: self.add("Cast", counted(), to=FLOAT),
            lambda: self.add("Expand", "half", self.number()),
            lambda: self.add("Concat", source, self.random.choice(self.vectors), axis=0),
            lambda: self.add("Mul", source, "half"),
            lambda: self.add("Reshape", self.add("Unsqueeze", self.add("Neg", source), "zero"), "flat"),
        ]
        return self.random.choice(made)()


@pytest.mark.parametrize("seed", range(40))
def test_models_made_at_random(context: pumice.Context, seed: int) -> None:
    made = RandomModel(seed)
    arrays = np.random.default_rng(seed)
    check(context, made.proto, *({"x": arrays.standard_normal(size).astype(np.float32)} for size in made.sizes))


def standard_cases() -> list[Any]:
    from onnx.backend.test.case import node as cases

    names = ("nonzero", "compress", "range", "reshape", "expand", "tile", "constantofshape", "slice", "gathernd")
    for name in names:
        importlib.import_module(f"{cases.__name__}.{'rangeop' if name == 'range' else name}")
    starts = tuple(f"test_{name}" for name in names)
    return [pytest.param(case, id=case.name) for case in cases._NodeTestCases if case.name.startswith(starts)]


@pytest.mark.parametrize("case", standard_cases())
def test_the_tests_of_the_standard(context: pumice.Context, case: Any) -> None:
    check_standard(case, context)
