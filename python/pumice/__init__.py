"""Compute kernels and neural networks on any Vulkan device.

`load` creates a Model from an ONNX file, `Kernel` runs GLSL, `validate` compares a model with a reference node by node. Importing the
package opens no device; heavy modules are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._pumice import BindingError as BindingError
from ._pumice import BindingProperties as BindingProperties
from ._pumice import BindingTable as BindingTable
from ._pumice import BoundKernel as BoundKernel
from ._pumice import Buffer as Buffer
from ._pumice import BufferRange as BufferRange
from ._pumice import Burst as Burst
from ._pumice import CacheState as CacheState
from ._pumice import CommandList as CommandList
from ._pumice import CompileCounts as CompileCounts
from ._pumice import CompiledOperator as CompiledOperator
from ._pumice import Context as Context
from ._pumice import DeviceError as DeviceError
from ._pumice import DeviceInfo as DeviceInfo
from ._pumice import DeviceLostError as DeviceLostError
from ._pumice import Dispatchable as Dispatchable
from ._pumice import DispatchTime as DispatchTime
from ._pumice import DriverQuirk as DriverQuirk
from ._pumice import Error as Error
from ._pumice import Event as Event
from ._pumice import Execution as Execution
from ._pumice import Graph as Graph
from ._pumice import GraphError as GraphError
from ._pumice import Image as Image
from ._pumice import IndexRangeError as IndexRangeError
from ._pumice import Initializer as Initializer
from ._pumice import MatrixShape as MatrixShape
from ._pumice import MemoryCounts as MemoryCounts
from ._pumice import Message as Message
from ._pumice import Operator as Operator
from ._pumice import OutOfBoundsError as OutOfBoundsError
from ._pumice import OutOfMemoryError as OutOfMemoryError
from ._pumice import OutputSizeError as OutputSizeError
from ._pumice import PrecisionSupport as PrecisionSupport
from ._pumice import Program as Program
from ._pumice import ProgramRun as ProgramRun
from ._pumice import ProgramValue as ProgramValue
from ._pumice import Shader as Shader
from ._pumice import ShaderCompileError as ShaderCompileError
from ._pumice import ShaderOptions as ShaderOptions
from ._pumice import Slot as Slot
from ._pumice import StateError as StateError
from ._pumice import Submission as Submission
from ._pumice import Tensor as Tensor
from ._pumice import TensorDesc as TensorDesc
from ._pumice import TimeoutError as TimeoutError
from ._pumice import UnsupportedError as UnsupportedError
from ._pumice import Value as Value
from ._pumice import __version__ as __version__
from ._pumice import binding_rules as binding_rules
from ._pumice import buffer_size as buffer_size
from ._pumice import cache_state as cache_state
from ._pumice import compile as compile
from ._pumice import compile_counts as compile_counts
from ._pumice import device_macros as device_macros
from ._pumice import distinct_pipelines as distinct_pipelines
from ._pumice import fusions as fusions
from ._pumice import graph_rules as graph_rules
from ._pumice import has_operator as has_operator
from ._pumice import nnapi_rules as nnapi_rules
from ._pumice import output_descs as output_descs
from ._pumice import precision_support as precision_support
from ._pumice import prune_cache as prune_cache
from ._pumice import reflect as reflect
from ._pumice import strides as strides
from ._pumice import take_log as take_log
from ._pumice import take_validation_messages as take_validation_messages
from .base.errors import ValidationError as ValidationError
from .device.context import asarray as asarray
from .device.context import default_context as default_context
from .device.context import devices as devices
from .device.context import empty as empty
from .device.context import empty_host as empty_host
from .device.context import from_dlpack as from_dlpack
from .device.context import from_host as from_host
from .device.context import full as full
from .device.context import image as image
from .device.context import ones as ones
from .device.context import tensor as tensor
from .device.context import zeros as zeros

if TYPE_CHECKING:
    from . import dv as dv
    from . import nnapi as nnapi
    from . import onnx as onnx
    from . import testing as testing
    from . import text as text
    from .device.image_loading import load_image as load_image
    from .device.kernel import Kernel as Kernel
    from .device.kernel_statistics import KernelStatistics as KernelStatistics
    from .device.kernel_times import KernelTimes as KernelTimes
    from .device.tuning import Tuning as Tuning
    from .device.tuning_exchange import export_tuning as export_tuning
    from .device.tuning_exchange import import_tuning as import_tuning
    from .importer.expression_operator import ElementwiseOperator as ElementwiseOperator
    from .importer.expression_operator import operator as operator
    from .importer.kernel_operator import KernelOperator as KernelOperator
    from .importer.kernel_operator import kernel_operator as kernel_operator
    from .model.batch_predictor import BatchPredictor as BatchPredictor
    from .model.loading import load as load
    from .model.model import Model as Model
    from .model.parallel_model import ParallelModel as ParallelModel
    from .profiling.comparison import Comparison as Comparison
    from .profiling.device_peaks import Peaks as Peaks
    from .profiling.device_peaks import calibrate as calibrate
    from .profiling.memory import MemoryMap as MemoryMap
    from .profiling.memory import memory_map as memory_map
    from .profiling.profile import Profile as Profile
    from .profiling.profile import profile as profile
    from .tools.operator_catalogue import OperatorSchema as OperatorSchema
    from .tools.operator_catalogue import operators as operators
    from .tools.version_info import show_versions as show_versions
    from .validation.reference.candidate import onnxruntime_candidate as onnxruntime_candidate
    from .validation.report.report import ValidationReport as ValidationReport
    from .validation.search.precision_tuner import TunedPrecision as TunedPrecision
    from .validation.search.precision_tuner import tune_precision as tune_precision
    from .validation.validate import Reduction as Reduction
    from .validation.validate import reduce as reduce
    from .validation.validate import validate as validate

_PUBLIC_MODULES = {
    "OperatorSchema": "tools.operator_catalogue",
    "operators": "tools.operator_catalogue",
    "ElementwiseOperator": "importer.expression_operator",
    "operator": "importer.expression_operator",
    "KernelOperator": "importer.kernel_operator",
    "kernel_operator": "importer.kernel_operator",
    "BatchPredictor": "model.batch_predictor",
    "MemoryMap": "profiling.memory",
    "memory_map": "profiling.memory",
    "Model": "model.model",
    "ParallelModel": "model.parallel_model",
    "load": "model.loading",
    "load_image": "device.image_loading",
    "Kernel": "device.kernel",
    "KernelTimes": "device.kernel_times",
    "Tuning": "device.tuning",
    "export_tuning": "device.tuning_exchange",
    "import_tuning": "device.tuning_exchange",
    "show_versions": "tools.version_info",
    "KernelStatistics": "device.kernel_statistics",
    "TunedPrecision": "validation.search.precision_tuner",
    "onnxruntime_candidate": "validation.reference.candidate",
    "Comparison": "profiling.comparison",
    "Peaks": "profiling.device_peaks",
    "Profile": "profiling.profile",
    "calibrate": "profiling.device_peaks",
    "profile": "profiling.profile",
    "ValidationReport": "validation.report.report",
    "tune_precision": "validation.search.precision_tuner",
    "Reduction": "validation.validate",
    "reduce": "validation.validate",
    "validate": "validation.validate",
}
_MODULES = ("demo", "dv", "nnapi", "onnx", "testing", "text")


def _repr_html_(obj: Any) -> str:
    from .base.html import render_html

    return render_html(obj)


for _displayed in (Context, DeviceInfo, Shader, Tensor, TensorDesc):
    setattr(_displayed, "_repr_html_", _repr_html_)  # noqa: B010  # the stubs declare no such attribute
del _displayed


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic %%glsl, for `%load_ext pumice`."""
    from .tools.notebook import register_magics

    register_magics(shell)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _PUBLIC_MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(f".{_PUBLIC_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC_MODULES, *_MODULES})
