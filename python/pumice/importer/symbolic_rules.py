"""Rules of user kernels: shapes, launch sizes and constants as expressions over the sizes of a node's tensors.

A rule is evaluated once per node on symbolic sizes. Its result is an expression that the engine evaluates for the
shapes of each call.
"""

from __future__ import annotations

import ast
import inspect
import operator as operators
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..base.errors import InputError

Rule: TypeAlias = "Callable[..., Any] | str"

_NUMBERS = (int, float)
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operators.add,
    ast.Sub: operators.sub,
    ast.Mult: operators.mul,
    ast.Div: operators.truediv,
    ast.FloorDiv: operators.floordiv,
    ast.Mod: operators.mod,
    ast.Pow: operators.pow,
}
_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def plain(value: Any) -> Any:
    """Return NumPy scalars as Python numbers and arrays as lists, anything else unchanged."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


class Size:
    """A symbolic integer or real number, whose value is known once a node's shapes are known. Arithmetic on it builds expressions."""

    __array_ufunc__ = None  # makes NumPy scalars defer arithmetic to this class

    def __init__(self, text: str, real: bool = False) -> None:
        self.text = text
        self.real = real

    def _with(self, mark: str, other: Any, turned: bool = False) -> Any:
        other = plain(other)
        if isinstance(other, bool) or not isinstance(other, (Size, *_NUMBERS)):
            return NotImplemented
        one, two = (as_size(other), self) if turned else (self, as_size(other))
        return Size(f"({one.text} {mark} {two.text})", one.real or two.real)

    def _call(self, name: str, other: Any, turned: bool = False, real: bool = False) -> Any:
        other = plain(other)
        if isinstance(other, bool) or not isinstance(other, (Size, *_NUMBERS)):
            return NotImplemented
        one, two = (as_size(other), self) if turned else (self, as_size(other))
        return Size(f"{name}({one.text}, {two.text})", real or one.real or two.real)

    def __add__(self, other: Any) -> Any:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("+", other, turned=True)

    def __sub__(self, other: Any) -> Any:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("-", other, turned=True)

    def __mul__(self, other: Any) -> Any:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("*", other, turned=True)

    def __truediv__(self, other: Any) -> Any:
        made = self._with("/", other)
        return made if made is NotImplemented else Size(made.text, real=True)

    def __rtruediv__(self, other: Any) -> Any:
        made = self._with("/", other, turned=True)
        return made if made is NotImplemented else Size(made.text, real=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._call("floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._call("floor_divide", other, turned=True)

    def __mod__(self, other: Any) -> Any:
        return self._call("mod", other)

    def __rmod__(self, other: Any) -> Any:
        return self._call("mod", other, turned=True)

    def __pow__(self, other: Any) -> Any:
        return self._call("pow", other, real=True)

    def __neg__(self) -> Size:
        return Size(f"(0 - {self.text})", self.real)

    def __bool__(self) -> bool:
        raise InputError(
            "a rule decides by a size, which is not known yet: written as text it may, "
            "as 'x.shape[0] if x.shape[0] < 8 else 8' or 'min(x.shape[0], 8)'"
        )

    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: bool(self)
    __eq__ = __ne__ = lambda self, other: bool(self)
    __hash__ = None  # type: ignore[assignment]

    def __int__(self) -> int:
        raise InputError("a rule asks for the number behind a size, which is not known yet: it may compute with it")

    __index__ = __float__ = __int__


def as_size(value: Any) -> Size:
    """Convert a number to a Size; return a Size unchanged. Raise InputError for anything else."""
    value = plain(value)
    if isinstance(value, Size):
        return value
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise InputError(f"expected a number, given {value!r}")
    if isinstance(value, float):
        return Size(f"f64({value!r})", real=True)
    return Size(str(value) if value >= 0 else f"(0 - {-value})")


class Sizes(tuple[Size, ...]):
    """The shape of a tensor. A rule that returns it unchanged gives the output this shape, whatever its rank."""

    name = ""

    @classmethod
    def of(cls, name: str, rank: int) -> Sizes:
        """Return the sizes of the tensor with this name in expressions, such as x0."""
        made = cls(Size(f"{name}_{axis}") for axis in range(rank))
        made.name = name
        return made


class RuleTensor:
    """An input or output as a rule sees it: `shape`, `rank` (also `ndim`), `size` and `dtype`."""

    def __init__(self, label: str, name: str, rank: int | None, dtype: str) -> None:
        self._label = label
        self._rank = rank
        self._name = name
        self.dtype = dtype
        self.size = Size(f"{name}_n")

    @property
    def rank(self) -> int:
        """The number of axes."""
        if self._rank is None:
            raise InputError(f"the rank of '{self._label}' is not known, on which the rule depends")
        return self._rank

    ndim = rank

    @property
    def shape(self) -> Sizes:
        """The sizes of the axes. If the rank is unknown, a rule can only return them unchanged."""
        if self._rank is None:
            return _unknown_sizes(self)
        return Sizes.of(self._name, self._rank)


class _UnknownSizes(Sizes):
    _tensor: RuleTensor

    def __getitem__(self, index: Any) -> Any:
        return (Size(""),) * self._tensor.rank  # raises if the rank is unknown

    def __iter__(self) -> Iterator[Size]:
        return iter((Size(""),) * self._tensor.rank)  # raises if the rank is unknown

    def __len__(self) -> int:
        return self._tensor.rank


def _unknown_sizes(tensor: RuleTensor) -> Sizes:
    made = _UnknownSizes()
    made.name, made._tensor = tensor._name, tensor
    return made


# ---- rules as strings


class _Text:
    """Evaluates a rule's expression: names, attributes, subscripts, arithmetic, comparisons, `a if c else b`, min, max, len."""

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self._names = names
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise InputError(f"expected an expression, given {text!r}: {error}") from None

    def value(self) -> Any:
        return self._of(self._tree)

    def _of(self, node: ast.expr) -> Any:
        made = getattr(self, f"_{type(node).__name__.lower()}", None)
        if made is None:
            raise InputError(f"'{ast.unparse(node)}' has no meaning in a rule")
        return made(node)

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, (bool, str, *_NUMBERS)):
            return node.value
        raise InputError(f"'{ast.unparse(node)}' has no meaning in a rule")

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self._names:
            raise InputError(f"expected one of {', '.join(self._names)}; given '{node.id}'")
        return self._names[node.id]

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self._of(node.value)
        if not isinstance(value, RuleTensor) or node.attr not in ("shape", "rank", "ndim", "size", "dtype"):
            raise InputError(f"'{ast.unparse(node)}' has no meaning: a tensor has shape, rank, ndim, size and dtype")
        return getattr(value, node.attr)

    def _subscript(self, node: ast.Subscript) -> Any:
        value = self._of(node.value)
        try:
            return value[self._of(node.slice)]
        except (TypeError, IndexError) as error:
            raise InputError(f"'{ast.unparse(node)}': {error}") from None

    def _slice(self, node: ast.Slice) -> slice:
        return slice(*(None if part is None else self._of(part) for part in (node.lower, node.upper, node.step)))

    def _tuple(self, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
        made: list[Any] = []
        for item in node.elts:
            made.extend(self._of(item.value)) if isinstance(item, ast.Starred) else made.append(self._of(item))
        return tuple(made)

    _list = _tuple

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        return {
            self._of(key): self._of(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None
        }

    def _binop(self, node: ast.BinOp) -> Any:
        if type(node.op) not in _BINARY:
            raise InputError(f"'{ast.unparse(node)}' has no meaning in a rule")
        left, right = self._of(node.left), self._of(node.right)
        try:
            return _BINARY[type(node.op)](left, right)
        except (TypeError, ZeroDivisionError) as error:
            raise InputError(f"'{ast.unparse(node)}': {error}") from None

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        if not isinstance(node.op, ast.USub):
            raise InputError(f"'{ast.unparse(node)}' has no meaning in a rule")
        return -self._of(node.operand)

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARED:
            raise InputError(f"'{ast.unparse(node)}' has no meaning in a rule")
        left, right = self._of(node.left), self._of(node.comparators[0])
        mark = _COMPARED[type(node.ops[0])]
        if not isinstance(left, Size) and not isinstance(right, Size):
            made = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
            return {**made, "==": operators.eq, "!=": operators.ne}[mark](left, right)
        one, two = as_size(left), as_size(right)
        if one.real or two.real:
            raise InputError(
                f"'{ast.unparse(node)}': sizes are compared as whole numbers, and one of these is real: multiply instead of dividing, "
                "as in 'x.shape[0] > x.shape[1]' for 'x.shape[0] / x.shape[1] > 1', or divide by //"
            )
        return Size(f"({one.text} {mark} {two.text})")

    def _ifexp(self, node: ast.IfExp) -> Any:
        condition = self._of(node.test)
        if not isinstance(condition, Size):
            return self._of(node.body if condition else node.orelse)
        one, two = as_size(self._of(node.body)), as_size(self._of(node.orelse))
        return Size(f"({condition.text} ? {one.text} : {two.text})", one.real or two.real)

    def _call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        given = [self._of(one) for one in node.args]
        if (
            node.keywords
            or (name, len(given)) not in (("len", 1), ("min", len(given)), ("max", len(given)))
            or not given
        ):
            raise InputError(f"'{ast.unparse(node)}': expected min, max or len of numbers")
        if name == "len":
            return len(given[0])
        made = as_size(given[0])
        for one in given[1:]:
            made = made._call(name, one)
        return made


def applied(rule: Rule, names: Mapping[str, Any]) -> Any:
    """Evaluate a rule with these inputs and attributes.

    Raise InputError if an expression is invalid, or if a callable has other parameters or raises.
    """
    if isinstance(rule, str):
        return _Text(rule, names).value()
    parameters = inspect.signature(rule).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        wanted = dict(names)
    else:
        if unknown := [one.name for one in parameters if one.name not in names and one.default is one.empty]:
            raise InputError(f"expected parameters of {', '.join(names)}; given '{unknown[0]}'")
        wanted = {one.name: names[one.name] for one in parameters if one.name in names}
    try:
        return rule(**wanted)
    except InputError:
        raise
    except Exception as error:  # the caller's function may raise anything
        raise InputError(f"it raises {type(error).__name__}: {error}") from error


def sizes_text(value: Any) -> str:
    """Format sizes for the engine: "x0_0;(x0_1 * 2)", or "=0" for the shape of input 0. Raise InputError for anything but integer sizes."""
    if isinstance(value, Sizes) and value.name.startswith("x"):
        return f"={value.name[1:]}"
    value = plain(value)
    parts = [value] if isinstance(value, (Size, *_NUMBERS)) else list(value) if isinstance(value, Iterable) else None
    if parts is None or isinstance(value, str):
        raise InputError(f"expected sizes, given {value!r}")
    made = [as_size(part) for part in parts]
    if any(one.real for one in made):
        raise InputError("expected whole numbers as sizes; // divides to one")
    return ";".join(one.text for one in made)


def number_text(value: Any) -> str:
    """Format a number or a list of numbers for the engine: "3", "r:0.5", "[1;2]". Raise InputError for anything else."""
    value = plain(value)
    if isinstance(value, (list, tuple)):
        return f"[{';'.join(map(number_text, value))}]"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"r:{value!r}"
    made = as_size(value)
    return f"r:{made.text}" if made.real else made.text
