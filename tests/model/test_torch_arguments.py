"""torch tensors as arguments of kernels, models and tensors: bfloat16 and gradients. Skipped without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pumice

torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")

from torch import nn  # noqa: E402

import pumice.torch  # noqa: E402  (registers the backend)

# torch's exporter warns about its own deprecated APIs.
pytestmark = pytest.mark.filterwarnings("ignore")

NARROW = "buffer_st1(z, i, buffer_ld1(x, i) * afp(2));"
REFUSED = r"expected a tensor without gradient.*given one with requires_grad=True.*\.detach\(\).*torch\.no_grad\(\)"


@pytest.fixture(scope="module")
def kernel() -> pumice.Kernel:
    return pumice.Kernel.from_body("z[i] = 2 * x[i];", {"x": "float32"}, {"z": "float32"})


@pytest.fixture(scope="module")
def narrow_kernel() -> pumice.Kernel:
    return pumice.Kernel.from_body(NARROW, {"x": "bfloat16"}, {"z": "bfloat16"})


@pytest.fixture(scope="module")
def operator(narrow_kernel: pumice.Kernel) -> Any:
    return pumice.torch.wrap(narrow_kernel, "pumice_tests::twice_narrow", ["x"], {"z": "x"})


def twice(dtype: int) -> pumice.Model:
    values = [helper.make_tensor_value_info(name, dtype, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", values[:1], values[1:])
    return pumice.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


def narrow(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)


# ---- bfloat16


def test_a_kernel_reads_and_writes_bfloat16_where_it_lies(narrow_kernel: pumice.Kernel) -> None:
    x, z = narrow(7), torch.zeros(7, dtype=torch.bfloat16)
    narrow_kernel(x=x, z=z)
    assert torch.equal(z, 2 * x)
    narrow_kernel({"x": z, "z": x})
    assert torch.equal(x, 2 * z)


def test_a_kernel_takes_strided_bfloat16(narrow_kernel: pumice.Kernel) -> None:
    x, room = narrow(14)[::2], torch.zeros(14, dtype=torch.bfloat16)
    narrow_kernel(x=x, z=room[::2])
    assert torch.equal(room[::2], 2 * x) and not room[1::2].any()


def test_bfloat16_is_not_taken_for_another_type(kernel: pumice.Kernel, narrow_kernel: pumice.Kernel) -> None:
    with pytest.raises(pumice.BindingError, match="'x': expected an array of float32; given one of bfloat16"):
        kernel(x=narrow(3), z=torch.zeros(3))
    with pytest.raises(pumice.BindingError, match="'x': expected an array of bfloat16; given one of float8_e4m3fn"):
        narrow_kernel(x=narrow(3).to(torch.float8_e4m3fn), z=narrow(3))
    with pytest.raises(pumice.BindingError, match="expected an array of float32; given bfloat16"):
        twice(TensorProto.FLOAT)(narrow(3))


def test_an_operator_takes_and_gives_bfloat16(operator: Any) -> None:
    x = narrow(4, 6)
    for tensor in (x, x.t(), x[:, ::2]):
        result = operator(tensor)
        assert result.dtype == torch.bfloat16 and torch.equal(result, 2 * tensor)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_types_that_numpy_lacks(dtype: str) -> None:
    x = narrow(5).to(getattr(torch, dtype))
    for tensor in (
        pumice.tensor(x),
        pumice.asarray(x),
        pumice.from_dlpack(x) if dtype == "bfloat16" else pumice.tensor(x),
    ):
        assert tensor.dtype == dtype
        assert tensor.numpy().tobytes() == x.view(torch.uint8).numpy().tobytes()


def test_a_model_takes_bfloat16() -> None:
    x = narrow(5)
    assert twice(TensorProto.BFLOAT16)(x).astype(np.float32).tolist() == (2 * x).tolist()
    assert twice(TensorProto.BFLOAT16)([*x]).astype(np.float32).tolist() == (2 * x).tolist()


def _statistics(x: Any) -> Any:
    return x.sum(), x.sum(0, keepdim=True) + x, x.mean(1), x.max(1)[0], x.cumsum(0)


MODULES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)), (3, 8)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), (2, 3, 8, 8)),
    "batch norm": (lambda: nn.BatchNorm1d(8, affine=False), (3, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), (2, 5, 16)),
    "sums": (lambda: _statistics, (3, 8)),
    "casts": (lambda: lambda x: (x.float() * 2, x.to(torch.int32), (x.float() + 1).to(torch.bfloat16)), (3, 8)),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", MODULES)
def test_compiled_models_of_16_bit_types(name: str, dtype: str) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript, which torch exports by, is not installed (the extra [torch])")
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, shape = MODULES[name]
    tensor = make()
    module = tensor.to(getattr(torch, dtype)).eval() if isinstance(tensor, nn.Module) else tensor
    x = torch.randn(shape).to(getattr(torch, dtype))
    with torch.no_grad():
        given, expected = torch.compile(module, backend="pumice", fullgraph=True)(x), module(x)
    tuples = (given, expected) if isinstance(expected, tuple) else ((given,), (expected,))
    for item, other in zip(*tuples, strict=True):
        assert item.dtype == other.dtype
        torch.testing.assert_close(item, other, rtol=4e-2, atol=4e-2)


def test_complex_inputs_are_rejected_by_name() -> None:
    torch._dynamo.reset()
    with pytest.raises(pumice.UnsupportedError, match=r"has dtype torch\.complex64; pumice has no complex numbers"):
        torch.compile(lambda x: x * 2, backend="pumice")(torch.ones(3, dtype=torch.complex64))


# ---- gradients

ENTRIES: dict[str, Callable[[Any, pumice.Kernel], Any]] = {
    "kernel, input": lambda x, kernel: kernel(x=x, z=torch.zeros(3)),
    "kernel, output": lambda x, kernel: kernel({"x": torch.zeros(3), "z": x}),
    "kernel, timed": lambda x, kernel: kernel.time(x=x, z=torch.zeros(3), threads=3, runs=1),
    "operator": lambda x, kernel: pumice.torch.wrap(kernel, "pumice_tests::graded", ["x"], {"z": "x"})(x),
    "tensor": lambda x, kernel: pumice.tensor(x),
    "tensor of a list": lambda x, kernel: pumice.tensor([x, x]),
    "asarray": lambda x, kernel: pumice.asarray(x),
    "asarray, converted": lambda x, kernel: pumice.asarray(x, "float16"),
    "full": lambda x, kernel: pumice.full(2, x[0]),
    "image": lambda x, kernel: pumice.image(x.reshape(1, 3), "r32f"),
    "from_dlpack": lambda x, kernel: pumice.from_dlpack(x),
    "model": lambda x, kernel: twice(TensorProto.FLOAT)(x),
    "model, by name": lambda x, kernel: twice(TensorProto.FLOAT)(x=x),
    "model, asynchronous": lambda x, kernel: twice(TensorProto.FLOAT).run_async(x),
    "compiled": lambda x, kernel: torch.compile(lambda x: x * 2, backend="pumice")(x),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_gradient_is_rejected_alike(entry: str, kernel: pumice.Kernel) -> None:
    torch._dynamo.reset()
    call = ENTRIES[entry]
    with pytest.raises(pumice.UnsupportedError, match=REFUSED):
        call(torch.ones(3, requires_grad=True), kernel)
    if entry != "operator":  # a name can be registered only once
        call(torch.ones(3, requires_grad=True).detach(), kernel)
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                call(nn.Parameter(torch.ones(3)), kernel)


def test_a_parameter_is_written_under_no_grad(kernel: pumice.Kernel) -> None:
    weight = nn.Parameter(torch.ones(3))
    with torch.no_grad():
        kernel(x=torch.arange(3.0), z=weight)
    assert weight.tolist() == [0, 2, 4]


def test_an_operator_has_no_gradient_until_it_is_given_one(kernel: pumice.Kernel) -> None:
    operator = pumice.torch.wrap(kernel, "pumice_tests::differentiable", ["x"], {"z": "x"})
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(pumice.UnsupportedError, match="'x': " + REFUSED):
        operator(x)
    with torch.no_grad():
        assert operator(x).tolist() == [2, 2, 2]
    operator.register_autograd(lambda ctx, gradient: 2 * gradient)
    operator(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_graph_that_turns_gradients_on_is_rejected() -> None:
    pytest.importorskip("onnxscript", reason="onnxscript, which torch exports by, is not installed (the extra [torch])")
    torch._dynamo.reset()
    linear = nn.Linear(3, 2)

    def differentiated(x: Any) -> Any:
        with torch.enable_grad():
            return linear(x)

    with torch.no_grad(), pytest.raises(pumice.UnsupportedError, match=REFUSED):
        torch.compile(differentiated, backend="pumice")(torch.ones(1, 3))
