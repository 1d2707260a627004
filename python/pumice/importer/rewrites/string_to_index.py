"""Replace a model's strings with indices into a table, so that operators that only move elements work on the indices.

Operators that compute with strings are rejected. The empty string has index 0, because padding and empty loops yield 0.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from ...base.errors import graph_error
from ..build.compound_values import Kind
from ..file.recipe import STRING, Attribute, ConstantRecipe, InputRecipe, NodeRecipe, NotExpressible, Recipe

NUMBER = "int64"
_NO_KEY = "_Unused"  # default output of ai.onnx.ml's encoders for unknown keys


class _Moves(NamedTuple):
    """The inputs of an operator that may be strings (all or none), and whether its outputs are then strings."""

    inputs: tuple[int, ...] | None = (0,)  # None for every input
    gives: bool = True


_FIRST, _EACH, _COUNTS = _Moves(), _Moves(None), _Moves(gives=False)
MOVES = {
    **dict.fromkeys(
        (
            "Compress",
            "ConcatFromSequence",
            "DepthToSpace",
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "GatherND",
            "Identity",
            "Optional",
            "OptionalGetElement",
            "Reshape",
            "ReverseSequence",
            "SequenceAt",
            "SequenceErase",
            "Slice",
            "SpaceToDepth",
            "Split",
            "SplitToSequence",
            "Squeeze",
            "Tile",
            "Transpose",
            "Unsqueeze",
            "ai.onnx.ml::ArrayFeatureExtractor",
        ),
        _FIRST,
    ),
    **dict.fromkeys(("Concat", "SequenceConstruct"), _EACH),
    **dict.fromkeys(("OptionalHasElement", "SequenceLength", "Shape", "Size"), _COUNTS),
    **dict.fromkeys(("Pad", "ScatterElements", "ScatterND"), _Moves((0, 2))),
    "SequenceInsert": _Moves((0, 1)),
    "Where": _Moves((1, 2)),
}
# Operators with subgraphs -> (index of the first input passed to the body, index of the body input that receives it).
_BODIES = {"Loop": (2, 2), "Scan": (0, 0), "SequenceMap": (0, 0)}
# Classifier -> integer attribute that holds its labels after the conversion.
_CLASSIFIERS = {
    "ai.onnx.ml::LinearClassifier": "classlabels_ints",
    "ai.onnx.ml::SVMClassifier": "classlabels_ints",
    "ai.onnx.ml::TreeEnsembleClassifier": "classlabels_int64s",
}


def is_string(dtype: str) -> bool:
    """Return whether a value of this type is or contains strings."""
    return Kind.of(dtype).dtype == STRING


def _as_number(dtype: str) -> str:
    return dtype.replace(STRING, NUMBER) if is_string(dtype) else dtype


class _Table:
    def __init__(self) -> None:
        self.places = {"": 0}
        self.values: dict[str, None] = {}  # names of all string values in all graphs, in order

    def place(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))

    def constant(self, given: ConstantRecipe) -> ConstantRecipe:
        if given.dtype != STRING:
            return given
        places = np.array([self.place(text) for text in json.loads(bytes(given.raw))], np.int64)
        return given._replace(dtype=NUMBER, raw=places.tobytes())


class _Graph:
    """A graph being rewritten; `strings` are the names of its values that are or contain strings."""

    def __init__(self, recipe: Recipe, table: _Table, outside: set[str]) -> None:
        self.recipe = recipe
        self.table = table
        self.strings = outside.intersection(recipe.captured)
        self.nodes: list[NodeRecipe] = []

    def numbered(self, inputs: list[bool] | None = None) -> Recipe:
        """Rewrite the graph with indices in place of strings.

        inputs: which inputs are strings, if the enclosing graph knows. Raise GraphError if an input's declaration
        contradicts that.
        """
        recipe = self.recipe
        for i, value in enumerate(recipe.inputs):
            known = is_string(value.dtype) if inputs is None else inputs[i]
            if value.dtype and known != is_string(value.dtype):
                given = "strings" if known else "no strings"
                raise graph_error(
                    "input", value.name, f"of graph '{recipe.name}': expected {value.dtype}, given {given}"
                )
            self._keep([value.name], known)
        for constants in (recipe.constants, recipe.defaults):
            for name, constant in constants.items():
                self._keep([name], constant.dtype == STRING)
        for node in recipe.nodes:
            self._add(node)
        return recipe._replace(
            inputs=[value._replace(dtype=_as_number(value.dtype)) for value in recipe.inputs],
            outputs=[self._output(value) for value in recipe.outputs],
            constants={name: self.table.constant(constant) for name, constant in recipe.constants.items()},
            defaults={name: self.table.constant(constant) for name, constant in recipe.defaults.items()},
            nodes=self.nodes,
        )

    def _output(self, value: InputRecipe) -> InputRecipe:
        return value._replace(dtype=_as_number(value.dtype))

    def _keep(self, names: list[str], are_strings: bool) -> None:
        (self.strings.update if are_strings else self.strings.difference_update)(names)
        if are_strings:
            self.table.values.update(dict.fromkeys(filter(None, names)))

    def _add(self, node: NodeRecipe) -> None:
        try:
            made, results = self._made(node)
        except NotExpressible as reason:
            made, results = node._replace(unsupported=node.unsupported or str(reason)), []
        attributes = {name: self._attribute(value) for name, value in made.attributes.items()}
        self.nodes.append(made._replace(attributes=attributes))
        for i, name in enumerate(node.outputs):
            self._keep([name], results[i] if i < len(results) else False)

    def _attribute(self, value: Attribute) -> Attribute:
        return self.table.constant(value) if isinstance(value, ConstantRecipe) else value

    def _made(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        """Return the rewritten node, and which of its outputs are strings.

        Raise NotExpressible if it computes with strings.
        """
        if node.op in _BODIES and node.subgraphs:
            return self._with_body(node)
        if node.op == "If" and node.subgraphs:
            return self._with_branches(node)
        if node.qualified_op in _ENCODERS:
            return _ENCODERS[node.qualified_op](self, node)
        if node.qualified_op in _CLASSIFIERS and node.attributes.get("classlabels_strings"):
            self._refuse_strings(node)
            return self._renamed(node, classlabels_strings=_CLASSIFIERS[node.qualified_op]), [True]
        for name in ("dtype", "type"):
            declared = node.attributes.get(name)
            if node.op in ("SequenceEmpty", "Optional") and isinstance(declared, str) and is_string(declared):
                return node._replace(attributes={**node.attributes, name: _as_number(declared)}), [True]
        moves = MOVES.get(node.qualified_op)
        if moves is None:
            self._refuse_strings(node)
            return node, []
        places = range(len(node.inputs)) if moves.inputs is None else moves.inputs
        moved = [node.inputs[i] for i in places if i < len(node.inputs) and node.inputs[i]]
        self._refuse_strings(node, [name for i, name in enumerate(node.inputs) if i not in places])
        are = {name in self.strings for name in moved}
        if len(are) > 1:
            raise graph_error("node", node.name, f"expected strings as all of {moved}, or as none, given some")
        if True in are and node.attributes.get("reduction", "none") != "none":
            self._refuse_strings(node)
        return node, [moves.gives and True in are] * len(node.outputs)

    def _refuse_strings(self, node: NodeRecipe, names: list[str] | None = None) -> None:
        for name in node.inputs if names is None else names:
            if name in self.strings:
                raise NotExpressible(f"strings ('{name}'), which are moved, but not computed with")

    def _subgraph(self, recipe: Recipe, inputs: list[bool]) -> tuple[Recipe, list[bool]]:
        inner = _Graph(recipe, self.table, self.strings)
        made = inner.numbered(inputs)
        return made, [output.name in inner.strings for output in recipe.outputs]

    def _with_body(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        first, taken = _BODIES[node.op]
        self._refuse_strings(node, node.inputs[:first])
        body = node.attributes.get("body")
        given = [False] * taken + [name in self.strings for name in node.inputs[first:]]
        if not isinstance(body, Recipe) or len(body.inputs) != len(given):
            return node, []  # the builder rejects the node
        made, results = self._subgraph(body, given)
        if node.op == "Loop":
            results = results[1:]
            for i, name in enumerate(node.inputs[2:]):
                if i < len(results) and results[i] != (name in self.strings):
                    raise graph_error(
                        "node", node.name, f"'{name}': strings become numbers in the body, or numbers strings"
                    )
        return node._replace(attributes={**node.attributes, "body": made}), results

    def _with_branches(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        self._refuse_strings(node)
        made: dict[str, Attribute] = dict(node.attributes)
        both = []
        for name, graph in node.subgraphs.items():
            if graph.inputs:
                return node, []
            made[name], results = self._subgraph(graph, [])
            both.append(results[: len(node.outputs)])
        if any(results != both[0] for results in both):
            raise graph_error("node", node.name, "one branch gives strings where the other gives none")
        return node._replace(attributes=made), both[0]

    def _renamed(self, node: NodeRecipe, **names: str) -> NodeRecipe:
        """Convert string attributes to indices under other attribute names.

        Raise GraphError if one is not a list of strings.
        """
        attributes = {name: value for name, value in node.attributes.items() if name not in names}
        for name, other in names.items():
            given = node.attributes.get(name)
            if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
                raise graph_error("node", node.name, f"attribute '{name}': expected strings, given {given!r}")
            attributes[other] = [self.table.place(str(text)) for text in given]
        return node._replace(attributes=attributes)

    # ---- encoders

    def _role(self, node: NodeRecipe, role: str) -> tuple[NodeRecipe, bool]:
        """Return the node with its keys or values (the role) as indices, and whether they were strings."""
        if node.attributes.get(f"{role}_strings"):
            return self._renamed(node, **{f"{role}_strings": f"{role}_int64s"}), True
        tensor = node.attributes.get(f"{role}_tensor")
        return node, isinstance(tensor, ConstantRecipe) and tensor.dtype == STRING

    def _checked_input(self, node: NodeRecipe, strings: bool) -> None:
        if any((name in self.strings) != strings for name in node.inputs):
            raise graph_error(
                "node", node.name, f"expected {'strings' if strings else 'numbers'}, as what it knows, given others"
            )

    def label_encoder(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        if "classes_strings" in node.attributes:
            return self._by_classes(node)
        node, of_strings = self._role(node, "keys")
        self._checked_input(node, of_strings)
        node, gives = self._role(node, "values")
        if gives:
            missing = str(node.attributes.get("default_string", _NO_KEY))
            node = node._replace(attributes={**node.attributes, "default_int64": self.table.place(missing)})
        return node, [gives]

    def _by_classes(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        """Convert the LabelEncoder of opset 1, which maps a class to its position in the list."""
        given = node.attributes["classes_strings"]
        numbers = list(range(len(given))) if isinstance(given, list) else []
        attributes = {**node.attributes, "cats_strings": given, "cats_int64s": numbers}
        del attributes["classes_strings"]
        return self.category_mapper(node._replace(attributes=attributes))

    def category_mapper(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        """Convert CategoryMapper, which maps strings to integers or back, depending on its input."""
        of_strings = any(name in self.strings for name in node.inputs)
        roles = ("keys", "values") if of_strings else ("values", "keys")
        made = self._renamed(node, cats_strings=f"{roles[0]}_int64s").attributes
        made = {**made, f"{roles[1]}_int64s": made.pop("cats_int64s", [])}
        if not of_strings:
            made["default_int64"] = self.table.place(str(made.get("default_string", _NO_KEY)))
        return node._replace(attributes=made), [not of_strings]

    def one_hot_encoder(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        of_strings = bool(node.attributes.get("cats_strings"))
        self._checked_input(node, of_strings)
        return self._renamed(node, cats_strings="cats_int64s") if of_strings else node, []

    def tf_idf(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        of_strings = "pool_strings" in node.attributes
        self._checked_input(node, of_strings)
        return self._renamed(node, pool_strings="pool_int64s") if of_strings else node, []


_ENCODERS = {
    "TfIdfVectorizer": _Graph.tf_idf,
    "ai.onnx.ml::CategoryMapper": _Graph.category_mapper,
    "ai.onnx.ml::LabelEncoder": _Graph.label_encoder,
    "ai.onnx.ml::OneHotEncoder": _Graph.one_hot_encoder,
}


def without_strings(recipe: Recipe) -> Recipe:
    """Return the recipe with indices in place of strings, plus the string table and the names of string values."""
    table = _Table()
    made = _Graph(recipe, table, set()).numbered()
    return made._replace(strings=list(table.places) if table.values else (), string_values=list(table.values))
