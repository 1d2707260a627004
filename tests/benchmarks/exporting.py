"""Code for peer processes: full-size architectures in PyTorch, their export, and the peers that run them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .contender import Array, Local
from .peers import captured, cuda_torch, graph_sampler
from .timing import Absent

FP32, FP16, TRACED = "model.onnx", "model.fp16.onnx", "model.pt"
WORDS = 97  # vocab_size of the corpus


def bert_base() -> Any:
    return import_module("corpus.transformers").Bert(width=768, heads=12, layers=12, longest=512)


def vit_b() -> Any:
    return import_module("corpus.patches").Vit(width=768, classes=1000, image=224, patch=16, heads=12, layers=12)


def resnet50() -> Any:
    return import_module("corpus.vision").ResNet(width=64, classes=1000, blocks=(3, 4, 6, 3))


def whisper_tiny_encoder() -> Any:
    return import_module("corpus.speech").WhisperEncoder(width=384, frames=3000, bands=80, heads=6, layers=4)


def words(batch: int) -> tuple[Array, ...]:
    random = np.random.default_rng(0)
    shape = (batch, 128)
    return (random.integers(0, WORDS, shape), np.zeros(shape, "int64"), np.ones(shape, "int64"))


def numbers(*shape: int) -> Callable[[int], tuple[Array, ...]]:
    return lambda batch: (np.random.default_rng(0).standard_normal((batch, *shape)).astype("float32"),)


MODULES: Mapping[str, tuple[Callable[[], Any], Callable[[int], tuple[Array, ...]]]] = {
    "bert_base": (bert_base, words),
    "vit_b": (vit_b, numbers(3, 224, 224)),
    "resnet50": (resnet50, numbers(3, 224, 224)),
    "whisper_tiny_encoder": (whisper_tiny_encoder, numbers(80, 3000)),
}


# Input dtypes for ncnn, which converts no integers, so masks are floats. These modules are traced, because pnnx probes an ONNX model with
# token ids outside the vocabulary.
NCNN_INPUTS: Mapping[str, Sequence[str]] = {"bert_base": ("int32", "int32", "float32")}


def ncnn_inputs(name: str, inputs: Sequence[Array]) -> list[Array]:
    return [x.astype(dtype) for x, dtype in zip(inputs, NCNN_INPUTS.get(name, ["float32"] * len(inputs)), strict=True)]


def module(name: str) -> Any:
    """Return the module of that name with seeded weights on the CPU, created once per process."""
    if name not in _modules:
        _modules[name] = import_module("corpus.export").seeded(MODULES[name][0]())
    return _modules[name]


_modules: dict[str, Any] = {}


def first(results: Any) -> Any:
    return results[0] if isinstance(results, tuple) else results


def export(name: str, batch: int, folder: Path) -> Local:
    """Export the model in fp32 and fp16, and traced if ncnn needs it; a call returns the inputs and the first output."""
    torch: Any = import_module("torch")
    torch.set_grad_enabled(False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = MODULES[name][1](batch)
    if name in NCNN_INPUTS:
        trace(torch, name, inputs, folder)
    net = module(name).to(device)
    given = tuple(torch.from_numpy(x).to(device) for x in inputs)
    expected = first(net(*given)).cpu().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, given, str(folder / FP32), dynamo=False)
        halves = tuple(x.half() if x.is_floating_point() else x for x in given)
        torch.onnx.export(net.half(), halves, str(folder / FP16), dynamo=False)
    net.float()
    return Local(lambda: (inputs, expected))  # type: ignore[arg-type, return-value]


def trace(torch: Any, name: str, inputs: Sequence[Array], folder: Path) -> None:
    given = tuple(map(torch.from_numpy, ncnn_inputs(name, inputs)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(module(name).cpu(), given).save(str(folder / TRACED))


def torch_contender(name: str, inputs: Sequence[Array]) -> Local:
    """Return a contender with eager calls, NumPy to NumPy; device time is from a CUDA graph, excluding host copies."""
    torch = cuda_torch()
    net = module(name).to("cuda", torch.float16)

    def given() -> list[Any]:
        sent = [torch.from_numpy(x).cuda() for x in inputs]
        return [x.half() if x.is_floating_point() else x for x in sent]

    def call() -> Array:
        return np.asarray(first(net(*given())).float().cpu().numpy())

    fixed = given()
    return Local(call, graph_sampler(torch, captured(torch, lambda: net(*fixed))))


def onnxruntime_contender(model: Path, inputs: Sequence[Array], provider: str) -> Local:
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if provider == "webgpu":
        try:
            plugin: Any = import_module("onnxruntime_ep_webgpu")
        except ImportError:
            raise Absent("onnxruntime-ep-webgpu is not installed") from None
        name = plugin.get_ep_name()
        devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
        if not devices:  # the plugin has no devices until its library is registered
            onnxruntime.register_execution_provider_library(name, plugin.get_library_path())
            devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
        if not devices:
            raise Absent("the WebGPU provider sees no device")
        options.add_provider_for_devices(devices[:1], {})
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "0")
        session = onnxruntime.InferenceSession(str(model), sess_options=options)
        if name not in session.get_providers():
            raise Absent("the WebGPU provider does not take the model")
    else:
        session = onnxruntime.InferenceSession(str(model), sess_options=options, providers=["CPUExecutionProvider"])
    fed = {}
    for value, x in zip(session.get_inputs(), inputs, strict=True):
        fed[value.name] = x.astype("float16") if value.type == "tensor(float16)" else x
    output = session.get_outputs()[0].name
    return Local(lambda: session.run([output], fed)[0])
