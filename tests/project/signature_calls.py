"""A table with a call for every optional argument of the public API; test_signatures.py runs it.

A row has the arguments that it is about, as "Class.method argument ...", a call, and a pattern. Without a pattern the call
returns results for several values of the arguments, and all of them have to differ. With a pattern the call has to fail, and
the pattern has to match the error: its type, a colon and its message.
"""

from __future__ import annotations

# ruff: noqa: F403, F405 (the rows call almost everything in signature_objects.py)
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
from signature_objects import *

import pumice
from control_graphs import collatz, integer
from dv_commands import PAGE, committed, doubling
from onnx_models import gemm, relu
from pumice import dv, testing
from pumice.base.progress import Progress
from pumice.onnx import backend, import_graph
from pumice.validation.report.report import ReportMetadata, get_device_metadata

Row = tuple[str, Callable[[pumice.Context], Any], str]
SLOW = "TimeoutError"


def options(path: str, read: Callable[..., Any], **values: Any) -> Iterator[Row]:
    """Yield a row for each argument: `read` gives other results with the value than with the default.

    A value that is a dict with the argument's own name has other arguments too, which the call without the value gets as well.
    """
    for name, given in values.items():
        with_it = given if isinstance(given, dict) and name in given else {name: given}
        without = {key: item for key, item in with_it.items() if key != name}
        yield f"{path} {name}", lambda c, a=without, b=with_it: [read(c, **a), read(c, **b)], ""


def rejects(path: str, call: Callable[..., Any], **values: Any) -> Iterator[Row]:
    """Yield a row for each argument: the value is rejected by an error that names the argument or the value."""
    for name, given in values.items():
        yield f"{path} {name}", lambda c, o={name: given}: call(c, **o), f"{name}|{W}"


def bars(target: str, call: Callable[[], Any]) -> list[bool]:
    """Return whether a call shows each of its progress bars, which `target` makes."""
    shown: list[bool] = []
    with patch(target, lambda name, wanted: shown.append(wanted) or Progress(name, False)):
        call()
    return shown


# fmt: off
MEMORY: list[Row] = [
    *rejects("Context.__init__", lambda c, **o: pumice.Context(**o), device=W, without=[W], limits={W: 1}, quirks=[W]),
    ("Context.wait timeout", lambda c: c.wait(busy(c).id, timeout=0), SLOW),
    ("Submission.wait timeout", lambda c: busy(c).wait(timeout=0), SLOW),
    ("CommandList.wait timeout", lambda c: pumice.CommandList(c).wait(busy(c).id, timeout=0), SLOW),
    ("Context.close timeout", lambda c: other(c).close(timeout=-1.0), "seconds"),
    ("Buffer.__init__ heap", lambda c: [pumice.Buffer(c, 64, h).heap for h in ("default", "upload", "readback")], ""),
    ("Buffer.sync_start read write", lambda c: mapped(c).sync_start(read=False, write=False), "read, write or both"),
    ("BufferRange.__init__ offset", lambda c: [pumice.BufferRange(mapped(c), i).bytes for i in (0, 16)], ""),
    ("BufferRange.__init__ bytes", lambda c: [pumice.BufferRange(mapped(c), 16, i).bytes for i in (16, 32)], ""),
    *options("CommandList.commit", lambda c, **o: added(c, id, **o), timing=True, profile=True),
    *options("CommandList.time", lambda c, **o: added(c, lambda x: x.time(2, **o)), warm_up=3),
    *options("CommandList.warm_up", lambda c, **o: added(c, lambda x: x.warm_up(**o)), runs=3),
    ("BindingTable.__init__ descriptors", lambda c: pumice.BindingTable(compiled(c), 1), "C10"),
    ("BindingTable.reset descriptors", lambda c: pumice.BindingTable(compiled(c)).reset(compiled(c), 1), "C10"),
    ("BindingTable.bind **kwargs", lambda c: pumice.BindingTable(compiled(c)).bind(wobble=mapped(c)), W),
    ("Dispatchable.supports_in_place input", lambda c: [PRELU.compile(c).supports_in_place(i, 0) for i in (0, 1)], ""),
    ("Dispatchable.supports_in_place output", lambda c: [compiled(c).supports_in_place(0, i) for i in (0, 1)], ""),
    ("Operator.__init__ activation", lambda c: pumice.Operator("Relu", [DESC], [DESC], activation=W), W),
    ("Operator.__init__ **kwargs", lambda c: pumice.Operator("Relu", [DESC], [DESC], alpha=0.5), "alpha"),
    *options("Operator.compile", lambda c, **o: compiled(c, **o).binding_properties.temporary_bytes, precision="fp16",
        flags=["ALLOW_HALF_PRECISION_COMPUTATION"]),
    *options("has_operator", lambda c, **o: pumice.has_operator("Relu", **o), domain="pumice"),
    *options("strides", lambda c, **o: pumice.strides([2, 3], "ab", **o), broadcast=[True, False]),
    *options("TensorDesc.with_layout", lambda c, **o: pumice.TensorDesc.with_layout("float32", [2, 3], "ab", **o).strides,
        broadcast=[True, False]),
    *options("buffer_size", lambda c, **o: pumice.buffer_size("float32", [2, 3], **o), strides=[8, 1]),
    *options("TensorDesc.__init__", lambda c, **o: [getattr(pumice.TensorDesc("uint8", [2, 3], **o), name) for name in ("strides",
        "owned", "alignment", "bytes", "scale", "zero_point", "channel_axis")], strides=(8, 1), owned=True, alignment=64, total_bytes=64,
        scale=0.5, zero_point={"zero_point": 3, "scale": 0.5}),
    ("TensorDesc.__init__ channel_axis", lambda c: pumice.TensorDesc("int8", [3], scale=[1, 2, 3], channel_axis=7), "channel_axis"),
    ("operators name", lambda c: pumice.operators("Konv"), "Conv"),
    *options("testing.accuracy", lambda c, **o: testing.accuracy([0, 1], [0, 1], **o), reference=[1, 1], confidence=0.9),
    *options("testing.wilson", lambda c, **o: testing.wilson(1, 2, **o), confidence=0.9),
    *options("testing.compare", lambda c, **o: testing.compare(ARRAY, ARRAY + 0.1, **o).mismatched, rtol=0.2, atol=0.2),
    ("testing.assert_close rtol", lambda c: testing.assert_close(ARRAY, ARRAY * 1.1, rtol=0.01), "AssertionError"),
    ("testing.assert_close atol", lambda c: testing.assert_close(ARRAY, ARRAY + 0.1, atol=0.01), "AssertionError"),
    ("output_descs outputs", lambda c: [len(pumice.output_descs("Split", [DESC], outputs=n)) for n in (2, 4)], ""),
    ("output_descs **kwargs", lambda c: pumice.output_descs("Relu", [DESC], wobble=1), W),
    ("calibrate context", lambda c: pumice.calibrate(closed(c), again=True), "closed"),
    ("calibrate again", lambda c: [pumice.calibrate(c).seconds_since_epoch == pumice.calibrate(c,
        again=b).seconds_since_epoch for b in (False, True)], ""),
]
# fmt: on

# fmt: off
TENSORS: list[Row] = [
    *((f"{name}.__array__ dtype", lambda c, m=make: [m(context=c).__array__(t).dtype for t in (None, "int64")], "") for name,
        make in (("Tensor", MAKERS["tensor"]), ("Image", MAKERS["image"]))),
    ("Tensor.__array__ copy", lambda c: pumice.tensor(ARRAY, c).__array__(copy=False), "always copies"),
    ("Image.__array__ copy", lambda c: pumice.image(ARRAY, "r32f", c).__array__(copy=False), "always copies"),
    *rejects("Tensor.numpy", lambda c, **o: pumice.tensor(ARRAY, c).numpy(**o), out=np.zeros(3, "float32")),
    ("empty_host context", lambda c: pumice.empty_host(2, "int8", closed(c)), "closed"),
    ("empty share", lambda c: pumice.empty(2, "int8", c, share="opencl"), "opencl"),
    *rejects("Tensor.__dlpack__", lambda c, **o: pumice.tensor(ARRAY, c).__dlpack__(**o), stream=1),
    ("Tensor.__dlpack__ dl_device", lambda c: pumice.tensor(ARRAY, c).__dlpack__(dl_device=(2, 0)), "device"),
    ("Tensor.__dlpack__ copy", lambda c: pumice.zeros(1, context=c).broadcast_to([4]).__dlpack__(copy=False), "BufferError.*copy"),
    ("Tensor.__dlpack__ max_version", lambda c: [repr(pumice.tensor(ARRAY,
        c).__dlpack__(max_version=v)).partition(" at")[0] for v in (None, (1, 0))], ""),
    ("Tensor.__init__ offset", lambda c: pumice.Tensor(DESC, mapped(c), 1 << 30), "R1"),
    *options("Tensor.squeeze", lambda c, **o: pumice.zeros([1, 3, 1], context=c).squeeze(**o).shape, axis=0),
    *options("Tensor.transpose", lambda c, **o: pumice.zeros([2, 3, 4], context=c).transpose(**o).shape, axes=[1, 0, 2]),
    *options("Image.__init__", lambda c, **o: [getattr(pumice.Image(c, "r32f", [4, 4], **o), name) for name in SAMPLING], **SAMPLING),
    *options("image", lambda c, **o: [getattr(MAKERS["image"](context=c, **o), name) for name in SAMPLING], **SAMPLING),
    *((f"{name} context", lambda c, m=make: [m(context=x).context is c for x in (c, other(c))], "") for name, make in MAKERS.items()),
    ("from_host context", lambda c: pumice.from_host(ARRAY, W), "argument 'context'"),
    *((f"{name} dtype", lambda c, m=MAKERS[name]: [m(dtype=t, context=c).dtype for t in ("float32", "int16")], "") for name in ("full",
        "zeros", "ones", "asarray")),
    ("asarray copy", lambda c: pumice.asarray(read_only(), context=c, copy=False), "without a copy"),
    ("from_dlpack copy", lambda c: pumice.from_dlpack(read_only(), context=c, copy=False), "without a copy"),
    *options("load_image", picture, mode="BGR", size=(3, 4), fit="stretch", resample="nearest", invert="always", scale="1/255",
        mean=[1.0], std=[2.0], layout="NHWC", dtype="uint8"),  # type: ignore[arg-type]
]
# fmt: on

# fmt: off
KERNELS: list[Row] = [
    *options("ShaderOptions.__init__", preamble, storage="fp16", fp16_arithmetic={"fp16_arithmetic": True, "storage": "fp16"},
        fp16_uniform={"fp16_uniform": True, "storage": "fp16"}, int8_storage=True, int8_packed=True,
        int8_arithmetic={"int8_arithmetic": True, "int8_storage": True}, int8_uniform={"int8_uniform": True, "int8_storage": True},
        int16_storage=True, int16_packed=True, shader_local_memory=True, generation="2024", image_storage={"image_storage": True,
        "generation": "2024"}, subgroup={"subgroup": {"basic"}, "generation": "2024"}, int64=False, int16=False, int8=False,
        storage_16bit={"storage_16bit": False, "storage": "fp16_packed"}, fp16_rounds_to_even={"fp16_rounds_to_even": True,
        "storage": "fp16"}, vulkan_minor=3, profile={"profile": {"ncnn_wobble": "7"}}, debug=True, guard=False),
    *options("compile", lambda c, source=FILL, **o: pumice.compile(source, **o).spirv, options=pumice.ShaderOptions(debug=True),
        macros={"VALUE": "5"}, profile={"profile": {"ncnn_wobble": "9"}}),
    ("compile name", lambda c: pumice.compile(W, name="named"), "named:1"),
    ("compile local_size", lambda c: [pumice.compile(SIZED, local_size=(n, 1, 1)).spirv for n in (2, 4)], ""),
    ("compile includes", lambda c: [pumice.compile(INCLUDING, includes=t).spirv for t in TEXTS], ""),
    ("compile include_dirs", lambda c: [pumice.compile(INCLUDING, **o).spirv for o in ({"include_dirs": [FOLDER]},
        {"includes": TEXTS[0]})], ""),
    *options("Kernel.__init__", filled, name="named", macros={"VALUE": 5}, spec={"count": 7},
        options={"options": pumice.ShaderOptions(storage="fp16_packed")}, source=ADD.replace("X { float x", "Y { float y").replace("x[gl",
        "y[gl"), message_bytes={"message_bytes": 256, "source": PRINTING, "threads": 200}),
    ("Kernel.__init__ local_size", lambda c: [filled(c, SIZED, local_size=(n, 1, 1)) for n in (2, 4)], ""),
    ("Kernel.__init__ context", lambda c: pumice.Kernel(FILL, W), "TypeError.*context"),
    ("Kernel.__init__ spirv", lambda c: [filled(c, None, spirv=pumice.compile(FILL, UNGUARDED, {"VALUE": n}).spirv) for n in ("1", "5")],
        ""),
    ("Kernel.__init__ includes", lambda c: [filled(c, INCLUDING, includes=t) for t in TEXTS], ""),
    ("Kernel.__init__ include_dirs", lambda c: [filled(c, INCLUDING, **o) for o in ({"include_dirs": [FOLDER]}, {"includes": TEXTS[0]})],
        ""),
    ("Kernel.__init__ debug", lambda c: filled(c, BEYOND, debug=True), "OutOfBoundsError"),  # type: ignore[arg-type]
    ("Kernel.from_file context", lambda c: pumice.Kernel.from_file(Path(FOLDER, "fill.comp"), W), "TypeError.*context"),
    ("Kernel.from_file reload", lambda c: [reloaded(c, b) for b in (False, True)], ""),
    ("Kernel.from_file **options", lambda c: pumice.Kernel.from_file(Path(FOLDER, "fill.comp"), c, wobble=1), f"TypeError.*{W}"),
    *options("Kernel.from_body", of_body, name="named", header="float f(float v) { return v + 1.0; }"),
    ("Kernel.from_body **options", lambda c: of_body(c, wobble=1), f"TypeError.*{W}"),  # type: ignore[arg-type]
    ("Kernel.from_body context", lambda c: of_body("llvmpipe"), "TypeError.*context"),
    *((f"Kernel.{name} {argument}", lambda c, n=name, o=given: getattr(pumice.Kernel(FILL, c), n)(**o, threads=4),
        W) for name in ("__call__", "bind", "time") for argument, given in (("given", {"given": {W: 1}}), ("**arguments", {W: 1}))),
    ("Kernel.run **kwargs", lambda c: pumice.Kernel(FILL, c).run(wobble=1, threads=4), W),
    ("Kernel.dtype length", lambda c: [pumice.Kernel(COUNTED, c).dtype("b", n).itemsize for n in (3, 4)], ""),
    ("Kernel.statistics storage", lambda c: pumice.Kernel(FILL, c).statistics(W), W),
    ("Kernel.time runs", lambda c: pumice.Kernel(FILL, c).time(runs=0, y=np.zeros(4, "float32"), threads=4), "runs"),
    *options("Kernel.tune", tuned_kernel, check=lambda y: np.ones_like(y), tolerance={"tolerance": 1.5,
        "check": lambda y: np.ones_like(y)}, runs={"runs": 3, "again": True}, again=True, progress={"progress": False, "again": True}),
    ("Kernel.tune allow_spills", lambda c: tuned_kernel(c, spills=1, again=True), "spills"),
    ("show_versions file", lambda c: pumice.show_versions(io.BytesIO()), "bytes"),  # type: ignore[arg-type]
]
# fmt: on

# fmt: off
GRAPHS: list[Row] = [
    *options("Graph.__init__", lambda c, **o: pumice.Graph(**o).name, name="two"),
    *options("Graph.add", added_node, name={"name": "split", "outputs": 3}, output_names={"output_names": ["a", "b", "c"], "outputs": 3}),
    ("Graph.add outputs", lambda c: [len(added_node(c, outputs=n)[1]) for n in (2, 3)], ""),
    ("Graph.add **kwargs", lambda c: added_node(c, "Relu", wobble=1), W),
    ("Graph.input dimension_names", lambda c: pumice.Graph().input("z", "int8", [2], dimension_names=["a", "b"]), "size names"),
    ("Graph.input owned", lambda c: [owning(c, owned) for owned in (False, True)], ""),
    *options("Graph.input", lambda c, **o: value_of(pumice.Graph().input("q", "int8", [2, 3], **o)), scale=0.5,
        zero_point={"zero_point": 7, "scale": 0.5}),
    ("Graph.input assumed", lambda c: [(g := pumice.Graph(), g.input("x", "int32", [1], assumed=b), g.exact)[2] for b in (False, True)],
        ""),
    ("Graph.input channel_axis", lambda c: pumice.Graph().input("q", "int8", [3], scale=[1, 2, 3], channel_axis=7), "channel_axis"),
    *options("Graph.constant", lambda c, **o: value_of(pumice.Graph().constant(np.zeros((2, 3), "int8"), **o)), name="c", scale=0.5,
        zero_point={"zero_point": 7, "scale": 0.5}),
    ("Graph.constant channel_axis", lambda c: pumice.Graph().constant(CUBE, scale=[1, 2], channel_axis=7), "channel_axis"),
    *options("Graph.constant_bytes", lambda c, **o: pumice.Graph().constant_bytes(b"\0" * 8, "int64", [1], **o).name, name="b"),
    *((f"Graph.output {name}", lambda c, o=given: declared(c, **o), pattern) for name, given, pattern in (("shape", {"shape": [2]},
        "shape|size"), ("dtype", {"dtype": "int8"}, "declared as int8"), ("scale", {"scale": 0.25}, "scale 0.25"), ("zero_point",
        {"scale": 0.5, "zero_point": 4}, "zero point 4"))),
    *options("Graph.compile", compile_network, precision="fp16", keep_all=True, fuse=False, float32_nodes={"float32_nodes": ["first",
        "second", "third"], "precision": "fp16"}),
    ("Graph.compile progress", lambda c: network().compile(c, progress=lambda *_: 1 / 0), "ZeroDivisionError"),
    ("Graph.compile memory", lambda c: network().compile(c, memory=pumice._pumice.UploadMemory(other(c), 64)), "context"),
    ("Graph.compile check_indices", lambda c: import_graph(READS).compile(c, check_indices=True).call((M, [7])), "index 14"),
    *options("Graph.compile", lambda c, **o: import_graph(SCATTER).compile(c, **o).report(), deterministic=True),
    *options("Graph.compile", variants, list_variants=True),
    ("Graph.compile measured", lambda c: [variants(c, measured=n) for n in (0, 1)], ""),
    *options("Graph.compile_operator", lambda c, **o: network().compile_operator(c, **o).binding_properties.temporary_bytes,
        precision="fp16", flags=["ALLOW_HALF_PRECISION_COMPUTATION"]),
    ("Graph.if_ inputs", lambda c: branch(c, inputs=[]), "B2.3"),
    *options("Graph.if_", branch, name="choice", output_names=["chosen"]),
    ("Graph.while_ state invariant", lambda c: [loop(c, state=state) for state in (False, True)], ""),
    *options("Graph.while_", loop, name="loop", output_names=["last"]),
    ("Graph.shape_sources elements", lambda c: [len(graph.shape_sources(graph.input("sizes", "int64", [1]), elements=wanted)) for graph,
        wanted in ((pumice.Graph(), False), (pumice.Graph(), True))], ""),
    *((f"{path} loop_timeout", lambda c, f=call: f(c, loop_timeout=0.05), SLOW) for path, call in DRIVES.items()),
    *((f"{path} timeout", lambda c, f=DRIVES[path]: f(c, **LIMITED), SLOW) for path in ("Program.__call__", "Program.call",
        "Execution.compute", "Execution.start", "Burst.compute")),
    ("Execution.start duration", lambda c: stuck(c).start(duration=0.05, loop_timeout=None).wait(), SLOW),
    ("Execution.start wait_for", waited, SLOW),
    ("Event.wait timeout", lambda c: stuck(c).start(loop_timeout=0.5).wait(timeout=0.01), SLOW),
    ("ProgramRun.result timeout", lambda c: long_run(c).result(timeout=0), SLOW),
    ("ProgramRun.wait timeout", lambda c: long_run(c).wait(timeout=0), SLOW),
    ("Program.__call__ filled", lambda c: unwritten(c, lambda p, x, b: p({"x": x}, filled=b)["y"]), ""),
    ("Program.call filled", lambda c: unwritten(c, lambda p, x, b: p.call((x,), filled=b)[0]), ""),
    ("Program.execution filled", lambda c: unwritten(c, lambda p, x, b: executed(p, x, filled=b).compute()["y"]), ""),
    ("Program.call out", lambda c: network().compile(c).call((X,), out=[]), "out"),
    ("Program.execution measure", lambda c: [executed(network().compile(c), X, measure=True).timing["on_device"] > 0, False], ""),
    ("Program.observe steps", lambda c: network().compile(c).observe((X,), steps=0), "steps"),
    *options("Program.observe", lambda c, **o: str(network().compile(c).observe((X,), **o)), names=set()),
    ("Program.observe_runs max_runs", lambda c: [max(r["observed"] for r in collatz().compile(c).observe_runs((integer(6),),
        max_runs=n)["regions"]) for n in (1, 3)], ""),
]
# fmt: on

# fmt: off
MODELS: list[Row] = [
    *options("Model.__init__", loaded, precision="fp16", fuse={"fuse": False, "proto": CHAIN}),
    ("Model.__init__ context", lambda c: pumice.Model(gemm(), W), "context"),
    ("Model.__init__ seed", lambda c: [pumice.load(RANDOM, c, seed=n)(M) for n in (1, 2)], ""),
    ("Model.__init__ folder", lambda c: pumice.Model(external(), c), "folder"),
    ("Model.__init__ progress", lambda c: [bars("pumice.model.compiled_model.make_progress_bar", lambda p=p: pumice.Model(gemm(), c,
        progress=p)) for p in (False, True)], ""),
    ("Model.__init__ **unknown", lambda c: pumice.Model(gemm(), c, wobble=1), W),
    ("Model.__init__ check_indices", lambda c: pumice.load(READS, c, check_indices=True)(M, [7]), "index 14"),  # type: ignore[arg-type]
    *options("Model.__init__", lambda c, **o: pumice.load(SCATTER, c, **o).program.report(), deterministic=True),
    ("Model.__init__ operators", lambda c: pumice.load(custom(), c, operators=[W]), "pumice.operator"),
    ("Model.__init__ kernels", lambda c: pumice.load(custom(), c, kernels={"Custom": SHIFT}), "your own domain"),  # type: ignore[arg-type]
    *rejects("Model.__init__", lambda c, **o: pumice.load(gemm(), c, **o), tuned=3, overridable=[W]),
    ("load context devices", lambda c: pumice.load(gemm(), c, devices="all"), "both"),
    *options("load", loaded, precision="bf16"),  # type: ignore[list-item]
    ("load **options", lambda c: pumice.load(gemm(), c, wobble=1), W),
    *options("operator", expression, inputs=["b", "a"]),
    ("operator attributes", lambda c: pumice.operator("mine::C", "a - c", attributes={"d": 1}), "'d'"),  # type: ignore[call-overload]
    *options("kernel_operator", lambda c, **o: of_kernel(c, **o)(X[:4], X[4:]).tolist(), inputs=["b", "a"], attributes={"by": 2.0},
        numbers={"numbers": {"times": "3"}}, shape="(2, 2)"),
    ("kernel_operator threads", lambda c: [counted(c, threads=n) for n in ("1", "4")], ""),  # type: ignore[call-overload]
    ("kernel_operator groups", lambda c: [counted(c, groups=n) for n in ("1", "3")], ""),
    ("kernel_operator dtype", lambda c: of_kernel(c, dtype="int32")(X[:4], X[4:]), "an array of float32"),
    ("kernel_operator outputs", lambda c: pumice.kernel_operator(SHIFT, outputs=["a", "y"]), "one input or one output"),
    *options("kernel_operator", proved, reference=lambda a, b, by: a - 2 * b + by),
    ("kernel_operator tolerance", lambda c: [proved(c, tolerance=t, reference=lambda a, b, by: a - 2 * b + by + 1e-3) for t in (1e-6,
        1e-2)], ""),
    *options("tune_precision", lambda c, **o: [len(tuned(c, **o).nodes), tuned(c, **o).value, tuned(c, **o).policy], limit=1e-7,
        metric={"metric": len, "limit": 1}, default="bf16"),
    ("tune_precision context", lambda c: tuned(closed(c)), "closed"),
    ("tune_precision progress", lambda c: [bars("pumice.validation.search.precision_tuner.Progress", lambda p=p: tuned(c,
        progress=p)) for p in (False, True)], ""),
    ("tune_precision folder", lambda c: tuned(c, folder=Path(FOLDER, "fill.comp")), "fill.comp"),
    *((f"Model.{name} loop_timeout", lambda c, n=name: getattr(pumice.load(looping(), c), n)(M, YES, loop_timeout=0.05),
        SLOW) for name in ("__call__", "run_async", "warm_up")),
    ("Model.map loop_timeout", lambda c: next(pumice.load(looping(), c).map([(M, YES)], loop_timeout=0.05)), SLOW),
    *((f"Model.{name} **by_name", lambda c, n=name: getattr(pumice.load(gemm(), c), n)(wobble=M), W) for name in ("__call__", "run_async",
        "arguments", "named", "warm_up", "tune")),
    ("Model.__call__ out", lambda c: pumice.load(relu(), c)(M, out={"z": M}), "z"),
    ("Model.map depth", lambda c: pumice.load(relu(), c).map([M], depth=0), "depth"),
    ("Model.loaded_again context", lambda c: [pumice.load(gemm(), c).loaded_again(x).context is c for x in (c, other(c))], ""),
    *rejects("Model.loaded_again", lambda c, **o: pumice.load(gemm(), c).loaded_again(**o), precision=W, tuned=3),
    ("Model.loaded_again part", lambda c: [[y.name for y in pumice.load(gemm(), c).loaded_again(part=p).outputs] for p in (None, relu())],
        ""),
    ("onnx.import_graph folder", lambda c: import_graph(external()), "folder"),
    *((f"{BACKEND}.{name} device", lambda c, f=call: f(device="CUDA"), "CUDA") for name, call in RUNS.items()),
    *((f"{BACKEND}.{name} **options", lambda c, f=call: f(wobble=1), f"option '{W}'") for name, call in RUNS.items()),
    *options(f"{BACKEND}.is_compatible", lambda c, **o: backend.is_compatible(gemm(), **o), device="CUDA"),
    (f"{BACKEND}.is_compatible **options", lambda c: [backend.is_compatible(gemm(), **o) for o in ({}, {W: 1})], ""),
    (f"{BACKEND}.run_node outputs_info", lambda c: RUNS["run_node"](outputs_info=[("float32", [2, 4])] * 2), "ValueError"),
    ("onnx.backend.PumiceBackendRep.run **options", lambda c: RUNS["prepare"]().run(M, wobble=1), f"option '{W}'"),
    *options("Model.tune", tuned_model, again=True, progress=False),
    *rejects("Model.tune", lambda c, **o: pumice.load(gemm(), c).tune(M, **o), runs=0),
    *options("BatchPredictor.__init__", predicted, precision="fp16", batch_size=4, keep=["n"]),
    ("BatchPredictor.__init__ **options", lambda c: [predicted(c, fuse=fuse) for fuse in (True, False)], ""),
    ("BatchPredictor.__init__ named", lambda c: [type(predictor(c, named=b)(M)) for b in (False, True)], ""),
    ("BatchPredictor.__init__ folder", lambda c: pumice.BatchPredictor(external())(M), "folder"),
    *rejects("BatchPredictor.__init__", lambda c, **o: predictor(c, **o)(M), device=W, ragged=W, columns={W: W}, depth=0),
    ("ParallelModel.__call__ **by_name", lambda c: pumice.load(relu(), devices=[c, c])(wobble=M), W),
    ("ParallelModel.map depth", lambda c: pumice.load(relu(), devices=[c, c]).map([M], depth=0), "depth"),
    ("ParallelModel.__init__ **options", lambda c: pumice.ParallelModel(relu(), [c], "fp32", wobble=1), W),
    ("memory_map **by_name", lambda c: pumice.memory_map(pumice.load(gemm(), c), wobble=M), W),
    ("MemoryMap.plot axes", lambda c: [(a := Mock(), n and pumice.memory_map(pumice.load(gemm(), c), M).plot(a),
        len(a.method_calls) > 0)[2] for n in (0, 1)], ""),
]
# fmt: on

# fmt: off
VALIDATION: list[Row] = [
    *options("validate", validated, precision="fp16", mode="isolated", inputs={"inputs": "reference", "mode": "isolated"},
        tolerances={"tolerances": {"sum": 0.0}, **FP16}, accuracy={"accuracy": 1e-9, "mode": "chained", **FP16},
        allow_ill_conditioned={"allow_ill_conditioned": True, "accuracy": 1e-9, "mode": "chained", **FP16}, repeat=2,
        reference={"Relu": lambda attributes, inputs: np.maximum(inputs[0], 0) + 1}),
    *rejects("validate", validated, allow_unchecked=[W]),
    ("validate context", lambda c: validated(W), "argument 'context'"),
    ("validate progress", lambda c: validated(c, progress=lambda *_: 1 / 0), "ZeroDivisionError"),
    ("validate candidate", lambda c: validated(None, candidate=lambda inputs: 1 / 0), "ZeroDivisionError"),
    *options("validate", lambda c, **o: pumice.validate(gemm(), [V], candidate=coarse, **o).ok, candidate_precision="fp16"),
    *options("validate", unlike, allow_nondeterministic=True),  # type: ignore[arg-type]
    *options("onnxruntime_candidate", lambda c, **o: sorted(pumice.onnxruntime_candidate(CHAIN, **o)({"x": M})), intermediate=False),
    ("onnxruntime_candidate providers", lambda c: pumice.onnxruntime_candidate(gemm(), providers=["Ghost"]), "Ghost"),  # type: ignore[arg-type]
    ("onnxruntime_candidate folder", lambda c: pumice.onnxruntime_candidate(external()), "give the folder"),
    ("ValidationReport.__init__ reference", lambda c: [REPORT(reference=n).as_dict()["reference"] for n in ("float64", "onnx")], ""),
    ("ValidationReport.__init__ facts", lambda c: [REPORT(facts=f).as_dict() for f in (None, ReportMetadata(get_device_metadata(c.info),
        inputs=("x",)))], ""),
    ("ValidationReport.explain folder", lambda c: pumice.validate(gemm(), [M], context=c, tolerances={"sum": 0.0}).explain(FOLDER),
        "expected a new or an empty folder"),
    ("reduce context", lambda c: reduced(W), "argument 'context'"),
    *options("reduce", lambda c, **o: reduced(c, **o).precision, precision="fp16"),
    ("reduce fails", lambda c: reduced(c, fails=None), "expected a model that fails"),
    ("reduce progress", lambda c: reduced(c, progress=lambda *_: 1 / 0), "ZeroDivisionError"),
    ("reduce repeat", lambda c: reduced(c, repeat=4), "given both"),  # type: ignore[arg-type]
]
# fmt: on

# fmt: off
PROFILES: list[Row] = [
    ("profile level", lambda c: [len(profiled(c, level).spans) for level in ("node", "dispatch")], ""),
    ("profile every", lambda c: [sum(e.fine for e in profiled(c, "node", n).executions) for n in (None, 1, 2)], ""),
    ("Profile.rows by", lambda c: [len(profiled(c).rows(by)) for by in GROUPS], ""),
    ("Profile.cells by", lambda c: [len(profiled(c).cells(by)) for by in GROUPS], ""),
    ("Profile.table by", lambda c: profiled(c).table(W), W),
    ("Profile.table max_rows", lambda c: [profiled(c).table("dispatch", n).count("\n") for n in (1, 2)], ""),
    ("Profile.compare by", lambda c: profiled(c).compare(profiled(c), W), W),
    ("Profile.plot kind", lambda c: profiled(c).plot(W), W),
    ("Profile.plot axes", lambda c: [(a := Mock(), n and profiled(c).plot("kernels", a), len(a.method_calls) > 0)[2] for n in (0, 1)],
        ""),
    ("Profile.save_html title", lambda c: ["another" in titled(profiled(c), title) for title in ("one", "another")], ""),
]
# fmt: on


# ---- the dv interface

WEIGHTS = np.arange(16 * 8 * 9, dtype="float16").reshape(16, 8, 3, 3) / 512
INDICES = np.ones((16, 8, 3, 3), "uint8")
TABLE, SIXTEEN = np.linspace(0, 1, 256, dtype="float16"), np.linspace(1, 2, 16, dtype="float16")
WHC = (((2, 3, 4), "CHW"), ((3, 4, 2), "HWC"))
CUBE = np.arange(2 * 3 * 4, dtype="uint8").reshape(2, 3, 4)
BUFFERS: dict[str, Any] = {"input_buf": (1, 0), "output_buf": (2, 0)}  # memory handles


def memory(context: pumice.Context, **given: Any) -> dv.Memory:
    made = dv.Context(context, **given).memory(PAGE)
    made.map()[:] = 7
    return made


def conv(channels: int) -> dv.Conv:
    run = dv.Run(pool_enable=dv.POOL_MAX, pool_size=(1, 2), m=channels)
    return dv.Conv(**BUFFERS, w=8, h=8, c=channels, run=[run])


def separated(context: pumice.Context) -> int:
    """Return a byte of the device after the host's copy of it was written without a sync."""
    made = memory(context, separate=True)
    made.sync_start()
    made.sync_end()
    made.map()[0] = 9
    return int(made.read("uint8", 1)[0])


def behind(context: pumice.Context, wait: Callable[[dv.CommandList, int], Any]) -> Any:
    """Wait for a list that runs after other work."""
    own = dv.Context(context)
    commands = committed(own, doubling(own.memory(PAGE)))
    busy(context)
    return wait(commands, commands.exec())


def dv_network(*sizes: int | None) -> pumice.Graph:
    graph = pumice.Graph("net")
    x = graph.input("x", "float32", [None, 8, *sizes])
    w = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype("float32") / 8
    graph.output("y", graph.add("Relu", graph.add("Conv", x, w, pads=[1, 1, 1, 1])))
    return graph


def hurried(context: pumice.Context) -> None:
    """Run a network behind other work, without time."""
    if context.info.kind != "software":
        pytest.skip("on a GPU the work may already be done")
    made = dv.from_graph(dv_network(6, 6))
    with dv.Context(context) as own, made.load(own) as net:
        busy(context)
        net(np.ones(made.input_shape, "float32"), timeout=0)


CONV_V1 = dv.ConvV1(u8tofp16_table=(1, 0), conv_cmd=conv(3))
FULLY = dv.FullyConnected(**BUFFERS, weight_buf=(1, 0), input_size=16385, output_size=16)
IPU = dv.Ipu(wr=(2, 0), tex=(1, 0), use_tex=1, tex_height=1, rect_width=4, rect_height=4, tex_width=65535)
MAXIMIZER = dv.Maximizer(**BUFFERS, width=4096, height=4096, nclass=4)
PACKED = dv.pack_fc_weights(WEIGHTS.reshape(16, -1))
PACKS: dict[str, Any] = {
    "conv": (dv.pack_conv_weights, dv.unpack_conv_weights),
    "dil": (dv.pack_dil_weights, dv.unpack_dil_weights),
}
# fmt: off
DV: list[Row] = [
    ("dv.Context.__init__ device", lambda c: [dv.Context(x).device is c for x in (c, f"uuid:{c.info.uuid}")], ""),
    ("dv.Context.__init__ strict", lambda c: [dv.Context(c, strict=b).strict for b in (False, True)], ""),
    ("dv.Context.__init__ separate", lambda c: [separated(c), 9], ""),
    ("dv.Memory.array offset", lambda c: memory(c).array("uint8", 8, offset=-1), "offset|-1|range"),
    ("dv.Memory.write offset", lambda c: memory(c).write(np.zeros(8, "uint8"), offset=PAGE), "offset|range|bytes"),
    ("dv.Memory.read offset", lambda c: memory(c).read("uint8", 8, offset=PAGE), "offset|range|bytes"),
    ("dv.Memory.sync_start read write", lambda c: memory(c).sync_start(False, False), "D4"),
    ("dv.Memory.sync read write", lambda c: memory(c).sync(False, False).__enter__(), "D4"),
    ("dv.CommandList.wait exec_id", lambda c: behind(c, lambda commands, _: commands.wait(1 << 40)), "Error"),
    ("dv.CommandList.wait timeout", lambda c: behind(c, lambda commands, _: commands.wait(timeout=0)), SLOW),
    ("dv.CommandList.run timeout", lambda c: behind(c, lambda commands, _: commands.run(timeout=0)), SLOW),
    ("dv.Conv.run_outputs strict", lambda c: conv(16).run_outputs(strict=True), "D5"),
    ("dv.Conv.required_bytes strict", lambda c: conv(16).required_bytes(strict=True), "D5"),
    ("dv.ConvV1.run_outputs strict", lambda c: CONV_V1.run_outputs(strict=True), "D5"),
    ("dv.ConvV1.required_bytes strict", lambda c: CONV_V1.required_bytes(strict=True), "D5"),
    ("dv.FullyConnected.required_bytes strict", lambda c: FULLY.required_bytes(strict=True), "D5"),
    ("dv.Ipu.required_bytes strict", lambda c: IPU.required_bytes(strict=True), "D5"),
    ("dv.Maximizer.required_bytes strict", lambda c: MAXIMIZER.required_bytes(strict=True), "D5"),
    *(row for kind, (pack, unpack) in PACKS.items() for row in (*options(f"dv.pack_{kind}_weights", lambda c, f=pack, **o: f(WEIGHTS,
        **o), bias=SIXTEEN, prelu=SIXTEEN), (f"dv.pack_{kind}_weights table", lambda c, f=pack: [f(INDICES, table=t) for t in (TABLE,
        TABLE + 1)], ""), (f"dv.unpack_{kind}_weights prelu", lambda c, f=pack, g=unpack: [g(f(WEIGHTS, prelu=SIXTEEN), WEIGHTS.shape,
        prelu=b).prelu for b in (0, 1)], ""), (f"dv.unpack_{kind}_weights quantized", lambda c, f=pack, g=unpack: [g(f(WEIGHTS),
        WEIGHTS.shape, quantized=b).indices is None for b in (0, 1)], ""))),
    *options("dv.pack_fc_weights", lambda c, **o: dv.pack_fc_weights(WEIGHTS.reshape(16, -1), **o), bias=SIXTEEN),
    ("dv.pack_fc_weights table", lambda c: [dv.pack_fc_weights(INDICES.reshape(16, -1), table=t) for t in (TABLE, TABLE + 1)], ""),
    ("dv.unpack_fc_weights quantized", lambda c: [dv.unpack_fc_weights(PACKED, (16, 72), quantized=b).indices is None for b in (False,
        True)], ""),
    *options("dv.to_whc8", lambda c, **o: dv.to_whc8(CUBE, **o), layout="HWC"),
    ("dv.from_whc8 layout", lambda c: [dv.from_whc8(dv.to_whc8(CUBE), s, n) for s, n in WHC], ""),
    ("dv.from_graph input_shape", lambda c: [dv.from_graph(dv_network(None, None), (8, n, 6)).input_shape for n in (6, 8)], ""),
    *options("dv.from_graph", lambda c, **o: dv.from_graph(dv_network(6, 6), **o).input_shape, images=2),
    *options("dv.from_graph", lambda c, **o: len(dv.from_graph(dv_network(6, 6), **o).weights), quantize=True),
    ("dv.Network.load context", lambda c: dv.from_graph(dv_network(6, 6)).load(dv.Context(closed(c))), "closed"),
    ("dv.LoadedNetwork.__call__ timeout", hurried, SLOW),
]
# fmt: on

CALLS = [*MEMORY, *TENSORS, *KERNELS, *GRAPHS, *MODELS, *VALIDATION, *PROFILES, *DV]
