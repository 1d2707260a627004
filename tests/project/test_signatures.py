"""Every optional argument of the public API has an effect or is rejected: tests pass it, or signature_calls.py has a call for it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from signature_calls import CALLS, Row

import pumice
from features import reason_of_refusal
from pumice import dv
from pumice.base.deprecation import RENAMED

MODULES = ("", "dv", "testing", "onnx", "onnx.backend")
# Public methods whose names begin with an underscore.
SPECIAL = {"__init__", "__call__", "__array__", "__dlpack__"}
# The arguments of these are Python's, those of other functions, or those of other classes.
NOT_OURS = {"load_ipython_extension", "CompiledOperator", "Initializer"}

Argument = tuple[str, int | None]  # its name, "**" before the one for unknown names; its position if it has one


def stub() -> dict[str, list[ast.FunctionDef]]:
    """Return the engine's functions and methods by name, with their overloads, from the stub."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse((Path(pumice.__file__).parent / "_pumice.pyi").read_text()).body:
        prefix, members = (f"{node.name}.", node.body) if isinstance(node, ast.ClassDef) else ("", [node])
        for member in members:
            if isinstance(member, ast.FunctionDef):
                found.setdefault(prefix + member.name, []).append(member)
    return found


STUB = stub()


def of_stub(name: str) -> Iterator[Argument]:
    for function in STUB.get(name, []):
        arguments = function.args
        plain = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        first = len(plain) - len(arguments.defaults)
        yield from ((one, i - (plain[0] == "self")) for i, one in enumerate(plain) if i >= first)
        defaults = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        yield from ((one.arg, None) for one, default in defaults if default is not None)
        if arguments.kwarg:
            yield f"**{arguments.kwarg.arg}", None


def of_python(function: Any) -> Iterator[Argument]:
    parameters = list(inspect.signature(function).parameters.values())
    has_self = bool(parameters) and parameters[0].name in ("self", "cls")
    for i, one in enumerate(parameters):
        if one.name.startswith("_"):
            continue
        if one.kind is one.VAR_KEYWORD:
            yield f"**{one.name}", None
        elif one.default is not one.empty:
            yield one.name, None if one.kind is one.KEYWORD_ONLY else i - has_self


def of_method(cls: type, name: str) -> Iterator[Argument]:
    """Yield the arguments of a method, from the defining class, which may be in the engine."""
    base = next(base for base in cls.__mro__ if name in vars(base))
    if base.__module__ == "pumice._pumice":
        yield from of_stub(f"{base.__name__}.{name}")
    elif base.__module__.startswith("pumice"):
        member = vars(base)[name]
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        function = getattr(function, "__wrapped__", function)
        if isinstance(function, types.FunctionType):
            yield from of_python(function)


def methods(cls: type) -> Iterator[str]:
    for name in dir(cls):
        # The fields of a dataclass: test_every_field_of_a_command_is_in_its_bytes.
        is_ours = name in SPECIAL or not name.startswith("_")
        if is_ours and not (name == "__init__" and dataclasses.is_dataclass(cls)):
            yield name


def functions() -> Iterator[tuple[str, list[Argument]]]:
    """Yield each public function or method and its optional arguments. Errors and records have fields instead."""
    for module_name in MODULES:
        module = importlib.import_module(f"pumice.{module_name}" if module_name else "pumice")
        for name in getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]:
            one = getattr(module, name)
            if name in NOT_OURS or not getattr(one, "__module__", "").startswith("pumice"):
                continue
            path = f"{module_name}.{name}" if module_name else name
            if isinstance(one, type) and not issubclass(one, BaseException | tuple):
                yield from ((f"{path}.{method}", [*of_method(one, method)]) for method in methods(one))
            elif isinstance(one, types.FunctionType):
                yield path, [*of_python(one)]
            elif isinstance(one, types.BuiltinFunctionType):
                yield path, [*of_stub(name)]


def called_as(path: str) -> list[str]:
    """Return the names by which tests call a function."""
    owner, _, name = path.rpartition(".")
    if name != "__init__":
        return [name]
    return {"Model": ["Model", "load"]}.get(owner, [owner.rpartition(".")[2]])


def passed_by_tests() -> tuple[set[tuple[str, str]], Counter[str]]:
    """Return the keyword arguments of the calls in tests, and the most positional ones, by the function's name."""
    keywords: set[tuple[str, str]] = set()
    positions: Counter[str] = Counter()
    for path in Path(__file__).parents[1].rglob("*.py"):
        if path.name in ("signature_calls.py", Path(__file__).name):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "attr", getattr(node.func, "id", None)) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and name:
                keywords.update((name, one.arg) for one in node.keywords if one.arg)
                if not any(isinstance(one, ast.Starred) for one in node.args):
                    positions[name] = max(positions[name], len(node.args))
    return keywords, positions


def test_every_optional_argument_is_passed_by_a_test() -> None:
    """Calls are told apart by the function's name alone: an argument that two public functions of one name have needs rows."""
    public: dict[str, dict[str, int | None]] = {}
    for path, arguments in functions():
        for name, position in arguments:
            if f"{path}({name})" not in RENAMED:
                public.setdefault(path, {}).setdefault(name, position)
    assert sum(map(len, public.values())) > 300
    keywords, positions = passed_by_tests()
    sharing = Counter(short for path in public for short in called_as(path))
    owners = Counter((short, name) for path, names in public.items() for short in called_as(path) for name in names)
    listed = {f"{path} {name}" for row in CALLS for path, *names in [row[0].split()] for name in names}
    known = {f"{path} {name}" for path, names in public.items() for name in names}
    assert listed <= known, listed - known
    missing = [
        f"{path} {name}"
        for path, names in public.items()
        for name, position in names.items()
        if f"{path} {name}" not in listed
        and not any((short, name) in keywords and owners[short, name] == 1 for short in called_as(path))
        and not any(
            position is not None and positions[short] > position and sharing[short] == 1 for short in called_as(path)
        )
    ]
    assert not missing


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0].replace(" ", "-"))
def test_an_argument_is_honoured_or_rejected(context: pumice.Context, row: Row) -> None:
    _, call, pattern = row
    if pattern:
        with pytest.raises(Exception) as raised:
            call(context)
        text = f"{type(raised.value).__name__}: {raised.value}"
        if reason := reason_of_refusal(text, context):
            pytest.skip(reason)
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
        other: Any = {"run": [dv.Run(m=3)], "conv_cmd": dv.Conv(c=3), "lut": [7]}.get(field.name)
        if other is None:
            is_place = field.name.endswith("buf") or field.name in ("tex", "rd", "wr", "u8tofp16_table")
            other = (5, 6) if is_place else (9,) * len(default) if isinstance(default, tuple) and default else 9
        assert bytes(cls(**{field.name: other})) != bytes(cls()), (cls.__name__, field.name)
