"""Graphs, programs and their executions."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import pumice
from control_graphs import collatz, count_up, counting_loop, graph_of, identity, integer, less_than_limit, truth
from signature_probes.probe import covers, differ, expect_error, times_out

X = np.arange(-4, 4, dtype="float32")


def network() -> pumice.Graph:
    graph = pumice.Graph("net")
    x = graph.input("x", "float32", [8])
    y = graph.add("Exp", graph.add("Neg", graph.add("Softmax", x, name="first"), name="second"), name="third")
    graph.output("y", y)
    return graph


@covers("Graph.__init__.name")
def names(context: pumice.Context) -> None:
    differ(pumice.Graph("one").name, pumice.Graph("two").name)


@covers("Graph.add.outputs", "Graph.add.name", "Graph.add.output_names", "Graph.add.**kwargs")
def nodes(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [6])
    assert len(graph.add("Split", x, outputs=3, name="split", output_names=["a", "b", "c"], num_outputs=3)) == 3
    assert graph.nodes[-1].name == "split"
    assert [value.name for value in graph.nodes[-1].outputs] == ["a", "b", "c"]
    expect_error(lambda: graph.add("Relu", x, output_names=["d", "e"]), "expected 1 output names, given 2")
    expect_error(lambda: graph.add("nnapi::RELU", x, output_names=["d", "e"]), "expected 1 output names, given 2")
    expect_error(lambda: graph.add("Relu", x, outputs=2), "output")
    expect_error(lambda: graph.add("Relu", x, wobble=1), "wobble")


@covers(
    "Graph.input.dimension_names",
    "Graph.input.owned",
    "Graph.input.scale",
    "Graph.input.zero_point",
    "Graph.input.channel_axis",
)
def inputs(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None, 3], dimension_names=["N", ""])
    graph.output("y", graph.add("Add", x, graph.input("w", "float32", [3])))
    assert graph.compile(context).inputs[0].dimension_names == ["N", ""]
    expect_error(
        lambda: pumice.Graph().input("z", "float32", [2], dimension_names=["a", "b"]),
        "expected 1 size names, given 2",
    )
    expect_error(lambda: pumice.Graph().input("z", "float32", None, dimension_names=["a"]), "expected 0 size names")
    persistent = []
    for owned in (False, True):
        owning = pumice.Graph()
        weight = owning.input("w", "float32", [8], owned=owned)
        owning.output("y", owning.add("Add", owning.input("x", "float32", [8]), weight))
        persistent.append(owning.compile_operator(context).binding_properties.persistent_bytes)
    differ(*persistent)
    quantized = pumice.Graph().input("q", "int8", [2, 3], scale=[1, 2, 3], channel_axis=1)
    assert (quantized.scale, quantized.channel_axis) == ((1, 2, 3), 1)
    assert pumice.Graph().input("q", "uint8", [2], scale=0.5, zero_point=7).zero_point == 7


@covers("Graph.output.shape", "Graph.output.dtype", "Graph.output.scale", "Graph.output.zero_point")
def declared_outputs(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "uint8", None, scale=0.5, zero_point=3)
    graph.output("y", x, shape=[2])
    assert x.shape == (2,)
    expect_error(lambda: graph.output("z", x, dtype="int8"), "declared as int8")
    expect_error(lambda: graph.output("z", x, scale=0.25), "declared with scale 0.25")
    expect_error(lambda: graph.output("z", x, scale=0.5, zero_point=4), "zero point 4")


@covers(
    "Graph.constant.name",
    "Graph.constant.scale",
    "Graph.constant.zero_point",
    "Graph.constant.channel_axis",
    "Graph.constant_bytes.name",
)
def constants(context: pumice.Context) -> None:
    graph = pumice.Graph()
    made = graph.constant(np.zeros((2, 3), "int8"), name="c", scale=[1, 2, 3], channel_axis=1)
    assert (made.name, made.scale, made.channel_axis) == ("c", (1, 2, 3), 1)
    assert graph.constant(np.zeros(2, "uint8"), scale=0.5, zero_point=7).zero_point == 7
    assert graph.constant_bytes(b"\0" * 8, "int64", [1], name="bytes").name == "bytes"


@covers(
    "Graph.compile.precision",
    "Graph.compile.keep_all",
    "Graph.compile.fuse",
    "Graph.compile.progress",
    "Graph.compile.memory",
    "Graph.compile.float32_nodes",
)
def compilations(context: pumice.Context) -> None:
    given = {"x": X / 3}
    differ(*(network().compile(context, precision)(given)["y"] for precision in ("fp32", "fp16", "bf16")))
    expect_error(lambda: network().compile(context, "fp12"), "fp12")
    assert len(network().compile(context, keep_all=True).outputs) == 3
    differ(*(network().compile(context, fuse=fuse).arena([[8]])["dispatches"] for fuse in (True, False)))
    expect_error(lambda: network().compile(context, fuse=["wobble"]), "wobble")
    expect_error(lambda: network().compile(context, keep_all=True, fuse=["elementwise"]), "keep_all")
    names = network().node_names(0)
    differ(*(network().compile(context, "fp16", float32_nodes=one)(given)["y"] for one in ([], names)))
    expect_error(lambda: network().compile(context, float32_nodes=["wobble"]), "wobble")
    seen: list[str] = []
    weighted = pumice.Graph()
    x, w = weighted.input("x", "float32", [8, 8]), np.ones((8, 8), "float32")
    weighted.output("y", weighted.add("MatMul", x, w))
    weighted.compile(context, progress=lambda phase, done, total: seen.append(phase))
    assert seen
    with pumice.Context(f"uuid:{context.info.uuid}") as other:
        expect_error(lambda: network().compile(context, memory=pumice._pumice.UploadMemory(other, 64)), "context")


@covers("Graph.compile_operator.precision", "Graph.compile_operator.flags")
def operators(context: pumice.Context) -> None:
    def temporary(**options: Any) -> int:
        return network().compile_operator(context, **options).binding_properties.temporary_bytes

    assert temporary(flags=["ALLOW_HALF_PRECISION_COMPUTATION"]) == temporary(precision="fp16")
    differ(temporary(), temporary(precision="fp16"))
    expect_error(lambda: temporary(precision="fp12"), "fp12")
    expect_error(lambda: temporary(flags=["WOBBLE"]), "WOBBLE")


@covers("Graph.if_.inputs", "Graph.if_.name", "Graph.if_.output_names")
def conditionals(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x, c = graph.input("x", "int32", [1]), graph.input("c", "bool", [1])
    (made,) = graph.if_(c, identity(), identity(), inputs=[x], name="choice", output_names=["chosen"])
    assert (graph.nodes[-1].name, made.name) == ("choice", "chosen")
    expect_error(lambda: graph.if_(c, identity(), identity(), inputs=[]), "B2.3")
    expect_error(lambda: graph.if_(c, identity(), identity(), inputs=[x], output_names=["a", "b"]), "names of outputs")


@covers("Graph.while_.state", "Graph.while_.invariant", "Graph.while_.name", "Graph.while_.output_names")
def loops(context: pumice.Context) -> None:
    def made(state: bool) -> tuple[pumice.Value, ...]:
        graph = pumice.Graph()
        start, limit = graph.input("start", "int32", [1]), graph.input("limit", "int32", [1])
        condition, body = less_than_limit(), count_up()
        if state:  # the limit as a loop-carried state
            body.output("limit", body.add("Identity", body.inputs[1]))
        given = {"state": [limit]} if state else {"invariant": [limit]}
        return graph.while_(condition, body, carried=[start], name="loop", output_names=["last"], **given)

    for state in (True, False):
        (last,) = made(state)
        assert (last.name, last.graph.nodes[-1].name) == ("last", "loop")
    graph = pumice.Graph()
    start, limit = graph.input("start", "int32", [1]), graph.input("limit", "int32", [1])
    expect_error(lambda: graph.while_(less_than_limit(), count_up(), carried=[start]), "B2.4")

    def named() -> Any:
        given: dict[str, Any] = {"carried": [start], "invariant": [limit], "output_names": ["a", "b"]}
        return graph.while_(less_than_limit(), count_up(), **given)

    expect_error(named, "names of outputs")


FOREVER = {"start": integer(0), "limit": integer(2**31 - 1)}


def forever(context: pumice.Context) -> pumice.Program:
    """A loop whose step of 0 never reaches the limit."""
    return counting_loop(0).compile(context)


def product(context: pumice.Context) -> tuple[pumice.Program, tuple[np.ndarray, ...]]:
    """Return a matmul too long to be finished immediately."""
    graph, size = pumice.Graph(), 700 if context.info.kind == "software" else 4096
    x, w = (graph.input(name, "float32", [size, size]) for name in "xw")
    graph.output("y", graph.add("MatMul", x, w))
    program, given = graph.compile(context), (np.ones((size, size), "float32"),) * 2
    program.call(given)
    return program, given


@covers(
    "Program.__call__.timeout",
    "Program.__call__.loop_timeout",
    "Program.call.timeout",
    "Program.call.loop_timeout",
    "Program.run_async.loop_timeout",
)
def program_calls(context: pumice.Context) -> None:
    program, in_order = forever(context), tuple(FOREVER.values())
    for call in (
        lambda **limit: program(FOREVER, **limit),
        lambda **limit: program.call(in_order, **limit),
        lambda **limit: program.run_async(in_order, **limit),
    ):
        times_out(lambda call=call: call(loop_timeout=0.05))
        expect_error(lambda call=call: call(loop_timeout=-1), "loop_timeout")
    times_out(lambda: program(FOREVER, timeout=0.05, loop_timeout=None))
    times_out(lambda: program.call(in_order, timeout=0.05, loop_timeout=None))


@covers("Program.__call__.filled", "Program.call.filled", "Program.execution.filled")
def filled_memory(context: pumice.Context) -> None:
    """A program writes everything that it reads, so its results do not change."""
    program, given = product(context)
    inputs = dict(zip("xw", given, strict=True))
    expected = program(inputs)["y"].tobytes()
    execution = program.execution(filled=True)
    for name, array in inputs.items():
        execution.set(name, array)
    assert program.call(given, filled=True)[0].tobytes() == expected
    assert program(inputs, filled=True)["y"].tobytes() == execution.compute()["y"].tobytes() == expected


@covers(
    "Program.observe.names",
    "Program.observe.steps",
    "Program.observe_runs.max_runs",
    "Program.observe_runs.loop_timeout",
)
def observations(context: pumice.Context) -> None:
    program, given = product(context)
    assert all(one["array"] is not None for one in program.observe(given)["tensors"])
    assert all(one["array"] is None for one in program.observe(given, names=set())["tensors"])
    assert not program.observe(given, steps=1)["outputs"]
    expect_error(lambda: program.observe(given, steps=0), "steps")
    steps = collatz().compile(context)
    for max_runs in (1, 3):
        found = steps.observe_runs((np.array([6], np.int32),), max_runs=max_runs)
        assert max(region["observed"] for region in found["regions"]) == max_runs
    endless = forever(context)
    times_out(lambda: endless.observe_runs(tuple(FOREVER.values()), loop_timeout=0.05))
    expect_error(lambda: endless.observe_runs(tuple(FOREVER.values()), loop_timeout=-1), "loop_timeout")


@covers("ProgramRun.result.timeout", "ProgramRun.wait.timeout")
def runs(context: pumice.Context) -> None:
    program, given = product(context)
    run = program.run_async(given)
    for wait in (run.wait, run.result):
        times_out(lambda wait=wait: wait(timeout=0))
    run.result(timeout=60)


@covers("Program.call.out")
def given_outputs(context: pumice.Context) -> None:
    graph = pumice.Graph("one")
    graph.output("y", graph.add("Relu", graph.input("x", "float32", [4])))
    program, x, y = graph.compile(context), np.ones(4, "float32"), np.zeros(4, "float32")
    assert program.call((x,), out=[y])[0] is y
    assert program.call((x,), out=[None])[0] is not y
    expect_error(lambda: program.call((x,), out=[]), "out")
    expect_error(lambda: program.call((x,), out=[y[:3]]), "shape")


@covers("Program.execution.measure", "Burst.compute.timeout", "Burst.compute.loop_timeout")
def executions(context: pumice.Context) -> None:
    program = counting_loop().compile(context)
    for measure in (False, True):
        execution = program.execution(measure)
        execution.set("start", integer(0))
        execution.set("limit", integer(3))
        execution.compute()
        if measure:
            assert execution.timing["on_device"] > 0
        else:
            expect_error(lambda execution=execution: execution.timing)
    never = forever(context)
    stuck = never.execution()
    for name, array in FOREVER.items():
        stuck.set(name, array)
    times_out(lambda: never.burst().compute(stuck, loop_timeout=0.05))
    times_out(lambda: never.burst().compute(stuck, timeout=0.05, loop_timeout=None))


@covers(
    "Execution.compute.timeout",
    "Execution.compute.loop_timeout",
    "Execution.start.wait_for",
    "Execution.start.timeout",
    "Execution.start.duration",
    "Execution.start.loop_timeout",
    "Event.wait.timeout",
)
def events(context: pumice.Context) -> None:
    program = forever(context)

    def stuck() -> pumice.Execution:
        execution = program.execution()
        for name, array in FOREVER.items():
            execution.set(name, array)
        return execution

    times_out(lambda: stuck().compute(loop_timeout=0.05))
    times_out(lambda: stuck().compute(timeout=0.05, loop_timeout=None))
    for limits in ({"loop_timeout": 0.05}, {"timeout": 0.05}, {"duration": 0.05}):
        times_out(lambda limits=limits: stuck().start(**{"loop_timeout": None, **limits}).wait())
    event = stuck().start(loop_timeout=0.5)
    times_out(lambda: event.wait(timeout=0.01))
    quick = network().compile(context).execution()
    quick.set("x", X)
    times_out(lambda: quick.start(wait_for=[event]).wait())  # this execution raises the error of the one it waits for


@covers("validate.context", "validate.precision", "validate.progress")
def validations(context: pumice.Context) -> None:
    """Validate a file, and a loaded model, which is reloaded at another precision."""
    from onnx_models import gemm

    x = np.ones((2, 4), "float32")
    seen: list[int] = []
    with pumice.load(gemm(), context) as loaded, pumice.Context(f"uuid:{context.info.uuid}") as other:
        for model in (loaded, gemm()):
            for precision in ("fp32", "fp16", "bf16"):
                report = pumice.validate(model, [x], precision=precision, context=context)
                assert (report.precision, report.ok) == (precision, True)
            before = other.pipelines_created
            pumice.validate(model, [x], context=other, progress=lambda done, total: seen.append(done))
            assert other.pipelines_created > before or other.submitted > 0
            expect_error(lambda model=model: pumice.validate(model, [x], precision="fp12"), "fp12")
            expect_error(lambda model=model: pumice.validate(model, [x], context="llvmpipe"), "argument 'context'")
        assert pumice.validate(loaded, [x]).precision == "fp32"
    assert seen
    assert truth(True).all() and graph_of("Relu", [("float32", [1])]).name == "relu"


@covers("validate.tolerances", "validate.allow_unchecked", "validate.mode", "validate.inputs")
def verdicts(context: pumice.Context) -> None:
    """A tolerance decides, allowed operators may stay unproved, and a mode skips the other comparison."""
    from onnx import TensorProto, helper

    from onnx_models import gemm

    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    with pumice.load(gemm(), context, precision="fp16") as model:
        name = model.outputs[0].name
        oks = [pumice.validate(model, [x], tolerances={name: number}).ok for number in (0.0, 1.0)]
        assert oks == [False, True]
        expect_error(lambda: pumice.validate(model, [x], tolerances={"nobody": 1.0}), "nobody")
        for mode, has in (("isolated", (True, False)), ("chained", (False, True)), ("both", (True, True))):
            row = pumice.validate(model, [x], mode=mode).rows[0]
            assert (row.local is not None, row.accumulated is not None) == has
        expect_error(lambda: pumice.validate(model, [x], mode="backwards"), "backwards")
        expect_error(lambda: pumice.validate(model, [x], inputs="reference"), "isolated")
        kernels = [
            len(pumice.validate(model, [x], mode="isolated", inputs=one).kernels) for one in ("device", "reference")
        ]
        assert kernels[0] > kernels[1] == 0
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xyz"]
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["y"], "draw"), helper.make_node("Neg", ["x"], ["z"], "neg")]
    graph = helper.make_graph(nodes, "random", values[:1], values[1:])
    random = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    oks = [pumice.validate(random, [x[0]], context=context, allow_unchecked=names).ok for names in ((), ["draw"], True)]
    assert oks == [False, True, True]
    expect_error(lambda: pumice.validate(random, [x[0]], context=context, allow_unchecked=["nobody"]), "nobody")


@covers("ValidationReport.__init__.facts")
def reports(context: pumice.Context) -> None:
    """The record contains everything a validation report shows."""
    from pumice.validation.report.report import ReportMetadata, get_device_metadata

    said = [None, ReportMetadata(get_device_metadata(context.info), inputs=("x",))]
    records = [pumice.ValidationReport("m", "d", "fp32", 1, [], [], facts=facts).as_dict() for facts in said]
    differ(*(record["device"] for record in records))
    differ(*(record["graph"] for record in records))


@covers("output_descs.outputs", "output_descs.**kwargs")
def output_descs(context: pumice.Context) -> None:
    x = pumice.TensorDesc("float32", [4, 6])
    assert [len(pumice.output_descs("Split", [x], outputs=count, axis=0)) for count in (2, 4)] == [2, 4]
    shapes = [pumice.output_descs("Concat", [x, x], axis=axis)[0].shape for axis in (0, 1)]
    differ(*shapes)


@covers(
    "Graph.compile.check_indices", "Graph.compile.deterministic", "Graph.shape_sources.elements", "Graph.input.assumed"
)
def indices_and_sources(context: pumice.Context) -> None:
    graph = pumice.Graph()
    i = graph.input("i", "int64", [1])
    found = graph.add(
        "Add", i, np.array([7])
    )  # a call checks its given indices, check_indices= also indices computed on the device
    graph.output("y", graph.add("Gather", graph.constant(np.ones(3, "float32")), found))
    graph.compile(context)({"i": np.array([0])})
    expect_error(lambda: graph.compile(context, check_indices=True)({"i": np.array([0])}), "index 7")
    graph = pumice.Graph()
    scattered = [graph.input("x", "float32", [4]), graph.input("i", "int64", [9]), graph.input("u", "float32", [9])]
    graph.output("y", graph.add("ScatterElements", *scattered, reduction="add"))
    differ(
        *({row["kernel"] for row in graph.compile(context, deterministic=chosen).report()} for chosen in (False, True))
    )
    graph = pumice.Graph()
    sizes = graph.input("sizes", "int64", [1])
    assert graph.shape_sources(sizes) == []
    assert graph.shape_sources(sizes, elements=True) == [sizes]
    assert [pumice.Graph().input("x", "float32", [4], assumed=one).shape for one in (False, True)]


@covers("validate.accuracy", "validate.allow_ill_conditioned")
def accuracy_of_outputs(context: pumice.Context) -> None:
    from onnx_models import gemm

    options = {"context": context, "precision": "fp16", "mode": "chained"}
    cases = [np.linspace(0.1, 1, 8, dtype="float32").reshape(2, 4)]
    assert [pumice.validate(gemm(), cases, accuracy=limit, **options).ok for limit in (1e-9, 0.1)] == [False, True]
    for allowed in (True, ["sum", "y"]):
        assert pumice.validate(gemm(), cases, accuracy=1e-9, allow_ill_conditioned=allowed, **options).ok


@covers("validate.repeat", "validate.allow_nondeterministic")
def repeated_validations(context: pumice.Context) -> None:
    """All requested runs are reported; allowing different bits changes the verdict if they differ."""
    import pumice.validation.search.repeatability
    from onnx_models import gemm

    x = np.ones((2, 4), "float32")
    runs = [pumice.validate(gemm(), [x], context=context, repeat=count).repeats for count in (0, 2, 5)]
    assert [one[0].runs["one list"] if one else 0 for one in runs] == [0, 2, 5]
    expect_error(lambda: pumice.validate(gemm(), [x], context=context, repeat=1), "repeat")
    plain, calls = pumice.validation.search.repeatability.make_replay, iter(range(1000))

    def turning(program: pumice.Program, inputs: Any) -> Any:
        run = plain(program, inputs)
        return lambda: {name: array + np.float32(1e-6 * (next(calls) % 2)) for name, array in sorted(run().items())[:1]}

    pumice.validation.search.repeatability.make_replay = turning
    try:
        options = {"repeat": 2, "tolerances": {"sum": 1e-3}, "context": context}
        oks = [pumice.validate(gemm(), [x], allow_nondeterministic=may, **options).ok for may in (False, True)]
    finally:
        pumice.validation.search.repeatability.make_replay = plain
    assert oks == [False, True]


@covers(
    "reduce.context",
    "reduce.precision",
    "reduce.fails",
    "reduce.progress",
    "reduce.repeat",
    "ValidationReport.explain.folder",
)
def faults_by_themselves(context: pumice.Context) -> None:
    """A failing subgraph is found on request, and its files are written to a folder."""
    from tempfile import TemporaryDirectory

    from onnx_models import gemm

    x = np.ones((2, 4), "float32")
    seen: list[int] = []
    with pumice.Context(f"uuid:{context.info.uuid}") as other:
        for precision in ("fp32", "fp16"):
            before = other.submitted
            options = {"context": other, "precision": precision, "progress": lambda done, total: seen.append(done)}
            found = pumice.reduce(gemm(), [x], fails=lambda proto, inputs: "x" in inputs, **options)
            assert (found.after, found.precision) == (1, precision)
            assert other.submitted > before
    assert seen
    expect_error(lambda: pumice.reduce(gemm(), [x], context=context), "expected a model that fails")
    expect_error(lambda: pumice.reduce(gemm(), [x], context=context, repeat=4), "runs of the same bits")
    expect_error(lambda: pumice.reduce(gemm(), [x], repeat=4, fails=lambda proto, inputs: True), "given both")
    expect_error(lambda: pumice.reduce(gemm(), [x], context="llvmpipe"), "argument 'context'")
    report = pumice.validate(gemm(), [x], context=context, tolerances={"sum": 0.0})
    with TemporaryDirectory() as folder:
        report.explain(f"{folder}/made")
        assert os.path.exists(f"{folder}/made/model.onnx")
        expect_error(lambda: report.explain(folder), "expected a new or an empty folder")
