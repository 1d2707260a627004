"""Read the settings of a language model folder in onnxruntime-genai or optimum format."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import FolderError

Path = str | os.PathLike[str]

_MAX_BYTES = 1 << 26  # maximum size of a settings file
_MAX_LAYERS = 4096
_GENAI, _OPTIMUM, _SAMPLING, _TOKENS = "genai_config.json", "config.json", "generation_config.json", "tokenizer.json"
_UNSUPPORTED_FIELDS = {
    "is_encoder_decoder": "an encoder in addition to the decoder",
    "use_cache_branch": "a branch for the first prompt",
}


@dataclass(frozen=True)
class IoNames:
    """Names of the model's inputs and outputs. Cache names are patterns with %d for the layer index."""

    input_ids: str = "input_ids"
    attention_mask: str = "attention_mask"
    position_ids: str = "position_ids"
    past: tuple[str, ...] = ("past_key_values.%d.key", "past_key_values.%d.value")
    logits: str = "logits"
    present: tuple[str, ...] = ("present.%d.key", "present.%d.value")


@dataclass(frozen=True)
class ModelFolder:
    """The settings of a language model folder.

    settings: name of the settings file. model, tokenizer: paths. eos_token_ids: end-of-text tokens. context_length: None if unknown.
    search: suggested sampling parameters, which are not applied by default. templates: role -> prompt template with the placeholder
    {Content}.
    """

    path: str
    settings: str
    model: str
    tokenizer: str
    names: IoNames = IoNames()
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    context_length: int | None = None
    search: Mapping[str, Any] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)


class JsonSettings:
    """A JSON settings file. Its methods check the types of fields."""

    def __init__(self, folder: str, name: str) -> None:
        self.name = name
        self.values = _read_json_object(folder, name)

    def get_subsection(self, name: str, required: bool = False) -> JsonSettings:
        """Return the object in a field as settings; empty settings if the field is absent."""
        result = object.__new__(JsonSettings)
        result.name, result.values = self.name, self.get(name, dict, {}, required)
        return result

    def get(self, name: str, kind: type, default: Any = None, required: bool = False) -> Any:
        """Return the value of a field. Raise FolderError if it has another type, or is required and absent."""
        value = self.values.get(name)
        if value is None:
            if required:
                raise FolderError(self.name, name, f"expected {_format_type(kind)}, given nothing")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise FolderError(self.name, name, f"expected {_format_type(kind)}, given {value!r:.200}")
        return value

    def get_positive_int(self, *names: str, limit: int = 1 << 31) -> int | None:
        """Return the first of these fields that is present; else None. Raise FolderError unless it is an integer from 1 to `limit`."""
        for name in names:
            if (value := self.get(name, int)) is not None:
                if not 1 <= value <= limit:
                    raise FolderError(self.name, name, f"expected a number from 1 to {limit}, given {value}")
                return int(value)
        return None

    def get_token_ids(self, name: str) -> tuple[int, ...]:
        """Return the token ids of a field that contains a token id or a list of them; () if absent."""
        value = self.values.get(name)
        value_list = [] if value is None else value if isinstance(value, list) else [value]
        if not all(
            isinstance(token, int) and not isinstance(token, bool) and 0 <= token < 1 << 31 for token in value_list
        ):
            raise FolderError(self.name, name, f"expected numbers of tokens, given {value!r:.200}")
        return tuple(value_list)


def _format_type(kind: type) -> str:
    return {int: "an integer", str: "a string", dict: "an object", list: "a list"}.get(kind, kind.__name__)


def _read_json_object(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    try:
        size = os.path.getsize(path)
        if size > _MAX_BYTES:
            raise FolderError(name, "", f"expected at most {_MAX_BYTES} bytes, given {size}")
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, FolderError):
            raise
        raise FolderError(name, "", f"expected a file with a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise FolderError(name, "", f"expected a JSON object, given {type(value).__name__}")
    return value


def _resolve_file(folder: str, settings: str, name: str, file_name: str) -> str:
    """Return the path of a file in the folder. Raise FolderError if the file is outside the folder or missing."""
    if os.path.isabs(file_name) or os.pardir in file_name.replace("\\", "/").split("/") or "\0" in file_name:
        raise FolderError(settings, name, f"expected the name of a file in the folder, given {file_name!r:.200}")
    path = os.path.join(folder, file_name)
    try:
        os.stat(path)
    except OSError as error:
        raise FolderError(file_name, "", f"expected a file in the folder: {error.strerror}") from None
    if not os.path.isfile(path):
        raise FolderError(file_name, "", "expected a regular file")
    return path


def read_model_folder(folder: Path) -> ModelFolder:
    """Read the settings of a folder. Raise FolderError naming the invalid or missing file and field."""
    path = os.fspath(folder)
    if not os.path.isdir(path):
        raise FolderError(path, "", "expected the folder of a language model, given something else")
    if os.path.lexists(os.path.join(path, _GENAI)):
        return _read_genai_folder(path)
    if os.path.lexists(os.path.join(path, _OPTIMUM)):
        return _read_optimum_folder(path)
    raise FolderError(path, "", f"expected {_GENAI} (of onnxruntime-genai) or {_OPTIMUM} (of optimum), given neither")


def _read_genai_folder(path: str) -> ModelFolder:
    settings = JsonSettings(path, _GENAI)
    model = settings.get_subsection("model", required=True)
    decoder = model.get_subsection("decoder", required=True)
    for other in ("encoder", "vision", "speech", "embedding"):
        if other in model.values:
            raise FolderError(_GENAI, f"model.{other}", "expected only a text decoder, given another model as well")
    if "pipeline" in decoder.values:
        raise FolderError(_GENAI, "model.decoder.pipeline", "expected one model, given several in sequence")
    file = decoder.get("filename", str, "model.onnx")
    bos_token_ids = model.get_token_ids("bos_token_id")
    return ModelFolder(
        path,
        _GENAI,
        _resolve_file(path, _GENAI, "model.decoder.filename", file),
        _resolve_file(path, _GENAI, "tokenizer", _TOKENS),
        _read_genai_io_names(decoder),
        model.get_token_ids("eos_token_id"),
        bos_token_ids[0] if bos_token_ids else None,
        model.get_positive_int("context_length"),
        settings.get_subsection("search").values,
        {role: text for role, text in model.get_subsection("prompt_templates").values.items() if isinstance(text, str)},
    )


def _read_genai_io_names(decoder: JsonSettings) -> IoNames:
    inputs, outputs, defaults = decoder.get_subsection("inputs"), decoder.get_subsection("outputs"), IoNames()
    if "past_names" in inputs.values:
        raise FolderError(
            _GENAI, "model.decoder.inputs.past_names", "expected separate keys and values, given both in one tensor"
        )

    def get_pattern(section: JsonSettings, name: str, default: str) -> str:
        name_pattern = str(section.get(name, str, default))
        if name_pattern.count("%d") != 1 or name_pattern.count("%") != 1:
            raise FolderError(
                _GENAI, name, f"expected a name with %d for the layer's number, given {name_pattern!r:.200}"
            )
        return name_pattern

    return IoNames(
        inputs.get("input_ids", str, defaults.input_ids),
        inputs.get("attention_mask", str, defaults.attention_mask),
        inputs.get("position_ids", str, defaults.position_ids),
        (
            get_pattern(inputs, "past_key_names", defaults.past[0]),
            get_pattern(inputs, "past_value_names", defaults.past[1]),
        ),
        outputs.get("logits", str, defaults.logits),
        (
            get_pattern(outputs, "present_key_names", defaults.present[0]),
            get_pattern(outputs, "present_value_names", defaults.present[1]),
        ),
    )


def _read_optimum_folder(path: str) -> ModelFolder:
    settings = JsonSettings(path, _OPTIMUM)
    for name, feature in _UNSUPPORTED_FIELDS.items():
        if settings.values.get(name):
            raise FolderError(_OPTIMUM, name, f"expected only a decoder, given {feature}")
    files = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx")
    model_files = [
        name for name in (*files, *(f"onnx/{name}" for name in files)) if os.path.lexists(os.path.join(path, name))
    ]
    if not model_files:
        raise FolderError("model.onnx", "", "expected a file in the folder or in its folder onnx, given none")
    if os.path.basename(model_files[0]) != "model.onnx":
        raise FolderError(model_files[0], "", "expected one model for prefill and decoding, named model.onnx")
    has_sampling = os.path.lexists(os.path.join(path, _SAMPLING))
    sampling = JsonSettings(path, _SAMPLING) if has_sampling else settings
    bos_token_ids = sampling.get_token_ids("bos_token_id") or settings.get_token_ids("bos_token_id")
    return ModelFolder(
        path,
        _OPTIMUM,
        _resolve_file(path, _OPTIMUM, "model", model_files[0]),
        _resolve_file(path, _OPTIMUM, "tokenizer", _TOKENS),
        eos_token_ids=sampling.get_token_ids("eos_token_id") or settings.get_token_ids("eos_token_id"),
        bos_token_id=bos_token_ids[0] if bos_token_ids else None,
        context_length=settings.get_positive_int(
            "max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len"
        ),
        search=sampling.values if has_sampling else {},
    )


def list_cache_names_by_layer(patterns: tuple[str, ...], known_names: set[str]) -> list[tuple[str, ...]]:
    """Return the cache names of each layer, from layer 0 to the last layer with a name in `known_names`."""
    layers = []
    for layer in range(_MAX_LAYERS):
        names = tuple(pattern.replace("%d", str(layer)) for pattern in patterns)
        if known_names.isdisjoint(names):
            break
        layers.append(names)
    return layers
