"""Read the settings of a model folder in the format of onnxruntime-genai or optimum."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import FolderError

Path = str | os.PathLike[str]

_MOST_BYTES = 1 << 26  # maximum size of a settings file
_MOST_LAYERS = 4096
_GENAI, _OPTIMUM, _SAMPLING, _TOKENS = "genai_config.json", "config.json", "generation_config.json", "tokenizer.json"
_FOREIGN = {"is_encoder_decoder": "an encoder beside the decoder", "use_cache_branch": "a branch for the first prompt"}


@dataclass(frozen=True)
class Names:
    """Names of the model's inputs and outputs. Cache names contain %d in place of the layer index."""

    words: str = "input_ids"
    mask: str = "attention_mask"
    places: str = "position_ids"
    past: tuple[str, ...] = ("past_key_values.%d.key", "past_key_values.%d.value")
    logits: str = "logits"
    present: tuple[str, ...] = ("present.%d.key", "present.%d.value")


@dataclass(frozen=True)
class Folder:
    """The folder's description of its model.

    settings: name of the settings file. ends: ids of end-of-text tokens. context: the model's context length, None if unknown. search:
    sampling parameters that the folder suggests; they are not applied by default. templates: prompt template of each role, with {Content}
    as the placeholder.
    """

    path: str
    settings: str
    model: str
    tokenizer: str
    names: Names = Names()
    ends: tuple[int, ...] = ()
    begin: int | None = None
    context: int | None = None
    search: Mapping[str, Any] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)


class Settings:
    """A JSON settings file with type-checked field access."""

    def __init__(self, folder: str, name: str) -> None:
        self.name = name
        self.values = _read_object(folder, name)

    def part(self, name: str, required: bool = False) -> Settings:
        """Return the settings nested in a field; empty settings if the field is absent."""
        made = object.__new__(Settings)
        made.name, made.values = self.name, self.get(name, dict, {}, required)
        return made

    def get(self, name: str, kind: type, default: Any = None, required: bool = False) -> Any:
        """Return the value of a field. Raise FolderError if it has another type, or is required and absent."""
        value = self.values.get(name)
        if value is None:
            if required:
                raise FolderError(self.name, name, f"expected {_kind_name(kind)}, given nothing")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise FolderError(self.name, name, f"expected {_kind_name(kind)}, given {value!r:.200}")
        return value

    def count(self, *names: str, most: int = 1 << 31) -> int | None:
        """Return the first of these fields that is present; it must be an integer from 1 to `most`."""
        for name in names:
            if (value := self.get(name, int)) is not None:
                if not 1 <= value <= most:
                    raise FolderError(self.name, name, f"expected a number from 1 to {most}, given {value}")
                return int(value)
        return None

    def tokens(self, name: str) -> tuple[int, ...]:
        """Return the token ids in a field, which is a token id or a list of them."""
        value = self.values.get(name)
        given = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1 << 31 for one in given):
            raise FolderError(self.name, name, f"expected numbers of tokens, given {value!r:.200}")
        return tuple(given)


def _kind_name(kind: type) -> str:
    return {int: "a whole number", str: "a text", dict: "an object", list: "a list"}.get(kind, kind.__name__)


def _read_object(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    try:
        size = os.path.getsize(path)
        if size > _MOST_BYTES:
            raise FolderError(name, "", f"expected at most {_MOST_BYTES} bytes, given {size}")
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, FolderError):
            raise
        raise FolderError(name, "", f"expected a file with a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise FolderError(name, "", f"expected a JSON object, given {type(value).__name__}")
    return value


def _file_in(folder: str, settings: str, name: str, given: str) -> str:
    """Return the path of a file in the folder. Raise FolderError if it is outside the folder or missing."""
    if os.path.isabs(given) or os.pardir in given.replace("\\", "/").split("/") or "\0" in given:
        raise FolderError(settings, name, f"expected the name of a file in the folder, given {given!r:.200}")
    path = os.path.join(folder, given)
    try:
        os.stat(path)
    except OSError as error:
        raise FolderError(given, "", f"expected a file in the folder: {error.strerror}") from None
    if not os.path.isfile(path):
        raise FolderError(given, "", "expected a file, given something else")
    return path


def read_folder(folder: Path) -> Folder:
    """Read the settings of a folder. Raise FolderError naming the invalid or missing file and field."""
    path = os.fspath(folder)
    if not os.path.isdir(path):
        raise FolderError(path, "", "expected the folder of a language model, given no folder")
    if os.path.lexists(os.path.join(path, _GENAI)):
        return _genai(path)
    if os.path.lexists(os.path.join(path, _OPTIMUM)):
        return _optimum(path)
    raise FolderError(path, "", f"expected {_GENAI} (of onnxruntime-genai) or {_OPTIMUM} (of optimum), given neither")


def _genai(path: str) -> Folder:
    settings = Settings(path, _GENAI)
    model = settings.part("model", required=True)
    decoder = model.part("decoder", required=True)
    for other in ("encoder", "vision", "speech", "embedding"):
        if other in model.values:
            raise FolderError(
                _GENAI, f"model.{other}", "expected a decoder of text alone, given another model beside it"
            )
    if "pipeline" in decoder.values:
        raise FolderError(_GENAI, "model.decoder.pipeline", "expected one model, given several after each other")
    file = decoder.get("filename", str, "model.onnx")
    begins = model.tokens("bos_token_id")
    return Folder(
        path,
        _GENAI,
        _file_in(path, _GENAI, "model.decoder.filename", file),
        _file_in(path, _GENAI, "tokenizer", _TOKENS),
        _genai_names(decoder),
        model.tokens("eos_token_id"),
        begins[0] if begins else None,
        model.count("context_length"),
        settings.part("search").values,
        {role: text for role, text in model.part("prompt_templates").values.items() if isinstance(text, str)},
    )


def _genai_names(decoder: Settings) -> Names:
    inputs, outputs, usual = decoder.part("inputs"), decoder.part("outputs"), Names()
    if "past_names" in inputs.values:
        raise FolderError(
            _GENAI, "model.decoder.inputs.past_names", "expected keys and values apart, given both in one"
        )

    def pattern(part: Settings, name: str, default: str) -> str:
        given = str(part.get(name, str, default))
        if given.count("%d") != 1 or given.count("%") != 1:
            raise FolderError(_GENAI, name, f"expected a name with %d for the layer's number, given {given!r:.200}")
        return given

    return Names(
        inputs.get("input_ids", str, usual.words),
        inputs.get("attention_mask", str, usual.mask),
        inputs.get("position_ids", str, usual.places),
        (pattern(inputs, "past_key_names", usual.past[0]), pattern(inputs, "past_value_names", usual.past[1])),
        outputs.get("logits", str, usual.logits),
        (
            pattern(outputs, "present_key_names", usual.present[0]),
            pattern(outputs, "present_value_names", usual.present[1]),
        ),
    )


def _optimum(path: str) -> Folder:
    settings = Settings(path, _OPTIMUM)
    for name, what in _FOREIGN.items():
        if settings.values.get(name):
            raise FolderError(_OPTIMUM, name, f"expected a decoder alone, given {what}")
    files = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx")
    found = [
        name for name in (*files, *(f"onnx/{name}" for name in files)) if os.path.lexists(os.path.join(path, name))
    ]
    if not found:
        raise FolderError("model.onnx", "", "expected a file in the folder or in its folder onnx, given none")
    if os.path.basename(found[0]) != "model.onnx":
        raise FolderError(
            found[0], "", "expected one model for prompts and what follows (model.onnx), given another form"
        )
    has_sampling = os.path.lexists(os.path.join(path, _SAMPLING))
    sampling = Settings(path, _SAMPLING) if has_sampling else settings
    begins = sampling.tokens("bos_token_id") or settings.tokens("bos_token_id")
    return Folder(
        path,
        _OPTIMUM,
        _file_in(path, _OPTIMUM, "model", found[0]),
        _file_in(path, _OPTIMUM, "tokenizer", _TOKENS),
        ends=sampling.tokens("eos_token_id") or settings.tokens("eos_token_id"),
        begin=begins[0] if begins else None,
        context=settings.count("max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len"),
        search=sampling.values if has_sampling else {},
    )


def layer_names(patterns: tuple[str, ...], known: set[str]) -> list[tuple[str, ...]]:
    """Return the known cache names of each layer, from layer 0 on."""
    layers = []
    for layer in range(_MOST_LAYERS):
        names = tuple(pattern.replace("%d", str(layer)) for pattern in patterns)
        if known.isdisjoint(names):
            break
        layers.append(names)
    return layers
