"""Contexts, buffers, command lists and waits."""

from __future__ import annotations

from typing import Any

import numpy as np

import pumice
from binding_tables import execute, initialise
from signature_probes.probe import covers, differ, expect_error, times_out

SLOW = """layout(local_size_x = 64) in;
layout(binding = 0) buffer X { uint x[]; };
void main() {
  uint v = gl_GlobalInvocationID.x;
  for (uint k = 0u; k < 20000u; ++k) v = v * 1664525u + 1013904223u;
  if (v == 1u) x[0] = v;
}"""
ADD = """layout(binding = 0) buffer X { float x[]; };
void main() { x[gl_GlobalInvocationID.x] += 1.0; }"""


def busy(context: pumice.Context) -> pumice.Submission:
    """Submit work that is still running at the next call."""
    commands = pumice.CommandList(context)
    kernel = pumice.Kernel(SLOW, context)
    for _ in range(1 if context.info.kind == "software" else 800):  # a GPU runs many workgroups at once
        commands.dispatch(kernel.bind(x=pumice.zeros(64, "uint32", context), groups=400))
    commands.commit()
    return commands.exec()


def recorded(context: pumice.Context, **commit: bool) -> tuple[pumice.CommandList, pumice.Submission]:
    commands = pumice.CommandList(context)
    commands.dispatch(pumice.Kernel(ADD, context).bind(x=pumice.zeros(8, context=context), threads=8))
    commands.commit(**commit)
    submission = commands.exec()
    submission.wait()
    return commands, submission


@covers("Context.__init__.device", "Context.__init__.without", "Context.__init__.limits", "Context.__init__.quirks")
def contexts(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as named:
        assert named.info.uuid == context.info.uuid
        assert "requested as" in named.choice
    expect_error(lambda: pumice.Context("no such device"), "no such device")
    with pumice.Context(f"uuid:{context.info.uuid}", without=["storageBuffer8BitAccess"]) as masked:
        assert not masked.feature("storageBuffer8BitAccess")
    expect_error(lambda: pumice.Context(without=["wobble"]), "wobble")
    with pumice.Context(f"uuid:{context.info.uuid}", limits={"maxComputeWorkGroupCount": 64}) as lesser:
        assert lesser.info.limits["maxComputeWorkGroupCount_2"] == 64
    expect_error(lambda: pumice.Context(limits={"wobble": 1}), "wobble")
    with pumice.Context(f"uuid:{context.info.uuid}", quirks=["inexact_division"]) as assumed:
        assert "inexact_division" in {quirk.name for quirk in assumed.driver_quirks}
    expect_error(lambda: pumice.Context(quirks=["wobble"]), "wobble")


@covers("Context.wait.timeout", "Submission.wait.timeout", "CommandList.wait.timeout")
def waits(context: pumice.Context) -> None:
    commands = pumice.CommandList(context)
    submission = busy(context)
    for wait in (
        lambda: context.wait(submission.id, timeout=0),
        lambda: submission.wait(timeout=0),
        lambda: commands.wait(submission.id, timeout=0),
    ):
        times_out(wait)
    submission.wait(timeout=60)


@covers("Context.close.timeout")
def closing(context: pumice.Context) -> None:
    """test_endless_work.py tests closing a context whose work hangs."""
    with pumice.Context(f"uuid:{context.info.uuid}") as own:
        expect_error(lambda: own.close(timeout=-1.0), "seconds")
        assert not own.closed
        own.close(timeout=60)
        assert own.closed
        assert not own.abandoned


@covers("Buffer.__init__.heap")
def heaps(context: pumice.Context) -> None:
    differ(*(pumice.Buffer(context, 64, heap).heap for heap in ("default", "upload", "readback")))
    expect_error(lambda: pumice.Buffer(context, 64, "wobble"), "wobble")


@covers("Buffer.sync_start.read", "Buffer.sync_start.write")
def host_access(context: pumice.Context) -> None:
    """Reading waits for the device, writing alone does not; access for neither is an error."""
    buffer = pumice.Buffer(context, 64, "readback")
    buffer.map()
    submission = busy(context)
    buffer.sync_start(read=False, write=True)
    buffer.sync_end()
    assert not submission.done
    buffer.sync_start(read=True, write=False)
    buffer.sync_end()
    assert submission.done
    expect_error(lambda: buffer.sync_start(read=False, write=False), "read, write or both")


@covers("BufferRange.__init__.offset", "BufferRange.__init__.bytes")
def ranges(context: pumice.Context) -> None:
    buffer = pumice.Buffer(context, 256)
    made = [pumice.BufferRange(buffer), pumice.BufferRange(buffer, 64), pumice.BufferRange(buffer, 64, 32)]
    assert [(one.offset, one.bytes) for one in made] == [(0, 256), (64, 192), (64, 32)]


@covers("CommandList.commit.timing", "CommandList.commit.profile")
def commits(context: pumice.Context) -> None:
    assert recorded(context)[1].device_seconds is None
    assert recorded(context, timing=True)[1].device_seconds is not None
    assert [one.label for one in recorded(context, profile=True)[0].dispatch_times] == ["kernel"]
    assert not recorded(context, timing=True)[0].dispatch_times


@covers("CommandList.time.warm_up", "CommandList.warm_up.runs")
def warmed_up(context: pumice.Context) -> None:
    """Each execution adds 1, so the result counts the unmeasured ones."""
    x = pumice.zeros(8, context=context)
    commands = pumice.CommandList(context)
    commands.dispatch(pumice.Kernel(ADD, context).bind(x=x, threads=8))
    commands.commit()
    for run, total in (
        (commands.warm_up, 1),
        (lambda: commands.warm_up(3), 4),
        (lambda: commands.time(2, warm_up=3), 9),
        (lambda: commands.time(2), 11),
    ):
        run()
        assert x.tolist() == [total] * 8
    expect_error(lambda: commands.warm_up(-1), "K12")
    expect_error(lambda: commands.time(1, warm_up=-1), "warm_up")


def relu(context: pumice.Context, **options: Any) -> pumice.CompiledOperator:
    desc = pumice.TensorDesc("float32", [64])
    return pumice.Operator("Relu", [desc], [desc]).compile(context, **options)


@covers("BindingTable.__init__.descriptors", "BindingTable.reset.descriptors")
def descriptors(context: pumice.Context) -> None:
    compiled = relu(context)
    needed = compiled.binding_properties.descriptors
    table = pumice.BindingTable(compiled, needed)
    for call in (lambda: pumice.BindingTable(compiled, needed - 1), lambda: table.reset(compiled, needed - 1)):
        expect_error(call, r"\[C10\]")


@covers("BindingTable.bind.**kwargs")
def bound_by_name(context: pumice.Context) -> None:
    table = pumice.BindingTable(relu(context))
    x, y = (pumice.zeros(64, context=context) for _ in range(2))
    (source,), (target,) = ([slot.name for slot in slots] for slots in (relu(context).inputs, relu(context).outputs))
    table.bind(**{source: x, target: y})
    expect_error(lambda: table.bind(**{source: x, target: y, "wobble": x}), "wobble")


@covers("Dispatchable.supports_in_place.input", "Dispatchable.supports_in_place.output")
def in_place(context: pumice.Context) -> None:
    desc, scalar = pumice.TensorDesc("float32", [64]), pumice.TensorDesc("float32", [1])
    add = pumice.Operator("PRelu", [desc, scalar], [desc]).compile(context)
    differ(add.supports_in_place(0, 0), add.supports_in_place(1, 0))
    top = pumice.Operator("Relu", [desc], [desc]).compile(context)
    differ(top.supports_in_place(0, 0), top.supports_in_place(0, 1))


@covers(
    "Operator.__init__.activation", "Operator.__init__.**kwargs", "Operator.compile.precision", "Operator.compile.flags"
)
def operators(context: pumice.Context) -> None:
    desc = pumice.TensorDesc("float32", [64])
    for activation in ("Neg", ("LeakyRelu", {"alpha": 0.5})):
        compiled = pumice.Operator("Neg", [desc], [desc], activation=activation).compile(context)
        initialise(context, compiled)
        x, y = pumice.ones(64, context=context), pumice.zeros(64, context=context)
        execute(context, compiled, [x], [y])
        assert y[0].item() == (1 if activation == "Neg" else -0.5)
    expect_error(lambda: pumice.Operator("Relu", [desc], [desc], activation="Wobble"), "Wobble")
    pumice.Operator("LeakyRelu", [desc], [desc], alpha=0.5)
    expect_error(lambda: pumice.Operator("Relu", [desc], [desc], alpha=0.5), "alpha")
    differ(*(relu(context, precision=one).binding_properties.temporary_bytes for one in ("fp32", "fp16")))
    expect_error(lambda: relu(context, precision="fp12"), "fp12")
    assert relu(context, flags=["ALLOW_HALF_PRECISION_COMPUTATION"]).binding_properties.temporary_bytes > 0
    expect_error(lambda: relu(context, flags=["WOBBLE"]), "WOBBLE")
    compiled = relu(context, flags=["DESCRIPTORS_VOLATILE"])
    pumice.CommandList(context).dispatch(compiled, pumice.BindingTable(compiled))  # its bindings may be set later
    plain = relu(context)
    expect_error(lambda: pumice.CommandList(context).dispatch(plain, pumice.BindingTable(plain)))


@covers("has_operator.domain")
def domains(context: pumice.Context) -> None:
    assert pumice.has_operator("Relu")
    assert pumice.has_operator("Relu", "ai.onnx")
    assert not pumice.has_operator("Relu", "pumice")
    assert pumice.has_operator("FloorDivide", "pumice")
    assert not pumice.has_operator("FloorDivide")


@covers("strides.broadcast", "TensorDesc.with_layout.broadcast", "buffer_size.strides")
def layouts(context: pumice.Context) -> None:
    differ(pumice.strides([2, 3], "ab"), pumice.strides([2, 3], "ab", [True, False]))
    expect_error(lambda: pumice.strides([2, 3], "ab", [True]), "broadcast|axes|2")
    given = [pumice.TensorDesc.with_layout("float32", [2, 3], "ab", mask) for mask in ([], [True, False])]
    differ(*(one.strides for one in given))
    expect_error(lambda: pumice.TensorDesc.with_layout("float32", [2, 3], "ab", [True]), "broadcast|axes|2")
    differ(pumice.buffer_size("float32", [2, 3]), pumice.buffer_size("float32", [2, 3], [8, 1]))


@covers(
    "TensorDesc.__init__.strides",
    "TensorDesc.__init__.owned",
    "TensorDesc.__init__.alignment",
    "TensorDesc.__init__.scale",
    "TensorDesc.__init__.zero_point",
    "TensorDesc.__init__.channel_axis",
    "TensorDesc.__init__.total_bytes",
)
def descriptions(context: pumice.Context) -> None:
    plain = pumice.TensorDesc("uint8", [2, 3])
    for name, given in (("strides", (8, 1)), ("owned", True), ("alignment", 64)):
        made = pumice.TensorDesc("uint8", [2, 3], **{name: given})
        assert getattr(made, name) == given
        differ(repr(getattr(plain, name)), repr(getattr(made, name)))
    assert pumice.TensorDesc("uint8", [2, 3], total_bytes=64).bytes == 64 != plain.bytes
    quantized = pumice.TensorDesc("uint8", [2, 3], scale=0.5, zero_point=3)
    assert (quantized.scale, quantized.zero_point) == (0.5, 3)
    by_channel = pumice.TensorDesc("int8", [2, 3], scale=[0.5, 1, 2], channel_axis=1)
    assert (by_channel.scale, by_channel.channel_axis) == ((0.5, 1, 2), 1)


@covers("operators.name")
def catalogue(context: pumice.Context) -> None:
    assert pumice.operators("Conv").name == "Conv"
    assert len(pumice.operators()) > 100
    expect_error(lambda: pumice.operators("Konv"), "Conv")


@covers("testing.accuracy.reference", "testing.accuracy.confidence", "testing.wilson.confidence")
def shares(context: pumice.Context) -> None:
    from pumice.testing import accuracy, wilson

    differ(*(accuracy([0, 1], [0, 1], reference=one).comparison for one in (None, [0, 1], [1, 1])))
    differ(*(accuracy([0, 1], [0, 1], confidence=one).interval for one in (0.9, 0.95)))
    differ(*(wilson(1, 2, confidence=one) for one in (0.9, 0.95)))
    expect_error(lambda: wilson(1, 2, confidence=0), "confidence")


@covers("testing.compare.rtol", "testing.compare.atol", "testing.assert_close.rtol", "testing.assert_close.atol")
def tolerances(context: pumice.Context) -> None:
    from pumice.testing import assert_close, compare

    a, b = np.array([1.0, 0.0]), np.array([1.1, 0.1])
    assert compare(a, b).mismatched == 2
    assert compare(a, b, rtol=0.2).mismatched == 1
    assert compare(a, b, atol=0.2).mismatched == 0
    assert_close(a, b, atol=0.2)
    assert_close(a[:1], b[:1], rtol=0.2)
    for tolerance in ({}, {"rtol": 0.01}, {"atol": 0.01}):
        expect_error(lambda tolerance=tolerance: assert_close(a, b, **tolerance), error=AssertionError)
