"""The generated pages of docs/: rules.md, glsl.md and reference.md, and the tables of nnapi.md and from_directml.md.

python tests/documents.py --write
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pumice
import reference

DOCS = Path(__file__).resolve().parents[1] / "docs"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


# ---- docs/rules.md

FAMILIES = {
    "C": "Number and type of bindings",
    "I": "Initializers",
    "O": "Owned tensors",
    "M": "Memory",
    "R": "Buffer ranges and sizes",
    "T": "Tensors and their descriptions",
    "H": "Hazards: memory shared by two bindings",
    "P": "Temporary and persistent resources",
    "L": "Lifetime and order",
    "G": "Graphs",
    "K": "Arguments of kernels, programs and models",
    "D": "The dv interface",
    "B": "Branches and loops",
    "N": "NNAPI operations: general (NG), LSTMs (NL), boxes (ND), and single operations",
}


def rules() -> str:
    parts = [
        "# Rules\n",
        "If a call breaks a rule, the error message begins with the rule's id in brackets. The id is also in `BindingError.rule`,\n"
        "`StateError.rule` or `GraphError.rule`. `pumice.binding_rules()`, `pumice.graph_rules()` (family B) and `pumice.nnapi_rules()`\n"
        "(family N) return these texts. [validation_bounds.md](validation_bounds.md#bounds) has the rules of error bounds (V). This page is generated\n"
        "by `python tests/documents.py --write`.\n",
    ]
    texts = {**pumice.binding_rules(), **pumice.graph_rules(), **pumice.nnapi_rules()}
    for family, title in FAMILIES.items():
        parts.append(f"## {family}: {title}\n")
        parts.append(table(("id", "rule"), [(rule, text) for rule, text in texts.items() if rule[0] == family]))
    return "\n".join(parts)


# ---- docs/glsl.md

# The columns of the tables, each with the options of one way to compile a text.
MODES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"storage": "fp16"},
    "fp16, half arithmetic": {"storage": "fp16", "fp16_arithmetic": True},
    "fp16_packed": {"storage": "fp16_packed"},
    "bf16": {"storage": "bf16"},
    "bf16_packed": {"storage": "bf16_packed", "storage_16bit": False},
}
INTEGER_MODES: dict[str, dict[str, Any]] = {
    "storage": {"int8_storage": True, "int16_storage": True},
    "packed": {"int8_packed": True, "int16_packed": True},
    "neither": {"int16": False},
}
SUBGROUP = {"basic", "vote", "ballot", "shuffle"}

FLOAT_TYPES = {
    "sfp": "a stored element",
    "sfpvec2": "two stored elements",
    "sfpvec4": "four stored elements",
    "sfpvec8": "eight stored elements",
    "sfpmat4": "a stored matrix of 4 x 4",
    "afp": "an element in arithmetic",
    "afpvec2": "two in arithmetic",
    "afpvec4": "four in arithmetic",
    "afpvec8": "eight in arithmetic, as two columns of four",
    "afpmat4": "a matrix in arithmetic",
    "lfp": "an element in shared memory",
    "lfpvec4": "four in shared memory",
    "unfp": "the precision qualifier of samplers and images",
    "imfmtc1": "the format of an image of one channel",
    "imfmtc4": "the format of an image of four channels",
}
INTEGER_TYPES = {
    "sint8": "a stored element of 8 bits",
    "sint8vec4": "four stored elements of 8 bits",
    "aint8": "an element of 8 bits in arithmetic",
    "aint8vec4": "four elements of 8 bits in arithmetic",
    "sint16": "a stored element of 16 bits",
    "sint16vec4": "four stored elements of 16 bits",
    "aint16": "an element of 16 bits in arithmetic",
    "aint16vec4": "four elements of 16 bits in arithmetic",
    "lint16": "an element of 16 bits in shared memory",
    "lint16vec4": "four elements of 16 bits in shared memory",
}

# Patterns of function names, in the order of the page, and what such a function does.
FLOATS = "Buffers of floats"
INTEGERS = "Buffers of integers"
SHARED = "Shared memory and matrices"
IMAGES = "Images (generation 2024)"
WORDS = "Words"
OTHER = "Others"
FUNCTIONS: list[tuple[str, str, str]] = [
    (FLOATS, r"buffer_ld[1248]", "gives {n} of `buf` at index `i`, converted to arithmetic"),
    (
        FLOATS,
        r"buffer_st[1248]",
        "stores `v`, {n} in arithmetic, at index `i` of `buf`: rounded to nearest even, NaN kept",
    ),
    (FLOATS, r"buffer_cp[1248]", "copies {n} from index `si` of `sbuf` to index `i` of `buf`, bit by bit"),
    (FLOATS, r"buffer_cp1to[48]", "gathers single elements at the indices of the vectors into a vector at index `i`"),
    (FLOATS, r"buffer_cp[48]to1", "scatters the vector at index `si` to single elements at the indices of the vectors"),
    (FLOATS, r"buffer_cp4to8", "joins two vectors of four, at the indices of `si2`, into one of eight"),
    (FLOATS, r"buffer_cp8to4", "splits a vector of eight into two of four, at the indices of `i2`"),
    (FLOATS, r"buffer_sm[14]", "gives {n} of `buf` as `lfp`, which shared memory holds"),
    (INTEGERS, r"i(?:8|16)buffer_ld[124]", "gives {n} of `buf` at index `i`, as ints in arithmetic"),
    (
        INTEGERS,
        r"i(?:8|16)buffer_st[124]",
        "stores the low bits of `v`, {n}; neighbours in the same word stay as they are",
    ),
    (INTEGERS, r"i8buffer_cp[14]", "copies {n} from index `si` of `sbuf` to index `i` of `buf`"),
    (INTEGERS, r"i8buffer_cp1to4", "gathers four single elements into a vector"),
    (INTEGERS, r"i8buffer_cp4to1", "scatters a vector to four single elements"),
    (INTEGERS, r"i(?:8|16)buffer_sm4", "gives four of `buf` as shared memory holds them"),
    (
        INTEGERS,
        r"float2int8(?:vec4)?",
        "rounds to the nearest, halves away from zero, held to -127 .. 127; NaN gives 0",
    ),
    (SHARED, r"lfp2afp(?:vec4)?", "converts from shared memory to arithmetic"),
    (SHARED, r"afp2lfp(?:vec4)?", "converts from arithmetic to shared memory"),
    (SHARED, r"sfp2lfp(?:vec4)?", "converts from storage to shared memory (generation 2024)"),
    (SHARED, r"lint162aint16(?:vec4)?", "converts integers from shared memory to arithmetic"),
    (SHARED, r"sfp2afpmat4", "converts a matrix from storage to arithmetic"),
    (SHARED, r"afp2sfpmat4", "converts a matrix from arithmetic to storage"),
    (IMAGES, r"image[123]d_ld[148]", "gives {n} in arithmetic of the texel `p`"),
    (IMAGES, r"image[123]d_st[148]", "stores {n} in arithmetic to the texel `p`"),
    (IMAGES, r"image[123]d_cp[148]", "copies {n} from texel `sp` of `tex` to texel `p` of `img`"),
    (WORDS, r"(?:un)?packBFloat2x16", "two bfloat16 in a word, as GLSL's packHalf2x16 does for halves"),
    (WORDS, r"(?:un)?packInt4x8", "four signed integers of 8 bits in an int"),
    (WORDS, r"(?:un)?packInt2x16", "two signed integers of 16 bits in an int"),
    (OTHER, r"psc", "the specialization constant `x` where it is not 0, else the push constant `p.x`"),
]
COUNTS = {"1": "an element", "2": "two elements", "4": "four elements", "8": "eight elements"}

SWITCHES = {
    "ncnn_glsl_version": "1: the version of the language",
    "NCNN_fp16_storage": "storage is fp16",
    "NCNN_fp16_packed": "storage is fp16_packed",
    "NCNN_bf16_storage": "storage is bf16",
    "NCNN_bf16_packed": "storage is bf16_packed",
    "NCNN_fp16_arithmetic": "afp is half",
    "NCNN_fp16_uniform": "lfp is half too",
    "NCNN_int8_storage": "sint8 is int8_t",
    "NCNN_int8_packed": "four sint8 share a word",
    "NCNN_int8_arithmetic": "the device computes with 8 bits",
    "NCNN_int8_uniform": "the device has uniforms of 8 bits",
    "NCNN_int16_storage": "sint16 is int16_t",
    "NCNN_int16_packed": "two sint16 share a word",
    "NCNN_shader_local_memory": "the shader may prefer shared memory",
    "NCNN_image_shader": "buffers are images (generation 2024)",
    "NCNN_subgroup_basic": "subgroup operations of this kind (generation 2024)",
    "NCNN_subgroup_vote": "the same",
    "NCNN_subgroup_ballot": "the same",
    "NCNN_subgroup_shuffle": "the same",
}


def macros(**options: Any) -> dict[str, str]:
    """The public macros of a preamble: name with its arguments -> text."""
    text = pumice.ShaderOptions(**options).preamble.replace("\\\n", " ")
    found = re.findall(r"^#define (\w+(?:\([^)]*\))?) ?(.*)$", text, re.MULTILINE)
    return {name: value for name, value in found if not name.lower().startswith("pm_")}


def all_macros() -> dict[str, str]:
    """The public macros of every mode, each with one of its texts."""
    found: dict[str, str] = {}
    for generation in ("current", "2024"):
        for mode in MODES.values():
            for integers in INTEGER_MODES.values():
                options = {"generation": generation, **mode, **integers}
                found |= macros(**options)
                if generation == "2024":
                    found |= macros(**options, image_storage=True, subgroup=SUBGROUP)
    every = {"int8_arithmetic": True, "int8_uniform": True, "shader_local_memory": True}
    return found | macros(**every) | macros(storage="fp16", fp16_arithmetic=True, fp16_uniform=True)


def types(meanings: dict[str, str], modes: dict[str, dict[str, Any]]) -> str:
    columns = {}
    for title, options in modes.items():
        newest = macros(generation="2024", image_storage=True, **options)
        columns[title] = newest | macros(**options)
    return table(
        ("type", "what it is", *columns),
        [
            (f"`{name}`", meaning, *(f"`{column[name]}`" if name in column else "" for column in columns.values()))
            for name, meaning in meanings.items()
        ],
    )


def meaning_of(name: str) -> tuple[str, str] | None:
    """The section and the meaning of a function."""
    for section, pattern, meaning in FUNCTIONS:
        if re.fullmatch(pattern, name):
            counted = re.search(r"_(?:ld|st|cp|sm)([1248])$", name)
            return section, meaning.format(n=COUNTS[counted[1]] if counted else "")
    return None


def functions(known: dict[str, str]) -> str:
    sections: dict[str, list[tuple[str, str, str]]] = {section: [] for section, _, _ in FUNCTIONS}
    for signature, text in known.items():
        found = meaning_of(signature.partition("(")[0])
        if found and "(" in signature:
            form = (
                "statement"
                if text.lstrip().startswith("do {") or "_st" in signature or "_cp" in signature
                else "expression"
            )
            sections[found[0]].append((f"`{signature}`", form, found[1]))
    return "\n".join(
        f"### {section}\n\n" + table(("call", "form", "meaning"), sorted(rows)) for section, rows in sections.items()
    )


GLSL = """# The kernel language

Kernels are compute shaders in GLSL 4.50. Before a text's own first line stands a preamble of types and functions, by which
one text serves every precision: `sfp` is what is stored, `afp` what is computed with, `lfp` what shared memory holds. A text
gets what it names of the preamble, and nothing else. `pumice.ShaderOptions(storage=...).preamble` shows the whole, and
`kernel.shader.preamble` what one kernel got. This page is made from the preambles by `python tests/documents.py --write`.

[kernels.md](kernels.md) shows how a kernel is called.

## What chooses the mode

`pumice.Kernel(text)` follows the arrays of the call: float16 arrays for an `sfp` buffer choose fp16, bfloat16 arrays bf16,
float32 arrays fp32. `options=pumice.ShaderOptions(...)` says it beforehand: `storage` is "fp32", "fp16", "fp16_packed", "bf16"
or "bf16_packed", and `fp16_arithmetic=True` makes `afp` a half. The packed modes keep two elements of 16 bits in a word, for
devices that cannot address 16 bits. `generation="2024"` takes texts that were written for the extension as it was in 2024: it
has vectors of eight and images, and a packed `sfp` is a float of 4 bytes there.

Shared memory that a text declares is held to the device's `maxComputeSharedMemorySize`. A text without a local size gets one
that suits the device; `local_size=(x, y, z)` says it otherwise.

## Types

### Floats

"""


def glsl() -> str:
    known = all_macros()
    parts = [GLSL + types(FLOAT_TYPES, MODES)]
    parts.append("### Integers\n\n" + types(INTEGER_TYPES, INTEGER_MODES))
    parts.append(
        "## Functions\n\nAn expression can stand in a larger one and evaluates each of its arguments once. A statement stands alone, "
        "also as the branch\nof an `if`. `buf` and `sbuf` are the arrays of buffers by their names, `tex` is a sampler, `img` an image.\n"
    )
    parts.append(functions(known))
    parts.append(
        "## Macros that say what was chosen\n\nA macro of what was not chosen is undefined. `pumice.device_macros(context)` lists "
        "the macros of the device:\n`ncnn_vendorID`, `ncnn_subgroupSize` and the other properties, limits, features and "
        "extensions of Vulkan, each as\n`ncnn_` and its name.\n"
    )
    parts.append(table(("macro", "meaning"), [(f"`{name}`", meaning) for name, meaning in SWITCHES.items()]))
    return "\n".join(parts)


# ---- docs/nnapi.md: written by hand but for its last section

TABLE = "## Operation by operation\n"
OPERATORS = "## Operator by operator\n"


def becomes(name: str) -> str:
    """The operators of the nodes that an operation becomes in its commonest form, in their order."""
    for folder in ("support", "nnapi"):  # pytest knows the first alone
        if (path := str(Path(__file__).resolve().parent / folder)) not in sys.path:
            sys.path.append(path)
    from test_nnapi_unknown_shapes import CALLS

    from nnapi_operations import operands_of

    operation = name.removeprefix("nnapi::")
    if operation not in CALLS:
        return {"IF": "`Graph.if_`", "WHILE": "`Graph.while_`"}[operation]
    graph, (operands, declared) = pumice.Graph(), CALLS[operation][0]
    graph.add(name, *operands_of(graph, operands, {}), **declared)
    return ", ".join(dict.fromkeys(node.op for node in graph.nodes))


def nnapi() -> str:
    rows = []
    for one in pumice.operators():
        if one.domain == "nnapi":
            link = f"[{one.name.removeprefix('nnapi::')}](operators.md#{one.name.lower().replace(':', '')})"
            level = one.facts()["feature level"]
            rows.append((link, level, becomes(one.name)))
    page = (DOCS / "nnapi.md").read_text()
    said = (
        "The nodes that each becomes on float32 operands of known sizes, or where there are none, on others; of other types, layouts\n"
        "and options they differ. This table is made by `python tests/documents.py --write`.\n\n"
    )
    head = page.partition(TABLE)[0].rstrip() + "\n\n"
    return head + TABLE + "\n" + said + table(("operation", "feature level", "becomes"), rows)


# ---- docs/from_directml.md: written by hand but for its last section


def directml() -> str:
    for_pytest = str(Path(__file__).resolve().parent / "support")
    if for_pytest not in sys.path:
        sys.path.append(for_pytest)
    import directml as peer

    known = {one.name: one for one in pumice.operators()}
    sections = set(re.findall(r"^## (\w+)$", (DOCS / "operators.md").read_text(), re.MULTILINE))
    rows = []
    for names, (ops, remark) in peer.operators().items():
        links = ", ".join(f"[{op}](operators.md#{op.lower()})" if op in sections else f"`{op}`" for op in ops)
        places = "yes" if len(ops) == 1 and known[ops[0]].in_place else ""
        rows.append(("<br>".join(f"`{name}`" for name in names.split()), links or "none", places, remark))
    page = (DOCS / "from_directml.md").read_text()
    said = (
        "What each operator of DirectML becomes; the names there begin with `DML_OPERATOR_`. Operators here broadcast by themselves. A\n"
        "scale and a bias of an elementwise operator's input are a Mul and an Add before it. In place: the output may be bound to\n"
        "an input's range. This table is made by `python tests/documents.py --write`.\n\n"
    )
    head = page.partition(OPERATORS)[0].rstrip() + "\n\n"
    return head + OPERATORS + "\n" + said + table(("DirectML", "pumice", "in place", "remark"), rows)


PAGES = {
    "rules.md": rules,
    "glsl.md": glsl,
    "reference.md": reference.page,
    "nnapi.md": nnapi,
    "from_directml.md": directml,
}

if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
        print(f"written: docs/{name}")
