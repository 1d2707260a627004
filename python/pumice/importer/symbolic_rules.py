"""Rules of user kernels: output shapes, launch sizes and constants as expressions of the node's tensor sizes.

A rule is evaluated once per node with symbolic sizes. The result is an expression, which the engine evaluates for the actual
sizes of each call.
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
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def to_python_number(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers and arrays to lists; return anything else unchanged."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


class SymbolicSize:
    """A symbolic integer or real number, evaluated once a node's shapes are known. Arithmetic on it builds expressions."""

    __array_ufunc__ = None  # NumPy scalars then defer arithmetic to this class

    def __init__(self, text: str, real: bool = False) -> None:
        self.text = text
        self.real = real

    def _apply_operator(self, operator_symbol: str, other: Any, is_reflected: bool = False) -> Any:
        other = to_python_number(other)
        if isinstance(other, bool) or not isinstance(other, (SymbolicSize, *_NUMBERS)):
            return NotImplemented
        left_size, right_size = (to_symbolic_size(other), self) if is_reflected else (self, to_symbolic_size(other))
        return SymbolicSize(
            f"({left_size.text} {operator_symbol} {right_size.text})", left_size.real or right_size.real
        )

    def _apply_function(self, name: str, other: Any, is_reflected: bool = False, real: bool = False) -> Any:
        other = to_python_number(other)
        if isinstance(other, bool) or not isinstance(other, (SymbolicSize, *_NUMBERS)):
            return NotImplemented
        left_size, right_size = (to_symbolic_size(other), self) if is_reflected else (self, to_symbolic_size(other))
        return SymbolicSize(f"{name}({left_size.text}, {right_size.text})", real or left_size.real or right_size.real)

    def __add__(self, other: Any) -> Any:
        return self._apply_operator("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._apply_operator("+", other, is_reflected=True)

    def __sub__(self, other: Any) -> Any:
        return self._apply_operator("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._apply_operator("-", other, is_reflected=True)

    def __mul__(self, other: Any) -> Any:
        return self._apply_operator("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._apply_operator("*", other, is_reflected=True)

    def __truediv__(self, other: Any) -> Any:
        ratio = self._apply_operator("/", other)
        return ratio if ratio is NotImplemented else SymbolicSize(ratio.text, real=True)

    def __rtruediv__(self, other: Any) -> Any:
        ratio = self._apply_operator("/", other, is_reflected=True)
        return ratio if ratio is NotImplemented else SymbolicSize(ratio.text, real=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._apply_function("floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._apply_function("floor_divide", other, is_reflected=True)

    def __mod__(self, other: Any) -> Any:
        return self._apply_function("mod", other)

    def __rmod__(self, other: Any) -> Any:
        return self._apply_function("mod", other, is_reflected=True)

    def __pow__(self, other: Any) -> Any:
        return self._apply_function("pow", other, real=True)

    def __neg__(self) -> SymbolicSize:
        return SymbolicSize(f"(0 - {self.text})", self.real)

    def __bool__(self) -> bool:
        raise InputError(
            "a rule branches on a size that is not known yet: a rule written as text may do so, "
            "as in 'x.shape[0] if x.shape[0] < 8 else 8' or 'min(x.shape[0], 8)'"
        )

    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: bool(self)
    __eq__ = __ne__ = lambda self, other: bool(self)
    __hash__ = None  # type: ignore[assignment]

    def __int__(self) -> int:
        raise InputError("a rule needs the value of a size that is not known yet: it may only compute with the size")

    __index__ = __float__ = __int__


def to_symbolic_size(value: Any) -> SymbolicSize:
    """Convert a number to a SymbolicSize; return a SymbolicSize unchanged. Raise InputError for anything else."""
    value = to_python_number(value)
    if isinstance(value, SymbolicSize):
        return value
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise InputError(f"expected a number, given {value!r}")
    if isinstance(value, float):
        return SymbolicSize(f"f64({value!r})", real=True)
    return SymbolicSize(str(value) if value >= 0 else f"(0 - {-value})")


class SymbolicShape(tuple[SymbolicSize, ...]):
    """The symbolic shape of a tensor. A rule can return it unchanged even if its rank is unknown."""

    name = ""

    @classmethod
    def for_tensor(cls, name: str, rank: int) -> SymbolicShape:
        """Return the shape of a tensor. name: its name in the engine's expressions, such as x0."""
        sizes = cls(SymbolicSize(f"{name}_{axis}") for axis in range(rank))
        sizes.name = name
        return sizes


class RuleTensor:
    """An input or output in a rule, with `shape`, `rank` (or `ndim`), `size` and `dtype`."""

    def __init__(self, label: str, name: str, rank: int | None, dtype: str) -> None:
        self._label = label
        self._rank = rank
        self._name = name
        self.dtype = dtype
        self.size = SymbolicSize(f"{name}_n")

    @property
    def rank(self) -> int:
        """The number of axes."""
        if self._rank is None:
            raise InputError(f"the rule depends on the rank of '{self._label}', which is not known")
        return self._rank

    ndim = rank

    @property
    def shape(self) -> SymbolicShape:
        """The symbolic shape. If the rank is unknown, a rule can only return it unchanged."""
        if self._rank is None:
            return _make_unknown_shape(self)
        return SymbolicShape.for_tensor(self._name, self._rank)


class _UnknownShape(SymbolicShape):
    _tensor: RuleTensor

    def __getitem__(self, index: Any) -> Any:
        return (SymbolicSize(""),) * self._tensor.rank  # raises if the rank is unknown

    def __iter__(self) -> Iterator[SymbolicSize]:
        return iter((SymbolicSize(""),) * self._tensor.rank)  # raises if the rank is unknown

    def __len__(self) -> int:
        return self._tensor.rank


def _make_unknown_shape(tensor: RuleTensor) -> SymbolicShape:
    unknown_sizes = _UnknownShape()
    unknown_sizes.name, unknown_sizes._tensor = tensor._name, tensor
    return unknown_sizes


# ---- rules written as strings


class _RuleExpression:
    """Evaluates a rule given as a string: names, attributes, subscripts, arithmetic, comparisons, `a if c else b`, min, max, len."""

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self._names = names
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise InputError(f"expected an expression, given {text!r}: {error}") from None

    def evaluate(self) -> Any:
        return self._evaluate(self._tree)

    def _evaluate(self, node: ast.expr) -> Any:
        handler = getattr(self, f"_visit_{type(node).__name__.lower()}", None)
        if handler is None:
            raise InputError(f"'{ast.unparse(node)}' is not supported in a rule")
        return handler(node)

    def _visit_constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, (bool, str, *_NUMBERS)):
            return node.value
        raise InputError(f"'{ast.unparse(node)}' is not supported in a rule")

    def _visit_name(self, node: ast.Name) -> Any:
        if node.id not in self._names:
            raise InputError(f"expected one of {', '.join(self._names)}; given '{node.id}'")
        return self._names[node.id]

    def _visit_attribute(self, node: ast.Attribute) -> Any:
        value = self._evaluate(node.value)
        if not isinstance(value, RuleTensor) or node.attr not in ("shape", "rank", "ndim", "size", "dtype"):
            raise InputError(f"'{ast.unparse(node)}' is not supported: a tensor has shape, rank, ndim, size and dtype")
        return getattr(value, node.attr)

    def _visit_subscript(self, node: ast.Subscript) -> Any:
        value = self._evaluate(node.value)
        try:
            return value[self._evaluate(node.slice)]
        except (TypeError, IndexError) as error:
            raise InputError(f"'{ast.unparse(node)}': {error}") from None

    def _visit_slice(self, node: ast.Slice) -> slice:
        return slice(
            *(
                None if size_part is None else self._evaluate(size_part)
                for size_part in (node.lower, node.upper, node.step)
            )
        )

    def _visit_tuple(self, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
        elements: list[Any] = []
        for item in node.elts:
            elements.extend(self._evaluate(item.value)) if isinstance(item, ast.Starred) else elements.append(
                self._evaluate(item)
            )
        return tuple(elements)

    _visit_list = _visit_tuple

    def _visit_dict(self, node: ast.Dict) -> dict[Any, Any]:
        return {
            self._evaluate(key): self._evaluate(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }

    def _visit_binop(self, node: ast.BinOp) -> Any:
        if type(node.op) not in _BINARY:
            raise InputError(f"'{ast.unparse(node)}' is not supported in a rule")
        left, right = self._evaluate(node.left), self._evaluate(node.right)
        try:
            return _BINARY[type(node.op)](left, right)
        except (TypeError, ZeroDivisionError) as error:
            raise InputError(f"'{ast.unparse(node)}': {error}") from None

    def _visit_unaryop(self, node: ast.UnaryOp) -> Any:
        if not isinstance(node.op, ast.USub):
            raise InputError(f"'{ast.unparse(node)}' is not supported in a rule")
        return -self._evaluate(node.operand)

    def _visit_compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
            raise InputError(f"'{ast.unparse(node)}' is not supported in a rule")
        left, right = self._evaluate(node.left), self._evaluate(node.comparators[0])
        operator_symbol = _COMPARISONS[type(node.ops[0])]
        if not isinstance(left, SymbolicSize) and not isinstance(right, SymbolicSize):
            comparison_functions = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
            return {**comparison_functions, "==": operators.eq, "!=": operators.ne}[operator_symbol](left, right)
        first_size, second_size = to_symbolic_size(left), to_symbolic_size(right)
        if first_size.real or second_size.real:
            raise InputError(
                f"'{ast.unparse(node)}': sizes are compared as integers, but one of these is real: multiply instead of dividing, "
                "as in 'x.shape[0] > x.shape[1]' for 'x.shape[0] / x.shape[1] > 1', or divide by //"
            )
        return SymbolicSize(f"({first_size.text} {operator_symbol} {second_size.text})")

    def _visit_ifexp(self, node: ast.IfExp) -> Any:
        condition = self._evaluate(node.test)
        if not isinstance(condition, SymbolicSize):
            return self._evaluate(node.body if condition else node.orelse)
        first_size, second_size = (
            to_symbolic_size(self._evaluate(node.body)),
            to_symbolic_size(self._evaluate(node.orelse)),
        )
        return SymbolicSize(
            f"({condition.text} ? {first_size.text} : {second_size.text})", first_size.real or second_size.real
        )

    def _visit_call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        call_arguments = [self._evaluate(argument_node) for argument_node in node.args]
        if (
            node.keywords
            or (name, len(call_arguments))
            not in (("len", 1), ("min", len(call_arguments)), ("max", len(call_arguments)))
            or not call_arguments
        ):
            raise InputError(f"'{ast.unparse(node)}': expected min, max or len of numbers")
        if name == "len":
            return len(call_arguments[0])
        combined = to_symbolic_size(call_arguments[0])
        for argument_node in call_arguments[1:]:
            combined = combined._apply_function(name, argument_node)
        return combined


def evaluate_rule(rule: Rule, names: Mapping[str, Any]) -> Any:
    """Evaluate a rule. names: the inputs, outputs and attributes that it may use.

    Raise InputError if an expression is invalid, or if a callable has unknown parameters or raises.
    """
    if isinstance(rule, str):
        return _RuleExpression(rule, names).evaluate()
    parameters = inspect.signature(rule).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        rule_arguments = dict(names)
    else:
        if unknown := [
            parameter.name
            for parameter in parameters
            if parameter.name not in names and parameter.default is parameter.empty
        ]:
            raise InputError(f"expected parameters of {', '.join(names)}; given '{unknown[0]}'")
        rule_arguments = {parameter.name: names[parameter.name] for parameter in parameters if parameter.name in names}
    try:
        return rule(**rule_arguments)
    except InputError:
        raise
    except Exception as error:  # the caller's function may raise anything
        raise InputError(f"it raises {type(error).__name__}: {error}") from error


def format_sizes(value: Any) -> str:
    """Format a shape for the engine: "x0_0;(x0_1 * 2)", or "=0" for the shape of input 0. Raise InputError if a size is not an integer."""
    if isinstance(value, SymbolicShape) and value.name.startswith("x"):
        return f"={value.name[1:]}"
    value = to_python_number(value)
    size_items = (
        [value]
        if isinstance(value, (SymbolicSize, *_NUMBERS))
        else list(value)
        if isinstance(value, Iterable)
        else None
    )
    if size_items is None or isinstance(value, str):
        raise InputError(f"expected sizes, given {value!r}")
    size_list = [to_symbolic_size(size_part) for size_part in size_items]
    if any(size_item.real for size_item in size_list):
        raise InputError("expected integers as sizes; use // to divide")
    return ";".join(size_item.text for size_item in size_list)


def format_number(value: Any) -> str:
    """Format a number or a list of numbers for the engine: "3", "r:0.5", "[1;2]". Raise InputError for other values."""
    value = to_python_number(value)
    if isinstance(value, (list, tuple)):
        return f"[{';'.join(map(format_number, value))}]"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"r:{value!r}"
    size_expression = to_symbolic_size(value)
    return f"r:{size_expression.text}" if size_expression.real else size_expression.text
