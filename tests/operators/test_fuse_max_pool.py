"""Convolutions with fused MaxPool: bit-identical to a convolution followed by a pooling.

All values are small integers, so sums are exact in any order; fp16 rounds above 2,048 and overflows above 65,504.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from features import has_cpu_kernels
from lesser_devices import lesser
from pumice.base.host_arrays import bitwise_equal
from pumice.model.step_variants import StepVariants
from step_choices import choice_of

Array = npt.NDArray[Any]
AT_ONCE = 3  # tilings per case in the default tier
APART = [name for name in pumice.fusions() if name != "pooling"]


def integers(seed: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype("float32")


class Pooled(NamedTuple):
    """Images of `size`, a convolution (channels: in per group, total out), and a pooling with `pool` windows."""

    size: tuple[int, int]
    kernel: tuple[int, int]
    channels: tuple[int, int]
    pool: tuple[int, int]
    images: int = 1
    has_bias: bool = True
    before: str = "Relu"  # activation between the two; "": none
    behind: str = ""
    attributes: Mapping[str, Any] = MappingProxyType({})

    @property
    def groups(self) -> int:
        return int(self.attributes.get("group", 1))

    def image(self, seed: int = 3) -> Array:
        shape = (self.images, self.channels[0] * self.groups, *self.size)
        return integers(seed, shape)

    def model(self, pooling: Mapping[str, Any] | None = None, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
        """Build the model. pooling: further MaxPool attributes."""
        weights = [numpy_helper.from_array(integers(5, (self.channels[1], self.channels[0], *self.kernel)), "w")]
        if self.has_bias:
            bias = integers(6, (self.channels[1],))
            bias[1] = 65_200
            weights.append(numpy_helper.from_array(bias, "b"))
        nodes = [helper.make_node("Conv", ["x", "w", "b"][: 2 + self.has_bias], ["c"], "conv", **self.attributes)]
        if self.before:
            nodes.append(helper.make_node(self.before, ["c"], ["m"], "before"))
        windows = {"kernel_shape": self.pool, "strides": self.pool, **(pooling or {})}
        made = "p" if self.behind else "y"
        nodes.append(helper.make_node("MaxPool", ["m" if self.before else "c"], [made], "pool", **windows))
        if self.behind:
            nodes.append(helper.make_node(self.behind, ["p"], ["y"], "behind"))
        value = helper.make_tensor_value_info
        given = [value("x", TensorProto.FLOAT, self.image().shape)]
        graph = helper.make_graph(nodes, "pooled", given, [value(o, TensorProto.FLOAT, None) for o in outputs], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CASES = {
    "mnist's first": Pooled((28, 28), (5, 5), (1, 8), (2, 2), attributes={"pads": [2, 2, 2, 2]}),
    "mnist's second": Pooled((14, 14), (5, 5), (8, 16), (3, 3), attributes={"pads": [2, 2, 2, 2]}),
    "several images": Pooled((13, 17), (3, 3), (3, 8), (2, 2), 3, attributes={"pads": [1, 1, 1, 1]}),
    "windows that leave rows out": Pooled((12, 18), (3, 3), (2, 5), (4, 5), 2),
    "one window": Pooled((7, 7), (5, 5), (4, 4), (3, 3)),
    "one element more than a window": Pooled((8, 8), (5, 5), (4, 4), (3, 3), 2),
    "windows of one row": Pooled((9, 40), (3, 5), (3, 12), (1, 4), has_bias=False),
    "windows of one column": Pooled((31, 9), (5, 3), (3, 9), (8, 1), before=""),
    "wide windows": Pooled((11, 66), (3, 3), (3, 7), (2, 7), behind="Tanh"),
    "maps on both sides": Pooled((20, 20), (3, 3), (4, 16), (2, 2), before="Tanh", behind="Neg"),
    "groups": Pooled((19, 18), (5, 5), (4, 18), (2, 3), 2, attributes={"group": 3, "pads": [2, 2, 2, 2]}),
    "steps and dilations": Pooled(
        (41, 37), (3, 2), (5, 6), (3, 2), attributes={"strides": [2, 1], "dilations": [2, 3]}
    ),
    "wide": Pooled((4, 300), (3, 3), (3, 20), (2, 2), attributes={"pads": [1, 1, 1, 1]}),
    "a large kernel for each channel": Pooled((20, 21), (8, 8), (1, 4), (2, 2), attributes={"group": 4}),
}


def kernels_of(model: pumice.Model, x: Array) -> list[str]:
    """Return the kernels of an fp32 model in order."""
    return [str(step["kernel"]) for step in model.program.plan([x])]


def with_specials(x: Array) -> Array:
    """Return the image with NaN, infinities and zeros of both signs."""
    made = x.copy()
    made[0, 0, 1, 2], made[-1, -1, -2, -1], made[0, -1, 3, 1] = np.nan, np.inf, -np.inf
    made[-1, 0, -1], made[-1, 0, 0] = -0.0, 0.0
    return made


def same(found: Array, wanted: Array) -> bool:
    """Return whether arrays are bit-identical, except for the sign of NaN, which depends on summation order."""
    made, expected = (np.where(np.isnan(array), np.float32(np.nan), array) for array in (found, wanted))
    return bitwise_equal(made, expected)


def apart(device: pumice.Context, case: Pooled, precision: str, x: Array) -> Array:
    """Return the result of the unfused convolution and pooling."""
    with pumice.load(case.model(), device, precision, fuse=APART) as model:
        assert "pooling" not in {row["fusion"] for row in model.report()}
        assert "pool.comp" in {step["kernel"] for step in model.program.plan([x])}
        made: Array = model(x)
    return made


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_pooled_is_what_two_dispatches_make(device: pumice.Context, name: str, precision: str, every: bool) -> None:
    case = CASES[name]
    x = with_specials(case.image())
    with pumice.load(case.model(), device, precision, tuned=StepVariants.with_variant_listing({})) as model:
        choice = choice_of(model, x)
        notes = {row["node"]: row["note"] for row in model.report()}
        assert precision != "fp32" or kernels_of(model, x) == ["conv_patch.comp"]
    assert notes["pool"] == "fused into conv"
    assert f"pools {case.pool[0]}x{case.pool[1]}" in choice["kind"]
    step = 1 if every else max(len(choice["variants"]) // AT_ONCE, 1)
    wanted = apart(device, case, precision, x)
    for variant in dict.fromkeys([choice["own"], *choice["variants"][[*CASES].index(name) % step :: step]]):
        tuned = StepVariants.with_variant_listing({choice["kind"]: variant})
        with pumice.load(case.model(), device, precision, tuned=tuned) as model:
            found = model(x)
            assert choice_of(model, x)["taken"] == variant
        assert same(found, wanted), variant


def test_tiles_have_whole_windows(device: pumice.Context) -> None:
    for case in CASES.values():
        with pumice.load(case.model(), device, tuned=StepVariants.with_variant_listing({})) as model:
            for variant in choice_of(model, case.image())["variants"]:
                rows, columns = (int(side) for side in variant.split()[1].split("x")[:2])
                assert (rows % case.pool[0], columns % case.pool[1]) == (0, 0), variant


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_two_dispatches_where_they_are_quicker(device: pumice.Context, precision: str) -> None:
    """Larger images, whose convolution uses another kernel; and all images on a device without the patch kernel."""
    large = Pooled((90, 91), (3, 3), (16, 16), (2, 2), behind="Neg", attributes={"pads": [1, 1, 1, 1]})
    with pumice.Context(f"uuid:{device.info.uuid}") as whole:
        for context, case in ((device, large), (whole, CASES["mnist's second"]), (whole, CASES["groups"])):
            x = with_specials(case.image())
            with pumice.load(case.model(), context, precision, fuse=APART) as model:
                wanted, kernels = model(x), kernels_of(model, x)
            with pumice.load(case.model(), context, precision) as model:
                (note,) = [row["note"] for row in model.report() if row["node"] == "pool"]
                assert note == "fused into conv"
                if context is device or has_cpu_kernels(context):
                    assert kernels_of(model, x) == kernels
                    assert same(model(x), wanted)


# The intermediate tensor is 16-bit, and with small ranges the pooling's second slice begins inside a word.
WITHIN_WORDS = Pooled((35, 36), (1, 4), (1, 12), (5, 4), attributes={"group": 3, "strides": [2, 2]})
# Packed fp16; no fp16; small workgroups; ranges smaller than two images; small grids.
LESSER: dict[str, tuple[list[str], dict[str, int]]] = {
    "packed": (["storageBuffer16BitAccess"], {}),
    "no halves": (["storageBuffer16BitAccess", "shaderFloat16"], {}),
    "few invocations": ([], {"maxComputeWorkGroupInvocations": 128, "maxComputeWorkGroupSize_0": 128}),
    "small ranges": ([], {"maxStorageBufferRange": 1 << 12}),
    "small grids": ([], {"maxComputeWorkGroupCount": 16}),
}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", LESSER)
def test_lesser_devices(device: pumice.Context, name: str, precision: str) -> None:
    lacking, limits = LESSER[name]
    with lesser(device, limits, ["subgroupShuffle", *lacking]) as context:
        for case in (CASES["windows that leave rows out"], CASES["several images"], CASES["groups"], WITHIN_WORDS):
            x = with_specials(case.image())
            with pumice.load(case.model(), context, precision) as model:
                assert "pooling" in {row["fusion"] for row in model.report()}
                assert same(model(x), apart(context, case, precision, x))


REFUSED: dict[str, tuple[Pooled, dict[str, Any], tuple[str, ...]]] = {
    "windows that overlap": (CASES["several images"], {"kernel_shape": [3, 3], "strides": [2, 2]}, ("y",)),
    "windows apart": (CASES["several images"], {"strides": [3, 3]}, ("y",)),
    "padding": (CASES["several images"], {"pads": [1, 0, 0, 0]}, ("y",)),
    "padding by name": (CASES["several images"], {"auto_pad": "SAME_UPPER"}, ("y",)),
    "windows past the end": (CASES["several images"], {"ceil_mode": 1}, ("y",)),
    "dilated windows": (CASES["several images"], {"dilations": [2, 1]}, ("y",)),
    "windows of one element": (CASES["several images"], {"kernel_shape": [1, 1], "strides": [1, 1]}, ("y",)),
    "large windows": (CASES["wide"], {"kernel_shape": [2, 9], "strides": [2, 9]}, ("y",)),
    "a result that is read": (CASES["several images"], {}, ("y", "m")),
    "one tap": (CASES["several images"]._replace(kernel=(1, 1)), {}, ("y",)),
    "many channels": (CASES["several images"]._replace(channels=(24, 24)), {}, ("y",)),
    "a small kernel for each channel": (
        Pooled((12, 14), (3, 3), (1, 4), (2, 2), 2, attributes={"group": 4}),
        {},
        ("y",),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_cases_that_are_not_fused(device: pumice.Context, name: str) -> None:
    case, pooling, outputs = REFUSED[name]
    with pumice.load(case.model(pooling, outputs), device) as model:
        assert not any(row["fusion"] == "pooling" for row in model.report())
        assert "pool.comp" in kernels_of(model, case.image())
        found = model(case.image())
    with pumice.load(case.model(pooling, outputs), device, fuse=False) as model:
        for one, wanted in zip(
            *(made if len(outputs) > 1 else (made,) for made in (found, model(case.image()))), strict=True
        ):
            np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-3)


def test_the_dispatches_of_mnist(device: pumice.Context) -> None:
    """Two convolutions with fused pooling, and a GEMM with fused Softmax."""
    first, second = CASES["mnist's first"], CASES["mnist's second"]
    graph = pumice.Graph("digits")
    made = graph.input("image", "float32", [1, 1, 28, 28])
    random = np.random.default_rng(1)
    for case in (first, second):
        shape = (case.channels[1], case.channels[0], *case.kernel)
        made = graph.add(
            "Conv", made, random.normal(size=shape).astype("float32"), np.ones(shape[0], "float32"), pads=[2, 2, 2, 2]
        )
        made = graph.add("MaxPool", graph.add("Relu", made), kernel_shape=list(case.pool), strides=list(case.pool))
    made = graph.add("Flatten", made)
    made = graph.add("Gemm", made, random.normal(size=(256, 10)).astype("float32"), np.ones(10, "float32"))
    graph.output("probabilities", graph.add("Softmax", made))
    x = first.image()
    counts = []
    for fuse in (True, False):
        program = graph.compile(device, fuse=fuse)
        counts.append(len(program.plan((x,))))
    is_one_kernel = device.limit("maxComputeWorkGroupInvocations") >= 256  # gemm_softmax.comp
    assert counts == [3 if is_one_kernel else 4, 8]


# Nodes kept in fp32 in an fp16 program, and the expected fusions.
WIDE: dict[str, tuple[list[str], set[str]]] = {
    "none": ([], {"pooling", "softmax"}),
    "the convolution": (["conv"], {"softmax"}),
    "the pooling": (["pool"], {"softmax"}),
    "both": (["conv", "relu", "pool"], {"pooling", "softmax"}),
    "the product": (["product"], {"pooling"}),
    "Softmax": (["softmax"], {"pooling"}),
}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", WIDE)
def test_floats_of_both_sizes(device: pumice.Context, name: str, precision: str) -> None:
    """Rounding is unchanged: nodes with different float types are not fused."""
    wide, fusions = WIDE[name]
    graph = pumice.Graph("digits")
    x = integers(1, (2, 4, 13, 14))
    made = graph.add(
        "Conv", graph.input("x", "float32", x.shape), integers(2, (8, 4, 3, 3)), integers(3, (8,)), name="conv"
    )
    made = graph.add("MaxPool", graph.add("Relu", made, name="relu"), kernel_shape=[2, 2], strides=[2, 2], name="pool")
    made = graph.add("Reshape", graph.add("Mul", made, np.array(0.5, "float32")), np.array([2, -1]))
    made = graph.add("Gemm", made, integers(4, (240, 9)) / 256, integers(5, (9,)), name="product")
    graph.output("product", made)
    graph.output("probabilities", graph.add("Softmax", made, name="softmax"))
    apart = graph.compile(device, precision, fuse=[name for name in APART if name != "softmax"], float32_nodes=wide)
    joined = graph.compile(device, precision, float32_nodes=wide)
    found = {row["fusion"] for row in joined.report()}
    assert found & {"pooling", "softmax"} == fusions
    for one, other in zip(joined.call((x,)), apart.call((x,)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", range(24))
def test_random_convolutions_give_what_two_dispatches_give(
    device: pumice.Context, pumice_context: pumice.Context, seed: int
) -> None:
    """Any group size, including depthwise kernels, fused or not."""
    random = np.random.default_rng(seed)

    def sides(most: int) -> list[int]:
        return [int(side) for side in random.integers(1, most + 1, 2)]

    is_depthwise = seed % 3 == 0
    group, each = (int(one) for one in random.choice([2, 3, 4, 8] if is_depthwise else [1, 2, 3, 4, 8], 2))
    within = int(random.choice([1, 2, 3]))
    if is_depthwise:
        within = each = 1
    strides, dilations, kernel, pool = sides(2), sides(2), sides(4), sides(3)
    size = [
        step * (side * 3 + 1) + (taps - 1) * apart + 2
        for step, side, taps, apart in zip(strides, pool, kernel, dilations, strict=True)
    ]
    attributes = {"group": group, "strides": strides, "dilations": dilations, "pads": [*sides(2), *sides(2)]}
    case = Pooled(
        (size[0], size[1]),
        (kernel[0], kernel[1]),
        (within, group * each),
        (pool[0], pool[1]),
        int(random.integers(1, 3)),
        has_bias=group * each > 1,
        before=str(random.choice(["", "Relu", "Tanh"])),
        attributes=attributes,
    )
    x, precision = with_specials(case.image()), str(random.choice(["fp32", "fp16", "bf16"]))
    for context in (device, pumice_context):
        with (
            pumice.load(case.model(), context, precision) as joined,
            pumice.load(case.model(), context, precision, fuse=APART) as two,
        ):
            assert same(joined(x), two(x)), joined.report()
