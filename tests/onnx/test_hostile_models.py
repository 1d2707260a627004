"""Small files that ask for huge amounts of work: each is rejected quickly with a readable message."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import pumice
from onnx_models import model, node, value
from process import python
from pumice.base.errors import InputError, binding_error, graph_error, truncate_middle, unsupported_error
from pumice.model import model_values

LONG = 16 << 10  # maximum characters of a message, including the note about the omitted part


def doubling(levels: int, calls: int = 2) -> onnx.ModelProto:
    """Functions that each call the next one `calls` times."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for level in range(levels):
        last = level == levels - 1
        nodes = []
        for k in range(calls):
            given, made = ("a" if k == 0 else f"t{k}"), ("b" if k == calls - 1 else f"t{k + 1}")
            op = helper.make_node("Neg", [given], [made]) if last else None
            nodes.append(op or helper.make_node(f"F{level + 1}", [given], [made], domain="local"))
        functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], nodes, opsets))
    proto = model([helper.make_node("F0", ["x"], ["y"], name="call", domain="local")])
    proto.functions.extend(functions)
    proto.opset_import.append(opsets[1])
    return proto


def test_functions_that_call_each_other_2_to_the_39_times_are_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.GraphError, match=f"at most 1048576 nodes.*given {2**39} nodes"):
        pumice.load(doubling(39), context)


def test_functions_with_large_tensors_are_rejected_by_their_bytes(context: pumice.Context) -> None:
    proto = doubling(18)
    tensor = onnx.numpy_helper.from_array(np.zeros(4096, "float32"), "t")
    proto.functions[-1].node.append(helper.make_node("Constant", [], ["unused"], value=tensor))
    with pytest.raises(pumice.GraphError, match="functions that expand to at most .* bytes, given"):
        pumice.load(proto, context)


def test_functions_within_the_limits_run(context: pumice.Context) -> None:
    x = np.arange(8, dtype="float32").reshape(2, 4)
    with pumice.load(doubling(6), context) as loaded:
        np.testing.assert_array_equal(loaded(x), x)
    with pumice.load(doubling(40, calls=1), context) as loaded:
        np.testing.assert_array_equal(loaded(x), -x)


def test_functions_that_nest_thousands_deep_are_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.GraphError, match="functions"):
        pumice.load(doubling(3000, calls=1), context)


def split(sizes: list[Any], **attributes: Any) -> onnx.ModelProto:
    nodes = [
        node("SplitToSequence", ["x"], ["parts"], axis=0, **attributes),
        node("SequenceAt", ["parts", "at"], ["y"]),
    ]
    return model(nodes, [value("x", sizes)], constants={"at": np.array(3)})


def test_millions_of_split_outputs_are_not_millions_of_values(context: pumice.Context) -> None:
    """Loading takes as long as for a few parts: they are created when the program runs."""
    code = """
import resource, sys, onnx, pumice
pumice.load(onnx.load(sys.argv[1]), progress=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    used = []
    for rows in (8, 8_388_608):
        path = Path(os.environ.get("TMPDIR", "/tmp")) / f"pumice_split_{rows}_{os.getpid()}.onnx"
        onnx.save(split([rows, 1]), path)
        done = python("-c", code, str(path))
        path.unlink()
        assert done.returncode == 0, done.stderr
        used.append(int(done.stdout))
    assert used[1] - used[0] < 100 << 10  # KiB; one graph value per part would take gigabytes


@pytest.mark.slow
def test_parts_behind_the_limit_are_the_same_ones(context: pumice.Context) -> None:
    x = np.arange(2 * 4100, dtype="float32").reshape(4100, 2)
    with pumice.load(split([4100, 2]), context, progress=False) as loaded:
        np.testing.assert_array_equal(loaded(x, loop_timeout=None), x[3:4])


def test_more_tensors_than_a_call_gives_as_arrays_are_rejected_by_name(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_values, "_MAX_ARRAYS", 5)
    proto = model([node("SplitToSequence", ["x"], ["y"], axis=0)], [value("x", ["N", 2])])
    with pumice.load(proto, context) as loaded:
        assert len(loaded(np.zeros((5, 2), "float32"))) == 5
        with pytest.raises(
            pumice.UnsupportedError, match="output 'y'(.|\n)*a sequence of 6 tensors; a call returns at most 5"
        ):
            loaded(np.zeros((6, 2), "float32"))


def test_an_operator_in_a_set_older_than_itself_has_its_inputs_counted(context: pumice.Context) -> None:
    from pumice.importer.translators.operator_table import TRANSLATORS

    for version in (1, 6, 9):
        for op in sorted(TRANSLATORS):
            domain, _, name = op.rpartition("::")
            proto = model([helper.make_node(name, [], ["y"], domain=domain)], opset=version)
            if domain:
                proto.opset_import.append(helper.make_opsetid(domain, 1))
            try:
                pumice.load(proto, context, progress=False)
            except pumice.Error:
                continue


# ---- endless recursion and loops


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null"])
def test_a_device_is_no_model(context: pumice.Context, device: str) -> None:
    with pytest.raises(pumice.GraphError, match=f"model '{device}': expected a file or a pipe, given a device"):
        pumice.load(device, context)
    with (
        open(device, "rb") as file,
        pytest.raises(pumice.GraphError, match="given the file object of a device"),
    ):
        pumice.load(file, context)


def test_a_device_is_no_file_of_weights(context: pumice.Context, tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"])], constants={"w": np.zeros(4, "float32")})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights")
    (tmp_path / "weights").symlink_to("/dev/zero")
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(pumice.GraphError, match="weight file|regular file"):
        pumice.load(tmp_path / "model.onnx", context)


def test_a_pipe_without_an_end_is_rejected(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pumice.importer.file import model_file

    monkeypatch.setattr(model_file, "_MAX_PIPE_BYTES", 1 << 16)
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with pytest.raises(BrokenPipeError):
            (tmp_path / "pipe").write_bytes(b"\0" * (1 << 26))

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(pumice.GraphError, match="expected at most 65536 bytes from the pipe"):
        pumice.load(tmp_path / "pipe", context)
    writer.join()


# ---- long messages


MEGABYTE = "n" * (1 << 20)


def check(error: BaseException) -> None:
    text = str(error)
    assert len(text) < LONG + 200
    assert "omitted" in text or "nnn ..." in text  # messages written by a shader's author are shortened with dots


@pytest.mark.parametrize("what", ["node", "operator", "input", "attribute", "output", "text", "domain"])
def test_what_a_file_writes_into_an_error_is_bounded(context: pumice.Context, what: str) -> None:
    relu = node("Relu", name="relu")
    protos = {
        "node": lambda: model([node("Wobble", name=MEGABYTE)]),
        "operator": lambda: model([node(MEGABYTE)]),
        "input": lambda: model([relu], [value(MEGABYTE), value(MEGABYTE), value("x")]),
        "attribute": lambda: model([node("Relu", **{MEGABYTE: 1})]),
        "output": lambda: model([relu], outputs=[MEGABYTE]),
        "text": lambda: model([node("Pad", ["x", "x"], mode=MEGABYTE)]),
        "domain": lambda: model([node("Relu", domain=MEGABYTE)]),
    }
    with pytest.raises(pumice.Error) as caught:
        pumice.load(protos[what](), context)
    check(caught.value)


def test_errors_of_the_engine_are_bounded(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input(MEGABYTE, "float32", [4])
    calls = [
        lambda: graph.input(MEGABYTE, "float32", [4]),
        lambda: graph.add(MEGABYTE, x),
        lambda: graph.add("Relu", x, x, name=MEGABYTE),
        lambda: pumice.Context(MEGABYTE),
        lambda: pumice.Operator(MEGABYTE, [], []),
        lambda: pumice.Operator("Relu", [pumice.TensorDesc("float32", [4])], [], **{MEGABYTE: 1}),
    ]
    for call in calls:
        with pytest.raises(pumice.Error) as caught:
            call()
        check(caught.value)


def test_a_text_is_cut_between_its_characters(context: pumice.Context) -> None:
    for pad in range(4):
        with pytest.raises(pumice.Error) as caught:
            pumice.Context("x" * pad + "\N{SNOWMAN}" * (1 << 16))
        check(caught.value)
        assert "\ufffd" not in str(caught.value)


def test_what_is_left_of_a_text_is_its_beginning_and_its_end() -> None:
    text = "begin" + "-" * 100_000 + "end"
    cut = truncate_middle(text)
    assert cut.startswith("begin-")
    assert cut.endswith("-end")
    assert f"({len(text) - LONG} characters of this message are omitted)" in cut
    assert truncate_middle("short") == "short"
    for error in (
        graph_error("node", text, "wrong"),
        binding_error("K5", text, "one", text),
        unsupported_error("model", [text, "the second"]),
        InputError(text),
    ):
        check(error)
    listed = unsupported_error("model", [text] * 1000)
    assert len(listed.items) == 1000
    assert "the second" in str(unsupported_error("model", [text, "the second"]))
