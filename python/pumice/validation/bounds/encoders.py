"""Rules of lookups and counts. Strings have no error: they are equal or not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .registry import Call, Unproved, rule

DOMAIN = "ai.onnx.ml"
_UNKNOWN = "_Unused"  # ONNX's default for unknown keys
_KINDS = {"strings": object, "int64s": np.int64, "floats": np.float32}
_DEFAULTS: dict[Any, Any] = {"strings": _UNKNOWN, "int64s": -1, "floats": -0.0}


def _given(call: Call, index: int = 0) -> list[Any]:
    """Return an input's elements as Python values. Raise Undecided if they are undecided."""
    return [_key(one) for one in call.exact(index).reshape(-1).tolist()]


def _key(value: Any) -> Any:
    """Return a key for which NaN equals NaN."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _table(call: Call, role: str) -> tuple[str, list[Any]]:
    """Return the kind of a LabelEncoder's keys or values, and their list. Raise Unproved if the list is missing."""
    for kind, dtype in _KINDS.items():
        found = call.attribute(f"{role}_{kind}")
        if found is not None:
            return kind, np.asarray(found, dtype).tolist()
    tensor = call.attribute(f"{role}_tensor")
    if tensor is None:
        raise Unproved(f"LabelEncoder without {role}")
    kinds = {"O": "strings", "i": "int64s", "f": "floats"}
    return kinds[tensor.dtype.kind], tensor.reshape(-1).tolist()


@rule("LabelEncoder", domain=DOMAIN)
def _label_encoder(call: Call) -> list[Any]:
    classes = call.attribute("classes_strings")  # opset 1: a class is mapped to its index
    if classes is not None:
        return [_mapped(call, list(classes), list(range(len(classes))))]
    _, keys = _table(call, "keys")
    kind, values = _table(call, "values")
    tensor = call.attribute("default_tensor")
    name = f"default_{kind.removesuffix('s')}"
    missing = call.attribute(name, _DEFAULTS[kind]) if tensor is None else tensor.reshape(-1)[0]
    given = call.attribute("values_tensor")
    dtype = given.dtype if given is not None else np.dtype(_KINDS[kind])
    return [_looked_up(call, dict(zip(map(_key, keys), values, strict=True)), missing, dtype)]


def _mapped(call: Call, texts: list[str], numbers: list[int]) -> Bounded:
    """Map strings to numbers or numbers to strings."""
    if call.input(0).dtype == object:
        return _looked_up(call, dict(zip(texts, numbers, strict=True)), call.attribute("default_int64", -1), np.int64)
    return _looked_up(call, dict(zip(numbers, texts, strict=True)), call.attribute("default_string", _UNKNOWN), object)


@rule("CategoryMapper", domain=DOMAIN)
def _category_mapper(call: Call) -> list[Any]:
    return [_mapped(call, list(call.attribute("cats_strings")), list(call.attribute("cats_int64s")))]


def _looked_up(call: Call, table: dict[Any, Any], missing: Any, dtype: Any) -> Bounded:
    shape = call.input(0).shape
    values = [table.get(one, missing) for one in _given(call)]
    return _constants(call, np.array(values, dtype).reshape(shape))


def _constants(call: Call, made: Array) -> Bounded:
    """Return attribute values, which 16-bit programs round."""
    if made.dtype.kind != "f":
        return Bounded(made, None, made.dtype)
    kept = call.types.storage(made.dtype)
    exact = made.astype(np.float64)
    return Bounded(exact, np.abs(kept.rounded(exact) - exact), made.dtype, stored=True)


@rule("OneHotEncoder", domain=DOMAIN)
def _one_hot_encoder(call: Call) -> list[Any]:
    texts = call.attribute("cats_strings")
    keys = list(texts) if texts else list(call.attribute("cats_int64s"))
    shape = call.input(0).shape
    given = [_key(one) if texts else int(one) for one in call.exact(0).reshape(-1).tolist()]
    if not call.attribute("zeros", 1) and not set(given).issubset(keys):
        raise Unproved("OneHotEncoder with zeros=0 of what is no category")
    hot = np.array([[one == key for key in keys] for one in given], np.float64).reshape(*shape, len(keys))
    return [Bounded(hot, None, np.float32, stored=True)]


@rule("TfIdfVectorizer")
def _tf_idf(call: Call) -> list[Any]:
    x = call.input(0)
    texts = call.attribute("pool_strings")
    grams = dict(_grams(call, list(texts if texts is not None else call.attribute("pool_int64s"))))
    places = list(call.attribute("ngram_indexes"))
    rows = call.exact(0).reshape(-1, x.shape[-1]) if x.ndim == 2 else call.exact(0).reshape(1, -1)
    counts = np.zeros((len(rows), max(places) + 1))
    for row, words in zip(counts, rows.tolist(), strict=True):
        for gram in _seen(call, words):
            if gram in grams:
                row[places[grams[gram]]] += 1
    made = Bounded(counts if x.ndim == 2 else counts[0], None, np.float32)
    return [made if call.attribute("mode") == "TF" else _weighed(call, made, places)]


def _grams(call: Call, pool: list[Any]) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield each n-gram with its index; duplicates keep the first."""
    starts = [*call.attribute("ngram_counts"), len(pool)]
    found: dict[tuple[Any, ...], int] = {}
    number = 0
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        for at in range(start, end, length):
            found.setdefault(tuple(pool[at : at + length]), number)
            number += 1
    return iter(found.items())


def _seen(call: Call, words: list[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield every n-gram of a row, with up to max_skip_count skipped words between neighbours."""
    least, most = call.attribute("min_gram_length"), call.attribute("max_gram_length")
    for length in range(least, most + 1):
        skips: Iterable[int] = range(1 if length == 1 else call.attribute("max_skip_count") + 1)
        for step in (skip + 1 for skip in skips):
            for at in range(len(words) - (length - 1) * step):
                yield tuple(words[at : at + (length - 1) * step + 1 : step])


def _weighed(call: Call, counts: Bounded, places: list[int]) -> Bounded:
    """Return counts (or presence for IDF) times the weights, which are rounded to storage."""
    weights = np.ones(counts.shape[-1])
    weights[places] = np.asarray(call.attribute("weights", np.ones(len(places))), np.float32)
    kept = call.types.storage(np.float32)
    held = Bounded(weights, np.abs(kept.rounded(weights) - weights), np.float32)
    if call.attribute("mode") == "IDF":
        counts = Bounded(np.minimum(counts.value, 1.0), None, np.float32)
    return call.arithmetic(np.float32).mul(counts, held)
