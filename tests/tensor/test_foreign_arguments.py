"""Arguments from other libraries, or of unsupported types: read correctly, or rejected with an error of pumice."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import gemm, model, node, value
from pumice import dv
from pumice.testing import assert_close

Array = np.ndarray[Any, Any]
FLOAT = np.float32

DOUBLE = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform P { float factor; vec3 shift; } p;
void main() { uint i = gl_GlobalInvocationID.x; y[i] = x[i] * p.factor + p.shift.x; }
"""


class Dtype:
    """A dtype of a library other than NumPy: it has a name and no kind."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"other.{self.name}"


class OtherTensor:
    """A tensor like torch's: shares memory with NumPy and DLPack, has its own dtype class, and may refuse to export either."""

    def __init__(self, array: Array, refuses: str = "", copies: bool = False, read_only: bool = False) -> None:
        self.array = array
        self.refuses = refuses
        self.copies = copies
        self.read_only = read_only
        self.dtype = Dtype(str(array.dtype))
        self.shape = array.shape

    def _check(self) -> None:
        if self.refuses:
            raise RuntimeError(self.refuses)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self._check()
        made = self.array.copy() if self.copies else self.array.view()
        made.flags.writeable = not self.read_only
        return made

    def __dlpack__(self, **options: Any) -> Any:
        self._check()
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __float__(self) -> float:
        self._check()
        return float(self.array)

    def __len__(self) -> int:
        return len(self.array)


NEEDS_GRAD = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."


def x(rows: int = 5) -> Array:
    return np.random.default_rng(2).standard_normal((rows, 4)).astype(FLOAT)


def relu_graph() -> pumice.Graph:
    graph = pumice.Graph()
    graph.output("y", graph.add("Relu", graph.input("x", "float32", [None, 4])))
    return graph


# ---- tensors of another library


def test_a_kernel_takes_what_numpy_shares(context: pumice.Context) -> None:
    kernel = pumice.Kernel(DOUBLE, context)
    given, result = OtherTensor(np.arange(8, dtype=FLOAT)), OtherTensor(np.zeros(8, FLOAT))
    factor = OtherTensor(np.array(3, FLOAT))
    shift = OtherTensor(np.array([1, 2, 3], FLOAT))
    kernel(x=given, y=result, factor=factor, shift=shift, threads=8)
    np.testing.assert_array_equal(result.array, 3 * given.array + 1)
    target = pumice.zeros(8, context=context)
    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(x=given, y=target, factor=factor, shift=shift, threads=8))
    commands.commit()
    commands.exec().wait()
    np.testing.assert_array_equal(target.numpy(), result.array)


@pytest.mark.parametrize(
    ("options", "text"), [({"copies": True}, "a copy"), ({"read_only": True}, "a read-only array")]
)
def test_what_a_kernel_writes_is_not_lost_in_a_copy(
    context: pumice.Context, options: dict[str, bool], text: str
) -> None:
    kernel = pumice.Kernel(DOUBLE, context)
    arguments = {"factor": 1, "shift": [0, 0, 0], "threads": 8}
    given = OtherTensor(np.arange(8, dtype=FLOAT), **options)  # type: ignore[arg-type]
    y = np.zeros(8, FLOAT)
    kernel(x=given, y=y, **arguments)
    np.testing.assert_array_equal(y, given.array)
    with pytest.raises(pumice.BindingError, match=f"argument 'y'.*whose memory NumPy can share.*{text}") as caught:
        kernel(x=y, y=given, **arguments)
    assert caught.value.rule == "K9"


def entries(context: pumice.Context) -> dict[str, Callable[[Any], Any]]:
    """Return the functions that accept a user's array, by name."""
    loaded = pumice.load(gemm(), context)
    program = relu_graph().compile(context)
    execution = program.execution()
    kernel = pumice.Kernel(DOUBLE, context)
    y = np.zeros(20, FLOAT)
    image = pumice.Image(context, "r32f", [5, 4])
    memory = dv.Context(context).memory(4096)
    sequence = pumice.load(
        model(
            [node("ConcatFromSequence", ["s"], axis=0)],
            [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
        ),
        context,
    )

    def compute(given: Any) -> None:
        execution.set("x", given)
        execution.compute()

    return {
        "a model": loaded,
        "a model by name": lambda given: loaded(x=given),
        "a model, asynchronously": loaded.run_async,
        "a sequence": lambda given: sequence([given]),
        "a program": lambda given: program({"x": given}),
        "a program in order": lambda given: program.call((given,)),
        "a program, asynchronously": lambda given: program.run_async((given,)),
        "a bound program": lambda given: program.arena([given]),
        "an execution": compute,
        "a kernel": lambda given: kernel(x=given, y=y, factor=1, shift=[0, 0, 0], threads=20),
        "tensor": lambda given: pumice.tensor(given, context),
        "asarray": lambda given: pumice.asarray(given, context=context),
        "from_dlpack": lambda given: pumice.from_dlpack(given, context),
        "from_dlpack without a copy": lambda given: pumice.from_dlpack(given, context, copy=False),
        "from_host": lambda given: pumice.from_host(given, context),
        "a tensor's upload": pumice.zeros((5, 4), context=context).upload,
        "a tensor's elements": lambda given: pumice.zeros((5, 4), context=context).__setitem__(..., given),
        "image": lambda given: pumice.image(given, "r32f", context),
        "an image's upload": image.upload,
        "a graph's constant": pumice.Graph().constant,
        "an operand": lambda given: pumice.Graph().add("Relu", given),
        "dv memory": memory.write,
        "assert_close": lambda given: assert_close(given, x()),
        "assert_close, expected": lambda given: assert_close(x(), given),
        "a validated case": lambda given: pumice.validate(loaded, [(given,)]),
    }


def not_refused(takers: dict[str, Callable[[Any], Any]], given: Any, text: str) -> dict[str, str]:
    """Return the functions that do not raise an error with this text, and what they did instead."""
    failed = {}
    for name, take in takers.items():
        try:
            take(given)
            failed[name] = "taken"
        except pumice.BindingError as error:
            if error.rule != "K5" or not re.search(text, str(error)):
                failed[name] = str(error)
        except Exception as error:
            failed[name] = repr(error)
    return failed


def test_no_mask_is_dropped(context: pumice.Context) -> None:
    masked = np.ma.masked_array(x(), mask=x() > 0)
    assert not not_refused(entries(context), masked, r"a masked array.*|without a mask.*filled")


def test_an_output_is_not_written_behind_a_mask(context: pumice.Context) -> None:
    execution = relu_graph().compile(context).execution()
    with pytest.raises(pumice.BindingError, match="output 'y'.*a masked array"):
        execution.set_output("y", np.ma.masked_array(np.zeros((5, 4), FLOAT)))


# Functions that accept NumPy arrays only.
OF_NUMPY_ALONE = {
    "a bound program",
    "from_host",
    "a tensor's upload",
    "a tensor's elements",
    "an image's upload",
    "a graph's constant",
    "an operand",
}


def test_the_reason_why_a_library_gives_no_array_is_reported(context: pumice.Context) -> None:
    takers = {name: take for name, take in entries(context).items() if name not in OF_NUMPY_ALONE}
    assert not not_refused(takers, OtherTensor(x(), NEEDS_GRAD), "OtherTensor.*requires grad.*detach")


@pytest.mark.parametrize(
    "given", [[1, 2], 3.5, None, "text", {"a": 1}, object()], ids=lambda given: type(given).__name__
)
def test_what_shares_nothing_by_dlpack_is_rejected(context: pumice.Context, given: Any) -> None:
    with pytest.raises(pumice.BindingError, match=f"__dlpack__.*given {type(given).__name__}") as caught:
        pumice.from_dlpack(given, context)
    assert caught.value.rule == "K5"


def test_elements_that_no_dtype_has_are_rejected(context: pumice.Context) -> None:
    expected = (
        "from_dlpack: expected elements of a dtype of at least 8 bits, given DLPack's code 5 with 64 bits in 1 lanes"
    )
    with pytest.raises(pumice.UnsupportedError, match=expected):
        pumice.from_dlpack(np.zeros(2, "complex64"), context)


def test_an_unknown_operator_error_says_where_they_are_listed() -> None:
    expected = r"operator Wobble: expected one listed by pumice\.operators\(\)"
    desc = pumice.TensorDesc("float32", [2])
    with pytest.raises(pumice.UnsupportedError, match=expected):
        pumice.output_descs("Wobble", [desc])
    with pytest.raises(pumice.UnsupportedError, match=expected):
        pumice.Operator("Wobble", inputs=[desc], outputs=[desc])


@pytest.mark.parametrize("given", [[300], ["a"], [[1], [2, 3]]], ids=["beyond", "text", "ragged"])
def test_elements_that_a_dtype_does_not_hold_are_rejected(context: pumice.Context, given: Any) -> None:
    with pytest.raises(pumice.BindingError, match="an array of numbers; given list: ") as caught:
        pumice.asarray(given, "uint8", context)
    assert caught.value.rule == "K5"


# ---- arguments of loading


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("llvmpipe",), r"argument 'context': expected a Context; given str \(pumice.Context\('llvmpipe'\) opens"),
        ((1,), r"argument 'context'.*given int \(pumice.Context\(1\) opens"),
        ((np.zeros(3),), "argument 'context'.*given ndarray"),
    ],
)
def test_a_context_is_no_name(arguments: tuple[Any, ...], text: str) -> None:
    calls: list[Callable[..., Any]] = [
        lambda given: pumice.load(gemm(), given),
        lambda given: pumice.validate(gemm(), [x()], context=given),
        lambda given: pumice.empty(3, "float32", given),
        lambda given: pumice.zeros(3, context=given),
        lambda given: pumice.ones(3, context=given),
        lambda given: pumice.full(3, 1, context=given),
        lambda given: pumice.tensor(x(), given),
        lambda given: pumice.from_host(x(), given),
        lambda given: pumice.from_dlpack(x(), given),
        lambda given: pumice.image(x(), "r32f", given),
        lambda given: pumice.asarray(x(), context=given),
    ]
    for call in calls:
        with pytest.raises(pumice.BindingError, match=text) as caught:
            call(*arguments)
        assert caught.value.rule == "K5"


@pytest.mark.parametrize(
    ("precision", "text"),
    [
        (np.float16, "expected 'fp32' or 'fp16' or 'bf16'; given <class 'numpy.float16'> .its name here is 'fp16'"),
        (np.dtype("float32"), "its name here is 'fp32'"),
        (16, "given 16$"),
        (None, "given None"),
    ],
)
def test_a_precision_is_a_name(context: pumice.Context, precision: Any, text: str) -> None:
    with pytest.raises(pumice.BindingError, match=text):
        pumice.load(gemm(), context, precision)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("device", "cpu", r"context=pumice.Context\('cpu'\)"),
        ("providers", ["CUDAExecutionProvider"], "name the device in a context"),
        (
            "wobble",
            1,
            "'wobble': expected one of context, .* deterministic, operators, kernels, tuned and overridable; given",
        ),
    ],
)
def test_an_argument_that_loading_has_not_is_named(name: str, given: Any, text: str) -> None:
    with pytest.raises(pumice.BindingError, match=text) as caught:
        pumice.load(gemm(), **{name: given})
    assert caught.value.rule == "K4"


def test_devices_that_do_not_match_are_listed_by_index() -> None:
    with pytest.raises(pumice.DeviceError) as caught:
        pumice.Context("no such device")
    text = str(caught.value)
    for device in pumice.devices():
        assert f"[{device.index}] '{device.name}' ({device.kind}, uuid:{device.uuid})" in text
    assert "the devices are [0] " in text


# ---- files that are not models


def archive(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name in names:
            made.writestr(name, b"data")
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


FILES = {
    "an empty file": b"",
    r"a PyTorch file \(\.pt\); torch\.onnx\.export": archive("model/data.pkl", "model/data/0"),
    r"NumPy arrays \(\.npz\)": npz(),
    r"a NumPy array \(\.npy\)": npy(),
    "a Keras model": archive("config.json", "model.weights.h5"),
    "a zip archive with model.onnx in it; unpack it first": archive("model.onnx", "readme.txt"),
    "a zip archive that cannot be read": archive("a", "b")[:-10],
    "a Python pickle": b"\x80\x02}q\x00.",
    "a safetensors file": (40).to_bytes(8, "little") + b'{"w":{"dtype":"F32"}}' + b" " * 40,
    "a GGUF file": b"GGUF\x03\0\0\0" + bytes(40),
    "a TensorFlow Lite model": b"\x1c\0\0\0TFL3" + bytes(40),
    "a model in ONNX Runtime's own format": b"\x1c\0\0\0ORTM" + bytes(40),
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n",
    r"a compressed file \(gzip\)": b"\x1f\x8b\x08" + bytes(40),
    "an HTML page": b"<!DOCTYPE html><html></html>",
    "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(40),
    "bytes that the ONNX format does not allow": b"\xff" * 40,
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_no_model_is_named_for_what_it_is(context: pumice.Context, what: str, tmp_path: Path) -> None:
    (tmp_path / "given.onnx").write_bytes(FILES[what])
    for source in (FILES[what], tmp_path / "given.onnx"):
        with pytest.raises(pumice.GraphError, match=f"expected an ONNX model, given {what}"):
            pumice.load(source, context)


# ---- shapes


@pytest.mark.parametrize(
    ("wanted", "given", "hint"),
    [
        (["N", 3, 8, 9], (3, 8, 9), "x[None] has such a shape"),
        (["N", 4], (4,), "x[None] has such a shape"),
        ([1, 3, 8, 9], (1, 8, 9, 3), "x.transpose(0, 3, 1, 2) has such a shape"),
        (["N", 3, "H", "W"], (2, 8, 9, 3), "x.transpose(0, 3, 1, 2) has such a shape"),
        (["N", 8, 9, 3], (2, 3, 8, 9), "x.transpose(0, 2, 3, 1) has such a shape"),
        (["N", 3, 8, 9], (8, 9, 3), "x.transpose(2, 0, 1)[None] has such a shape"),
        (["N", 8, 9, 3], (3, 8, 9), "x.transpose(1, 2, 0)[None] has such a shape"),
        ([3, 8, 9], (1, 3, 8, 9), "x[0] has such a shape"),
        ([3, 8, 9], (8, 9, 3), "x.transpose(2, 0, 1) has such a shape"),
        (["N", 3, 8, 9], (2, 5, 8, 9), ""),
        (["N", 3, 8, 9], (7, 7), ""),
    ],
)
def test_a_shape_that_would_fit_is_reported(
    context: pumice.Context, wanted: list[Any], given: tuple[int, ...], hint: str
) -> None:
    with pumice.load(model([node("Relu")], [value("x", wanted)]), context) as loaded:
        with pytest.raises(pumice.BindingError) as caught:
            loaded(np.zeros(given, FLOAT))
        assert caught.value.rule == "K10"
        assert (f"({hint})" in str(caught.value)) if hint else str(caught.value).endswith(str(list(given)))
        if hint:
            fixed = eval(hint.removesuffix(" has such a shape"), {"x": np.zeros(given, FLOAT)})
            loaded(fixed)
