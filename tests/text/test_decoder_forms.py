"""Small decoders with Concat KV caches in many forms: text and logits match the unmodified file, or the folder is rejected."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser
import pytest

import pumice
from decoder_folders import NAMES, STORY, Reference, write_folder, write_tokenizer
from pumice.text import FolderError, Generator

pytest.importorskip("tokenizers")

WORDS, CONTEXT = 16, 96
POSITIONS = {
    "none": "x = Identity(x0)",
    "places": "pe = Gather(table, places)  x = Add(x0, pe)",
    "shape": "pe = Gather(table, qi)  x = Add(x0, pe)",
    "slice": "pe = Slice(table, past1, total1, l0)  x = Add(x0, pe)",
    "sum": """sm = ReduceSum<keepdims = 0>(mask, l1)  s0 = Sub(sm, now)  sc = Unsqueeze(s0, l1)  sr = Range(i0, now, i1)
        sp = Add(sc, sr)  pe = Gather(table, sp)  x = Add(x0, pe)""",
    "cumsum": """c0 = CumSum(mask, i1)  c1 = Mul(c0, mask)  c2 = Sub(c1, i1)  c3 = Slice(c2, past1, total1, l1)
        pe = Gather(table, c3)  x = Add(x0, pe)""",
}
MASKS = {
    "range": "ok = LessOrEqual(ki, qc)",
    "window": "ok0 = LessOrEqual(ki, qc)  b0 = Sub(qc, i4)  ok1 = Greater(ki, b0)  ok = And(ok0, ok1)",
    "wide window": "ok0 = LessOrEqual(ki, qc)  b0 = Sub(qc, i70)  ok1 = Greater(ki, b0)  ok = And(ok0, ok1)",
    "chunks": """ok0 = LessOrEqual(ki, qc)  kd = Div(ki, i4)  qd = Div(qc, i4)  ok1 = Equal(kd, qd)  ok = And(ok0, ok1)""",
    "trilu": "on = Expand(f1, both)  tr = Trilu<upper = 0>(on, past)  ok = Cast<to = 9>(tr)",
    "triangle": "t0 = Slice(triangle, past1, total1, l2)  t1 = Slice(t0, l0, total1, l3)  ok = Cast<to = 9>(t1)",
    "new triangle": """ni = Range(i0, now, i1)  n1 = Add(ni, i1)  nc = Unsqueeze(n1, last)  t0 = Less(ni, nc)  t1 = Where(t0, z, low)
        ps2 = Concat<axis = 0>(now1, past1)  t2 = Expand(z, ps2)  t3 = Concat<axis = -1>(t2, t1)  ok = Equal(t3, z)""",
    "places": "pl = Unsqueeze(places, p13)  ok = LessOrEqual(ki, pl)",
    "cumsum": """m0 = CumSum(mask, i1)  m1 = Unsqueeze(m0, p12)  m2 = Slice(m0, past1, total1, l1)  m3 = Unsqueeze(m2, p13)
        ok = LessOrEqual(m1, m3)""",
    "scatter": """ni = Range(i0, now, i1)  nc = Unsqueeze(ni, last)  t0 = LessOrEqual(nc, ni)  t1 = Cast<to = 1>(t0)
        ts = Concat<axis = 0>(total1, now1)  t2 = Expand(f1, ts)  qi1 = Unsqueeze(qi, last)  t3 = ScatterND(t2, qi1, t1)
        t4 = Transpose(t3)  ok = Cast<to = 9>(t4)""",
    "sum": """sj = ReduceSum<keepdims = 0>(mask, l1)  sb = Sub(sj, now)  sd = Unsqueeze(sb, l1)  su = Range(i0, now, i1)
        sv = Add(sd, su)  sw = Unsqueeze(sv, p13)  ok = LessOrEqual(ki, sw)""",
    "part": """ni = Range(i0, now, i1)  n1 = Unsqueeze(qi, last)  t0 = Greater(ki, n1)  t1 = Where(t0, finfo, z)  t2 = Unsqueeze(t1, p01)
        bs = Concat<axis = 0>(l1, l1, now1, total1)  t3 = Expand(t2, bs)  pm = Slice(t3, l0, total1, l3)
        am = Cast<to = 1>(mask)  an = Unsqueeze(am, p12)  ao = Sub(an, f1)  ap = Mul(ao, f2)  aq = Add(pm, ap)  ar = Less(aq, z)
        au = Where(ar, finfo, pm)  ix = Range(i0, total, i1)  iy = Unsqueeze(ix, last)  av = Transpose<perm = [3, 0, 1, 2]>(au)
        aw = Transpose<perm = [3, 0, 1, 2]>(t3)  ax = ScatterND(aw, iy, av)  ay = Transpose<perm = [1, 2, 3, 0]>(ax)
        ok = Greater(ay, low)""",
    "gathered": """ok0 = LessOrEqual(ki, qc)  gm = Transpose(mask)  gi = Unsqueeze(ki, last)  gn = GatherND(gm, gi)  gt = Transpose(gn)
        gb = Cast<to = 9>(gt)  ok = And(ok0, gb)""",
    "all": "on = Expand(f1, both)  ok = Cast<to = 9>(on)",
}
BIASES = {
    "none": "s2 = Identity(s1)",
    "distance": "d = Sub(ki, qc)  df = Cast<to = 1>(d)  al = Mul(df, slopes)  s2 = Add(s1, al)",
    "keys": "kf = Cast<to = 1>(ki)  al = Mul(kf, slopes)  s2 = Add(s1, al)",
    "end": "mt = Sub(i1, total)  en = Range(mt, i1, i1)  ef = Cast<to = 1>(en)  al = Mul(ef, slopes)  s2 = Add(s1, al)",
    "step": "bg = Greater(total, i70)  st = Where(bg, f2, f1)  s2 = Mul(s1, st)",
    "cumsum": """e0 = CumSum(mask, i1)  e1 = Sub(e0, i1)  e2 = Mul(e1, mask)  e3 = Unsqueeze(e2, p12)  ef = Cast<to = 1>(e3)
        al = Mul(ef, slopes)  s2 = Add(s1, al)""",
    "table": """d = Sub(qc, ki)  dc = Clip(d, i0, i7)  tb = Gather(buckets, dc)  tt = Transpose<perm = [2, 0, 1]>(tb)
        tu = Unsqueeze(tt, l0)  s2 = Add(s1, tu)""",
    "log of rows": "rf = Cast<to = 1>(qc)  r1 = Add(rf, f2)  rl = Log(r1)  s2 = Mul(s1, rl)",
    "log of all": "rf = Cast<to = 1>(total)  r1 = Add(rf, f2)  rl = Log(r1)  s2 = Mul(s1, rl)",
}
PADDINGS = {
    "and": "a0 = Cast<to = 9>(mask)  a1 = Unsqueeze(a0, p12)  seen = And(ok, a1)  s3 = Where(seen, s2, low)",
    "low": "a0 = Cast<to = 9>(mask)  a1 = Unsqueeze(a0, p12)  seen = And(ok, a1)  mk = Where(seen, z, finfo)  s3 = Add(s2, mk)",
    "added": """a0 = Cast<to = 1>(mask)  a1 = Unsqueeze(a0, p12)  a2 = Sub(f1, a1)  a3 = Mul(a2, finfo)  mk = Where(ok, z, finfo)
        s2b = Add(s2, mk)  s3 = Add(s2b, a3)""",
    "none": "s3 = Where(ok, s2, low)",
}
WEIGHTS = {
    "softmax": "pr = Softmax<axis = -1>(s3)",
    "safe": "p0 = Softmax<axis = -1>(s3)  nn = IsNaN(p0)  pr = Where(nn, z, p0)",
    "sinks": """ss = Concat<axis = 0>(l1, l2, now1, l1)  sk = Expand(sinks, ss)  s4 = Concat<axis = -1>(s3, sk)
        top = ReduceMax<keepdims = 1>(s4, last)  s5 = Sub(s4, top)  p0 = Softmax<axis = -1>(s5)  pr = Slice(p0, l0, last, l3)""",
}
KEYS = {
    "all": "kk = Identity(new_k0)  vv = Identity(new_v0)",
    "last": "kk = Slice(new_k0, m4, large, l2)  vv = Slice(new_v0, m4, large, l2)",
    "turned": """kr = Gather(angles, ki)  kt0 = Mul(new_k0, kr)  kk = Identity(kt0)  vv = Identity(new_v0)""",
}


OPERATORS = {  # ONNX's Attention in place of the score computation
    "mask": "OK  a0 = Cast<to = 9>(mask)  a1 = Unsqueeze(a0, p12)  seen = And(ok, a1)  o = Attention(q, kk, vv, seen)",
    "lengths": "OK  o = Attention(q, kk, vv, ok, , , total1)",
    "causal": "OK  o = Attention<is_causal = 1>(q, kk, vv)",
}


class Form(NamedTuple):
    """A decoder's mask, the bias added to its scores, its padding mask, its softmax variant and its position source."""

    mask: str = "range"
    bias: str = "none"
    padding: str = "and"
    weights: str = "softmax"
    positions: str = "none"
    keys: str = "all"
    operator: str = ""

    @property
    def is_refused(self) -> bool:
        """Return whether results depend on the number of tokens so far other than by positions (a bias counted from
        the end shifts all keys alike, but not a sink), on later tokens, or on the number of keys of an operator."""
        is_late = self.mask == "all" or self.keys == "last" or self.operator in ("lengths", "causal")
        return is_late or self.bias in ("log of all", "step") or (self.bias == "end" and self.weights == "sinks")


FORMS = [
    Form(),
    Form("window", padding="low"),
    Form("wide window", positions="places"),
    Form("chunks"),
    Form("trilu", padding="added"),
    Form("triangle", positions="places", padding="low"),
    Form("triangle", positions="shape", padding="none"),
    Form("new triangle", positions="cumsum", padding="added"),  # OPT
    Form("new triangle", "cumsum", padding="low"),  # BLOOM
    Form("places", padding="none"),
    Form("places", "distance", positions="places"),
    Form("cumsum", "table", weights="safe"),
    Form("scatter", "keys"),
    Form("range", "end", padding="low"),  # MPT
    Form("window", "table", padding="none", positions="shape"),
    Form("window", weights="sinks"),
    Form("range", "log of rows", positions="shape"),
    Form("trilu", "distance", padding="none"),
    Form("sum", positions="sum", padding="none"),
    Form("part", positions="slice"),
    Form("gathered", "distance", padding="none"),
    Form(keys="turned"),
    Form("window", operator="mask"),
    Form("range", "end", weights="sinks"),
    Form(bias="log of all"),
    Form(bias="step"),
    Form(operator="lengths"),
    Form(operator="causal"),
    Form("all"),
    Form(keys="last"),
]
TEXT = """<ir_version: 8, opset_import: ["": 18]>
decoder (INPUTS) => (float[b,s,16] scores, float[b,2,t2,8] new_k0, float[b,2,t3,8] new_v0) {
  x0 = Gather(words, ids)  p_shape = Shape(k0)  past = Gather(p_shape, i2)  n_shape = Shape(ids)  now = Gather(n_shape, i1)
  total = Add(past, now)  past1 = Unsqueeze(past, l0)  now1 = Unsqueeze(now, l0)  total1 = Unsqueeze(total, l0)
  both = Concat<axis = 0>(now1, total1)  ki = Range(i0, total, i1)  qi = Range(past, total, i1)  qc = Unsqueeze(qi, last)
  POSITIONS
  q0 = MatMul(x, wq)  k1 = MatMul(x, wk)  v1 = MatMul(x, wv)  q1 = Reshape(q0, split)  k2 = Reshape(k1, split)  v2 = Reshape(v1, split)
  q = Transpose<perm = [0, 2, 1, 3]>(q1)  kn = Transpose<perm = [0, 2, 1, 3]>(k2)  vn = Transpose<perm = [0, 2, 1, 3]>(v2)
  new_k0 = Concat<axis = 2>(k0, kn)  new_v0 = Concat<axis = 2>(v0, vn)
  KEYS
  ATTENTION
  ot = Transpose<perm = [0, 2, 1, 3]>(o)  o2 = Reshape(ot, merge)  y = Add(x, o2)  wt = Transpose(words)
  scores = MatMul(y, wt)
}"""
SCORES = """kt = Transpose<perm = [0, 1, 3, 2]>(kk)  s1 = MatMul(q, kt)
  BIAS
  OK
  PADDING
  WEIGHTS
  o = MatMul(pr, vv)"""
INPUTS = {
    "ids": "int64[b,s] ids",
    "mask": "int64[b,t] mask",
    "places": "int64[b,s] places",
    "k0": "float[b,2,p,8] k0",
    "v0": "float[b,2,p,8] v0",
}


def constants() -> dict[str, Any]:
    random = np.random.default_rng(4)
    result: dict[str, Any] = {f"i{i}": np.array(i) for i in (0, 1, 2, 4, 7, 70)}
    result |= {f"l{i}": np.array([i]) for i in range(4)} | {"last": np.array([-1]), "m4": np.array([-4])}
    result |= {"p01": np.array([0, 1]), "p12": np.array([1, 2]), "p13": np.array([1, 3]), "large": np.array([1 << 62])}
    result |= {"split": np.array([0, 0, 2, 8]), "merge": np.array([0, 0, 16])}
    floats = {"z": 0.0, "f1": 1.0, "f2": 2.0, "low": -1e4, "finfo": np.finfo("f4").min}
    floats |= {
        "slopes": [[[0.5]], [[0.125]]],
        "triangle": np.tri(CONTEXT)[None, None],
        "words": random.standard_normal((WORDS, 16)),
    }
    floats |= {name: random.standard_normal((16, 16)) / 4 for name in ("wq", "wk", "wv")}
    floats |= {"table": random.standard_normal((CONTEXT, 16)), "buckets": random.standard_normal((8, 2))}
    floats |= {
        "sinks": random.standard_normal((1, 2, 1, 1)),
        "angles": np.cos(np.arange(CONTEXT)[:, None] * np.arange(1, 9)),
    }
    return result | {name: np.array(value, np.float32) for name, value in floats.items()}


def model_of(form: Form) -> onnx.ModelProto:
    parts = {
        "POSITIONS": POSITIONS[form.positions],
        "KEYS": KEYS[form.keys],
        "ATTENTION": OPERATORS[form.operator] if form.operator else SCORES,
        "BIAS": BIASES[form.bias],
        "OK": MASKS[form.mask],
        "PADDING": PADDINGS[form.padding],
        "WEIGHTS": WEIGHTS[form.weights],
    }
    text = TEXT.replace('"": 18', '"": 24') if form.operator else TEXT
    for name, part in parts.items():
        text = text.replace(name, part)
    read = set(re.findall(r"\w+", text.partition("{")[2]))
    values = {name: value for name, value in constants().items() if name in read}
    text = text.replace("INPUTS", ", ".join(value for name, value in INPUTS.items() if name in read))
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    return model


def plain_logits(model: onnx.ModelProto, ids: list[int], context: pumice.Context) -> Any:
    """Return the logits of the unmodified file, run on the whole text at once."""
    feeds = {"ids": np.array([ids]), "mask": np.ones((1, len(ids)), np.int64), "places": np.arange(len(ids))[None]}
    feeds |= {name: np.zeros((1, 2, 0, 8), np.float32) for name in ("k0", "v0")}
    input_names = {value.name for value in model.graph.input}
    loaded = pumice.load(model, context)
    return loaded(**{name: value for name, value in feeds.items() if name in input_names})[0][0]


def text_of(generator: Generator, prompt: list[int], count: int) -> list[int]:
    with generator.session() as session:
        for _ in session.stream(prompt, max_tokens=count):
            pass
        return session.tokens[len(prompt) :]


def close(actual: Any, expected: Any) -> bool:
    return bool(np.abs(actual - expected).max() <= 2e-5 * np.abs(expected).max())


def check_text(form: Form, model: onnx.ModelProto, text: list[int], count: int) -> None:
    """Compare the last `count` tokens with ONNX Runtime's: a prefill, then token by token."""
    reference = Reference(model.SerializeToString(), NAMES)
    fed = text[:-count]
    for token in text[-count:]:
        assert token == reference.logits(fed)[-1].argmax(), f"{form} after {reference.length} tokens"
        fed = [token]


def check_form(form: Form, folder: Path, context: pumice.Context, lengths: Sequence[int], count: int) -> None:
    """Compare greedy text and logits with the unmodified file, or check that the error names a node."""
    model = model_of(form)
    write_folder(folder, model, WORDS, CONTEXT)
    if form.is_refused:
        with pytest.raises(
            FolderError, match=r"expected results that do not change .* pumice\.load runs the model unchanged"
        ):
            Generator(folder, context)
        return
    chance = np.random.default_rng(7)
    with Generator(folder, context) as generator:
        for length in lengths:
            prompt = chance.integers(0, WORDS, length).tolist()
            text = [*prompt, *text_of(generator, prompt, count)]
            expected = plain_logits(model, text, context)
            assert text[length:] == expected[length - 1 : -1].argmax(-1).tolist(), f"{form} after {length} tokens"
            assert close(generator.logits(text), expected), f"{form} after {length} tokens"
            if importlib.util.find_spec("onnxruntime"):
                check_text(form, model, text, count)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: ", ".join(form))
def test_forms_are_right_or_rejected(form: Form, tmp_path: Path, context: pumice.Context) -> None:
    """Prompt lengths around the cache capacity (64, then the context's), the window and the chunk size."""
    check_form(form, tmp_path, context, (1, 10, 61), 5)


@pytest.mark.parametrize("length", [41, 105, 300, 1000, 2500, 3500, 4095])
def test_a_step_at_any_length_is_rejected(length: int, tmp_path: Path, context: pumice.Context) -> None:
    """Like LongRoPE tables that change with the length: they would see the cache capacity in its place."""
    model = model_of(Form(bias="step"))
    (threshold,) = (initializer for initializer in model.graph.initializer if initializer.name == "i70")
    threshold.CopyFrom(onnx.numpy_helper.from_array(np.array(length), "i70"))
    write_folder(tmp_path, model, WORDS, 4096)
    with pytest.raises(FolderError, match="expected results that do not change"):
        Generator(tmp_path, context)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_forms_by_chance_are_right_or_rejected(seed: int, tmp_path: Path, context: pumice.Context) -> None:
    forms = [Form(*parts) for parts in itertools.product(MASKS, BIASES, PADDINGS, WEIGHTS, POSITIONS, KEYS)]
    for i, form in enumerate(random.Random(seed).sample(forms, 25)):
        (tmp_path / str(i)).mkdir()
        check_form(form, tmp_path / str(i), context, (1, 7, 33, 60, 63, 64, CONTEXT - 5), 5)


@pytest.mark.parametrize("form", [FORMS[1], FORMS[6], FORMS[7], FORMS[10]], ids=lambda form: ", ".join(form))
def test_texts_of_a_batch_are_those_of_their_own(form: Form, tmp_path: Path, context: pumice.Context) -> None:
    """Also for a decoder that derives positions from the cache length and so runs one text at a time."""
    write_folder(tmp_path, model_of(form), WORDS, CONTEXT)
    prompts = ["3", "8 5 1 9 2 7 4 6 11 3 3 8", "5 1 2 4"]
    with Generator(tmp_path, context) as generator:
        result = generator(prompts, max_tokens=12)
        assert result == [generator(prompt, max_tokens=12) for prompt in prompts]


@pytest.mark.parametrize("form", [FORMS[1], FORMS[6]], ids=lambda form: ", ".join(form))
@pytest.mark.parametrize("cache", [None, "int8"])
def test_what_is_taken_back_and_proposed_leaves_the_text(
    cache: str | None, form: Form, tmp_path: Path, context: pumice.Context
) -> None:
    write_folder(tmp_path, model_of(form), WORDS, CONTEXT)
    with Generator(tmp_path, context, cache=cache) as generator, generator.session() as session:
        expected = text_of(generator, [3, 8, 5, 1], 40)
        session([3, 8, 5, 1], max_tokens=40)
        session.rewind(-30)
        session([], max_tokens=30, speculate="ngram", num_draft_tokens=3)
        assert session.tokens[4:] == expected


def test_a_length_that_attention_alone_may_read_is_rejected(tmp_path: Path, context: pumice.Context) -> None:
    """A decoder with GroupQueryAttention whose tables depend on the mask length (LongRoPE)."""
    shutil.copytree(STORY, tmp_path, dirs_exist_ok=True)
    model = onnx.load(str(tmp_path / "model.onnx"), load_external_data=False)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([[1.0]], np.float32), "unit"))
    nodes = [
        onnx.helper.make_node("Shape", ["attention_mask"], ["length"], start=1, end=2),
        onnx.helper.make_node("Cast", ["length"], ["scale"], "scale of tables", to=1),
        onnx.helper.make_node("Mul", ["cos_cache", "scale"], ["scaled"]),
    ]
    for node in model.graph.node:
        node.input[:] = ["scaled" if name == "cos_cache" else name for name in node.input]
    kept = [*nodes, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FolderError, match="reads how long 'attention_mask' is"):
        Generator(tmp_path, context)


SINGLE = """<ir_version: 8, opset_import: ["": 18]>
decoder (int64[b,s] input_ids, int64[b,t] attention_mask, float[b,p,16] past) => (float[b,s,16] logits, float[b,t2,16] present) {
  x = Gather(words, input_ids)  p_shape = Shape(past)  before = Gather(p_shape, i1)  n_shape = Shape(input_ids)  now = Gather(n_shape, i1)
  total = Add(before, now)  ki = Range(i0, total, i1)  qi = Range(before, total, i1)  qc = Unsqueeze(qi, last)  ok0 = LessOrEqual(ki, qc)
  b0 = Sub(qc, i7)  ok1 = Greater(ki, b0)  ok = And(ok0, ok1)  a0 = Cast<to = 9>(attention_mask)  a1 = Unsqueeze(a0, p12)
  seen = And(ok, a1)  kv = MatMul(x, wk)  present = Concat<axis = -2>(past, kv)  kk, vv = Split<axis = -1, num_outputs = 2>(present)
  q0 = MatMul(x, wq)  q1 = Reshape(q0, split)  q = Transpose<perm = [0, 2, 1, 3]>(q1)  k4 = Unsqueeze(kk, l1)  v4 = Unsqueeze(vv, l1)
  kt = Transpose<perm = [0, 1, 3, 2]>(k4)  s1 = MatMul(q, kt)  s2 = Where(seen, s1, low)  pr = Softmax<axis = -1>(s2)  o = MatMul(pr, v4)
  ot = Transpose<perm = [0, 2, 1, 3]>(o)  o2 = Reshape(ot, merge)  y = Add(x, o2)  wt = Transpose(words)  logits = MatMul(y, wt)
}"""


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_keys_and_values_may_be_one_tensor(precision: str, tmp_path: Path, context: pumice.Context) -> None:
    model = onnx.parser.parse_model(SINGLE)
    read = set(re.findall(r"\w+", SINGLE.partition("{")[2]))
    values = {name: value for name, value in constants().items() if name in read}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    ids = np.random.default_rng(5).integers(0, WORDS, 70)
    feeds = {
        "input_ids": ids[None],
        "attention_mask": np.ones((1, 70), np.int64),
        "past": np.zeros((1, 0, 16), np.float32),
    }
    expected = pumice.load(model, context)(**feeds)[0][0]
    for value, name in ((model.graph.input[2], "past_key_values.0"), (model.graph.output[1], "present.0")):
        for node in model.graph.node:
            node.input[:] = [f"{name}.key_value" if item == value.name else item for item in node.input]
            node.output[:] = [f"{name}.key_value" if element == value.name else element for element in node.output]
        value.name = f"{name}.key_value"
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt_bigcode", "n_positions": CONTEXT}))
    write_tokenizer(tmp_path, WORDS)
    with Generator(tmp_path, context, precision) as generator:
        assert (
            np.abs(generator.logits(ids.tolist()) - expected).max()
            <= (2e-5 if precision == "fp32" else 2e-2) * np.abs(expected).max()
        )
        text = [*ids[:30].tolist(), *text_of(generator, ids[:30].tolist(), 40)]
        assert text[30:] == generator.logits(text)[29:-1].argmax(-1).tolist()
    with pytest.raises(FolderError, match="expected separate tensors for keys and values for int8 caches"):
        Generator(tmp_path, context, cache="int8")
