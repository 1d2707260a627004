"""Random ONNX models, built node by node: each node is evaluated when added, for each set of sizes the model is called with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, helper, numpy_helper

from random_nodes.oracle import IR_VERSION, Array, Data, OneNode, RefusedError, words

FLOATS = ("float32", "float32", "float32", "float32", "float16", "float64")
INTEGERS = ("int64", "int64", "int32", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
ALL = (*FLOATS, *INTEGERS, "bool")
# Sizes of a symbolic dimension, one per call.
NAMED = ((2, 5, 3), (3, 1, 4), (1, 3, 2), (4, 2, 4), (3, 0, 2), (5, 3, 8))
SIZES = (1, 2, 3, 4, 5, 8)
MOST_ELEMENTS = 4096
Size = tuple[int, ...]  # sizes of one axis, one per call

# Operators that round once or only move data: equal operands give bit-identical results everywhere.
ROUNDED = words(
    "Add Sub Mul Div Sqrt Reciprocal Neg Abs Min Max Floor Ceil Round Relu Clip Sign Where Cast CastLike Identity"
    " Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Gather GatherElements GatherND Expand Tile Pad"
    " DepthToSpace SpaceToDepth Trilu ScatterElements ScatterND TensorScatter ReverseSequence Compress EyeLike"
    " Constant ConstantOfShape OneHot Range MaxPool GlobalMaxPool MaxUnpool ReduceMax ReduceMin TopK Hardmax If"
    " Dropout BitCast ThresholdedRelu Unique SequenceConstruct SequenceAt SequenceInsert SequenceErase"
    " SplitToSequence ConcatFromSequence SequenceEmpty Optional OptionalGetElement MaxRoiPool"
)
# Sums of products: exact if no sum needs more significand bits than the type has.
SUMMED = words("MatMul Gemm Conv ConvTranspose Einsum ReduceSum ReduceSumSquare ReduceL1 CumSum Sum Col2Im SumPool")
# Means: their error depends on the sum of the averaged values.
AVERAGED = words("ReduceMean AveragePool GlobalAveragePool Mean LpPool GlobalLpPool ReduceL2 DFT STFT")
# Operators that round: between nodes, the engine may keep a file's float16 values in float32.
COMPUTED = words("Add Sub Mul Div Sqrt Reciprocal Cast CastLike")
BITS = {"float16": 11, "float32": 24, "float64": 53}


class SkipError(Exception):
    """Raised if a node cannot be generated here."""


@dataclass
class Value:
    """A value of the model and its arrays in each call."""

    name: str
    data: list[Data]
    exact: bool = True  # whether its bits are known, so that a step function may read it

    @property
    def dtype(self) -> str:
        return value_type(self.data[0])

    @property
    def is_list(self) -> bool:
        return isinstance(self.data[0], list)

    @property
    def rank(self) -> int:
        return int(self.data[0].ndim)

    @property
    def sizes(self) -> list[Size]:
        return [tuple(int(one.shape[axis]) for one in self.data) for axis in range(self.rank)]

    @property
    def least(self) -> int:
        """Return its minimum number of elements over all calls."""
        return min(int(one.size) for one in self.data)


@dataclass
class Made:
    """A node with its inputs, including captures of its bodies."""

    node: NodeProto
    reads: list[Value]
    results: list[Value]
    oracle: OneNode
    exact: bool

    @property
    def sums(self) -> bool:
        return self.node.op_type in SUMMED or self.node.op_type in AVERAGED


@dataclass
class Maker:
    """calls: number of calls of the model, each with other sizes for symbolic dimensions."""

    random: np.random.Generator
    opset: int = 21
    calls: int = 1
    symbolic: bool = False
    without: frozenset[str] = frozenset()  # element types to avoid
    unnamed: float = 0.1  # probability that a size has no symbolic name
    nodes: list[Made] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    inputs: list[tuple[Value, list[Any] | None]] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)
    names: dict[Size, str] = field(default_factory=dict)
    counter: int = 0

    # ---- random choices

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def one(self, options: Sequence[Any]) -> Any:
        return options[int(self.random.integers(len(options)))]

    def whole(self, low: int, high: int) -> int:
        """Return a random integer from `low` to `high`, inclusive."""
        return int(self.random.integers(low, high + 1))

    # ---- sizes

    def size(self) -> Size:
        if self.symbolic and self.chance(0.4):
            return tuple(self.one(NAMED[:2] if self.chance(0.8) else NAMED)[: self.calls])
        if self.chance(0.02):
            return (0,) * self.calls
        return (int(self.one(SIZES)),) * self.calls

    def fixed(self, *sizes: int) -> list[Size]:
        return [(size,) * self.calls for size in sizes]

    def shape(self, low: int = 0, high: int = 5) -> list[Size]:
        rank = self.whole(low, max(low, min(high, 3))) if self.chance(0.75) else self.whole(low, high)
        while True:
            sizes = [self.size() for _ in range(rank)]
            if max(np.prod(one, dtype=int) for one in zip(*sizes, strict=True)) <= 1024 if sizes else True:
                return sizes

    # ---- inputs and constants

    def fresh(self) -> str:
        self.counter += 1
        return f"v{self.counter}"

    def array(self, dtype: str, shape: Sequence[int], low: float, high: float, exact: bool) -> Array:
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return self.random.random(tuple(shape)) < 0.5
        if kind.kind in "iu":
            least = max(low, np.iinfo(kind).min)
            return self.random.integers(
                int(np.ceil(least)), int(min(high, np.iinfo(kind).max)) + 1, tuple(shape)
            ).astype(kind)
        if exact:
            eighths = self.random.integers(int(np.ceil(low * 8)), int(np.floor(high * 8)) + 1, tuple(shape))
            return np.asarray(eighths / 8).astype(kind)
        return np.asarray(self.random.uniform(low, high, tuple(shape))).astype(kind)

    def leaf(
        self,
        dtype: str,
        sizes: Sequence[Size],
        low: float = -6,
        high: float = 6,
        *,
        exact: bool | None = None,
        constant: bool | None = None,
    ) -> Value:
        """Return a constant or an input; constants need equal sizes in all calls."""
        if exact is None:
            exact = self.chance(0.6)
        if dtype in self.without:
            raise SkipError(f"{dtype} does not come")
        shapes = [tuple(size[k] for size in sizes) for k in range(self.calls)]
        if max(np.prod(shape, dtype=int) for shape in shapes) > MOST_ELEMENTS:
            raise SkipError("too large")
        same_sizes = len(set(shapes)) == 1
        if constant is None:
            constant = same_sizes and self.chance(0.45)
        if constant:
            if not same_sizes:
                raise SkipError("a constant has one shape")
            array = self.array(dtype, shapes[0], low, high, exact)
            return self.constant(array)
        return self.input([self.array(dtype, shape, low, high, exact) for shape in shapes])

    def constant(self, array: Array) -> Value:
        value = Value(self.fresh(), [np.asarray(array)] * self.calls)
        self.constants.append(value)
        if array.size > 1 or self.chance(0.1):
            self.values.append(value)
        return value

    def input(self, arrays: list[Array]) -> Value:
        value = Value(self.fresh(), list(arrays))
        declared: list[Any] = [size[0] if len(set(size)) == 1 else self.named(size) for size in value.sizes]
        self.inputs.append((value, declared))
        self.values.append(value)
        return value

    def named(self, size: Size) -> str | None:
        if size not in self.names:
            self.names[size] = "NMKLPQRSTU"[len(self.names)] if len(self.names) < 10 else f"D{len(self.names)}"
        return None if self.chance(self.unnamed) else self.names[size]

    def list_of(self, values: Sequence[int], dtype: str = "int64", computed: bool | None = None) -> Value:
        """Return sizes, axes and the like: a constant, or sometimes an input."""
        array = np.array(values, dtype)
        if computed if computed is not None else self.chance(0.12):
            return self.input([array] * self.calls)
        return self.constant(array)

    def lists_of(self, rows: Sequence[Sequence[int]], dtype: str = "int64") -> Value:
        """Return numbers that differ from call to call."""
        arrays = [np.array(row, dtype) for row in rows]
        if all(np.array_equal(one, arrays[0]) for one in arrays):
            return self.list_of(list(rows[0]), dtype)
        return self.input(arrays)

    # ---- operands

    def pick(
        self,
        dtypes: str | Sequence[str] = ALL,
        low_rank: int = 0,
        high_rank: int = 5,
        *,
        exact: bool = False,
        low: float = -1e3,
        high: float = 1e3,
        nonempty: bool = False,
        test: Callable[[Value], bool] | None = None,
        sizes: Sequence[Size] | None = None,
        reuse: float = 0.85,
    ) -> Value:
        """Return an existing value, preferably a recent one, or a new one. low, high: range of its elements."""
        kinds = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
        kinds = tuple(one for one in kinds if one not in self.without)
        if not kinds:
            raise SkipError("no element type")
        if self.chance(reuse):
            found = [
                one
                for one in self.values
                if not one.is_list
                and one.dtype in kinds
                and low_rank <= one.rank <= high_rank
                and (one.exact or not exact)
                and (not nonempty or one.least > 0)
                and (sizes is None or one.sizes == list(sizes))
                and within(one, low, high)
                and (test is None or test(one))
            ]
            if found:
                return found[-1] if self.chance(0.5) else self.one(found)
        dtype = self.one(kinds)
        for _ in range(20):
            given = sizes if sizes is not None else self.shape(low_rank, high_rank)
            if nonempty and any(0 in size for size in given):
                continue
            if test is not None and sizes is None:
                probe = Value("", [np.zeros([size[k] for size in given], dtype) for k in range(self.calls)])
                if not test(probe):
                    continue
            return self.leaf(dtype, given, max(low, -6), min(high, 6), exact=True if exact else None)
        raise SkipError("no operand")

    def beside(self, x: Value, dtype: str | None = None, **options: Any) -> Value:
        """Return an operand that broadcasts with `x`: of its shape, with axes of size 1, or of lower rank."""
        sizes = list(x.sizes)
        kind = self.random.random()
        if kind < 0.45:
            pass
        elif kind < 0.6:
            sizes = []
        elif kind < 0.8:
            sizes = sizes[self.whole(0, len(sizes)) :]
            sizes = [size if self.chance(0.6) else self.fixed(1)[0] for size in sizes]
        else:
            sizes = [size if self.chance(0.5) else self.fixed(1)[0] for size in sizes]
        return self.pick(dtype or x.dtype, 0, 8, sizes=sizes, **options)

    # ---- nodes

    def node(
        self,
        op: str,
        *inputs: Value | None,
        outputs: int = 1,
        captures: Sequence[Value] = (),
        exact: bool | None = None,
        wild: bool = False,
        expected: Callable[[dict[str, Data], list[Data]], list[Data]] | None = None,
        **attributes: Any,
    ) -> list[Value]:
        """Add a node. exact: whether its results' bits are known, if the operator's name does not decide it. wild:
        infinities are allowed."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        names = [value.name if value else "" for value in given]
        kept = {name: attribute for name, attribute in attributes.items() if attribute is not None}
        if not onnx.defs.has(op, self.opset, ""):
            raise SkipError(f"{op} is not of operator set {self.opset}")
        results = [self.fresh() for _ in range(outputs)]
        proto = helper.make_node(op, names, results, name=f"{op}_{results[0]}", **kept)
        reads: list[Value] = []
        for value in (*given, *captures):
            if value is not None and all(value is not other for other in reads):
                reads.append(value)
        oracle = OneNode(proto, [one.name for one in reads], [one.data[0] for one in reads], self.opset)
        if expected:
            oracle = Own(oracle, expected)  # type: ignore[assignment]
        made: list[list[Data]] = []
        try:
            for k in range(self.calls):
                made.append(oracle([one.data[k] for one in reads]))
        except RefusedError as error:
            raise SkipError(f"{op}: {error}") from error
        columns = list(zip(*made, strict=True))
        if len(columns) != outputs:
            raise SkipError(f"{op}: results left out")
        if any(not tame(one, wild) for column in columns for one in column):
            raise SkipError(f"{op}: not tame")
        if any(len({np.ndim(one) for one in column}) > 1 for column in columns if not isinstance(column[0], list)):
            raise SkipError(f"{op}: more than one rank")
        if any(value_type(column[0]) in self.without for column in columns):
            raise SkipError(f"{op}: a type that does not come")
        known = self.known(proto, reads, columns, oracle) if exact is None else exact
        values = [
            Value(name, list(column), known or not is_float(column[0]))
            for name, column in zip(results, columns, strict=True)
        ]
        self.nodes.append(Made(proto, reads, values, oracle, known))
        self.values.extend(values)
        return values

    def known(self, node: NodeProto, reads: list[Value], columns: list[Any], oracle: OneNode) -> bool:
        """Return whether any correct implementation gives bit-identical results."""
        if not all(one.exact for one in reads):
            return False
        if node.op_type in ROUNDED:
            return node.op_type not in COMPUTED or is_whole_half(node, reads, columns, self.opset)
        if node.op_type not in SUMMED or any(a.name in ("alpha", "beta") for a in node.attribute):
            return not any(is_float(column[0]) for column in columns)
        if not is_float(columns[0][0]):
            return True
        by_name = {one.name: one for one in reads}
        grains = [grain(by_name[name]) for name in node.input if name and is_float(by_name[name].data[0])]
        if any(g is None for g in grains):
            return False
        squares = 2 if node.op_type == "ReduceSumSquare" else 1
        total = sum(g or 0 for g in grains) * squares
        bits = BITS[str(columns[0][0].dtype)]
        for k in range(len(reads[0].data)):
            try:
                sums = oracle([np.abs(one.data[k]) if is_float(one.data[k]) else one.data[k] for one in reads])[0]
            except RefusedError:
                return False
            if np.abs(sums.astype(np.float64)).max(initial=0) * 2.0**total > 2.0**bits:
                return False
        return True

    # ---- the model

    def mark(self) -> tuple[int, ...]:
        return len(self.nodes), len(self.values), len(self.inputs), len(self.constants)

    def back(self, mark: tuple[int, ...]) -> None:
        """Undo everything added since `mark`."""
        for kept, count in zip((self.nodes, self.values, self.inputs, self.constants), mark, strict=True):
            del kept[count:]  # type: ignore[attr-defined]

    def model(self, everything: bool = False) -> onnx.ModelProto:
        """Return the model. everything: make each value an output."""
        read = {value.name for made in self.nodes for value in made.reads}
        shown = [
            value
            for made in self.nodes
            for value in made.results
            if everything or value.name not in read or (value.name.endswith("3"))
        ]
        graph = helper.make_graph(
            [made.node for made in self.nodes],
            "random",
            [self.info(value, declared) for value, declared in self.inputs],
            [self.info(value, None) for value in shown],
            [numpy_helper.from_array(value.data[0], value.name) for value in self.constants if value.name in read],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)

    def info(self, value: Value, declared: list[Any] | None) -> onnx.ValueInfoProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
        if value.is_list:
            return helper.make_tensor_sequence_value_info(value.name, kind, None)
        sizes = declared if declared is not None else [None] * value.rank
        return helper.make_tensor_value_info(value.name, kind, sizes)

    def given(self, call: int) -> dict[str, Array]:
        return {value.name: value.data[call] for value, _ in self.inputs}

    # ---- bodies of control flow

    def body(self, name: str, nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]) -> GraphProto:
        return helper.make_graph(list(nodes), name, list(inputs), list(outputs))


class Own:
    """A custom oracle, for integer products of ONNX Runtime that depend on the CPU, and for results it reports incompletely."""

    def __init__(self, oracle: OneNode, expected: Callable[[dict[str, Data], list[Data]], list[Data]]) -> None:
        self.oracle, self.expected = oracle, expected
        self.names, self.node, self.refusal = oracle.names, oracle.node, oracle.refusal

    def __call__(self, data: Sequence[Data]) -> list[Data]:
        results = self.oracle(data)  # rejects invalid operands
        return self.expected(dict(zip(self.names, data, strict=True)), results)

    def by_other(self, data: Sequence[Data]) -> list[Data]:
        return self(data)


def is_whole_half(node: NodeProto, reads: list[Value], columns: list[Any], opset: int) -> bool:
    """Return whether fp16 results are exact, without rounding; True for other types."""
    if str(columns[0][0].dtype) != "float16":
        return True
    if node.op_type in ("Cast", "CastLike"):
        return all(same_numbers(a, b) for a, b in zip(reads[0].data, columns[0], strict=True))
    names = [one.name for one in reads]
    oracle: OneNode | None = None
    for k, result in enumerate(columns[0]):
        wide = [one.data[k].astype(np.float32) for one in reads]
        oracle = oracle or OneNode(node, names, wide, opset)
        try:
            if not same_numbers(oracle(wide)[0], result):
                return False
        except RefusedError:
            return False
    return True


def same_numbers(a: Array, b: Array) -> bool:
    return bool((a.astype(np.float64) == b.astype(np.float64)).all())


def value_type(data: Data) -> str:
    return str((data[0] if isinstance(data, list) else data).dtype)


def is_float(data: Data) -> bool:
    return bool(data) and is_float(data[0]) if isinstance(data, list) else data.dtype.kind == "f"


def tame(data: Data, wild: bool) -> bool:
    if isinstance(data, list):
        return all(tame(one, wild) for one in data)
    if data.size > 4 * MOST_ELEMENTS or data.ndim > 6 or data.dtype.kind not in "fiub":
        return False
    if data.dtype.kind != "f" or wild:
        return True
    most = 1e3 if data.dtype == np.float16 else 1e4
    return bool(np.isfinite(data).all() and np.abs(data).max(initial=0) <= most)


def within(value: Value, low: float, high: float) -> bool:
    if value.dtype == "bool":
        return True
    return all(low <= float(one.min()) and float(one.max()) <= high for one in value.data if one.size)


def grain(value: Value) -> int | None:
    """Return g if all elements are multiples of 2^-g, for g up to 10; else None."""
    for g in (0, 3, 6, 10):
        if all(bool((one * 2.0**g == np.rint(one.astype(np.float64) * 2.0**g)).all()) for one in value.data):
            return g
    return None
