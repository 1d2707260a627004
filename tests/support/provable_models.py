"""Random small models with correct results that validation must accept: by family, a function of a generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_models import model, node, subgraph, value

Array = np.ndarray[Any, Any]
Random = np.random.Generator
FLOAT = np.float32
FLOATS, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL


class Drawn(NamedTuple):
    """A model, its inputs, and texts of which an unproved result's note must have one; none: everything must be right.

    accuracy: allowed difference from ONNX Runtime, in ulp of the precision and relative to the largest value; None: no comparison.
    """

    proto: onnx.ModelProto
    inputs: list[Array]
    reasons: tuple[str, ...] = ()
    accuracy: float | None = 32.0


class Draft:
    """A graph under construction; each method returns the name of a new tensor."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, Array] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._arrays: list[Array] = []

    def input(self, array: Any, shape: Sequence[int | str] | None = None) -> str:
        array = np.asarray(array)
        name, dtype = f"x{len(self._inputs)}", helper.np_dtype_to_tensor_dtype(array.dtype)
        self._inputs.append(value(name, list(array.shape) if shape is None else shape, dtype))
        self._arrays.append(array)
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = np.asarray(array)
        return name

    def several(self, op: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        names = [f"t{len(self._nodes)}.{k}" for k in range(count)]
        self._nodes.append(node(op, inputs, names, name=f"{op}{len(self._nodes)}", **attributes))
        return names

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.several(op, inputs, 1, **attributes)[0]

    def drawn(self, *outputs: str, opset: int = 17, **more: Any) -> Drawn:
        proto = model(self._nodes, self._inputs, list(dict.fromkeys(outputs)), self._constants, opset)
        return Drawn(proto, self._arrays, **more)


Family = Callable[[Random], Drawn]


def ints(*numbers: Any) -> Array:
    return np.array(numbers, np.int64)


def short(numbers: Any) -> Array:
    """Round to 8 significand bits, which every precision can represent."""
    mantissas, exponents = np.frexp(np.asarray(numbers, np.float64))
    return np.ldexp(np.round(mantissas * 128) / 128, exponents).astype(FLOAT)


def quarters(random: Random, shape: Sequence[int], most: int = 12) -> Array:
    return (random.integers(-most, most + 1, shape) / 4).astype(FLOAT)


def weights(random: Random, *shape: int) -> Array:
    return random.standard_normal(shape).astype(FLOAT)


# ---- data movement, integers and sizes


def _view(random: Random, draft: Draft, name: str, shape: list[int]) -> tuple[str, list[int]]:
    kind = int(random.integers(6))
    if kind == 0:
        return draft.add("Identity", name), shape
    if kind == 1:
        return draft.add("Reshape", name, draft.constant(ints(-1))), [int(np.prod(shape))]
    if kind == 2:
        axis = int(random.integers(0, len(shape) + 1))
        sizes = [int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))]
        return draft.add("Flatten", name, axis=axis), sizes
    if kind == 3:
        order = [int(element) for element in random.permutation(len(shape))]
        return draft.add("Transpose", name, perm=order), [shape[item] for item in order]
    if kind == 4 or 1 not in shape:
        return draft.add("Unsqueeze", name, draft.constant(ints(0))), [1, *shape]
    axis = shape.index(1)
    return draft.add("Squeeze", name, draft.constant(ints(axis))), shape[:axis] + shape[axis + 1 :]


def views(random: Random) -> Drawn:
    """Outputs of pure data-movement nodes, alongside their inputs."""
    draft = Draft()
    shape = [int(random.integers(1, 4)), *(int(number) for number in random.integers(2, 9, 2))]
    x = draft.input(short(random.standard_normal(shape)))
    weight = draft.constant(weights(random, shape[2], shape[2]))
    output = [
        lambda: draft.add("MatMul", x, weight),
        lambda: draft.add("Relu", draft.add("MatMul", x, weight)),
        lambda: draft.add("Softmax", x, axis=-1),
        lambda: draft.add("Tanh", draft.add("Mul", x, draft.constant(FLOAT(1.3)))),
    ][int(random.integers(4))]()
    outputs = [output] if random.integers(2) else []
    for _ in range(int(random.integers(1, 4))):
        name, sizes = output, shape
        for _ in range(int(random.integers(1, 4))):
            name, sizes = _view(random, draft, name, sizes)
        outputs.append(name)
    return draft.drawn(*outputs)


def integers(random: Random) -> Drawn:
    """32- and 64-bit integers converted to floats and back, and rows that they select."""
    draft, size, most = Draft(), int(random.integers(3, 12)), int(random.choice([5, 100, 2000, 30000]))
    kinds: dict[Any, int] = {np.int64: INT64, np.int32: INT32, FLOAT: FLOATS}
    kind: Any = [np.int64, np.int32][int(random.integers(2))]
    name = draft.input(random.integers(-most, most, (2, size)).astype(kind))
    for step in random.integers(0, 8, int(random.integers(2, 7))):
        if step < 3:
            kind = list(kinds)[step]
            name = draft.add("Cast", name, to=kinds[kind])
        elif step == 3:
            name = draft.add("Add", name, draft.constant(kind(1)))
        elif step == 4:
            name = draft.add("Mod", name, draft.constant(kind(random.integers(2, 9))), fmod=int(kind is FLOAT))
        elif step == 5:
            name = draft.add("Gather", name, draft.constant(random.integers(0, size, size)), axis=1)
        else:
            name = draft.add("Abs", name) if step == 6 else draft.add("Mul", name, draft.constant(kind(2)))
    whole = draft.add("Cast", name, to=INT64)
    rows = draft.add("Mod", whole, draft.constant(np.int64(16)))
    return draft.drawn(name, whole, draft.add("Gather", draft.constant(short(weights(random, 16, 3))), rows))


def ranges(random: Random) -> Drawn:
    """Positions from Range, as indices, masks and angles."""
    draft, rows = Draft(), int(random.integers(2, 40))
    x = draft.input(short(weights(random, rows, 3)), ["n", 3])
    count = draft.add("Gather", draft.add("Shape", x), draft.constant(np.int64(0)))
    steps = draft.add("Range", draft.constant(np.int64(0)), count, draft.constant(np.int64(1)))
    reals = draft.add("Cast", steps, to=FLOATS)
    below = [draft.add("Unsqueeze", reals, draft.constant(ints(axis))) for axis in (0, 1)]
    return draft.drawn(
        draft.add("Floor", draft.add("Mul", reals, draft.constant(FLOAT(0.5)))),
        draft.add("Where", draft.add("Less", *below), draft.constant(FLOAT(1)), draft.constant(FLOAT(0))),
        draft.add("Sin", draft.add("Mul", reals, draft.constant(FLOAT(0.01)))),
        draft.add("Gather", x, steps),
    )


def _resized(random: Random, draft: Draft, x: str, sizes: str) -> str:
    spatial = draft.add("Slice", sizes, draft.constant(ints(2)), draft.constant(ints(4)))
    if random.integers(2):
        spatial = draft.add("Mul", spatial, draft.constant(ints(2)))
    else:
        scale = draft.constant(FLOAT(random.choice([1.5, 0.7, 1.1, 1.2, 2.3])))
        spatial = draft.add("Floor", draft.add("Mul", draft.add("Cast", spatial, to=FLOATS), scale))
        spatial = draft.add("Cast", spatial, to=INT64)
    first = draft.add("Slice", sizes, draft.constant(ints(0)), draft.constant(ints(2)))
    modes = [("nearest", "asymmetric"), ("linear", "half_pixel"), ("cubic", "half_pixel"), ("linear", "align_corners")]
    mode, coordinates = modes[int(random.integers(len(modes)))]
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
    return draft.add("Resize", x, "", "", draft.add("Concat", first, spatial, axis=0), **attributes)


def sizes(random: Random) -> Drawn:
    """Sizes computed on the host from Shape, of inputs with dynamic axes."""
    draft = Draft()
    shape = [int(random.integers(1, 3)), 4, *(2 * int(number) for number in random.integers(2, 8, 2))]
    x = draft.input(short(random.standard_normal(shape)), ["b", 4, "h", "w"])
    all_of = draft.add("Shape", x)
    batch, rows, columns = (draft.add("Gather", all_of, draft.constant(ints(axis))) for axis in (0, 2, 3))
    if random.integers(3):
        return draft.drawn(_resized(random, draft, x, all_of), accuracy=256.0)
    half = draft.add(
        "Div", draft.add("Mul", draft.add("Mul", rows, columns), draft.constant(ints(4))), draft.constant(ints(2))
    )
    target = draft.add("Concat", batch, draft.constant(ints(2)), half, axis=0)
    wide = draft.add("Expand", draft.constant(short(weights(random, 1, 1, 1, 1))), all_of)
    return draft.drawn(draft.add("Reshape", x, target), draft.add("Add", wide, x))


# ---- NaN, ties and exact sums


def powers(random: Random) -> Drawn:
    """Negative bases, zero exponents, and integers."""
    draft, shape = Draft(), (2, int(random.integers(3, 9)))
    base = short(random.standard_normal(shape) * 2)
    base.flat[:3] = 0, -2, 1
    x = draft.input(base)
    x = draft.add("Mul", x, draft.constant(FLOAT(1.25))) if random.integers(2) else x
    kind = int(random.integers(5))
    if kind == 0:
        exponent = draft.constant(FLOAT(random.choice([0, 1, 2, 3, -1, -2, 0.5, 1.5, -0.5])))
    elif kind == 1:
        exponent = draft.input(random.integers(-3, 4, shape).astype(FLOAT))
    elif kind == 2:
        exponent = draft.input(random.integers(0, 4, shape))
    elif kind == 3:
        x = draft.input(random.integers(-5, 6, shape))
        exponent = draft.constant([np.int64(3), FLOAT(2), FLOAT(1), FLOAT(0)][int(random.integers(4))])
    else:
        return draft.drawn(draft.add(str(random.choice(["Sqrt", "Log"])), x))
    return draft.drawn(draft.add("Pow", x, exponent))


def nans(random: Random) -> Drawn:
    """Square roots and logarithms of negative numbers, and nodes that read them."""
    draft, size = Draft(), int(random.integers(3, 9))
    x = draft.input(short(random.standard_normal((3, size)) * 2))
    name = draft.add(str(random.choice(["Sqrt", "Log", "Asin", "Acosh"])), x)
    is_nan = draft.add("IsNaN", name)
    less = draft.add("Less", x, draft.constant(FLOAT(0)))
    return draft.drawn(
        is_nan,
        draft.add("Where", is_nan, draft.constant(FLOAT(0)), name),
        draft.add("Where", less, x, name),
        draft.add("ReduceSum", name, draft.constant(ints(1))),
        draft.add("MatMul", name, draft.constant(short(weights(random, size, 4)))),
    )


def ties(random: Random) -> Drawn:
    """Rounding ties, comparisons of equal numbers, running sums and remainders of multiples."""
    draft = Draft()
    x = draft.input(quarters(random, (2, 9)))
    x = draft.add("Mul", x, draft.constant(FLOAT(random.choice([0.5, 2, 1])))) if random.integers(2) else x
    other = draft.constant(quarters(random, (2, 9)))
    compared = draft.add(str(random.choice(["Less", "Greater", "Equal", "LessOrEqual"])), x, other)
    axis = draft.constant(np.int64(random.integers(2)))
    flags = {"exclusive": int(random.integers(2)), "reverse": int(random.integers(2))}
    numbers = draft.add("Cast", draft.add("Abs", draft.add("Floor", x)), to=INT64)
    return draft.drawn(
        *(draft.add(op, x) for op in ("Round", "Floor", "Ceil", "Sign")),
        draft.add("Clip", x, draft.constant(FLOAT(-1)), draft.constant(FLOAT(1))),
        draft.add("Where", compared, x, draft.constant(FLOAT(7))),
        draft.add("OneHot", numbers, draft.constant(ints(8)), draft.constant(np.array([0, 1], FLOAT))),
        draft.add("Floor", draft.add("CumSum", x, axis, **flags)),
        draft.add("Mod", x, draft.constant((random.integers(1, 12, 9) / 4).astype(FLOAT)), fmod=1),
    )


def exact_sums(random: Random) -> Drawn:
    """Sums of integers and quarters, and selections based on them."""
    draft, size = Draft(), int(random.integers(2, 12))
    x = draft.input(
        quarters(random, (3, size)) if random.integers(2) else random.integers(-3, 4, (3, size)).astype(FLOAT)
    )
    total = [
        lambda: draft.add("ReduceSum", x, draft.constant(ints(1))),
        lambda: draft.add("CumSum", x, draft.constant(np.int64(1))),
        lambda: draft.add("MatMul", x, draft.constant(random.integers(-2, 3, (size, 4)).astype(FLOAT))),
        lambda: draft.add("ReduceMax", x, axes=[1]),
    ][int(random.integers(4))]()
    return draft.drawn(
        total,
        draft.add("Equal", total, draft.constant(FLOAT(2))),
        draft.add("Floor", total),
        draft.add("Cast", total, to=INT64),
        draft.add("ArgMax", total, axis=0),
        draft.add("Shape", draft.add("NonZero", draft.add("Transpose", total))),
    )


def mel_weights(random: Random) -> Drawn:
    """Mel filter banks, and power in their bands."""
    draft, length = Draft(), int(random.choice([64, 128, 512]))
    ends = [draft.constant(FLOAT(item)) for item in (random.choice([0, 20, 133.3]), random.choice([3000, 3800.5]))]
    numbers = [
        draft.constant(np.int64(element)) for element in (random.integers(3, 20), length, random.choice([8000, 16000]))
    ]
    matrix = draft.add("MelWeightMatrix", *numbers, *ends)
    return draft.drawn(matrix, draft.add("MatMul", draft.input(short(random.random((3, length // 2 + 1)))), matrix))


def scaled_sums(random: Random) -> Drawn:
    """Exact products whose scales may be folded into the weights, with rounding larger than the sum."""
    draft, size = Draft(), int(random.integers(4, 16))
    if random.integers(2):
        x = draft.input(random.integers(-99, 100, (4, size)).astype(FLOAT))
        product = draft.add("MatMul", x, draft.constant(random.integers(-99, 100, (size, 6)).astype(FLOAT)))
        scaled = draft.add("Mul", product, draft.constant(weights(random, 6)))
        return draft.drawn(draft.add("Add", scaled, draft.constant(weights(random, 6))), accuracy=256.0)
    x = draft.input(random.integers(0, 256, (1, 3, size, size)).astype(FLOAT))
    product = draft.add("Conv", x, draft.constant(random.integers(-9, 10, (4, 3, 3, 3)).astype(FLOAT)))
    scale, bias, mean, variance = (
        draft.constant(short(item)) for item in (*weights(random, 3, 4), random.uniform(0.5, 2, 4))
    )
    return draft.drawn(draft.add("BatchNormalization", product, scale, bias, mean, variance), accuracy=256.0)


# ---- selections


def order(random: Random) -> Drawn:
    """Sorting of numbers with ties and near-ties."""
    draft, size = Draft(), int(random.integers(4, 20))
    x = draft.input(quarters(random, (3, size), 5) if random.integers(2) else short(weights(random, 3, size)))
    kind = int(random.integers(4))
    if kind == 1:
        x = draft.add("Mul", x, draft.constant(FLOAT(0.5)))
    elif kind == 2:
        x = draft.add("MatMul", x, draft.constant(np.eye(size, dtype=FLOAT)))
    elif kind == 3:
        x = draft.add("Sigmoid", x)
    count = draft.constant(ints(int(random.integers(1, size + 1))))
    values, indices = draft.several("TopK", [x, count], 2, axis=1, largest=int(random.integers(2)))
    first = draft.add("ArgMax", x, axis=1, select_last_index=int(random.integers(2)))
    least = draft.add("ArgMin", x, axis=0)
    # Equal numbers have equal sigmoids on every device, but no rule guarantees it.
    reasons = ("elements depend on a choice that rounding may flip",) if kind == 3 else ()
    return draft.drawn(values, indices, first, least, reasons=reasons, accuracy=None if reasons else 32.0)


def selections(random: Random) -> Drawn:
    """Results with data-dependent sizes, from numbers of which some are 0."""
    draft, size = Draft(), int(random.integers(4, 12))
    x = draft.input(quarters(random, (2, size), 4))
    x = [
        lambda: x,
        lambda: draft.add("Relu", x),
        lambda: draft.add("Mul", x, draft.constant(FLOAT(2))),
        lambda: draft.add("Sub", x, draft.constant(FLOAT(0.25))),
    ][int(random.integers(4))]()
    mask = draft.add("Greater", x, draft.constant(FLOAT(0)))
    places = draft.add("Transpose", draft.add("NonZero", mask), perm=[1, 0])
    return draft.drawn(
        draft.add("NonZero", x),
        draft.add("Compress", x, draft.add("Reshape", mask, draft.constant(ints(-1)))),
        *draft.several("Unique", [x], 4, sorted=int(random.integers(2))),
        draft.add("GatherND", x, places),
    )


def boxes(random: Random) -> Drawn:
    """16- or 32-bit boxes and scores, with equal scores, and IoU equal to the threshold."""
    draft, count = Draft(), int(random.integers(4, 14))
    low, high = random.integers(0, 8, (1, count, 2)), random.integers(1, 8, (1, count, 2))
    corners = np.concatenate([low, low + high], -1).astype(FLOAT)
    scores = (
        (random.integers(0, 5, (1, 2, count)) / 4).astype(FLOAT)
        if random.integers(2)
        else short(random.random((1, 2, count)))
    )
    if random.integers(2):
        halves = [draft.input(item.astype(np.float16)) for item in (corners, scores)]
        x, s = (draft.add("Cast", tensor, to=FLOATS) for tensor in halves)
    else:
        x, s = draft.input(corners), draft.input(scores)
    kind = int(random.integers(3))
    x = draft.add("Mul", x, draft.constant(FLOAT(0.5))) if kind == 1 else x
    s = draft.add("Mul", s, draft.constant(FLOAT(0.5))) if kind == 2 else s
    overlap = draft.constant(np.array([random.choice([0.5, 0.25, 1 / 3, 0.3, 0.0])], FLOAT))
    more = [draft.constant(np.array([0.25], FLOAT))] if random.integers(2) else []
    return draft.drawn(draft.add("NonMaxSuppression", x, s, draft.constant(ints(count)), overlap, *more))


def scatters(random: Random) -> Drawn:
    """Scatters with several updates of one element, and a comparison with the result."""
    draft, rows, count = Draft(), 8, int(random.integers(2, 9))
    x, updates = draft.input(quarters(random, (rows, 3))), draft.input(quarters(random, (count, 3), 8))
    updates = draft.add("Mul", updates, draft.constant(FLOAT(0.5))) if random.integers(2) else updates
    how = str(random.choice(["add", "mul", "max", "min"]))
    kind = int(random.integers(3))
    if kind == 0:
        places = draft.input(random.integers(0, rows, (count, 3)))
        output = draft.add("ScatterElements", x, places, updates, axis=0, reduction=how)
    elif kind == 1:
        output = draft.add("ScatterND", x, draft.input(random.integers(0, rows, (count, 1))), updates, reduction=how)
    else:
        places = draft.input(np.stack([random.permutation(rows)[:count] for _ in range(3)], 1))
        output = draft.add("ScatterElements", x, places, updates, axis=0)
    return draft.drawn(output, draft.add("Greater", output, draft.constant(FLOAT(0.6))), opset=18)


# ---- normalisation and control flow


def norms(random: Random) -> Drawn:
    """A mean that is large relative to the deviation, in numbers that every precision can represent."""
    draft, mean = Draft(), float(random.choice([0, 100, 1000, 10000]))
    shape = (2, 4, *random.integers(3, 7, 2))
    spread = random.standard_normal(shape) * float(random.choice([0.05, 0.2]))
    x = short(mean * (1 + spread) if mean else spread)
    name, scale, bias = draft.input(x), *(draft.constant(short(weights(random, 4))) for _ in range(2))
    kind = int(random.integers(4))
    if kind == 0:
        output = draft.add("InstanceNormalization", name, scale, bias)
    elif kind == 1:
        ones, zeros = draft.constant(np.ones(shape[1:], FLOAT)), draft.constant(np.zeros(shape[1:], FLOAT))
        output = draft.add("LayerNormalization", name, ones, zeros, axis=1)
    elif kind == 2:
        output = draft.add("GroupNormalization", name, scale, bias, num_groups=2)
    else:
        statistics = [draft.constant(short(np.full(4, item))) for item in (x.mean(), x.var())]
        output = draft.add("BatchNormalization", name, scale, bias, *statistics)
    return draft.drawn(
        output, opset=21, accuracy=None if kind == 2 else 2000.0
    )  # ONNX Runtime squares before it subtracts


def control(random: Random) -> Drawn:
    """Loops of few or no iterations, and branches that return constants."""
    draft = Draft()
    x = draft.input(short(weights(random, 2, 3)))
    if random.integers(2):
        flag = draft.input(np.array(bool(random.integers(2))))
        number = short(weights(random, 2, 3))
        then = subgraph([node("Identity", ["k"], ["a"])], [], [value("a", [2, 3])], k=number)
        constant = node("Constant", [], ["e"], value=numpy_helper.from_array(number + 1))
        output = draft.add("If", flag, then_branch=then, else_branch=subgraph([constant], [], [value("e", [2, 3])]))
        return draft.drawn(output, draft.add("Add", output, x), reasons=("did not run in any case",))
    body = subgraph(
        [node("Identity", ["go"], ["on"]), node("Add", ["v", "one"], ["w"]), node("Mul", ["w", "one"], ["s"])],
        [value("i", [], INT64), value("go", [], BOOL), value("v", [2, 3])],
        [value("on", [], BOOL), value("w", [2, 3]), value("s", [2, 3])],
        one=np.array(1, FLOAT),
    )
    trips = np.int64(random.choice([0, 0, 1, 3]))
    count = draft.input(trips) if random.integers(2) else draft.constant(trips)
    last, scanned = draft.several("Loop", [count, draft.constant(np.array(True)), x], 2, body=body)
    reasons = () if trips else ("did not run in any case",)
    return draft.drawn(draft.add("Relu", last), scanned, reasons=reasons)


ALL: tuple[Family, ...] = (
    *(views, integers, ranges, sizes, powers, nans, ties, exact_sums, scaled_sums, order, selections, boxes, scatters),
    *(norms, control, mel_weights),
)
FAMILIES: dict[str, Family] = {family.__name__: family for family in ALL}
