"""Random models: fused and unfused match the reference; in fp16, within the tolerance of that precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pumice
from pumice.onnx import import_graph

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
OPSET = 20
MOST_ELEMENTS = 20_000
LARGEST = 500.0  # larger absolute values are not compared in fp16
UNARY = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Neg",
    "Abs",
    "Erf",
    "HardSwish",
    "Gelu",
    "LeakyRelu",
    "Elu",
    "Softplus",
    "HardSigmoid",
    "Identity",
)
BINARY = ("Add", "Sub", "Mul", "Max", "Min")

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Chain:
    """A graph under construction; each node reads an existing value, usually the last one."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 1000)))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.shapes: dict[str, Shape] = {}
        self.shapes["x"] = self.pick([(2, 3, 7, 6), (1, 8, 5, 5), (1, 4, 9, 3), (5, 16), (3, 7), (2, 5, 12)])

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def constant(self, array: Any) -> str:
        name = f"k{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def add(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        self.shapes[name] = shape

    def step(self) -> None:
        names = list(self.shapes)
        x = names[-1] if self.draw(st.integers(0, 3)) else self.pick(names)
        shape = self.shapes[x]
        options = [one for ranks, one in STEPS if len(shape) in ranks]
        self.pick(options)(self, x, shape)

    def model(self) -> onnx.ModelProto:
        names = list(self.shapes)
        outputs = dict.fromkeys([names[-1], *([self.pick(names[1:])] if self.chance() else [])])
        shape = [*self.shapes["x"]]
        if self.chance():
            shape[0] = "N"  # type: ignore[call-overload]
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


# ---- nodes


def unary(chain: Chain, x: str, shape: Shape) -> None:
    chain.add(chain.pick(UNARY), [x], shape)


def clip(chain: Chain, x: str, shape: Shape) -> None:
    bounds = [chain.constant(np.float32(bound)) if chain.chance() else "" for bound in (-0.5, 0.75)]
    chain.add("Clip", [x, *bounds], shape)


def binary(chain: Chain, x: str, shape: Shape) -> None:
    """Add an operator on x and another value of the same shape, or a broadcast constant."""
    same = [name for name, other in chain.shapes.items() if other == shape]
    if chain.chance():
        other = chain.pick(same)
    else:
        axes = chain.pick([(), shape[-1:], shape, (shape[1], *(1 for _ in shape[2:])), (1,) * len(shape)])
        other = chain.weight(*axes)
    chain.add(chain.pick(BINARY), [x, other] if chain.chance() else [other, x], shape)


def conv(chain: Chain, x: str, shape: Shape) -> None:
    channels, size = shape[1], chain.pick([1, 3])
    groups = chain.pick([1, channels])
    made = channels if groups > 1 else chain.pick([1, 4, 8, 11])
    stride, pad = chain.pick([1, 1, 2]), size // 2
    weight = chain.weight(made, channels // groups, size, size, scale=(channels // groups * size * size) ** -0.5)
    inputs = [x, weight, *([chain.weight(made)] if chain.chance() else [])]
    spatial = tuple((length + 2 * pad - size) // stride + 1 for length in shape[2:])
    chain.add("Conv", inputs, (shape[0], made, *spatial), group=groups, strides=[stride] * 2, pads=[pad] * 4)


def normalization(chain: Chain, x: str, shape: Shape) -> None:
    channels = shape[1]
    mean, variance = chain.weight(channels), chain.constant((chain.random.random(channels) + 0.5).astype(np.float32))
    chain.add("BatchNormalization", [x, chain.weight(channels), chain.weight(channels), mean, variance], shape)


def layer_normalization(chain: Chain, x: str, shape: Shape) -> None:
    inputs = [x, chain.weight(shape[-1]), *([chain.weight(shape[-1])] if chain.chance() else [])]
    chain.add("LayerNormalization", inputs, shape, epsilon=0.1)


def pool(chain: Chain, x: str, shape: Shape) -> None:
    if min(shape[2:]) < 2:
        return chain.add("GlobalAveragePool", [x], (*shape[:2], 1, 1))
    spatial = tuple((length - 2) // 2 + 1 for length in shape[2:])
    return chain.add(
        chain.pick(["MaxPool", "AveragePool"]), [x], (*shape[:2], *spatial), kernel_shape=[2, 2], strides=[2, 2]
    )


def product(chain: Chain, x: str, shape: Shape) -> None:
    width = chain.pick([1, 5, 16])
    chain.add("MatMul", [x, chain.weight(shape[-1], width, scale=shape[-1] ** -0.5)], (*shape[:-1], width))
    if chain.chance():
        chain.add("Add", [list(chain.shapes)[-1], chain.weight(width)], (*shape[:-1], width))


def gemm(chain: Chain, x: str, shape: Shape) -> None:
    width = chain.pick([3, 8])
    weight = chain.weight(width, shape[1], scale=shape[1] ** -0.5)
    chain.add("Gemm", [x, weight, chain.weight(width)], (shape[0], width), transB=1, alpha=chain.pick([1.0, 0.5]))


def softmax(chain: Chain, x: str, shape: Shape) -> None:
    chain.add("Softmax", [x], shape, axis=chain.pick([-1, 1]))


def transpose(chain: Chain, x: str, shape: Shape) -> None:
    perm = chain.draw(st.permutations(range(len(shape))))
    chain.add("Transpose", [x], tuple(shape[axis] for axis in perm), perm=perm)


def flatten(chain: Chain, x: str, shape: Shape) -> None:
    target = (shape[0], int(np.prod(shape[1:])))
    chain.add("Reshape", [x, chain.constant(np.array([0, -1]))], target)


def reduce(chain: Chain, x: str, shape: Shape) -> None:
    axis = chain.draw(st.integers(0, len(shape) - 1))
    made = tuple(1 if at == axis else size for at, size in enumerate(shape))
    chain.add(
        chain.pick(["ReduceMean", "ReduceMax", "ReduceSum"]), [x, chain.constant(np.array([axis]))], made, keepdims=1
    )


def concat(chain: Chain, x: str, shape: Shape) -> None:
    axis = chain.draw(st.integers(0, len(shape) - 1))
    same = [name for name, other in chain.shapes.items() if other == shape]
    made = tuple(2 * size if at == axis else size for at, size in enumerate(shape))
    chain.add("Concat", [x, chain.pick(same)], made, axis=axis)


def cut(chain: Chain, x: str, shape: Shape) -> None:
    axis = chain.draw(st.integers(1, len(shape) - 1))
    begin = chain.draw(st.integers(0, shape[axis] - 1))
    made = tuple(size - begin if at == axis else size for at, size in enumerate(shape))
    chain.add("Slice", [x, *(chain.constant(np.array([one])) for one in (begin, 1000, axis))], made)


Step = Callable[[Chain, str, Shape], None]
ALL, IMAGES = (2, 3, 4), (4,)
STEPS: tuple[tuple[tuple[int, ...], Step], ...] = (
    *((ALL, step) for step in (unary, unary, binary, binary, clip, product, layer_normalization, softmax)),
    *((ALL, step) for step in (transpose, reduce, concat, cut)),
    *((IMAGES, step) for step in (conv, conv, conv, normalization, normalization, pool)),
    ((3, 4), flatten),
    ((2,), gemm),
)


@st.composite
def chains(draw: st.DrawFn) -> tuple[onnx.ModelProto, Array]:
    chain = Chain(draw)
    for _ in range(draw(st.integers(2, 9))):
        chain.step()
        if np.prod(chain.shapes[list(chain.shapes)[-1]]) > MOST_ELEMENTS:
            break
    return chain.model(), chain.random.standard_normal(chain.shapes["x"]).astype(np.float32)


# ---- checks


def reference(proto: onnx.ModelProto, x: Array) -> tuple[dict[str, Array], float]:
    """Return the outputs, and the largest magnitude of all values."""
    every = onnx.ModelProto.FromString(proto.SerializeToString())
    wanted = [value.name for value in proto.graph.output]
    others = [node.output[0] for node in proto.graph.node if node.output[0] not in wanted]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in others)
    with np.errstate(all="ignore"):
        values = ReferenceEvaluator(every).run(None, {"x": x})
    largest = max(float(abs(value).max(initial=0)) for value in [x, *values])
    return dict(zip(wanted, values, strict=False)), largest


def check(context: pumice.Context, proto: onnx.ModelProto, x: Array) -> None:
    wanted, largest = reference(proto, x)
    depth = len(proto.graph.node)
    graph = import_graph(proto)
    for precision, fuse, rounding in (("fp32", True, 2e-6), ("fp32", False, 2e-6), ("fp16", True, 2e-3)):
        if precision == "fp16" and largest > LARGEST:
            continue
        program = graph.compile(context, precision, fuse=fuse)
        for name, value in program({"x": x}).items():
            assert value.shape == wanted[name].shape
            allowed = rounding * (depth + 2) * max(1.0, largest)
            np.testing.assert_allclose(
                value, wanted[name], rtol=0, atol=allowed, err_msg=f"{name}, {precision}, {fuse=}"
            )


@given(case=chains())
@settings(max_examples=10, deadline=None, suppress_health_check=QUIET, derandomize=True)
def test_random_chains(context: pumice.Context, case: tuple[onnx.ModelProto, Array]) -> None:
    check(context, *case)


@pytest.mark.slow
@pytest.mark.parametrize("_part", range(5))
@given(case=chains())
@settings(max_examples=100, deadline=None, suppress_health_check=QUIET)
def test_many_random_chains(context: pumice.Context, _part: int, case: tuple[onnx.ModelProto, Array]) -> None:
    check(context, *case)
