"""Elementary functions in one kernel: each gives what it gives alone, whatever comes before it and however many elements there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice

Array = np.ndarray[Any, Any]
SHADERS = Path(__file__).parents[1] / "shaders"
UNARY = [
    "Tan",
    "Softplus",
    "Atanh",
    "Erf",
    "Exp",
    "Log",
    "Sin",
    "Cos",
    "Tanh",
    "Sigmoid",
    "Asin",
    "Acos",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atan",
    "Gelu",
    "Mish",
    "Reciprocal",
    "Sqrt",
    "Elu",
    "Selu",
    "Softsign",
    "HardSwish",
    "Sign",
    "Floor",
    "Round",
    "Neg",
    "Abs",
    "Celu",
]
BINARY = ("Pow", "Div", "Mod", "Mul", "Add", "Max")
CHAINS = 12  # of a graph
SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, -1e30], "float32")
TOLERANCE = 1e-3  # relative: a chain may enlarge the last bits of its first function


def model_of(random: np.random.Generator, size: int) -> tuple[onnx.ModelProto, list[str]]:
    nodes, texts, ends = [], [], []
    for chain in range(CHAINS):
        value, text = "x", "x"
        for k in range(random.integers(2, 6)):
            name = f"v{chain}_{k}"
            if random.random() < 0.2:
                op = str(random.choice(BINARY))
                nodes.append(helper.make_node(op, [value, "x"], [name], **({"fmod": 1} if op == "Mod" else {})))
                text = f"{op}({text}, x)"
            else:
                op = str(random.choice(UNARY))
                nodes.append(helper.make_node(op, [value], [name]))
                text = f"{op}({text})"
            value = name
        texts.append(text)
        ends.append(value)
    of = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in ["x", *ends]]
    graph = helper.make_graph(nodes, "chains", of[:1], of[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), texts


def check(context: pumice.Context, seed: int) -> None:
    """Sizes that are no multiples of four: the last elements have a path of their own through the kernel."""
    random = np.random.default_rng(seed)
    x = np.concatenate([random.uniform(-3, 3, random.integers(1, 60)).astype("float32"), SPECIAL])
    model, texts = model_of(random, len(x))
    with np.errstate(all="ignore"):
        fused, alone = (pumice.load(model, context, fuse=fuse, progress=False)(x) for fuse in (True, False))
        assert isinstance(fused, tuple)
        assert isinstance(alone, tuple)
        for text, a, b in zip(texts, fused, alone, strict=True):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= TOLERANCE * np.abs(b))
            wrong = np.flatnonzero(~same)
            assert wrong.size == 0, f"seed {seed}: {text}: x = {x[wrong[0]]}: {a[wrong[0]]}, alone {b[wrong[0]]}"


@pytest.mark.parametrize("seed", range(3))
def test_chains_of_functions_give_what_each_gives_alone(context: pumice.Context, seed: int) -> None:
    check(context, seed)


@pytest.mark.slow
def test_five_thousand_chains_of_functions_give_what_each_gives_alone(context: pumice.Context) -> None:
    for seed in range(10, 10 + 5000 // CHAINS):
        check(context, seed)


FUNCTION = re.compile(r"^(?:float|int|uint|bool|double|int64_t|uint64_t) (pm_\w+)\([^)]*\) \{\n(.*?)^\}", re.M | re.S)


@pytest.mark.parametrize("file", ["math.glsl", "math_exact.glsl"])
def test_functions_of_floats_end_at_their_end_alone(file: str) -> None:
    """Behind an early return lavapipe has been seen to mix up results; those of doubles are hardly ever fused."""
    text = (SHADERS / "include" / file).read_text()
    early = [name for name, body in FUNCTION.findall(text) if body.count("return") > 1]
    assert early == []
    in_choices = [
        line.strip()
        for line in text.splitlines()
        if re.search(r"\?[^;)]*\bpm_(exp|log|log1p|expm1|scale|copysign|sin_core|cos_core|pow_core)\(", line)
    ]
    assert in_choices == []
