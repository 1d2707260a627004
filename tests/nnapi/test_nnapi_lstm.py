"""LSTM and its two sequence operations in every form of their operands, against NumPy, and their errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_cells import CODES, FLOATS, GATES, Lstm, draw, near
from nnapi_operations import operands_of, run

Array = np.ndarray[Any, Any]
Parts = dict[str, Array | None]
BATCH, SIZE, UNITS, TIME = 2, 3, 4, 3
ORDER = [
    *(f"wx_{g}" for g in GATES),
    *(f"wh_{g}" for g in GATES),
    "p_i",
    "p_f",
    "p_o",
    *(f"b_{g}" for g in GATES),
    "wp",
    "bp",
]
NORMS, AUX = [f"ln_{g}" for g in GATES], [f"wa_{g}" for g in GATES]
FLAGS = ["coupled", "peephole", "projection", "projection bias", "norm"]
FORMS = [
    flags
    for count in range(6)
    for flags in itertools.combinations(FLAGS, count)
    if "projection bias" not in flags or "projection" in flags
]
# All combinations would take minutes: each flag alone, each pair that shares nodes, none and all.
SOME = [
    (),
    *((one,) for one in FLAGS if one != "projection bias"),
    ("coupled", "peephole"),
    tuple(FLAGS[1:]),
    tuple(FLAGS),
]


def cell(flags: tuple[str, ...], dtype: str, seed: int, size: int = SIZE, units: int = UNITS, aux: int = 0) -> Parts:
    """Operands of one direction; with a projection, the hidden state has size 2."""
    make = draw(seed, dtype)
    hidden = 2 if "projection" in flags else units
    parts: Parts = {f"wx_{g}": make(units, size) for g in GATES}
    parts |= {f"wh_{g}": make(units, hidden) for g in GATES}
    parts |= {f"b_{g}": make(units) for g in GATES}
    parts |= {f"wa_{g}": make(units, aux) if aux else None for g in GATES}
    parts |= {f"p_{g}": make(units) if "peephole" in flags else None for g in "ifo"}
    parts |= {f"ln_{g}": make(units) if "norm" in flags else None for g in GATES}
    parts["wp"] = make(2, units) if "projection" in flags else None
    parts["bp"] = make(2) if "projection bias" in flags else None
    if "coupled" in flags:
        parts |= dict.fromkeys(["wx_i", "wh_i", "b_i", "p_i", "ln_i", "wa_i"])
    return parts | {"h": make(BATCH, hidden), "c": make(BATCH, units)}


def named(parts: Parts, names: list[str]) -> list[Array | None]:
    return [parts[name] for name in names]


def clips_of(seed: int) -> tuple[float, float]:
    return [(0.0, 0.0), (0.3, 0.0), (0.0, 0.05), (0.2, 0.1)][seed % 4]


def check_step(
    context: pumice.Context, flags: tuple[str, ...], dtype: str, code: int, clips: tuple[float, float]
) -> None:
    parts, x = cell(flags, dtype, 3), draw(4, dtype)(BATCH, SIZE)
    norms = named(parts, NORMS) if "norm" in flags else []
    scratch, h, c, y = run(context, "LSTM", x, *named(parts, ORDER), parts["h"], parts["c"], code, *clips, *norms)
    _, expected_h, expected_c = Lstm(parts).run(x[None].astype("float64"), None, code, clips)
    near(h, expected_h)
    near(c, expected_c)
    np.testing.assert_array_equal(y, h)
    assert scratch.shape == (BATCH, UNITS * (3 if "coupled" in flags else 4))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("flags", SOME, ids=str)
def test_N2_3_and_L2_to_L5_a_step(context: pumice.Context, flags: tuple[str, ...], dtype: str) -> None:
    seed = SOME.index(flags)
    check_step(context, flags, dtype, CODES[seed % len(CODES)], clips_of(seed))


@pytest.mark.slow
@pytest.mark.parametrize("clips", [clips_of(k) for k in range(4)], ids=str)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("flags", FORMS, ids=str)
def test_L2_to_L6_a_step_in_every_form(
    context: pumice.Context, flags: tuple[str, ...], dtype: str, code: int, clips: tuple[float, float]
) -> None:
    check_step(context, flags, dtype, code, clips)


def test_L4_the_clip_of_the_cell_holds_the_output_gate_too(context: pumice.Context) -> None:
    """The output gate's peephole reads the clipped cell state."""
    parts = cell(("peephole",), "float32", 9)
    parts |= {name: 4 * one for name, one in parts.items() if one is not None and name[:2] in ("b_", "p_")}
    x = draw(1, "float32")(BATCH, SIZE)
    results = run(context, "LSTM", x, *named(parts, ORDER), parts["h"], parts["c"], 4, 0.1, 0.0)
    _, h, c = Lstm(parts).run(x[None].astype("float64"), None, 4, (0.1, 0.0))
    assert np.abs(c).max() == 0.1
    near(results[2], c)
    near(results[1], h)


def check_sequence(
    context: pumice.Context, flags: tuple[str, ...], dtype: str, major: bool, clips: tuple[float, float]
) -> None:
    parts, x = cell(flags, dtype, 5), draw(6, dtype)(TIME, BATCH, SIZE)
    norms = named(parts, NORMS) if "norm" in flags else []
    given = x if major else np.ascontiguousarray(x.swapaxes(0, 1))
    operands = [given, *named(parts, ORDER), parts["h"], parts["c"], 4, *clips, major, *norms]
    y, h, c = run(context, "UNIDIRECTIONAL_SEQUENCE_LSTM", *operands)
    expected, last, kept = Lstm(parts).run(x.astype("float64"), None, 4, clips)
    near(y, expected if major else expected.swapaxes(0, 1))
    near(h, last)
    near(c, kept)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("flags", SOME, ids=str)
def test_N5_2_a_sequence(context: pumice.Context, flags: tuple[str, ...], dtype: str) -> None:
    check_sequence(context, flags, dtype, SOME.index(flags) % 2 == 0, clips_of(SOME.index(flags)))


@pytest.mark.slow
@pytest.mark.parametrize("major", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("flags", FORMS, ids=str)
def test_N5_2_a_sequence_in_every_form(
    context: pumice.Context, flags: tuple[str, ...], dtype: str, major: bool
) -> None:
    check_sequence(context, flags, dtype, major, clips_of(FORMS.index(flags)))


def test_L6_a_sequence_takes_negative_clips_and_a_loose_bias(context: pumice.Context) -> None:
    """As in NNAPI, negative clips and a projection bias without weights are accepted and ignored."""
    check_sequence(context, (), "float32", True, (-1.0, -2.0))
    parts, x = cell((), "float32", 5), draw(6, "float32")(TIME, BATCH, SIZE)
    parts["bp"] = np.ones(UNITS, "float32")
    y = run(
        context, "UNIDIRECTIONAL_SEQUENCE_LSTM", x, *named(parts, ORDER), parts["h"], parts["c"], 4, 0.0, 0.0, True
    )[0]
    near(y, Lstm(parts).run(x.astype("float64"), None, 4, (0, 0))[0])


def check_both(context: pumice.Context, flags: tuple[str, ...], dtype: str, options: tuple[bool, bool, str]) -> None:
    major, merge, linking = options
    aux_size = 5 if linking == "parallel" else SIZE
    crossed = aux_size if linking == "cross" else 0
    fw = cell(flags, dtype, 7, aux=crossed)
    bw = cell(flags, dtype, 8, size=aux_size if linking == "parallel" else SIZE, units=6, aux=crossed)
    make = draw(9, dtype)
    x, aux = make(TIME, BATCH, SIZE), make(TIME, BATCH, aux_size)
    turned = (lambda one: one) if major else (lambda one: np.ascontiguousarray(one.swapaxes(0, 1)))
    norms = [*named(fw, NORMS), *named(bw, NORMS)] if "norm" in flags else []
    operands = [turned(x), *named(fw, ORDER), *named(bw, ORDER), fw["h"], fw["c"], bw["h"], bw["c"]]
    operands += [None if linking == "none" else turned(aux), *named(fw, AUX), *named(bw, AUX)]
    clips = clips_of(len(flags))
    results = run(context, "BIDIRECTIONAL_SEQUENCE_LSTM", *operands, 4, *clips, merge, major, *norms)
    x, aux = x.astype("float64"), aux.astype("float64")
    second = aux if linking == "cross" else None
    yf, hf, cf = Lstm(fw).run(x, second, 4, clips)
    yb, hb, cb = Lstm(bw).run(aux if linking == "parallel" else x, second, 4, clips, backward=True)
    expected = [turned(np.concatenate([yf, yb], 2))] if merge else [turned(yf), turned(yb)]
    expected += [hf, cf, hb, cb]
    assert len(results) == len(expected)
    for actual, one in zip(results, expected, strict=True):
        near(actual, one)


OPTIONS = list(itertools.product([False, True], [False, True], ["none", "parallel", "cross"]))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_N6_2_to_N6_4_both_directions(context: pumice.Context, options: tuple[bool, bool, str]) -> None:
    k = OPTIONS.index(options)
    check_both(context, SOME[k % len(SOME)], FLOATS[k % 2], options)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("flags", FORMS, ids=str)
def test_N6_2_to_N6_4_both_directions_in_every_form(
    context: pumice.Context, flags: tuple[str, ...], dtype: str, options: tuple[bool, bool, str]
) -> None:
    check_both(context, flags, dtype, options)


@pytest.mark.parametrize("flags", [(), ("coupled",), ("peephole",), ("coupled", "peephole")], ids=str)
@pytest.mark.parametrize("options", [one for one in OPTIONS if one[2] != "parallel"], ids=str)
@pytest.mark.parametrize(("time", "units"), [(1, 5), (17, 131)])
def test_N6_3_both_directions_of_as_many_units_are_one_node(
    context: pumice.Context, time: int, units: int, options: tuple[bool, bool, str], flags: tuple[str, ...]
) -> None:
    major, merge, linking = options
    crossed = SIZE if linking == "cross" else 0
    fw, bw = (cell(flags, "float32", seed, units=units, aux=crossed) for seed in (7, 8))
    for parts in (fw, bw):  # keeps sums small
        parts |= {name: one / 16 for name, one in parts.items() if one is not None and name.startswith("wh_")}
    x, aux = (draw(seed, "float32")(time, BATCH, SIZE) for seed in (9, 10))
    turned = (lambda one: one) if major else (lambda one: np.ascontiguousarray(one.swapaxes(0, 1)))
    operands = [turned(x), *named(fw, ORDER), *named(bw, ORDER), fw["h"], fw["c"], bw["h"], bw["c"]]
    operands += [turned(aux) if crossed else None, *named(fw, AUX), *named(bw, AUX)]
    graph, fed = pumice.Graph(), dict[str, Array]()
    given = operands_of(graph, (*operands, 4, 0.0, 0.0, merge, major), fed)
    made = graph.add("nnapi::BIDIRECTIONAL_SEQUENCE_LSTM", *given)
    assert [node.op for node in graph.nodes].count("LSTM") == 1
    for i, value in enumerate(made):
        graph.output(f"y{i}", value)
    results = list(graph.compile(context)(fed).values())
    second = aux.astype("float64") if crossed else None
    yf, hf, cf = Lstm(fw).run(x.astype("float64"), second, 4, (0, 0))
    yb, hb, cb = Lstm(bw).run(x.astype("float64"), second, 4, (0, 0), backward=True)
    expected = [turned(np.concatenate([yf, yb], 2))] if merge else [turned(yf), turned(yb)]
    for actual, one in zip(results, [*expected, hf, cf, hb, cb], strict=True):
        near(actual, one)


# ---- errors


def expect_error(op: str, match: str, operands: list[Any]) -> None:
    graph = pumice.Graph()
    given = [
        graph.input(f"x{i}", one.dtype, one.shape) if isinstance(one, np.ndarray) and one.ndim else one
        for i, one in enumerate(operands)
    ]
    with pytest.raises(pumice.GraphError, match=match):
        graph.add(f"nnapi::{op}", *given)


def step_operands(parts: Parts, **changed: Any) -> list[Any]:
    parts = parts | {name: one for name, one in changed.items() if name != "clips"}
    clips = changed.get("clips", (0.0, 0.0))
    x = np.zeros((BATCH, SIZE), "float32")
    return [x, *named(parts, ORDER), parts["h"], parts["c"], 4, *clips, *named(parts, NORMS)]


VECTOR = np.zeros(UNITS, "float32")
PRESENCE: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    ((), {"wh_i": None}),
    ((), {"wx_i": None}),
    ((), {"b_i": None}),
    (("coupled",), {"b_i": VECTOR}),
    (("peephole",), {"p_f": None}),
    (("peephole",), {"p_o": None}),
    (("peephole",), {"p_i": None}),
    ((), {"p_i": VECTOR}),
    (("coupled",), {"p_i": VECTOR}),
    ((), {"bp": VECTOR}),
    (("norm",), {"ln_c": None}),
    (("norm",), {"ln_i": None}),
    (("coupled", "norm"), {"ln_i": VECTOR}),
    ((), {"clips": (-1.0, 0.0)}),
    ((), {"clips": (0.0, -1.0)}),
]


@pytest.mark.parametrize(("flags", "changed"), PRESENCE, ids=str)
def test_L6_presence(flags: tuple[str, ...], changed: dict[str, Any]) -> None:
    expect_error("LSTM", "L6", step_operands(cell(flags, "float32", 0), **changed))


def test_L6_a_coupled_gate_passes_over_its_peephole(context: pumice.Context) -> None:
    parts = cell(("coupled", "peephole"), "float32", 3)
    h = run(context, "LSTM", *step_operands(parts, p_i=VECTOR + 1))[1]
    near(h, Lstm(parts).run(np.zeros((1, BATCH, SIZE)), None, 4, (0, 0))[1])


@pytest.mark.parametrize("name", ["wx_i", "wx_o", "wh_f", "wh_o", "b_c", "p_o", "p_i", "ln_f", "wp", "bp", "h", "c"])
def test_L7_sizes(name: str) -> None:
    parts = cell(tuple(one for one in FLAGS if one != "coupled"), "float32", 0)
    given = parts[name]
    assert given is not None
    for axis in range(given.ndim):
        shape = list(given.shape)
        shape[axis] += 1
        expect_error("LSTM", "L7", step_operands(parts, **{name: np.zeros(shape, "float32")}))
    expect_error("LSTM", "rank", step_operands(parts, **{name: given[None]}))


def test_L1_without_a_projection_the_state_has_as_many_elements_as_the_cell() -> None:
    parts = cell((), "float32", 0)
    wide = {f"wh_{g}": np.zeros((UNITS, 5), "float32") for g in GATES} | {"h": np.zeros((BATCH, 5), "float32")}
    expect_error("LSTM", "L1", step_operands(parts, **wide))


def test_N2_1_what_is_required() -> None:
    parts = cell((), "float32", 0)
    for name in ("wx_f", "wx_c", "wx_o", "wh_f", "wh_c", "wh_o", "b_f", "b_c", "b_o", "h", "c"):
        expect_error("LSTM", "is required", step_operands(parts, **{name: None}))
    expect_error("LSTM", "G7|RELU", [*step_operands(parts)[:20], 5, 0.0, 0.0])
    expect_error("LSTM", "takes 23", step_operands(parts)[:22])
    expect_error("LSTM", "rank", [np.zeros((1, BATCH, SIZE), "float32"), *step_operands(parts)[1:]])


def both_operands(fw: Parts, bw: Parts, aux: Any = None) -> list[Any]:
    x = np.zeros((TIME, BATCH, SIZE), "float32")
    states = [fw["h"], fw["c"], bw["h"], bw["c"]]
    numbers = [4, 0.0, 0.0, False, True]
    cells = [*named(fw, ORDER), *named(bw, ORDER), *states]
    return [x, *cells, aux, *named(fw, AUX), *named(bw, AUX), *numbers, *named(fw, NORMS), *named(bw, NORMS)]


def test_N6_4_what_links_two_inputs() -> None:
    op, plain, linked = "BIDIRECTIONAL_SEQUENCE_LSTM", cell((), "float32", 0), cell((), "float32", 0, aux=SIZE)
    aux = np.zeros((TIME, BATCH, SIZE), "float32")
    expect_error(op, "N6.4", both_operands(linked, plain, aux))
    expect_error(op, "N6.4", both_operands(plain, linked, aux))
    expect_error(op, "N6.4", both_operands(linked, linked))
    expect_error(op, "N6.4", both_operands(linked | {"wa_f": None}, linked, aux))
    expect_error(op, "N6.4", both_operands(plain, plain, np.zeros((TIME, BATCH, SIZE + 1), "float32")))
    expect_error(op, "N6.4", both_operands(plain, plain, np.zeros((TIME + 1, BATCH, SIZE), "float32")))
    wide = cell((), "float32", 0, aux=SIZE + 1)
    expect_error(op, "N6.4", both_operands(wide, wide, np.zeros((TIME, BATCH, SIZE + 1), "float32")))


@pytest.mark.parametrize("flag", ["coupled", "peephole", "projection", "norm"])
def test_N6_5_directions_have_the_same_parts(flag: str) -> None:
    one, other = cell((flag,), "float32", 0), cell((), "float32", 0)
    expect_error("BIDIRECTIONAL_SEQUENCE_LSTM", "N6.5", both_operands(one, other))
    expect_error("BIDIRECTIONAL_SEQUENCE_LSTM", "N6.5", both_operands(other, one))


def test_N6_1_both_directions_read_the_input() -> None:
    wide = cell((), "float32", 0, size=SIZE + 1)
    expect_error("BIDIRECTIONAL_SEQUENCE_LSTM", "N6.1", both_operands(wide, cell((), "float32", 0)))
    expect_error("BIDIRECTIONAL_SEQUENCE_LSTM", "N6.1", both_operands(cell((), "float32", 0), wide))


@pytest.mark.parametrize("op", ["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM"])
def test_G2_no_elements_are_rejected(context: pumice.Context, op: str) -> None:
    parts = cell((), "float32", 0)
    empty = parts | {"h": np.zeros((0, UNITS), "float32"), "c": np.zeros((0, UNITS), "float32")}
    x = np.zeros((TIME, 0, SIZE), "float32")
    operands = {
        "LSTM": [x[0], *step_operands(empty)[1:]],
        "UNIDIRECTIONAL_SEQUENCE_LSTM": [x, *step_operands(empty)[1:23], True],
        "BIDIRECTIONAL_SEQUENCE_LSTM": [x, *both_operands(empty, empty)[1:]],
    }[op]
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, op, *operands)


def test_a_sequence_of_unknown_length(context: pumice.Context) -> None:
    """With a projection it is unrolled, one node per step, at binding time."""
    parts = cell(("projection",), "float32", 3)
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None, BATCH, SIZE])
    operands = [x, *named(parts, ORDER), parts["h"], parts["c"], 4, 0.0, 0.0, True]
    for i, y in enumerate(graph.add("nnapi::UNIDIRECTIONAL_SEQUENCE_LSTM", *operands)):
        graph.output(f"y{i}", y)
    program = graph.compile(context)
    for time in (1, 4):
        given = draw(time, "float32")(time, BATCH, SIZE)
        near(program({"x": given})["y0"], Lstm(parts).run(given.astype("float64"), None, 4, (0, 0))[0])
