"""The backend interface of the `onnx` package (onnx.backend.base), for the tests and tools of that package.

    import onnx.backend.test, pumice.onnx.backend
    tests = onnx.backend.test.BackendTest(pumice.onnx.backend, __name__)

`device` "CPU" or "VULKAN" is the device that `pumice.Context()` chooses, "VULKAN:1" is index 1 of `pumice.devices()`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx
import onnx.numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from .._pumice import Context, devices
from ..base.errors import unsupported_error
from ..device.context import default_context
from ..model.model import Model

__all__ = ["PumiceBackend", "PumiceBackendRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

_DEVICES = ("CPU", "VULKAN")
_LOAD_OPTIONS = {"precision", "folder", "seed", "fuse", "overridable"}


def _to_array(value: Any) -> Any:
    """Convert a TensorProto, used for types that NumPy lacks, to an array; return other values unchanged."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _reject_unknown_options(function: str, keywords: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise UnsupportedError for unknown options. The backend interface itself accepts any keyword."""
    if unknown := [f"option '{name}'; available: {', '.join(sorted(known))}" for name in keywords if name not in known]:
        raise unsupported_error(f"{function} of pumice.onnx.backend", unknown)


def _get_context(device: str) -> Context:
    """Return the context for a device name: the default one for "CPU" and "VULKAN", index 1 of devices() for "VULKAN:1"."""
    number = device.partition(":")[2]
    return Context(int(number)) if number and not device.startswith("CPU") else default_context()


class PumiceBackendRep(BackendRep):
    """A loaded model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Run the model.

        inputs: arrays or TensorProtos as a sequence in graph order, a mapping by name, or the single input. options:
        loop_timeout, as for a call to a Model. Return a named tuple in graph order. Raise whatever calling a Model
        raises.
        """
        _reject_unknown_options("run", options, {"loop_timeout"})
        if isinstance(inputs, Mapping):
            arrays = self.model.named(**{name: _to_array(value) for name, value in inputs.items()})
            results = self.model(*arrays.values(), **options)
        else:
            results = self.model(*map(_to_array, inputs if isinstance(inputs, (list, tuple)) else [inputs]), **options)
        names = [output.name for output in self.model.outputs]
        values = (results,) if len(names) == 1 else tuple(results)
        return namedtupledict("Outputs", names)(*values)


class PumiceBackend(Backend):
    """onnx.backend.base.Backend on Vulkan."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Return whether the model can be loaded: False if any part is unsupported. options: see prepare()."""
        try:
            cls.prepare(model, device, **options)
        except NotImplementedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> PumiceBackendRep:
        """Load a model. options: precision, folder, seed, fuse and overridable, as for pumice.load.

        Raise UnsupportedError listing everything unsupported, including options, GraphError if the model breaks a rule.
        """
        _reject_unknown_options("prepare", options, _LOAD_OPTIONS)
        if not cls.supports_device(device):
            raise unsupported_error(f"device '{device}'", [f"supported devices: {', '.join(_DEVICES)}"])
        return PumiceBackendRep(Model(model, _get_context(device), **options))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Call prepare() and run(), splitting the options between them. Raise their errors."""
        run_options = {name: options.pop(name) for name in ("loop_timeout",) if name in options}
        return cls.prepare(model, device, **options).run(inputs, **run_options)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Run one node on arrays. outputs_info: dtypes and shapes of the outputs, if known.

        options: opset_version, by default the latest supported, and the options of run_model(). Raise the errors of run_model().
        """
        import numpy as np
        from onnx import helper

        from ..importer.rewrites.rewrite_table import MAX_OPSET

        arrays = [np.asarray(value) for value in inputs]
        names = [name for name in node.input if name]
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, arrays, strict=True)
        ]
        results = (
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for name, (dtype, shape) in zip(node.output, outputs_info, strict=True)
            ]
            if outputs_info
            else [onnx.ValueInfoProto(name=name) for name in node.output if name]
        )
        graph = helper.make_graph([node], node.op_type, values, results)
        version = options.pop("opset_version", MAX_OPSET)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.run_model(model, arrays, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True for "CPU" (the default context's device), "VULKAN", and "VULKAN:1" if there is such a device."""
        kind, _, number = device.partition(":")
        if not number:
            return kind in _DEVICES
        return number.isdigit() and (int(number) < len(devices()) if kind == "VULKAN" else device == "CPU:0")


is_compatible = PumiceBackend.is_compatible
prepare = PumiceBackend.prepare
run_model = PumiceBackend.run_model
run_node = PumiceBackend.run_node
supports_device = PumiceBackend.supports_device
