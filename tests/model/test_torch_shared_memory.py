"""The torch side of shared memory, tested with host-visible memory instead of CUDA memory. Skipped without torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice

torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")

from pumice.torch import compile_backend, cuda_memory, cuda_model, custom_operators, graphs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

STREAM = 0x20
TWICE = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() { uint i = gl_GlobalInvocationID.x; y[i] = 2 * x[i]; }
"""


class WaitedFor:
    """Replaces Order: waits on the host instead of on CUDA streams."""

    def __init__(self, context: pumice.Context, stream: int) -> None:
        self._context = context
        assert stream == STREAM

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        self._context.wait_idle()


@pytest.fixture(autouse=True)
def on_the_cpu(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> dict[int, pumice.Tensor]:
    """Replace shared CUDA memory; return the tensors allocated so far by the address that torch sees."""
    tensors_by_address: dict[int, pumice.Tensor] = {}
    if not pumice.empty(1, "float32", context).buffer.mappable:
        pytest.skip("the host does not see this device's memory")

    def empty_shared(shape: Any, dtype: Any, on: pumice.Context) -> pumice.Tensor:
        tensor = pumice.empty(shape, dtype, on)
        tensors_by_address[torch.from_dlpack(tensor).data_ptr()] = tensor
        return tensor

    def found(tensor: Any, on: pumice.Context) -> pumice.Tensor | None:
        if (known := tensors_by_address.get(tensor.data_ptr())) is None:
            return None
        desc = pumice.TensorDesc(cuda_memory.get_dtype_name(tensor), list(tensor.shape), list(tensor.stride()))
        return pumice.Tensor(desc, known.buffer)

    side = SimpleNamespace(primary=SimpleNamespace(device_index=0))
    for module in (custom_operators, cuda_model, cuda_memory):
        for name, stand_in in {
            "StreamOrder": WaitedFor,
            "empty_shared": empty_shared,
            "find_shared_tensor": found,
            "make_torch_view": torch.from_dlpack,
            "get_cuda_interop": lambda _: side,
            "get_current_stream": lambda _: STREAM,
        }.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, stand_in)
    monkeypatch.setattr(cuda_memory, "_pools", type(cuda_memory._pools)())
    return tensors_by_address


def sum_model(context: pumice.Context, control_flow: bool = False) -> pumice.Model:
    """y = Gelu(x @ w) + x, with an unknown number of rows."""
    w = onnx.numpy_helper.from_array(np.arange(16, dtype="float32").reshape(4, 4) / 16, "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Gelu", ["p"], ["g"]),
        helper.make_node("Add", ["g", "x"], ["y"]),
    ]
    if control_flow:
        nodes.append(helper.make_node("NonZero", ["y"], ["z"]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    output_infos = values[1:] + [helper.make_tensor_value_info("z", TensorProto.INT64, [2, None])] * control_flow
    graph = helper.make_graph(nodes, "sum", values[:1], output_infos, [w])
    return pumice.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), context)


def expected(x: Any) -> Any:
    w = torch.arange(16.0).reshape(4, 4) / 16
    return torch.nn.functional.gelu(x @ w) + x


def test_a_model_is_called_on_any_memory(context: pumice.Context, on_the_cpu: dict[int, pumice.Tensor]) -> None:
    called = cuda_model.CudaModel(sum_model(context))
    for rows in (3, 5, 3):
        x = torch.randn(rows, 4)
        (y,) = called(x)
        torch.testing.assert_close(y, expected(x))
        (again,) = called(y)
        torch.testing.assert_close(again, expected(y))
        assert y.data_ptr() in on_the_cpu, "a result lies in shared memory"
        torch.testing.assert_close(called(x.t().contiguous().t())[0], expected(x))
    called.close()


def test_results_that_live_keep_their_memory(context: pumice.Context) -> None:
    called = cuda_model.CudaModel(sum_model(context))
    tensors = [torch.full((2, 4), float(i)) for i in range(40)]
    results = [called(x)[0] for x in tensors]
    for x, y in zip(tensors, results, strict=True):
        torch.testing.assert_close(y, expected(x))
    assert len(called._recordings) == cuda_model._MAX_RECORDINGS


def test_a_dropped_result_serves_the_next_call(context: pumice.Context) -> None:
    called = cuda_model.CudaModel(sum_model(context))
    for i in range(5):
        assert called(torch.full((2, 4), float(i)))[0][0, 0].isfinite()
    assert len(called._recordings) == 1


def test_wrong_shapes_and_dtypes_are_rejected(context: pumice.Context) -> None:
    called = cuda_model.CudaModel(sum_model(context))
    with pytest.raises(pumice.BindingError, match=r"shape \[n, 4\].*given shape \[3, 5\]"):
        called(torch.ones(3, 5))
    with pytest.raises(pumice.BindingError, match="an array of float32; given float64"):
        called(torch.ones(3, 4, dtype=torch.float64))
    with pytest.raises(pumice.BindingError, match="a dtype that models have; given qint8"):
        called(torch.quantize_per_tensor(torch.ones(3, 4), 0.1, 0, torch.qint8))


def test_a_model_that_the_host_drives_is_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match="control flow or sizes that depend on data"):
        cuda_model.CudaModel(sum_model(context, control_flow=True))


def test_the_pool_gives_memory_once(context: pumice.Context) -> None:
    pool = cuda_memory.SharedMemoryPool()
    first, view = pool.empty([3, 4], "float32", context, STREAM)
    second, other = pool.empty([12], "int32", context, STREAM)
    assert first.buffer.id != second.buffer.id and view.shape == (3, 4) and other.dtype == torch.int32
    del view
    third, _ = pool.empty([12], "float16", context, STREAM)
    assert third.buffer.id == first.buffer.id
    assert pool.empty([12], "float16", context, 0x30)[0].buffer.id not in {first.buffer.id, second.buffer.id}


def test_the_pool_keeps_little_idle_memory(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_memory, "_MAX_IDLE_BYTES", 4096)
    pool = cuda_memory.SharedMemoryPool()
    for size in range(1, 20):
        pool.empty([size * 1024], "uint8", context, STREAM)
    assert sum(len(every) for every in pool._buffers.values()) <= 3


def test_an_operator_packs_and_rejects(context: pumice.Context, on_the_cpu: dict[int, pumice.Tensor]) -> None:
    kernel = pumice.Kernel(TWICE, context=context)
    operator = custom_operators._TorchKernelOperator(kernel, ["x"], {"y": "x"})
    x = cuda_memory.make_torch_view(cuda_memory.empty_shared([4, 6], "float32", context)).copy_(torch.randn(4, 6))
    y = operator._run_on_cuda([x])
    assert torch.equal(y, 2 * x) and y.data_ptr() in on_the_cpu
    assert torch.equal(operator._run_on_cuda([y]), 4 * x)
    assert torch.equal(operator._run_on_cuda([x.t()]), 2 * x.t())
    with pytest.raises(pumice.UnsupportedError, match=r"'x' is on 'cpu' in memory that pumice does not share"):
        operator._run_on_cuda([torch.ones(3)])


def test_a_compiled_graph_is_called_on_such_memory(
    context: pumice.Context, on_the_cpu: dict[int, pumice.Tensor]
) -> None:
    def backend(graph: Any, examples: Any) -> Any:
        return compile_backend._CompiledGraph(
            graph, graphs.make_signature(graph, examples), {"context": context}, False, True
        )

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
    fast = torch.compile(model, backend=backend, dynamic=True)
    with torch.no_grad():
        for rows in (3, 7, 3):
            x = torch.randn(rows, 8)
            y = fast(x)
            torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-5)
            assert y.data_ptr() in on_the_cpu
        model[0].weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
