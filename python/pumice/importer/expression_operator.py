"""User-defined elementwise operators: each expression becomes a model-local ONNX function.

The importer expands such functions like any others, so their nodes are fused and validated as usual.
"""

from __future__ import annotations

import ast
import keyword
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, graph_error

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

    from .file.model_file import Folder, Source

_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_MIN_OPSET = 15  # the first opset with CastLike and model-local functions
_MIN_IR_VERSION = 8  # the first IR version with functions
_FLOAT_MAX = 3.4028234663852886e38  # FLT_MAX
_MAX_NESTING = 100  # maximum nesting levels of an expression
_BINARY = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow"}
_COMPARISONS = {ast.Lt: "Less", ast.LtE: "LessOrEqual", ast.Gt: "Greater", ast.GtE: "GreaterOrEqual", ast.Eq: "Equal"}
_LOGIC = {ast.And: "And", ast.Or: "Or"}
_UNARY_FUNCTIONS = {
    **{name: name.capitalize() for name in ("abs", "ceil", "erf", "exp", "floor", "log", "round", "sign", "sqrt")},
    **{name: name.capitalize() for name in ("sigmoid", "softplus", "relu", "reciprocal")},
    **{
        f"{arc}{name}{h}": f"{arc}{name}{h}".capitalize()
        for name in ("sin", "cos", "tan")
        for arc in ("", "a")
        for h in ("", "h")
    },
}
_MULTI_ARGUMENT_FUNCTIONS = {"min": ("Min", 2), "max": ("Max", 2), "pow": ("Pow", 2), "where": ("Where", 3)}


class ElementwiseOperator:
    """An operator created by `pumice.operator()`. `name`, `expression`, `inputs` and `attributes` are as passed or inferred."""

    def __init__(
        self, name: str, expression: str, inputs: tuple[str, ...], attributes: dict[str, float | None]
    ) -> None:
        self.name = name
        self.expression = expression
        self.inputs = inputs
        self.attributes = attributes

    def __repr__(self) -> str:
        attribute_text = "".join(f", {name}={value}" for name, value in self.attributes.items())
        return f"<operator {self.name}({', '.join(self.inputs)}{attribute_text}) = {self.expression}>"


def operator(
    name: str,
    expression: str,
    inputs: Sequence[str] | None = None,
    attributes: Mapping[str, float | None] | None = None,
) -> ElementwiseOperator:
    """Return an elementwise operator for `load(model, operators=[...])`.

    Example: `operator("Softcap", "cap * tanh(x / cap)", ["x"], {"cap": 30})`.

    name: the node's operator, such as "my.domain::Softcap", or "Softcap" for any domain but ONNX's own.
    expression: names, numbers, + - * / **, comparisons, and, or, not, `a if condition else b`, and the functions abs,
    ceil, erf, exp, floor, log, round, sign, sqrt, sigmoid, softplus, relu, reciprocal, sin, cos, tan (also with a- and
    -h), min, max, pow, where. inputs: names of the node's inputs in order; by default all names that are not
    attributes, in order of first use. attributes: the node's float attributes with their defaults, None if the node
    must set it.

    Inputs broadcast as in ONNX. Numbers and attributes are cast to the type of the first input. Raise InputError if an
    argument is invalid.
    """
    if not isinstance(name, str) or not all(name_part.isidentifier() for name_part in name.rpartition("::")[2:]):
        raise InputError(f"operator: name: expected an operator, as 'my.domain::Softcap'; given {name!r}")
    if "::" in name and name.rpartition("::")[0] in _ONNX_DOMAINS:
        raise InputError(f"operator: name: expected a domain other than ONNX's own; given {name!r}")
    tree = _parse_expression(name, expression)
    attribute_defaults = {
        str(key): None if value is None else float(value) for key, value in (attributes or {}).items()
    }
    used_names = list(dict.fromkeys(_iterate_names(tree)))
    names = (
        tuple(name_item for name_item in used_names if name_item not in attribute_defaults)
        if inputs is None
        else tuple(inputs)
    )
    if (
        isinstance(inputs, str)
        or not names
        or len({*names, *attribute_defaults}) != len(names) + len(attribute_defaults)
    ):
        raise InputError(
            f"operator '{name}': inputs: expected at least one name, all different and none of an attribute; given {inputs!r}"
        )
    for name_item in (*names, *attribute_defaults):
        if name_item not in used_names or keyword.iskeyword(name_item):
            raise InputError(
                f"operator '{name}': expected only names of the expression, {', '.join(used_names)}; given {name_item!r}"
            )
    if missing := [
        name_item for name_item in used_names if name_item not in names and name_item not in attribute_defaults
    ]:
        raise InputError(f"operator '{name}': '{missing[0]}' is neither an input nor an attribute")
    _ExpressionBody(name, names, attribute_defaults).add_expression(tree)  # raises for unsupported syntax
    return ElementwiseOperator(name, expression, names, attribute_defaults)


def _parse_expression(name: str, expression: str) -> ast.expr:
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError, AttributeError) as error:
        raise InputError(f"operator '{name}': expected an expression, given {expression!r} ({error})") from None


def _iterate_names(tree: ast.expr) -> Iterator[str]:
    """Yield the variable names of an expression in source order, with repetitions."""
    called_ids = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    variable_nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called_ids]
    return (node.id for node in sorted(variable_nodes, key=lambda node: (node.lineno, node.col_offset)))


class _ExpressionBody:
    """Translates an expression to ONNX nodes. nodes: (operator, inputs, output, attributes) of each node."""

    def __init__(self, name: str, inputs: tuple[str, ...], attributes: Mapping[str, float | None]) -> None:
        self._name = name
        self._inputs = inputs
        self._attributes = attributes
        self.nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []

    def add_expression(self, tree: ast.expr) -> str:
        """Add the nodes of an expression and return the name of its output."""
        return self._translate(tree, _MAX_NESTING)

    def _add_node(self, op: str, *inputs: str, **attributes: Any) -> str:
        output_name = f"pm_{len(self.nodes)}"  # unique, because names in the expression must not start with pm_
        self.nodes.append((op, list(inputs), output_name, attributes))
        return output_name

    def _cast_like_first_input(self, **attributes: Any) -> str:
        return self._add_node("CastLike", self._add_node("Constant", **attributes), self._inputs[0])

    def _translate(self, tree: ast.expr, levels: int) -> str:
        if levels == 0:
            raise InputError(f"operator '{self._name}': expected at most {_MAX_NESTING} levels of an expression")

        def translate_all(*trees: ast.expr) -> list[str]:
            return [self._translate(subtree, levels - 1) for subtree in trees]

        if isinstance(tree, ast.Name):
            return self._resolve_name(tree.id)
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float) and not isinstance(tree.value, bool):
            return self._add_number(tree.value)
        if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
            return self._add_node(_BINARY[type(tree.op)], *translate_all(tree.left, tree.right))
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.Not):
            return self._add_node("Neg" if isinstance(tree.op, ast.USub) else "Not", *translate_all(tree.operand))
        if isinstance(tree, ast.BoolOp):
            first, *rest = translate_all(*tree.values)
            for subtree in rest:
                first = self._add_node(_LOGIC[type(tree.op)], first, subtree)
            return first
        if isinstance(tree, ast.IfExp):
            return self._add_node("Where", *translate_all(tree.test, tree.body, tree.orelse))
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            operands = translate_all(tree.left, *tree.comparators)
            if isinstance(tree.ops[0], ast.NotEq):
                return self._add_node("Not", self._add_node("Equal", *operands))
            if type(tree.ops[0]) in _COMPARISONS:
                return self._add_node(_COMPARISONS[type(tree.ops[0])], *operands)
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.keywords:
            return self._add_node(self._get_onnx_operator(tree.func.id, len(tree.args)), *translate_all(*tree.args))
        raise InputError(
            f"operator '{self._name}': '{ast.unparse(tree)}' is not supported in an elementwise expression"
        )

    def _add_number(self, value: int | float) -> str:
        if abs(value) > _FLOAT_MAX:
            raise InputError(f"operator '{self._name}': expected float32 numbers of at most {_FLOAT_MAX:.3g}")
        return self._cast_like_first_input(value_float=float(value))

    def _resolve_name(self, name: str) -> str:
        if name.startswith("pm_"):
            raise InputError(f"operator '{self._name}': names that begin with pm_ are reserved for generated nodes")
        if name in self._attributes:
            return self._cast_like_first_input(of=name)
        return name

    def _get_onnx_operator(self, function: str, count: int) -> str:
        op, expected = _MULTI_ARGUMENT_FUNCTIONS.get(function, (_UNARY_FUNCTIONS.get(function, ""), 1))
        if not op:
            raise InputError(
                f"operator '{self._name}': expected one of {', '.join([*_UNARY_FUNCTIONS, *_MULTI_ARGUMENT_FUNCTIONS])}; given '{function}'"
            )
        if count != expected and not (function in ("min", "max") and count > expected):
            raise InputError(f"operator '{self._name}': {function} takes {expected} arguments; given {count}")
        return op


# ---- conversion to model-local functions


def add_operator_functions(
    source: Source, folder: Folder | None, operators: Sequence[ElementwiseOperator]
) -> tuple[bytes, Folder | None]:
    """Return the model's bytes with a function added for each operator, and the folder of its weights files.

    Raise InputError if no node uses an operator, if the model already defines it, or if the opset is below 15. Raise
    GraphError if a node's inputs or attributes do not match its operator.
    """
    from onnx import ModelProto

    from .file.model_file import ModelFile
    from .parse_onnx import parse_model

    file = ModelFile(source, folder)
    model = ModelProto()
    model.CopyFrom(parse_model(file))
    version = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if version < _MIN_OPSET:
        raise InputError(f"operators: expected a model of operator set {_MIN_OPSET} or more; given {version}")
    known_domains = {entry.domain for entry in model.opset_import}
    for user_operator in operators:
        if not isinstance(user_operator, ElementwiseOperator):
            raise InputError(
                f"operators: expected the result of pumice.operator(); given {type(user_operator).__name__}"
            )
        for domain in _find_domains(model, user_operator, file.name):
            model.functions.append(_make_onnx_function(user_operator, domain, version))
            if domain not in known_domains:
                model.opset_import.add(domain=domain, version=1)
                known_domains.add(domain)
    model.ir_version = max(model.ir_version, _MIN_IR_VERSION)
    weights_folder = (
        folder if folder is not None else os.path.dirname(os.path.abspath(file.path)) if file.path else None
    )
    return model.SerializeToString(), weights_folder


def _iterate_graphs(graph: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    yield graph
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            yield from _iterate_graphs(inner)


def _find_domains(model: ModelProto, user_operator: ElementwiseOperator, file: str) -> list[str]:
    """Return the domains of the nodes that use an operator. Raise InputError if there are none, GraphError if a node does not match it."""
    domain, _, op = user_operator.name.rpartition("::")
    bodies = [model.graph, *model.functions]
    nodes = [node for body in bodies for graph in _iterate_graphs(body) for node in graph.node if node.op_type == op]
    nodes = [node for node in nodes if (node.domain == domain if domain else node.domain not in _ONNX_DOMAINS)]
    if not nodes:
        raise InputError(f"operators: '{user_operator.name}': no node of '{file}' is of this operator")
    for function in model.functions:
        if function.name == op and function.domain in {node.domain for node in nodes}:
            raise InputError(
                f"operators: '{user_operator.name}': '{file}' has a function of this name, or it is given twice"
            )
    for node in nodes:
        _check_operator_node(node, user_operator)
    return list(dict.fromkeys(node.domain for node in nodes))


def _check_operator_node(node: NodeProto, user_operator: ElementwiseOperator) -> None:
    from onnx import AttributeProto

    node_label = node.name or (node.output[0] if node.output else "")
    if len(node.input) != len(user_operator.inputs) or not all(node.input) or len(node.output) != 1:
        counts = f"{len(node.input)} inputs and {len(node.output)} outputs"
        raise graph_error(
            "node",
            node_label,
            f"expected {', '.join(user_operator.inputs)} and one output, as {user_operator.name} has; given {counts}",
        )
    for attribute in node.attribute:
        if attribute.name not in user_operator.attributes or attribute.type != AttributeProto.FLOAT:
            expected = f"float attributes of {user_operator.name}: {', '.join(user_operator.attributes) or 'none'}"
            raise graph_error("node", node_label, f"attribute '{attribute.name}': expected {expected}")
    attribute_names = {attribute.name for attribute in node.attribute}
    for name, default in user_operator.attributes.items():
        if default is None and name not in attribute_names:
            raise graph_error(
                "node", node_label, f"attribute '{name}' is missing, and {user_operator.name} has no default for it"
            )


def _make_onnx_function(user_operator: ElementwiseOperator, domain: str, version: int) -> FunctionProto:
    from onnx import AttributeProto, helper

    function_name = user_operator.name.rpartition("::")[2]
    body = _ExpressionBody(user_operator.name, user_operator.inputs, user_operator.attributes)
    result = body.add_expression(_parse_expression(user_operator.name, user_operator.expression))
    function_nodes = []
    for index, (op, inputs, output, attributes) in enumerate(body.nodes):
        reference = attributes.pop("of", None)
        node = helper.make_node(op, inputs, [output], f"{function_name}/{op}_{index}", **attributes)
        if reference is not None:
            node.attribute.append(
                AttributeProto(name="value_float", ref_attr_name=reference, type=AttributeProto.FLOAT)
            )
        function_nodes.append(node)
    if not function_nodes:
        function_nodes, result = [helper.make_node("Identity", [result], ["pm_0"])], "pm_0"
    return helper.make_function(
        domain,
        function_name,
        list(user_operator.inputs),
        [result],
        function_nodes,
        [helper.make_opsetid("", version)],
        [name for name, default in user_operator.attributes.items() if default is None],
        [
            helper.make_attribute(name, default)
            for name, default in user_operator.attributes.items()
            if default is not None
        ],
    )
