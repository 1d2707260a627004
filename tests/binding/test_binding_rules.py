"""Tests that every binding rule has a test of its name, and that errors come in rule order and change nothing."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pumice
from binding_tables import F64, execute, expect_error, initialise, operator, parts, run
from pumice import BindingTable, Buffer, BufferRange, TensorDesc

ROOT = Path(__file__).resolve().parents[2]
BINDINGS = "CIORMTHPLG"  # families whose rules each have a test named after the rule
FAMILIES = BINDINGS + "KD"  # K: arguments of kernels and programs, D: the dv interface
RULES = pumice.binding_rules()


def rules_in(text: str, pattern: str) -> set[str]:
    return {one.upper() for one in re.findall(pattern, text)}


def test_every_rule_has_a_test_and_every_test_a_rule() -> None:
    files = [*ROOT.glob("tests/binding/test_binding_rules_*.py"), ROOT / "tests/binding/test_graph_operator.py"]
    tested = set().union(*(rules_in(file.read_text(), r"def test_([a-z]\d+)_") for file in files))
    assert tested == {rule for rule in RULES if rule[0] in BINDINGS}


def test_every_rule_that_an_error_can_name_is_in_the_list_and_the_list_has_no_other() -> None:
    listed = ROOT / "cpp/dispatch/binding_rule_list.cpp"
    folders = [(ROOT / "cpp", "*.cpp"), (ROOT / "cpp", "*.h"), (ROOT / "src", "*.cpp"), (ROOT / "python", "*.py")]
    texts = [file.read_text() for folder, kind in folders for file in folder.rglob(kind) if file != listed]
    named = set().union(*(rules_in(text, rf'"([{FAMILIES}]\d+)"') for text in texts))
    assert named <= set(RULES)
    assert {rule for rule in RULES if rule[0] in "KD"} <= named
    assert {"C1", "I5", "O1", "R1", "R9", "T1", "H4", "P5"} <= named


def test_every_rejection_of_tables_lists_and_buffers_names_its_rule() -> None:
    """Check that calls in the wrong state name a rule. Only state errors that are no binding rules are exempt (threads, forks, mapping)."""
    files = [
        *(ROOT / "cpp/dispatch").rglob("*.cpp"),
        ROOT / "cpp/operators/compiled/initializer.cpp",
        ROOT / "cpp/operators/compiled/compiled_operator.cpp",
    ]
    files += [ROOT / "cpp/device/buffer.cpp", ROOT / "cpp/device/image_transfer.cpp"]
    thrown = [
        statement
        for file in files
        for statement in re.findall(r"throw StateError\(.*?\);", file.read_text(), re.DOTALL)
    ]
    without = [statement for statement in thrown if not re.search(r', "[LI]\d+"\);', statement)]
    assert len(thrown) - len(without) >= 10
    assert all(re.search("mapped|mapping|sync_start", statement) for statement in without), without


def test_every_rule_is_explained_in_a_sentence() -> None:
    assert all(re.fullmatch(rf"[{FAMILIES}]\d+", rule) for rule in RULES)
    assert all(len(text) > 15 and not text.endswith(".") for text in RULES.values())


def test_rules_are_checked_in_order(context: pumice.Context) -> None:
    """Each bindings list below breaks its own rule and all later rules in the list."""
    memory, upload = Buffer(context, 4096), Buffer(context, 4096, "upload")
    aligned = TensorDesc("float32", [64], alignment=64)
    table = BindingTable(operator(context, "Softmax", [aligned], [F64]))
    table.bind_outputs(parts(memory, 0))
    integers = pumice.Tensor(TensorDesc("int32", [8, 8]), memory, 0)
    mistakes: list[tuple[str, list[object]]] = [
        ("C6", [parts(upload, 8), None]),  # kind
        ("C1", [None, BufferRange(upload, 4090, 8)]),  # count
        ("C5", [None]),  # null
        ("M1", [BufferRange(upload, 4088, 16)]),  # memory
        ("R1", [BufferRange(memory, 4088, 16)]),  # range
        ("R3", [BufferRange(memory, 8, 16)]),  # alignment
        ("R2", [BufferRange(memory, 0, 16)]),  # size
        ("T1", [integers]),  # description
        ("T2", [pumice.Tensor(TensorDesc("float32", [8, 8]), memory, 0)]),
        ("H4", parts(memory, 0)),  # hazards
    ]
    for rule, bindings in mistakes:
        expect_error(rule, table.bind_inputs, bindings)
    table.bind_inputs(parts(memory, 256))


def test_the_first_slot_that_breaks_the_first_rule_is_named(context: pumice.Context) -> None:
    memory, upload = Buffer(context, 4096), Buffer(context, 256, "upload")
    table = BindingTable(operator(context, "Sum", [F64] * 4, [F64]))
    x = BufferRange(memory, 0, 256)
    assert expect_error("M1", table.bind_inputs, [BufferRange(memory, 0, 8), x, upload, upload]).slot == "inputs[2]"
    assert (
        expect_error("R2", table.bind_inputs, [x, BufferRange(memory, 0, 8), x, BufferRange(memory, 0, 8)]).slot
        == "inputs[1]"
    )


@pytest.mark.parametrize("by_name", [False, True])
def test_a_rejected_call_changes_nothing(context: pumice.Context, by_name: bool) -> None:
    add = operator(context, "Add", [F64, F64], [F64])
    a, b, y = (pumice.tensor(np.full(64, value, "float32"), context) for value in (1, 2, 0))
    initialise(context, add)
    table = BindingTable(add)
    table.bind(a=a, b=b, y=y)
    short, upload = pumice.empty(63, "float32", context), Buffer(context, 256, "upload")
    if by_name:
        expect_error("R2", lambda: table.bind(a=b, b=b, y=short))  # the inputs alone would be accepted
        expect_error("C5", lambda: table.bind(a=b, y=y))
        expect_error("C6", lambda: table.bind(a=b, b=b, z=y))
    else:
        expect_error("C1", table.bind_inputs, [b])
        expect_error("R2", table.bind_inputs, [b, short])
        expect_error("M1", table.bind_outputs, [upload])
        expect_error("P3", table.bind_temporary, upload)
        expect_error("C10", table.reset, None)
        expect_error("R1", table.bind_outputs, [BufferRange(a.buffer, 0, 300)])
    run(context, add, table)
    np.testing.assert_array_equal(y.numpy(), np.full(64, 3))


def test_names_bind_all_at_once(context: pumice.Context) -> None:
    """Inputs and outputs are swapped in one call, without an intermediate overlap."""
    softmax = operator(context, "Softmax", [F64], [F64])
    initialise(context, softmax)
    values = [pumice.tensor(np.arange(64, dtype="float32"), context), pumice.empty(64, "float32", context)]
    name = [slot.name for slot in (*softmax.inputs, *softmax.outputs)]
    table = BindingTable(softmax)
    table.bind(**dict(zip(name, values, strict=True)))
    expect_error("H4", table.bind_inputs, [values[1]])
    table.bind(**dict(zip(name, values[::-1], strict=True)))
    table.unbind()
    expect_error("C9", pumice.CommandList(context).dispatch, softmax, table)


def test_slots_have_names_and_descriptions(context: pumice.Context) -> None:
    conv = operator(
        context, "Conv", [TensorDesc("float32", [1, 2, 5, 5]), TensorDesc("float32", [3, 2, 3, 3]), None],
        [TensorDesc("float32", [1, 3, 3, 3])],
    )  # fmt: skip
    assert [slot.desc is None for slot in conv.inputs] == [False, False, True]
    assert len({slot.name for slot in (*conv.inputs, *conv.outputs)}) == 4
    assert BindingTable(conv).dispatchable is conv
    assert conv.context is context


def test_after_every_rejection_a_valid_bind_and_run_succeeds(context: pumice.Context) -> None:
    """One table gets many invalid bindings, each followed by a valid bind and run."""
    relu = operator(context, "Relu", [F64], [F64])
    initialise(context, relu)
    table, foreign = BindingTable(relu), Buffer(context, 256, "readback")
    wrong: list[list[object]] = [
        [None], [foreign], [[None]], [None, None], ["x"], [BufferRange(foreign, 2**64 - 16, 32)],
    ]  # fmt: skip
    for step, bindings in enumerate(wrong):
        x, y = pumice.tensor(np.full(64, step, "float32"), context), pumice.empty(64, "float32", context)
        table.unbind()
        for call in (table.bind_inputs, table.bind_outputs):
            with pytest.raises(pumice.BindingError):
                call(bindings)
        table.bind_inputs([x])
        table.bind_outputs([y])
        run(context, relu, table)
        np.testing.assert_array_equal(y.numpy(), np.full(64, step))
    execute(context, relu, [x], [y])
