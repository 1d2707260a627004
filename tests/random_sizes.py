"""Random ONNX models with sizes unknown before a call, called with legal and illegal sizes.

python tests/random_sizes.py --seeds 0:1000 --jobs 4

A call with legal sizes must return the oracles' results; any other must raise one of the engine's errors.
"""

from __future__ import annotations

import collections
import sys
import time
import traceback
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto

import pumice
from features import reason_of_refusal
from random_models import apart, label, largest, outputs_of, shapes
from random_nodes import OPERATORS, Maker, SkipError, workers
from random_nodes.maker import Value, is_float, tame
from random_nodes.oracle import Array, Data, RefusedError, describe, same, words

BINDINGS = 8
# The values of their results are limited only by their inputs.
INDEXED = words("Gather GatherElements GatherND ScatterElements ScatterND OneHot")
WITHOUT = frozenset({"float16"})  # kept at higher precision between nodes, which would show in step functions
# Operators whose operands fit only one set of sizes; ONNX does not define others.
LEFT_OUT = words("MaxUnpool MaxRoiPool RoiAlign NonMaxSuppression TensorScatter Attention MelWeightMatrix")
# Nodes that do not read some of their operands.
PASSED_BY = words(
    "SequenceConstruct SequenceInsert SequenceErase SequenceAt SequenceLength SplitToSequence ConcatFromSequence"
    " Shape Size EyeLike CastLike If Loop Scan Split Dropout ConstantOfShape Unique TopK"
)
FILTERED = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}  # operator: index of the filter input
SCATTERED = words("ScatterElements ScatterND")
UNSAID_OF_NOTHING = words("GroupNormalization LSTM GRU RNN DynamicQuantizeLinear InstanceNormalization")
# Rejected for empty inputs.
REFUSED_OF_NOTHING = words(
    "GlobalMaxPool GlobalLpPool GlobalAveragePool MaxPool LpPool AveragePool Conv ConvInteger QLinearConv"
)


MOST_TEXT = 900  # maximum length of a failure message


@dataclass
class Result:
    seed: int
    failures: list[str] = field(default_factory=list)
    disputed: list[str] = field(default_factory=list)
    lacking: str = ""  # what the device lacks and a legal binding needs
    legal: int = 0
    illegal: int = 0


def random_graph(seed: int) -> Maker:
    """Return a few nodes whose inputs declare little about their sizes."""
    random = np.random.default_rng([seed, 1])
    m = Maker(random, opset=21, calls=1, without=WITHOUT, unnamed=float(random.choice([0.0, 0.5, 1.0, 1.0])))
    names = sorted(set(OPERATORS) - LEFT_OUT)
    wanted, tries = m.whole(1, 5), 0
    while len(m.nodes) < wanted and tries < 60:
        mark, tries = m.mark(), tries + 1
        op = m.one(names)
        try:
            OPERATORS[op](m, op)
        except SkipError:
            m.back(mark)
    for value, declared in m.inputs:
        for axis, size in enumerate(declared):
            if isinstance(size, int) and (size == 0 or m.chance(0.75)):
                # A declared 0 means unknown, a convention of converters.
                declared[axis] = m.named((size,)) if size and value.data[0].size > 1 else None
    return m


def other_sizes(m: Maker, binding: int) -> dict[str, Array]:
    """Return the inputs with other sizes in one or two axes; binding 0 has the original sizes."""
    given = m.given(0)
    if binding == 0 or not given:
        return given
    sizes = {name: list(array.shape) for name, array in given.items()}
    axes = [(name, axis) for name, shape in sizes.items() for axis in range(len(shape))]
    if not axes:
        return given
    if m.chance(0.5):
        # Every axis of one size gets the same new size, as if they shared a symbolic name.
        old = m.one([sizes[name][axis] for name, axis in axes])
        new = m.one([1, 2, 3, 4, 6, 7, 0 if m.chance(0.2) else 5])
        for name, axis in axes:
            if sizes[name][axis] == old and m.chance(0.97):
                sizes[name][axis] = new
    else:
        for _ in range(m.one([1, 1, 2])):
            name, axis = m.one(axes)
            sizes[name][axis] = m.one([1, 2, 3, 4, 5, 7, sizes[name][axis] + 1, max(sizes[name][axis] - 1, 0)])
    if m.chance(0.03):
        name = m.one(list(sizes))
        sizes[name] = sizes[name][:-1] if m.chance(0.5) else [*sizes[name], 1]  # a different rank
    return {name: filled(array, sizes[name]) for name, array in given.items()}


def filled(array: Array, shape: list[int]) -> Array:
    """Return an array of a shape, filled by repeating the elements of another."""
    if array.size == 0:
        return np.ones(shape, array.dtype)
    return np.asarray(np.resize(array, shape), array.dtype)


def declared_otherwise(m: Maker, given: dict[str, Array]) -> bool:
    """Return whether the inputs violate the declared shapes: other sizes, or two sizes for one name."""
    names: dict[str, int] = {}
    for value, declared in m.inputs:
        shape = given[value.name].shape
        if len(shape) != len(declared):
            return True
        for size, said in zip(shape, declared, strict=True):
            if said is not None and (names.setdefault(said, size) if isinstance(said, str) else said) != size:
                return True
    return False


class UndecidedError(Exception):
    """Raised if the oracles disagree about legality, or the values cannot be compared."""


def is_empty(data: Data) -> bool:
    return not data if isinstance(data, list) else not np.size(data)


def unsaid(node: NodeProto, reads: dict[str, Data]) -> str:
    """Return why ONNX does not define a node's result although the oracles compute one; empty if it does."""
    if node.op_type in UNSAID_OF_NOTHING and any(is_empty(one) for one in reads.values()):
        return "nothing to compute with, of which ONNX says nothing"
    if node.op_type in FILTERED and 0 in np.shape(reads[node.input[FILTERED[node.op_type]]])[2:]:
        return "filters without elements"
    reduced = any(one.name == "reduction" and one.s != b"none" for one in node.attribute)
    if node.op_type in SCATTERED and not reduced and writes_twice(node, reads[node.input[0]], reads[node.input[1]]):
        return "two updates of one element, of which either may stay"
    return ""


def writes_twice(node: NodeProto, x: Array, indices: Array) -> bool:
    """Return whether a scatter updates an element twice; invalid shapes and indices are left to the oracles."""
    if node.op_type == "ScatterND":
        depth = indices.shape[-1]
        sizes = np.asarray(x.shape[:depth])
        places = indices.reshape(-1, depth) if depth else np.zeros((int(np.prod(indices.shape[:-1])), 0), np.int64)
    elif indices.ndim == x.ndim:
        axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
        grid = np.indices(indices.shape)
        grid[axis] = indices
        sizes, places = np.asarray(x.shape), grid.reshape(x.ndim, -1).T
    else:
        return False
    if sizes.size != places.shape[1] or (places < -sizes).any() or (places >= sizes).any():
        return False
    return len(np.unique(places % np.maximum(sizes, 1), axis=0)) < len(places)


def expected_of(m: Maker, given: dict[str, Array]) -> tuple[dict[str, Data], str]:
    """Return all values by the oracles, and the reason if the sizes are illegal. Raise UndecidedError."""
    values: dict[str, Data] = {**given, **{one.name: one.data[0] for one in m.constants}}
    for made in m.nodes:
        reads = [values[one.name] for one in made.reads]
        if any(isinstance(one, list) and not one for one in reads):
            raise UndecidedError("a list without elements")
        if why := unsaid(made.node, dict(zip(made.oracle.names, reads, strict=True))):
            raise UndecidedError(why)
        try:
            results = made.oracle(reads)
        except RefusedError as error:
            try:
                made.oracle.by_other(reads)
            except RefusedError:
                of_nothing = any(is_empty(one) for one in reads) and made.node.op_type not in REFUSED_OF_NOTHING
                if not is_needed(m, made.node.name) or made.oracle.refusal or of_nothing:
                    # The node is unused, the oracles do not support it, or its result is empty.
                    raise UndecidedError("no word that counts") from error
                return {}, f"{label(made)} of {shapes(reads)}: {error}"
            raise UndecidedError(f"{label(made)} of {shapes(reads)}: {error}") from error
        if made.node.op_type == "Scan" and np.shape(results[0]) != np.shape(reads[0]):
            if not is_needed(m, made.node.name):
                raise UndecidedError("a state that nobody reads")
            return {}, "a state of a Scan that changes its shape, which ONNX Runtime finds in the second iteration"
        for value, result in zip(made.results, results, strict=True):
            if not tame(result, False) or (not value.is_list and np.ndim(result) != value.rank):
                raise UndecidedError("values that are not tame")
            values[value.name] = result if value.is_list else np.asarray(result)
    return values, ""


def is_needed(m: Maker, label_of: str) -> bool:
    """Return whether a node's values reach an output, not just its shape or list position; others are never computed."""
    shown = {one.name for one in m.model().graph.output}
    needed: set[str] = set()
    for made in reversed(m.nodes):
        alive = any(one.name in shown or one.name in needed for one in made.results)
        if alive and made.node.name == label_of:
            return True
        if alive and made.node.op_type not in PASSED_BY:
            needed.update(one.name for one in made.reads)
    return False


def compare(m: Maker, found: dict[str, Data], values: dict[str, Data]) -> str:
    for made in m.nodes:
        for value in made.results:
            if value.name in found and differs(value, found[value.name], values[value.name]):
                return f"{label(made)}: {describe(found[value.name], values[value.name])}"
    return ""


def differs(value: Value, got: Data, expected: Data) -> bool:
    if not is_float(expected):
        return not same(got, expected)
    return apart(got, expected, 2e-3 * max(largest(expected), 1e-2))


def disputed_somewhere(m: Maker, given: dict[str, Array]) -> bool:
    """Return whether the oracles disagree about a node of the model."""
    values: dict[str, Data] = {**given, **{one.name: one.data[0] for one in m.constants}}
    for made in m.nodes:
        reads = [values[one.name] for one in made.reads]
        results = made.oracle(reads)
        try:
            others = made.oracle.by_other(reads)
        except RefusedError:
            return True
        if any(differs(*each) for each in zip(made.results, others, results, strict=True)):
            return True
        values.update(zip((one.name for one in made.results), results, strict=True))
    return False


def is_limit(refusal: str, context: pumice.Context) -> bool:
    """Return whether a load error names a device limit or a rank that is unknown before a call."""
    return bool(reason_of_refusal(refusal, context)) or refusal.endswith("of a tensor of unknown rank")


def run_seed(seed: int, context: pumice.Context, _: None = None) -> Result:
    result = Result(seed)
    m = random_graph(seed)
    if not m.nodes or not m.inputs:
        return result
    checked = any(made.node.op_type in INDEXED for made in m.nodes)
    try:
        model = pumice.load(m.model(), context=context, progress=False, check_indices=checked, fuse=seed % 4 != 0)
    except Exception as error:
        if isinstance(error, pumice.UnsupportedError) and is_limit(str(error), context):
            return result
        result.failures.append(workers.flat(f"load: {type(error).__name__}: {error}"))
        return result
    nodes = ", ".join(label(made) for made in m.nodes)
    for binding in range(BINDINGS):
        given = other_sizes(m, binding)
        told = f"binding {binding} ({', '.join(f'{name} {list(one.shape)}' for name, one in given.items())}) of {nodes}"
        undecided = False
        values: dict[str, Data] = {}
        try:
            why = "inputs that are not as the file declares them" if declared_otherwise(m, given) else ""
            if not why:
                values, why = expected_of(m, given)
        except UndecidedError:
            undecided, why = True, ""
        try:
            found = outputs_of(model, given)
        except pumice.Error as error:
            result.illegal += 1
            if isinstance(error, pumice.UnsupportedError) and (lacking := reason_of_refusal(str(error), context)):
                result.lacking = lacking
            elif not why and not undecided:
                text = f"{told}: legal, and refused: {type(error).__name__}: {error}"
                (result.disputed if disputed_somewhere(m, given) else result.failures).append(
                    workers.flat(text, MOST_TEXT)
                )
            continue
        except Exception as error:
            where = traceback.format_exc().splitlines()[-3].strip()
            result.failures.append(
                workers.flat(f"{told}: a foreign exception: {type(error).__name__}: {error} {where}", MOST_TEXT)
            )
            continue
        result.legal += 1
        if undecided:
            continue
        if why:
            result.failures.append(workers.flat(f"{told}: not legal, and not refused: {why}", MOST_TEXT))
        elif wrong := compare(m, found, values):
            (result.disputed if disputed_somewhere(m, given) else result.failures).append(
                workers.flat(f"{told}: {wrong}", MOST_TEXT)
            )
    return result


# ---- command line


def main() -> int:
    parser = workers.arguments(__doc__)
    given = parser.parse_args()
    begin = time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    for result in workers.results(given, run_seed, None, Result):
        counts.update(graphs=1, failed=int(bool(result.failures)), disputed=len(result.disputed))
        counts.update(legal=result.legal, illegal=result.illegal)
        for text in result.failures[:3]:
            print(f"seed {result.seed}: {text}", flush=True)
        for text in result.disputed[:1]:
            print(f"seed {result.seed}: disputed (the oracles disagree): {text}", flush=True)
    print(
        f"{counts['graphs']} graphs, {counts['legal']} bindings taken, {counts['illegal']} refused, {counts['failed']} graphs"
        f" failed, {counts['disputed']} disputed, {time.perf_counter() - begin:.0f} s"
    )
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
