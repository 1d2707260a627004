"""A Jinja sandbox with time and memory limits, for chat templates of untrusted folders.

Jinja's own sandbox protects Python's internals, but does not limit strings, lists, loops and recursion.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Sized
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 1 << 24  # maximum size of one value, including nested values
MAX_PRODUCED = 1 << 28  # maximum total characters of all values that a template creates
MAX_STEPS = 1 << 22  # maximum number of loop iterations, branches and calls
MAX_SECONDS = 10.0
_MAX_NUMBER = 1_000_000  # maximum integer argument, such as a width, count or indent
_MAX_BITS = 1 << 14  # maximum size of an integer result, in bits
_ITEM = 32  # size in characters that is charged for each list element
_LARGE_WIDTH = re.compile(r"\d{7}|[*]|\{[^{}]*\{")  # a format width of 7 digits, or one that is passed as an argument
# Filters and methods whose result can be as long as the product of the lengths of their arguments.
_MULTIPLICATIVE = frozenset({"replace", "join", "indent", "wordwrap", "expandtabs", "tojson", "translate", "xmlattr"})


class RenderLimitError(Exception):
    """Raised when a template exceeds a limit; the message names the limit."""


class RenderBudget:
    """Counts the resources that one rendering of a template uses."""

    def __init__(self) -> None:
        self._steps = self._produced = 0
        self._end = time.monotonic() + MAX_SECONDS

    def count_step(self) -> None:
        """Count a step. Raise RenderLimitError if there are too many, or if the time is up."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise RenderLimitError(f"expected at most {MAX_STEPS} loop iterations, branches and calls, given more")
        if time.monotonic() > self._end:
            raise RenderLimitError(f"expected the template to end within {MAX_SECONDS:g} seconds, given a longer run")

    def charge(self, size: int) -> None:
        """Count the characters of a new value. Raise RenderLimitError if it is too large, or if there are too many in all."""
        check_size(size)
        self._produced += size
        if self._produced > MAX_PRODUCED:
            raise RenderLimitError(f"expected values of at most {MAX_PRODUCED} characters in all, given more")
        self.count_step()


_budget: ContextVar[RenderBudget] = ContextVar("_budget")


def start_budget() -> None:
    """Start a new budget in the current contextvars context."""
    _budget.set(RenderBudget())


def check_size(size: int) -> None:
    """Raise RenderLimitError if `size` characters exceed the limit for one value."""
    if size > MAX_CHARACTERS:
        raise RenderLimitError(f"expected values of at most {MAX_CHARACTERS} characters, given one of {size} or more")


def compute_size(value: Any) -> int:
    """Return the size of a value with all nested values in characters, plus _ITEM per object. Counting stops at the limit."""
    size, pending = 0, [value]
    while pending and size <= MAX_CHARACTERS:
        item = pending.pop()
        size += _ITEM
        if isinstance(item, str | bytes | range):
            size += len(item)
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            pending += item
        elif isinstance(item, int):
            size += item.bit_length() // 8
    return size


def _spend_size(value: Any) -> Any:
    _budget.get().charge(compute_size(value))
    return value


def _check_call_size(name: str, values: list[Any]) -> None:
    """Raise RenderLimitError if the result of a call could be too large. values: the object of the method, and the arguments."""
    for item in values[1:]:
        if isinstance(item, int) and abs(item) > _MAX_NUMBER and name != "safe_range":  # safe_range has its own limit
            raise RenderLimitError(f"{name}: expected numbers of at most {_MAX_NUMBER}, given a larger one")
    if name in ("format", "format_map", "%") and isinstance(values[0], str) and _LARGE_WIDTH.search(values[0]):
        raise RenderLimitError(
            f"{name}: expected widths of at most 6 digits, written in the format string itself; given other widths"
        )
    if name == "replace" and len(values) > 2 and isinstance(values[0], str):
        check_size(len(values[0]) + values[0].count(str(values[1])) * len(str(values[2])))
    elif name in _MULTIPLICATIVE:
        sizes = [abs(item) if isinstance(item, int) else compute_size(item) for item in values[1:]]
        base_size = (
            compute_size(values[0])
            if not isinstance(values[0], Iterable) or isinstance(values[0], Sized)
            else _MAX_NUMBER
        )
        check_size(base_size * max(sizes, default=1) // 16)  # assumes at most one line or word per 16 characters


def _estimate_power_bits(base: Any, exponent: Any) -> int:
    return base.bit_length() * abs(exponent) if isinstance(base, int) and isinstance(exponent, int) else 0


class _LimitedCodeGenerator(CodeGenerator):
    """Generates template code that counts steps and measures new values."""

    def blockvisit(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        self.writeline("environment.count_step()")
        super().blockvisit(body, frame)

    def _visit_measured(self, visit: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame) -> None:
        self.write("environment.measured(")
        visit(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._visit_measured(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._visit_measured(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._visit_measured(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat(map(str, (")
        for item in node.nodes:
            self.visit(item, frame)
            self.write(", ")
        self.write(")))")


class _GenerationTag(Extension):
    """Supports `{% generation %} ... {% endgeneration %}`, which marks the assistant's turn for training, by ignoring the tags."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as a plain set)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements between the tags, without the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with limits on time and memory. Call start_budget() before each rendering."""

    code_generator_class = _LimitedCodeGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    measured = staticmethod(_spend_size)

    def __init__(self, filters: dict[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
            optimized=False,
        )
        self.filters |= filters
        self.filters = {name: _make_limited_filter(name, item) for name, item in self.filters.items()}
        del self.globals["lipsum"]

    def count_step(self) -> None:
        """Count a step."""
        _budget.get().count_step()

    def concat(self, parts: Iterable[str]) -> str:
        """Join the parts, checking the length before allocating the result."""
        checked_parts: list[str] = []
        size = 0
        for item in parts:
            size += len(item)
            check_size(size)
            checked_parts.append(item)
        _budget.get().charge(size)
        return "".join(checked_parts)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function or method. Raise RenderLimitError if its result is or could be too large."""
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps methods such as str.format
        owner = getattr(method, "__self__", None)
        _check_call_size(getattr(method, "__name__", ""), [owner, *args, *kwargs.values()])
        return _spend_size(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply a binary operator. Raise RenderLimitError if its result would be too large."""
        if operator == "*":
            for item, count in ((left, right), (right, left)):
                if isinstance(count, int) and isinstance(item, Sized):
                    check_size((len(item) if isinstance(item, str | bytes) else compute_size(item)) * max(count, 0))
        if operator in ("**", "*") and isinstance(left, int) and isinstance(right, int):
            bits = _estimate_power_bits(left, right) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > _MAX_BITS:
                raise RenderLimitError(f"expected integers of at most {_MAX_BITS} bits, given a larger one")
        if operator == "%" and isinstance(left, str):
            _check_call_size("%", [left, *(right if isinstance(right, tuple) else (right,))])
        return _spend_size(super().call_binop(context, operator, left, right))


def _make_limited_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(
        function
    )  # preserves `jinja_pass_arg`, by which Jinja selects the object to pass as the first argument
    def limited(*args: Any, **kwargs: Any) -> Any:
        call_args = args[1:] if getattr(function, "jinja_pass_arg", None) is not None else args
        _check_call_size(name, [*call_args, *kwargs.values()])
        return _spend_size(function(*args, **kwargs))

    return limited
