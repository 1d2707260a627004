"""Host memory of a streamed validation, relative to the peak of live activations in fp64."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import model, node, value
from pumice.validation.reference import streaming
from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.rules import block_plans, block_ranges, bounded_tensor, lazy_values
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import ProgramTypes
from pumice.validation.rules.lazy_values import BlockAssembler, PackedValue, pack_value

FLOAT = np.float32
SIDE = 512
SMALL = 1 << 12  # elements of a block; small relative to the tensors here, as in real use


def chain() -> onnx.ModelProto:
    """Return a chain of layers."""
    ops, nodes = ("Sigmoid", "Add", "Tanh", "Mul"), []
    for i in range(16):
        read = ["x" if i == 0 else f"t{i - 1}", *(["c"] if i % 2 else [])]
        nodes.append(node(ops[i % 4], read, ["y" if i == 15 else f"t{i}"], name=f"n{i}"))
    return model(nodes, [value("x", [SIDE, SIDE])], constants={"c": np.full(SIDE, 0.5, FLOAT)})


def residual() -> onnx.ModelProto:
    """Return residual blocks of MatMul and Tanh."""
    wide, nodes, x = SIDE // 4, [], "x"
    for i in range(6):
        nodes.append(node("MatMul", [x, "w"], [f"p{i}"], name=f"product{i}"))
        nodes.append(node("Tanh", [f"p{i}"], [f"h{i}"], name=f"tanh{i}"))
        nodes.append(node("Add", [x, f"h{i}"], ["y" if i == 5 else f"r{i}"], name=f"sum{i}"))
        x = f"r{i}"
    # Small weights: an input rounding error that reaches several elements stays below their own errors, so nothing is checked twice.
    weights = np.random.default_rng(1).standard_normal((wide, wide)) / (2 * math.sqrt(wide))
    return model(nodes, [value("x", [4 * SIDE, wide])], constants={"w": weights.astype(FLOAT)})


def u_net() -> onnx.ModelProto:
    """Return a U-Net: each output on the way down is read once on the way up."""
    nodes, x = [], "x"
    for i in range(10):
        nodes.append(node("Tanh" if i % 2 else "Sigmoid", [x], [f"d{i}"], name=f"down{i}"))
        x = f"d{i}"
    for i in reversed(range(10)):
        nodes.append(node("Sin", [x], [f"s{i}"], name=f"sine{i}"))
        nodes.append(node("Add", [f"s{i}", f"d{i}"], [f"u{i}" if i else "y"], name=f"up{i}"))
        x = f"u{i}"
    return model(nodes, [value("x", [SIDE, SIDE])])


def branches() -> onnx.ModelProto:
    """Return eight parallel branches that are merged at the end."""
    nodes = [node("Sin", ["x"], ["a"], name="first")]
    nodes += [node("Mul", ["a", f"k{i}"], [f"b{i}"], name=f"mul{i}") for i in range(8)]
    nodes += [node("Cos", [f"b{i}"], [f"c{i}"], name=f"cos{i}") for i in range(8)]
    nodes.append(node("Concat", [f"c{i}" for i in range(8)], ["j"], name="join", axis=0))
    nodes.append(node("Tanh", ["j"], ["y"], name="last"))
    factors = {f"k{i}": np.array([i + 1], FLOAT) for i in range(8)}
    return model(nodes, [value("x", [SIDE, SIDE])], constants=factors)


def largest_activations(proto: onnx.ModelProto) -> int:
    """Return the peak size in bytes, as fp64, of live tensors and inputs."""
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    sizes = {
        one.name: math.prod(axis.dim_value for axis in one.type.tensor_type.shape.dim)
        for one in (*inferred.value_info, *inferred.output, *inferred.input)
    }
    constants = {one.name for one in proto.graph.initializer}
    begin = {one.name: 0 for one in proto.graph.input}
    end: dict[str, int] = {}
    for i, one in enumerate(proto.graph.node):
        begin.update(dict.fromkeys(one.output, i))
        end.update(dict.fromkeys([*one.input, *one.output], i))
    names = begin.keys() - constants
    return 8 * max(
        sum(sizes[name] for name in names if begin[name] <= i <= end[name]) for i in range(len(proto.graph.node))
    )


def peak(context: pumice.Context, proto: onnx.ModelProto, precision: str, mode: str) -> float:
    shape = [axis.dim_value for axis in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(FLOAT)
    small = model([node("Tanh", ["x"], ["h"]), node("Sin", ["h"], ["y"])], [value("x", [4, 4])])
    with pumice.load(small, context, precision) as loaded:  # exclude one-time allocations of the process
        assert pumice.validate(loaded, [x[:4, :4]], mode=mode).ok
    with pumice.load(proto, context, precision) as loaded:
        tracemalloc.start()
        try:
            assert pumice.validate(loaded, [x], mode=mode).ok
            return tracemalloc.get_traced_memory()[1] / largest_activations(proto)
        finally:
            tracemalloc.stop()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (block_ranges, lazy_values, block_plans, bounded_tensor):
        monkeypatch.setattr(module, "BLOCK_ELEMENTS", SMALL)
    monkeypatch.setattr(block_plans, "MIN_BLOCK_ROWS", 16)


@pytest.mark.parametrize("mode", ["isolated", "both"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("make", [chain, residual, u_net, branches])
def test_twice_the_largest_activations_are_kept(
    context: pumice.Context,
    monkeypatch: pytest.MonkeyPatch,
    small_blocks: None,
    make: Callable[[], onnx.ModelProto],
    precision: str,
    mode: str,
) -> None:
    """With eager evaluation and stored fp64 tensors, the factor was 2 (U-Net) to 12."""
    monkeypatch.setattr(streaming, "WINDOW_BYTES", (2 if precision == "fp16" else 4) * SIDE * SIDE)  # of one tensor
    # The fp16 program stores the sums of residual blocks twice, in fp16 and in fp32.
    assert peak(context, make(), precision, mode) <= (
        2.2 if (make, precision, mode) == (residual, "fp16", "both") else 2
    )


def numbers(count: int = 1 << 15) -> tuple[Any, BoundedTensor]:
    random = np.random.default_rng(0)
    exact = random.standard_normal(count)
    return exact.astype(FLOAT), BoundedTensor(exact, np.abs(exact) * 1e-7, FLOAT)


def test_what_is_packed_bounds_what_it_was(small_blocks: None) -> None:
    """The error includes the distance that packing loses."""
    device, exact = numbers()
    kept = pack_value(exact, device)
    assert isinstance(kept, PackedValue)
    assert (np.abs(kept.value - exact.value) + exact.get_errors() <= kept.get_errors()).all()
    assert (kept.get_errors() <= exact.get_errors() * (1 + 1e-6)).all()


@pytest.mark.parametrize("spoil", ["infinite", "exact", "large"])
def test_what_float32_does_not_hold_is_kept_in_float64(small_blocks: None, spoil: str) -> None:
    device, exact = numbers()
    error = exact.get_errors().copy()
    if spoil == "infinite":
        exact.value[20000] = np.inf
    elif spoil == "exact":
        error[20000] = 0.0
    else:
        error[20000] = 1e60
    kept = pack_value(exact.with_error(error), device)
    assert not isinstance(kept, PackedValue)
    assert kept.value[20000:].tolist() == exact.value[20000:].tolist()
    assert kept.get_errors()[20000:].tolist() == error[20000:].tolist()
    assert (np.abs(kept.value[:20000] - exact.value[:20000]) <= 1e-14).all()


def test_integers_are_kept_as_they_are(small_blocks: None) -> None:
    whole = np.arange(1 << 15)
    joined = BlockAssembler(whole.shape, whole)
    for index in block_ranges.iter_blocks(whole.shape):
        joined.add_block(index, BoundedTensor(whole[index]))
    assert joined.assemble().value.tolist() == whole.tolist()


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 4, 1, 6), (9,), (0, 3), (2, 100)])
def test_blocks_are_all_of_a_tensor_once(shape: tuple[int, ...]) -> None:
    seen = np.zeros(shape, int)
    for index in block_ranges.iter_blocks(shape, max_elements=8):
        seen[index] += 1
        assert seen[index].size <= max(8, shape[-1])
    assert (seen == 1).all()


WHOLE = {"And", "Or", "Xor", "Not"}
PAIRS = {
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "PRelu",
    "Equal",
    "Less",
    "Greater",
    "LessOrEqual",
    "GreaterOrEqual",
    "And",
    "Or",
    "Xor",
}
SEVERAL = {"Sum", "Mean", "Max", "Min"}
ATTRIBUTES = {
    "Cast": {"to": 6},
    "Concat": {"axis": 1},
    "Mod": {"fmod": 1},
    "Softmax": {"axis": 1},
    "LogSoftmax": {"axis": -1},
}
SHAPE = (3, 10, 8, 5)


def inputs_of(op: str) -> list[BoundedTensor]:
    """Return random numbers with errors, of shapes that broadcast to each other."""
    random = np.random.default_rng(len(op))

    def floats(*shape: int) -> BoundedTensor:
        value = random.uniform(0.1, 0.9, shape).astype(FLOAT)
        return BoundedTensor(value, np.abs(value.astype(float)) * random.choice([0.0, 1e-6, 1e-4], shape), FLOAT)

    def truths(*shape: int) -> BoundedTensor:
        return BoundedTensor(random.random(shape) < 0.5, (random.random(shape) < 0.1) * 1.0, bool)

    some = truths if op in WHOLE else floats
    if op in PAIRS:
        return [some(*SHAPE), some(8, 1)]
    if op in SEVERAL:
        return [floats(*SHAPE), floats(5), floats(10, 1, 5)]
    if op == "Where":
        return [truths(10, 1, 5), floats(*SHAPE), floats(1, 5)]
    if op == "Clip":
        return [floats(*SHAPE), floats(), floats()]
    if op == "BatchNormalization":
        return [floats(*SHAPE), *(floats(10) for _ in range(4))]
    if op in ("LayerNormalization", "RMSNormalization"):
        return [floats(*SHAPE), floats(5)]
    if op == "Concat":
        return [floats(*SHAPE), floats(3, 2, 8, 5)]
    return [floats(*SHAPE), floats(5, 40)] if op == "MatMul" else [some(*SHAPE)]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("op", sorted(block_plans.BLOCKWISE))
def test_blocks_are_evaluated_as_the_whole(monkeypatch: pytest.MonkeyPatch, op: str, precision: str) -> None:
    types = ProgramTypes(precision)
    inputs = inputs_of(op)
    proto = onnx.helper.make_node(op, [f"i{k}" for k in range(len(inputs))], ["y"], **ATTRIBUTES.get(op, {}))
    runner = RuleRunner({"": 23}, types)
    made = []
    for most in (1 << 40, 64):
        for module in (block_ranges, lazy_values, block_plans, bounded_tensor):
            monkeypatch.setattr(module, "BLOCK_ELEMENTS", most)
        plan = block_plans.plan_blocks(op, 23, ATTRIBUTES.get(op, {}), inputs, 1)
        assert (plan is None) == (most > 64)
        made.append(runner.run_node(proto, list(inputs), {})[0])
    whole, joined = made
    assert isinstance(whole, BoundedTensor) and isinstance(joined, BoundedTensor)
    np.testing.assert_allclose(joined.value, whole.value, rtol=1e-14, strict=True)
    np.testing.assert_allclose(joined.get_errors(), whole.get_errors(), rtol=1e-7, atol=1e-300)
    assert (joined.dtype, joined.stored, joined.constant) == (whole.dtype, whole.stored, whole.constant)
