"""The entry point for loading models, on one device or several."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..base.errors import binding_error
from .model import Model

if TYPE_CHECKING:
    from .._pumice import Context
    from ..device.kernel import Kernel
    from ..importer.expression_operator import ElementwiseOperator
    from ..importer.file.graph_recipe import Overridable
    from ..importer.file.model_file import Folder, Source
    from ..importer.kernel_operator import KernelOperator
    from .parallel_model import ParallelModel
    from .precision_policy import Precision


@overload
def load(
    source: Source,
    context: Context | None = None,
    precision: Precision = "fp32",
    *,
    folder: Folder | None = None,
    progress: bool = True,
    seed: int | None = None,
    fuse: bool | Collection[str] = True,
    overridable: Overridable = False,
    check_indices: bool = False,
    deterministic: bool = False,
    operators: Sequence[ElementwiseOperator] = (),
    kernels: Mapping[str, KernelOperator | Kernel | str] | None = None,
    tuned: bool | Mapping[str, str] = True,
) -> Model: ...


@overload
def load(
    source: Source,
    *,
    devices: str | Sequence[str | int | Context],
    precision: Precision = "fp32",
    folder: Folder | None = None,
    progress: bool = True,
    seed: int | None = None,
    fuse: bool | Collection[str] = True,
    check_indices: bool = False,
    deterministic: bool = False,
    operators: Sequence[ElementwiseOperator] = (),
    kernels: Mapping[str, KernelOperator | Kernel | str] | None = None,
    tuned: bool | Mapping[str, str] = True,
) -> ParallelModel: ...


def load(
    source: Source,
    context: Context | None = None,
    precision: Precision = "fp32",
    *,
    devices: str | Sequence[str | int | Context] | None = None,
    **options: Any,
) -> Model | ParallelModel:
    """Load an ONNX model. Unsupported nodes are all listed before anything runs.

    devices: None returns a Model on the device of `context`. "all", or a list of device names or contexts,
    returns a ParallelModel: calls divide their rows among the devices, and map() gives each device the next case. "all"
    skips software drivers if there is another device. For `source`, the other arguments and errors see Model. Raise
    BindingError (K4) if both a context and devices are given, or for an option that only a single device supports.
    """
    if devices is None:
        return Model(source, context, precision, **options)
    from .parallel_model import ParallelModel

    if context is not None:
        raise binding_error("K4", "devices", "a context or devices", "both", kind="argument")
    if options.pop("overridable", False):
        hint = "a call on several devices splits its inputs by rows"
        raise binding_error("K4", "overridable", "no initializers to override", "some", hint, kind="argument")
    return ParallelModel(source, devices, precision, **options)
