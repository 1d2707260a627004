"""The operator catalogue: inputs, outputs and attributes of each operator as objects, text and HTML, and all as Markdown.

Element types, attributes and ranks come from the engine; versions and summaries from the installed onnx.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np

import pumice._pumice as _pumice

from .._pumice import AttributeSchema, NnapiOperand, NnapiOperation, OperatorRow, UnsupportedError, ValueRole
from ..base.errors import unsupported_error
from ..importer.rewrites.rewrite_table import CONTRIB, CONTRIB_DOMAIN, MAX_OPSET
from ..importer.translators.ml_operators import REJECTED_OPERATORS
from ..importer.translators.operator_table import TRANSLATORS

_CONTRIB_NAMES = [name for name in TRANSLATORS if name.startswith(f"{CONTRIB_DOMAIN}::")]
_DTYPE_FAMILIES = {
    "all": "float64 float32 float16 bfloat16 int64 uint64 int32 uint32 int16 uint16 int8 uint8 bool",
    "integers": "int64 uint64 int32 uint32 int16 uint16 int8 uint8",
    "floats": "float32 float16 bfloat16",
}

_EXPERIMENTAL_LEVEL = 0x7FFFFFFF  # feature level of experimental NNAPI operations


class OperatorSchema:
    """One operator in the latest version that the engine knows; the importer converts older nodes to it."""

    levels = "versions"

    def __init__(self, row: OperatorRow) -> None:
        self._row = row
        self.name: str = row.name
        self.domain, _, _ = row.name.rpartition("::")
        self.domain = self.domain or "ai.onnx"
        self.skeleton: str = row.skeleton
        self.expression: str = row.expression
        self.inputs: tuple[ValueRole, ...] = tuple(row.inputs)
        self.outputs: tuple[ValueRole, ...] = tuple(row.outputs)
        self.attributes: tuple[AttributeSchema, ...] = tuple(row.attributes)
        self.ranks: tuple[int, int] = row.ranks
        self.in_place: list[tuple[str, str]] = row.in_place
        self.host_inputs: tuple[str, ...] = tuple(row.inputs[i].name for i in row.host_inputs if i < len(row.inputs))
        self.index_input: str = "" if row.index_input is None else row.inputs[row.index_input].name

    @functools.cached_property
    def since(self) -> tuple[int, ...]:
        """The opset versions that introduced or changed the operator, oldest first; empty if ONNX does not define it."""
        return tuple(version for version in _load_version_histories().get(self.name, ()) if version <= MAX_OPSET)

    @functools.cached_property
    def doc(self) -> str:
        """The first sentence of ONNX's description."""
        import onnx.defs

        if not self.since:
            return ""
        domain = "" if self.domain == "ai.onnx" else self.domain
        text = onnx.defs.get_schema(self.name.rpartition("::")[2], self.since[-1], domain).doc or ""
        paragraph = next((section for section in re.split(r"\n\s*\n", text) if section.strip()), "")
        return re.split(r"(?<=[.:])\s", " ".join(paragraph.split()), maxsplit=1)[0]

    @property
    def qualified_name(self) -> str:
        """The name with its domain: 'ai.onnx::Conv'."""
        return self.name if "::" in self.name else f"{self.domain}::{self.name}"

    def _make_common_record(self) -> dict[str, Any]:
        return {"name": self.name, "domain": self.domain, "since": list(self.since), "doc": self.doc}

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain values for JSON."""
        return self._make_common_record() | {
            "skeleton": self.skeleton,
            "expression": self.expression,
            "inputs": [_make_role_record(role) for role in self.inputs],
            "outputs": [_make_role_record(role) for role in self.outputs],
            "attributes": [
                {key: getattr(attribute, key) for key in ("name", "kind", "required", "default", "choices")}
                for attribute in self.attributes
            ],
            "ranks": list(self.ranks),
            "in_place": self.in_place,
            "host_inputs": list(self.host_inputs),
            "index_input": self.index_input,
        }

    def facts(self) -> dict[str, str]:
        """Return one-line facts by name."""
        facts_table = {
            self.levels: ", ".join(map(str, self.since)) or "none of ONNX",
            "summary": self.doc,
            "kernel": self.skeleton,
            "computes": self.expression,
            "rank": _format_range(*self.ranks) if self.inputs else "",
            "in place": ", ".join(f"{output} in {input}" for input, output in self.in_place) or "no",
            "known on the host": ", ".join(self.host_inputs),
            "indices": self.index_input,
        }
        return {key: value for key, value in facts_table.items() if value}

    def value_rows(self) -> list[tuple[str, str, str]]:
        """Return the name, role and element types of every input and output."""
        return [
            (role.name, _format_role(kind, role), _format_dtypes(role))
            for kind, roles in (("input", self.inputs), ("output", self.outputs))
            for role in roles
        ]

    def attribute_rows(self) -> list[tuple[str, str, str, str]]:
        """Return the name, kind, default and choices of every attribute."""
        return [(x.name, x.kind, _format_default(x), ", ".join(map(str, x.choices))) for x in self.attributes]

    def __repr__(self) -> str:
        inputs_text = ", ".join(_format_role_signature(role) for role in self.inputs)
        outputs_text = ", ".join(_format_role_signature(role) for role in self.outputs)
        return f"<OperatorSchema {self.name}({inputs_text}) -> {outputs_text}>"

    def __str__(self) -> str:
        lines = [self.qualified_name]
        width = max(map(len, self.facts()))
        lines += [f"  {key:{width}}  {value}" for key, value in self.facts().items()]
        for title, rows in (("values", self.value_rows()), ("attributes", self.attribute_rows())):
            if rows:
                lines += [f"  {title}", *(f"    {line}" for line in _format_columns(rows))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ..base.html import render_properties, render_table

        parts = [
            render_properties(self.qualified_name, self.facts()),
            render_table(("value", "role", "element types"), self.value_rows()),
        ]
        if self.attributes:
            parts.append(render_table(("attribute", "kind", "default", "choices"), self.attribute_rows()))
        return "".join(parts)


class ExpandedOperatorSchema(OperatorSchema):
    """An operator that the importer expands into other operators, with ONNX's inputs and outputs."""

    skeleton = "composed"
    expression = ""
    inputs = ()
    outputs = ()
    attributes = ()
    ranks = (0, 0)
    host_inputs = ()
    index_input = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.domain = name.rpartition("::")[0] or "ai.onnx"
        self.in_place = []

    def facts(self) -> dict[str, str]:
        """Return one-line facts by name."""
        return {key: value for key, value in super().facts().items() if key != "in place"}


class NnapiSchema(OperatorSchema):
    """An NNAPI operation, with operands in NNAPI's order; it is expanded into nodes of the other operators."""

    levels = "feature level"
    skeleton = ""
    expression = ""
    attributes = ()
    ranks = (0, 0)
    host_inputs = ()
    index_input = ""

    def __init__(self, operation: NnapiOperation) -> None:
        self._operation = operation
        self.name = operation.name
        self.domain = "nnapi"
        self.in_place = []
        self.inputs: tuple[NnapiOperand, ...] = tuple(operation.inputs)
        self.outputs: tuple[NnapiOperand, ...] = tuple(operation.outputs)
        self.implicit: tuple[NnapiOperand, ...] = tuple(operation.implicit)

    @functools.cached_property
    def since(self) -> tuple[int, ...]:
        """The NNAPI feature level that introduced the operation."""
        return (self._operation.level,)

    @functools.cached_property
    def doc(self) -> str:
        """A one-sentence description of the operation."""
        return self._operation.summary

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain values for JSON."""
        return self._make_common_record() | {
            "inputs": [_make_role_record(role) | {"kind": role.kind} for role in self.inputs],
            "implicit": [_make_role_record(role) | {"kind": role.kind} for role in self.implicit],
            "outputs": [_make_role_record(role) for role in self.outputs],
        }

    def facts(self) -> dict[str, str]:
        """Return one-line facts by name."""
        facts_table = {
            self.levels: "experimental" if self.since == (_EXPERIMENTAL_LEVEL,) else str(self.since[0]),
            "summary": self.doc,
            "operands": ", ".join(map(_format_role_signature, self.inputs)),
            "or": ", ".join(map(_format_role_signature, self.implicit)),
        }
        return {key: value for key, value in facts_table.items() if value}

    def value_rows(self) -> list[tuple[str, str, str]]:
        """Return the name, role and element types of every operand and output."""
        names = {role.name for role in self.inputs}
        roles = [("input", role) for role in self.inputs]
        roles += [("input", role) for role in self.implicit if role.name not in names]
        roles += [("output", role) for role in self.outputs]
        rows = [(kind if role.kind == "tensor" else f"{kind}, {role.kind}", role) for kind, role in roles]
        return [(role.name, _format_role(kind, role), _format_dtypes(role)) for kind, role in rows]


@overload
def operators() -> list[OperatorSchema]: ...
@overload
def operators(name: str) -> OperatorSchema: ...
def operators(name: str | None = None) -> list[OperatorSchema] | OperatorSchema:
    """Return all operators by name, NNAPI last, or the operator of that name, with or without ONNX's domain.

    Raise UnsupportedError with similar names if there is no such operator.
    """
    schemas = _load_schemas()
    if name is None:
        return list(schemas.values())
    qualified = name.removeprefix("ai.onnx::")
    if qualified not in schemas:
        raise _make_unknown_error(name, schemas)
    return schemas[qualified]


def render_markdown() -> str:
    """Return the list of all operators as Markdown; docs/operators.md has the notes."""
    composed = [schema for schema in operators() if isinstance(schema, ExpandedOperatorSchema)]
    kernels = [schema for schema in operators() if schema.domain != "nnapi" and schema not in composed]
    nnapi = [schema for schema in operators() if schema.domain == "nnapi"]
    num_onnx_operators = sum(schema.domain.startswith("ai.onnx") for schema in [*kernels, *composed])
    sections = [
        f"## Operators with kernels\n\npumice runs {num_onnx_operators} ONNX operators: these and the composed ones.\n",
        _format_markdown_table(
            ("operator", "versions", "kernel"),
            [
                (f"[{x.name}](#{x.name.lower().replace(':', '')})", ", ".join(map(str, x.since)), x.skeleton)
                for x in kernels
            ],
        ),
        "## Operators that the importer composes\n",
        _format_markdown_table(
            ("operator", "versions"),
            [(schema.name, ", ".join(map(str, schema.since))) for schema in composed],
        ),
    ]
    for schema in kernels:
        facts = {key: value for key, value in schema.facts().items() if key not in ("versions", "summary", "kernel")}
        lines = [f"- {key}: " + (f"`{value}`" if key == "computes" else value) for key, value in facts.items()]
        sections.append(f"## {schema.name}\n\n" + "\n".join(lines) + "\n")
        sections.append(_format_markdown_table(("value", "role", "element types"), schema.value_rows()))
        if schema.attributes:
            header = ("attribute", "kind", "default", "choices")
            sections.append(_format_markdown_table(header, schema.attribute_rows()))
    sections.append(
        f"# Operators of {CONTRIB_DOMAIN}\n\nONNX Runtime's optimizer writes these. The importer turns them into ONNX operators: "
        + ", ".join(sorted([*CONTRIB, *(name.split("::")[1] for name in _CONTRIB_NAMES)]))
        + ".\n"
    )
    sections.append(f"# Operations of NNAPI\n\npumice supports all {len(nnapi)} of them.\n")
    for schema in nnapi:
        lines = [f"- {key}: {value}" for key, value in schema.facts().items()]
        sections.append(f"## {schema.name}\n\n" + "\n".join(lines) + "\n")
        sections.append(_format_markdown_table(("operand", "role", "element types"), schema.value_rows()))
    return "\n".join(sections)


@functools.cache
def _load_schemas() -> dict[str, OperatorSchema]:
    rows: dict[str, OperatorSchema] = {row.name: OperatorSchema(row) for row in _pumice.operators()}
    rows |= {
        name: ExpandedOperatorSchema(name)
        for name in TRANSLATORS
        if name not in {*rows, *REJECTED_OPERATORS, *_CONTRIB_NAMES}
    }
    rows = dict(sorted(rows.items()))
    return rows | {operation.name: NnapiSchema(operation) for operation in _pumice.nnapi_operations()}


@functools.cache
def _load_version_histories() -> dict[str, tuple[int, ...]]:
    import onnx.defs

    histories: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        name = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
        histories.setdefault(name, set()).add(schema.since_version)
    return {name: tuple(sorted(versions)) for name, versions in histories.items()}


def _make_unknown_error(name: str, known_names: Iterable[str]) -> UnsupportedError:
    import difflib

    names_by_lower = {candidate.lower(): candidate for candidate in known_names}
    close_matches = [
        names_by_lower[candidate]
        for candidate in difflib.get_close_matches(name.lower(), names_by_lower, n=5, cutoff=0.5)
    ]
    return unsupported_error(
        "the catalogue", [f"operator {name}" + (f"; near are {', '.join(close_matches)}" if close_matches else "")]
    )


def _make_role_record(role: ValueRole) -> dict[str, Any]:
    return {key: getattr(role, key) for key in ("name", "dtypes", "optional", "variadic", "type")}


def _format_role_signature(role: ValueRole) -> str:
    return f"{role.name}{'...' if role.variadic else ''}{'?' if role.optional else ''}"


def _format_role(kind: str, role: ValueRole) -> str:
    return kind + (", optional" if role.optional else "") + (", any number" if role.variadic else "")


def _format_dtypes(role: ValueRole) -> str:
    remaining = list(role.dtypes)
    if not remaining:
        return "" if getattr(role, "kind", "") == "graph" else "not supported"
    family_names = []
    for family, members in _DTYPE_FAMILIES.items():
        if set(members.split()) <= set(remaining):
            family_names.append(family)
            remaining = [dtype for dtype in remaining if dtype not in members.split()]
    text = ", ".join([*family_names, *remaining])
    return f"{role.type}: {text}" if role.type else text


def _format_default(attribute: AttributeSchema) -> str:
    if attribute.required:
        return "required"
    if isinstance(attribute.default, float):
        return str(np.float32(attribute.default)).removesuffix(".0")
    return "" if attribute.default is None else str(attribute.default)


def _format_range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _format_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _format_markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    print(render_markdown(), end="")
