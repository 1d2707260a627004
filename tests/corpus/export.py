"""Exports the models of the corpus into graphs/: python -m corpus.export [NAME ...]."""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from .case import Case, Sizes, arrays
from .run import reference
from .store import Stored, save

FAMILIES = (
    "transformers",
    "decoders",
    "vision",
    "patches",
    "detection",
    "speech",
    "generative",
    "sampling",
    "recurrent",
    "control_flow",
    "pipelines",
)


def cases() -> Iterator[Case]:
    for family in FAMILIES:
        yield from importlib.import_module(f"corpus.{family}").CASES


# ---- weights


def seeded(module: nn.Module) -> nn.Module:
    """Initialise the module with weights that keep activations near 1.

    They are about 1 / sqrt(fan in), norm weights are near 1, and batch statistics differ from 0 and 1.
    """
    random = torch.Generator().manual_seed(0)
    for name, parameter in module.named_parameters():
        _fill(name, parameter, random)
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.2, generator=random)
        elif name.endswith("running_var"):
            buffer.uniform_(0.7, 1.4, generator=random)
    return module.eval()


@torch.no_grad()
def _fill(name: str, parameter: nn.Parameter, random: torch.Generator) -> None:
    role = name.rsplit(".", 1)[-1]
    if getattr(parameter, "as_made", False):
        return
    if parameter.ndim < 2 or role == "original0":  # original0: the magnitudes of a weight-normalised parameter
        parameter.normal_(1 if role in ("weight", "original0") else 0, 0.1, generator=random)
    else:
        fan_in = parameter.shape[-2] if role in ("up", "down") else parameter[0].numel()
        parameter.normal_(0, fan_in**-0.5, generator=random)


# ---- exporters


def exported(case: Case, exporter: str, dtype: torch.dtype = torch.float32) -> onnx.ModelProto:
    """Export a case. Raise whatever the exporter raises."""
    if exporter == "sklearn":
        made = case.make()
        assert isinstance(made, onnx.ModelProto)
        return made
    torch.manual_seed(0)
    module = case.make()
    if not isinstance(module, torch.jit.ScriptModule):  # scripted modules are seeded already
        module = seeded(module).to(dtype)
    example = tuple(
        torch.from_numpy(array).to(dtype) if array.dtype == np.float32 else torch.from_numpy(array)
        for array in case.example().values()
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        names = {"input_names": list(case.inputs), "output_names": list(case.outputs), "opset_version": case.opset}
        if exporter == "dynamo":
            shapes = _dynamic(case)
            if shapes:
                names["dynamic_shapes"] = shapes
            torch.onnx.export(
                module, example, str(path), dynamo=True, external_data=False, verbose=False, **names, **case.options
            )
        else:
            axes = {name: symbols for name, symbols in _symbols(case).items() if symbols}
            torch.onnx.export(module, example, str(path), dynamo=False, dynamic_axes=axes, **names)
        return onnx.load(str(path))


def _symbols(case: Case) -> dict[str, dict[int, str]]:
    return {
        name: {axis: size for axis, size in enumerate(one.dimensions) if isinstance(size, str)}
        for name, one in case.inputs.items()
    }


def _dynamic(case: Case) -> tuple[Any, ...] | None:
    symbols = _symbols(case)
    if not any(symbols.values()):
        return None
    return tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) or None for axes in symbols.values())


# ---- files


def files(case: Case) -> Iterator[Callable[[], Stored]]:
    """Yield a function for each file of a case, which exports it."""
    for name, exporter in zip(case.names, case.exporters, strict=False):
        yield functools.partial(_file, case, name, exporter)
    for variant in case.variants:
        yield functools.partial(_variant, case, variant)


def _file(case: Case, name: str, exporter: str) -> Stored:
    model = exported(case, exporter)
    return Stored(name, exporter, case.inputs, _possible(case, model), model)


def _possible(case: Case, model: onnx.ModelProto) -> list[Sizes]:
    """Return the sizes that ONNX Runtime can run: an exporter may hard-code the example's sizes, or not support 0."""
    session = reference(model)
    possible = []
    for sizes in case.sizes:
        try:
            session.run(None, arrays(case.inputs, sizes))
        except Exception as error:  # the runtime raises its own exception types
            if sizes is case.sizes[0]:
                raise
            print(f"{case.name} without {sizes}: {str(error).splitlines()[0][:100]}")
            continue
        possible.append(sizes)
    return possible


def _variant(case: Case, variant: str) -> Stored:
    """Export a variant of the first exporter's file."""
    base = _file(case, case.names[0], case.exporters[0])
    name = f"{case.name}.{variant}"
    inputs = base.inputs
    if variant == "fp16":
        model = exported(case, base.exporter, torch.float16)
        halves = {key: one.__class__("float16", one.dimensions, one.values) for key, one in inputs.items()}
        inputs = {key: halves[key] if one.dtype == "float32" else one for key, one in inputs.items()}
    else:
        model = quantised(base, variant)
    return Stored(name, f"{base.exporter}, {variant}", inputs, base.sizes, model)


def quantised(base: Stored, variant: str) -> onnx.ModelProto:
    """Return the model as quantised by ONNX Runtime: int8 weights; activation ranges from calibration ("qdq") or at
    run time ("dynamic")."""
    from onnxruntime import quantization

    with tempfile.TemporaryDirectory() as folder:
        source, prepared, made = (str(Path(folder) / name) for name in ("source.onnx", "prepared.onnx", "made.onnx"))
        plain = onnx.ModelProto()
        plain.CopyFrom(base.model)
        del plain.graph.value_info[:]  # these shapes become invalid when the quantiser rewrites the graph
        onnx.save(plain, source)
        quantization.quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if variant == "dynamic_int8":
            quantization.quantize_dynamic(prepared, made, weight_type=quantization.QuantType.QInt8)
        else:
            quantization.quantize_static(
                prepared, made, _Calibration(base), quant_format=quantization.QuantFormat.QDQ, per_channel=True
            )
        return onnx.load(made)


class _Calibration:
    """Gives the quantiser each set of inputs once."""

    def __init__(self, base: Stored) -> None:
        self._left = [arrays(base.inputs, sizes) for sizes in base.sizes]

    def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
        return self._left.pop() if self._left else None


def main() -> int:
    failed: list[str] = []
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all of the cases without one")
    wanted = parser.parse_args().names
    for case in cases():
        if wanted and not any(part in case.name for part in wanted):
            continue
        for file in files(case):
            try:
                stored = file()
            except Exception as error:  # whatever an exporter raises, continue with the others
                failed.append(case.name)
                print(f"{case.name}: {type(error).__name__}: {str(error)[:600]}", flush=True)
                continue
            save(stored)
            print(stored.name, len(stored.model.graph.node), "nodes, opset", stored.opset, flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
