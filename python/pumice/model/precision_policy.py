"""Per-node precision policies."""

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
from ..base.precision_argument import checked_precision

if TYPE_CHECKING:
    from ..importer.build.float32_nodes import Float32Nodes
    from ..importer.file.recipe import NodeRecipe

Precision: TypeAlias = "str | Mapping[str, str] | os.PathLike[str]"

DEFAULT = "default"
_OPERATOR = "op:"


def literal(name: str) -> str:
    """Return the policy entry that matches only nodes of exactly this name, as in "[d]efault" for "default"."""
    if name == DEFAULT or name.startswith(_OPERATOR):
        return f"[{name[0]}]{escape(name[1:])}"
    return escape(name)


class Policy:
    """The precision in which each node computes and stores floats.

    `entries` maps node names, patterns (`*`, `?`, `[abc]`; "op:Softmax" matches operators) and "default" to "fp32" or
    to `precision`, the program's single low precision. The last matching entry wins; unmatched nodes get the default.
    Nodes in a branch or loop body match by their own name, or with their graph's name as prefix
    ("if_1.then_branch/mul"); an fp32 entry for a control-flow node covers all nodes of its graphs. A node named
    "default" is matched by "[d]efault", and a name that starts with "op:" by "[o]p:...".
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
        """Whether all nodes have the same precision."""
        return len(self.entries) == 1

    def float32_nodes(self) -> Float32Nodes | None:
        """Return a collector of the policy's float32 nodes; None if all nodes have the same precision."""
        if self.is_plain:
            return None
        from ..importer.build.float32_nodes import Float32Nodes

        return Float32Nodes(self.wants_float32)

    def of(self, name: str, operator: str, path: str = "") -> str:
        """Return the precision of a node; `path`: its name prefixed by the names of the enclosing graphs."""
        names = _with_origins(dict.fromkeys((path or name, name)))
        matching = {self._names[one] for one in names if one in self._names}
        for place, is_operator, pattern in self._patterns:
            if any(pattern.match(one) for one in ([operator] if is_operator else names)):
                matching.add(place)
        self._met |= matching
        return self._given[max(matching)][1] if matching else self.default

    def wants_float32(self, node: NodeRecipe, path: str) -> bool:
        """Return whether a node of the file must compute in float32."""
        return self.of(node.name, node.qualified_op, path) == "fp32"

    def check_met(self, model: str) -> None:
        """Raise InputError naming entries that matched no node."""
        unmet = [name for place, (name, _) in enumerate(self._given) if name != DEFAULT and place not in self._met]
        if unmet:
            given = ", ".join(repr(name) for name in unmet[:8])
            raise InputError(
                f"{self.where}: expected names of nodes of model '{model}' or patterns of them, given {given}"
            )


@functools.cache  # on demand: few models have a per-node policy, and compiling the patterns takes as long as importing a module
def _parts() -> tuple[re.Pattern[str], ...]:
    """Return patterns for names derived from a file's node: nodes of an expanded function or of a rewritten operator."""
    return re.compile(r"(.+) \([^()/]+\)/[^/]+"), re.compile(r"(.+)/[A-Za-z]\w*\.\d+")


def _with_origins(names: dict[str, None]) -> list[str]:
    """Return the names, plus the names of the file's nodes from which they are derived."""
    found = list(names)
    for name in found:
        for part in _parts():
            if (match := part.fullmatch(name)) and match[1] not in found:
                found.append(match[1])
    return found


def policy_of(given: Any) -> Policy:
    """Return the policy that `precision` describes: a name, a mapping, or the path of a JSON file that contains a mapping.

    Raise BindingError (K5) for another type, InputError for an invalid policy, OSError for an unreadable file.
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
    """Return the policy with these entries. Raise InputError if they are invalid."""
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
