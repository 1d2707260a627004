"""The catalogue of operators: what each takes, gives and is told, as objects, text, HTML and the page docs/operators.md.

Element types, attributes and ranks are the engine's own; the versions and the summary are those of the installed onnx.
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
from ..importer.composed.ml import REFUSED
from ..importer.composed.table import COMPOSED
from ..importer.rewrites.table import CONTRIB, CONTRIB_DOMAIN, NEWEST

_CONTRIB = [name for name in COMPOSED if name.startswith(f"{CONTRIB_DOMAIN}::")]
_FAMILIES = {
    "all": "float64 float32 float16 bfloat16 int64 uint64 int32 uint32 int16 uint16 int8 uint8 bool",
    "integers": "int64 uint64 int32 uint32 int16 uint16 int8 uint8",
    "floats": "float32 float16 bfloat16",
}

_INDICES = """Indices count from the end where they are negative. A constant one out of range is refused (GraphError): at load where the
sizes are known, else at the call. A call with an array of integers that is an operator's indices, directly or after casts and views, raises
IndexRangeError, which names the input, the index and the range. Of those that only the device knows, one out of range is counted as 0 by
Gather, GatherElements, GatherND, RotaryEmbedding, RoiAlign and MaxRoiPool, is left out by ScatterElements, ScatterND, TensorScatter
and MaxUnpool and is nowhere in OneHot; a length beyond its axis (ReverseSequence, RNN, LSTM, GRU, Attention) is that of the axis.
`pumice.load(model, check_indices=True)` reports them at the call, by node, index and element (IndexRangeError), and so does
`pumice.validate`: those of the input that an operator has as *indices* below, which of MaxRoiPool is the first number of each box.
Several updates of one element are combined in any order, so that a sum or product of floats is not the same bits in every run;
without a reduction any one of them stays. With `deterministic=True` they are taken in their order. TopK orders equal elements by
their index, and NaN as larger than any number.
"""

_CASTS = """Cast and CastLike truncate a float that becomes an integer; one beyond the integers' range becomes the end of it, and NaN
becomes 0. An integer that becomes a narrower one keeps its low bits, and so does a float that becomes one of 2 or 4 bits. Floats of 4
and 8 bits are made by rounding to nearest, a half to even; casts from and to elements of 2 to 8 bits go through float32, or
int32 between integers. Beside casts, only QuantizeLinear and DequantizeLinear take them. In model files, operators that move
elements do too: Concat, Expand, Flatten, Gather, GatherElements, GatherND, Identity, Pad, Reshape, Slice, Split, Squeeze, Tile,
Transpose, Unsqueeze, Where and a few more, by casts to a wider type that holds the elements exactly.
"""

_RANDOM = """Random numbers are Philox 4x32-10 of a seed, of the number of the run, of the node and of where an element
is: the same on every device, bit by bit, for one `seed` of `pumice.load` (without one it is drawn from the system;
`Model.seed` and the report name it). The first run of a newly loaded model begins anew, and each further run makes
other numbers. A node's attribute `seed` stands in for the model's, and two nodes of one seed make the same numbers.
float32 and narrower uniform numbers have 24 random bits, float64 53; normal numbers are made in float32. RandomUniform,
RandomUniformLike, RandomNormal, RandomNormalLike, Multinomial, Bernoulli and Dropout in training become the nodes
pumice::RandomUniform, pumice::RandomNormal, pumice::RandomMask and pumice::Multinomial, which take the state as an
input: seed and run, two words each.
"""

_WINDOWS = """An image without elements is not pooled, and a convolution whose window is larger than its padded axis is refused. SAME_UPPER
and SAME_LOWER never take elements away: where a stride is larger than its window, the padding that their formula has negative is 0, in
pooling as in convolutions. Resize by pytorch_half_pixel to one element takes the place 0, whatever the scale. Attributes that ONNX
has as float are float32: an operator of float64 computes with the 0.00999999977648258 that 0.01 is there. A loop without an iteration
has results of no rows, whose sizes are those that its first iteration would give. The states of a Scan keep their shapes.
"""

_PRECISION = """Floats of 16 bits are what a model takes and gives; at precision "fp32" what lies between its nodes is kept in float32 and
not rounded to them, but for BitCast, which reads the bits of the dtype that the model has there.
"""

_COMPOSED = """These become other nodes, or control flow, where a model is imported. Of ai.onnx.ml what is about numbers is there:
texts, float64 (but in ensembles of trees) and a post_transform other than NONE, LOGISTIC and SOFTMAX are refused. OneHotEncoder makes
zeros of a category that it does not know, whatever its attribute `zeros` says. Of TreeEnsembleClassifier the label is the class of the
highest score.
"""

_COUNTS = """A graph is cut where an input that is *known on the host* is made on the device: the program runs what comes before, reads that
input once and goes on. NonZero and Compress become nodes of their own there: pumice::CountNonZero counts on the device, the host reads
the count alone, and pumice::NonZero or pumice::Compress makes a tensor of that size.
"""

_VALUES = """`pumice.Operator` takes the inputs that are *known on the host* by their values, and nothing is bound to their slots.
"""


_EXPERIMENTAL = 0x7FFFFFFF  # the level of operations of NNAPI that have none yet
_NNAPI = """`graph.add("nnapi::ADD", a, b, 0)` takes the operands of that system in its own order, and becomes nodes of the operators
above. Numbers and lists of numbers are constants of int32, float32 or bool. Scalars and lists are constants where nothing else is
said; SLICE, STRIDED_SLICE, RESHAPE, TILE, FILL, PAD, PAD_V2, MIRROR_PAD, TRANSPOSE, REVERSE, SQUEEZE, MEAN and other reductions,
SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND also take lists that the program computes. `scale`, `zero_point` and `dtype` tell of the
output operand what its declaration tells there; where the operation fixes them, or they are an operand's, they can be left out.

The rules of an operation are checked when it is added, and those about ranks, sizes and lists that are not known then when a program
is bound to them: both refusals name the node, the operation and the operand. Where the nodes that an operation becomes depend on a
rank that is not known, it stays one node until then, and the program is compiled for each choice of ranks. SLICE with known sizes
begins where the device says: a begin among the inputs of a call, or one that follows from them, is checked at the call. One that
the device alone knows and that leaves no room for the slice counts as the nearest one that does, and `check_indices=True` reports it
(IndexRangeError). Other indices count from 0 alone: those that a call hands over as arrays are looked at by the host at each call
(IndexRangeError), and [nnapi.md](nnapi.md#indices) says what becomes of those that only the device has. A strided slice that runs
backwards from before the first element has none. An axis that `shrink_axis_mask` names has a step above 0 and a range of one element, or
begins at -1 and ends at 0, as exporters write the last one.

uint8 and int8 operands have a scale and a zero point: they stand for (integer - zero_point) * scale. Results are rounded to the
nearest integer, a half to the even one, and held to the integers' range. Products and convolutions sum exactly, as int32; their bias
is int32 in units of the product of both scales, and may do without a scale of its own. What is elementwise is computed in float32
between the integers, in one kernel where the operands have one shape. A fused activation is 0 (none), 1 (RELU), 2 (RELU1) or
3 (RELU6), and 0 of int32. Operands broadcast as NumPy does it, but those of SELECT. Sums of int32 wrap around; int32 divided by 0
is 0.
"""


class OperatorSchema:
    """One operator in the newest form that the engine knows; nodes of older operator sets are brought into it at import."""

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
        """The operator sets that brought or changed it, oldest first; empty for one that ONNX does not define."""
        return tuple(version for version in _histories().get(self.name, ()) if version <= NEWEST)

    @functools.cached_property
    def doc(self) -> str:
        """ONNX's description, its first sentence."""
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
        """The schema as plain values, for JSON."""
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
        """Facts of one line each, by name."""
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
        """Name, role and element types of every input and output."""
        return [
            (role.name, _role_text(kind, role), _dtypes_text(role))
            for kind, roles in (("input", self.inputs), ("output", self.outputs))
            for role in roles
        ]

    def attribute_rows(self) -> list[tuple[str, str, str, str]]:
        """Name, kind, default and choices of every attribute."""
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
    """An operator that importing a model makes of others; it takes and gives what ONNX says."""

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
        """Facts of one line each, by name."""
        return {key: value for key, value in super().facts().items() if key != "in place"}


class NnapiSchema(OperatorSchema):
    """An operation of NNAPI: its operands in that system's order; it becomes nodes of the other operators."""

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
        """The feature level that brought the operation."""
        return (self._operation.level,)

    @functools.cached_property
    def doc(self) -> str:
        """A sentence that says what the operation does."""
        return self._operation.summary

    def as_dict(self) -> dict[str, Any]:
        """The schema as plain values, for JSON."""
        return self._head() | {
            "inputs": [_role_record(role) | {"kind": role.kind} for role in self.inputs],
            "implicit": [_role_record(role) | {"kind": role.kind} for role in self.implicit],
            "outputs": [_role_record(role) for role in self.outputs],
        }

    def facts(self) -> dict[str, str]:
        """Facts of one line each, by name."""
        facts = {
            self.levels: "experimental" if self.since == (_EXPERIMENTAL,) else str(self.since[0]),
            "summary": self.doc,
            "operands": ", ".join(map(_signature, self.inputs)),
            "or": ", ".join(map(_signature, self.implicit)),
        }
        return {key: value for key, value in facts.items() if value}

    def value_rows(self) -> list[tuple[str, str, str]]:
        """Name, role and element types of every operand and output."""
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
    """All operators by name, those of NNAPI last, or the operator of that name, with or without ONNX's domain.

    Raises UnsupportedError with similar names for a name that there is not.
    """
    known = _known()
    if name is None:
        return list(known.values())
    wanted = name.removeprefix("ai.onnx::")
    if wanted not in known:
        raise _unknown(name, known)
    return known[wanted]


def page() -> str:
    """The text of docs/operators.md."""
    composed = [one for one in operators() if isinstance(one, ComposedSchema)]
    everything = [one for one in operators() if one.domain != "nnapi" and one not in composed]
    operations = [one for one in operators() if one.domain == "nnapi"]
    known = sum(one.domain.startswith("ai.onnx") for one in [*everything, *composed])
    parts = [
        "# Operators\n",
        f"The {known} ONNX operators that the engine runs, up to operator set {NEWEST}. This page is made by "
        "`python -m pumice.tools.catalogue`; `pumice.operators()` and `pumice operators` tell the same of the installed version.\n",
        "*all* element types are "
        + ", ".join(_FAMILIES["all"].split())
        + "; *integers* those of 8 to 64 bits, *floats* "
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
        f"# Operators of {CONTRIB_DOMAIN}\n\nONNX Runtime's optimizer writes these; at import they become operators of ONNX's own: "
        + ", ".join(sorted([*CONTRIB, *(name.split("::")[1] for name in _CONTRIB)]))
        + ".\n"
    )
    parts += [f"# Operations of NNAPI\n\nThere are {len(operations)}.\n", _NNAPI]
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

    from ..base.files import write_whole

    target = Path("docs/operators.md")
    target.parent.mkdir(exist_ok=True)
    write_whole(target, page())
    print(f"written: {target}")
