"""Language models: the included example, and int4 decoders with one and eight billion random weights."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pumice
from pumice.importer.file.graph_recipe import ConstantRecipe, GraphRecipe, InputRecipe, NodeRecipe
from pumice.importer.load_graph import build_recipe_graph
from pumice.text.decode_state import DecodeState, RecordedRun
from pumice.text.decoder import Decoder, SamplingParams
from pumice.text.model_folder import ModelFolder
from pumice.text.static_kv_cache import to_static_kv_cache

from .contender import Array
from .rows import Row, Table
from .session import Session

BLOCK = 32
MS, US = 1e3, 1e6
PROMPT, TOKENS, BATCH = 2048, 64, 8
LIKELIEST = SamplingParams()
DRAWN = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=1)


@dataclass(frozen=True)
class Shape:
    """A decoder in onnxruntime-genai's form. goals: tokens per second with 1,024 and 16,384 cached tokens, of a prompt, of a batch."""

    name: str
    layers: int
    width: int
    heads: int
    groups: int
    inner: int
    words: int = 128256
    goals: tuple[float | None, ...] = (None, None, None, None)

    @property
    def head(self) -> int:
        return self.width // self.heads


SHAPES = (
    Shape("1B", 16, 2048, 32, 8, 8192, goals=(1200, None, None, None)),
    Shape("8B", 32, 4096, 32, 8, 14336, goals=(350, 300, 12000, None)),
)
TINY = Shape("2 layers of 256", 2, 256, 4, 2, 512, words=1024)


class Writer:
    """Writes a decoder's recipe; weights of equal size share bytes on the host, but not on the device."""

    def __init__(self, shape: Shape, places: int) -> None:
        self.shape, self.places = shape, places
        self.constants: dict[str, ConstantRecipe] = {}
        self.nodes: list[NodeRecipe] = []
        self.random = np.random.default_rng(0)
        self.bytes: dict[int, Array] = {}

    def constant(self, name: str, value: Array) -> str:
        self.constants[name] = ConstantRecipe(name, str(value.dtype), list(value.shape), value.tobytes())
        return name

    def add(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: int | float
    ) -> str:
        self.nodes.append(NodeRecipe(op, outputs[0], [*inputs], [*outputs], dict(attributes), domain))
        return outputs[0]

    def product(self, name: str, x: str, depth: int, columns: int) -> str:
        size = depth * columns // 2
        if size not in self.bytes:
            self.bytes[size] = np.resize(self.random.integers(0, 256, min(size, 1 << 20), np.uint8), size)
        blocks = depth // BLOCK
        codes = ConstantRecipe(f"{name}.q", "uint8", [columns, blocks, BLOCK // 2], memoryview(self.bytes[size]))
        self.constants[codes.name] = codes
        scale = np.full(
            columns * blocks, 0.22 / np.sqrt(depth), np.float16
        )  # of codes from -8 to 7; preserves the magnitude of sums
        inputs = [x, codes.name, self.constant(f"{name}.s", scale)]
        return self.add("MatMulNBits", inputs, [name], "com.microsoft", K=depth, N=columns, bits=4, block_size=BLOCK)

    def norm(self, name: str, x: str) -> str:
        gain = self.constant(f"{name}.w", np.ones(self.shape.width, np.float16))
        return self.add("RMSNormalization", [x, gain], [name], axis=-1, epsilon=1e-5)

    def layer(self, i: int, x: str) -> str:
        shape, base = self.shape, f"l{i}."
        qkv = self.product(
            base + "qkv", self.norm(base + "n1", x), shape.width, shape.width + 2 * shape.groups * shape.head
        )
        caches = [f"past_key_values.{i}.{one}" for one in ("key", "value")]
        made = [f"present.{i}.{one}" for one in ("key", "value")]
        inputs = [qkv, "", "", *caches, "lengths", "total", "cos", "sin"]
        numbers = {"num_heads": shape.heads, "kv_num_heads": shape.groups, "do_rotary": 1}
        mixed = self.add("GroupQueryAttention", inputs, [base + "mix", *made], "com.microsoft", **numbers)
        x = self.add("Add", [x, self.product(base + "o", mixed, shape.width, shape.width)], [base + "x1"])
        inner = self.norm(base + "n2", x)
        gate = self.product(base + "gate", inner, shape.width, shape.inner)
        up = self.product(base + "up", inner, shape.width, shape.inner)
        silu = self.add("Mul", [gate, self.add("Sigmoid", [gate], [base + "sig"])], [base + "silu"])
        down = self.product(base + "down", self.add("Mul", [silu, up], [base + "in"]), shape.inner, shape.width)
        return self.add("Add", [x, down], [base + "x2"])

    def recipe(self) -> GraphRecipe:
        shape = self.shape
        table = self.random.standard_normal((min(shape.words, 4096), shape.width)).astype(np.float16)
        words = self.constant("words", np.resize(table, (shape.words, shape.width)))
        angles = np.arange(self.places)[:, None] * 500000.0 ** (-np.arange(0, shape.head, 2) / shape.head)
        self.constant("cos", np.cos(angles).astype(np.float16))
        self.constant("sin", np.sin(angles).astype(np.float16))
        x = self.add("Gather", [words, "input_ids"], ["embedded"], axis=0)
        for i in range(shape.layers):
            x = self.layer(i, x)
        self.product("logits", self.norm("last", x), shape.width, shape.words)
        inputs = [InputRecipe("input_ids", "int64", [None, None], ["batch", "rows"])]
        outputs = [InputRecipe("logits", "float16", None, [])]
        for i in range(shape.layers):
            for one in ("key", "value"):
                sizes: list[int | None] = [None, shape.groups, None, shape.head]
                inputs.append(InputRecipe(f"past_key_values.{i}.{one}", "float16", sizes, ["batch", "", "past", ""]))
                outputs.append(InputRecipe(f"present.{i}.{one}", "float16", None, []))
        return GraphRecipe(shape.name, inputs, self.constants, self.nodes, outputs, [])


def device_of(
    shape: Shape,
    places: int,
    context: pumice.Context,
    in_int8: bool = False,
    variants: Mapping[str, str] | None = None,
) -> tuple[Decoder, int]:
    """Return the decoder on the device, optionally with int8 KV caches, and the bytes of its weights. variants: measured choices by kind of
    step."""
    precision = "fp16" if context.info.kind != "software" else "fp32"
    folder = ModelFolder("", "", "model.onnx", "")
    recipe = Writer(shape, places).recipe()
    decoder_recipe = to_static_kv_cache(recipe, folder, precision, in_int8)
    program = build_recipe_graph(decoder_recipe.recipe).compile(context, precision, measured=variants)
    products = sum(
        one.shape[0] * one.shape[1] * BLOCK // 2 for one in recipe.constants.values() if one.name.endswith(".q")
    )
    return Decoder(context, program, decoder_recipe, shape.words), products


def prompt(count: int, words: int, seed: int = 0) -> list[int]:
    return [int(one) for one in np.random.default_rng(seed).integers(0, words, count)]


def made(rows: DecodeState, count: int, choice: SamplingParams = LIKELIEST) -> None:
    """Generate `count` tokens of each text."""
    for _ in rows.generate([choice] * len(rows.tokens), count):
        pass


def rate(rows: DecodeState, count: int, choice: SamplingParams = LIKELIEST) -> list[float]:
    """Return tokens per second of three runs of `count` tokens, after an unmeasured one that may create kernels."""
    rates = []
    for _ in range(4):
        made(rows, count, choice)
        rates.append(rows.timing.tokens_per_second * len(rows.tokens))
    return rates[1:]


def faster(what: str, rates: Sequence[float], goal: float | None, note: str = "") -> Row:
    """Return a row of tokens per second, where more is better: the judged figure is negated, because targets are maxima."""
    row = Row(what, max(rates), sorted(rates)[len(rates) // 2], note=note)
    if goal is not None:
        row.note = f"{'met' if max(rates) >= goal else 'MISSED'}: goal {goal:,.0f}{'; ' if note else ''}{note}"
    return row


def filled(device: Decoder, count: int, batch: int = 1) -> DecodeState:
    """Return prefilled texts of `count` tokens."""
    rows = DecodeState(device, batch, None)
    rows.tokens = [prompt(count, device.vocab_size, i) for i in range(batch)]
    rows.ensure_capacity(count + 512)
    rows.prefill()
    rows.logits()
    return rows


def host_time(rows: DecodeState) -> Row:
    """Measure the host seconds of a recorded step."""
    recorded = rows._get_run(1, 1, "greedy")
    seconds = []
    for _ in range(50):
        begin = time.perf_counter()
        submission = recorded.commands.exec()
        seconds.append(time.perf_counter() - begin)
        submission.wait()
    row = Row("  the host's part of a step, ms", min(seconds) * MS, sorted(seconds)[25] * MS, target=0.2)
    row.note = f"{recorded.commands.dispatches} dispatches, {recorded.commands.barriers} barriers"
    return row


def checked_run(rows: DecodeState, count: int) -> RecordedRun:
    """Return the recorded run of the last token and `count` - 1 draft tokens, sampling after each; it has run once."""
    before = len(rows.tokens[0]) - 1
    rows.ensure_capacity(before + count)
    run = rows._get_run(count, count, "greedy")
    if count > 1:
        chooser = rows.get_position_tensors(count)
        chooser.upload_sampling_params([LIKELIEST] * count, [before + 1] * count)
        chooser.past.upload(np.arange(before, before + count))
    rows._submit_run(run, np.ones((1, count), rows.decoder.decoder_recipe.input_ids_dtype), [before]).wait()
    return run


def seconds_of_run(run: RecordedRun, times: int = 32) -> float:
    """Return the seconds of a run, averaged over successive ones."""
    begin = time.perf_counter()
    for _ in range(times):
        submission = run.commands.exec()
    submission.wait()
    return (time.perf_counter() - begin) / times


def checked_row(rows: DecodeState, width: int) -> Row:
    """Measure a run that verifies `width` draft tokens, averaged over 32 successive ones."""
    seconds = seconds_of_run(checked_run(rows, width + 1))
    return Row(f"  a run that checks {width} proposed tokens, ms", seconds * MS, seconds * MS)


def bytes_of(step: dict[str, Any]) -> int:
    """Return the bytes of everything a plan's step binds, including the full capacity of caches."""
    return sum(operand["end"] - operand["begin"] for operand in step["operands"])


def kernel_rows(rows: DecodeState, count: int = 1) -> list[Row]:
    """Return the time of a `count`-token run by kernel and size, largest total first.

    The device waits between measured dispatches, so their sum exceeds the time of the step.
    """
    device, caches = rows.decoder, rows.ensure_capacity(len(rows.tokens[0]))
    run = rows._get_run(count, count, "greedy")
    recorded = rows.record_run((run.input_ids, run.logit_positions), run.logits, sampling_mode="greedy", profile=True)
    plan = device.program.plan(device.decoder_recipe.make_input_shapes(len(rows.tokens), count, count, caches.capacity))
    plan = [step for step in plan if step["kernel"] != "copy_words.comp"]  # left out: caches are bound in place
    samples = []
    for _ in range(12):
        recorded.commands.exec().wait()
        times = recorded.commands.dispatch_times
        samples.append([one.seconds for one in times])
    seconds = np.median(np.array(samples[2:]), axis=0)
    found: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    for i, one in enumerate(times):
        # Steps after the plan's own sample the token.
        is_planned = i < len(plan) and plan[i]["label"] == one.label
        name = one.label
        if is_planned:
            groups = " x ".join(str(axis) for axis in plan[i]["groups"])
            node = one.label.partition("/")[0].rpartition(".")[2]
            name = f"{plan[i]['kernel'].removesuffix('.comp')} of {node} [{groups}]"
            sizes.setdefault(name, bytes_of(plan[i]))
        found.setdefault(name, []).append(float(seconds[i]))
    made = []
    for name, each in sorted(found.items(), key=lambda item: -sum(item[1])):
        best, size = min(each), sizes.get(name, 0)
        note = f"{len(each)} times, {sum(each) * US:,.0f} us in all"
        if size and best:
            note += f", {size / 1e6:.2f} MB, {size / best / 1e9:,.0f} GB/s"
        made.append(Row(f"  {name}", best * US, sorted(each)[len(each) // 2] * US, note=note))
    made.append(
        Row("  all of them", float(seconds.sum()) * US, float(seconds.sum()) * US, note=f"{len(times)} dispatches")
    )
    return made


def profile_table(shape: Shape, session: Session, count: int, in_int8: bool = False) -> Table:
    device, _ = device_of(shape, count + 1024, session.context, in_int8)
    rows = filled(device, count)
    made = kernel_rows(rows)
    made.append(step_row(rows))
    rows.close()
    device.program.close()
    what = f"{count} rows of cache{' of int8' if in_int8 else ''}"
    return Table(f"Text: the kernels of a step of {shape.name}, {what}", "us", made)


def step_row(rows: DecodeState) -> Row:
    """Measure the device seconds of a step, alone and in sequence."""
    run = rows._get_run(1, 1, "greedy")
    seconds = seconds_of_run(run)
    note = f"{run.commands.dispatches} dispatches, {run.commands.barriers} barriers"
    return Row("  a step, of 32 behind each other", seconds * US, seconds * US, note=note)


def decoder_rows(shape: Shape, session: Session, long: int, count: int) -> Iterator[Row]:
    begin = time.perf_counter()
    device, weights = device_of(shape, long + 1024, session.context)
    yield Row(
        f"{shape.name}: load, s", time.perf_counter() - begin, note=f"{weights / 1e9:.2f} GB of products' weights"
    )
    rows = filled(device, 1024 if long > 1024 else 32)
    rates = rate(rows, count)
    note = f"weights at {weights * max(rates) / 1e12:.2f} TB/s"
    yield faster(f"{shape.name}: tokens/s, {len(rows.tokens[0])} rows, likeliest", rates, shape.goals[0], note)
    yield faster(f"{shape.name}: tokens/s, drawn by top-k and top-p", rate(rows, count, DRAWN), None)
    yield host_time(rows)
    yield from (checked_row(rows, width) for width in (1, 3, 7))
    rows.close()
    rows = filled(device, long)
    yield faster(f"{shape.name}: tokens/s, {long} rows", rate(rows, count), shape.goals[1])
    rows.close()
    yield prompt_row(shape, device, PROMPT if long > 1024 else 64)
    rows = filled(device, 256 if long > 1024 else 16, BATCH)
    single = max(rates)
    rates = rate(rows, count)
    yield faster(f"{shape.name}: tokens/s, batch of {BATCH}", rates, 4 * single)
    rows.close()
    device.program.close()
    yield from int8_rows(shape, session, long, count)


def int8_rows(shape: Shape, session: Session, long: int, count: int) -> Iterator[Row]:
    """Measure with int8 KV caches."""
    device, _ = device_of(shape, long + 1024, session.context, in_int8=True)
    for length in sorted({min(long, 1024), long}):
        rows = filled(device, length)
        assert rows.caches is not None
        note = f"caches of {rows.caches.bytes / 1e6:,.0f} MB for {rows.caches.capacity} rows"
        yield faster(f"{shape.name}: tokens/s, {length} rows, caches of int8", rate(rows, count), None, note)
        rows.close()
    yield prompt_row(shape, device, PROMPT if long > 1024 else 64, ", caches of int8")
    device.program.close()


def prompt_row(shape: Shape, device: Decoder, count: int, what: str = "") -> Row:
    """Measure prefill tokens per second; the first prefill, which creates kernels, is excluded."""
    seconds = []
    for i in range(4):
        rows = DecodeState(device, 1, None)
        rows.tokens = [prompt(count, device.vocab_size, i)]
        rows.ensure_capacity(count + 64)
        if i == 0:
            kept = rows
        begin = time.perf_counter()
        kept.tokens, kept.cached = rows.tokens, [0]
        kept.prefill()
        kept.logits()
        seconds.append(time.perf_counter() - begin)
        if kept is not rows:
            rows.close()
    kept.close()
    note = f"first token after {min(seconds[1:]) * MS:.1f} ms"
    return faster(
        f"{shape.name}: tokens/s of a prompt of {count}{what}",
        [count / one for one in seconds[1:]],
        shape.goals[2],
        note,
    )


def example_rows(session: Session) -> Iterator[Row]:
    with pumice.text.Generator(pumice.text.EXAMPLE, session.context) as generator:
        rows = DecodeState(generator.decoder, 1, generator.context_length)
        rows.tokens = [generator.encode("Once there was a fox")]
        yield faster("the example, fp32: tokens/s", rate(rows, TOKENS), 50 if session.software else None)
        yield host_time(rows)
        rows.close()
        rows = DecodeState(generator.decoder, BATCH, generator.context_length)
        rows.tokens = [generator.encode("Once there was a fox")] * BATCH
        rows.tokens = [list(one) for one in rows.tokens]
        yield faster(f"the example, batch of {BATCH}: tokens/s", rate(rows, TOKENS), None)
        rows.close()


def run(session: Session) -> Iterator[Table]:
    if not session.profile:
        yield Table("Text: the example", "tokens/s", list(example_rows(session)))
    for shape in (TINY,) if session.software else SHAPES:
        long = 256 if session.software else 16384
        yield profile_table(shape, session, min(long, 1024))
        yield profile_table(shape, session, long, in_int8=True)
        if not session.profile:
            made = list(decoder_rows(shape, session, long, TOKENS))
            yield Table(f"Text: {shape.name}, 4-bit weights", "tokens/s", made)
