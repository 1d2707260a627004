"""Incomplete, unsupported or malicious model folders: the error names the file and the field."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from decoder_folders import STORY
from pumice.text import FolderError, Generator

pytest.importorskip("tokenizers")

Change = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORY, tmp_path / "story"))


def setting(path: str, value: Any) -> Change:
    """Change a field of genai_config.json; None removes it."""

    def change(folder: Path) -> None:
        file = folder / "genai_config.json"
        settings = json.loads(file.read_text())
        *parents, name = path.split(".")
        section = settings
        for parent in parents:
            section = section[parent]
        if value is None:
            del section[name]
        else:
            section[name] = value
        file.write_text(json.dumps(settings))

    return change


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def written(name: str, text: str) -> Change:
    return lambda folder: (folder / name).write_text(text) and None


def linked(name: str, target: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return change


def model(change: Callable[[onnx.ModelProto], None]) -> Change:
    def changed(folder: Path) -> None:
        proto = onnx.load(str(folder / "model.onnx"), load_external_data=False)
        change(proto)
        (folder / "model.onnx").write_bytes(proto.SerializeToString())

    return changed


def without_attention(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "Attention"


def with_an_input(proto: onnx.ModelProto) -> None:
    proto.graph.input.append(helper.make_tensor_value_info("pictures", TensorProto.FLOAT, ["batch", 128]))
    proto.graph.node.append(helper.make_node("Identity", ["pictures"], ["seen"]))
    first = next(node for node in proto.graph.node if node.op_type == "SimplifiedLayerNormalization")
    proto.graph.node.append(helper.make_node("Add", [first.input[0], "seen"], ["both"]))
    first.input[0] = "both"
    nodes = [*proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(sorted(nodes, key=lambda node: node.op_type not in ("Identity", "Gather", "Add")))


def without_caches(proto: onnx.ModelProto) -> None:
    for value in proto.graph.input:
        value.name = value.name.replace("past_key_values", "before")
    for node in proto.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = name.replace("past_key_values", "before")


def cycle(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").symlink_to("other")
    (folder / "other").symlink_to("model.onnx")


def huge(folder: Path) -> None:
    with open(folder / "genai_config.json", "wb") as file:
        file.truncate(1 << 40)


CASES: list[tuple[str, Change, str, str]] = [
    ("no settings", removed("genai_config.json"), "", "genai_config.json"),
    ("no tokenizer", removed("tokenizer.json"), "tokenizer.json", "No such file"),
    ("no model", removed("model.onnx"), "model.onnx", "No such file"),
    ("settings that are no JSON", written("genai_config.json", "{"), "genai_config.json", "JSON"),
    ("settings that are a list", written("genai_config.json", "[]"), "genai_config.json", "JSON object"),
    ("deep settings", written("genai_config.json", "[" * 200000), "genai_config.json", "JSON"),
    ("settings of a terabyte", huge, "genai_config.json", "at most"),
    ("no model in the settings", setting("model", None), "genai_config.json", "model"),
    ("no decoder", setting("model.decoder", None), "genai_config.json", "decoder"),
    ("a decoder that is a text", setting("model.decoder", "x"), "genai_config.json", "an object"),
    ("a file elsewhere", setting("model.decoder.filename", "../../etc/passwd"), "genai_config.json", "filename"),
    ("an absolute file", setting("model.decoder.filename", "/etc/passwd"), "genai_config.json", "filename"),
    ("a number for a file", setting("model.decoder.filename", 3), "genai_config.json", "filename"),
    ("a context of none", setting("model.context_length", 0), "genai_config.json", "context_length"),
    ("a context of half", setting("model.context_length", 0.5), "genai_config.json", "context_length"),
    ("an end that is a text", setting("model.eos_token_id", "x"), "genai_config.json", "eos_token_id"),
    ("an end that is no token", setting("model.eos_token_id", [0, 9999]), "genai_config.json", "eos_token_id"),
    ("a begin that is no token", setting("model.bos_token_id", 9999), "genai_config.json", "bos_token_id"),
    (
        "a name without a layer",
        setting("model.decoder.inputs.past_key_names", "x"),
        "genai_config.json",
        "past_key_names",
    ),
    (
        "a name with another",
        setting("model.decoder.inputs.past_key_names", "%d%s"),
        "genai_config.json",
        "past_key_names",
    ),
    (
        "other names of caches",
        setting("model.decoder.inputs.past_key_names", "y.%d"),
        "model.onnx",
        "past_key_values.0.value|y.%d|y.0",
    ),
    ("other names of outputs", setting("model.decoder.outputs.present_key_names", "y.%d"), "model.onnx", "output"),
    ("another name of logits", setting("model.decoder.outputs.logits", "scores"), "model.onnx", "scores"),
    ("another name of words", setting("model.decoder.inputs.input_ids", "ids"), "model.onnx", "ids"),
    ("a tokenizer that is none", written("tokenizer.json", "{}"), "tokenizer.json", "tokenizer"),
    (
        "a folder for a model",
        lambda folder: ((folder / "model.onnx").unlink(), (folder / "model.onnx").mkdir())[1],
        "model.onnx",
        "a regular file",
    ),
    ("links in a circle", cycle, "model.onnx", "symbolic links"),
    ("a tokenizer that is itself", linked("tokenizer.json", "tokenizer.json"), "tokenizer.json", "symbolic links"),
    ("an encoder too", setting("model.encoder", {}), "genai_config.json", "encoder"),
    ("no caches", model(without_caches), "model.onnx", "past_key_values"),
    ("another input", model(with_an_input), "model.onnx", "pictures"),
    ("another operator", model(without_attention), "model.onnx", "GroupQueryAttention or Concat"),
]


@pytest.mark.parametrize(("change", "file", "field"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_wrong_is_named(change: Change, file: str, field: str, folder: Path, context: pumice.Context) -> None:
    change(folder)
    with pytest.raises(FolderError) as caught:
        Generator(folder, context)
    assert caught.value.file.endswith(file or "story")
    assert any(name in str(caught.value) for name in field.split("|")), str(caught.value)


def test_weights_that_do_not_fit_are_an_error(folder: Path, context: pumice.Context) -> None:
    (folder / "model.onnx.data").write_bytes(b"\0" * 1000)
    with pytest.raises(pumice.Error, match=r"model.onnx.data|past the end|bytes"):
        Generator(folder, context)
    os.remove(folder / "model.onnx.data")
    with pytest.raises(pumice.Error, match="model.onnx.data"):
        Generator(folder, context)


def test_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="expected the folder of a language model"):
        Generator(tmp_path / "nothing")
    with pytest.raises(pumice.Error, match="precision: expected one of"):
        Generator(STORY, precision="int3")


def as_optimum(folder: Path, **more: Any) -> None:
    """Write the example in the layout of optimum."""
    (folder / "genai_config.json").unlink()
    settings = {
        "model_type": "llama",
        "max_position_embeddings": 512,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "vocab_size": 512,
    }
    (folder / "config.json").write_text(json.dumps({**settings, **more}))


def test_a_folder_of_optimum(folder: Path, context: pumice.Context) -> None:
    with Generator(STORY, context) as generator:
        expected = generator("Once there was a fox", max_tokens=30)
    as_optimum(folder)
    with Generator(folder, context) as generator:
        assert generator("Once there was a fox", max_tokens=30) == expected
        assert (generator.folder.eos_token_ids, generator.context_length) == ((0,), 512)
    (folder / "onnx").mkdir()
    for name in ("model.onnx", "model.onnx.data"):
        (folder / name).rename(folder / "onnx" / name)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 1], "temperature": 0.7}))
    with Generator(folder, context) as generator:
        assert generator("Once there was a fox", max_tokens=30) == expected
        assert generator.folder.eos_token_ids == (0, 1)
        assert generator.folder.search["temperature"] == 0.7


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"max_position_embeddings": -1}, "max_position_embeddings"),
    ],
)
def test_folders_of_optimum_that_do_not_fit(settings: dict[str, Any], field: str, folder: Path) -> None:
    as_optimum(folder, **settings)
    with pytest.raises(FolderError) as caught:
        Generator(folder)
    assert caught.value.field == field


def test_a_form_of_two_models_is_rejected(folder: Path) -> None:
    as_optimum(folder)
    (folder / "model.onnx").rename(folder / "decoder_model_merged.onnx")
    with pytest.raises(FolderError, match="one model for prefill and decoding"):
        Generator(folder)


def test_ids_without_a_token_have_no_text(folder: Path, context: pumice.Context) -> None:
    """A model's vocabulary may be larger than its tokenizer's."""
    with Generator(folder, context) as generator:
        tokens = generator.tokens
        assert tokens.decode([5, generator.decoder.vocab_size + 3]) == tokens.decode([5])
        assert np.isfinite(generator.logits("Once")).all()
