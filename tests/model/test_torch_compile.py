"""torch.compile(model, backend="pumice") against eager torch. Skipped without torch or its exporter."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import pumice

torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")
pytest.importorskip("onnxscript", reason="onnxscript, which torch exports by, is not installed (the extra [torch])")

from torch import nn  # noqa: E402

import pumice.torch.compile_backend as torch_backend  # noqa: E402
from model.torch_models import CASES, Attention, fresh  # noqa: E402, F401

# torch's exporter warns about its own deprecated APIs.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="pumice", **({"options": options} if options else {}))


def assert_same(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name in expected:
            assert_same(actual[name], expected[name])
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-5)
    else:
        assert actual == expected


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_module_gives_what_the_eager_one_does(name: str) -> None:
    case = CASES[name]
    module = case.make().eval()
    fast = compiled(module)
    with torch.no_grad():
        for size in (0, 1, 2, 0):
            inputs = case.inputs(size)
            assert_same(fast(*inputs), module(*inputs))


def test_sizes_that_vary_need_two_models_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    result = []
    load = torch_backend.load_module
    monkeypatch.setattr(torch_backend, "load_module", lambda *arguments: result.append(load(*arguments)) or result[-1])
    module = Attention().eval()
    fast = compiled(module)
    with torch.no_grad():
        for length in (5, 6, 7, 30, 11):
            inputs = torch.randn(2, length, 16)
            assert_same(fast(inputs), module(inputs))
    assert len(result) == 2  # torch treats the first length as a constant and the second as dynamic
    fast = torch.compile(module, backend="pumice", dynamic=True)
    with torch.no_grad():
        assert_same(fast(inputs), module(inputs))


def test_arguments_and_results_are_not_copied() -> None:
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    array = torch_backend.torch_to_numpy(tensor.t(), "x")
    assert array.ctypes.data == tensor.data_ptr()
    assert array.strides == (4, 12)
    narrow = tensor.to(torch.bfloat16)
    view = torch_backend.torch_to_numpy(narrow, "x")
    assert view.dtype.name == "bfloat16"
    assert view.ctypes.data == narrow.data_ptr()
    assert torch_backend.numpy_to_torch(view).data_ptr() == narrow.data_ptr()
    result = np.ones(3, np.float32)
    assert torch_backend.numpy_to_torch(result).data_ptr() == result.ctypes.data


def test_a_weight_that_changes_is_seen() -> None:
    module = nn.Linear(4, 3).eval()
    fast = compiled(module)
    inputs = torch.randn(2, 4)
    with torch.no_grad():
        assert_same(fast(inputs), module(inputs))
        module.weight.add_(1)
        assert_same(fast(inputs), module(inputs))
        module.bias.data = torch.ones(3)
        assert_same(fast(inputs), module(inputs))


def test_a_number_of_the_caller_is_honoured() -> None:
    def scaled(x: Any, by: int) -> Any:
        return x * by + 1

    fast = compiled(scaled)
    inputs = torch.randn(3)
    for by in (2, 3, 5, 2):
        assert_same(fast(inputs, by), scaled(inputs, by))


def test_inference_mode_works_as_no_grad_does() -> None:
    module = nn.Linear(4, 3).eval()
    fast = compiled(module)
    with torch.inference_mode():
        inputs = torch.randn(2, 4)
        assert_same(fast(inputs), module(inputs))


def test_options_of_load_are_passed_on() -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).eval()
    inputs = torch.randn(8, 64)
    with torch.no_grad():
        wide, narrow = compiled(module)(inputs), None
        torch._dynamo.reset()
        narrow = compiled(module, precision="fp16")(inputs)
    assert not torch.equal(wide, narrow)
    torch.testing.assert_close(wide, narrow, rtol=2e-2, atol=2e-2)


# ---- errors


def test_gradients_are_rejected_by_name() -> None:
    with pytest.raises(pumice.UnsupportedError, match="expected a tensor without gradient.*torch.no_grad"):
        compiled(nn.Linear(4, 3))(torch.randn(2, 4))


def test_random_numbers_are_rejected_by_name() -> None:
    with pytest.raises(pumice.UnsupportedError, match="draws random numbers from torch's generator"):
        compiled(lambda x: x + torch.rand_like(x))(torch.randn(4))


def test_a_written_argument_is_rejected_by_name() -> None:
    with pytest.raises(pumice.UnsupportedError, match="the graph writes to its argument"):
        compiled(lambda x: x.add_(1) * 2)(torch.randn(4))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        self.count.add_(x)
        return x


class Caching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x: Any) -> Any:
        self.cache[1] = x
        return self.cache


def writes_an_element(x: Any) -> Any:
    x[0] = 5.0
    return x


def writes_all(x: Any) -> Any:
    x.add_(1)
    return x


def writes_and_gives_nothing(x: Any) -> None:
    x.add_(1)


def writes_by_out(x: Any) -> Any:
    torch.add(x, x, out=x)
    return x


WRITING = [writes_an_element, writes_all, writes_and_gives_nothing, writes_by_out, Counting, Caching]


@pytest.mark.parametrize("writing", WRITING, ids=lambda value: value.__name__)
def test_a_graph_that_only_writes_is_rejected_or_run_by_torch(writing: Any) -> None:
    """Such a graph returns its own arguments or nothing, so a model would have no outputs."""
    output = writing() if isinstance(writing, type) else writing
    before = torch.randn(4)
    with torch.no_grad():
        with pytest.raises(pumice.UnsupportedError, match="the graph writes to its argument"):
            compiled(output)(before.clone())
        torch._dynamo.reset()
        other = writing() if isinstance(writing, type) else writing
        array, expected = before.clone(), before.clone()
        result, wanted = (
            compiled(other, fallback=True)(array),
            (writing() if isinstance(writing, type) else writing)(expected),
        )
    assert torch.equal(array, expected)
    assert result is None or torch.equal(result, wanted)


def test_a_graph_that_gives_its_argument_back_needs_no_model() -> None:
    array = torch.randn(4)
    assert torch.equal(compiled(lambda x: x)(array), array)


def test_another_error_than_a_rejection_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    load, failures = torch_backend.load_module, [pumice.OutOfMemoryError("full")]

    def load_module(*array: Any) -> Any:
        if failures:
            raise failures.pop()
        return load(*array)

    monkeypatch.setattr(torch_backend, "load_module", load_module)
    fast, array = compiled(lambda x: x * 2), torch.randn(4)
    with pytest.raises(pumice.OutOfMemoryError, match="full"):
        fast(array)
    assert_same(fast(array), array * 2)


def test_an_operator_without_onnx_is_listed() -> None:
    with pytest.raises(pumice.UnsupportedError, match=r"no ONNX for aten\._linalg_eigh; options="):
        compiled(lambda x: torch.linalg.eigh(x)[0])(torch.eye(3))


def test_a_fallback_is_reported_once_and_right(caplog: pytest.LogCaptureFixture) -> None:
    torch_backend._logged_reasons.clear()
    module = nn.Linear(4, 3)
    fast = compiled(module, fallback=True)
    inputs = torch.randn(2, 4)
    with caplog.at_level(logging.WARNING, "pumice"):
        assert fast(inputs).requires_grad
        assert_same(fast(inputs), module(inputs))
    (message,) = [record.message for record in caplog.records if "torch runs a graph" in record.message]
    assert "parameters_weight_': expected a tensor without gradient" in message


@pytest.mark.parametrize(
    ("options", "text"),
    [({"speed": 1}, "given speed"), ({"fallback": "yes"}, "True or False; given 'yes'")],
)
def test_other_options_are_rejected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(Exception, match=text):
        compiled(nn.ReLU(), **options)(torch.ones(2))


def test_a_mode_is_rejected() -> None:
    with pytest.raises(Exception, match="has no modes; given mode='max-autotune'"):
        torch.compile(nn.ReLU(), backend="pumice", mode="max-autotune")(torch.ones(2))


# ---- DLPack on the CPU


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_tensors_go_to_torch_and_back_by_dlpack(dtype: str) -> None:
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, dtype))
    on_device = pumice.from_dlpack(tensor)
    assert on_device.dtype == dtype
    assert torch.equal(torch.from_dlpack(on_device), tensor)
