"""Models, and the importer."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

import pumice
from onnx_models import gemm, model, node, relu, value
from pumice.onnx import backend, import_graph
from signature_probes.probe import covers, differ, expect_error, times_out

X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)


def looping() -> onnx.ModelProto:
    """An infinite loop that carries x."""
    body = onnx.helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Identity", ["s"], ["t"])],
        "body",
        [onnx.helper.make_tensor_value_info(*one) for one in (("i", 7, []), ("go", 9, []), ("s", 1, ["N", 4]))],
        [onnx.helper.make_tensor_value_info(*one) for one in (("on", 9, []), ("t", 1, ["N", 4]))],
    )
    return model([node("Loop", ["", "yes", "x"], ["y"], body=body)], [value("x"), value("yes", [], 9)])


def beside(folder: str) -> bytes:
    """A model with external weights in this folder."""
    proto = gemm()
    onnx.save(proto, Path(folder) / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    return (Path(folder) / "m.onnx").read_bytes()


def overridable() -> onnx.ModelProto:
    proto = gemm()
    proto.graph.input.append(onnx.helper.make_tensor_value_info("b", 1, [3]))
    return proto


def random() -> onnx.ModelProto:
    return model([node("RandomNormalLike", ["x"])])


@covers(
    "Model.__init__.context",
    "Model.__init__.precision",
    "Model.__init__.folder",
    "Model.__init__.progress",
    "Model.__init__.seed",
    "Model.__init__.fuse",
    "Model.__init__.overridable",
    "Model.__init__.**unknown",
)
def loading(context: pumice.Context) -> None:
    assert pumice.load(gemm(), context).context is context
    differ(*(pumice.load(gemm(), context, precision)(X)["sum"] for precision in ("fp32", "fp16", "bf16")))
    by_node = {"default": "fp16", "*": "fp32"}
    differ(*(pumice.load(gemm(), context, precision)(X)["sum"] for precision in ("fp16", by_node)))
    expect_error(lambda: pumice.load(gemm(), context, {"default": "fp16", "wobble": "fp32"}), "wobble")
    with TemporaryDirectory() as folder:
        data = beside(folder)
        expect_error(lambda: pumice.load(data, context), "folder")
        pumice.load(data, context, folder=folder)
    for progress in (False, True):  # only shown on terminals
        pumice.load(gemm(), context, progress=progress)
    differ(*(pumice.load(random(), context, seed=seed)(X) for seed in (1, 2)))
    expect_error(lambda: pumice.load(random(), context, seed=-1), "seed")
    chain = model([node("Neg", ["x"], ["n"]), node("Exp", ["n"], ["y"])])
    differ(*(pumice.load(chain, context, fuse=fuse).report().after for fuse in (True, False)))
    expect_error(lambda: pumice.load(gemm(), context, fuse=["wobble"]), "wobble")
    differ(*(len(pumice.load(overridable(), context, overridable=one).overridable) for one in (False, ["b"])))
    expect_error(lambda: pumice.load(gemm(), context, overridable=["wobble"]), "wobble")
    expect_error(lambda: pumice.load(gemm(), context, wobble=1), "wobble")  # type: ignore[arg-type]


@covers(
    "tune_precision.metric",
    "tune_precision.limit",
    "tune_precision.default",
    "tune_precision.context",
    "tune_precision.progress",
    "tune_precision.folder",
)
def tuning(context: pumice.Context) -> None:
    def tuned(**options: Any) -> pumice.TunedPrecision:
        return pumice.tune_precision(gemm(), [X / 3], context=context, **options)

    differ(*(len(tuned(limit=limit).nodes) for limit in (0.5, 1e-7)))
    expect_error(lambda: tuned(limit=-1), "limit")
    assert tuned(metric=len, limit=1).value == 1
    expect_error(lambda: tuned(metric=len, limit=2), "fp32")
    differ(*(tuned(default=default, limit=0.5).policy["default"] for default in ("fp16", "bf16")))
    expect_error(lambda: tuned(default="fp12"), "fp12")
    with pumice.Context(f"uuid:{context.info.uuid}") as closed:
        pass
    expect_error(lambda: pumice.tune_precision(gemm(), [X], context=closed), "closed")
    for progress in (False, True):  # only shown on terminals
        tuned(progress=progress)
    with TemporaryDirectory() as folder:
        tuned(folder=folder)
        assert (Path(folder) / "policy.json").exists()


@covers("Model.__call__.loop_timeout", "Model.run_async.loop_timeout")
def loop_timeouts(context: pumice.Context) -> None:
    with pumice.load(looping(), context) as loaded:
        for call in (loaded, loaded.run_async):
            times_out(lambda call=call: call(X, np.array(True), loop_timeout=0.05))
            expect_error(lambda call=call: call(X, np.array(True), loop_timeout=-1), "loop_timeout")


@covers(
    "Model.__call__.**by_name",
    "Model.run_async.**by_name",
    "Model.arguments.**by_name",
    "Model.named.**by_name",
)
def arguments_by_name(context: pumice.Context) -> None:
    with pumice.load(gemm(), context) as loaded:
        for call in (loaded, loaded.run_async, loaded.arguments, loaded.named):
            call(x=X)
            expect_error(lambda call=call: call(X, wobble=X), "wobble")


@covers("Model.__call__.out", "Model.map.depth", "Model.map.loop_timeout")
def many_and_large(context: pumice.Context) -> None:
    with pumice.load(relu(), context) as loaded:
        y = np.zeros_like(X)
        assert loaded(X, out=y) is y
        expect_error(lambda: loaded(X, out={"z": y}), "z")
        expect_error(lambda: loaded.map([X], depth=0), "depth")
        assert len(list(loaded.map([X] * 3, depth=3))) == 3
    with pumice.load(looping(), context) as loaded:
        times_out(lambda: next(loaded.map([(X, np.array(True))], loop_timeout=0.05)))


@covers("Model.loaded_again.context", "Model.loaded_again.precision", "Model.loaded_again.part")
def loading_again(context: pumice.Context) -> None:
    with pumice.load(gemm(), context) as loaded, pumice.Context(f"uuid:{context.info.uuid}") as other:
        assert loaded.loaded_again(other).context is other
        assert loaded.loaded_again(precision="bf16").precision == "bf16"
        assert loaded.loaded_again().context is context
        differ(*([one.name for one in each.outputs] for each in (loaded, loaded.loaded_again(part=relu()))))
        expect_error(lambda: loaded.loaded_again(precision="fp12"), "fp12")


@covers("onnx.import_graph.folder")
def graphs(context: pumice.Context) -> None:
    with TemporaryDirectory() as folder:
        data = beside(folder)
        expect_error(lambda: import_graph(data), "folder")
        import_graph(data, folder)


BACKEND = "onnx.backend.PumiceBackend"


@covers(
    f"{BACKEND}.prepare.device",
    f"{BACKEND}.prepare.**options",
    f"{BACKEND}.is_compatible.device",
    f"{BACKEND}.is_compatible.**options",
    f"{BACKEND}.run_model.device",
    f"{BACKEND}.run_model.**options",
    f"{BACKEND}.run_node.device",
    f"{BACKEND}.run_node.outputs_info",
    f"{BACKEND}.run_node.**options",
    "onnx.backend.PumiceBackendRep.run.**options",
)
def backends(context: pumice.Context) -> None:
    relu = node("Relu", ["x"], ["y"])
    assert backend.prepare(gemm(), "CPU", precision="fp16").model.precision == "fp16"
    here = next(device.index for device in pumice.devices() if device.uuid == pumice.default_context().info.uuid)
    assert backend.prepare(gemm(), f"VULKAN:{here}").model.context is not pumice.default_context()
    assert not backend.supports_device("VULKAN:99")
    assert not backend.supports_device("CPU:1")
    assert not backend.is_compatible(gemm(), "CUDA")
    assert not backend.is_compatible(gemm(), wobble=1)
    calls: list[Any] = [
        lambda **options: backend.prepare(gemm(), **options),
        lambda **options: backend.run_model(gemm(), X, **options),
        lambda **options: backend.run_node(relu, [X], **options),
    ]
    for call in calls:
        call(seed=3)
        expect_error(lambda call=call: call(wobble=1), "option 'wobble'")
        expect_error(lambda call=call: call(device="CUDA"), "CUDA")
    expect_error(lambda: backend.prepare(gemm()).run(X, wobble=1), "option 'wobble'")
    times_out(lambda: backend.prepare(looping()).run([X, np.array(True)], loop_timeout=0.05))
    clip = node("Clip", ["x"], ["y"], min=0.25)
    assert backend.run_node(clip, [X], opset_version=6)[0].min() == 0.25
    expect_error(lambda: backend.run_node(clip, [X]), "min")
    expect_error(
        lambda: backend.run_node(relu, [X], outputs_info=[("float32", [2, 4]), ("float32", [2, 4])]), error=ValueError
    )


@covers("Model.warm_up.loop_timeout", "Model.warm_up.**by_name")
def warming_up(context: pumice.Context) -> None:
    with pumice.load(looping(), context) as endless:
        times_out(lambda: endless.warm_up(X, np.array(True), loop_timeout=0.05))
    with pumice.load(gemm(), context) as loaded:
        assert loaded.warm_up(**{loaded.inputs[0].name: X}) > 0
        expect_error(lambda: loaded.warm_up(wobble=X), "wobble")


@covers("Model.__init__.check_indices")
def checking_indices(context: pumice.Context) -> None:
    nodes = [node("Add", ["i", "i"], ["j"]), node("Gather", ["x", "j"])]
    proto = model(nodes, [value("x", [2, 4]), value("i", [1], 7)])
    given = X, np.array([7])  # a call checks its given indices, check_indices= also indices computed on the device
    pumice.load(proto, context)(*given)
    expect_error(lambda: pumice.load(proto, context, check_indices=True)(*given), "index 14")


@covers("Model.__init__.deterministic")
def ordered_updates(context: pumice.Context) -> None:
    """Updates are sorted by destination, using extra memory."""
    inputs = [value("x", [4]), value("i", [9], 7), value("u", [9])]
    proto = model([node("ScatterElements", ["x", "i", "u"], reduction="add")], inputs)
    kernels = [
        {row["kernel"] for row in pumice.load(proto, context, deterministic=chosen).program.report()}
        for chosen in (False, True)
    ]
    differ(*kernels)


@covers("Model.__init__.operators", "operator.inputs", "operator.attributes")
def expressions(context: pumice.Context) -> None:
    proto = model([node("Custom", ["x", "z"], domain="mine")], [value("x", [4]), value("z", [4])])
    proto.opset_import.add(domain="mine", version=1)

    def results(**options: Any) -> Any:
        made = pumice.operator("mine::Custom", "a - 2 * b + c", attributes={"c": 1}, **options)
        return pumice.load(proto, context, operators=[made])(np.ones(4, "float32"), np.zeros(4, "float32"))

    differ(*(results(inputs=names) for names in (["a", "b"], ["b", "a"])))
    assert (results() == 2).all()
    expect_error(lambda: pumice.operator("mine::Custom", "a - c", attributes={"d": 1}), "'d'")
    expect_error(lambda: pumice.load(proto, context, operators=["mine::Custom"]), "pumice.operator")  # type: ignore[list-item]


_SHIFT = """
layout(constant_id = 0) const int times = 1;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform P { float by; } p;
void main() { uint i = gl_GlobalInvocationID.x; y[i] = a[i] - 2 * b[i] + p.by * times; }
"""


@covers(
    "Model.__init__.kernels",
    *(f"kernel_operator.{name}" for name in ("shape", "dtype", "inputs", "outputs", "attributes", "numbers")),
    *(f"kernel_operator.{name}" for name in ("threads", "groups", "reference", "tolerance")),
)
def kernels(context: pumice.Context) -> None:
    proto = model([node("Custom", ["x", "z"], domain="mine")], [value("x", [4]), value("z", [4])])
    proto.opset_import.add(domain="mine", version=1)
    given = np.ones(4, "float32"), np.zeros(4, "float32")

    def made(**options: Any) -> pumice.KernelOperator:
        return pumice.kernel_operator(_SHIFT, **{"attributes": {"by": 1.0}, **options})

    def loaded(**options: Any) -> pumice.Model:
        return pumice.load(proto, context, kernels={"mine::Custom": made(**options)})

    differ(*(loaded(inputs=names)(*given) for names in (["a", "b"], ["b", "a"])))
    differ(*(loaded(attributes={"by": by})(*given) for by in (1.0, 2.0)))
    differ(*(loaded(numbers={"times": times})(*given) for times in ("1", "3")))
    differ(*(loaded(shape=shape)(*given).shape for shape in ("a.shape", "(2, 2)")))
    kernel = pumice.Kernel(_SHIFT.replace("a[i] - 2 * b[i]", "float(gl_NumWorkGroups.x)"), context, local_size=2)
    launches: list[dict[str, Any]] = [{"threads": "1"}, {"groups": "3"}, {"threads": "4"}]
    groups = []
    for launch in launches:
        one = pumice.kernel_operator(kernel, attributes={"by": 1.0}, **launch)
        groups.append(pumice.load(proto, context, kernels={"mine::Custom": one})(*given)[0] - 1)
    assert groups == [1, 3, 2]
    expect_error(lambda: loaded(dtype="int32")(*given), "an array of float32")
    expect_error(lambda: made(outputs=["a", "y"]), "as one input or one output")
    reports = [pumice.validate(loaded(reference=one), [given]) for one in (None, lambda a, b, by: a - 2 * b + by)]
    assert [report.ok for report in reports] == [False, True]
    near = [
        pumice.validate(loaded(reference=lambda a, b, by: a - 2 * b + by + 1e-3, tolerance=t), [given]).ok
        for t in (1e-6, 1e-2)
    ]
    assert near == [False, True]
    expect_error(lambda: pumice.load(proto, context, kernels={"Custom": _SHIFT}), "your own domain")
