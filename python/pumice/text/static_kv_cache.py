"""Rewrite a decoder to static KV caches whose length is a device-side input.

An exported decoder returns a longer cache each step, so its shapes change. After the rewrite each cache has a fixed capacity and `past`
holds the used length per sequence: no shape depends on the length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..base.element_types import ONNX_NUMBERS, Array
from ..importer.composed.attention import FIXED_ROOM, INT8_CACHE
from ..importer.file.recipe import Attribute, ConstantRecipe, InputRecipe, NodeRecipe, Recipe
from .decoder_recipe import PAST, WANTED, Cache, RoomyRecipe, Scales
from .errors import FolderError
from .model_folder import Folder, layer_names
from .padding_verifier import Unclear
from .length_evaluation import SHIFT, needed_nodes
from .padding_plan import PaddingPlan, plan_padding
from .combined_kv_cache import names_of, with_heads

_PASSES = ("Cast", "Identity", "Tanh")  # row-wise operators allowed between the last MatMul and the logits
_WITH_NUMBER = ("Add", "Div", "Mul", "Sub")
_PRODUCTS = ("MatMul", "MatMulNBits", "Gemm")
_NORMS = ("RMSNormalization", "LayerNormalization", "SimplifiedLayerNormalization")
STORED = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # cache dtype of each precision


INT8 = "int8"  # values -127 to 127 times a scale per row


class _Rewriter:
    """The nodes, inputs and outputs of a decoder while it is rewritten."""

    places, seen = "pumice.places", "pumice.seen"  # position_ids [batch, seq]; total lengths including this run [batch]

    def __init__(self, recipe: Recipe, folder: Folder, precision: str, in_int8: bool) -> None:
        self.recipe, self.folder, self.names = recipe, folder, folder.names
        self.stored, self.in_int8 = STORED[precision], in_int8
        self.file = folder.model.rpartition("/")[2]
        self.nodes = list(recipe.nodes)
        self.constants = dict(recipe.constants)
        self.inputs = {value.name: value for value in recipe.inputs}
        self.makers = {name: node for node in self.nodes for name in node.outputs if name}
        self.front: list[NodeRecipe] = []  # nodes that compute masks and positions
        self.renamed: dict[str, str] = {}  # replaced value -> its replacement
        self.pairs = self._pairs()
        self.is_single = False

    def refuse(self, field: str, message: str) -> FolderError:
        return FolderError(self.file, field, message)

    def _pairs(self) -> dict[str, str]:
        """Return input cache -> output cache. Raise FolderError if there are none, or if the counts differ."""
        outputs = {value.name for value in self.recipe.outputs}
        past, present = (layer_names(given, known) for given, known in self._patterns(outputs))
        if not past:
            raise self.refuse(self.names.past[0], "expected inputs of these names for the cache, given none")
        made = {
            one: other
            for ones, others in zip(past, present, strict=False)
            for one, other in zip(ones, others, strict=True)
        }
        for layer in past:
            for name in layer:
                if name not in self.inputs:
                    raise self.refuse(name, "expected an input of this name, given none")
                if made.get(name) not in outputs:
                    raise self.refuse(made.get(name, name), "expected an output with the longer cache, given none")
        return made

    def _patterns(self, outputs: set[str]) -> Iterable[tuple[tuple[str, ...], set[str]]]:
        return (self.names.past, set(self.inputs)), (self.names.present, outputs)

    def constant(self, name: str, value: Array) -> str:
        full = f"pumice.{name}"
        self.constants[full] = ConstantRecipe(full, str(value.dtype), list(value.shape), value.tobytes())
        return full

    def add(self, op: str, name: str, *inputs: str, **attributes: Attribute) -> str:
        full = f"pumice.{name}"
        self.front.append(NodeRecipe(op, full, list(inputs), [full], dict(attributes)))
        return full

    # ---- caches

    def cache(self, name: str, output: str) -> Cache:
        value = self.inputs[name]
        if value.dtype not in ("float32", "float16") or value.shape is None or len(value.shape) != 4:
            raise self.refuse(name, f"expected floats [batch, heads, rows, size], given {value.dtype} {value.shape}")
        heads, size = value.shape[1], value.shape[3]
        if not heads or not size:
            raise self.refuse(name, f"expected known numbers of heads and their size, given {value.shape}")
        if self.in_int8 and len(self.names.past) == 1:
            raise self.refuse(name, "expected keys and values in tensors of their own for caches of int8, given one")
        if self.in_int8 and size % 4:
            raise self.refuse(name, f"expected heads of a multiple of 4 elements for caches of int8, given {size}")
        return Cache(name, output, value.dtype, heads, size)

    def grouped_nodes(self) -> list[int]:
        """Return the indices of nodes that manage a cache themselves."""
        return [i for i, node in enumerate(self.nodes) if node.op == "GroupQueryAttention"]

    def fix_grouped(self) -> None:
        """Make each GroupQueryAttention write into its cache from row PAST on."""
        used = set()
        for i in self.grouped_nodes():
            node = self.nodes[i]
            inputs = [*node.inputs, *[""] * (10 - len(node.inputs))]
            if len(inputs) > 10 and inputs[10]:
                raise self.refuse(node.name, "expected GroupQueryAttention without attention_bias, given one")
            for past, present in zip(inputs[3:5], [*node.outputs, "", ""][1:3], strict=True):
                if self.pairs.get(past) != present:
                    raise self.refuse(
                        node.name, f"expected a cache and its longer form, given '{past}' and '{present}'"
                    )
                used.add(past)
            inputs[5], inputs[6] = PAST, self.seen
            if not inputs[9]:
                inputs[9] = self.places
            self.nodes[i] = node._replace(inputs=inputs, attributes={**node.attributes, FIXED_ROOM: 1})
            if self.in_int8:
                self.nodes[i] = self.with_scales(self.nodes[i])
        if missing := [name for name in self.pairs if name not in used]:
            raise self.refuse(missing[0], "expected a GroupQueryAttention that takes this cache, given none")

    def with_scales(self, node: NodeRecipe) -> NodeRecipe:
        """Return the node with inputs and outputs for the scales of its int8 caches."""
        inputs = [*node.inputs, *[""] * (14 - len(node.inputs))]
        if any(inputs[12:]):
            raise self.refuse(node.name, "expected GroupQueryAttention without scales or norms, given some")
        keys, values = (self.cache(name, "").size for name in inputs[3:5])
        if keys != values:
            raise self.refuse(
                inputs[4], f"expected heads of {keys} elements as the keys' for caches of int8, given {values}"
            )
        inputs[12:14] = [f"{name}.scales" for name in inputs[3:5]]
        outputs = [*node.outputs[:3], *(f"{name}.scales" for name in node.outputs[1:3])]
        return node._replace(inputs=inputs, outputs=outputs, attributes={**node.attributes, INT8_CACHE: 1})

    def joining(self, past: str) -> NodeRecipe:
        """Return the Concat that appends new rows to a cache."""
        maker = self.makers.get(self.pairs[past])
        while maker is not None and maker.op in ("Identity", "Cast"):
            maker = self.makers.get(maker.inputs[0])
        if maker is None or maker.op != "Concat" or len(maker.inputs) != 2 or maker.inputs[0] != past:
            what = "nothing" if maker is None else maker.qualified_op
            raise self.refuse(self.pairs[past], f"expected a cache by GroupQueryAttention or Concat, given {what}")
        if maker.attributes.get("axis") not in (2, -2):
            raise self.refuse(maker.name, f"expected new rows on axis 2, given axis {maker.attributes.get('axis')}")
        return maker

    def as_stored(self, cache: Cache) -> Cache:
        """Return the cache as stored: in the precision's type or int8, which the program converts to the model's float type."""
        if self.in_int8:
            return self.as_int8(cache)
        if not self.grouped_nodes():
            joined = self.joining(cache.name)
            self.nodes[self.nodes.index(joined)] = self.in_use_joined(joined, joined.inputs)
        if cache.dtype == self.stored:
            return cache
        name, output = f"{cache.name}.stored", f"{cache.output}.stored"
        self.renamed[cache.name] = self.front_cast(cache, name)
        self.nodes.append(NodeRecipe("Cast", output, [cache.output], [output], {"to": ONNX_NUMBERS[self.stored]}))
        return cache._replace(name=name, output=output, dtype=self.stored)

    def as_int8(self, cache: Cache) -> Cache:
        """Return the cache as int8 with scales, which GroupQueryAttention reads directly and Concat reads dequantised."""
        scales = Scales(f"{cache.name}.scales", f"{cache.output}.scales", self.stored)
        if self.grouped_nodes():
            return cache._replace(dtype=INT8, scales=scales)
        made = cache._replace(name=f"{cache.name}.levels", output=f"{cache.output}.levels", dtype=INT8, scales=scales)
        self.renamed[cache.name] = made.name
        self.round_rows(cache, made, scales)
        return made

    def floats_of(self, cache: Cache, levels: str, scales: str) -> tuple[str, list[NodeRecipe]]:
        """Return the dequantised values in this cache's dtype, and the nodes that compute them."""
        behind, to = self.constant("behind", np.array([3])), ONNX_NUMBERS[cache.dtype]
        taken, each, factors, floats = (f"{levels}.{one}" for one in ("taken", "each", "factors", "floats"))
        return floats, [
            NodeRecipe("Cast", taken, [levels], [taken], {"to": to}),
            NodeRecipe("Unsqueeze", each, [scales, behind], [each], {}),
            NodeRecipe("Cast", factors, [each], [factors], {"to": to}),
            NodeRecipe("Mul", floats, [taken, factors], [floats], {}),
        ]

    def round_rows(self, cache: Cache, made: Cache, scales: Scales) -> None:
        """Quantise the new rows and concatenate their dequantised values with the cache, so a run sees its own rows as later runs will see
        them.

        A GroupQueryAttention on an int8 cache of just the new rows quantises them as its keys and values.
        """
        joined = self.joining(cache.name)
        levels, factors, firsts = self.no_rows(cache)
        rows, made_scales = f"{made.output}.rows", f"{scales.output}.made"
        unused = [f"{made.output}.{one}" for one in ("queries", "values", "value_scales")]
        inputs = [rows] * 3 + [levels] * 2 + [factors] * 2 + [firsts]
        outputs = [unused[0], made.output, unused[1], made_scales, unused[2]]
        floats, nodes = self.floats_of(cache, made.output, scales.output)
        place, to = self.nodes.index(joined), dict[str, Attribute](to=ONNX_NUMBERS[self.stored])
        self.nodes[place : place + 1] = [
            NodeRecipe("Cast", rows, [cache.output], [rows], to),
            NodeRecipe("QuantizedCaches", made.output, inputs, outputs, {}, "pumice"),
            NodeRecipe("Cast", scales.output, [made_scales], [scales.output], to),
            *nodes,
            self.in_use_joined(joined, [made.name, floats], scales.name),
        ]

    def in_use_joined(self, joined: NodeRecipe, inputs: list[str], *scales: str) -> NodeRecipe:
        """Return the node that replaces a Concat of a cache and new rows; its result is left-padded with zeros.

        The mask gives padding a weight of zero, so the padding itself must be finite.
        """
        return NodeRecipe("JoinedRows", joined.name, [*inputs, PAST, *scales], joined.outputs, {}, "pumice")

    def no_rows(self, cache: Cache) -> tuple[str, str, str]:
        """Return zero-filled levels and scales for the new rows, and zero past lengths per sequence."""
        name = f"none.{cache.heads}.{cache.size}"
        if not any(node.name == f"pumice.{name}.levels" for node in self.front):
            first, second, third = (self.constant(f"axis.{i}", np.array([i])) for i in range(3))
            shape = self.add("Shape", f"{name}.shape", self.names.words)
            images = self.add("Slice", f"{name}.images", shape, first, second)
            rows = self.add("Slice", f"{name}.rows", shape, second, third)
            heads, size = (self.constant(f"{name}.{n}", np.array([n])) for n in (cache.heads, cache.size))
            lines = self.add("Concat", f"{name}.lines", images, heads, rows, axis=0)
            elements = self.add("Concat", f"{name}.elements", lines, size, axis=0)
            self.add("Expand", f"{name}.levels", self.constant("none.level", np.zeros(1, np.int8)), elements)
            scale = self.constant("none.scale", np.zeros(1, np.float32))
            self.cast(f"{name}.scales", self.add("Expand", f"{name}.wide", scale, lines), self.stored)
            self.add("Expand", f"{name}.firsts", self.constant("none.first", np.zeros(1, np.int64)), images)
        levels, scales, firsts = (f"pumice.{name}.{one}" for one in ("levels", "scales", "firsts"))
        return levels, scales, firsts

    def front_cast(self, cache: Cache, name: str) -> str:
        return self.front_node("Cast", f"{name}.taken", name, to=ONNX_NUMBERS[cache.dtype])

    def front_node(self, op: str, made: str, *inputs: str, **attributes: Attribute) -> str:
        self.front.append(NodeRecipe(op, made, [*inputs], [made], dict(attributes)))
        return made

    # ---- padding

    def padding_plan(self, joins: dict[str, NodeRecipe]) -> PaddingPlan:
        try:
            return plan_padding(self.recipe, self.folder, joins)
        except Unclear as unclear:
            helps = (
                ""
                if self.folder.context
                else "the folder names no context (max_position_embeddings), so 4096 tokens were tried; "
            )
            helps += "pumice.load runs the model as it is; an export with GroupQueryAttention (onnxruntime-genai) needs no padding"
            what = f"expected results that do not change with the capacity of the caches: {unclear}; {helps}"
            raise self.refuse(unclear.where, what) from None

    def fix_shapes(self, caches: dict[str, str]) -> None:
        """Make each Shape of a cache return its length without the new rows, as before its Concat."""
        rows = self.add(
            "Mul",
            "rows.of.caches",
            self.count("rows.new", self.names.words, 1),
            self.constant("third.axis", np.array([0, 0, 1, 0])),
        )
        for i, node in enumerate(self.nodes):
            if node.op == "Shape" and node.inputs[0] in caches:
                name, attributes = node.outputs[0], node.attributes
                cut = [int(attributes.get("start", 0)), int(attributes.get("end", 4))]  # type: ignore[arg-type]
                full = self.front_node("Shape", f"{name}.full", caches[node.inputs[0]])
                less = self.front_node("Sub", f"{name}.past", full, rows)
                begin, end = (self.constant(f"{name}.{j}", np.array([one])) for j, one in enumerate(cut))
                self.nodes[i] = NodeRecipe("Slice", node.name, [less, begin, end], [name], {})

    # ---- masks and positions

    def count(self, name: str, value: str, axis: int) -> str:
        """Add nodes for the length of an axis, a scalar."""
        shape = self.add("Shape", f"{name}.shape", value)
        return self.add("Gather", name, shape, self.constant(f"{name}.axis", np.array(axis)))

    def numbers(self, name: str, count: str) -> str:
        """Add a Range 0, 1, ... up to a count."""
        return self.add("Range", name, self.constant("zero", np.array(0)), count, self.constant("one", np.array(1)))

    def column(self) -> str:
        """Return PAST as a column [batch, 1]."""
        return self.add("Unsqueeze", "past.column", PAST, self.constant("first", np.array([1])))

    def cast(self, name: str, value: str, dtype: str) -> str:
        return self.add("Cast", name, value, to=ONNX_NUMBERS[dtype])

    def fix_places(self) -> None:
        """Compute position_ids and attention_mask from PAST and the length of this run."""
        rows, caches = self.count("rows", self.names.words, 1), next(iter(self.pairs))
        now, column = self.numbers("now", rows), self.column()
        places = self.add("Add", self.places.removeprefix("pumice."), column, now)
        self.add("Add", self.seen.removeprefix("pumice."), PAST, rows)
        if self.names.places in self.inputs:
            self.replace_input(
                self.names.places, self.cast("places.cast", places, self.inputs[self.names.places].dtype)
            )
        filled = self.filled_rows(caches, rows, column)
        if self.names.mask not in self.inputs:
            return
        self.replace_input(self.names.mask, self.cast("mask.cast", filled, self.inputs[self.names.mask].dtype))

    def filled_rows(self, caches: str, rows: str, column: str) -> str:
        """Add the mask of cache rows that hold tokens, [batch, capacity]: the first rows, or the last rows after a Concat."""
        capacity = self.count("room.size", caches, 2)
        room, used = self.numbers("room", capacity), self.add("Add", "used", column, rows)
        if self.grouped_nodes():
            return self.add("Less", "mask", room, used)
        past = self.add("Gather", "past.first", PAST, self.constant("zero", np.array(0)))
        self.add("Sub", SHIFT.removeprefix("pumice."), self.add("Sub", "past.capacity", capacity, rows), past)
        return self.add("GreaterOrEqual", "mask", room, self.add("Sub", "mask.first", capacity, used))

    def replace_input(self, name: str, value: str) -> None:
        del self.inputs[name]
        self.renamed[name] = value

    # ---- logits

    def dynamic(self) -> set[str]:
        """Return the values that depend on the inputs."""
        found = {value.name for value in self.recipe.inputs}
        for node in self.nodes:
            if found.intersection(node.reads):
                found.update(node.outputs)
        return found

    def before_product(self) -> tuple[NodeRecipe, int] | None:
        """Return the MatMul that computes all logits, and its activation input's index; None if not found."""
        dynamic, name = self.dynamic(), self.names.logits
        while (node := self.makers.get(name)) is not None:
            if node.op in _PRODUCTS:
                return None if node.op == "Gemm" or node.inputs[1] in dynamic else (node, 0)
            varying = [one for one in node.inputs if one in dynamic]
            if node.op not in (*_PASSES, *_WITH_NUMBER) or len(varying) != 1:
                return None
            name = varying[0]
        return None

    def before_norm(self, product: NodeRecipe) -> NodeRecipe:
        """Return the row normalisation that only the MatMul reads; the MatMul itself if there is none."""
        made = product.inputs[0]
        norm = self.makers.get(made)
        if norm is None or norm.op not in _NORMS or norm.attributes.get("axis", -1) not in (-1, 2):
            return product
        readers = sum(node.reads.count(made) for node in self.nodes)
        is_alone = (
            readers == 1 and made not in {value.name for value in self.recipe.outputs} and not any(norm.outputs[1:])
        )
        return norm if is_alone and norm.outputs[0] == made else product

    def pick_rows(self) -> None:
        """Limit the last MatMul to the requested positions if it is found; otherwise select the positions from the logits."""
        indices = "pumice.wanted.column"
        column = NodeRecipe("Unsqueeze", indices, [WANTED, self.constant("last", np.array([2]))], [indices], {})
        self.front.append(column)
        found = self.before_product()
        if found is None:
            node = self.makers.get(self.names.logits)
            if node is None:
                raise self.refuse(self.names.logits, "expected an output of this name, given none")
            every = f"{self.names.logits}.every"
            place = self.nodes.index(node)
            outputs = [every if one == self.names.logits else one for one in node.outputs]
            pick = self.picked(every, indices, self.names.logits)
            self.nodes[place : place + 1] = [node._replace(outputs=outputs), pick]
            return
        node = self.before_norm(found[0])
        place, some = self.nodes.index(node), f"{node.inputs[0]}.wanted"
        pick = self.picked(node.inputs[0], indices, some)
        self.nodes[place : place + 1] = [pick, node._replace(inputs=[some, *node.inputs[1:]])]

    @staticmethod
    def picked(value: str, indices: str, output: str) -> NodeRecipe:
        return NodeRecipe("GatherND", "pumice.pick", [value, indices], [output], {"batch_dims": 1})

    # ---- result

    def kept_nodes(self, outputs: set[str]) -> list[NodeRecipe]:
        """Return the nodes on which an output depends, with renamed inputs."""
        needed, kept = set(outputs), []
        for node in reversed([*self.front, *self.nodes]):
            if not needed.intersection(node.outputs):
                continue
            node = node._replace(inputs=[self.renamed.get(name, name) for name in node.inputs])
            needed.update(node.reads)
            kept.append(node)
        return kept[::-1]

    def check_lengths(self, outputs: list[str]) -> None:
        """Raise FolderError for nodes that read a mask's elements, or the length of a mask or cache, which is now the capacity."""
        live = needed_nodes([*self.front, *self.nodes], outputs)
        axes = {self.names.mask: 1, **dict.fromkeys([*self.pairs, *self.pairs.values()], 2)}
        for node in live:
            if node in self.front or node.op == "GroupQueryAttention":
                continue
            is_length = node.op == "Shape" and self.has_length(node, axes.get(node.inputs[0], 9), live)
            if is_length or (node.op != "Shape" and self.names.mask in node.reads):
                raise self.refuse(
                    node.name,
                    f"{node.op} reads how long '{node.inputs[0]}' is: expected that attention alone depends on the number of tokens so "
                    "far, as it is not known when a step is recorded; pumice.load runs the model as it is",
                )

    def has_length(self, node: NodeRecipe, axis: int, live: list[NodeRecipe]) -> bool:
        """Return whether a reader of a Shape may use the size of this axis."""
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
            if name not in self.pairs and name != self.names.words and name in read:
                raise self.refuse(
                    name, f"expected words, places, a mask and caches alone as inputs, given {value.dtype}"
                )
        if self.names.words not in self.inputs:
            raise self.refuse(self.names.words, "expected an input of this name, given none")

    def fixed_caches(self) -> list[Cache]:
        """Return the caches after rewriting their readers for a fixed capacity."""
        caches = [self.cache(*pair) for pair in self.pairs.items()]
        if self.grouped_nodes():
            self.fix_grouped()
            return [self.as_stored(cache) for cache in caches]
        joins = {name: self.joining(name) for name in self.pairs}
        plan = self.padding_plan(joins)
        self.nodes, self.is_single = list(plan.nodes), plan.is_single
        self.constants |= plan.constants
        made = [self.as_stored(one._replace(output=joins[one.name].inputs[1])) for one in caches]
        self.fix_shapes({one.name: other.name for one, other in zip(caches, made, strict=True)})
        return made

    def rewritten(self) -> RoomyRecipe:
        if self.names.words not in self.inputs:
            raise self.refuse(self.names.words, "expected an input of this name, given none")
        caches, is_apart = self.fixed_caches(), not self.grouped_nodes()
        self.pick_rows()
        self.fix_places()
        scales = [one.scales.output for one in caches if one.scales is not None and one.scales.output]
        outputs = [self.names.logits, *(cache.output for cache in caches), *scales]
        if not is_apart:
            self.check_lengths(outputs)
        nodes = self.kept_nodes(set(outputs))
        self.check_inputs(nodes)
        recipe = self.recipe._replace(
            inputs=self.new_inputs(caches),
            outputs=[InputRecipe(name, "", None, []) for name in outputs],
            nodes=nodes,
            constants=self.constants,
            plain=False,
        )
        words = self.inputs[self.names.words]
        return RoomyRecipe(
            recipe,
            caches,
            self.names.words,
            words.dtype,
            self.names.logits,
            is_apart,
            self.is_single,
        )

    def new_inputs(self, caches: list[Cache]) -> list[InputRecipe]:
        words = self.inputs[self.names.words]
        made = [
            words._replace(shape=[None, None], dimension_names=["batch", "rows"]),
            InputRecipe(PAST, "int64", [None], ["batch"]),
            InputRecipe(WANTED, "int64", [None, None], ["batch", "wanted"]),
        ]
        named = ["batch", "", "room", ""]
        made += [InputRecipe(one.name, one.dtype, [None, one.heads, None, one.size], named) for one in caches]
        return made + [
            InputRecipe(one.scales.name, one.scales.dtype, [None, one.heads, None], named[:3])
            for one in caches
            if one.scales is not None
        ]


def in_room(recipe: Recipe, folder: Folder, precision: str, in_int8: bool = False) -> RoomyRecipe:
    """Return the decoder with static KV caches, stored in a precision, or as int8 with scales in that precision.

    Raise FolderError naming the unsupported input, output or node: caches must be read by GroupQueryAttention, or joined with new rows by
    Concat.
    """
    names = names_of(recipe, folder)
    return _Rewriter(with_heads(recipe, names), replace(folder, names=names), precision, in_int8).rewritten()
