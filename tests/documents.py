"""Generate the lists that the site adds to pages of docs/, and the tables of nnapi.md, from_directml.md, compile_check.md and support.md.

python tests/documents.py rules      print the list of a page: operators, rules, glsl or reference
python tests/documents.py --write    update the tables
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import compile_targets
import drivers
import expectation_files
import pumice
import reference
from pumice.tools import operator_catalogue

DOCS = Path(__file__).resolve().parents[1] / "docs"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


# ---- rules

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
    parts = []
    texts = {**pumice.binding_rules(), **pumice.graph_rules(), **pumice.nnapi_rules()}
    for family, title in FAMILIES.items():
        parts.append(f"## {family}: {title}\n")
        parts.append(table(("id", "rule"), [(rule, text) for rule, text in texts.items() if rule[0] == family]))
    return "\n".join(parts)


# ---- glsl

# Table columns, each with the compile options of one mode.
MODES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"storage": "fp16"},
    "fp16, fp16 arithmetic": {"storage": "fp16", "fp16_arithmetic": True},
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
    "sfp": "storage: scalar",
    "sfpvec2": "storage: vector of 2",
    "sfpvec4": "storage: vector of 4",
    "sfpvec8": "storage: vector of 8",
    "sfpmat4": "storage: 4 x 4 matrix",
    "afp": "arithmetic: scalar",
    "afpvec2": "arithmetic: vector of 2",
    "afpvec4": "arithmetic: vector of 4",
    "afpvec8": "arithmetic: vector of 8, as two columns of 4",
    "afpmat4": "arithmetic: 4 x 4 matrix",
    "lfp": "shared memory: scalar",
    "lfpvec4": "shared memory: vector of 4",
    "unfp": "precision qualifier of samplers and images",
    "imfmtc1": "image format with one channel",
    "imfmtc4": "image format with four channels",
}
INTEGER_TYPES = {
    "sint8": "storage: 8-bit scalar",
    "sint8vec4": "storage: 8-bit vector of 4",
    "aint8": "arithmetic: 8-bit scalar",
    "aint8vec4": "arithmetic: 8-bit vector of 4",
    "sint16": "storage: 16-bit scalar",
    "sint16vec4": "storage: 16-bit vector of 4",
    "aint16": "arithmetic: 16-bit scalar",
    "aint16vec4": "arithmetic: 16-bit vector of 4",
    "lint16": "shared memory: 16-bit scalar",
    "lint16vec4": "shared memory: 16-bit vector of 4",
}

# Sections of the page, patterns of function names, and what the functions do, in page order.
FLOATS = "Float buffers"
INTEGERS = "Integer buffers"
SHARED = "Shared memory and matrices"
IMAGES = "Images (generation 2024)"
WORDS = "Packing"
OTHER = "Constants"
FUNCTIONS: list[tuple[str, str, str]] = [
    (FLOATS, r"buffer_ld[1248]", "loads {n} at index `i` of `buf` as the arithmetic type"),
    (
        FLOATS,
        r"buffer_st[1248]",
        "converts `v` ({n}) and stores it at index `i` of `buf`; rounds to nearest even, keeps NaN",
    ),
    (FLOATS, r"buffer_cp[1248]", "copies the bits of {n} from index `si` of `sbuf` to index `i` of `buf`"),
    (FLOATS, r"buffer_cp1to[48]", "gathers scalars at the indices in the index vectors into a vector at index `i`"),
    (FLOATS, r"buffer_cp[48]to1", "scatters the vector at index `si` to scalars at the indices in the index vectors"),
    (FLOATS, r"buffer_cp4to8", "joins two vectors of 4, at the indices in `si2`, into a vector of 8"),
    (FLOATS, r"buffer_cp8to4", "splits a vector of 8 into two vectors of 4, at the indices in `i2`"),
    (FLOATS, r"buffer_sm[14]", "loads {n} at index `i` of `buf` as the shared-memory type"),
    (INTEGERS, r"i(?:8|16)buffer_ld[124]", "loads {n} at index `i` of `buf` as the arithmetic type"),
    (
        INTEGERS,
        r"i(?:8|16)buffer_st[124]",
        "stores the low bits of `v` ({n}); other elements in the same word keep their values",
    ),
    (INTEGERS, r"i8buffer_cp[14]", "copies {n} from index `si` of `sbuf` to index `i` of `buf`"),
    (INTEGERS, r"i8buffer_cp1to4", "gathers four scalars into a vector"),
    (INTEGERS, r"i8buffer_cp4to1", "scatters a vector to four scalars"),
    (INTEGERS, r"i(?:8|16)buffer_sm4", "loads four elements at index `i` of `buf` as the shared-memory type"),
    (
        INTEGERS,
        r"float2int8(?:vec4)?",
        "rounds to nearest, ties away from zero, and clamps to -127 .. 127; NaN becomes 0",
    ),
    (SHARED, r"lfp2afp(?:vec4)?", "converts from shared memory to arithmetic"),
    (SHARED, r"afp2lfp(?:vec4)?", "converts from arithmetic to shared memory"),
    (SHARED, r"sfp2lfp(?:vec4)?", "converts from storage to shared memory (generation 2024)"),
    (SHARED, r"lint162aint16(?:vec4)?", "converts integers from shared memory to arithmetic"),
    (SHARED, r"sfp2afpmat4", "converts a matrix from storage to arithmetic"),
    (SHARED, r"afp2sfpmat4", "converts a matrix from arithmetic to storage"),
    (IMAGES, r"image[123]d_ld[148]", "loads {n} at texel `p` as the arithmetic type"),
    (IMAGES, r"image[123]d_st[148]", "converts `v` ({n}) and stores it at texel `p`"),
    (IMAGES, r"image[123]d_cp[148]", "copies {n} from texel `sp` of `tex` to texel `p` of `img`"),
    (WORDS, r"packBFloat2x16", "packs two bfloat16 into a uint, like `packHalf2x16` in GLSL"),
    (WORDS, r"unpackBFloat2x16", "unpacks two bfloat16 from a uint, like `unpackHalf2x16` in GLSL"),
    (WORDS, r"packInt4x8", "packs four signed 8-bit integers into an int"),
    (WORDS, r"unpackInt4x8", "unpacks four signed 8-bit integers from an int"),
    (WORDS, r"packInt2x16", "packs two signed 16-bit integers into an int"),
    (WORDS, r"unpackInt2x16", "unpacks two signed 16-bit integers from an int"),
    (OTHER, r"psc", "is the specialization constant `x` if it is not 0, else the push constant `p.x`"),
]
COUNTS = {"1": "one element", "2": "two elements", "4": "four elements", "8": "eight elements"}

SWITCHES = {
    "ncnn_glsl_version": "1, the version of the language",
    "NCNN_fp16_storage": "storage is fp16",
    "NCNN_fp16_packed": "storage is fp16_packed",
    "NCNN_bf16_storage": "storage is bf16",
    "NCNN_bf16_packed": "storage is bf16_packed",
    "NCNN_fp16_arithmetic": "`afp` is fp16",
    "NCNN_fp16_uniform": "`lfp` is fp16 as well",
    "NCNN_int8_storage": "`sint8` is `int8_t`",
    "NCNN_int8_packed": "four `sint8` share a 32-bit word",
    "NCNN_int8_arithmetic": "the device has 8-bit arithmetic",
    "NCNN_int8_uniform": "the device has 8-bit types in uniform buffers",
    "NCNN_int16_storage": "`sint16` is `int16_t`",
    "NCNN_int16_packed": "two `sint16` share a 32-bit word",
    "NCNN_shader_local_memory": "the shader may prefer shared memory",
    "NCNN_image_shader": "storage is in images instead of buffers (generation 2024)",
    "NCNN_subgroup_basic": "basic subgroup operations are available (generation 2024)",
    "NCNN_subgroup_vote": "subgroup votes are available (generation 2024)",
    "NCNN_subgroup_ballot": "subgroup ballots are available (generation 2024)",
    "NCNN_subgroup_shuffle": "subgroup shuffles are available (generation 2024)",
}


def macros(**options: Any) -> dict[str, str]:
    """Return the public macros of a preamble: name with arguments -> definition."""
    text = pumice.ShaderOptions(**options).preamble.replace("\\\n", " ")
    found = re.findall(r"^#define (\w+(?:\([^)]*\))?) ?(.*)$", text, re.MULTILINE)
    return {name: value for name, value in found if not name.lower().startswith("pm_")}


def all_macros() -> dict[str, str]:
    """Return the public macros of all modes, each with one of its definitions."""
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
        ("type", "use", *columns),
        [
            (f"`{name}`", meaning, *(f"`{column[name]}`" if name in column else "" for column in columns.values()))
            for name, meaning in meanings.items()
        ],
    )


def meaning_of(name: str) -> tuple[str, str] | None:
    """Return the section and description of a function."""
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


def glsl() -> str:
    known = all_macros()
    parts = ["## Types\n\n### Floats\n\n" + types(FLOAT_TYPES, MODES)]
    parts.append("### Integers\n\n" + types(INTEGER_TYPES, INTEGER_MODES))
    parts.append(
        "## Functions\n\nYou can use an expression inside a larger one; it evaluates each argument once. A statement must stand "
        "alone, for example as the\nbranch of an `if`. `buf` and `sbuf` are the names of buffer arrays, `tex` is a sampler and `img` "
        "is an image.\n"
    )
    parts.append(functions(known))
    parts.append(
        "## Macros that describe the mode\n\nA macro is undefined if its condition is false. `pumice.device_macros(context)` lists "
        "the macros of the device: the\nproperties, limits, features and extensions of Vulkan, each with the prefix `ncnn_` "
        "(`ncnn_vendorID`, `ncnn_subgroupSize`).\n"
    )
    parts.append(table(("macro", "meaning"), [(f"`{name}`", meaning) for name, meaning in SWITCHES.items()]))
    return "\n".join(parts)


def replace_last_section(page: str, heading: str, said: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a page of docs/ whose last section, below the heading, is a sentence or two and a table."""
    before = (DOCS / page).read_text().partition(f"{heading}\n")[0].rstrip()
    return f"{before}\n\n{heading}\n\n{said}\n\n{table(head, rows)}"


# ---- docs/nnapi.md: handwritten except for its last section


def becomes(name: str) -> str:
    """Return the operators that an operation expands to in its most common form, in order."""
    for folder in ("support", "nnapi"):  # pytest only knows the first
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
    said = (
        "The last column lists the nodes of each operation for float32 operands of known sizes, or for other types if the operation\n"
        "has no float32 form. Other types, layouts and options give different nodes. `python tests/documents.py --write` generates this\n"
        "table."
    )
    return replace_last_section(
        "nnapi.md", "## Operation by operation", said, ("operation", "feature level", "nodes"), rows
    )


# ---- docs/from_directml.md: handwritten except for its last section


def directml() -> str:
    for_pytest = str(Path(__file__).resolve().parent / "support")
    if for_pytest not in sys.path:
        sys.path.append(for_pytest)
    import directml as peer

    known = {one.name: one for one in pumice.operators()}
    sections = set(re.findall(r"^## (\w+)$", operator_catalogue.render_markdown(), re.MULTILINE))
    rows = []
    for names, (ops, remark) in peer.operators().items():
        links = ", ".join(f"[{op}](operators.md#{op.lower()})" if op in sections else f"`{op}`" for op in ops)
        places = "yes" if len(ops) == 1 and known[ops[0]].in_place else ""
        rows.append(("<br>".join(f"`{name}`" for name in names.split()), links or "none", places, remark))
    said = (
        "The table lists the replacement for each DirectML operator, without the prefix `DML_OPERATOR_`. Operators in pumice broadcast\n"
        'automatically. Replace the scale and bias of an elementwise operator\'s input by a Mul and an Add before it. "In place" means\n'
        "that you can bind the output to the memory of an input. `python tests/documents.py --write` generates this table."
    )
    names = ("DirectML", "pumice", "in place", "remark")
    return replace_last_section("from_directml.md", "## Operator by operator", said, names, rows)


# ---- docs/compile_check.md: handwritten except for its last section


def compile_check() -> str:
    rows = []
    for target in compile_targets.TARGETS:
        kept = expectation_files.read(expectation_files.FOLDER / f"{target.name}.txt")
        figures = list(kept.variants.values())
        counts = (len(figures), sum(one.pipelines for one in figures), len(kept.spilling))
        extremes = (
            expectation_files.find_extreme(max, (one.registers for one in figures)),
            expectation_files.find_extreme(min, (one.occupancy for one in figures)),
        )
        cells = map(expectation_files.format_figure, counts + extremes)
        rows.append((target.name, kept.device, kept.date, *cells))
    said = (
        "Pipelines in use of the example decoder, the case table and the corpus. All compiled; cases that need a feature that the device\n"
        "lacks are refused. Registers are the most of a kernel and occupancy is the lowest, both in the driver's units.\n"
        "`./dev compile-check --write` generates this table from `tests/expectations`."
    )
    counted = ("variants", "pipelines", "variants that spill", "registers", "occupancy")
    names = ("target", "device and driver", "date", *counted)
    return replace_last_section("compile_check.md", "## Results", said, names, rows)


# ---- the first table of docs/support.md

# By vendor: what was executed, the family of compile targets, and the profiles.
VENDORS = {
    "NVIDIA H100, H200": ("580.159.04: quick tier, self-test, benchmarks", "", ()),
    "other NVIDIA devices": ("no", "nvk", ("GTX 1070",)),
    "AMD": ("no", "radv", ("RX 580", "Vega 8")),
    "Intel": ("no", "anv", ("Intel HD 620", "Arc A770")),
    "Qualcomm Adreno": ("no", "turnip", ("Adreno 740",)),
    "Apple": ("no", "honeykrisp", ("Apple M1",)),
    "ARM Mali": ("no", "", ("Mali-G610",)),
    "Broadcom VideoCore (Raspberry Pi)": ("no", "", ("Raspberry Pi 5",)),
    "Imagination PowerVR": ("no", "", ("PowerVR",)),
}


def support() -> str:
    rows = []
    for row, _ in drivers.written_drivers((DOCS / "drivers.md").read_text()).values():
        name, device, passed, failed, *_, runs = (cell.strip() for cell in row.strip("|").split(" | "))
        rows.append((name, f"{device}: {passed} tests passed, {failed} failed, {runs.split()[0]}", "", ""))
    for vendor, (executed, family_of_vendor, profiles) in VENDORS.items():
        compiled: dict[str, list[str]] = {}
        for target in compile_targets.TARGETS:
            family, _, name = target.name.partition("-")
            if family == family_of_vendor:
                kept = expectation_files.read(expectation_files.FOLDER / f"{target.name}.txt")
                compiled.setdefault(f"with {mesa_version(kept.device)}, {kept.date}", []).append(name)
        cell = "; ".join(f"{', '.join(names)} {version}" for version, names in compiled.items())
        rows.append((vendor, executed, cell or "no", ", ".join(profiles)))
    page = (DOCS / "support.md").read_text()
    names = ("device", "executed", "compiled by its Mesa driver, without the device", "limits and features simulated")
    return re.sub(r"^\| device \|(?:.*\n)*?(?=\n)", lambda _: table(names, rows), page, count=1, flags=re.MULTILINE)


def mesa_version(device: str) -> str:
    found = re.search(r"Mesa [\d.]+", device)
    return found[0] if found else device


# Lists that docs/conf.py appends to the pages of these names.
LISTS = {"operators": operator_catalogue.render_markdown, "rules": rules, "glsl": glsl, "reference": reference.page}
TABLES = {"nnapi.md": nnapi, "from_directml.md": directml, "compile_check.md": compile_check, "support.md": support}

if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        for name, page in TABLES.items():
            (DOCS / name).write_text(page())
            print(f"written: docs/{name}")
    elif len(sys.argv) == 2 and sys.argv[1] in LISTS:
        print(LISTS[sys.argv[1]](), end="")
    else:
        sys.exit(__doc__)
