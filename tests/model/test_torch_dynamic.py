"""torch.compile(model, backend="pumice", dynamic=True): one model for all sizes. Skipped without torch or its exporter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")
pytest.importorskip("onnxscript", reason="onnxscript, which torch exports by, is not installed (the extra [torch])")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import pumice  # noqa: E402
import pumice.torch.compile_backend as torch_backend  # noqa: E402
from model.torch_models import fresh  # noqa: E402, F401
from pumice.torch.host_scalars import make_scalar_key  # noqa: E402

# torch's exporter warns about its own deprecated APIs.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh", "no_encoder_fast_path")]


@pytest.fixture
def no_encoder_fast_path() -> Iterator[None]:
    """Keep nn.TransformerEncoderLayer from its fused operator, which torch.compile of torch 2.11 cannot capture."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(enabled)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the models that the backend loads."""
    models: list[Any] = []
    load = torch_backend.load_module
    monkeypatch.setattr(torch_backend, "load_module", lambda *actual: models.append(load(*actual)) or models[-1])
    return models


class Calls(nn.Module):
    """A module that calls `function` with its child modules, then its inputs."""

    def __init__(self, function: Callable[..., Any], *children: Any) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(children)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*self.parts, *inputs)


class Case(NamedTuple):
    make: Callable[[], Any]
    inputs: Callable[[int], tuple[Any, ...]]  # argument: a size that differs between calls


def _rows(width: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (torch.randn(3 + n, width),)


def _sequences(width: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (torch.randn(3 + n, 5 + 2 * n, width),)


def _pictures(channels: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (torch.randn(2 + n, channels, 9 + n, 10 + 2 * n),)


def _padded(n: int) -> tuple[Any, ...]:
    return torch.randn(3 + n, 5 + 2 * n, 16), torch.arange(5 + 2 * n)[None].repeat(3 + n, 1) > 3


def _flattened(norm: Any, x: Any) -> Any:
    batch, length, width = x.shape
    return norm(x.reshape(batch * length, width)).reshape(batch, length, width)


def _embedded(tokens: Any, places: Any, norm: Any, x: Any) -> Any:
    return norm(tokens(x) + places(torch.arange(x.shape[1])))


def _stepped(cell: Any, x: Any) -> Any:
    state = torch.zeros(x.shape[0], 10)
    for step in range(2):
        state = cell(x[:, step], state)
    return state


def _causal(x: Any) -> Any:
    length = x.shape[1]
    mask = torch.triu(torch.full((length, length), float("-inf")), 1)
    return (x @ x.transpose(1, 2) + mask).softmax(-1)


def _layer() -> Any:
    return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)


def _encoder() -> Any:
    return nn.TransformerEncoder(_layer(), 1, enable_nested_tensor=False)


CASES = {
    "layer norm": Case(lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU()), _rows(8)),
    "layer norm of two axes": Case(lambda: nn.LayerNorm((5, 16)), lambda n: (torch.randn(2 + n, 5, 16),)),
    "layer norm of symbolic axes": Case(lambda: Calls(lambda x: F.layer_norm(x, x.shape[1:])), _sequences(16)),
    "rms norm": Case(lambda: nn.RMSNorm(16), _sequences(16)),
    "batch norm": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        _pictures(3),
    ),
    "group norm": Case(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)), _pictures(3)),
    "instance norm": Case(lambda: nn.InstanceNorm2d(3), _pictures(3)),
    "encoder": Case(_encoder, _sequences(16)),
    "encoder with padding": Case(lambda: Calls(lambda e, x, m: e(x, src_key_padding_mask=m), _encoder()), _padded),
    "attention with a mask": Case(
        lambda: Calls(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m)),
        lambda n: (torch.randn(3 + n, 2, 5 + 2 * n, 8), torch.ones(5 + 2 * n, 5 + 2 * n).tril().bool()),
    ),
    "causal": Case(lambda: Calls(_causal), _sequences(8)),
    "embedding": Case(
        lambda: Calls(_embedded, nn.Embedding(50, 16), nn.Embedding(64, 16), nn.LayerNorm(16)),
        lambda n: (torch.randint(0, 50, (3 + n, 5 + 2 * n)),),
    ),
    "steps of a cell": Case(lambda: Calls(_stepped, nn.GRUCell(6, 10)), lambda n: (torch.randn(3 + n, 5, 6),)),
    "reshapes": Case(lambda: Calls(_flattened, nn.LayerNorm(16)), _sequences(16)),
    "even pieces": Case(lambda: Calls(lambda x: x.chunk(2, 1)[1]), lambda n: (torch.randn(3, 4 + 2 * n),)),
    "uneven pieces": Case(
        lambda: Calls(lambda x: torch.cat(x.chunk(3, 1)[::-1], 1)), lambda n: (torch.randn(3 + n, 8 + 3 * n),)
    ),
    "pieces of given sizes": Case(
        lambda: Calls(lambda x: torch.cat(x.split([1, x.shape[1] - 1], 1)[::-1], 1)), _sequences(4)
    ),
    "sizes as results": Case(
        lambda: Calls(lambda x: (x + 1, x.shape[0], x.shape[0] * x.shape[1] + 1, x.shape[0] ** 0.5, x.shape[1] / 3)),
        _sequences(4),
    ),
}


def assert_same(actual: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for item, other in zip(actual, expected, strict=True):
            assert_same(item, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-5)
    else:
        assert type(actual) is type(expected) and actual == expected


@pytest.mark.parametrize("name", CASES)
def test_one_model_takes_every_size(name: str, made: list[Any]) -> None:
    case = CASES[name]
    module = case.make().eval()
    fast = torch.compile(module, backend="pumice", dynamic=True)
    with torch.no_grad():
        for size in (0, 1, 5, 3, 0):
            inputs = case.inputs(size)
            assert_same(fast(*inputs), module(*inputs))
    assert len(made) == 1


@pytest.mark.parametrize("name", ["layer norm", "encoder", "uneven pieces", "sizes as results"])
def test_marked_axes_vary_from_the_first_call(name: str, made: list[Any]) -> None:
    case = CASES[name]
    module = case.make().eval()
    fast = torch.compile(module, backend="pumice")
    with torch.no_grad():
        for size in (0, 1, 5):
            inputs = case.inputs(size)
            for axis in range(inputs[0].ndim - 1 if name != "uneven pieces" else 2):
                torch._dynamo.mark_dynamic(inputs[0], axis)
            assert_same(fast(*inputs), module(*inputs))
    assert len(made) == 1


@pytest.mark.parametrize("mask", ["padding", "causal", "both"])
def test_masks_of_an_encoder_layer(mask: str) -> None:
    module = _layer().eval()
    x, padding = _padded(1)
    causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    masks = {} if mask == "padding" else {"src_mask": causal}
    masks |= {} if mask == "causal" else {"src_key_padding_mask": padding}
    with torch.no_grad():
        assert_same(torch.compile(module, backend="pumice", fullgraph=True)(x, **masks), module(x, **masks))


# ---- scalars


def test_sizes_that_are_all_the_results_need_no_model(made: list[Any]) -> None:
    def counted(x: Any) -> Any:
        return x.shape[0] * 2, math.prod(x.shape) - 1

    fast = torch.compile(counted, backend="pumice", dynamic=True)
    for rows in (3, 7):
        assert fast(torch.randn(rows, 5)) == (2 * rows, 5 * rows - 1)
    assert not made


def test_floats_that_vary_become_inputs(made: list[Any]) -> None:
    def scaled(x: Any, by: float) -> Any:
        return x * by, by * 2

    fast = torch.compile(scaled, backend="pumice", dynamic=True)
    for by in (1.5, 2.5, 1e-3, -7.25, 1.5):
        x = torch.randn(4, 3)
        assert_same(fast(x, by), scaled(x, by))
    # The first value is a constant, all others are a float64 input; without float64 each value has its own model.
    assert (len(made) == 2) == pumice.default_context().feature("shaderFloat64")


def test_floats_of_an_attribute_have_a_model_each(made: list[Any]) -> None:
    def normal(x: Any, epsilon: float) -> Any:
        return F.layer_norm(x, (8,), eps=epsilon)

    fast = torch.compile(normal, backend="pumice", dynamic=True)
    x = torch.randn(4, 8)
    for epsilon in (1e-5, 0.5, 2.0, 0.5):
        assert_same(fast(x, epsilon), normal(x, epsilon))
    assert len(made) == 3


def test_floats_are_distinguished_by_their_bits(made: list[Any]) -> None:
    nan = float("nan")
    fast = torch.compile(lambda x, e: F.layer_norm(x, (8,), eps=e), backend="pumice", dynamic=True)
    x = torch.randn(4, 8)
    for epsilon in (1e-5, nan, float("nan")):
        assert_same(fast(x, epsilon).isnan(), F.layer_norm(x, (8,), eps=epsilon).isnan())
    assert len(made) == 2
    assert make_scalar_key(torch.tensor(-0.0)) != make_scalar_key(torch.tensor(0.0))


def test_models_of_many_numbers_are_dropped(made: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "_MAX_NUMBER_SETS", 2)
    fast = torch.compile(lambda x, k: (x[:, :k] * 2, k + 1), backend="pumice", dynamic=True)
    x = torch.randn(3, 9)
    for k in (3, 4, 5, 3):
        actual, number = fast(x, k)
        assert torch.equal(actual, x[:, :k] * 2) and number == k + 1
    assert [model.closed for model in made] == [True, True, False, False]


def test_a_number_that_the_data_determine(made: list[Any]) -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        fast = torch.compile(lambda x: (x + 1, x.sum().item()), backend="pumice", dynamic=True)
        for rows in (3, 5):
            x = torch.arange(rows)
            actual, total = fast(x)
            assert torch.equal(actual, x + 1) and total == rows * (rows - 1) // 2
    assert len(made) == 1
