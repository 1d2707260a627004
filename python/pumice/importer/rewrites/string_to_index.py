"""Replace strings by indices into a string table, so that data-movement operators work on integers.

Operators that compute with strings are rejected. The empty string has index 0, because padding and empty loops yield 0.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from ...base.errors import graph_error
from ..build.non_tensor_values import ValueKind
from ..file.graph_recipe import (
    STRING,
    Attribute,
    ConstantRecipe,
    GraphRecipe,
    InputRecipe,
    NodeRecipe,
    UnrepresentableError,
)

INDEX_DTYPE = "int64"
_UNKNOWN_KEY_DEFAULT = (
    "_Unused"  # the default of `default_string`, the output of ai.onnx.ml's encoders for unknown keys
)


class _StringMovementRule(NamedTuple):
    """The inputs of a data-movement operator that may be strings (all of them or none), and whether its outputs are then strings."""

    inputs: tuple[int, ...] | None = (0,)  # None: all inputs
    gives_strings: bool = True


_FIRST_INPUT, _ALL_INPUTS, _ONLY_COUNTS = (
    _StringMovementRule(),
    _StringMovementRule(None),
    _StringMovementRule(gives_strings=False),
)
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
        _FIRST_INPUT,
    ),
    **dict.fromkeys(("Concat", "SequenceConstruct"), _ALL_INPUTS),
    **dict.fromkeys(("OptionalHasElement", "SequenceLength", "Shape", "Size"), _ONLY_COUNTS),
    **dict.fromkeys(("Pad", "ScatterElements", "ScatterND"), _StringMovementRule((0, 2))),
    "SequenceInsert": _StringMovementRule((0, 1)),
    "Where": _StringMovementRule((1, 2)),
}
# Operator with a body -> (index of the first input passed to the body, index of the body input that receives it).
_BODY_INPUTS = {"Loop": (2, 2), "Scan": (0, 0), "SequenceMap": (0, 0)}
# Classifier -> integer attribute that contains its labels after the rewrite.
_CLASSIFIERS = {
    "ai.onnx.ml::LinearClassifier": "classlabels_ints",
    "ai.onnx.ml::SVMClassifier": "classlabels_ints",
    "ai.onnx.ml::TreeEnsembleClassifier": "classlabels_int64s",
}


def is_string(dtype: str) -> bool:
    """Return whether a type (see ValueKind) is a string tensor, or a sequence or optional value of string tensors."""
    return ValueKind.parse(dtype).dtype == STRING


def _to_index_dtype(dtype: str) -> str:
    return dtype.replace(STRING, INDEX_DTYPE) if is_string(dtype) else dtype


class _StringIndexTable:
    def __init__(self) -> None:
        self.indices = {"": 0}
        self.values: dict[str, None] = {}  # names of the string values of all graphs, in order

    def get_index(self, text: str) -> int:
        return self.indices.setdefault(text, len(self.indices))

    def encode_constant(self, constant_recipe: ConstantRecipe) -> ConstantRecipe:
        if constant_recipe.dtype != STRING:
            return constant_recipe
        indices = np.array([self.get_index(text) for text in json.loads(bytes(constant_recipe.raw))], np.int64)
        return constant_recipe._replace(dtype=INDEX_DTYPE, raw=indices.tobytes())


class _StringRewriter:
    """Rewrites one graph. strings: names of its values that are strings, or sequences or optional values with strings."""

    def __init__(self, recipe: GraphRecipe, table: _StringIndexTable, outer_strings: set[str]) -> None:
        self.recipe = recipe
        self.table = table
        self.strings = outer_strings.intersection(recipe.captured)
        self.nodes: list[NodeRecipe] = []

    def rewrite(self, inputs: list[bool] | None = None) -> GraphRecipe:
        """Return the graph with indices in place of strings.

        inputs: for a subgraph, whether each input contains strings; None: use the declared types. Raise GraphError if they disagree.
        """
        recipe = self.recipe
        for i, value in enumerate(recipe.inputs):
            is_string_value = is_string(value.dtype) if inputs is None else inputs[i]
            if value.dtype and is_string_value != is_string(value.dtype):
                string_kind = "strings" if is_string_value else "no strings"
                raise graph_error(
                    "input", value.name, f"of graph '{recipe.name}': expected {value.dtype}, given {string_kind}"
                )
            self._record_strings([value.name], is_string_value)
        for constants in (recipe.constants, recipe.defaults):
            for name, constant in constants.items():
                self._record_strings([name], constant.dtype == STRING)
        for node in recipe.nodes:
            self._add_node(node)
        return recipe._replace(
            inputs=[value._replace(dtype=_to_index_dtype(value.dtype)) for value in recipe.inputs],
            outputs=[self._to_index_output(value) for value in recipe.outputs],
            constants={name: self.table.encode_constant(constant) for name, constant in recipe.constants.items()},
            defaults={name: self.table.encode_constant(constant) for name, constant in recipe.defaults.items()},
            nodes=self.nodes,
        )

    def _to_index_output(self, value: InputRecipe) -> InputRecipe:
        return value._replace(dtype=_to_index_dtype(value.dtype))

    def _record_strings(self, names: list[str], are_strings: bool) -> None:
        (self.strings.update if are_strings else self.strings.difference_update)(names)
        if are_strings:
            self.table.values.update(dict.fromkeys(filter(None, names)))

    def _add_node(self, node: NodeRecipe) -> None:
        try:
            rewritten_node, results = self._rewrite_node(node)
        except UnrepresentableError as reason:
            rewritten_node, results = node._replace(unsupported=node.unsupported or str(reason)), []
        attributes = {name: self._encode_attribute(value) for name, value in rewritten_node.attributes.items()}
        self.nodes.append(rewritten_node._replace(attributes=attributes))
        for i, name in enumerate(node.outputs):
            self._record_strings([name], results[i] if i < len(results) else False)

    def _encode_attribute(self, value: Attribute) -> Attribute:
        return self.table.encode_constant(value) if isinstance(value, ConstantRecipe) else value

    def _rewrite_node(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        """Return the rewritten node, and whether each output contains strings.

        Raise UnrepresentableError if the node computes with strings.
        """
        if node.op in _BODY_INPUTS and node.subgraphs:
            return self._rewrite_body(node)
        if node.op == "If" and node.subgraphs:
            return self._rewrite_branches(node)
        if node.qualified_op in _ENCODERS:
            return _ENCODERS[node.qualified_op](self, node)
        if node.qualified_op in _CLASSIFIERS and node.attributes.get("classlabels_strings"):
            self._reject_strings(node)
            return self._encode_string_attributes(node, classlabels_strings=_CLASSIFIERS[node.qualified_op]), [True]
        for name in ("dtype", "type"):
            declared = node.attributes.get(name)
            if node.op in ("SequenceEmpty", "Optional") and isinstance(declared, str) and is_string(declared):
                return node._replace(attributes={**node.attributes, name: _to_index_dtype(declared)}), [True]
        moves = MOVES.get(node.qualified_op)
        if moves is None:
            self._reject_strings(node)
            return node, []
        indices = range(len(node.inputs)) if moves.inputs is None else moves.inputs
        moved_inputs = [node.inputs[i] for i in indices if i < len(node.inputs) and node.inputs[i]]
        self._reject_strings(node, [name for i, name in enumerate(node.inputs) if i not in indices])
        string_flags = {name in self.strings for name in moved_inputs}
        if len(string_flags) > 1:
            raise graph_error(
                "node", node.name, f"expected all or none of {moved_inputs} to be strings, given only some"
            )
        if True in string_flags and node.attributes.get("reduction", "none") != "none":
            self._reject_strings(node)
        return node, [moves.gives_strings and True in string_flags] * len(node.outputs)

    def _reject_strings(self, node: NodeRecipe, names: list[str] | None = None) -> None:
        for name in node.inputs if names is None else names:
            if name in self.strings:
                raise UnrepresentableError(f"strings ('{name}'), which are moved, but not computed with")

    def _rewrite_subgraph(self, recipe: GraphRecipe, inputs: list[bool]) -> tuple[GraphRecipe, list[bool]]:
        inner = _StringRewriter(recipe, self.table, self.strings)
        rewritten_graph = inner.rewrite(inputs)
        return rewritten_graph, [output.name in inner.strings for output in recipe.outputs]

    def _rewrite_body(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        first, num_generated = _BODY_INPUTS[node.op]
        self._reject_strings(node, node.inputs[:first])
        body = node.attributes.get("body")
        body_strings = [False] * num_generated + [name in self.strings for name in node.inputs[first:]]
        if not isinstance(body, GraphRecipe) or len(body.inputs) != len(body_strings):
            return node, []  # invalid; the builder will reject the node
        rewritten_graph, results = self._rewrite_subgraph(body, body_strings)
        if node.op == "Loop":
            results = results[1:]
            for i, name in enumerate(node.inputs[2:]):
                if i < len(results) and results[i] != (name in self.strings):
                    raise graph_error(
                        "node", node.name, f"'{name}': strings become numbers in the body, or numbers strings"
                    )
        return node._replace(attributes={**node.attributes, "body": rewritten_graph}), results

    def _rewrite_branches(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        self._reject_strings(node)
        new_attributes: dict[str, Attribute] = dict(node.attributes)
        branch_strings = []
        for name, graph in node.subgraphs.items():
            if graph.inputs:
                return node, []
            new_attributes[name], results = self._rewrite_subgraph(graph, [])
            branch_strings.append(results[: len(node.outputs)])
        if any(results != branch_strings[0] for results in branch_strings):
            raise graph_error("node", node.name, "one branch returns strings where the other does not")
        return node._replace(attributes=new_attributes), branch_strings[0]

    def _encode_string_attributes(self, node: NodeRecipe, **names: str) -> NodeRecipe:
        """Replace string attributes by index attributes. names: string attribute -> index attribute.

        Raise GraphError if an attribute is not a list of strings.
        """
        attributes = {name: value for name, value in node.attributes.items() if name not in names}
        for name, other in names.items():
            string_list = node.attributes.get(name)
            if not isinstance(string_list, list) or not all(isinstance(text, str) for text in string_list):
                raise graph_error("node", node.name, f"attribute '{name}': expected strings, given {string_list!r}")
            attributes[other] = [self.table.get_index(str(text)) for text in string_list]
        return node._replace(attributes=attributes)

    # ---- encoder operators of ai.onnx.ml

    def _encode_keys_or_values(self, node: NodeRecipe, role: str) -> tuple[NodeRecipe, bool]:
        """Return the node with indices as its keys or values, and whether these were strings. role: "keys" or "values"."""
        if node.attributes.get(f"{role}_strings"):
            return self._encode_string_attributes(node, **{f"{role}_strings": f"{role}_int64s"}), True
        tensor = node.attributes.get(f"{role}_tensor")
        return node, isinstance(tensor, ConstantRecipe) and tensor.dtype == STRING

    def _check_input(self, node: NodeRecipe, strings: bool) -> None:
        if any((name in self.strings) != strings for name in node.inputs):
            expected, given = ("strings", "numbers") if strings else ("numbers", "strings")
            raise graph_error("node", node.name, f"expected {expected}, like the keys in its attributes, given {given}")

    def rewrite_label_encoder(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        if "classes_strings" in node.attributes:
            return self._rewrite_opset1_label_encoder(node)
        node, has_string_keys = self._encode_keys_or_values(node, "keys")
        self._check_input(node, has_string_keys)
        node, gives_strings = self._encode_keys_or_values(node, "values")
        if gives_strings:
            missing = str(node.attributes.get("default_string", _UNKNOWN_KEY_DEFAULT))
            node = node._replace(attributes={**node.attributes, "default_int64": self.table.get_index(missing)})
        return node, [gives_strings]

    def _rewrite_opset1_label_encoder(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        """Rewrite a LabelEncoder of opset 1, which maps each class to its position in `classes_strings`."""
        string_list = node.attributes["classes_strings"]
        numbers = list(range(len(string_list))) if isinstance(string_list, list) else []
        attributes = {**node.attributes, "cats_strings": string_list, "cats_int64s": numbers}
        del attributes["classes_strings"]
        return self.rewrite_category_mapper(node._replace(attributes=attributes))

    def rewrite_category_mapper(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        """Rewrite CategoryMapper, which maps strings to integers or integers to strings, depending on its input."""
        has_string_keys = any(name in self.strings for name in node.inputs)
        roles = ("keys", "values") if has_string_keys else ("values", "keys")
        new_attributes = self._encode_string_attributes(node, cats_strings=f"{roles[0]}_int64s").attributes
        new_attributes = {**new_attributes, f"{roles[1]}_int64s": new_attributes.pop("cats_int64s", [])}
        if not has_string_keys:
            new_attributes["default_int64"] = self.table.get_index(
                str(new_attributes.get("default_string", _UNKNOWN_KEY_DEFAULT))
            )
        return node._replace(attributes=new_attributes), [not has_string_keys]

    def rewrite_one_hot_encoder(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        has_string_keys = bool(node.attributes.get("cats_strings"))
        self._check_input(node, has_string_keys)
        return self._encode_string_attributes(node, cats_strings="cats_int64s") if has_string_keys else node, []

    def rewrite_tfidf_vectorizer(self, node: NodeRecipe) -> tuple[NodeRecipe, list[bool]]:
        has_string_keys = "pool_strings" in node.attributes
        self._check_input(node, has_string_keys)
        return self._encode_string_attributes(node, pool_strings="pool_int64s") if has_string_keys else node, []


_ENCODERS = {
    "TfIdfVectorizer": _StringRewriter.rewrite_tfidf_vectorizer,
    "ai.onnx.ml::CategoryMapper": _StringRewriter.rewrite_category_mapper,
    "ai.onnx.ml::LabelEncoder": _StringRewriter.rewrite_label_encoder,
    "ai.onnx.ml::OneHotEncoder": _StringRewriter.rewrite_one_hot_encoder,
}


def convert_strings(recipe: GraphRecipe) -> GraphRecipe:
    """Return the recipe with indices in place of strings, with the string table and the names of string values added."""
    table = _StringIndexTable()
    rewritten_recipe = _StringRewriter(recipe, table, set()).rewrite()
    return rewritten_recipe._replace(
        strings=list(table.indices) if table.values else (), string_values=list(table.values)
    )
