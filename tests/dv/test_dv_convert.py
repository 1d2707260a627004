"""Graphs converted to commands of the dv interface: results match the engine's own; unsupported graphs are rejected."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pumice
from pumice import dv

Value = pumice.Value
Build = Callable[[pumice.Graph, Value], Value]
RNG = np.random.default_rng(7)


def weight(*shape: int) -> NDArray[np.float32]:
    """Return random weights that are exact in fp16, so that packing is lossless."""
    fan = int(np.prod(shape[1:])) or 1
    return (RNG.standard_normal(shape) / np.sqrt(fan)).astype("float16").astype("float32")


def image(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype("float16").astype("float32")


def conv(graph: pumice.Graph, x: Value, kernels: int, side: int = 3, **attributes: Any) -> Value:
    channels = (x.shape or ())[1] or 0
    padding = {"pads": [side // 2] * 4} | attributes
    return graph.add("Conv", x, weight(kernels, channels, side, side), weight(kernels), **padding)


def bottleneck(graph: pumice.Graph, x: Value) -> Value:
    short = conv(graph, x, 16, 1)
    long = conv(graph, graph.add("Relu", conv(graph, x, 8)), 16)
    return graph.add("Relu", graph.add("Add", long, short))


def inception(graph: pumice.Graph, x: Value) -> Value:
    x = conv(graph, x, 16)
    parts = [
        graph.add("Relu", conv(graph, x, 8, 1)),
        graph.add("Relu", conv(graph, graph.add("Relu", conv(graph, x, 6, 1)), 16)),
        conv(graph, graph.add("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), 5, 1),
    ]
    return graph.add("Concat", *parts, axis=1)


def nested(graph: pumice.Graph, x: Value) -> Value:
    """A concatenation of a value twice, the input, and a slice of another concatenation."""
    a, b = conv(graph, x, 8), conv(graph, x, 16)
    inner = graph.add("Concat", a, b, a, axis=1)
    return conv(graph, graph.add("Concat", inner, b, x, axis=1), 4)


def normalized(graph: pumice.Graph, x: Value) -> Value:
    y = conv(graph, x, 12)
    scale, shift, mean = weight(12), weight(12), weight(12)
    y = graph.add("BatchNormalization", y, scale, shift, mean, np.abs(weight(12)) + np.float32(0.5), epsilon=1e-3)
    return graph.add("Elu", y)


def perceptron(graph: pumice.Graph, x: Value) -> Value:
    flat = graph.add("Flatten", conv(graph, x, 10))
    inputs = 10 * x.shape[2] * x.shape[3]  # type: ignore[index,operator]
    y = graph.add("Tanh", graph.add("Gemm", flat, weight(20, inputs), weight(20), transB=1))
    y = graph.add("Add", graph.add("MatMul", y, weight(20, 12)), weight(12))
    y = graph.add("Elu", graph.add("LeakyRelu", y, alpha=0.25))
    return graph.add("Softmax", graph.add("Gemm", y, weight(12, 7)), axis=-1)


def vectors(graph: pumice.Graph, x: Value) -> Value:
    parts = [graph.add("Flatten", y) for y in (graph.add("GlobalMaxPool", x), x)]
    return graph.add("Concat", *parts, axis=1)


def simple(op: str, **attributes: Any) -> Build:
    return lambda graph, x: graph.add(op, x, **attributes)


def after_conv(op: str, *operands: Any, **attributes: Any) -> Build:
    return lambda graph, x: graph.add(op, conv(graph, x, 8), *operands, **attributes)


NETWORKS: dict[str, Build] = {
    "convolution": lambda graph, x: conv(graph, x, 9, strides=[2, 1], pads=[0, 2, 1, 3]),
    "dilated": lambda graph, x: conv(graph, x, 9, dilations=[2, 3], pads=[2, 3, 2, 3]),
    "even kernel": lambda graph, x: graph.add("Conv", x, weight(5, x.shape[1], 4, 6), pads=[1, 2, 3, 0]),  # type: ignore
    "same upper": lambda graph, x: graph.add(
        "Conv", x, weight(5, x.shape[1], 3, 4), auto_pad="SAME_UPPER", strides=[2, 3]
    ),  # type: ignore
    "same lower": lambda graph, x: graph.add("Conv", x, weight(5, x.shape[1], 2, 5), auto_pad="SAME_LOWER"),  # type: ignore
    "depthwise": lambda graph, x: graph.add("Conv", x, weight(8, 1, 3, 3), weight(8), group=8, pads=[1, 1, 1, 1]),
    "deconvolution": lambda graph, x: graph.add(
        "ConvTranspose", x, weight(8, 5, 4, 3), weight(5), strides=[2, 3], pads=[1, 0, 2, 1], output_padding=[1, 2]
    ),
    "depthwise deconvolution": lambda graph, x: graph.add(
        "ConvTranspose", x, weight(8, 1, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], group=8
    ),
    "depth to space": lambda graph, x: graph.add("DepthToSpace", conv(graph, x, 18), blocksize=3),
    "depth to space by columns": lambda graph, x: graph.add("DepthToSpace", x, blocksize=2, mode="CRD"),
    "max pool": simple("MaxPool", kernel_shape=[2, 3], strides=[2, 2], pads=[0, 1, 1, 1]),
    "ceiled max pool": simple("MaxPool", kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1),
    "average pool": simple("AveragePool", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], count_include_pad=1),
    "global average": simple("GlobalAveragePool"),
    "global maximum": after_conv("GlobalMaxPool"),
    "activated and pooled": lambda graph, x: graph.add(
        "MaxPool", graph.add("Tanh", conv(graph, x, 8)), kernel_shape=[2, 2]
    ),
    "falling and pooled": lambda graph, x: graph.add(
        "MaxPool", graph.add("LeakyRelu", conv(graph, x, 8), alpha=-0.5), kernel_shape=[2, 2]
    ),
    "pooled and activated": lambda graph, x: graph.add(
        "Sigmoid", graph.add("MaxPool", conv(graph, x, 8), kernel_shape=[2, 2])
    ),
    "upsampled": lambda graph, x: graph.add(
        "Relu", graph.add("Resize", conv(graph, x, 6), None, np.array([1, 1, 2, 2], "float32"), mode="nearest")
    ),
    "local response normalization": lambda graph, x: graph.add("Relu", graph.add("LRN", conv(graph, x, 16), size=5)),
    "sum": lambda graph, x: graph.add("Sum", conv(graph, x, 8), x),
    "vectors side by side": lambda graph, x: graph.add(
        "Concat", graph.add("Flatten", conv(graph, x, 8)), graph.add("Flatten", x), axis=1
    ),
    "relu of the input": simple("Relu"),
    "absolute": lambda graph, x: graph.add("Abs", graph.add("Abs", x)),
    "relu and absolute": lambda graph, x: graph.add("Relu", graph.add("Abs", graph.add("Tanh", conv(graph, x, 8)))),
    "prelu": after_conv("PRelu", weight(8, 1, 1)),
    "prelu of one slope": after_conv("PRelu", np.array([0.25], "float32")),
    "relu6": after_conv("Clip", np.array(0, "float32"), np.array(6, "float32")),
    "batch normalization": normalized,
    "sum of inputs": lambda graph, x: graph.add("Add", x, x),
    "bottleneck": bottleneck,
    "sum of averages": lambda graph, x: graph.add(
        "Relu",
        graph.add(
            "Add",
            conv(graph, x, 8),
            graph.add("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
        ),
    ),
    "inception": inception,
    "nested concatenations": nested,
    "perceptron": perceptron,
    "softmax of channels": after_conv("Softmax", axis=1),
    "flattened": lambda graph, x: graph.add("Flatten", graph.add("Identity", conv(graph, x, 11))),
    "reshaped": lambda graph, x: graph.add("Reshape", conv(graph, x, 3), np.array([0, -1], "int64")),
    "squeezed": lambda graph, x: graph.add("Squeeze", graph.add("GlobalAveragePool", x), np.array([2, 3], "int64")),
}


def graph_of(build: Build, shape: tuple[int, ...] = (1, 8, 13, 11)) -> pumice.Graph:
    graph = pumice.Graph("net")
    graph.output("y", build(graph, graph.input("x", "float32", list(shape))))
    return graph


def check(graph: pumice.Graph, x: NDArray[np.float32], context: pumice.Context, **options: Any) -> dv.Network:
    expected = graph.compile(context).call((x,))[0]
    network = dv.from_graph(graph, **options)
    with dv.Context(context) as on, network.load(on) as loaded:
        result = loaded(x, timeout=60)
        assert isinstance(result, np.ndarray) and result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=4e-3, atol=4e-3 * np.abs(expected).max())
        assert (loaded(x) == result).all()
    return network


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_give_what_the_engine_gives(name: str, context: pumice.Context) -> None:
    check(graph_of(NETWORKS[name]), image(1, 8, 13, 11), context)


@pytest.mark.parametrize("name", ["convolution", "bottleneck", "inception", "perceptron", "max pool"])
def test_batches_are_images_one_after_the_other(name: str, context: pumice.Context) -> None:
    check(graph_of(NETWORKS[name], (3, 8, 13, 11)), image(3, 8, 13, 11), context, images=3)


def test_weights_may_be_indices_of_8_bits(context: pumice.Context) -> None:
    graph = graph_of(perceptron)
    x = image(1, 8, 13, 11)
    with dv.Context(context) as on:
        whole, small = dv.from_graph(graph), dv.from_graph(graph, quantize=True)
        assert len(small.weights) < 0.6 * len(whole.weights)
        with whole.load(on) as first, small.load(on) as second:
            assert np.abs(np.asarray(first(x)) - np.asarray(second(x))).max() < 0.02


def test_nodes_become_runs_of_few_commands() -> None:
    def named(graph: pumice.Graph, x: Value) -> Value:
        def add(op: str, name: str, *inputs: Any, **attributes: Any) -> Value:
            return graph.add(op, *inputs, name=name, **attributes)

        a = add("MaxPool", "pool", add("Relu", "relu", add("Conv", "conv", x, weight(8, 8, 3, 3))), kernel_shape=[2, 2])
        b = add("Conv", "squeeze", a, weight(16, 8, 1, 1))
        parts = [add("Conv", f"expand{i}", b, weight(8, 16, 1, 1)) for i in range(3)]
        y = add("Conv", "last", add("Concat", "joined", *parts, axis=1), weight(8, 24, 1, 1))
        return add("Softmax", "prob", add("Flatten", "flat", add("Add", "sum", y, parts[0])), axis=1)

    network = dv.from_graph(graph_of(named))
    assert network.nodes == [
        [["conv", "relu", "pool"], ["squeeze"]],
        [["expand0"], ["expand1"], ["expand2"]],
        [["last", "sum"]],
    ]
    assert [command.topo for command in network.commands(1, 2) if isinstance(command, dv.Conv)] == [2, 7, 1]
    assert network.outputs[0].softmax_axis == 1 and network.outputs[0].shape == (1, 8 * 10 * 8)


def test_memory_is_used_again() -> None:
    def deep(graph: pumice.Graph, x: Value) -> Value:
        for _ in range(10):
            x = graph.add("Add", conv(graph, x, 8), x)
        return x

    assert dv.from_graph(graph_of(deep, (1, 8, 32, 32))).activation_bytes <= 4 * 8 * 32 * 32 * 2


def test_sizes_that_a_graph_leaves_open_are_given(context: pumice.Context) -> None:
    graph = pumice.Graph("open")
    x = graph.input("x", "float32", [None, 8, None, None])
    graph.output("y", graph.add("Conv", x, weight(4, 8, 3, 3)))
    check(graph, image(1, 8, 9, 10), context, input_shape=(8, 9, 10))
    with pytest.raises(
        pumice.UnsupportedError, match=r"inputs 'x' of shape \(None, 8, None, None\): expected one input, of images"
    ):
        dv.from_graph(graph)


REFUSED: dict[str, tuple[Build, str]] = {
    "operator": (simple("Sin", name="wave"), "node 'wave': Sin: no such operator"),
    "kernel": (lambda graph, x: graph.add("Conv", x, weight(4, 8, 9, 3)), "a kernel of 3 x 9; packed weights have at most 7 x 7"),
    "groups": (lambda graph, x: graph.add("Conv", x, weight(8, 4, 3, 3), group=2), "2 groups of 8 channels and 8 kernels"),
    "padding": (lambda graph, x: conv(graph, x, 4, pads=[0, 130, 0, 0]), r"padding \[0, 130, 0, 0\]"),
    "weights": (lambda graph, x: graph.add("Conv", x, graph.add("Relu", x)), "weights that are not constant"),
    "average": (simple("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), "an average that excludes the padding"),
    "ceiled average": (simple("AveragePool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), "an average beyond the end"),
    "pool": (simple("MaxPool", kernel_shape=[2, 2], dilations=[2, 2]), r"a window of \[2, 2\] with dilations \[2, 2\]"),
    "resize": (lambda graph, x: graph.add("Resize", x, None, np.array([1, 1, 3, 3], "float32")), r"scales \[1.0, 1.0, 3.0, 3.0\]"),
    "clip": (simple("Clip"), "from None to None, not from 0 to 6"),
    "elu": (simple("Elu", alpha=2.0), "alpha 2.0, not 1"),
    "slopes": (lambda graph, x: graph.add("PRelu", x, weight(8, 1, 1)), "it does not follow a convolution"),
    "normalization": (
        lambda graph, x: graph.add("BatchNormalization", x, *[np.ones(8, "float32")] * 4),
        "it does not follow a convolution",
    ),
    "lrn": (simple("LRN", size=3), "'size': 3"),
    "sum": (lambda graph, x: graph.add("Add", x, graph.add("GlobalAveragePool", x)), "which differ"),
    "constant": (lambda graph, x: graph.add("Add", x, weight(1, 8, 13, 11)), "input 1 is a constant"),
    "concatenation": (lambda graph, x: graph.add("Concat", conv(graph, x, 7), x, axis=1), r"\[7\] channels before others"),
    "vectors": (vectors, r"images of \(1, 1\), \(13, 11\)"),
    "merged images": (lambda graph, x: graph.add("Reshape", graph.add("Relu", x), np.array([2, -1], "int64")), "a shape of"),
    "early softmax": (lambda graph, x: graph.add("Relu", graph.add("Softmax", x, axis=1)), "not at the end"),
    "reshape": (lambda graph, x: graph.add("Reshape", x, np.array([1, 4, -1], "int64")), "a shape of"),
    "nothing": (simple("Identity"), "output 'y': no node produces it"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_form_is_rejected_by_name(name: str) -> None:
    build, message = REFUSED[name]
    with pytest.raises(pumice.UnsupportedError, match=message):
        dv.from_graph(graph_of(build))


def test_all_that_has_no_form_is_listed() -> None:
    def several(graph: pumice.Graph, x: Value) -> Value:
        y = graph.add("Sin", graph.add("Relu", graph.add("Cos", x, name="a")), name="b")
        return graph.add("Add", y, graph.add("Elu", x, alpha=2.0, name="c"))

    with pytest.raises(pumice.UnsupportedError) as refused:
        dv.from_graph(graph_of(several))
    assert [item.split(":")[0] for item in refused.value.items] == ["node 'a'", "node 'b'", "node 'c'"]


def test_images_of_a_part_are_rejected() -> None:
    def build(graph: pumice.Graph, x: Value) -> Value:
        a = conv(graph, x, 8)
        return graph.add("Concat", a, conv(graph, a, 8), name="joined", axis=1)

    graph = graph_of(build, (2, 8, 6, 6))
    assert dv.from_graph(graph).nodes
    with pytest.raises(pumice.UnsupportedError, match="several images of a part of a concatenation"):
        dv.from_graph(graph, images=2)
    with pytest.raises(pumice.BindingError, match="images.*expected at least 1; given 0"):
        dv.from_graph(graph, images=0)


def test_weights_beyond_float16_are_rejected() -> None:
    graph = graph_of(lambda graph, x: graph.add("Conv", x, weight(4, 8, 3, 3) * 1e6, name="large"))
    with pytest.raises(pumice.GraphError, match="node 'large': expected weights that float16 can hold; given up to"):
        dv.from_graph(graph)


def test_images_of_another_shape_are_rejected(context: pumice.Context) -> None:
    with dv.Context(context) as on, dv.from_graph(graph_of(simple("Relu"))).load(on) as loaded:
        with pytest.raises(pumice.BindingError, match=r"images.*expected numbers of shape \(1, 8, 13, 11\)"):
            loaded(np.zeros((8, 13, 11), "float32"))
        with pytest.raises(pumice.BindingError, match=r"images.*given <U1 of shape"):
            loaded(np.full((1, 8, 13, 11), "a"))


# ---- models


def check_model(path: Path, context: pumice.Context, x: NDArray[np.float32]) -> dv.Network:
    """Compare with the model in fp16, and both with fp32."""
    network = dv.from_graph(path, x.shape[1:])
    with pumice.load(path, context) as exact, pumice.load(path, context, precision="fp16") as half:
        wanted, close = exact(x), half(x)
        with dv.Context(context) as on, network.load(on) as loaded:
            results = loaded(x)
    for i, output in enumerate(network.outputs):
        expected, other, result = (
            np.asarray(one if len(network.outputs) == 1 else one[i]) for one in (wanted, close, results)
        )
        scale = np.abs(expected).max()
        assert result.shape == expected.shape, output.name
        assert np.abs(result - other).max() <= 4e-3 * scale and np.abs(result - expected).max() <= 4e-3 * scale
        assert result.argmax() == expected.argmax()
    return network


@pytest.mark.parametrize("picture", ["zebra", "dog2"])
def test_squeezenet_sees_what_the_model_sees(picture: str, context: pumice.Context, shared_models: Path) -> None:
    x = np.load(shared_models / "squeezenet" / "expected" / f"{picture}.input.npy")
    network = check_model(shared_models / "squeezenet" / "squeezenet.onnx", context, x)
    assert len(network.nodes) == 17 and [output.name for output in network.outputs] == ["probabilities", "logits"]


def test_mnist_reads_the_digit(context: pumice.Context, shared_models: Path) -> None:
    x = np.load(shared_models / "mnist" / "expected" / "mnist_image1.input.npy")
    check_model(shared_models / "mnist" / "mnist.onnx", context, x)


def test_superres_enlarges_the_picture(context: pumice.Context, shared_models: Path) -> None:
    x = np.load(shared_models / "superres" / "expected" / "dog2_64.input.npy")
    network = check_model(shared_models / "superres" / "superres.onnx", context, x)
    assert network.outputs[0].shape == (1, 1, 3 * x.shape[2], 3 * x.shape[3])


def test_models_without_a_form_say_which_nodes(shared_models: Path) -> None:
    with pytest.raises(pumice.UnsupportedError, match="InstanceNormalization"):
        dv.from_graph(shared_models / "candy" / "candy.onnx", (3, 64, 64))


def check_c_library(network: dv.Network, x: NDArray[np.float32], context: pumice.Context) -> None:
    with dv.Context(context) as on, network.load(on) as loaded:
        expected = loaded(x)
    with CLibrary() as library:
        weights, activations = library.memory(network.weights), library.memory(bytes(network.activation_bytes))
        library.write(activations, network.to_input(x).tobytes(), network.input_offset)
        library.run([bytes(command) for command in network.commands(weights, activations)])
        for i, output in enumerate(network.outputs):
            elements = np.frombuffer(library.read(activations, output.elements * 2, output.offset), "float16")
            assert (output.result(elements) == (expected if len(network.outputs) == 1 else expected[i])).all()


def test_the_c_library_gives_the_same_bits(context: pumice.Context) -> None:
    check_c_library(dv.from_graph(graph_of(inception)), image(1, 8, 13, 11), context)


def test_squeezenet_in_the_c_library(context: pumice.Context, shared_models: Path) -> None:
    x = np.load(shared_models / "squeezenet" / "expected" / "zebra.input.npy")
    check_c_library(dv.from_graph(shared_models / "squeezenet" / "squeezenet.onnx"), x, context)


class CLibrary:
    """A context of libdmpdv.so, used only through its C interface."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(dv.library_path()))
        self._call("get_last_error_message").restype = ctypes.c_char_p
        for name in ("context_create", "mem_alloc", "mem_map", "cmdlist_create"):
            self._call(name).restype = ctypes.c_void_p
        self._call("cmdlist_exec").restype = ctypes.c_int64
        self.handles: list[tuple[str, int]] = []

    def _call(self, name: str) -> Any:
        return getattr(self._library, f"dmp_dv_{name}")

    def _check(self, holds: bool) -> None:
        assert holds, self._call("get_last_error_message")().decode()

    def _made(self, kind: str, handle: int | None) -> int:
        self._check(bool(handle))
        assert handle is not None
        self.handles.append((kind, handle))
        return handle

    def __enter__(self) -> CLibrary:
        self.context = self._made("context", self._call("context_create")())
        return self

    def __exit__(self, *_: object) -> None:
        for kind, handle in self.handles:
            self._call(f"{kind}_release")(ctypes.c_void_p(handle))

    def memory(self, data: bytes) -> int:
        made = self._made("mem", self._call("mem_alloc")(ctypes.c_void_p(self.context), ctypes.c_size_t(len(data))))
        self.write(made, data, 0)
        return made

    def write(self, memory: int, data: bytes, offset: int) -> None:
        ctypes.memmove(self._synced(memory) + offset, data, len(data))
        self._call("mem_sync_end")(ctypes.c_void_p(memory))

    def read(self, memory: int, size: int, offset: int) -> bytes:
        return ctypes.string_at(self._synced(memory) + offset, size)

    def _synced(self, memory: int) -> int:
        address = self._call("mem_map")(ctypes.c_void_p(memory))
        self._check(self._call("mem_sync_start")(ctypes.c_void_p(memory), 1, 1) == 0)
        return int(address)

    def run(self, commands: list[bytes]) -> None:
        commands_list = self._made("cmdlist", self._call("cmdlist_create")(ctypes.c_void_p(self.context)))
        handle = ctypes.c_void_p(commands_list)
        for command in commands:
            self._check(self._call("cmdlist_add_raw")(handle, command) == 0)
        self._check(self._call("cmdlist_commit")(handle) == 0)
        number = self._call("cmdlist_exec")(handle)
        self._check(number > 0)
        self._check(self._call("cmdlist_wait")(handle, ctypes.c_int64(number)) == 0)
