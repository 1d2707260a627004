"""Every optional argument of the public API has an effect or is rejected: signature_calls.py has a call for each."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from signature_calls import CALLS, Row

import pumice
from pumice import dv
from pumice.base.deprecation import RENAMED

MODULES = ("", "dv", "testing", "onnx", "onnx.backend")
# Public methods whose names begin with an underscore.
SPECIAL = {"__init__", "__call__", "__array__", "__dlpack__"}
# Callables whose arguments are not ours: Python protocols and members inherited from tuples, lists and exceptions.
NOT_OURS = {"load_ipython_extension"}


def stub() -> dict[str, list[ast.FunctionDef]]:
    """Return the engine's functions and methods by name, with their overloads, from the stub."""
    found: dict[str, list[ast.FunctionDef]] = {}
    tree = ast.parse((Path(pumice.__file__).parent / "_pumice.pyi").read_text())
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef):
                found.setdefault(prefix + member.name, []).append(member)
    return found


STUB = stub()


def of_stub(functions: list[ast.FunctionDef]) -> Iterator[str]:
    for function in functions:
        arguments = function.args
        plain = [*arguments.posonlyargs, *arguments.args]
        yield from (one.arg for one in plain[len(plain) - len(arguments.defaults) :])
        yield from (
            one.arg
            for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        )
        if arguments.kwarg:
            yield f"**{arguments.kwarg.arg}"


def of_python(function: Any) -> Iterator[str]:
    for name, parameter in inspect.signature(function).parameters.items():
        if name.startswith("_"):
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            yield f"**{name}"
        elif parameter.default is not parameter.empty:
            yield name


def of_method(cls: type, name: str) -> Iterator[str]:
    """Yield the arguments of a method, from the defining class, which may be in the engine."""
    for base in cls.__mro__:
        if name not in vars(base):
            continue
        if base.__module__ == "pumice._pumice":
            yield from of_stub(STUB.get(f"{base.__name__}.{name}", []))
        elif base.__module__.startswith("pumice"):
            member = vars(base)[name]
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if isinstance(function, types.FunctionType):
                yield from of_python(function)
            elif hasattr(function, "__wrapped__"):
                yield from of_python(function.__wrapped__)
        return


def of_class(cls: type) -> Iterator[str]:
    for name in dir(cls):
        if name == "__init__" and dataclasses.is_dataclass(cls):
            continue  # covered by test_every_field_of_a_command_is_in_its_bytes
        if name in SPECIAL or not name.startswith("_"):
            for argument in dict.fromkeys(of_method(cls, name)):
                yield f"{name}.{argument}"


def is_plain(cls: type) -> bool:
    """Return whether a class is an error or a record, whose arguments are its message or fields."""
    return issubclass(cls, BaseException | tuple)


def public() -> Iterator[str]:
    for module_name in MODULES:
        module = importlib.import_module(f"pumice.{module_name}" if module_name else "pumice")
        names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
        for name in names:
            value = getattr(module, name)
            if isinstance(value, types.ModuleType) or name in NOT_OURS:
                continue
            path = f"{module_name}.{name}" if module_name else name
            if isinstance(value, type):
                if value.__module__.startswith("pumice") and not is_plain(value):
                    yield from (f"{path}.{argument}" for argument in of_class(value))
            elif isinstance(value, types.FunctionType) and value.__module__.startswith("pumice"):
                yield from (f"{path}.{argument}" for argument in of_python(value))
            elif isinstance(value, types.BuiltinFunctionType):
                yield from (f"{path}.{argument}" for argument in dict.fromkeys(of_stub(STUB.get(value.__name__, []))))


def unalike(names: Iterator[str]) -> set[str]:
    """Return the names except in CompiledOperator and Initializer, which repeat other public ones, and deprecated ones."""
    found = set()
    for name in names:
        path, _, argument = name.rpartition(".")
        if path.split(".")[0] in ("CompiledOperator", "Initializer") or f"{path}({argument})" in RENAMED:
            continue
        found.add(f"{path}.{argument}")
    return found


def test_every_optional_argument_has_a_call() -> None:
    arguments = unalike(public())
    assert len(arguments) > 150
    listed = [f"{path}.{argument}" for names, *_ in CALLS for path, *rest in [names.split()] for argument in rest]
    assert sorted(arguments) == sorted(listed)


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0].replace(" ", "-"))
def test_an_argument_is_honoured_or_rejected(context: pumice.Context, row: Row) -> None:
    _, call, pattern = row
    if pattern:
        with pytest.raises(Exception) as raised:
            call(context)
        text = f"{type(raised.value).__name__}: {raised.value}"
        assert re.search(pattern, text, re.DOTALL) and "incompatible function arguments" not in text, text
    else:
        results = [repr(one.tolist() if isinstance(one, np.ndarray) else one) for one in call(context)]
        assert len(set(results)) == len(results), results


@pytest.mark.parametrize(
    "cls", [dv.Run, dv.Conv, dv.ConvV1, dv.FullyConnected, dv.Ipu, dv.Maximizer], ids=lambda cls: cls.__name__
)
def test_every_field_of_a_command_is_in_its_bytes(cls: Any) -> None:
    for field in dataclasses.fields(cls):
        default = getattr(cls(), field.name)
        other: Any = {"run": [dv.Run(m=3)], "conv_cmd": dv.Conv(c=3)}.get(field.name)
        if other is None:
            is_place = field.name.endswith("buf") or field.name in ("tex", "rd", "wr", "u8tofp16_table")
            other = (5, 6) if is_place else (9,) * len(default) if isinstance(default, tuple) and default else 9
        if field.name == "lut":
            other = [7]
        assert bytes(cls(**{field.name: other})) != bytes(cls()), (cls.__name__, field.name)
