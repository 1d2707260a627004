"""Stores exported models without most of their weights: a large float tensor is replaced by a recipe for random values."""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from .case import Input, Sizes

FOLDER = Path(__file__).parent / "graphs"
SUFFIX = ".onnx.xz"
_KEPT = 128  # elements; smaller tensors are stored unchanged
_DESCRIBED = "made as "  # starts the doc_string of a tensor stored as a recipe
_KEY = "corpus"  # key in the metadata
_DTYPES = {1: np.float32, 10: np.float16, 11: np.float64, 16: ml_dtypes.bfloat16, 3: np.int8, 2: np.uint8}


@dataclass(frozen=True)
class Stored:
    """A model of the corpus and its test inputs."""

    name: str
    exporter: str
    inputs: dict[str, Input]
    sizes: list[Sizes]
    model: onnx.ModelProto

    @property
    def opset(self) -> int:
        return next(one.version for one in self.model.opset_import if one.domain in ("", "ai.onnx"))


def names() -> list[str]:
    return sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob("*" + SUFFIX))


def load(name: str) -> Stored:
    model = onnx.ModelProto()
    model.ParseFromString(lzma.decompress((FOLDER / (name + SUFFIX)).read_bytes()))
    facts = json.loads(model.metadata_props[0].value)
    del model.metadata_props[:]
    for tensor in tensors(model.graph):
        if tensor.doc_string.startswith(_DESCRIBED):
            _fill(tensor)
    inputs = {key: Input(one["dtype"], tuple(one["dimensions"]), one["values"]) for key, one in facts["inputs"].items()}
    return Stored(name, facts["exporter"], inputs, facts["sizes"], model)


def save(stored: Stored) -> None:
    path = FOLDER / (stored.name + SUFFIX)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(
        lzma.compress(compact(stored).SerializeToString(deterministic=True), preset=9 | lzma.PRESET_EXTREME)
    )


def compact(stored: Stored) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(stored.model)
    _strip(model)
    for tensor in tensors(model.graph):
        _describe(tensor)
    inputs = {name: asdict(one) for name, one in stored.inputs.items()}
    facts = {"exporter": stored.exporter, "inputs": inputs, "sizes": stored.sizes}
    onnx.helper.set_model_props(model, {_KEY: json.dumps(facts)})
    return model


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the initializers, also of subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from tensors(attribute.g)


def _strip(message: Any) -> None:
    """Remove stack traces and doc strings from a message: they depend on the machine and exporter."""
    for field in ("doc_string", "metadata_props"):
        if field in message.DESCRIPTOR.fields_by_name:
            message.ClearField(field)
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        for one in value if not hasattr(value, "DESCRIPTOR") else [value]:
            _strip(one)


def _describe(tensor: onnx.TensorProto) -> None:
    if tensor.data_type not in _DTYPES or np.prod(tensor.dims) <= _KEPT:
        return
    values = numpy_helper.to_array(tensor).astype(np.float64)
    low, high = values.min(), values.max()
    if not np.isfinite([low, high]).all() or len(np.unique(values)) < min(0.6 * values.size, 100):
        return  # a mask or a table, whose values matter
    one_sided = low >= 0 or high <= 0
    text = f"uniform {low:.6g} {high:.6g}" if one_sided else f"normal {values.mean():.6g} {values.std():.6g}"
    tensor.doc_string = _DESCRIBED + text
    for field in ("raw_data", "float_data", "int32_data", "double_data"):
        tensor.ClearField(field)


def _fill(tensor: onnx.TensorProto) -> None:
    """Fill a tensor with reproducible random values, seeded by its name."""
    kind, a, b = tensor.doc_string.removeprefix(_DESCRIBED).split()
    dtype = np.dtype(_DTYPES[tensor.data_type])
    random = np.random.Generator(np.random.PCG64(zlib.crc32(tensor.name.encode())))
    shape = tuple(tensor.dims)
    first, second = float(a), float(b)
    values = (
        random.uniform(first, second, shape) if kind == "uniform" else random.standard_normal(shape) * second + first
    )
    if dtype.kind in "iu":
        values = np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max)
    tensor.raw_data = values.astype(dtype).tobytes()
    tensor.ClearField("doc_string")
