"""A pytest plugin that records the one-node models of tests instead of running them: `pytest -p recorded_models --record FILE`.

A model's results are those of ONNX Runtime, so that a test reaches its later models. Without ONNX Runtime's results it ends.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest

import pumice

MODELS: dict[tuple[bytes, bytes], str] = {}  # (model, pickled inputs by name) -> test


class RecordedModel(NamedTuple):
    """A model with one node, the inputs of a call, and the test that has it."""

    proto: onnx.ModelProto
    inputs: dict[str, Any]
    test: str

    @property
    def op(self) -> str:
        """The operator's name, with its domain unless that is ONNX's own."""
        node = self.proto.graph.node[0]
        return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def read_models(path: Path) -> list[RecordedModel]:
    """Return the recorded models, in an order that does not depend on the run."""
    records = [(test, data, given) for (data, given), test in pickle.loads(path.read_bytes()).items()]
    return [
        RecordedModel(onnx.load_from_string(data), pickle.loads(given), test) for test, data, given in sorted(records)
    ]


class _Model:
    """Records calls of a model in place of pumice.Model."""

    test = ""

    def __init__(self, source: Any, *_: Any, **__: Any) -> None:
        self.proto = source if isinstance(source, onnx.ModelProto) else onnx.load_from_string(bytes(source))
        constants = {tensor.name for tensor in self.proto.graph.initializer}
        self.inputs = [item.name for item in self.proto.graph.input if item.name not in constants]
        self.outputs = [item.name for item in self.proto.graph.output]

    def __enter__(self) -> _Model:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        given = {**dict(zip(self.inputs, arrays, strict=False)), **named}
        data = self.proto.SerializeToString()
        if len(self.proto.graph.node) == 1:
            MODELS.setdefault((data, pickle.dumps(given)), self.test)
        runtime = pytest.importorskip("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        try:
            results = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, given)
        except Exception:  # ONNX Runtime has exceptions of its own, and lacks the operator or the opset
            pytest.skip("recorded")
        return results[0] if len(results) == 1 else tuple(results)


def _validate(proto: Any, cases: list[Any], **_: Any) -> None:
    model = _Model(proto)
    model(**cases[0]) if isinstance(cases[0], dict) else model(*cases[0])
    pytest.skip("recorded")


@contextmanager
def _recording() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("load", _Model), ("Model", _Model), ("validate", _validate)):
            patch.setattr(pumice, name, value)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, required=True, help="file for the models")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test on models that only record their calls."""
    _Model.test = item.nodeid
    with _recording():
        yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the models."""
    session.config.option.record.write_bytes(pickle.dumps(MODELS))
