"""The backend interface of the `onnx` package (onnx.backend.base), as its own tests and tools call it.

    import onnx.backend.test, pumice.onnx.backend
    tests = onnx.backend.test.BackendTest(pumice.onnx.backend, __name__)

`device` is "CPU" or "VULKAN" alike: what runs is the Vulkan device that `pumice.Context()` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx.numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ..context import default_context
from ..errors import unsupported_error
from ..model import Model

__all__ = ["PumiceBackend", "PumiceBackendRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

_DEVICES = ("CPU", "VULKAN")


def _array(value: Any) -> Any:
    """Tensors of types that NumPy lacks come as TensorProto."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


class PumiceBackendRep(BackendRep):
    """A loaded model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """`inputs`: arrays or TensorProtos as a sequence in graph order, a mapping by name, or the one input.

        Returns a named tuple in graph order. Raises what calling a Model raises.
        """
        if isinstance(inputs, Mapping):
            results = self.model(**{name: _array(value) for name, value in inputs.items()})
        else:
            results = self.model(*map(_array, inputs if isinstance(inputs, (list, tuple)) else [inputs]))
        names = [output.name for output in self.model.outputs]
        values = (results,) if len(names) == 1 else tuple(results)
        return namedtupledict("Outputs", names)(*values)


class PumiceBackend(Backend):
    """onnx.backend.base.Backend on Vulkan."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Whether the model can be loaded: false where something of it is not supported."""
        try:
            cls.prepare(model, device)
        except NotImplementedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> PumiceBackendRep:
        """Loads a model. Raises UnsupportedError with everything that is not supported, GraphError where it breaks a rule."""
        if not cls.supports_device(device):
            raise unsupported_error(f"device '{device}'", [f"devices known here: {', '.join(_DEVICES)}"])
        return PumiceBackendRep(Model(model, default_context()))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **_: Any) -> tuple[Any, ...]:
        """prepare() and run()."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        """One node of the newest operator set that is known, on arrays. outputs_info: dtypes and shapes, where they are known."""
        import numpy as np
        from onnx import helper

        from ..opset import NEWEST

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
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, NEWEST)])
        return cls.run_model(model, arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for "CPU" and "VULKAN", with or without a number."""
        return device.split(":")[0] in _DEVICES


is_compatible = PumiceBackend.is_compatible
prepare = PumiceBackend.prepare
run_model = PumiceBackend.run_model
run_node = PumiceBackend.run_node
supports_device = PumiceBackend.supports_device
