"""Compile-only contexts: everything is compiled and recorded, nothing is executed, and no result can be read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from glsl_kernel_sources import SCALE
from pumice.text import Generator

STORY = Path(__file__).resolve().parents[2] / "python" / "pumice" / "data" / "story"
NO_RESULT = "compile-only context: nothing is executed, so .* has no result"
ENDLESS = """
layout(binding = 0) buffer X { uint x[]; };
void main() { while (x[0] == 0u) x[1] += 1u; }
"""


@pytest.fixture(scope="module")
def compiling(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", compile_only=True) as context:
        yield context


def make_model(*nodes: onnx.NodeProto, inputs: dict[str, list[object]], outputs: dict[str, int]) -> onnx.ModelProto:
    """Return a model. outputs: name -> element type."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_a_model_is_compiled_but_has_no_result(compiling: pumice.Context) -> None:
    weights = helper.make_tensor("w", TensorProto.FLOAT, [64, 32], np.ones(64 * 32, np.float32))
    proto = make_model(
        helper.make_node("MatMul", ["x", "w"], ["y"]), inputs={"x": [3, 64]}, outputs={"y": TensorProto.FLOAT}
    )
    proto.graph.initializer.append(weights)
    before = len(compiling.pipelines)
    model = pumice.load(proto, compiling)
    x = np.ones((3, 64), np.float32)
    assert model.warm_up(x) > 0
    assert len(compiling.pipelines) > before
    with pytest.raises(pumice.UnsupportedError, match="output 'y' of 'small' has no result"):
        model(x)
    run = model.run_async(x)
    run.wait(1)
    with pytest.raises(pumice.UnsupportedError, match=NO_RESULT):
        run.result()
    (product,) = (row for row in model.report() if row["op"] == "MatMul")
    kernels = {pipeline["kernel"] for pipeline in model.report().pipelines}
    assert any(product["kernel"].split(" ")[0] in kernel for kernel in kernels), (product, kernels)
    assert "registers" in str(model.report())
    assert ">spills<" in model.report()._repr_html_()


def test_pipelines_have_their_statistics(compiling: pumice.Context) -> None:
    kernel = pumice.Kernel(SCALE, compiling, name="scale in a record")
    x, y = pumice.tensor(np.ones(64, np.float32), compiling), pumice.zeros(64, context=compiling)
    kernel(x=x, y=y, threads=64)
    (record,) = (one for one in compiling.pipelines if one["kernel"] == "scale in a record")
    assert record["used"]
    assert record["failure"] == ""
    assert record["storage"] == "fp32"
    assert record["compile_seconds"] > 0
    assert set(record["summary"]) == {
        "registers",
        "spills",
        "spill_bytes",
        "shared_bytes",
        "occupancy",
        "code_bytes",
        "instructions",
    }
    assert bool(record["executables"]) == compiling.feature("pipelineExecutableInfo")


def test_other_contexts_list_no_pipelines(context: pumice.Context) -> None:
    pumice.Kernel(SCALE, context)(x=np.ones(4, np.float32), y=np.ones(4, np.float32), threads=4)
    assert not context.compile_only
    assert context.pipelines == []
    context.require_execution("nothing")


def test_kernels_never_run(compiling: pumice.Context) -> None:
    tensor = pumice.zeros(2, "uint32", compiling)
    kernel = pumice.Kernel(ENDLESS, compiling)
    kernel(x=tensor, threads=1)
    compiling.wait_idle()
    assert compiling.completed == compiling.submitted


def test_nothing_can_be_read(compiling: pumice.Context) -> None:
    tensor = pumice.tensor(np.ones(8, np.float32), compiling)
    y = np.zeros(8, np.float32)
    for read in (
        tensor.numpy,
        lambda: np.asarray(tensor),
        lambda: np.from_dlpack(tensor),
        lambda: tensor.buffer.map(),
        lambda: pumice.Kernel(SCALE, compiling)(x=np.ones(8, np.float32), y=y, threads=8),
        lambda: pumice.Kernel(SCALE, compiling).time(x=tensor, y=pumice.zeros(8, context=compiling), threads=8),
    ):
        with pytest.raises(pumice.UnsupportedError, match=NO_RESULT):
            read()
    assert not y.any(), "the array of a call that raised is unchanged"


def test_both_branches_and_the_body_of_a_loop_are_compiled(compiling: pumice.Context) -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        # A size that depends on data: the host takes it as 1.
        nodes = [
            helper.make_node("NonZero", ["x"], [f"{name}_i"]),
            helper.make_node("Shape", [f"{name}_i"], [f"{name}_s"]),
        ]
        nodes += [helper.make_node(op, ["x"], [f"{name}_z"])]
        nodes += [helper.make_node("Expand", [f"{name}_z", f"{name}_s"], [f"{name}_y"])]
        return helper.make_graph(nodes, name, [], [value])

    proto = make_model(
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Erf"), else_branch=branch("b", "Atanh")),
        inputs={"x": [1, 1]},
        outputs={"y": TensorProto.FLOAT},
    )
    model = pumice.load(proto, compiling)
    model.warm_up(np.ones((1, 1), np.float32))
    kernels = [row["kernel"] for row in model.report() if row["op"] in ("Erf", "Atanh")]
    assert len(kernels) == 2
    assert all(kernels), "both branches are bound"


@pytest.mark.parametrize("sizes", [[3, 4], [12]])
def test_a_reshape_to_sizes_that_depend_on_data_is_compiled(compiling: pumice.Context, sizes: list[int]) -> None:
    """The sizes are taken as 1, which contradicts the number of elements."""
    proto = make_model(
        helper.make_node("Cast", ["s"], ["i"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "i"], ["r"]),
        helper.make_node("Erf", ["r"], ["y"]),
        inputs={"x": [12], "s": [len(sizes)]},
        outputs={"y": TensorProto.FLOAT},
    )
    model = pumice.load(proto, compiling)
    assert model.warm_up(np.ones(12, np.float32), np.array(sizes, np.float32)) > 0
    (erf,) = (row for row in model.report() if row["op"] == "Erf")
    assert erf["kernel"] not in ("", "host", "none")
    with pytest.raises(pumice.Error, match=r"\[12\] reshaped to \[5\]"):
        constant = helper.make_tensor("i", TensorProto.INT64, [1], [5])
        wrong = make_model(
            helper.make_node("Reshape", ["x", "i"], ["y"]), inputs={"x": ["n"]}, outputs={"y": TensorProto.FLOAT}
        )
        wrong.graph.initializer.append(constant)
        pumice.load(wrong, compiling).warm_up(np.ones(12, np.float32))


def test_the_text_generator_compiles_its_steps(compiling: pumice.Context) -> None:
    with Generator(STORY, compiling) as generator:
        before = len(compiling.pipelines)
        assert generator.warm_up("Once upon a time") > 0
        assert len(compiling.pipelines) > before
        with pytest.raises(pumice.UnsupportedError, match="the text has no result"):
            generator("Once upon a time", max_tokens=2)


def test_quirks_come_from_the_table_and_the_argument(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}", compile_only=True, quirks=["flushed_denormals"]) as compiling:
        quirks = {quirk.name: quirk.detected for quirk in compiling.driver_quirks}
        assert quirks["flushed_denormals"] is False
        assert not any(quirks.values())
        assert compiling.submitted == 0, "no trial runs"
        assert "compile-only" in repr(compiling)


def test_derived_contexts_are_compile_only_too(compiling: pumice.Context) -> None:
    from pumice._pumice import another_context

    with another_context(compiling, ["shaderFloat16"]) as other:
        assert other.compile_only


def test_the_environment_variable_applies_to_all_contexts(context: pumice.Context) -> None:
    code = "import pumice; c = pumice.default_context(); print(c.compile_only, pumice.Context().compile_only)"
    for value, expected in (("1", "True True"), ("0", "False False"), ("", "False False")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PUMICE_COMPILE_ONLY": value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
