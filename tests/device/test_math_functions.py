"""Math functions fused in one kernel: each returns what it returns alone, in any order and for any number of elements."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import pumice
from features import need_features

Array = np.ndarray[Any, Any]
SHADERS = Path(__file__).parents[2] / "shaders"
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
CHAINS = 12  # chains of functions per graph
SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, -1e30])
TOLERANCE = 1e-3  # relative: a chain may amplify rounding errors of its first function


def model_of(random: np.random.Generator, size: int, dtype: str) -> tuple[onnx.ModelProto, list[str]]:
    nodes, texts, ends = [], [], []
    for chain in range(CHAINS):
        value, text = "x", "x"
        for k in range(random.integers(2, 6)):
            name = f"v{chain}_{k}"
            if random.random() < 0.2:
                op = str(random.choice([one for one in BINARY if one != "Pow" or dtype == "float32"]))
                nodes.append(helper.make_node(op, [value, "x"], [name], **({"fmod": 1} if op == "Mod" else {})))
                text = f"{op}({text}, x)"
            else:
                op = str(random.choice(UNARY))
                nodes.append(helper.make_node(op, [value], [name]))
                text = f"{op}({text})"
            value = name
        texts.append(text)
        ends.append(value)
    of = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [size])
        for name in ["x", *ends]
    ]
    graph = helper.make_graph(nodes, "chains", of[:1], of[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), texts


def check(context: pumice.Context, seed: int, dtype: str = "float32") -> None:
    """Use sizes that are not multiples of four: the last elements take a separate path through the kernel."""
    random = np.random.default_rng(seed)
    x = np.concatenate([random.uniform(-3, 3, random.integers(1, 60)), SPECIAL]).astype(dtype)
    model, texts = model_of(random, len(x), dtype)
    with np.errstate(all="ignore"):
        fused, alone = (pumice.load(model, context, fuse=fuse, progress=False)(x) for fuse in (True, False))
        assert isinstance(fused, tuple)
        assert isinstance(alone, tuple)
        for text, a, b in zip(texts, fused, alone, strict=True):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= TOLERANCE * np.abs(b))
            wrong = np.flatnonzero(~same)
            assert wrong.size == 0, f"seed {seed}: {text}: x = {x[wrong[0]]}: {a[wrong[0]]}, alone {b[wrong[0]]}"


@pytest.mark.parametrize(("dtype", "seed"), [("float32", 0), ("float32", 1), ("float32", 2), ("float64", 0)])
def test_chains_of_functions_give_what_each_gives_alone(context: pumice.Context, dtype: str, seed: int) -> None:
    if dtype == "float64":
        need_features(context, "shaderFloat64")
    check(context, seed, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_five_thousand_chains_of_functions_give_what_each_gives_alone(context: pumice.Context, part: int) -> None:
    for seed in range(10 + part, 10 + 5000 // CHAINS, 10):
        check(context, seed, "float64" if seed % 4 == 0 and context.feature("shaderFloat64") else "float32")


KEEP_ZEROS = ("Abs", "Sqrt", "Neg", "Floor", "Ceil", "Round", "Relu", "Sign", "Tanh", "Sin", "Atan", "LeakyRelu")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_zero_has_one_sign_in_a_chain_and_alone(context: pumice.Context, dtype: str) -> None:
    """Drivers drop abs() if they consider its operand unsigned. Reciprocal, and adding a negative zero, make that visible."""
    if dtype == "float64":
        need_features(context, "shaderFloat64")
    x = np.array([0.0, -0.0, 4, -4, 0.25], dtype)
    nodes, ends = [], []
    for first, second in itertools.product(KEEP_ZEROS, repeat=2):
        name = f"{first}.{second}"
        nodes += [
            helper.make_node(first, ["x"], [f"{name}.a"]),
            helper.make_node(second, [f"{name}.a"], [f"{name}.b"]),
            helper.make_node("Add", [f"{name}.b", "zero"], [f"{name}.c"]),
            helper.make_node("Reciprocal", [f"{name}.c"], [name]),
        ]
        ends.append(name)
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    of = [helper.make_tensor_value_info(name, number, [len(x)]) for name in ["x", *ends]]
    zero = helper.make_tensor("zero", number, [1], [-0.0])
    graph = helper.make_graph(nodes, "zeros", of[:1], of[1:], [zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    with np.errstate(all="ignore"):
        fused, alone = (pumice.load(model, context, fuse=fuse, progress=False)(x) for fuse in (True, False))
        for name, a, b in zip(ends, fused, alone, strict=True):
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= TOLERANCE * np.abs(b))
            assert same.all(), f"{name}: x = {x[~same][0]}: {a[~same][0]}, alone {b[~same][0]}"


FUNCTION = re.compile(
    r"^(?:float|int|uint|bool|double|dvec2|int64_t|uint64_t) (pm_\w+)\([^)]*\) \{\n(.*?)^\}", re.M | re.S
)


@pytest.mark.parametrize(
    "file",
    ["math.glsl", "math_trigonometry.glsl", "math_correctly_rounded.glsl", "math_double.glsl", "math_64bit.glsl"],
)
def test_functions_end_at_their_end_alone(file: str) -> None:
    """Functions return only at their end, because lavapipe mixed up results after an early return."""
    text = (SHADERS / "include" / file).read_text()
    early = [name for name, body in FUNCTION.findall(text) if body.count("return") > 1]
    assert early == []
    in_choices = [
        line.strip()
        for line in text.splitlines()
        if re.search(
            r"\?[^;)]*\bpm_(exp|log|log1p|expm1|scale|copysign|sin_core|cos_core|pow_core|sine|atan|trunc|floor|fmod|double_\w+)\(",
            line,
        )
    ]
    assert in_choices == []
