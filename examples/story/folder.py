"""Writes a decoder as a folder in the form of onnxruntime-genai: genai_config.json, model.onnx with its weights, tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from network import EPSILON, Array, Sizes, Weights, turns
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32  # weights that share a scale
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def quantized(matrix: Array) -> tuple[Array, Array]:
    """A matrix [inputs, outputs] in 4 bits: bytes [outputs, blocks, BLOCK / 2] and a scale for each block."""
    blocks = np.ascontiguousarray(matrix.T).reshape(matrix.shape[1], -1, BLOCK)
    ends = np.take_along_axis(blocks, abs(blocks).argmax(-1)[..., None], -1)
    scales = np.where(ends == 0, 1, ends / -8).astype(np.float32)
    codes = np.clip(np.rint(blocks / scales) + 8, 0, 15).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales.reshape(-1)


class Writer:
    """The nodes and weights of the model, as they are added."""

    def __init__(self, sizes: Sizes, weights: Weights) -> None:
        self.sizes, self.weights = sizes, weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Array) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        name = outputs[0].rsplit("/output", 1)[0]
        self.nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain, **attributes))
        return outputs[0]

    def product(self, name: str, x: str, matrix: Array) -> str:
        """A product with a matrix [inputs, outputs] in 4 bits."""
        codes, scales = quantized(matrix)
        stem = name.strip("/").replace("/", ".")
        values = [x, self.constant(f"{stem}.qweight", codes), self.constant(f"{stem}.scales", scales)]
        depth, columns = matrix.shape
        numbers = {"K": depth, "N": columns, "bits": 4, "block_size": BLOCK, "accuracy_level": 0}
        output = "logits" if name == "/lm_head/MatMul" else f"{name}/output_0"
        return self.add("MatMulNBits", values, [output], "com.microsoft", **numbers)

    def lengths(self) -> tuple[str, str]:
        """seqlens_k and total_sequence_length, from the mask."""
        one, minus = self.constant("one", np.array([1], np.int64)), self.constant("second", np.array(1, np.int64))
        base = "/model/attn_mask_reformat"
        count = self.add("ReduceSum", ["attention_mask", one], [f"{base}/ReduceSum/output_0"], keepdims=0)
        less = self.add("Sub", [count, one], [f"{base}/Sub/output_0"])
        lengths = self.add("Cast", [less], [f"{base}/Cast/output_0"], to=INT32)
        shape = self.add("Shape", ["attention_mask"], [f"{base}/Shape/output_0"])
        total = self.add("Gather", [shape, minus], [f"{base}/Gather/output_0"], axis=0)
        return lengths, self.add("Cast", [total], [f"{base}/Cast_1/output_0"], to=INT32)

    def attention(self, i: int, x: str, lengths: tuple[str, str]) -> str:
        base, size = f"/model/layers.{i}/attn", self.sizes
        qkv = self.product(f"{base}/qkv_proj/MatMul", x, self.weights[f"{i}.qkv"])
        past = [f"past_key_values.{i}.{one}" for one in ("key", "value")]
        present = [f"present.{i}.{one}" for one in ("key", "value")]
        inputs = [qkv, "", "", *past, *lengths, "cos_cache", "sin_cache"]
        numbers = {"num_heads": size.heads, "kv_num_heads": size.groups, "do_rotary": 1, "rotary_interleaved": 0}
        numbers["local_window_size"] = -1
        outputs = [f"{base}/GroupQueryAttention/output_0", *present]
        mixed = self.add("GroupQueryAttention", inputs, outputs, "com.microsoft", scale=size.head**-0.5, **numbers)
        return self.product(f"{base}/o_proj/MatMul", mixed, self.weights[f"{i}.out"])

    def feed(self, i: int, x: str) -> str:
        base = f"/model/layers.{i}/mlp"
        gate = self.product(f"{base}/gate_proj/MatMul", x, self.weights[f"{i}.gate"])
        up = self.product(f"{base}/up_proj/MatMul", x, self.weights[f"{i}.up"])
        share = self.add("Sigmoid", [gate], [f"{base}/act_fn/Sigmoid/output_0"])
        silu = self.add("Mul", [gate, share], [f"{base}/act_fn/Mul/output_0"])
        inner = self.add("Mul", [silu, up], [f"{base}/Mul/output_0"])
        return self.product(f"{base}/down_proj/MatMul", inner, self.weights[f"{i}.down"])

    def norm(self, name: str, x: str, more: str, gain: Array, last: bool = False) -> tuple[str, str]:
        """The norm of x + more, and that sum."""
        weight = self.constant(f"{name.strip('/').replace('/', '.')}.weight", gain)
        outputs = [f"{name}/output_0", "", "", *([] if last else [f"{name}/output_3"])]
        self.add(
            "SkipSimplifiedLayerNormalization",
            [x, more, weight],
            outputs[:1] if last else outputs,
            "com.microsoft",
            epsilon=EPSILON,
        )
        return outputs[0], outputs[-1]

    def model(self) -> onnx.ModelProto:
        size, w = self.sizes, self.weights
        for name, table in zip(("cos_cache", "sin_cache"), turns(size), strict=True):
            self.constant(name, table)
        words = self.constant("model.embed_tokens.weight", w["words"])
        x = self.add("Gather", [words, "input_ids"], ["/model/embed_tokens/Gather/output_0"])
        lengths = self.lengths()
        first = "/model/layers.0/input_layernorm/LayerNorm"
        gain = self.constant(first.strip("/").replace("/", ".") + ".weight", w["0.norm1"])
        y = self.add(
            "SimplifiedLayerNormalization", [x, gain], [f"{first}/output_0"], axis=-1, epsilon=EPSILON, stash_type=1
        )
        for i in range(size.layers):
            base = f"/model/layers.{i}"
            y, x = self.norm(
                f"{base}/post_attention_layernorm/SkipLayerNorm", x, self.attention(i, y, lengths), w[f"{i}.norm2"]
            )
            is_last = i + 1 == size.layers
            name = f"/model/layers.{i + 1}/{'final_norm_layernorm' if is_last else 'input_layernorm'}/SkipLayerNorm"
            y, x = self.norm(name, x, self.feed(i, y), w["norm" if is_last else f"{i + 1}.norm1"], is_last)
        self.product("/lm_head/MatMul", y, w["head"])
        return self.whole()

    def whole(self) -> onnx.ModelProto:
        size = self.sizes

        def value(name: str, dtype: int, *shape: int | str) -> Any:
            return helper.make_tensor_value_info(name, dtype, shape)

        def caches(name: str, rows: str) -> list[Any]:
            return [
                value(f"{name}.{i}.{one}", FLOAT, "batch_size", size.groups, rows, size.head)
                for i in range(size.layers)
                for one in ("key", "value")
            ]

        inputs = [
            value("input_ids", INT64, "batch_size", "sequence_length"),
            value("attention_mask", INT64, "batch_size", "total_sequence_length"),
            *caches("past_key_values", "past_sequence_length"),
        ]
        logits = value("logits", FLOAT, "batch_size", "sequence_length", size.words)
        outputs = [logits, *caches("present", "total_sequence_length")]
        graph = helper.make_graph(self.nodes, "story", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="pumice/examples/story")


def configuration(sizes: Sizes, end: int) -> dict[str, Any]:
    """genai_config.json."""
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    inputs |= {f"past_{one}_names": f"past_key_values.%d.{one}" for one in ("key", "value")}
    outputs = {"logits": "logits"} | {f"present_{one}_names": f"present.%d.{one}" for one in ("key", "value")}
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": sizes.head,
        "hidden_size": sizes.width,
        "inputs": inputs,
        "outputs": outputs,
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "num_key_value_heads": sizes.groups,
    }
    model = {"bos_token_id": end, "context_length": sizes.context, "decoder": decoder, "eos_token_id": end}
    model |= {"pad_token_id": end, "type": "llama", "vocab_size": sizes.words}
    search = {"do_sample": False, "max_length": sizes.context, "min_length": 0, "num_beams": 1, "temperature": 1.0}
    search |= {"repetition_penalty": 1.0, "top_k": 50, "top_p": 1.0, "past_present_share_buffer": True}
    return {"model": model, "search": search}


def write(folder: Path, sizes: Sizes, weights: Weights, tokenizer: Any, end: int) -> None:
    """Writes all files of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in ("model.onnx", "model.onnx.data"):
        (folder / old).unlink(missing_ok=True)
    proto = Writer(sizes, weights).model()
    onnx.save(
        proto, str(folder / "model.onnx"), save_as_external_data=True, location="model.onnx.data", size_threshold=256
    )
    (folder / "genai_config.json").write_text(json.dumps(configuration(sizes, end), indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
