"""A table with a call for each optional argument of the public API that no other test passes; test_signatures.py runs it.

A row has the arguments that it is about, as "Class.method argument ...", a call, and a pattern. Without a pattern the call
returns results for several values of the arguments, and all of them have to differ. With a pattern the call has to fail, and
the pattern has to match the error: its type, a colon and its message.
"""

from __future__ import annotations

import functools
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import onnx
import pytest

import pumice
from control_graphs import counting_loop, integer
from dv_commands import PAGE, committed, doubling
from onnx_models import gemm, model, node, relu, value
from pumice import dv, testing
from pumice.base.progress import Progress
from pumice.onnx import backend, import_graph
from pumice.validation.report.report import ReportMetadata, get_device_metadata

Row = tuple[str, Callable[[pumice.Context], Any], str]
SLOW = "TimeoutError"
W = "wobble"  # a value that nothing accepts


def options(path: str, read: Callable[..., Any], **values: Any) -> Iterator[Row]:
    """Yield a row for each argument: `read` gives other results with the value than with the default.

    A value that is a dict with the argument's own name has other arguments too, which the call without the value gets as well.
    """
    for name, given in values.items():
        with_it = given if isinstance(given, dict) and name in given else {name: given}
        without = {key: item for key, item in with_it.items() if key != name}
        yield f"{path} {name}", lambda c, a=without, b=with_it: [read(c, **a), read(c, **b)], ""


# ---- memory, command lists, tensors and images

BUSY = """layout(local_size_x = 64) in;
layout(binding = 0) buffer X { uint x[]; };
void main() {
  uint v = gl_GlobalInvocationID.x;
  for (uint k = 0u; k < 20000u; ++k) v = v * 1664525u + 1013904223u;
  if (v == 1u) x[0] = v;
}"""
ADD = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[gl_GlobalInvocationID.x] += 1.0; }"
ARRAY = np.arange(6, dtype="float32").reshape(2, 3)
DESC = pumice.TensorDesc("float32", [64])
MAKERS: dict[str, Callable[..., Any]] = {"Tensor": pumice.tensor, "Image": lambda a, c: pumice.image(a, "r32f", c)}
SAMPLING = {"filter": "linear", "address": "border", "normalized": True}


def busy(context: pumice.Context) -> pumice.Submission:
    """Submit work that is still running at the next call."""
    commands, kernel = pumice.CommandList(context), pumice.Kernel(BUSY, context)
    for _ in range(1 if context.info.kind == "software" else 800):  # a GPU runs many workgroups at once
        commands.dispatch(kernel.bind(x=pumice.zeros(64, "uint32", context), groups=400))
    commands.commit()
    return commands.exec()


def mapped(context: pumice.Context) -> pumice.Buffer:
    buffer = pumice.Buffer(context, 64, "readback")
    buffer.map()
    return buffer


def warmed(context: pumice.Context, **given: int) -> list[float]:
    """Return what a kernel that adds 1 computes in a warm-up."""
    x, commands = pumice.zeros(2, context=context), pumice.CommandList(context)
    commands.dispatch(pumice.Kernel(ADD, context).bind(x=x, threads=2))
    commands.commit()
    commands.warm_up(**given)
    return x.tolist()


def compiled(context: pumice.Context, **given: Any) -> pumice.CompiledOperator:
    return pumice.Operator("Relu", [DESC], [DESC]).compile(context, **given)


def picture(context: pumice.Context, **given: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3)).astype("uint8")
        __import__("PIL.Image").Image.fromarray(pixels).save(path)
        return pumice.load_image(path, size=(4, 4), **given).tolist()


MEMORY: list[Row] = [
    ("Context.__init__ device", lambda c: pumice.Context(W), W),
    ("Context.wait timeout", lambda c: c.wait(busy(c).id, timeout=0), SLOW),
    ("Submission.wait timeout", lambda c: busy(c).wait(timeout=0), SLOW),
    ("CommandList.wait timeout", lambda c: pumice.CommandList(c).wait(busy(c).id, timeout=0), SLOW),
    ("Buffer.sync_start read write", lambda c: mapped(c).sync_start(read=False, write=False), "read, write or both"),
    *options("CommandList.warm_up", warmed, runs=3),
    ("BindingTable.bind **kwargs", lambda c: pumice.BindingTable(compiled(c)).bind(wobble=mapped(c)), W),
    ("Operator.__init__ **kwargs", lambda c: pumice.Operator("Relu", [DESC], [DESC], alpha=0.5), "alpha"),
    *options("Operator.compile", lambda c, **o: compiled(c, **o).binding_properties.temporary_bytes, precision="fp16"),
    ("output_descs **kwargs", lambda c: pumice.output_descs("Relu", [DESC], wobble=1), W),
    *options("testing.accuracy", lambda c, **o: testing.accuracy([0, 1], [0, 1], **o), confidence=0.9),
    *options("testing.compare", lambda c, **o: testing.compare(ARRAY, ARRAY + 0.1, **o).mismatched, rtol=0.2, atol=0.2),
    *(
        row
        for name, make in MAKERS.items()
        for row in (
            *options(f"{name}.__array__", lambda c, m=make, **o: m(ARRAY, c).__array__(**o).dtype, dtype="int64"),
            (f"{name}.__array__ copy", lambda c, m=make: m(ARRAY, c).__array__(copy=False), "always copies"),
        )
    ),
    *options(
        "Image.__init__",
        lambda c, **o: [getattr(pumice.Image(c, "r32f", [4, 4], **o), name) for name in SAMPLING],
        **SAMPLING,
    ),
    *options("load_image", picture, invert="always", mean=[1.0], std=[2.0]),
]

# ---- shaders and kernels

FILL = """layout(binding = 0) buffer Y { float y[]; };
#ifndef VALUE
#define VALUE 2
#endif
void main() { y[gl_GlobalInvocationID.x] = float(VALUE); }"""


def preamble(context: pumice.Context, **given: Any) -> str:
    return pumice.ShaderOptions(**given).preamble


def of_body(context: pumice.Context, **given: Any) -> str:
    return pumice.Kernel.from_body("y[i] = 1.0;", {}, {"y": ("float32", 4)}, context, **given).name


def from_file(context: pumice.Context, **given: Any) -> pumice.Kernel:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "fill.comp").write_text(FILL)
        return pumice.Kernel.from_file(Path(folder, "fill.comp"), context, **given)


def twice(tune: Callable[..., Any], target: str, **given: Any) -> Any:
    """Tune a second time, in a cache of its own; return what was measured and which progress bars were shown."""
    bars: list[bool] = []
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"PUMICE_CACHE_DIR": folder}):
        os.environ.pop("PUMICE_NO_CACHE", None)
        tune(runs=1, progress=False)
        with patch(target, lambda name, shown: bars.append(shown) or Progress(name, False)):
            return tune(**{"runs": 1, **given}).measured, bars


def tuned_kernel(context: pumice.Context, **given: Any) -> Any:
    tune = functools.partial(
        pumice.Kernel(FILL, context).tune, {"VALUE": [1, 2]}, {"y": np.zeros(1, "float32"), "threads": 1}
    )
    return twice(tune, "pumice.base.progress.Progress", **given)


def tuned_model(context: pumice.Context, **given: Any) -> Any:
    with pumice.load(gemm(), context) as made:
        return twice(functools.partial(made.tune, M), "pumice.model.step_tuning.Progress", **given)


KERNELS: list[Row] = [
    *options(
        "ShaderOptions.__init__",
        preamble,
        fp16_uniform={"fp16_uniform": True, "storage": "fp16"},
        int8_storage=True,
        int8_packed=True,
        int8_arithmetic={"int8_arithmetic": True, "int8_storage": True},
        int8_uniform={"int8_uniform": True, "int8_storage": True},
        int16_storage=True,
        int16_packed=True,
        shader_local_memory=True,
        fp16_rounds_to_even={"fp16_rounds_to_even": True, "storage": "fp16"},
    ),
    ("Kernel.from_file **options", lambda c: from_file(c, wobble=1), f"TypeError.*{W}"),
    *options("Kernel.from_body", of_body, name="named"),
    ("Kernel.from_body **options", lambda c: of_body(c, wobble=1), f"TypeError.*{W}"),
    *(
        (f"Kernel.{name} {argument}", lambda c, n=name, o=given: getattr(pumice.Kernel(FILL, c), n)(**o, threads=4), W)
        for name in ("__call__", "bind", "time")
        for argument, given in (("given", {"given": {W: 1}}), ("**arguments", {W: 1}))
    ),
    ("Kernel.run **kwargs", lambda c: pumice.Kernel(FILL, c).run(wobble=1, threads=4), W),
    *options("Kernel.tune", tuned_kernel, again=True, progress={"progress": False, "again": True}),
    ("Kernel.tune runs", lambda c: tuned_kernel(c, runs=0, again=True), "runs"),
    ("show_versions file", lambda c: pumice.show_versions(io.BytesIO()), "bytes"),  # type: ignore[arg-type]
]

# ---- graphs and programs

X = np.arange(-4, 4, dtype="float32")
READS = model([node("Add", ["i", "i"], ["j"]), node("Gather", ["x", "j"])], [value("x", [2, 4]), value("i", [1], 7)])
SOMETIMES = """layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { if (x[0] == 7.0) y[gl_GlobalInvocationID.x] = 1.0; }"""
FOREVER = {"start": integer(0), "limit": integer(2**31 - 1)}


def network() -> pumice.Graph:
    graph = pumice.Graph("net")
    graph.output("y", graph.add("Exp", graph.add("Softmax", graph.input("x", "float32", [8]))))
    return graph


def input_of(context: pumice.Context, **given: Any) -> bool:
    graph = pumice.Graph()
    graph.input("x", "int32", [1], **given)
    return graph.exact


def custom(*names: str) -> onnx.ModelProto:
    proto = model([node("Custom", names, domain="mine")], [value(name, [4]) for name in names])
    proto.opset_import.add(domain="mine", version=1)
    return proto


def unwritten(context: pumice.Context, **given: bool) -> bool:
    """Return whether a result is NaN that only the run before wrote."""
    with pumice.load(custom("x"), context, kernels={"mine::Custom": pumice.kernel_operator(SOMETIMES)}) as made:
        made.program({"x": np.full(4, 7, "float32")})
        return bool(np.isnan(made.program({"x": X[:4]}, **given)["y"]).all())


def endless(context: pumice.Context) -> pumice.Program:
    """A loop whose step of 0 never reaches the limit."""
    return counting_loop(0).compile(context)


def stuck(context: pumice.Context, program: pumice.Program | None = None) -> pumice.Execution:
    execution = (program or endless(context)).execution()
    for name, array in FOREVER.items():
        execution.set(name, array)
    return execution


def long_run(context: pumice.Context) -> pumice.ProgramRun:
    graph, size = pumice.Graph(), 700 if context.info.kind == "software" else 4096
    graph.output("y", graph.add("MatMul", *(graph.input(name, "float32", [size, size]) for name in "xw")))
    return graph.compile(context).run_async((np.ones((size, size), "float32"),) * 2)


def sources(context: pumice.Context, **given: bool) -> int:
    graph = pumice.Graph()
    return len(graph.shape_sources(graph.input("sizes", "int64", [1]), **given))


CALL = tuple(FOREVER.values())
DRIVES: dict[str, Callable[..., Any]] = {
    "Program.__call__": lambda c, **o: endless(c)(FOREVER, **o),
    "Program.run_async": lambda c, **o: endless(c).run_async(CALL, **o).wait(),
    "Program.observe_runs": lambda c, **o: endless(c).observe_runs(CALL, **o),
    "Execution.compute": lambda c, **o: stuck(c).compute(**o),
    "Burst.compute": lambda c, **o: [p.burst().compute(stuck(c, p), **o) for p in [endless(c)]],
}
GRAPHS: list[Row] = [
    ("Graph.add **kwargs", lambda c: (g := pumice.Graph()).add("Relu", g.input("x", "float32", [2]), wobble=1), W),
    *options("Graph.input", input_of, assumed=True),
    *options("Graph.compile", lambda c, **o: network().compile(c, **o)({"x": X / 3})["y"].tolist(), precision="fp16"),
    ("Graph.compile progress", lambda c: network().compile(c, progress=lambda *_: 1 / 0), "ZeroDivisionError"),
    *options("Graph.shape_sources", sources, elements=True),
    *((f"{path} loop_timeout", lambda c, f=call: f(c, loop_timeout=0.05), SLOW) for path, call in DRIVES.items()),
    *(
        (f"{path} timeout", lambda c, f=DRIVES[path]: f(c, timeout=0.05, loop_timeout=None), SLOW)
        for path in ("Program.__call__", "Execution.compute", "Burst.compute")
    ),
    ("Event.wait timeout", lambda c: stuck(c).start(loop_timeout=0.5).wait(timeout=0.01), SLOW),
    ("ProgramRun.wait timeout", lambda c: long_run(c).wait(timeout=0), SLOW),
    *options("Program.__call__", unwritten, filled=True),
]

# ---- models, validation and profiles

M = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
SHIFT = """layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; y[i] = a[i] - 2 * b[i]; }"""
BACKEND = "onnx.backend.PumiceBackend"
RUNS: dict[str, Callable[..., Any]] = {
    "prepare": lambda **o: backend.prepare(gemm(), **o),
    "run_model": lambda **o: backend.run_model(gemm(), M, **o),
    "run_node": lambda **o: backend.run_node(node("Relu", ["x"], ["y"]), [M], **o),
}
NAMED = ("__call__", "run_async", "arguments", "named", "warm_up", "tune")
REPORT = functools.partial(pumice.ValidationReport, "m", "d", "fp32", 1, [], [])


def looping(context: pumice.Context) -> tuple[Any, ...]:
    """Return a model with an infinite loop that carries x, and its inputs."""
    inputs = [onnx.helper.make_tensor_value_info(*one) for one in (("i", 7, []), ("go", 9, []), ("s", 1, ["N", 4]))]
    outputs = [onnx.helper.make_tensor_value_info(*one) for one in (("on", 9, []), ("t", 1, ["N", 4]))]
    nodes = [node("Identity", ["go"], ["on"]), node("Identity", ["s"], ["t"])]
    body = onnx.helper.make_graph(nodes, "body", inputs, outputs)
    proto = model([node("Loop", ["", "yes", "x"], ["y"], body=body)], [value("x"), value("yes", [], 9)])
    return pumice.load(proto, context), M, np.array(True)


def timed_out(name: str) -> Row:
    def call(context: pumice.Context) -> Any:
        loaded, *given = looping(context)
        return getattr(loaded, name)(*given, loop_timeout=0.05)

    return f"Model.{name} loop_timeout", call, SLOW


def mapped_loop(context: pumice.Context) -> Any:
    loaded, *given = looping(context)
    return next(loaded.map([tuple(given)], loop_timeout=0.05))


def external() -> bytes:
    """Return a model whose weights are in another file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        onnx.save(gemm(), path, save_as_external_data=True, location="weights", size_threshold=0)
        return path.read_bytes()


def of_kernel(context: pumice.Context, **given: Any) -> pumice.Model:
    made = pumice.kernel_operator(SHIFT, **given)
    return pumice.load(custom("x", "z"), context, kernels={"mine::Custom": made})


def proved(context: pumice.Context, **given: Any) -> bool:
    made = of_kernel(context, reference=lambda a, b: a - 2 * b + 1e-3, **given)
    return pumice.validate(made, [(X[:4], X[4:])]).ok


def predictor(context: pumice.Context, **given: Any) -> Any:
    return pumice.BatchPredictor(gemm(), device=f"uuid:{context.info.uuid}", **given).model.fuse


def profiled(context: pumice.Context) -> pumice.Profile:
    with pumice.profile("node") as made, pumice.load(gemm(), context) as loaded:
        loaded(M)
    return made


def plotted(plot: Callable[[Any], Any], axes: bool) -> bool:
    """Return whether a plot draws on the given axes."""
    given = Mock()
    if axes:
        plot(given)
    return bool(given.method_calls)


MODELS: list[Row] = [
    ("Model.__init__ **unknown", lambda c: pumice.Model(gemm(), c, wobble=1), W),
    ("load context devices", lambda c: pumice.load(gemm(), c, devices="all"), "both"),
    *options("load", lambda c, **o: str(pumice.load(gemm(), c, **o)(M)), precision="bf16"),
    ("load **options", lambda c: pumice.load(gemm(), c, wobble=1), W),
    ("kernel_operator dtype", lambda c: of_kernel(c, dtype="int32")(X[:4], X[4:]), "an array of float32"),
    ("kernel_operator tolerance", lambda c: [proved(c, tolerance=t) for t in (1e-6, 1e-2)], ""),
    *map(timed_out, ("__call__", "run_async", "warm_up")),
    ("Model.map loop_timeout", mapped_loop, SLOW),
    *((f"Model.{name} **by_name", lambda c, n=name: getattr(pumice.load(gemm(), c), n)(wobble=M), W) for name in NAMED),
    ("Model.__call__ out", lambda c: pumice.load(relu(), c)(M, out={"z": M}), "z"),
    ("Model.map depth", lambda c: pumice.load(relu(), c).map([M], depth=0), "depth"),
    ("Model.loaded_again tuned", lambda c: pumice.load(gemm(), c).loaded_again(tuned=3), "tuned"),  # type: ignore[arg-type]
    *options(
        "Model.loaded_again",
        lambda c, **o: [y.name for y in pumice.load(gemm(), c).loaded_again(**o).outputs],
        part=relu(),
    ),
    *options("Model.tune", tuned_model, again=True, progress=False),
    ("Model.tune runs", lambda c: tuned_model(c, runs=0), "runs"),
    ("onnx.import_graph folder", lambda c: import_graph(external()), "folder"),
    *((f"{BACKEND}.{name} device", lambda c, f=call: f(device="CUDA"), "CUDA") for name, call in RUNS.items()),
    *((f"{BACKEND}.{name} **options", lambda c, f=call: f(wobble=1), f"option '{W}'") for name, call in RUNS.items()),
    *options(f"{BACKEND}.is_compatible", lambda c, **o: backend.is_compatible(gemm(), **o), device="CUDA"),
    (f"{BACKEND}.is_compatible **options", lambda c: [backend.is_compatible(gemm(), **o) for o in ({}, {W: 1})], ""),
    ("onnx.backend.PumiceBackendRep.run **options", lambda c: RUNS["prepare"]().run(M, wobble=1), f"option '{W}'"),
    ("BatchPredictor.__init__ **options", lambda c: [predictor(c, fuse=fuse) for fuse in (True, False)], ""),
    ("ParallelModel.__call__ **by_name", lambda c: pumice.load(relu(), devices=[c, c])(wobble=M), W),
    ("ParallelModel.map depth", lambda c: pumice.load(relu(), devices=[c, c]).map([M], depth=0), "depth"),
    ("ParallelModel.__init__ **options", lambda c: pumice.ParallelModel(relu(), [c], "fp32", wobble=1), W),
    ("memory_map **by_name", lambda c: pumice.memory_map(pumice.load(gemm(), c), wobble=M), W),
    (
        "MemoryMap.plot axes",
        lambda c: [plotted(pumice.memory_map(pumice.load(gemm(), c), M).plot, n) for n in (False, True)],
        "",
    ),
    *options("ValidationReport.__init__", lambda c, **o: REPORT(**o).as_dict()["reference"], reference="onnx"),
    (
        "ValidationReport.__init__ facts",
        lambda c: [
            REPORT(facts=f).as_dict() for f in (None, ReportMetadata(get_device_metadata(c.info), inputs=("x",)))
        ],
        "",
    ),
    (
        "reduce progress",
        lambda c: pumice.reduce(gemm(), [M], context=c, fails=lambda *_: True, progress=lambda *_: 1 / 0),
        "ZeroDivisionError",
    ),
    ("Profile.compare by", lambda c: profiled(c).compare(profiled(c), W), W),
    ("Profile.plot kind", lambda c: profiled(c).plot(W), W),
    (
        "Profile.plot axes",
        lambda c: [plotted(functools.partial(profiled(c).plot, "kernels"), n) for n in (False, True)],
        "",
    ),
]

# ---- the dv interface

WEIGHTS = np.arange(16 * 8 * 9, dtype="float16").reshape(16, 8, 3, 3) / 512
INDICES = np.ones((16, 8, 3, 3), "uint8")
TABLE, SIXTEEN = np.linspace(0, 1, 256, dtype="float16"), np.linspace(1, 2, 16, dtype="float16")
BUFFERS: dict[str, Any] = {"input_buf": (1, 0), "output_buf": (2, 0)}  # memory handles


def behind(context: pumice.Context, wait: Callable[[dv.CommandList], Any]) -> Any:
    """Wait for a list that runs after other work."""
    own = dv.Context(context)
    commands = committed(own, doubling(own.memory(PAGE)))
    busy(context)
    commands.exec()
    return wait(commands)


def conv(channels: int) -> dv.Conv:
    run = dv.Run(pool_enable=dv.POOL_MAX, pool_size=(1, 2), m=channels)
    return dv.Conv(**BUFFERS, w=8, h=8, c=channels, run=[run])


def dv_network() -> dv.Network:
    graph = pumice.Graph("net")
    graph.output(
        "y",
        graph.add(
            "Relu",
            graph.add(
                "Conv", graph.input("x", "float32", [None, 8, 6, 6]), WEIGHTS.astype("float32"), pads=[1, 1, 1, 1]
            ),
        ),
    )
    return dv.from_graph(graph)


def load_closed(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as closed:
        pass
    dv_network().load(dv.Context(closed))


def hurried(context: pumice.Context) -> None:
    """Run a network behind other work, without time."""
    if context.info.kind != "software":
        pytest.skip("on a GPU the work may already be done")
    made = dv_network()
    with dv.Context(context) as own, made.load(own) as net:
        busy(context)
        net(np.ones(made.input_shape, "float32"), timeout=0)


COMMANDS: dict[str, Any] = {  # each has a value that the device of dv rejects
    "Conv": conv(16),
    "ConvV1": dv.ConvV1(u8tofp16_table=(1, 0), conv_cmd=conv(3)),
    "FullyConnected": dv.FullyConnected(**BUFFERS, weight_buf=(1, 0), input_size=16385, output_size=16),
    "Ipu": dv.Ipu(wr=(2, 0), tex=(1, 0), use_tex=1, tex_height=1, rect_width=4, rect_height=4, tex_width=65535),
    "Maximizer": dv.Maximizer(**BUFFERS, width=4096, height=4096, nclass=4),
}
DV: list[Row] = [
    ("dv.Context.__init__ device", lambda c: [dv.Context(x).device is c for x in (c, f"uuid:{c.info.uuid}")], ""),
    ("dv.Memory.sync_start read write", lambda c: dv.Context(c).memory(PAGE).sync_start(False, False), "D4"),
    ("dv.Memory.sync read write", lambda c: dv.Context(c).memory(PAGE).sync(False, False).__enter__(), "D4"),
    ("dv.CommandList.wait exec_id", lambda c: behind(c, lambda commands: commands.wait(1 << 40)), "Error"),
    ("dv.CommandList.wait timeout", lambda c: behind(c, lambda commands: commands.wait(timeout=0)), SLOW),
    *(
        (f"dv.{name}.{method} strict", lambda c, x=command, m=method: getattr(x, m)(strict=True), "D5")
        for name, command in COMMANDS.items()
        for method in ("run_outputs", "required_bytes")
        if hasattr(command, method)
    ),
    *options("dv.pack_dil_weights", lambda c, **o: dv.pack_dil_weights(WEIGHTS, **o), bias=SIXTEEN, prelu=SIXTEEN),
    ("dv.pack_dil_weights table", lambda c: [dv.pack_dil_weights(INDICES, table=t) for t in (TABLE, TABLE + 1)], ""),
    (
        "dv.unpack_dil_weights prelu",
        lambda c: [
            dv.unpack_dil_weights(dv.pack_dil_weights(WEIGHTS, prelu=SIXTEEN), WEIGHTS.shape, prelu=b).prelu
            for b in (False, True)
        ],
        "",
    ),
    (
        "dv.unpack_dil_weights quantized",
        lambda c: [
            dv.unpack_dil_weights(dv.pack_dil_weights(WEIGHTS), WEIGHTS.shape, quantized=b).indices is None
            for b in (False, True)
        ],
        "",
    ),
    ("dv.Network.load context", load_closed, "closed"),
    ("dv.LoadedNetwork.__call__ timeout", hurried, SLOW),
]

CALLS = [*MEMORY, *KERNELS, *GRAPHS, *MODELS, *DV]
