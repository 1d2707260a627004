"""Models that are right in float32 and fail in float16, each with one trap among well-conditioned layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]

WIDTH, ROWS = 32, 8
_LEAST_NODES = 62  # so that 5 percent is 3 nodes
TRAPS: dict[str, Callable[[Net, str], str]] = {}


class Trap(NamedTuple):
    """A model and its only case."""

    model: onnx.ModelProto
    case: dict[str, Array]


class Net:
    """A graph under construction, with values [rows, width] between layers; both are multiples of ROWS and WIDTH."""

    def __init__(self, seed: int, rows: int = ROWS, width: int = WIDTH) -> None:
        self.rows, self.width = rows, width
        self.draw = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def add(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}:0"], name=name, **attributes))
        return f"{name}:0"

    def product(self, x: str, weights: Any, name: str = "") -> str:
        return self.add("MatMul", x, self.constant(weights), name=name)

    def turned(self, x: str) -> str:
        """Transpose and transpose back, which no kernel fuses."""
        return self.add("Transpose", self.add("Transpose", x, perm=[1, 0]), perm=[1, 0])

    @property
    def rotation(self) -> Array:
        """Return a block-diagonal rotation matrix with permuted columns."""
        count = self.width // WIDTH
        array = np.zeros((self.width, self.width))
        for i in range(count):
            here = slice(i * WIDTH, (i + 1) * WIDTH)
            array[here, here], _ = np.linalg.qr(self.draw.standard_normal((WIDTH, WIDTH)))
        return array[:, self.draw.permutation(self.width)] if count > 1 else array

    def matrix(self, rows: int = 0, columns: int = 0) -> Array:
        """Return normal numbers, scaled down if more than WIDTH are summed."""
        rows, columns = rows or self.width, columns or self.width
        return self.draw.standard_normal((rows, columns)) * np.sqrt(WIDTH / max(rows, WIDTH))

    def calm(self, x: str) -> str:
        """Add a layer with values of about 1: a rotation, a bias, a bounded function."""
        x = self.product(x, self.rotation * 1.5)  # compensates the shrinking by the function
        x = self.add("Add", x, self.constant(self.draw.standard_normal(self.width) / 8))
        return self.add("Softsign", x)

    def eye(self, factor: float = 1.0) -> Array:
        return np.eye(self.width) * factor

    def normal(self, x: str) -> str:
        return self.add(
            "LayerNormalization", x, self.constant(np.ones(self.width)), self.constant(np.zeros(self.width))
        )


def trap(make: Callable[[Net, str], str]) -> Callable[[Net, str], str]:
    TRAPS[make.__name__] = make
    return make


@trap
def overflow_before_layer_normalization(net: Net, x: str) -> str:
    return net.normal(net.product(x, net.matrix() * 8e3 + 3e4))


@trap
def overflow_before_instance_normalization(net: Net, x: str) -> str:
    image = net.add("Reshape", x, net.constant([net.rows // ROWS, ROWS, net.width // 8, 8], np.int64))
    kernel = net.constant(net.draw.standard_normal((ROWS, ROWS, 3, 3)) * 8e3 + 3e4)
    image = net.add("Conv", image, kernel, pads=[1, 1, 1, 1])
    image = net.add("InstanceNormalization", image, net.constant(np.ones(ROWS)), net.constant(np.zeros(ROWS)))
    return net.add("Reshape", image, net.constant([net.rows, net.width], np.int64))


@trap
def variance_by_difference(net: Net, x: str) -> str:
    axes = net.constant([1], np.int64)
    far = net.add("Add", x, net.constant(60))
    mean = net.add("ReduceMean", far, axes)
    squares = net.add("ReduceMean", net.add("Mul", far, far), axes)
    variance = net.add("Sub", squares, net.add("Mul", mean, mean))
    root = net.add("Sqrt", net.add("Add", net.add("Abs", variance), net.constant(1e-2)))
    return net.add("Div", net.add("Sub", far, mean), root)


@trap
def long_product(net: Net, x: str) -> str:
    """Sums of 4,096 numbers of about 30."""
    many = net.add("Tile", net.add("Abs", x), net.constant([1, 128 * WIDTH // net.width], np.int64))
    sums = net.product(many, np.abs(net.draw.standard_normal((WIDTH * 128, net.width))) * 200)
    return net.normal(sums)


@trap
def long_window(net: Net, x: str) -> str:
    """Sums over a window of 32 x 8 numbers of about 500."""
    image = net.add("Reshape", net.add("Abs", x), net.constant([-1, 1, ROWS, WIDTH], np.int64))
    kernel = net.constant(np.abs(net.draw.standard_normal((ROWS * WIDTH, 1, ROWS, WIDTH))) * 3000)
    sums = net.add("Reshape", net.add("Conv", image, kernel), net.constant([net.rows, net.width], np.int64))
    return net.add("Mul", x, net.normal(sums))


@trap
def large_softmax(net: Net, x: str) -> str:
    """Scores of about 1e5 whose differences matter."""
    scores = net.product(net.add("Mul", x, net.constant(16)), net.matrix() * 4e3)
    scores = net.add("Mul", net.turned(scores), net.constant(2e-5))
    return net.add("Mul", net.add("Softmax", scores), net.constant(8))


@trap
def softmax_of_close_scores(net: Net, x: str) -> str:
    """Scores of about 3,000, decided by differences of 1."""
    scores = net.add("Add", net.product(x, net.eye(4)), net.constant(3000))
    return net.add("Mul", net.add("Softmax", net.turned(scores)), net.constant(8))


@trap
def growing_stream(net: Net, x: str) -> str:
    """A residual stream that leaves the float16 range with the last sum: each adds at most 15,500."""
    stream = net.add("Mul", x, net.constant(3e3))
    for _ in range(5):
        layer = net.add("Tanh", net.product(net.normal(stream), net.eye()))
        stream = net.add("Add", stream, net.add("Mul", layer, net.constant(15500)))
    return net.normal(stream)


@trap
def massive_channel(net: Net, x: str) -> str:
    """One channel of a residual stream grows by 3e4 in each block."""
    push = np.zeros(net.width)
    push[3] = 3e4
    stream = x
    for _ in range(3):
        layer = net.add("Add", net.product(net.normal(stream), net.eye(0.5)), net.constant(push))
        stream = net.add("Add", stream, layer)
    scale = np.ones(net.width)
    scale[3] = 0
    return net.add("Mul", net.product(net.normal(stream), net.eye(8)), net.constant(scale))


@trap
def large_offset(net: Net, x: str) -> str:
    """x + 2,000 is stored, and 2,000 subtracted again."""
    far = net.add("Add", net.product(x, net.eye()), net.constant(2000))
    return net.add("Sub", net.turned(far), net.constant(2000))


@trap
def angles(net: Net, x: str) -> str:
    """The sine of positions up to 5,000 times frequencies."""
    places = net.add("Add", x, net.constant(np.arange(net.width) % WIDTH * 150.0))
    turned = net.product(places, net.eye(0.7), "angle")
    return net.add("Sin", net.turned(turned))


@trap
def squared_distance(net: Net, x: str) -> str:
    """|a|^2 - 2 a b + |b|^2 of points far from the origin."""
    axes = net.constant([1], np.int64)
    points = net.add("Add", x, net.constant(20 * np.sqrt(WIDTH / net.width)))
    points = net.product(points, net.eye(), "points")
    sizes = net.add("ReduceSumSquare", points, axes)
    products = net.add("MatMul", points, net.add("Transpose", points, perm=[1, 0]))
    apart = net.add(
        "Sub",
        net.add("Add", sizes, net.add("Transpose", sizes, perm=[1, 0])),
        net.add("Mul", products, net.constant(2)),
    )
    return net.product(net.add("Mul", apart, net.constant(0.2)), net.matrix(net.rows) / 3)


@trap
def underflow(net: Net, x: str) -> str:
    """Numbers of about 1e-8, scaled up again."""
    small = net.product(net.product(x, net.eye(1e-4)), net.eye(1e-4))
    return net.product(net.product(small, net.eye(1e4)), net.eye(1e4))


@trap
def logarithm_of_small(net: Net, x: str) -> str:
    """The logarithm of probabilities down to 1e-8."""
    chances = net.add("Softmax", net.product(x, net.matrix() * 5))
    return net.add("Mul", net.add("Log", net.turned(chances)), net.constant(0.1))


@trap
def norm_by_squares(net: Net, x: str) -> str:
    """x / |x| for numbers of about 400."""
    large = net.product(x, net.eye(1000))
    squares = net.add("Mul", large, large)
    sizes = net.add("MatMul", squares, net.constant(np.ones((net.width, 1))))
    return net.add("Mul", net.add("Div", large, net.add("Sqrt", sizes)), net.constant(5))


@trap
def softmax_by_exponentials(net: Net, x: str) -> str:
    """exp(x) / sum exp(x) without subtracting the maximum."""
    powers = net.add("Exp", net.product(x, net.eye(30)))
    sums = net.add("MatMul", powers, net.constant(np.ones((net.width, 1))))
    return net.add("Mul", net.add("Div", powers, sums), net.constant(8))


@trap
def near_one(net: Net, x: str) -> str:
    """log(1 - sigmoid(x)) for sigmoids close to 1."""
    near = net.add("Sigmoid", net.add("Add", net.product(x, net.eye(2)), net.constant(8)))
    apart = net.add("Sub", net.constant(1), net.turned(near))
    return net.add("Log", net.add("Add", apart, net.constant(1e-6)))


@trap
def differences_of_times(net: Net, x: str) -> str:
    """Differences of successive times of about 1e5."""
    times = net.add("Add", net.product(x, net.eye(5)), net.constant(np.arange(net.width) % WIDTH + 1e4))
    matrix = np.eye(net.width) - np.eye(net.width, k=1)
    matrix[0, 0] = 0
    return net.product(times, matrix)


@trap
def cubes(net: Net, x: str) -> str:
    """(10 x + 50)^3, scaled down by a matrix product."""
    base = net.add("Add", net.product(x, net.eye(10)), net.constant(50))
    cube = net.add("Mul", net.add("Mul", base, base), base)
    return net.normal(net.product(cube, net.eye(1e-4)))


@trap
def sum_before_mean(net: Net, x: str) -> str:
    """Large numbers whose mean is subtracted by a matrix product."""
    large = net.product(x, net.matrix() * 1e4)
    large = net.add("Add", large, net.constant(6e4))
    apart = net.product(large, np.eye(net.width) - 1 / net.width)
    return net.add("Mul", apart, net.constant(2e-5))


def precision_model(name: str, rows: int = ROWS, width: int = WIDTH) -> Trap:
    """Return the trap with well-conditioned layers before and after it."""
    net = Net(sorted(TRAPS).index(name), rows, width)
    x = "x"
    for _ in range(12):
        x = net.calm(x)
    x = TRAPS[name](net, x)
    while len(net.nodes) < _LEAST_NODES:
        x = net.calm(x)
    shape = [rows, width]
    graph = helper.make_graph(
        net.nodes,
        name,
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_tensor_value_info(x, 1, shape)],
        net.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    case = {"x": net.draw.standard_normal(shape).astype(np.float32)}
    return Trap(model, case)
