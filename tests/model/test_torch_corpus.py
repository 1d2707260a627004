"""torch.compile(model, backend="pumice") against eager torch, on the modules that the corpus files were exported from.

Skipped without torch or its exporter; docs/corpus.md lists the models.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pumice
from corpus import run, store
from corpus.case import Case, arrays

torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")
pytest.importorskip("onnxscript", reason="onnxscript, which torch exports by, is not installed (the extra [torch])")

import pumice.torch  # noqa: E402  (registers the backend)

# torch's exporter warns about its own deprecated APIs.
pytestmark = pytest.mark.filterwarnings("ignore")

MODELS = {  # by corpus family
    "transformers": ("bert", "bert_spans", "gpt2", "t5", "torch_encoder"),
    "decoders": ("llama", "linear_attention", "mamba", "mixture_of_experts"),
    "vision": ("convnext", "densenet", "efficientnet", "mobilenet_v2", "mobilenet_v3", "resnet", "shufflenet"),
    "patches": ("clip", "segformer", "swin", "vit"),
    "detection": ("anchors", "detr"),
    "speech": ("conformer", "wav2vec2", "whisper_decoder", "whisper_encoder"),
    "generative": ("diffusion", "gan_generator", "unet", "vae"),
    "recurrent": ("gru", "line_reader", "lstm_tagger"),
}
NAMES = [(family, name) for family, names in MODELS.items() for name in names]


def case_of(family: str, name: str) -> Case:
    return next(case for case in importlib.import_module(f"corpus.{family}").CASES if case.name == name)


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors of a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if value is None:
        return []
    return [element for item in (value.values() if isinstance(value, dict) else value) for element in tensors_of(item)]


@pytest.fixture(autouse=True)
def written_out() -> Iterator[None]:
    """Disable torch's fused encoder layer: with a mask it is rejected, and the error suggests this."""
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(was)


@pytest.mark.parametrize(("family", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_module_of_the_corpus_gives_what_eager_torch_does(family: str, name: str, context: pumice.Context) -> None:
    from corpus.export import seeded

    case = case_of(family, name)
    allowed = run.tolerance(store.load(case.names[0]))
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = seeded(case.make())
    fast = torch.compile(module, backend="pumice", options={"context": context})
    with torch.no_grad():
        for sizes in case.sizes:
            inputs = [torch.from_numpy(array) for array in arrays(case.inputs, sizes).values()]
            try:
                expected = tensors_of(module(*inputs))
            except RuntimeError as error:  # from eager torch: it cannot infer a -1 dimension of an empty tensor
                assert "of 0 elements" in str(error) and 0 in sizes.values()
                continue
            try:
                actual = tensors_of(fast(*inputs))
            except pumice.UnsupportedError as error:
                if "torch's exporter has no ONNX for" not in str(error):
                    raise
                pytest.skip(f"needs another torch than {torch.__version__}: {error}")
            assert len(actual) == len(expected)
            for item, other in zip(actual, expected, strict=True):
                assert run.error_of(np.asarray(item), np.asarray(other)) <= allowed, sizes
    torch._dynamo.reset()


def test_twenty_models_at_least() -> None:
    assert len(set(NAMES)) >= 20
