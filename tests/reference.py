"""Generate the list of docs/reference.md: every public name with its signature and docstring, read from the sources without import."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "pumice"

# Sections of the page, each with names of the package; a dotted name belongs to a module.
TOPICS: dict[str, str] = {
    "Devices and contexts": """devices default_context Context DeviceInfo MatrixShape MemoryCounts DriverQuirk PrecisionSupport
        precision_support device_macros""",
    "Tensors and memory": """tensor asarray from_host from_dlpack empty zeros ones full empty_host Tensor TensorDesc strides
        buffer_size Buffer BufferRange image Image load_image""",
    "Kernels": """Kernel BoundKernel Shader ShaderOptions compile reflect Message KernelStatistics KernelTimes Tuning
        export_tuning import_tuning CompileCounts compile_counts distinct_pipelines CacheState cache_state prune_cache""",
    "Command lists": "CommandList Submission Execution Event Dispatchable DispatchTime",
    "Operators and binding tables": """Operator CompiledOperator Initializer BindingTable BindingProperties Slot output_descs
        has_operator binding_rules operators OperatorSchema""",
    "Graphs and programs": "Graph Value Program ProgramValue ProgramRun Burst fusions graph_rules nnapi_rules",
    "Models": "load Model operator ElementwiseOperator kernel_operator KernelOperator onnx.import_graph",
    "Batches and several devices": "BatchPredictor ParallelModel",
    "Validation": "validate ValidationReport reduce Reduction tune_precision TunedPrecision onnxruntime_candidate",
    "Comparison of arrays": "testing.*",
    "Text": "text.*",
    "Profiling": "profile Profile Comparison memory_map MemoryMap calibrate Peaks",
    "The dv interface": "dv.*",
    "NNAPI": "nnapi.*",
    "PyTorch": "torch.*",
    "The demo": "demo.DATA demo.sample_images",
    "Notebooks, logs and versions": "load_ipython_extension take_log take_validation_messages show_versions __version__",
    "Errors": """Error DeviceError DeviceLostError OutOfMemoryError ShaderCompileError BindingError GraphError UnsupportedError
        StateError TimeoutError OutputSizeError OutOfBoundsError IndexRangeError ValidationError""",
}
SHOWN = {
    "__call__",
    "__getitem__",
    "__len__",
    "__iter__",
    "__contains__",
    "__add__",
    "__bytes__",
    "__dlpack__",
    "__array__",
}


class Found(NamedTuple):
    """A definition and its file."""

    file: Path
    node: ast.AST


@functools.cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def file_of(module: str) -> Path:
    """Return the file of a module, dotted from the package on; for the extension, its stub."""
    if module == "_pumice":
        return PACKAGE / "_pumice.pyi"
    base = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def statements(module: ast.Module) -> Iterator[ast.stmt]:
    """Return the statements of a module, even if only for type checkers."""
    for one in module.body:
        if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test):
            yield from one.body
        else:
            yield one


def imported_from(file: Path, one: ast.ImportFrom) -> str | None:
    """Return the package module that an import names; None for other packages."""
    if not one.level:
        name = one.module or ""
        return name.removeprefix("pumice").lstrip(".") if name.split(".")[0] == "pumice" else None
    folder = file.parent
    for _ in range(one.level - 1):
        folder = folder.parent
    return ".".join([*folder.relative_to(PACKAGE).parts, *filter(None, [one.module])])


def find(file: Path, name: str) -> list[Found]:
    """Return the definitions of a name, one per overload; empty if it is from another package."""
    if "." in name:  # in a module imported as a whole, such as _pumice.Kernel
        module, _, name = name.rpartition(".")
        return find(file_of(module), name) if module == "_pumice" else []
    found: list[Found] = []
    for one in statements(tree(file)):
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)) and one.name == name:
            found.append(Found(file, one))
        elif isinstance(one, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in one.names):
            original = next(alias.name for alias in one.names if (alias.asname or alias.name) == name)
            home = imported_from(file, one)
            return [] if home is None or file_of(home) == file else find(file_of(home), original)
        elif isinstance(one, (ast.Assign, ast.AnnAssign)) and name in assigned(one):
            found.append(Found(file, one))
    return found


def assigned(one: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = one.targets if isinstance(one, ast.Assign) else [one.target]
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def names_of(module: str) -> list[str]:
    """Return the public names of a module: its __all__, else a package's explicit re-exports, else the module's definitions."""
    file, body = file_of(module), list(statements(tree(file_of(module))))
    for one in body:
        if isinstance(one, ast.Assign) and assigned(one) == ["__all__"]:
            return list(ast.literal_eval(one.value))
    again = [alias.asname for one in body if isinstance(one, ast.ImportFrom) for alias in one.names if alias.asname]
    own = [one.name for one in body if isinstance(one, (ast.FunctionDef, ast.ClassDef))]
    own += [name for one in body if isinstance(one, (ast.Assign, ast.AnnAssign)) for name in assigned(one)]
    public = [name for name in dict.fromkeys([*again, *own]) if not name.startswith("_") or name == "__version__"]
    return [name for name in public if find(file, name)]


def members_of_topic(names: str) -> list[str]:
    found = []
    for name in names.split():
        module, star, _ = name.partition(".*")
        found += [f"{module}.{one}" for one in names_of(module)] if star else [name]
    return found


# ---- signatures and docstrings as Markdown

SHORTER = [
    (r"typing\.SupportsInt \| typing\.SupportsIndex", "int"),
    (r"typing\.SupportsFloat \| typing\.SupportsIndex", "float"),
    (r"typing\.SupportsIndex", "int"),
    (r"\b(?:typing|collections\.abc|builtins|npt|numpy\.typing)\.", ""),
]


def shorter(text: str) -> str:
    for pattern, short in SHORTER:
        text = re.sub(pattern, short, text)
    return text


def code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


MARKUP = re.compile(r"[\\`*\[\]<|~$&{}]|(?<!\w)_|_(?!\w)|^[#>]")  # underscores inside words are not markup

ARGUMENT = re.compile(
    r"\n *(?=(?:[a-z]\w*(?:, | and ))*[a-z]\w*: |Raises? )"
)  # a new line that begins with an argument's name


def as_text(line: str) -> str:
    """Escape Markdown markup in a line of a docstring, except in backquoted code."""
    parts = re.split(r"(`[^`]+`)", line)
    return "".join(one if number % 2 else MARKUP.sub(r"\\\g<0>", one) for number, one in enumerate(parts))


def paragraphs(docstring: str | None, indent: str = "") -> str:
    """Convert a docstring to Markdown; indented blocks stay verbatim."""
    blocks = []
    for block in re.split(r"\n\s*\n", docstring or ""):
        lines = block.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            blocks.append("\n".join([f"{indent}```text", *(indent + line[4:] for line in lines), f"{indent}```"]))
        elif lines:
            text = "\n".join(indent + re.sub(r"^([-+]|\d+[.)]) ", r"\\\g<0>", as_text(line.strip())) for line in lines)
            blocks.append(ARGUMENT.sub(r"\\\g<0>", text))  # a trailing backslash is a line break
    return "\n\n".join(blocks)


def signature(node: ast.FunctionDef, name: str, bound: bool) -> str:
    given = (
        ast.parse(ast.unparse(node.args) and f"def f({ast.unparse(node.args)}): ...").body
        if ast.unparse(node.args)
        else []
    )
    arguments = given[0].args if given and isinstance(given[0], ast.FunctionDef) else None
    text = ""
    if arguments:
        plain = arguments.posonlyargs or arguments.args
        if bound and plain and plain[0].arg in ("self", "cls"):
            plain.pop(0)
        if arguments.kwarg and arguments.kwarg.arg == "unknown":  # rejects unknown names
            arguments.kwarg = None
        text = ast.unparse(arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    return shorter(f"{name}({text}){returns}")


def decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(one).rpartition(".")[2] for one in node.decorator_list}


def functions(found: list[Found], name: str, bound: bool = False) -> list[str]:
    """Return the signatures of a function, one per overload."""
    nodes = [one.node for one in found if isinstance(one.node, ast.FunctionDef)]
    overloads = [one for one in nodes if "overload" in decorators(one)]
    return [signature(one, name, bound) for one in overloads or nodes]


def docstrings(nodes: list[ast.AST]) -> str:
    told = [ast.get_docstring(one) for one in nodes if isinstance(one, (ast.FunctionDef, ast.ClassDef))]
    return "\n\n".join(dict.fromkeys(one for one in told if one))


def with_bases(found: Found, public: set[str]) -> Iterator[Found]:
    """Yield a class and its bases that have no entry on the page."""
    yield found
    assert isinstance(found.node, ast.ClassDef)
    for base in found.node.bases:
        name = ast.unparse(base)
        for one in find(found.file, name) if name not in public else []:
            if isinstance(one.node, ast.ClassDef):
                yield from with_bases(one, public)


def attributes(found: Found) -> dict[str, str]:
    """Return the fields of a class and the attributes set in __init__, each with its type and trailing comment."""
    assert isinstance(found.node, ast.ClassDef)
    lines, told = found.file.read_text().splitlines(), {}
    for one in found.node.body:
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and "ClassVar" not in ast.unparse(one.annotation)
        ):
            default = "" if one.value is None or "(" in ast.unparse(one.value) else f" = {ast.unparse(one.value)}"
            told[one.target.id] = (f"{one.target.id}: {ast.unparse(one.annotation)}{default}", one.end_lineno)
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            for target in ast.walk(one):
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.ctx, ast.Store)
                    and ast.unparse(target.value) == "self"
                ):
                    told.setdefault(target.attr, (target.attr, target.end_lineno))
    rows = {}
    for name, (text, line) in told.items():
        _, _, comment = lines[(line or 1) - 1].partition("  # ")
        rows[name] = f"- {code(shorter(text))}" + (f": {as_text(comment)}" if comment and "noqa" not in comment else "")
    return {name: row for name, row in rows.items() if not name.startswith("_")}


def methods(found: Found) -> dict[str, str]:
    assert isinstance(found.node, ast.ClassDef)
    rows: dict[str, str] = {}
    own = [
        one
        for one in found.node.body
        if isinstance(one, ast.FunctionDef) and not any("setter" in text for text in decorators(one))
    ]
    for name in dict.fromkeys(one.name for one in own):
        same: list[ast.AST] = [one for one in own if one.name == name]
        told = docstrings(same)
        if name.startswith("_") and not (name in SHOWN and told):
            continue
        first = same[0]
        assert isinstance(first, ast.FunctionDef)
        if decorators(first) & {"property", "cached_property"}:
            kinds = [shorter(f"{name}: {ast.unparse(first.returns)}" if first.returns else name)]
        else:
            static = bool(decorators(first) & {"staticmethod"})
            kinds = functions([Found(found.file, one) for one in same], name, bound=not static)
        head = ", ".join(map(code, kinds))
        rows[name] = f"- {head}" + (f"\n\n{paragraphs(told, '  ')}\n" if told else "")
    return rows


def of_class(found: Found, name: str, public: set[str]) -> str:
    assert isinstance(found.node, ast.ClassDef)
    classes = list(with_bases(found, public))
    made = [
        (one, [node for node in one.node.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"])
        for one in classes
        if isinstance(one.node, ast.ClassDef)
    ]
    file, starts = next(((one.file, nodes) for one, nodes in made if nodes), (found.file, []))
    heads = functions([Found(file, node) for node in starts], name, bound=True)
    parts = [f"### class {name}\n"]
    parts += [f"{', '.join(map(code, heads))}\n"] if heads else []
    bases = [base for base in map(ast.unparse, found.node.bases) if base in public]
    parts += [f"A kind of {' and '.join(map(code, bases))}.\n"] if bases else []
    told = [docstrings([found.node]), docstrings(list(starts))]
    parts += [paragraphs(one) + "\n" for one in told if one]
    rows: dict[str, str] = {}
    for one in classes:
        for member, row in {**methods(one), **attributes(one)}.items():
            rows.setdefault(member, row)
    return "\n".join([*parts, *rows.values()]).rstrip() + "\n"


def entry(name: str, public: set[str]) -> str:
    """Return the page's entry for a name."""
    module, _, own = name.rpartition(".")
    found = find(file_of(module), own)
    if not found:
        raise LookupError(f"no file of the package defines {name}")
    first = found[0]
    if isinstance(first.node, ast.ClassDef):
        return of_class(first, name, public)
    if isinstance(first.node, ast.FunctionDef):
        heads = "\n".join(f"{code(one)}  " for one in functions(found, name))
        return (
            f"### {as_text(name)}()\n\n{heads.rstrip()}\n\n{paragraphs(docstrings([one.node for one in found]))}".rstrip()
            + "\n"
        )
    return f"### {code(name)}\n\n{constant(first)}"


def constant(found: Found) -> str:
    """Return the description of a constant: the docstring below or the comment after it, else its source."""
    body, lines = tree(found.file).body, found.file.read_text().splitlines()
    assert isinstance(found.node, (ast.Assign, ast.AnnAssign))
    after = dict(itertools.pairwise(body)).get(found.node)
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        return paragraphs(after.value.value) + "\n"
    _, _, said = lines[(found.node.end_lineno or 1) - 1].partition("  # ")
    above = found.node.lineno - 2
    while re.match(r"[A-Z_\d]+(, [A-Z_\d]+)* = ", lines[above]):  # a comment applies to the group of constants below it
        above -= 1
    if not said and lines[above].startswith("# "):
        said = lines[above][2].lower() + lines[above][3:]
    return f"A constant: {as_text(said)}\n" if said else "A constant.\n"


def public_names() -> list[str]:
    return [name for names in TOPICS.values() for name in members_of_topic(names)]


def page() -> str:
    public = {name for name in public_names() if "." not in name}
    parts = []
    for topic, names in TOPICS.items():
        parts.append(f"## {topic}\n")
        if names.endswith(".*"):
            parts.append(paragraphs(ast.get_docstring(tree(file_of(names[:-2])))) + "\n")
        for name in members_of_topic(names):
            parts.append(entry(name, public))
    return "\n".join(parts)
