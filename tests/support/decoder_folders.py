"""Language model folders for tests: the example's, and the corpus' decoders in onnxruntime-genai format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from pumice.text.generator import Session

STORY = Path(__file__).resolve().parents[2] / "python" / "pumice" / "data" / "story"
WORDS = 97  # vocab_size of the corpus' decoders
DECODERS = ["llama.script", "llama.dynamo", "llama_fused.script", "mixture_of_experts.script", "llama.fp16"]
NAMES = {
    "inputs": {
        "input_ids": "ids",
        "attention_mask": "mask",
        "position_ids": "places",
        "past_key_names": "k%d",
        "past_value_names": "v%d",
    },
    "outputs": {"logits": "scores", "present_key_names": "new_k%d", "present_value_names": "new_v%d"},
}


def write_tokenizer(folder: Path, words: int) -> None:
    """Write a tokenizer for numbers as text: "3 14" is tokens 3 and 14."""
    import tokenizers

    vocabulary = {str(i): i for i in range(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_folder(folder: Path, model: onnx.ModelProto, words: int, context: int = 512, **changes: Any) -> Path:
    """Write a folder with this model; changes: fields of the settings' "model"."""
    onnx.save(model, str(folder / "model.onnx"))
    settings = {
        "type": "llama",
        "context_length": context,
        "vocab_size": words,
        "decoder": {"filename": "model.onnx", **NAMES},
    }
    (folder / "genai_config.json").write_text(json.dumps({"model": {**settings, **changes}, "search": {}}))
    write_tokenizer(folder, words)
    return folder


def with_word(model: onnx.ModelProto, word: int, value: float) -> onnx.ModelProto:
    """Return the model with a token's embedding filled with this value."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    looked_up = next(
        node.input[0] for node in changed.graph.node if node.op_type == "Gather" and "ids" in node.input[1]
    )
    (table,) = (initializer for initializer in changed.graph.initializer if initializer.name == looked_up)
    array = onnx.numpy_helper.to_array(table).copy()
    array[word] = value
    table.CopyFrom(onnx.numpy_helper.from_array(array, table.name))
    return changed


def story_with_word(folder: Path, word: int, value: float) -> Path:
    """Write the example's folder with a token's embedding filled with this value."""
    shutil.copytree(STORY, folder, dirs_exist_ok=True)
    onnx.save(with_word(onnx.load(str(STORY / "model.onnx")), word, value), str(folder / "model.onnx"))
    return folder


def assert_steps_are_recorded(session: Session, stream: Iterator[str], begun: int) -> None:
    """Check that after `begun` pieces a stream creates no pipelines or recordings, because kernels read the length."""
    for _ in range(begun):
        next(stream)
    rows = session._state
    context = rows.decoder.context
    pipelines, recorded = context.pipelines_created, dict(rows._runs)
    for _ in stream:
        pass
    assert context.pipelines_created == pipelines
    assert rows._runs == recorded


def perplexity(logits: Any, tokens: Sequence[int]) -> float:
    """Return the perplexity of tokens, given the logits after each of them."""
    wide = logits[:-1].astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    p = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    return float(np.exp(-np.take_along_axis(p, np.array(tokens[1:])[:, None], -1).mean()))


class Reference:
    """ONNX Runtime's CPU provider, token by token, on a decoder with growing caches."""

    def __init__(self, model: str | bytes, names: dict[str, Any] | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.inputs = {item.name: item for item in self.session.get_inputs()}
        self.outputs = [value.name for value in self.session.get_outputs()]
        self.ids, self.mask, self.places, past, present = _names(names)
        self.pairs = {}
        for layer in range(1000):
            for element, other in zip(past, present, strict=True):
                if element.replace("%d", str(layer)) in self.inputs:
                    self.pairs[element.replace("%d", str(layer))] = other.replace("%d", str(layer))
        self.restart()

    def restart(self) -> None:
        self.length = 0
        self.caches = {}
        for name in self.pairs:
            item = self.inputs[name]
            shape = (1, item.shape[1], 0, item.shape[3])
            self.caches[name] = np.zeros(shape, np.float16 if "float16" in item.type else np.float32)

    def logits(self, tokens: Sequence[int]) -> Any:
        """Return the logits after each token; the tokens continue the previous ones."""
        ids = np.array([tokens], np.int64)
        begin, self.length = self.length, self.length + len(tokens)
        feeds = {self.ids: ids, **self.caches}
        if self.mask in self.inputs:
            feeds[self.mask] = np.ones((1, self.length), np.int64)
        if self.places in self.inputs:
            feeds[self.places] = np.arange(begin, self.length, dtype=np.int64)[None]
        found = dict(zip(self.outputs, self.session.run(None, feeds), strict=True))
        self.caches = {name: found[other] for name, other in self.pairs.items()}
        return found[next(name for name in self.outputs if name not in self.pairs.values())][0]


def _names(names: dict[str, Any] | None) -> tuple[str, str, str, tuple[str, str], tuple[str, str]]:
    if names is None:
        past, present = "past_key_values.%d", "present.%d"
        pairs = ((f"{past}.key", f"{past}.value"), (f"{present}.key", f"{present}.value"))
        return "input_ids", "attention_mask", "position_ids", *pairs
    input_names, output_names = names["inputs"], names["outputs"]
    past = input_names["past_key_names"], input_names["past_value_names"]
    return (
        input_names["input_ids"],
        input_names["attention_mask"],
        input_names["position_ids"],
        past,
        (output_names["present_key_names"], output_names["present_value_names"]),
    )
