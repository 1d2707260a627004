"""The torch.compile backend, which runs captured graphs as pumice models on views of the tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .._pumice import BindingError, GraphError, UnsupportedError
from ..base.log import log_warning
from ..base.torch_tensors import make_gradient_error
from .cuda_model import CudaModel
from .graphs import GraphSignature, export_program, load_module, make_module, make_signature
from .host_scalars import find_host_scalar_nodes, make_host_scalar_function, make_scalar_key
from .tensor_views import numpy_to_torch, torch_to_numpy

_OPTIONS = ("fallback", "context", "precision", "fuse", "deterministic", "check_indices")
_MAX_NUMBER_SETS = 32  # maximum number of sets of int and float values whose models are kept
_logged_reasons: set[str] = set()  # reasons for fallbacks to torch, each logged once per process


def backend(
    graph: Any, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Any:
    """The "pumice" backend of torch.compile: return the function that runs a captured graph.

    The graph is exported to ONNX by torch's exporter on its first call and then loaded. CPU tensors are read in place, and results are
    tensors of the memory that receives the device's results; dynamic sizes stay dynamic. CUDA tensors must be on the context's GPU. Tensors
    in memory of pumice.empty(share="cuda") are read in place, others are first copied to such memory on the GPU; results are in such
    memory, too. The GPU orders the model with torch's current stream, without waiting on the host. Weights are the model's constants. The
    model reloads when torch's version counter changes: in-place under no_grad, load_state_dict, or a replaced tensor. In-place changes
    through `.data` or an array of the same memory are not detected.
    options: "fallback": True makes torch run a graph that pumice cannot run, and logs the reason once; otherwise it is rejected. "context",
    "precision", "fuse", "deterministic" and "check_indices" are as in pumice.load.
    Raise UnsupportedError at the call, listing what cannot run: operators without ONNX equivalent, graphs that write to their arguments,
    draw random numbers or need gradients, tensors on other devices, models with control flow on CUDA tensors; ValueError for other options
    or a mode.
    """
    backend_options = dict(options or {})
    unknown = sorted(backend_options.keys() - set(_OPTIONS))
    if unknown:
        raise ValueError(f"options of the backend 'pumice' are {', '.join(_OPTIONS)}; given {', '.join(unknown)}")
    if mode is not None:
        raise ValueError(f"the backend 'pumice' has no modes; given mode={mode!r}")
    fallback = backend_options.pop("fallback", False)
    if not isinstance(fallback, bool):
        raise ValueError(f"the option 'fallback' must be True or False; given {fallback!r}")
    on_cuda = any(isinstance(argument, torch.Tensor) and argument.device.type == "cuda" for argument in examples)
    return _CompiledGraph(graph, make_signature(graph, examples), backend_options, fallback, on_cuda)


class _CompiledGraph:
    """A captured graph and the models built from it. If no model accepts the sizes of a call, another one is built."""

    def __init__(
        self, graph: Any, signature: GraphSignature, options: dict[str, Any], fallback: bool, on_cuda: bool
    ) -> None:
        self._graph = graph
        self._signature = signature
        self._options = options
        self._fallback = fallback
        self._rejections: dict[tuple[Any, ...], str] = {}  # key -> reason why pumice cannot run the graph
        self._models: dict[tuple[Any, ...], list[Any]] = {}
        self._weight_versions: list[tuple[int, int]] = []  # (address, torch's version counter) of each weight
        self._weight_storages: list[Any] = []  # kept alive so that their addresses are not reused
        self._has_results = any(kind in ("tensor", "number") for kind in signature.results)
        host_node_set = find_host_scalar_nodes(graph)
        self._has_no_work = all(
            node.op in ("placeholder", "get_attr", "output") or node in host_node_set for node in graph.graph.nodes
        )
        self._inputs = [(position, signature.parameters[position].name) for position in signature.inputs]
        self._on_cuda = on_cuda
        self._enables_gradients = any(
            node.target is torch._C._set_grad_enabled and node.args[0] for node in graph.graph.nodes
        )
        self._compute_on_host = make_host_scalar_function(graph, signature.results)
        self._first_floats: tuple[str, ...] | None = (
            None  # floats of the first call, constants until a call passes other values
        )
        self._can_use_float_inputs = not on_cuda and bool(signature.float_positions)

    def __call__(self, *arguments: Any) -> Any:
        try:
            return self._run_on_model(arguments)
        except UnsupportedError as error:
            reason = str(error)
        if not self._fallback:
            raise UnsupportedError(
                f'torch.compile(backend="pumice"): {reason}; options={{"fallback": True}} runs it with torch'
            )
        if reason not in _logged_reasons:
            _logged_reasons.add(reason)
            log_warning(f'torch.compile(backend="pumice"): torch runs a graph: {reason}')
        return self._graph(*arguments)

    def _run_on_model(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        needs_gradients = torch.is_grad_enabled() or self._enables_gradients
        for argument, parameter in zip(arguments, self._signature.parameters, strict=True):
            if needs_gradients and isinstance(argument, torch.Tensor) and argument.requires_grad:
                raise make_gradient_error(parameter.name)
            if isinstance(argument, torch.Tensor) and argument.is_complex():
                raise UnsupportedError(f"'{parameter.name}' has dtype {argument.dtype}; pumice has no complex numbers")
        key, float_inputs = self._make_key(arguments)
        if key in self._rejections:
            raise UnsupportedError(self._rejections[key])
        positions = (*(position for position, _ in self._inputs), *float_inputs)
        if self._on_cuda:
            arrays = [arguments[position].detach() for position in positions]
        else:
            arrays = [torch_to_numpy(arguments[i], self._signature.parameters[i].name) for i in positions]
        try:
            results = (
                self._call_model(arguments, arrays, key, float_inputs)
                if self._has_results
                else self._run_without_outputs(arguments)
            )
        except (UnsupportedError, GraphError) as error:
            if float_inputs:
                self._can_use_float_inputs = False
                return self._run_on_model(arguments)
            self._rejections[key] = str(error)
            raise UnsupportedError(str(error)) from error
        return self._make_results(arguments, results)

    def _make_key(self, arguments: Sequence[Any]) -> tuple[tuple[Any, ...], Sequence[int]]:
        """Return the int and float values for which a model is built, and the floats that become its inputs instead.

        Floats of a module (such as an epsilon) never vary and are folded. Floats that vary become inputs if the exporter supports that; if
        an operator has them as attributes, there is one model per value.
        """
        ints = tuple(arguments[i] for i in self._signature.free_int_positions)
        floats = tuple(make_scalar_key(arguments[i]) for i in self._signature.float_positions)
        if self._first_floats is None:
            self._first_floats = floats
        if self._can_use_float_inputs and floats != self._first_floats:
            return (ints, "inputs"), self._signature.float_positions
        return (ints, floats), ()

    def _run_without_outputs(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return (), the results of a graph without outputs. Raise UnsupportedError if the graph writes to its arguments."""
        if not self._has_no_work:
            export_program(*self._make_module(arguments))
            self._has_no_work = True
        return ()

    def _make_module(
        self, arguments: Sequence[Any], float_inputs: Sequence[int] = ()
    ) -> tuple[Any, GraphSignature, list[Any]]:
        module = make_module(self._graph, self._signature, arguments, float_inputs)
        return module, self._signature, [arguments[i].detach() for i in (*self._signature.inputs, *float_inputs)]

    def _call_model(
        self, arguments: Sequence[Any], arrays: list[Any], key: tuple[Any, ...], float_inputs: Sequence[int]
    ) -> tuple[Any, ...]:
        """Call a model that accepts these arrays, building it if there is none."""
        weight_versions = [(arguments[i].data_ptr(), arguments[i]._version) for i in self._signature.weights]
        if weight_versions != self._weight_versions:
            self._close_models()
            self._weight_versions = weight_versions
            self._weight_storages = [arguments[i].untyped_storage() for i in self._signature.weights]
        candidates = self._get_models(key)
        for model, input_positions in candidates:
            try:
                return _as_tuple(model(*(arrays[position_index] for position_index in input_positions)))
            except BindingError as error:
                if error.rule != "K10":
                    raise
        model, input_positions = self._build_model(arguments, float_inputs)
        candidates.append((model, input_positions))
        return _as_tuple(model(*(arrays[position_index] for position_index in input_positions)))

    def _get_models(self, key: tuple[Any, ...]) -> list[Any]:
        """Return the models built for these numbers, and mark them as most recently used."""
        candidates = self._models.pop(key, [])
        self._models[key] = candidates
        if len(self._models) > _MAX_NUMBER_SETS:
            for model, _ in self._models.pop(next(iter(self._models))):
                model.close()
        return candidates

    def _build_model(self, arguments: Sequence[Any], float_inputs: Sequence[int]) -> tuple[Any, list[int]]:
        """Return a model for these arguments, and for each of its inputs the position among the graph's inputs."""
        names = [self._signature.parameters[i].name for i in (*self._signature.inputs, *float_inputs)]
        model = load_module(*self._make_module(arguments, float_inputs), self._options)
        return CudaModel(model) if self._on_cuda else model, [names.index(argument.name) for argument in model.inputs]

    def _make_results(self, arguments: Sequence[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
        remaining = iter(results)
        numbers = iter(self._compute_on_host(*arguments) if self._compute_on_host else ())
        results_list: list[Any] = []
        for kind, dtype in zip(self._signature.results, self._signature.dtypes, strict=True):
            if kind == "tensor":
                result_tensor = next(remaining) if self._on_cuda else numpy_to_torch(next(remaining))
                results_list.append(result_tensor.to(dtype))  # the exporter leaves some fp16 and bf16 results in fp32
            elif kind == "number":
                results_list.append(next(remaining).item())
            elif kind == "host":
                results_list.append(next(numbers))
            else:
                results_list.append(arguments[kind] if isinstance(kind, int) else kind[0])
        return tuple(results_list)

    def _close_models(self) -> None:
        for models in self._models.values():
            for model, _ in models:
                model.close()
        self._models.clear()


def _as_tuple(call_result: Any) -> tuple[Any, ...]:
    return (
        tuple(call_result.values())
        if isinstance(call_result, Mapping)
        else tuple(call_result)
        if isinstance(call_result, tuple)
        else (call_result,)
    )
