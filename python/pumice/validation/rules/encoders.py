"""Error-bound rules for encoders and n-gram counts. Strings have no errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor, OperatorCall, UnprovedError, rule

DOMAIN = "ai.onnx.ml"
_UNKNOWN_STRING = "_Unused"  # ONNX's default for unknown keys
_KIND_DTYPES = {"strings": object, "int64s": np.int64, "floats": np.float32}
_DEFAULT_VALUES: dict[Any, Any] = {"strings": _UNKNOWN_STRING, "int64s": -1, "floats": -0.0}


def _read_input_keys(call: OperatorCall, index: int = 0) -> list[Any]:
    """Return an input's elements as Python values. Raise UndecidedError if they are undecided."""
    return [_make_nan_safe_key(element) for element in call.get_decided_input(index).reshape(-1).tolist()]


def _make_nan_safe_key(value: Any) -> Any:
    """Return a dictionary key under which all NaNs are equal."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _read_encoder_table(call: OperatorCall, role: str) -> tuple[str, list[Any]]:
    """Return the element kind of a LabelEncoder's keys or values, and the list itself. Raise UnprovedError without a list."""
    for kind, dtype in _KIND_DTYPES.items():
        values_attribute = call.attribute(f"{role}_{kind}")
        if values_attribute is not None:
            return kind, np.asarray(values_attribute, dtype).tolist()
    tensor = call.attribute(f"{role}_tensor")
    if tensor is None:
        raise UnprovedError(f"LabelEncoder without {role}")
    kinds = {"O": "strings", "i": "int64s", "f": "floats"}
    return kinds[tensor.dtype.kind], tensor.reshape(-1).tolist()


@rule("LabelEncoder", domain=DOMAIN)
def _evaluate_label_encoder(call: OperatorCall) -> list[Any]:
    classes = call.attribute("classes_strings")  # opset 1 maps each class name to its index
    if classes is not None:
        return [_map_strings(call, list(classes), list(range(len(classes))))]
    _, keys = _read_encoder_table(call, "keys")
    kind, values = _read_encoder_table(call, "values")
    tensor = call.attribute("default_tensor")
    name = f"default_{kind.removesuffix('s')}"
    missing = call.attribute(name, _DEFAULT_VALUES[kind]) if tensor is None else tensor.reshape(-1)[0]
    values_tensor = call.attribute("values_tensor")
    dtype = values_tensor.dtype if values_tensor is not None else np.dtype(_KIND_DTYPES[kind])
    return [_look_up_keys(call, dict(zip(map(_make_nan_safe_key, keys), values, strict=True)), missing, dtype)]


def _map_strings(call: OperatorCall, strings: list[str], numbers: list[int]) -> BoundedTensor:
    """Map strings to numbers, or numbers to strings, by the paired lists."""
    if call.input(0).dtype == object:
        return _look_up_keys(
            call, dict(zip(strings, numbers, strict=True)), call.attribute("default_int64", -1), np.int64
        )
    return _look_up_keys(
        call, dict(zip(numbers, strings, strict=True)), call.attribute("default_string", _UNKNOWN_STRING), object
    )


@rule("CategoryMapper", domain=DOMAIN)
def _evaluate_category_mapper(call: OperatorCall) -> list[Any]:
    return [_map_strings(call, list(call.attribute("cats_strings")), list(call.attribute("cats_int64s")))]


def _look_up_keys(call: OperatorCall, table: dict[Any, Any], missing: Any, dtype: Any) -> BoundedTensor:
    shape = call.input(0).shape
    values = [table.get(element, missing) for element in _read_input_keys(call)]
    return _round_constants(call, np.array(values, dtype).reshape(shape))


def _round_constants(call: OperatorCall, result: Array) -> BoundedTensor:
    """Round attribute values to the storage type, as 16-bit programs do."""
    if result.dtype.kind != "f":
        return BoundedTensor(result, None, result.dtype)
    storage = call.types.get_storage_type(result.dtype)
    exact = result.astype(np.float64)
    return BoundedTensor(exact, np.abs(storage.round(exact) - exact), result.dtype, stored=True)


@rule("OneHotEncoder", domain=DOMAIN)
def _evaluate_one_hot_encoder(call: OperatorCall) -> list[Any]:
    string_keys = call.attribute("cats_strings")
    keys = list(string_keys) if string_keys else list(call.attribute("cats_int64s"))
    shape = call.input(0).shape
    keys_by_row = [
        _make_nan_safe_key(element) if string_keys else int(element)
        for element in call.get_decided_input(0).reshape(-1).tolist()
    ]
    if not call.attribute("zeros", 1) and not set(keys_by_row).issubset(keys):
        raise UnprovedError("OneHotEncoder with zeros=0 and an unknown category")
    hot = np.array([[element == key for key in keys] for element in keys_by_row], np.float64).reshape(*shape, len(keys))
    return [BoundedTensor(hot, None, np.float32, stored=True)]


@rule("TfIdfVectorizer")
def _evaluate_tf_idf(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    string_keys = call.attribute("pool_strings")
    grams = dict(
        _iter_pool_ngrams(call, list(string_keys if string_keys is not None else call.attribute("pool_int64s")))
    )
    columns = list(call.attribute("ngram_indexes"))
    rows = (
        call.get_decided_input(0).reshape(-1, x.shape[-1]) if x.ndim == 2 else call.get_decided_input(0).reshape(1, -1)
    )
    counts = np.zeros((len(rows), max(columns) + 1))
    for row, tokens in zip(counts, rows.tolist(), strict=True):
        for gram in _iter_row_ngrams(call, tokens):
            if gram in grams:
                row[columns[grams[gram]]] += 1
    result = BoundedTensor(counts if x.ndim == 2 else counts[0], None, np.float32)
    return [result if call.attribute("mode") == "TF" else _apply_weights(call, result, columns)]


def _iter_pool_ngrams(call: OperatorCall, pool: list[Any]) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield each n-gram of the pool with its output index; of duplicates, only the first."""
    starts = [*call.attribute("ngram_counts"), len(pool)]
    index_by_ngram: dict[tuple[Any, ...], int] = {}
    number = 0
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        for at in range(start, end, length):
            index_by_ngram.setdefault(tuple(pool[at : at + length]), number)
            number += 1
    return iter(index_by_ngram.items())


def _iter_row_ngrams(call: OperatorCall, tokens: list[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield every n-gram of a row, with up to max_skip_count skipped tokens between neighbours."""
    min_length, max_length = call.attribute("min_gram_length"), call.attribute("max_gram_length")
    for length in range(min_length, max_length + 1):
        skips: Iterable[int] = range(1 if length == 1 else call.attribute("max_skip_count") + 1)
        for step in (skip + 1 for skip in skips):
            for start_index in range(len(tokens) - (length - 1) * step):
                yield tuple(tokens[start_index : start_index + (length - 1) * step + 1 : step])


def _apply_weights(call: OperatorCall, counts: BoundedTensor, columns: list[int]) -> BoundedTensor:
    """Return the counts (0 or 1 in mode IDF) times the weights, which are rounded to storage."""
    weights = np.ones(counts.shape[-1])
    weights[columns] = np.asarray(call.attribute("weights", np.ones(len(columns))), np.float32)
    storage = call.types.get_storage_type(np.float32)
    bounded_weights = BoundedTensor(weights, np.abs(storage.round(weights) - weights), np.float32)
    if call.attribute("mode") == "IDF":
        counts = BoundedTensor(np.minimum(counts.value, 1.0), None, np.float32)
    return call.make_arithmetic(np.float32).mul(counts, bounded_weights)
