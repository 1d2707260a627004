"""Precision by node: what a policy says, and of which nodes."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from fnmatch import translate
from glob import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from ..base.element_types import PRECISIONS
from ..base.errors import InputError
from ..base.precisions import checked_precision

if TYPE_CHECKING:
    from ..importer.build.float32_nodes import Float32Nodes
    from ..importer.file.recipe import NodeRecipe

Precision: TypeAlias = "str | Mapping[str, str] | os.PathLike[str]"

DEFAULT = "default"
_OPERATOR = "op:"


def literal(name: str) -> str:
    """Return the entry of a policy that matches nodes of this name alone, whatever is in it: "[d]efault" for "default"."""
    if name == DEFAULT or name.startswith(_OPERATOR):
        return f"[{name[0]}]{escape(name[1:])}"
    return escape(name)


class Policy:
    """A policy says what floats each node computes and stores in.

    `entries` are names of nodes, patterns of them (`*`, `?`, `[abc]`; "op:Softmax" is of operators) and "default", each with "fp32"
    or the one narrower precision, `precision`, that the whole program has. The last entry that matches a node decides; what no entry
    matches has the default. Nodes in a branch or a body are matched by their own name, and by that behind the name of their graph
    ("if_1.then_branch/mul"); an entry of fp32 for a control node is for all nodes in its graphs. A node whose own name is "default"
    is matched by "[d]efault", and one whose name begins with "op:" by "[o]p:...".
    """

    def __init__(self, entries: Mapping[str, str], where: str = "precision") -> None:
        self.entries = dict(entries)
        self.where = where
        self.default = self.entries[DEFAULT]
        self.precision = next((one for one in self.entries.values() if one != "fp32"), "fp32")
        self._names: dict[str, int] = {}
        self._patterns: list[tuple[int, bool, re.Pattern[str]]] = []
        self._given = list(self.entries.items())
        for place, (name, _) in enumerate(self._given):
            is_operator = name.startswith(_OPERATOR)
            if name == DEFAULT:
                continue
            if is_operator or any(mark in name for mark in "*?["):
                self._patterns.append((place, is_operator, re.compile(translate(name.removeprefix(_OPERATOR)))))
            if not is_operator:
                self._names[name] = place
        self._met: set[int] = set()

    @property
    def is_plain(self) -> bool:
        """Whether all nodes have one precision."""
        return len(self.entries) == 1

    def float32_nodes(self) -> Float32Nodes | None:
        """A collector of the nodes that the policy has in float32; None where all nodes have one precision."""
        if self.is_plain:
            return None
        from ..importer.build.float32_nodes import Float32Nodes

        return Float32Nodes(self.wants_float32)

    def of(self, name: str, operator: str, path: str = "") -> str:
        """The precision of a node; `path`: its name behind those of the graphs around it."""
        names = _with_origins(dict.fromkeys((path or name, name)))
        matching = {self._names[one] for one in names if one in self._names}
        for place, is_operator, pattern in self._patterns:
            if any(pattern.match(one) for one in ([operator] if is_operator else names)):
                matching.add(place)
        self._met |= matching
        return self._given[max(matching)][1] if matching else self.default

    def wants_float32(self, node: NodeRecipe, path: str) -> bool:
        """Whether a node of the file is to compute in float32."""
        return self.of(node.name, node.qualified_op, path) == "fp32"

    def check_met(self, model: str) -> None:
        """Raises InputError naming entries that have matched no node of which a precision was asked."""
        unmet = [name for place, (name, _) in enumerate(self._given) if name != DEFAULT and place not in self._met]
        if unmet:
            given = ", ".join(repr(name) for name in unmet[:8])
            raise InputError(
                f"{self.where}: expected names of nodes of model '{model}' or patterns of them, given {given}"
            )


@functools.cache  # few loads have a policy by node, and compiling the patterns takes as long as importing a module
def _parts() -> tuple[re.Pattern[str], ...]:
    """The names of nodes that the importer makes of one of the file: parts of a function, and what a rewritten operator becomes."""
    return re.compile(r"(.+) \([^()/]+\)/[^/]+"), re.compile(r"(.+)/[A-Za-z]\w*\.\d+")


def _with_origins(names: dict[str, None]) -> list[str]:
    """The names, and those of the file's nodes that the importer made such ones of."""
    found = list(names)
    for name in found:
        for part in _parts():
            if (match := part.fullmatch(name)) and match[1] not in found:
                found.append(match[1])
    return found


def policy_of(given: Any) -> Policy:
    """The policy that `precision` stands for: a name, a mapping, or the path of a JSON file that holds one.

    Raises BindingError (K5) for another type, InputError for a policy that is none, OSError for a file that cannot be read.
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, os.PathLike) or (isinstance(given, str) and given.endswith(".json")):
        return _checked(_read(given), f"policy '{os.fspath(given)}'")
    if isinstance(given, Mapping):
        return _checked(given, "precision")
    return Policy({DEFAULT: checked_precision(given)})


def _read(path: str | os.PathLike[str]) -> Any:
    import json

    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise InputError(f"policy '{os.fspath(path)}': expected JSON, given text that is none: {error}") from None


def _checked(entries: Any, where: str) -> Policy:
    """Raises InputError for what is no policy."""
    known = ", ".join(f"'{name}'" for name in PRECISIONS)
    if not isinstance(entries, Mapping):
        raise InputError(f"{where}: expected an object of names and precisions, given {type(entries).__name__}")
    for name, value in entries.items():
        if not isinstance(name, str) or value not in PRECISIONS:
            raise InputError(f"{where}: '{name}': expected one of {known}, given {value!r}")
    if DEFAULT not in entries:
        raise InputError(f"{where}: expected an entry '{DEFAULT}' beside {sorted(entries)[:4]}, given none")
    if len(narrow := sorted({*entries.values()} - {"fp32"})) > 1:
        most = entries[DEFAULT] if entries[DEFAULT] != "fp32" else narrow[0]
        others = [name for name, value in entries.items() if value not in ("fp32", most)]
        raise InputError(
            f"{where}: expected 'fp32' and one narrower precision, given {' and '.join(map(repr, narrow))}: a program stores its narrow "
            f"floats in one type. 'fp32' has the range of bf16 and more digits than fp16: expected it for {others[0]!r}"
        )
    return Policy(entries, where)
