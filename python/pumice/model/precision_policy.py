"""Precision policies, which select the precision of each node."""

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
from ..base.precision_argument import check_precision

if TYPE_CHECKING:
    from ..importer.build.float32_node_collector import Float32NodeCollector
    from ..importer.file.graph_recipe import NodeRecipe

Precision: TypeAlias = "str | Mapping[str, str] | os.PathLike[str]"

DEFAULT = "default"
_OPERATOR_PREFIX = "op:"


def escape_literal(name: str) -> str:
    """Return a policy entry that matches only nodes with exactly this name, such as "[d]efault" for "default"."""
    if name == DEFAULT or name.startswith(_OPERATOR_PREFIX):
        return f"[{name[0]}]{escape(name[1:])}"
    return escape(name)


class PrecisionPolicy:
    """The precision in which each node computes and stores floats.

    `entries` maps node names, patterns (`*`, `?`, `[abc]`; "op:Softmax" matches operators) and "default" to "fp32" or
    to `precision`, the program's single low precision. The last matching entry wins; unmatched nodes get the default.
    Nodes in a branch or loop body match by their own name, or with their graph's name as prefix
    ("if_1.then_branch/mul"); an fp32 entry for a control-flow node covers all nodes of its graphs. A node named
    "default" is matched by "[d]efault", and a name that starts with "op:" by "[o]p:...".
    """

    def __init__(self, entries: Mapping[str, str], origin: str = "precision") -> None:
        self.entries = dict(entries)
        self.origin = origin
        self.default = self.entries[DEFAULT]
        self.precision = next(
            (entry_precision for entry_precision in self.entries.values() if entry_precision != "fp32"), "fp32"
        )
        self._names: dict[str, int] = {}
        self._patterns: list[tuple[int, bool, re.Pattern[str]]] = []
        self._entry_list = list(self.entries.items())
        for entry_index, (name, _) in enumerate(self._entry_list):
            is_operator = name.startswith(_OPERATOR_PREFIX)
            if name == DEFAULT:
                continue
            if is_operator or any(mark in name for mark in "*?["):
                self._patterns.append(
                    (entry_index, is_operator, re.compile(translate(name.removeprefix(_OPERATOR_PREFIX))))
                )
            if not is_operator:
                self._names[name] = entry_index
        self._matched_entries: set[int] = set()

    @property
    def is_uniform(self) -> bool:
        """Whether all nodes have the same precision."""
        return len(self.entries) == 1

    def make_float32_collector(self) -> Float32NodeCollector | None:
        """Return a collector of the policy's float32 nodes; None if all nodes have the same precision."""
        if self.is_uniform:
            return None
        from ..importer.build.float32_node_collector import Float32NodeCollector

        return Float32NodeCollector(self.needs_float32)

    def get_precision(self, name: str, operator: str, path: str = "") -> str:
        """Return the precision of a node. path: its name, prefixed with the names of the enclosing graphs."""
        names = _add_origin_names(dict.fromkeys((path or name, name)))
        matches = {self._names[candidate] for candidate in names if candidate in self._names}
        for entry_index, is_operator, pattern in self._patterns:
            if any(pattern.match(candidate) for candidate in ([operator] if is_operator else names)):
                matches.add(entry_index)
        self._matched_entries |= matches
        return self._entry_list[max(matches)][1] if matches else self.default

    def needs_float32(self, node: NodeRecipe, path: str) -> bool:
        """Return whether the policy selects fp32 for a node of the file."""
        return self.get_precision(node.name, node.qualified_op, path) == "fp32"

    def check_all_matched(self, model: str) -> None:
        """Raise InputError naming entries that matched no node."""
        unmatched = [
            name
            for entry_index, (name, _) in enumerate(self._entry_list)
            if name != DEFAULT and entry_index not in self._matched_entries
        ]
        if unmatched:
            unmatched_text = ", ".join(repr(name) for name in unmatched[:8])
            raise InputError(
                f"{self.origin}: expected names of nodes of model '{model}', or patterns that match them, given {unmatched_text}"
            )


@functools.cache  # compiled on first use: few models have a per-node policy, and compiling takes as long as importing a module
def _get_derived_name_patterns() -> tuple[re.Pattern[str], ...]:
    """Return patterns for names that the importer derives from a node's name, when it expands a function or rewrites an operator."""
    return re.compile(r"(.+) \([^()/]+\)/[^/]+"), re.compile(r"(.+)/[A-Za-z]\w*\.\d+")


def _add_origin_names(names: dict[str, None]) -> list[str]:
    """Return the names, followed by the names of the file's nodes from which they are derived."""
    all_names = list(names)
    for name in all_names:
        for name_pattern in _get_derived_name_patterns():
            if (match := name_pattern.fullmatch(name)) and match[1] not in all_names:
                all_names.append(match[1])
    return all_names


def parse_policy(argument: Any) -> PrecisionPolicy:
    """Return the policy for the argument `precision`: a name, a mapping, or the path of a JSON file with a mapping.

    Raise BindingError (K5) for another type, InputError for an invalid policy, OSError for an unreadable file.
    """
    if isinstance(argument, PrecisionPolicy):
        return argument
    if isinstance(argument, os.PathLike) or (isinstance(argument, str) and argument.endswith(".json")):
        return _parse_entries(_read_json(argument), f"policy '{os.fspath(argument)}'")
    if isinstance(argument, Mapping):
        return _parse_entries(argument, "precision")
    return PrecisionPolicy({DEFAULT: check_precision(argument)})


def _read_json(path: str | os.PathLike[str]) -> Any:
    import json

    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise InputError(f"policy '{os.fspath(path)}': expected JSON, given other text: {error}") from None


def _parse_entries(entries: Any, origin: str) -> PrecisionPolicy:
    """Return the policy with these entries. origin: its source, for messages. Raise InputError if the entries are invalid."""
    choices = ", ".join(f"'{name}'" for name in PRECISIONS)
    if not isinstance(entries, Mapping):
        raise InputError(f"{origin}: expected an object of names and precisions, given {type(entries).__name__}")
    for name, value in entries.items():
        if not isinstance(name, str) or value not in PRECISIONS:
            raise InputError(f"{origin}: '{name}': expected one of {choices}, given {value!r}")
    if DEFAULT not in entries:
        raise InputError(f"{origin}: expected an entry '{DEFAULT}' in addition to {sorted(entries)[:4]}, given none")
    if len(low_precisions := sorted({*entries.values()} - {"fp32"})) > 1:
        used_precision = entries[DEFAULT] if entries[DEFAULT] != "fp32" else low_precisions[0]
        other_names = [name for name, value in entries.items() if value not in ("fp32", used_precision)]
        raise InputError(
            f"{origin}: expected 'fp32' and one lower precision, given {' and '.join(map(repr, low_precisions))}: a program stores its "
            f"low-precision floats in one type. 'fp32' has the range of bf16 and more digits than fp16: expected it for {other_names[0]!r}"
        )
    return PrecisionPolicy(entries, origin)
