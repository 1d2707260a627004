"""Rewrite a decoder to static KV caches, whose lengths are a device-side input.

An exported decoder returns longer caches at each step, so its shapes change. After the rewrite the caches have a fixed capacity, and
PAST_LENGTHS contains the length of each sequence: no shape depends on the length.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..base.element_types import ONNX_TYPE_CODES, Array
from ..importer.file.graph_recipe import Attribute, ConstantRecipe, GraphRecipe, InputRecipe, NodeRecipe
from ..importer.translators.attention import INT8_CACHE, STATIC_KV_CACHE
from .combined_kv_cache import add_head_axis, resolve_io_names
from .decoder_recipe import LOGIT_POSITIONS, PAST_LENGTHS, DecoderRecipe, KvCacheSpec, KvScalesSpec
from .errors import FolderError
from .length_evaluation import PADDING_INPUT, find_needed_nodes
from .model_folder import ModelFolder, list_cache_names_by_layer
from .padding_plan import PaddingPlan, plan_padding
from .padding_verifier import PaddingError

_UNARY_ROW_OPS = ("Cast", "Identity", "Tanh")  # elementwise operators allowed between the last MatMul and the logits
_SCALAR_OPS = ("Add", "Div", "Mul", "Sub")
_MATMUL_OPS = ("MatMul", "MatMulNBits", "Gemm")
_NORM_OPS = ("RMSNormalization", "LayerNormalization", "SimplifiedLayerNormalization")
CACHE_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # precision -> default cache dtype
INT8 = "int8"  # cache dtype: integers from -127 to 127, times a scale per row


class _StaticCacheRewriter:
    """Rewrites one decoder. Holds the nodes, constants and inputs that have been rewritten so far."""

    position_ids = "pumice.position_ids"  # [batch, seq]
    total_lengths = "pumice.total_lengths"  # sequence lengths after the run, [batch]

    def __init__(self, recipe: GraphRecipe, folder: ModelFolder, precision: str, is_int8: bool) -> None:
        self.recipe, self.folder, self.names = recipe, folder, folder.names
        self.storage_dtype, self.is_int8 = CACHE_DTYPES[precision], is_int8
        self.file = folder.model.rpartition("/")[2]
        self.nodes = list(recipe.nodes)
        self.constants = dict(recipe.constants)
        self.inputs = {value.name: value for value in recipe.inputs}
        self.producers = {name: node for node in self.nodes for name in node.outputs if name}
        self.prologue: list[NodeRecipe] = []  # nodes that compute masks and positions
        self.renamed: dict[str, str] = {}  # value -> value that replaces it as an input of nodes
        self.cache_pairs = self._match_caches()
        self.requires_batch_one = False

    def make_error(self, field: str, message: str) -> FolderError:
        return FolderError(self.file, field, message)

    def _match_caches(self) -> dict[str, str]:
        """Return cache input -> cache output. Raise FolderError if there are none, or if their numbers differ."""
        outputs = {value.name for value in self.recipe.outputs}
        past = list_cache_names_by_layer(self.names.past, set(self.inputs))
        present = list_cache_names_by_layer(self.names.present, outputs)
        if not past:
            raise self.make_error(self.names.past[0], "expected inputs with these names for the cache, given none")
        layers = zip(past, present, strict=False)
        result = {name: output for layer in layers for name, output in zip(*layer, strict=True)}
        for layer in past:
            for name in layer:
                if name not in self.inputs:
                    raise self.make_error(name, "expected an input with this name, given none")
                if result.get(name) not in outputs:
                    expected = "expected an output with the longer cache"
                    raise self.make_error(result.get(name, name), f"{expected}, given none")
        return result

    def add_constant(self, name: str, value: Array) -> str:
        full_name = f"pumice.{name}"
        self.constants[full_name] = ConstantRecipe(full_name, str(value.dtype), list(value.shape), value.tobytes())
        return full_name

    def add_node(self, op: str, name: str, *inputs: str, **attributes: Attribute) -> str:
        return self.add_prologue_node(op, f"pumice.{name}", *inputs, **attributes)

    def add_prologue_node(self, op: str, output: str, *inputs: str, **attributes: Attribute) -> str:
        self.prologue.append(NodeRecipe(op, output, [*inputs], [output], dict(attributes)))
        return output

    # ---- rewriting of the KV caches

    def make_cache_spec(self, name: str, output: str) -> KvCacheSpec:
        value = self.inputs[name]
        if value.dtype not in ("float32", "float16") or value.shape is None or len(value.shape) != 4:
            expected = "expected floats [batch, heads, rows, size]"
            raise self.make_error(name, f"{expected}, given {value.dtype} {value.shape}")
        heads, size = value.shape[1], value.shape[3]
        if not heads or not size:
            raise self.make_error(name, f"expected known numbers of heads and their size, given {value.shape}")
        if self.is_int8 and len(self.names.past) == 1:
            expected = "expected separate tensors for keys and values for int8 caches"
            raise self.make_error(name, f"{expected}, given one")
        if self.is_int8 and size % 4:
            raise self.make_error(name, f"expected a head size that is a multiple of 4 for int8 caches, given {size}")
        return KvCacheSpec(name, output, value.dtype, heads, size)

    def find_gqa_nodes(self) -> list[int]:
        """Return the indices of the GroupQueryAttention nodes, which update their caches themselves."""
        return [i for i, node in enumerate(self.nodes) if node.op == "GroupQueryAttention"]

    def rewrite_gqa(self) -> None:
        """Make each GroupQueryAttention write its new rows into its caches from row PAST_LENGTHS on."""
        visited = set()
        for i in self.find_gqa_nodes():
            node = self.nodes[i]
            inputs = [*node.inputs, *[""] * (10 - len(node.inputs))]
            if len(inputs) > 10 and inputs[10]:
                raise self.make_error(node.name, "expected GroupQueryAttention without attention_bias, given one")
            for past, present in zip(inputs[3:5], [*node.outputs, "", ""][1:3], strict=True):
                if self.cache_pairs.get(past) != present:
                    expected = "expected a cache and its longer form"
                    raise self.make_error(node.name, f"{expected}, given '{past}' and '{present}'")
                visited.add(past)
            inputs[5], inputs[6] = PAST_LENGTHS, self.total_lengths
            if not inputs[9]:
                inputs[9] = self.position_ids
            self.nodes[i] = node._replace(inputs=inputs, attributes={**node.attributes, STATIC_KV_CACHE: 1})
            if self.is_int8:
                self.nodes[i] = self.add_int8_scales(self.nodes[i])
        if missing := [name for name in self.cache_pairs if name not in visited]:
            raise self.make_error(missing[0], "expected a GroupQueryAttention that takes this cache, given none")

    def add_int8_scales(self, node: NodeRecipe) -> NodeRecipe:
        """Return a GroupQueryAttention with inputs and outputs added for the scales of its int8 caches."""
        inputs = [*node.inputs, *[""] * (14 - len(node.inputs))]
        if any(inputs[12:]):
            raise self.make_error(node.name, "expected GroupQueryAttention without scales or norms")
        keys, values = (self.make_cache_spec(name, "").size for name in inputs[3:5])
        if keys != values:
            expected = f"expected heads of {keys} elements, like the keys, for int8 caches"
            raise self.make_error(inputs[4], f"{expected}, given {values}")
        inputs[12:14] = [f"{name}.scales" for name in inputs[3:5]]
        outputs = [*node.outputs[:3], *(f"{name}.scales" for name in node.outputs[1:3])]
        return node._replace(inputs=inputs, outputs=outputs, attributes={**node.attributes, INT8_CACHE: 1})

    def find_cache_concat(self, past: str) -> NodeRecipe:
        """Return the Concat that appends new rows to a cache."""
        producer = self.producers.get(self.cache_pairs[past])
        while producer is not None and producer.op in ("Identity", "Cast"):
            producer = self.producers.get(producer.inputs[0])
        if producer is None or producer.op != "Concat" or len(producer.inputs) != 2 or producer.inputs[0] != past:
            op = "nothing" if producer is None else producer.qualified_op
            expected = "expected a cache by GroupQueryAttention or Concat"
            raise self.make_error(self.cache_pairs[past], f"{expected}, given {op}")
        axis = producer.attributes.get("axis")
        if axis not in (2, -2):
            raise self.make_error(producer.name, f"expected new rows on axis 2, given axis {axis}")
        return producer

    def convert_to_storage_dtype(self, cache: KvCacheSpec) -> KvCacheSpec:
        """Return the cache in its storage dtype, and add conversions between that and the model's float type."""
        if self.is_int8:
            return self.convert_to_int8(cache)
        if not self.find_gqa_nodes():
            concat = self.find_cache_concat(cache.name)
            self.nodes[self.nodes.index(concat)] = self.make_padded_concat(concat, concat.inputs)
        if cache.dtype == self.storage_dtype:
            return cache
        name, output = f"{cache.name}.stored", f"{cache.output}.stored"
        self.renamed[cache.name] = self.add_prologue_node(
            "Cast", f"{name}.taken", name, to=ONNX_TYPE_CODES[cache.dtype]
        )
        to = ONNX_TYPE_CODES[self.storage_dtype]
        self.nodes.append(NodeRecipe("Cast", output, [cache.output], [output], {"to": to}))
        return cache._replace(name=name, output=output, dtype=self.storage_dtype)

    def convert_to_int8(self, cache: KvCacheSpec) -> KvCacheSpec:
        """Return the cache as int8 with scales. GroupQueryAttention reads it directly; for a Concat, dequantisation is added."""
        scales = KvScalesSpec(f"{cache.name}.scales", f"{cache.output}.scales", self.storage_dtype)
        if self.find_gqa_nodes():
            return cache._replace(dtype=INT8, scales=scales)
        name, output = f"{cache.name}.levels", f"{cache.output}.levels"
        int8_cache = cache._replace(name=name, output=output, dtype=INT8, scales=scales)
        self.renamed[cache.name] = int8_cache.name
        self.quantize_new_rows(cache, int8_cache, scales)
        return int8_cache

    def make_dequantize_nodes(self, cache: KvCacheSpec, quantized: str, scales: str) -> tuple[str, list[NodeRecipe]]:
        """Return the name of the dequantised values in the cache's dtype, and the nodes that compute them."""
        last_axis, to = self.add_constant("behind", np.array([3])), ONNX_TYPE_CODES[cache.dtype]
        values, expanded, factors, floats = (f"{quantized}.{x}" for x in ("taken", "each", "factors", "floats"))
        return floats, [
            NodeRecipe("Cast", values, [quantized], [values], {"to": to}),
            NodeRecipe("Unsqueeze", expanded, [scales, last_axis], [expanded], {}),
            NodeRecipe("Cast", factors, [expanded], [factors], {"to": to}),
            NodeRecipe("Mul", floats, [values, factors], [floats], {}),
        ]

    def quantize_new_rows(self, cache: KvCacheSpec, int8_cache: KvCacheSpec, scales: KvScalesSpec) -> None:
        """Quantise new rows and concatenate their dequantised values with the cache, so that this run reads the same rows as later runs.

        The rows are quantised by writing them as keys and values into a zero int8 cache that is just long enough for them.
        """
        concat = self.find_cache_concat(cache.name)
        quantized, factors, firsts = self.add_zero_cache(cache)
        new_rows, new_scales = f"{int8_cache.output}.rows", f"{scales.output}.made"
        unused = [f"{int8_cache.output}.{suffix}" for suffix in ("queries", "values", "value_scales")]
        inputs = [new_rows] * 3 + [quantized] * 2 + [factors] * 2 + [firsts]
        outputs = [unused[0], int8_cache.output, unused[1], new_scales, unused[2]]
        floats, nodes = self.make_dequantize_nodes(cache, int8_cache.output, scales.output)
        index, to = self.nodes.index(concat), dict[str, Attribute](to=ONNX_TYPE_CODES[self.storage_dtype])
        self.nodes[index : index + 1] = [
            NodeRecipe("Cast", new_rows, [cache.output], [new_rows], to),
            NodeRecipe("QuantizedCaches", int8_cache.output, inputs, outputs, {}, "pumice"),
            NodeRecipe("Cast", scales.output, [new_scales], [scales.output], to),
            *nodes,
            self.make_padded_concat(concat, [int8_cache.name, floats], scales.name),
        ]

    def make_padded_concat(self, concat: NodeRecipe, inputs: list[str], *scales: str) -> NodeRecipe:
        """Return the node that replaces a Concat of a cache and new rows. Its result is left-padded with zeros.

        Masked tokens get an attention probability of zero, and 0 * NaN is NaN, so the padding must be finite.
        """
        return NodeRecipe("JoinedRows", concat.name, [*inputs, PAST_LENGTHS, *scales], concat.outputs, {}, "pumice")

    def add_zero_cache(self, cache: KvCacheSpec) -> tuple[str, str, str]:
        """Return the names of a zero int8 cache for the new rows, of its scales, and of zero cache lengths [batch]."""
        name = f"none.{cache.heads}.{cache.size}"
        if not any(node.name == f"pumice.{name}.levels" for node in self.prologue):
            first, second, third = (self.add_constant(f"axis.{i}", np.array([i])) for i in range(3))
            shape = self.add_node("Shape", f"{name}.shape", self.names.input_ids)
            batch = self.add_node("Slice", f"{name}.images", shape, first, second)
            rows = self.add_node("Slice", f"{name}.rows", shape, second, third)
            heads, size = (self.add_constant(f"{name}.{n}", np.array([n])) for n in (cache.heads, cache.size))
            scales_shape = self.add_node("Concat", f"{name}.lines", batch, heads, rows, axis=0)
            values_shape = self.add_node("Concat", f"{name}.elements", scales_shape, size, axis=0)
            level = self.add_constant("none.level", np.zeros(1, np.int8))
            self.add_node("Expand", f"{name}.levels", level, values_shape)
            scale = self.add_constant("none.scale", np.zeros(1, np.float32))
            wide = self.add_node("Expand", f"{name}.wide", scale, scales_shape)
            self.add_cast(f"{name}.scales", wide, self.storage_dtype)
            self.add_node("Expand", f"{name}.firsts", self.add_constant("none.first", np.zeros(1, np.int64)), batch)
        quantized, scales, firsts = (f"pumice.{name}.{suffix}" for suffix in ("levels", "scales", "firsts"))
        return quantized, scales, firsts

    # ---- left padding of the caches

    def make_padding_plan(self, concats: dict[str, NodeRecipe]) -> PaddingPlan:
        try:
            return plan_padding(self.recipe, self.folder, concats)
        except PaddingError as unclear:
            hint = "pumice.load runs the model unchanged; an export with GroupQueryAttention (onnxruntime-genai) needs no padding"
            if not self.folder.context_length:
                hint = f"the folder does not specify a context length (max_position_embeddings), so 4096 tokens were tried; {hint}"
            reason = f"expected results that do not change with the capacity of the caches: {unclear}; {hint}"
            raise self.make_error(unclear.location, reason) from None

    def rewrite_cache_shapes(self, caches: dict[str, str]) -> None:
        """Make each Shape of a cache input return the capacity without the new rows, as for the cache before its Concat."""
        length = self.add_axis_length("rows.new", self.names.input_ids, 1)
        third_axis = self.add_constant("third.axis", np.array([0, 0, 1, 0]))
        rows = self.add_node("Mul", "rows.of.caches", length, third_axis)
        for i, node in enumerate(self.nodes):
            if node.op == "Shape" and node.inputs[0] in caches:
                name, attributes = node.outputs[0], node.attributes
                bounds = [int(attributes.get("start", 0)), int(attributes.get("end", 4))]  # type: ignore[arg-type]
                full_shape = self.add_prologue_node("Shape", f"{name}.full", caches[node.inputs[0]])
                past_shape = self.add_prologue_node("Sub", f"{name}.past", full_shape, rows)
                begin, end = (self.add_constant(f"{name}.{j}", np.array([bound])) for j, bound in enumerate(bounds))
                self.nodes[i] = NodeRecipe("Slice", node.name, [past_shape, begin, end], [name], {})

    # ---- masks and positions

    def add_axis_length(self, name: str, value: str, axis: int) -> str:
        """Add nodes that compute the length of an axis as a scalar, and return its name."""
        shape = self.add_node("Shape", f"{name}.shape", value)
        return self.add_node("Gather", name, shape, self.add_constant(f"{name}.axis", np.array(axis)))

    def add_range_node(self, name: str, count: str) -> str:
        """Add a Range from 0 to count - 1, and return its name."""
        zero, one = self.add_constant("zero", np.array(0)), self.add_constant("one", np.array(1))
        return self.add_node("Range", name, zero, count, one)

    def add_past_lengths_column(self) -> str:
        """Add a node that reshapes PAST_LENGTHS to [batch, 1], and return its name."""
        return self.add_node("Unsqueeze", "past.column", PAST_LENGTHS, self.add_constant("first", np.array([1])))

    def add_cast(self, name: str, value: str, dtype: str) -> str:
        return self.add_node("Cast", name, value, to=ONNX_TYPE_CODES[dtype])

    def rewrite_positions_and_mask(self) -> None:
        """Replace the inputs position_ids and attention_mask by values computed from PAST_LENGTHS and the length of the run."""
        seq_len, cache = self.add_axis_length("rows", self.names.input_ids, 1), next(iter(self.cache_pairs))
        offsets, past_column = self.add_range_node("now", seq_len), self.add_past_lengths_column()
        position_ids = self.add_prologue_node("Add", self.position_ids, past_column, offsets)
        self.add_prologue_node("Add", self.total_lengths, PAST_LENGTHS, seq_len)
        name = self.names.position_ids
        if name in self.inputs:
            self.replace_input(name, self.add_cast("places.cast", position_ids, self.inputs[name].dtype))
        mask = self.add_cache_mask(cache, seq_len, past_column)
        name = self.names.attention_mask
        if name in self.inputs:
            self.replace_input(name, self.add_cast("mask.cast", mask, self.inputs[name].dtype))

    def add_cache_mask(self, cache: str, seq_len: str, past_column: str) -> str:
        """Add the mask of cache rows with tokens, bool [batch, capacity]: the first rows, or the last rows after a Concat."""
        capacity = self.add_axis_length("room.size", cache, 2)
        cache_rows, used = self.add_range_node("room", capacity), self.add_node("Add", "used", past_column, seq_len)
        if self.find_gqa_nodes():
            return self.add_node("Less", "mask", cache_rows, used)
        past = self.add_node("Gather", "past.first", PAST_LENGTHS, self.add_constant("zero", np.array(0)))
        past_capacity = self.add_node("Sub", "past.capacity", capacity, seq_len)
        self.add_prologue_node("Sub", PADDING_INPUT, past_capacity, past)
        return self.add_node("GreaterOrEqual", "mask", cache_rows, self.add_node("Sub", "mask.first", capacity, used))

    def replace_input(self, name: str, value: str) -> None:
        del self.inputs[name]
        self.renamed[name] = value

    # ---- selection of logit positions

    def find_input_dependent_values(self) -> set[str]:
        """Return the names of the values that depend on inputs."""
        dependent = {value.name for value in self.recipe.inputs}
        for node in self.nodes:
            if dependent.intersection(node.reads):
                dependent.update(node.outputs)
        return dependent

    def find_logits_matmul(self) -> tuple[NodeRecipe, int] | None:
        """Return the MatMul with constant weights that computes the logits, and the index of its activation input; None if not found."""
        input_dependent, name = self.find_input_dependent_values(), self.names.logits
        while (node := self.producers.get(name)) is not None:
            if node.op in _MATMUL_OPS:
                return None if node.op == "Gemm" or node.inputs[1] in input_dependent else (node, 0)
            dynamic_inputs = [value for value in node.inputs if value in input_dependent]
            if node.op not in (*_UNARY_ROW_OPS, *_SCALAR_OPS) or len(dynamic_inputs) != 1:
                return None
            name = dynamic_inputs[0]
        return None

    def find_norm_before(self, matmul: NodeRecipe) -> NodeRecipe:
        """Return the normalisation whose result only this MatMul reads; if there is none, return the MatMul itself."""
        norm_output = matmul.inputs[0]
        norm = self.producers.get(norm_output)
        if norm is None or norm.op not in _NORM_OPS or norm.attributes.get("axis", -1) not in (-1, 2):
            return matmul
        readers = sum(node.reads.count(norm_output) for node in self.nodes)
        outputs = {value.name for value in self.recipe.outputs}
        is_only_reader = readers == 1 and norm_output not in outputs and not any(norm.outputs[1:])
        return norm if is_only_reader and norm.outputs[0] == norm_output else matmul

    def select_logit_positions(self) -> None:
        """Compute logits only at LOGIT_POSITIONS: gather the input of the last MatMul, or the logits if that is not found."""
        last = self.add_constant("last", np.array([2]))
        indices = self.add_node("Unsqueeze", "logit_positions.column", LOGIT_POSITIONS, last)
        matmul_input = self.find_logits_matmul()
        if matmul_input is None:
            node = self.producers.get(self.names.logits)
            if node is None:
                raise self.make_error(self.names.logits, "expected an output with this name, given none")
            all_logits = f"{self.names.logits}.every"
            index = self.nodes.index(node)
            outputs = [all_logits if output == self.names.logits else output for output in node.outputs]
            pick = self.make_gather_nd(all_logits, indices, self.names.logits)
            self.nodes[index : index + 1] = [node._replace(outputs=outputs), pick]
            return
        node = self.find_norm_before(matmul_input[0])
        index, selected = self.nodes.index(node), f"{node.inputs[0]}.wanted"
        pick = self.make_gather_nd(node.inputs[0], indices, selected)
        self.nodes[index : index + 1] = [pick, node._replace(inputs=[selected, *node.inputs[1:]])]

    @staticmethod
    def make_gather_nd(value: str, indices: str, output: str) -> NodeRecipe:
        return NodeRecipe("GatherND", "pumice.pick", [value, indices], [output], {"batch_dims": 1})

    # ---- assembly of the rewritten recipe

    def collect_live_nodes(self, outputs: set[str]) -> list[NodeRecipe]:
        """Return the nodes on which an output depends, with replaced inputs (see `renamed`)."""
        needed, live = set(outputs), []
        for node in reversed([*self.prologue, *self.nodes]):
            if not needed.intersection(node.outputs):
                continue
            node = node._replace(inputs=[self.renamed.get(name, name) for name in node.inputs])
            needed.update(node.reads)
            live.append(node)
        return live[::-1]

    def check_no_length_reads(self, outputs: list[str]) -> None:
        """Raise FolderError for a node that reads the mask's elements, or the length of the mask or a cache, which now is the capacity."""
        live = find_needed_nodes([*self.prologue, *self.nodes], outputs)
        axes = {self.names.attention_mask: 1, **dict.fromkeys([*self.cache_pairs, *self.cache_pairs.values()], 2)}
        for node in live:
            if node in self.prologue or node.op == "GroupQueryAttention":
                continue
            is_length = node.op == "Shape" and self.may_read_size(node, axes.get(node.inputs[0], 9), live)
            if is_length or (node.op != "Shape" and self.names.attention_mask in node.reads):
                raise self.make_error(
                    node.name,
                    f"{node.op} reads how long '{node.inputs[0]}' is: expected that attention alone depends on the number of tokens so "
                    "far, as it is not known when a step is recorded; pumice.load runs the model unchanged",
                )

    def may_read_size(self, node: NodeRecipe, axis: int, live: list[NodeRecipe]) -> bool:
        """Return whether a node that reads the result of a Shape may use the size of this axis."""
        start, end = (int(node.attributes.get(name, default)) for name, default in (("start", 0), ("end", 9)))  # type: ignore[arg-type]
        if axis > 3 or not start <= axis < (end if end >= 0 else 9):
            return False
        for reader in live:
            if node.outputs[0] in reader.inputs:
                index = self.constants.get(reader.inputs[1]) if reader.op == "Gather" else None
                if index is None or axis - start in np.frombuffer(index.raw, index.dtype):
                    return True
        return False

    def check_inputs(self, nodes: list[NodeRecipe]) -> None:
        read = {name for node in nodes for name in node.reads}
        for name, value in self.inputs.items():
            if name not in self.cache_pairs and name != self.names.input_ids and name in read:
                expected = "expected only input_ids, position_ids, a mask and caches as inputs"
                raise self.make_error(name, f"{expected}, given {value.dtype}")
        if self.names.input_ids not in self.inputs:
            raise self.make_error(self.names.input_ids, "expected an input with this name, given none")

    def rewrite_caches(self) -> list[KvCacheSpec]:
        """Rewrite the nodes that read and write the caches for a fixed capacity, and return the caches."""
        caches = [self.make_cache_spec(*pair) for pair in self.cache_pairs.items()]
        if self.find_gqa_nodes():
            self.rewrite_gqa()
            return [self.convert_to_storage_dtype(cache) for cache in caches]
        concats = {name: self.find_cache_concat(name) for name in self.cache_pairs}
        plan = self.make_padding_plan(concats)
        self.nodes, self.requires_batch_one = list(plan.nodes), plan.requires_batch_one
        self.constants |= plan.constants
        result = [
            self.convert_to_storage_dtype(cache._replace(output=concats[cache.name].inputs[1])) for cache in caches
        ]
        self.rewrite_cache_shapes({old.name: new.name for old, new in zip(caches, result, strict=True)})
        return result

    def rewrite(self) -> DecoderRecipe:
        names = self.names
        if names.input_ids not in self.inputs:
            raise self.make_error(names.input_ids, "expected an input with this name, given none")
        caches, outputs_new_rows = self.rewrite_caches(), not self.find_gqa_nodes()
        self.select_logit_positions()
        self.rewrite_positions_and_mask()
        scales = [cache.scales.output for cache in caches if cache.scales is not None and cache.scales.output]
        outputs = [names.logits, *(cache.output for cache in caches), *scales]
        if not outputs_new_rows:
            self.check_no_length_reads(outputs)
        nodes = self.collect_live_nodes(set(outputs))
        self.check_inputs(nodes)
        recipe = self.recipe._replace(
            inputs=self.make_input_recipes(caches),
            outputs=[InputRecipe(name, "", None, []) for name in outputs],
            nodes=nodes,
            constants=self.constants,
            plain=False,
        )
        dtype = self.inputs[names.input_ids].dtype
        return DecoderRecipe(
            recipe, caches, names.input_ids, dtype, names.logits, outputs_new_rows, self.requires_batch_one
        )

    def make_input_recipes(self, caches: list[KvCacheSpec]) -> list[InputRecipe]:
        input_ids = self.inputs[self.names.input_ids]
        inputs = [
            input_ids._replace(shape=[None, None], dimension_names=["batch", "seq_len"]),
            InputRecipe(PAST_LENGTHS, "int64", [None], ["batch"]),
            InputRecipe(LOGIT_POSITIONS, "int64", [None, None], ["batch", "num_logits"]),
        ]
        axes = ["batch", "", "capacity", ""]
        inputs += [
            InputRecipe(cache.name, cache.dtype, [None, cache.heads, None, cache.size], axes) for cache in caches
        ]
        scales = [(cache.scales, cache.heads) for cache in caches if cache.scales is not None]
        return inputs + [InputRecipe(spec.name, spec.dtype, [None, heads, None], axes[:3]) for spec, heads in scales]


def to_static_kv_cache(
    recipe: GraphRecipe, folder: ModelFolder, precision: str, is_int8: bool = False
) -> DecoderRecipe:
    """Return the decoder with static KV caches, stored in `precision`, or as int8 with scales in `precision`.

    Raise FolderError naming the unsupported input, output or node: caches must be read by GroupQueryAttention, or concatenated with new
    rows by Concat.
    """
    names = resolve_io_names(recipe, folder)
    folder = replace(folder, names=names)
    return _StaticCacheRewriter(add_head_axis(recipe, names), folder, precision, is_int8).rewrite()
