"""A checker for the subset of JSON Schema used in report.schema.json. It also reports keys missing from the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def faults(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str = "$") -> Iterator[str]:
    """Yield the locations where a value violates the schema."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_is(value, name) for name in names):
            yield f"{at}: {value!r} is no {' or '.join(names)}"
            return
    if isinstance(value, dict):
        yield from _faults_of_object(value, schema, root, at)
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from faults(item, schema["items"], root, f"{at}[{i}]")


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _faults_of_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str
) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: '{name}' is missing"
    known = schema.get("properties", {})
    for name, item in value.items():
        inner = known.get(name, schema.get("additionalProperties"))
        if inner is None:
            yield f"{at}: '{name}' is not in the schema"
        else:
            yield from faults(item, inner, root, f"{at}.{name}")
