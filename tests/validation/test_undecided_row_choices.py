"""Undecided choices that select several numbers at once: all of these have to come from the same alternative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import model, node, value
from pumice.validation.checker.live_values import LiveValues
from pumice.validation.reference.reference_model import ReferenceModel, RuleRunner
from pumice.validation.report.deviation import compare_tensor
from pumice.validation.rules.block_ranges import BLOCK_ELEMENTS
from pumice.validation.rules.bounded_tensor import BoundedTensor, UndecidedError
from pumice.validation.rules.float_types import ProgramTypes

Array = np.ndarray[Any, Any]
FLOAT = np.float32
NEAR = 1e-6  # an error that leaves equal numbers undecided
TABLE = FLOAT([[1, 10, 100, 1000], [2, 20, 200, 2000], [3, 30, 300, 3000], [4, 40, 400, 4000]])
A, B, C, D = TABLE
FIRST = np.array([True, True, False, False])


class Choice(NamedTuple):
    """Nodes from x to y that select rows by a choice, and the right results for each alternative."""

    name: str
    nodes: Sequence[Any]
    x: Any
    constants: dict[str, Any]
    right: Sequence[Any]


ARGMAX = node("ArgMax", ["x"], ["i"], axis=1, keepdims=0)
TIED = [[5, 5, 0, -1], [0, 9, 1, 1], [7, 0, 7, 1]]  # the first and last rows are undecided
WAYS = [[a, B, c] for a in (A, B) for c in (A, C)]
ROUNDED = [node("Round", ["x"], ["r"]), node("Cast", ["r"], ["i"], to=onnx.TensorProto.INT64)]
TAKEN = [ARGMAX, node("Gather", ["table", "i"], ["g"])]
CHOICES = [
    Choice("Gather", [ARGMAX, node("Gather", ["table", "i"], ["y"])], TIED, {"table": TABLE}, WAYS),
    Choice("a scalar index", [*ROUNDED, node("Gather", ["table", "i"], ["y"])], 1.5, {"table": TABLE}, [B, C]),
    Choice("Round", [*ROUNDED, node("Gather", ["table", "i"], ["y"])], [1.5, 3], {"table": TABLE}, [[B, D], [C, D]]),
    Choice(
        "Gather of columns",
        [ARGMAX, node("Gather", ["columns", "i"], ["y"], axis=1)],
        TIED,
        {"columns": TABLE.T.copy()},
        [np.transpose(one) for one in WAYS],
    ),
    Choice(
        "an index that is taken for two axes",
        [*ROUNDED, node("Gather", ["cube", "i"], ["y"])],
        [[1.5], [3]],
        {"cube": TABLE.reshape(4, 2, 2)},
        [np.reshape([one, D], (2, 1, 2, 2)) for one in (B, C)],
    ),
    Choice(
        "GatherElements by a repeated index",
        [
            node("ArgMax", ["x"], ["i"], axis=1),
            node("Expand", ["i", "shape"], ["e"]),
            node("GatherElements", ["table", "e"], ["y"], axis=0),
        ],
        TIED,
        {"table": TABLE, "shape": np.int64([3, 4])},
        WAYS,
    ),
    Choice(
        "GatherND",
        [*ROUNDED, node("GatherND", ["table", "i"], ["y"])],
        [[1.5], [3]],
        {"table": TABLE},
        [[B, D], [C, D]],
    ),
    Choice(
        "GatherND by two indices",
        [*ROUNDED, node("GatherND", ["cube", "i"], ["y"])],
        [[0.5, 0.5], [1, 0]],
        {"cube": TABLE.reshape(2, 2, 4)},
        [[one, C] for one in (A, B, C, D)],
    ),
    Choice(
        "Where",
        [node("Greater", ["x", "half"], ["c"]), node("Where", ["c", "up", "down"], ["y"])],
        [[0.5], [1]],
        {"half": FLOAT(0.5), "up": TABLE[:2], "down": TABLE[2:]},
        [[A, B], [C, B]],
    ),
    Choice(
        "a factor of a row",
        [node("Round", ["x"], ["r"]), node("Mul", ["table", "r"], ["y"])],
        [[1.5], [3], [1], [0]],
        {"table": TABLE},
        [[one * A, 3 * B, C, 0 * D] for one in (1, 2)],
    ),
    Choice(
        "OneHot",
        [ARGMAX, node("OneHot", ["i", "four", "ends"], ["y"])],
        TIED,
        {"four": np.int64([4]), "ends": FLOAT([2, 3])},
        [2 + np.eye(4, dtype=FLOAT)[[a, 1, c]] for a in (0, 1) for c in (0, 2)],
    ),
    Choice(
        "rows that are moved and mapped",
        [
            *TAKEN,
            node("Transpose", ["g"], ["t"]),
            node("Add", ["t", "one"], ["a"]),
            node("Exp", ["small"], ["e"]),
            node("Mul", ["a", "e"], ["m"]),
            node("Reshape", ["m", "flat"], ["f"]),
            node("Slice", ["f", "begin", "end"], ["y"]),
        ],
        TIED,
        {
            "table": TABLE,
            "one": FLOAT(1),
            "small": FLOAT([0]),
            "flat": np.int64([12]),
            "begin": np.int64([0]),
            "end": np.int64([12]),
        },
        [np.transpose(one).reshape(-1) + 1 for one in WAYS],
    ),
    Choice(
        "rows that are joined",
        [*TAKEN, node("Concat", ["g", "more", "g"], ["y"], axis=1)],
        TIED,
        {"table": TABLE, "more": np.zeros((3, 1), FLOAT)},
        [np.concatenate([one, np.zeros((3, 1)), one], 1) for one in WAYS],
    ),
    Choice(
        "rows of two tables, of which either may have its own choice",
        [*TAKEN, node("Gather", ["more", "i"], ["h"]), node("Add", ["g", "h"], ["y"])],
        [[5, 5, 0, -1], [0, 9, 1, 1]],
        {"table": TABLE, "more": TABLE * 7},
        [[one + 7 * other, B * 8] for one in (A, B) for other in (A, B)],
    ),
]


def evaluated(one: Choice, precision: str = "fp32", independent: bool = False) -> BoundedTensor:
    """Evaluate the rules for y, with x known to within an error."""
    x = np.float64(one.x)
    reference = ReferenceModel(
        model(list(one.nodes), [value("x", x.shape)], constants=dict(one.constants)), None, precision
    )
    chain = LiveValues(reference, reference.chained if independent else reference.runner, {"x": x.astype(FLOAT)})
    chain.values["x"] = BoundedTensor(x, np.full(x.shape, NEAR), FLOAT, stored=True)
    for each in reference.nodes:
        chain.values.update(chain.run(each))
    made = chain["y"]
    assert isinstance(made, BoundedTensor)
    return made


def is_right(actual: Any, expected: BoundedTensor, precision: str = "fp32", independent: bool = False) -> bool:
    reference = ReferenceModel(model([node("Relu")], [value("x", (1,))]), None, precision)
    types = (reference.chained if independent else reference.runner).types
    return compare_tensor(np.asarray(actual, expected.dtype), expected, types).ok


@pytest.mark.parametrize("independent", [False, True], ids=["worst case", "independent"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("one", CHOICES, ids=[one.name for one in CHOICES])
def test_all_that_one_choice_decides_is_of_one_side(one: Choice, precision: str, independent: bool) -> None:
    expected = evaluated(one, precision, independent)
    right = [np.float64(each) for each in one.right]
    for each in right:
        assert is_right(each, expected, precision, independent)
    mixed = 0
    for first in right:
        for second in right:
            differ = np.argwhere(first != second)
            for place in map(tuple, differ):
                spoilt = first.copy()
                spoilt[place] = second[place]
                if not any(np.array_equal(spoilt, each) for each in right):
                    assert not is_right(spoilt, expected, precision, independent), (place, spoilt)
                    mixed += 1
    assert mixed


def test_elements_that_are_decided_one_by_one_may_be_of_either_side() -> None:
    one = Choice(
        "GatherElements",
        [*ROUNDED, node("GatherElements", ["table", "i"], ["y"], axis=0)],
        [[0.5, 1.5, 2.5, 3]],
        {"table": TABLE},
        [],
    )
    expected = evaluated(one)
    for rows in ([0, 1, 2], [1, 2, 3], [0, 2, 2], [1, 1, 3]):
        assert is_right([[*TABLE[rows, [0, 1, 2]], 4000]], expected)
    assert not is_right([[3, 10, 200, 4000]], expected)


def test_each_element_of_a_side_may_be_off_by_its_own_bound() -> None:
    """fp16 results are known to within their rounding, which is larger for large elements."""
    table = np.array([[1, 2049.7, 3000.9, 0.1], [1.3, 2050.1, 3001.2, 0.35]], FLOAT)
    nodes = [ARGMAX, node("Gather", ["table", "i"], ["g"]), node("Mul", ["g", "third"], ["y"])]
    one = Choice("rounded", nodes, [[1, 1]], {"table": table, "third": FLOAT(1 / 3)}, [])
    for precision, kept in (("fp32", FLOAT), ("fp16", np.float16)):
        expected = evaluated(one, precision)
        rows = [(row.astype(kept) * kept(FLOAT(1 / 3))).astype(kept) for row in table]
        for row in rows:
            assert is_right([row.astype(FLOAT)], expected, precision)
        for at in range(4):
            mixed = np.array(rows[0])
            mixed[at] = rows[1][at]
            near = abs(float(rows[0][at]) - float(rows[1][at])) < 4 * float(np.spacing(np.abs(rows[0][at])))
            assert near or not is_right([mixed.astype(FLOAT)], expected, precision)


@pytest.mark.parametrize("op", ["Gather", "Where", "map"])
def test_a_row_of_several_blocks_is_of_one_side(op: str) -> None:
    """Blocks of a large tensor are evaluated and compared one at a time."""
    wide = 3 * BLOCK_ELEMENTS // 2
    rows = np.stack([np.full(wide, k + 1, FLOAT) for k in range(2)])
    if op == "Where":
        nodes = [node("Greater", ["x", "half"], ["c"]), node("Where", ["c", "up", "down"], ["y"])]
        constants = {"half": FLOAT(0.5), "up": rows[1:], "down": rows[:1]}
        x: Any = [[0.5], [0.5]]
    else:
        nodes = [ARGMAX, node("Gather", ["table", "i"], ["g" if op == "map" else "y"])]
        nodes += [node("Mul", ["g", "one"], ["y"])] if op == "map" else []
        constants = {"table": rows, **({"one": FLOAT(1)} if op == "map" else {})}
        x = [[1, 1], [2, 2]]
    expected = evaluated(Choice(op, nodes, x, constants, []))
    for a in (0, 1):
        for b in (0, 1):
            assert is_right(rows[[a, b]], expected)
    spoilt = rows.copy()
    spoilt[1, BLOCK_ELEMENTS + 7 :] = rows[0, BLOCK_ELEMENTS + 7 :]
    assert not is_right(spoilt, expected)
    last = rows.copy()
    last[0, -1] = 2
    assert not is_right(last, expected)


def test_booleans_that_an_undecided_index_takes_are_either() -> None:
    nodes = [ARGMAX, node("Gather", ["table", "i"], ["y"])]
    expected = evaluated(Choice("booleans", nodes, [[1, 1, 0, 0]], {"table": TABLE[:, :2] > [1.5, 15]}, []))
    assert is_right([[False, False]], expected)
    assert is_right([[True, True]], expected)


def test_a_candidate_that_mixes_two_rows_is_wrong() -> None:
    """A candidate returns outputs only, so its choice is not known."""
    x = FLOAT([[0.3, 0.7, 0.3, 0.7]])
    nodes = [
        node("MatMul", ["x", "w"], ["s"]),
        node("ArgMax", ["s"], ["i"], axis=1, keepdims=0),
        node("Gather", ["table", "i"], ["g"]),
        node("Add", ["g", "one"], ["y"]),
    ]
    w = FLOAT([[1, 0, 0, -1], [0, 1, 0, -1], [0, 1, 0, -1], [1, 0, 0, -1]])
    source = model(nodes, [value("x", [1, 4])], constants={"w": w, "table": TABLE, "one": FLOAT(1)})

    def of(row: Any) -> pumice.ValidationReport:
        return pumice.validate(source, [(x,)], candidate=lambda given: {"y": row[None] + FLOAT(1)}, mode="chained")

    assert of(A).state != "wrong"
    assert of(B).state != "wrong"
    assert of(np.where(FIRST, A, B)).state == "wrong"
    assert of(C).state == "wrong"


def undecided(numbers: Any, dtype: Any) -> BoundedTensor:
    """Return integers or booleans that are all undecided."""
    array = np.asarray(numbers, dtype)
    return BoundedTensor(array, np.full(array.shape, 1.0 if dtype is bool else np.inf), array.dtype)


READERS = [
    ("EmbedLayerNormalization", "com.microsoft", 0, [[0, 1]], np.int32),
    ("RotaryEmbedding", "com.microsoft", 1, [[0, 1]], np.int64),
    ("RotaryEmbedding", "", 3, [[0, 1]], np.int64),
    ("Attention", "", 3, [[True, False]], bool),
]


@pytest.mark.parametrize(("op", "domain", "place", "numbers", "dtype"), READERS, ids=[f"{a[1]}{a[0]}" for a in READERS])
def test_a_rule_that_follows_one_choice_alone_says_that_it_is_undecided(
    op: str, domain: str, place: int, numbers: Any, dtype: Any
) -> None:
    wide = BoundedTensor(np.ones((1, 2, 2, 2)), None, FLOAT)
    waves, table = BoundedTensor(np.ones((2, 1)), None, FLOAT), BoundedTensor(np.ones((2, 2)), None, FLOAT)
    row = BoundedTensor(np.ones(2), None, FLOAT)
    given: dict[tuple[str, str], list[Any]] = {
        ("EmbedLayerNormalization", "com.microsoft"): [None, None, table, table, None, row, row],
        ("RotaryEmbedding", "com.microsoft"): [wide, None, waves, waves],
        ("RotaryEmbedding", ""): [wide, waves, waves, None],
        ("Attention", ""): [wide, wide, wide, None],
    }
    inputs = list(given[op, domain])
    names = [f"i{k}" if k == place or one is not None else "" for k, one in enumerate(inputs)]
    made = node(op, names, ["y", "z"] if "Embed" in op and domain and op[0] == "E" else ["y"], domain=domain)
    runner = RuleRunner({"": 23, "com.microsoft": 1}, ProgramTypes("fp32"))
    inputs[place] = BoundedTensor(np.asarray(numbers, dtype), None, np.dtype(dtype))
    runner.run_node(made, list(inputs), {})
    inputs[place] = undecided(numbers, dtype)
    with pytest.raises(UndecidedError, match="may change by rounding"):
        runner.run_node(made, list(inputs), {})


def _with(op: str, inputs: list[Any], **attributes: Any) -> BoundedTensor:
    made = node(op, [f"i{k}" if one is not None else "" for k, one in enumerate(inputs)], ["y"], **attributes)
    (found,) = RuleRunner({"": 18}, ProgramTypes("fp32")).run_node(made, inputs, {})
    assert isinstance(found, BoundedTensor)
    return found


def test_a_resized_element_takes_one_alternative() -> None:
    """Resizing 7 elements to 9 leaves open whether the middle coordinate is 3 or slightly less."""
    x = np.arange(1.0, 50.0).reshape(7, 7)
    sizes = BoundedTensor(np.int64([1, 1, 9, 9]), None, np.int64)
    inputs: list[Any] = [BoundedTensor(x[None, None], None, FLOAT), None, None, sizes]
    found = _with("Resize", inputs, mode="nearest", nearest_mode="floor")
    places = np.clip(np.floor((np.arange(9) + 0.5) * 7 / 9 - 0.5), 0, 6).astype(int)

    def taken(row: int, column: int) -> Array:
        rows, columns = places.copy(), places.copy()
        rows[4], columns[4] = row, column
        return np.asarray(x[np.ix_(rows, columns)])

    ways = [taken(row, column) for row in (2, 3) for column in (2, 3)]
    for way in ways:
        assert is_right([[way]], found)
    for at in ((4, 0), (4, 8), (0, 4), (8, 4)):
        spoilt = ways[0].copy()
        spoilt[at] = ways[-1][at]
        assert not is_right([[spoilt]], found)


def test_a_sampled_position_is_the_same_for_all_channels() -> None:
    image = BoundedTensor(
        np.stack([np.arange(1.0, 5.0).reshape(2, 2), np.arange(10.0, 50, 10).reshape(2, 2)])[None], None, FLOAT
    )
    grid = BoundedTensor(np.float64([[[[0, -0.5], [-0.5, 0.5]]]]), np.full((1, 1, 2, 2), NEAR), FLOAT)
    found = _with("GridSample", [image, grid], mode="nearest", align_corners=1)
    left, right = [[[1, 3]], [[10, 30]]], [[[2, 3]], [[20, 30]]]
    assert is_right([left], found)
    assert is_right([right], found)
    assert not is_right([[left[0], right[1]]], found)
    assert not is_right([[right[0], left[1]]], found)
