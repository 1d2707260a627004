"""The operator catalogue: the inputs, outputs and attributes of each operator, as objects, text, HTML and the page docs/operators.md.

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
from ..importer.composed.ml_operators import REFUSED
from ..importer.composed.operator_table import COMPOSED
from ..importer.rewrites.rewrite_table import CONTRIB, CONTRIB_DOMAIN, NEWEST

_CONTRIB = [name for name in COMPOSED if name.startswith(f"{CONTRIB_DOMAIN}::")]
_FAMILIES = {
    "all": "float64 float32 float16 bfloat16 int64 uint64 int32 uint32 int16 uint16 int8 uint8 bool",
    "integers": "int64 uint64 int32 uint32 int16 uint16 int8 uint8",
    "floats": "float32 float16 bfloat16",
}

_INDICES = """Negative indices count from the end. A constant index that is out of range raises GraphError, at load if the sizes are known,
else at the call. If you pass indices as an input array, a call with one out of range raises IndexRangeError, which names the input, the
index and the range. This includes indices that go through casts and views first.

For indices computed on the device, an index out of range has this effect:

| operators | effect |
| --- | --- |
| Gather, GatherElements, GatherND, RotaryEmbedding, RoiAlign, MaxRoiPool | it counts as 0 |
| ScatterElements, ScatterND, TensorScatter, MaxUnpool | its update is dropped |
| OneHot | its row has no "on" value |
| ReverseSequence, RNN, LSTM, GRU, Attention | a length beyond its axis is clamped to the axis size |

`pumice.load(model, check_indices=True)` and `pumice.validate` report these indices (IndexRangeError) with the node, the index and the
element. They check the input listed as *indices* below; for MaxRoiPool, this is the first number of each box.

Several updates of one element are combined in any order, so a sum or product of floats may differ in its last bits between runs. Without
a reduction, any one of the updates remains. With `deterministic=True` updates are applied in their order. TopK orders equal elements by
index, and treats NaN as larger than any number.
"""

_CASTS = """Cast and CastLike truncate floats to integers; floats beyond the integer range saturate, and NaN becomes 0. A cast to a narrower
integer keeps the low bits, and so does a cast from float to a type of 2 or 4 bits. Casts to floats of 4 and 8 bits round to nearest
even. Casts from and to types of 2 to 8 bits go through float32, or through int32 between integers.

In the engine, only casts, QuantizeLinear and DequantizeLinear accept types of 2 and 4 bits and float8. In model files, operators that
move elements accept them too, through exact casts to a wider type: Concat, Expand, Flatten, Gather, GatherElements, GatherND,
Identity, Pad, Reshape, Slice, Split, Squeeze, Tile, Transpose, Unsqueeze, Where and a few more.
"""

_RANDOM = """Random numbers are Philox 4x32-10 of the seed, the run number, the node and the element's index. With one `seed` of
`pumice.load` they are bit-identical on every device. Without a seed, one is drawn from the system; `Model.seed` and the report contain
it. A newly loaded model starts the sequence again, and each further run gives other numbers. A node's attribute `seed` overrides the
model's; two nodes with the same seed give the same numbers. Uniform numbers have 24 random bits in float32 and narrower types, and 53 in
float64. Normal numbers are computed in float32.

RandomUniform, RandomUniformLike, RandomNormal, RandomNormalLike, Multinomial, Bernoulli and Dropout in training mode become the nodes
pumice::RandomUniform, pumice::RandomNormal, pumice::RandomMask and pumice::Multinomial. Their state is an input: seed and run number, two
uint32 words each.
"""

_WINDOWS = """These details apply to single operators:

- Pooling rejects images without elements. Convolution rejects a window larger than its padded axis.
- SAME_UPPER and SAME_LOWER never crop, in pooling and convolution. If a stride is larger than its window, their formula gives a negative
  padding, which counts as 0.
- Resize with pytorch_half_pixel to one element reads coordinate 0, whatever the scale.
- Float attributes are float32 in ONNX. A float64 operator computes with 0.00999999977648258 if the attribute is 0.01.
- A loop without iterations returns results of 0 rows, with the sizes that its first iteration would have. The states of a Scan keep their
  shapes.
"""

_PRECISION = """Models keep their 16-bit float inputs and outputs. At precision "fp32", intermediate tensors are float32 and are not
rounded to 16 bits. BitCast is the exception: it reads the bits of the dtype that the model declares.
"""

_COMPOSED = """The importer turns these into other nodes or control flow. Of ai.onnx.ml it accepts the numeric operators. It rejects
strings, float64 (except in tree ensembles), and a post_transform other than NONE, LOGISTIC and SOFTMAX. OneHotEncoder gives zeros for an
unknown category, whatever its attribute `zeros`. The label of TreeEnsembleClassifier is the class with the highest score.
"""

_COUNTS = """If the device computes an input that must be *known on the host*, the program is split there: it runs everything before,
reads the input once and continues. NonZero and Compress become two nodes each. pumice::CountNonZero counts on the device, the host reads
only the count, and pumice::NonZero or pumice::Compress writes a tensor of that size.
"""

_VALUES = """`pumice.Operator` takes the values of inputs that are *known on the host*, and binds nothing to their slots.
"""


_EXPERIMENTAL = 0x7FFFFFFF  # feature level of experimental NNAPI operations
_NNAPI = """`graph.add("nnapi::ADD", a, b, 0)` takes operands in NNAPI's order and adds nodes of the operators above. Numbers and lists of
numbers become constants of int32, float32 or bool. Scalars and lists have to be constants, with these exceptions: SLICE, STRIDED_SLICE,
RESHAPE, TILE, FILL, PAD, PAD_V2, MIRROR_PAD, TRANSPOSE, REVERSE, SQUEEZE, MEAN and other reductions, SPACE_TO_BATCH_ND and
BATCH_TO_SPACE_ND also accept lists that the program computes. `scale`, `zero_point` and `dtype` declare the output operand. You can omit
them if the operation defines them or they equal those of an operand.

The rules of an operation are checked when you add it. Rules about ranks, sizes and lists that are still unknown are checked when a program
is bound to sizes. Both errors name the node, the operation and the operand. If the expansion of an operation depends on an unknown rank,
it remains one node until the rank is known, and the program is compiled for each choice of ranks.

A SLICE with known sizes may begin at an index from the device. The call checks a begin that is an input of the call or follows from one. A
begin that only the device knows is clamped so that the slice fits, and `check_indices=True` reports it (IndexRangeError). Other indices
must not be negative. The host checks those passed as arrays at each call (IndexRangeError); [nnapi.md](nnapi.md#indices) describes the
effect of invalid indices on the device. A strided slice that runs backwards from before the first element is empty. An axis in
`shrink_axis_mask` needs a step above 0 and a range of one element, or a range from -1 to 0, which exporters use for the last element.

uint8 and int8 operands have a scale and a zero point and represent (integer - zero_point) * scale. Results are rounded to nearest even and
saturate. GEMM and convolution accumulate exactly, in int32. Their bias is int32 in units of the product of both scales, and its own scale
is optional. Elementwise operations compute in float32 between the integers, in one kernel if the operands have the same shape. A fused
activation is 0 (none), 1 (RELU), 2 (RELU1) or 3 (RELU6), and 0 for int32. Operands broadcast as in NumPy, except in SELECT. Sums of int32
wrap around; int32 divided by 0 is 0.
"""


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
        return tuple(version for version in _histories().get(self.name, ()) if version <= NEWEST)

    @functools.cached_property
    def doc(self) -> str:
        """The first sentence of ONNX's description."""
        import onnx.defs

        if not self.since:
            return ""
        domain = "" if self.domain == "ai.onnx" else self.domain
        text = onnx.defs.get_schema(self.name.rpartition("::")[2], self.since[-1], domain).doc or ""
        paragraph = next((part for part in re.split(r"\n\s*\n", text) if part.strip()), "")
        return re.split(r"(?<=[.:])\s", " ".join(paragraph.split()), maxsplit=1)[0]

    @property
    def qualified_name(self) -> str:
        """The name with its domain: 'ai.onnx::Conv'."""
        return self.name if "::" in self.name else f"{self.domain}::{self.name}"

    def _head(self) -> dict[str, Any]:
        return {"name": self.name, "domain": self.domain, "since": list(self.since), "doc": self.doc}

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain values for JSON."""
        return self._head() | {
            "skeleton": self.skeleton,
            "expression": self.expression,
            "inputs": [_role_record(role) for role in self.inputs],
            "outputs": [_role_record(role) for role in self.outputs],
            "attributes": [
                {key: getattr(one, key) for key in ("name", "kind", "required", "default", "choices")}
                for one in self.attributes
            ],
            "ranks": list(self.ranks),
            "in_place": self.in_place,
            "host_inputs": list(self.host_inputs),
            "index_input": self.index_input,
        }

    def facts(self) -> dict[str, str]:
        """Return one-line facts by name."""
        facts = {
            self.levels: ", ".join(map(str, self.since)) or "none of ONNX",
            "summary": self.doc,
            "kernel": self.skeleton,
            "computes": self.expression,
            "rank": _span(*self.ranks) if self.inputs else "",
            "in place": ", ".join(f"{output} in {input}" for input, output in self.in_place) or "no",
            "known on the host": ", ".join(self.host_inputs),
            "indices": self.index_input,
        }
        return {key: value for key, value in facts.items() if value}

    def value_rows(self) -> list[tuple[str, str, str]]:
        """Return the name, role and element types of every input and output."""
        return [
            (role.name, _role_text(kind, role), _dtypes_text(role))
            for kind, roles in (("input", self.inputs), ("output", self.outputs))
            for role in roles
        ]

    def attribute_rows(self) -> list[tuple[str, str, str, str]]:
        """Return the name, kind, default and choices of every attribute."""
        return [(one.name, one.kind, _default_text(one), ", ".join(map(str, one.choices))) for one in self.attributes]

    def __repr__(self) -> str:
        takes = ", ".join(_signature(role) for role in self.inputs)
        gives = ", ".join(_signature(role) for role in self.outputs)
        return f"<OperatorSchema {self.name}({takes}) -> {gives}>"

    def __str__(self) -> str:
        lines = [self.qualified_name]
        width = max(map(len, self.facts()))
        lines += [f"  {key:{width}}  {value}" for key, value in self.facts().items()]
        for title, rows in (("values", self.value_rows()), ("attributes", self.attribute_rows())):
            if rows:
                lines += [f"  {title}", *(f"    {line}" for line in _columns(rows))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ..base.html import facts, table

        parts = [
            facts(self.qualified_name, self.facts()),
            table(("value", "role", "element types"), self.value_rows()),
        ]
        if self.attributes:
            parts.append(table(("attribute", "kind", "default", "choices"), self.attribute_rows()))
        return "".join(parts)


class ComposedSchema(OperatorSchema):
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
        return self._head() | {
            "inputs": [_role_record(role) | {"kind": role.kind} for role in self.inputs],
            "implicit": [_role_record(role) | {"kind": role.kind} for role in self.implicit],
            "outputs": [_role_record(role) for role in self.outputs],
        }

    def facts(self) -> dict[str, str]:
        """Return one-line facts by name."""
        facts = {
            self.levels: "experimental" if self.since == (_EXPERIMENTAL,) else str(self.since[0]),
            "summary": self.doc,
            "operands": ", ".join(map(_signature, self.inputs)),
            "or": ", ".join(map(_signature, self.implicit)),
        }
        return {key: value for key, value in facts.items() if value}

    def value_rows(self) -> list[tuple[str, str, str]]:
        """Return the name, role and element types of every operand and output."""
        shown = [("input", role) for role in self.inputs]
        shown += [("input", role) for role in self.implicit if role.name not in {one.name for one in self.inputs}]
        shown += [("output", role) for role in self.outputs]
        return [
            (role.name, _role_text(kind if role.kind == "tensor" else f"{kind}, {role.kind}", role), _dtypes_text(role))
            for kind, role in shown
        ]


@overload
def operators() -> list[OperatorSchema]: ...
@overload
def operators(name: str) -> OperatorSchema: ...
def operators(name: str | None = None) -> list[OperatorSchema] | OperatorSchema:
    """Return all operators by name, NNAPI last, or the operator of that name, with or without ONNX's domain.

    Raise UnsupportedError with similar names if there is no such operator.
    """
    known = _known()
    if name is None:
        return list(known.values())
    wanted = name.removeprefix("ai.onnx::")
    if wanted not in known:
        raise _unknown(name, known)
    return known[wanted]


def page() -> str:
    """Return the text of docs/operators.md."""
    composed = [one for one in operators() if isinstance(one, ComposedSchema)]
    everything = [one for one in operators() if one.domain != "nnapi" and one not in composed]
    operations = [one for one in operators() if one.domain == "nnapi"]
    known = sum(one.domain.startswith("ai.onnx") for one in [*everything, *composed])
    parts = [
        "# Operators\n",
        f"pumice runs these {known} ONNX operators, up to operator set {NEWEST}. `pumice.operators()` and `pumice operators` list those of "
        "the installed version. This page is generated by `python -m pumice.tools.operator_catalogue`.\n",
        "In the tables, *all* means "
        + ", ".join(_FAMILIES["all"].split())
        + ". *integers* are the integer types of 8 to 64 bits, and *floats* are "
        + ", ".join(_FAMILIES["floats"].split())
        + ".\n",
        _INDICES,
        _CASTS,
        _PRECISION,
        _WINDOWS,
        _VALUES,
        _COUNTS,
        _RANDOM,
        _markdown(
            ("operator", "versions", "kernel"),
            [
                (f"[{one.name}](#{one.name.lower().replace(':', '')})", ", ".join(map(str, one.since)), one.skeleton)
                for one in everything
            ],
        ),
        _COMPOSED,
        _markdown(("operator", "versions"), [(one.name, ", ".join(map(str, one.since))) for one in composed]),
    ]
    for one in everything:
        facts = {key: value for key, value in one.facts().items() if key not in ("versions", "summary", "kernel")}
        lines = [f"- {key}: " + (f"`{value}`" if key == "computes" else value) for key, value in facts.items()]
        parts.append(f"## {one.name}\n\n" + "\n".join(lines) + "\n")
        parts.append(_markdown(("value", "role", "element types"), one.value_rows()))
        if one.attributes:
            parts.append(_markdown(("attribute", "kind", "default", "choices"), one.attribute_rows()))
    parts.append(
        f"# Operators of {CONTRIB_DOMAIN}\n\nONNX Runtime's optimizer writes these. The importer turns them into ONNX operators: "
        + ", ".join(sorted([*CONTRIB, *(name.split("::")[1] for name in _CONTRIB)]))
        + ".\n"
    )
    parts += [f"# Operations of NNAPI\n\npumice supports all {len(operations)} of them.\n", _NNAPI]
    for one in operations:
        parts.append(f"## {one.name}\n\n" + "\n".join(f"- {key}: {value}" for key, value in one.facts().items()) + "\n")
        parts.append(_markdown(("operand", "role", "element types"), one.value_rows()))
    return "\n".join(parts)


@functools.cache
def _known() -> dict[str, OperatorSchema]:
    rows: dict[str, OperatorSchema] = {row.name: OperatorSchema(row) for row in _pumice.operators()}
    rows |= {name: ComposedSchema(name) for name in COMPOSED if name not in {*rows, *REFUSED, *_CONTRIB}}
    rows = dict(sorted(rows.items()))
    return rows | {operation.name: NnapiSchema(operation) for operation in _pumice.nnapi_operations()}


@functools.cache
def _histories() -> dict[str, tuple[int, ...]]:
    import onnx.defs

    histories: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        name = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
        histories.setdefault(name, set()).add(schema.since_version)
    return {name: tuple(sorted(versions)) for name, versions in histories.items()}


def _unknown(name: str, known: Iterable[str]) -> UnsupportedError:
    import difflib

    by_case = {one.lower(): one for one in known}
    near = [by_case[one] for one in difflib.get_close_matches(name.lower(), by_case, n=5, cutoff=0.5)]
    return unsupported_error("the catalogue", [f"operator {name}" + (f"; near are {', '.join(near)}" if near else "")])


def _role_record(role: ValueRole) -> dict[str, Any]:
    return {key: getattr(role, key) for key in ("name", "dtypes", "optional", "variadic", "type")}


def _signature(role: ValueRole) -> str:
    return f"{role.name}{'...' if role.variadic else ''}{'?' if role.optional else ''}"


def _role_text(kind: str, role: ValueRole) -> str:
    return kind + (", optional" if role.optional else "") + (", any number" if role.variadic else "")


def _dtypes_text(role: ValueRole) -> str:
    left = list(role.dtypes)
    if not left:
        return "" if getattr(role, "kind", "") == "graph" else "not supported"
    named = []
    for family, members in _FAMILIES.items():
        if set(members.split()) <= set(left):
            named.append(family)
            left = [dtype for dtype in left if dtype not in members.split()]
    text = ", ".join([*named, *left])
    return f"{role.type}: {text}" if role.type else text


def _default_text(attribute: AttributeSchema) -> str:
    if attribute.required:
        return "required"
    if isinstance(attribute.default, float):
        return str(np.float32(attribute.default)).removesuffix(".0")
    return "" if attribute.default is None else str(attribute.default)


def _span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    from pathlib import Path

    from ..base.atomic_files import write_whole

    target = Path("docs/operators.md")
    target.parent.mkdir(exist_ok=True)
    write_whole(target, page())
    print(f"written: {target}")
