"""A model whose names contain every dangerous character, passed through all commands and all printed texts."""

from __future__ import annotations

import ast
import copy
import json
import logging
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import helper

import pumice
from onnx_models import model, node, value
from pumice.base.printable_text import escape_unprintable, quote_shell_word, shorten_and_escape
from pumice.base.progress import Progress
from pumice.plugin.baselines import get_baseline_path
from pumice.tools.cli import main
from pumice.validation.validate import validate

CODES = [
    *range(0x01, 0x20),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
]
DANGEROUS = frozenset(map(chr, CODES))
LAYOUT = frozenset("\n\t")
ALL = "".join(map(chr, CODES))
SHELL = "'; touch pwned; echo '\"`touch pwned`$(touch pwned)[bold]\\"
FORGED = "forged line"  # would be a separate line if a line break were printed


def hostile(name: str) -> str:
    return f"{name}\n{FORGED} {ALL}{SHELL}"


def hostile_model(wrong: bool = False) -> onnx.ModelProto:
    """Relu(x) + w, with hostile names; wrong: with a node of an unknown operator."""
    x, hidden, w, y = map(hostile, ("x", "hidden", "w", "y"))
    domain = hostile("domain") if wrong else ""
    nodes = [
        node("Relu", [x], [hidden], name=hostile("relu")),
        helper.make_node("Add", [hidden, w], [y], name=hostile("add"), domain=domain, doc_string=hostile("doc")),
    ]
    proto = model(nodes, [value(x, [hostile("N"), 4])], [y], {w: np.ones(4, np.float32)})
    proto.graph.name, proto.doc_string, proto.producer_name = hostile("g"), hostile("doc"), hostile("producer")
    proto.metadata_props.add(key=hostile("key"), value=hostile("value"))
    if wrong:
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    return proto


def check(text: str, name: str = "") -> None:
    """Fail if the text has a dangerous character, or a line injected by a name."""
    found = sorted(f"U+{ord(item):04X}" for item in set(text) & (DANGEROUS - LAYOUT))
    assert not found, (name, found, text[:2000])
    forged = [line for line in re.split(r"\r|\n", text) if line.startswith(FORGED)]
    assert not forged, (name, text[:2000])


X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def folder(tmp_path: Path, context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PUMICE_DEVICE", f"uuid:{context.info.uuid}")
    (tmp_path / "m.onnx").write_bytes(hostile_model().SerializeToString())
    (tmp_path / "wrong.onnx").write_bytes(hostile_model(wrong=True).SerializeToString())
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "other.npz", **{"no\x1b[31m": X})
    (tmp_path / "labels.txt").write_text("\x1b[31mcat\nd\u202eog\n\x07bird\n\x9bfish\n")
    return tmp_path


@pytest.fixture
def loaded(folder: Path, context: pumice.Context) -> Iterator[pumice.Model]:
    with pumice.load(folder / "m.onnx", context) as loaded_model:
        yield loaded_model


COMMANDS = [
    "info",
    "doctor",
    "run {m} --input {x} --labels {labels} --output {out}",
    "run {m} --input {other}",
    "bench {m} --runs 2",
    "bench {m} --runs 2 --profile",
    "tune {m} --runs 1",
    "selftest --areas driver",
    "tuning",
    "operators Relu",
    "operators",
    "validate {m} --input {x}",
    "validate {m} --input {x} --repeat 3",
    "validate {m} --input {x} --mode isolated --precision fp32,fp16",
    "validate {m} --input {x} --bisect",
    "validate {m} --input {x} --html {out}.html --junit {out}.xml",
]
REFUSED = [
    "run {m} --input {out}/gone.npy",
    "run {m} --input no={x}",
    "run {m}",
    "run {wrong} --input {x}",
    "bench {m} --runs 2 --dim zz=3",
    "bench {wrong} --runs 2",
    "tune {wrong}",
    "validate {m} --input {x} --tolerance no\x1b[31m=1",
    "validate {wrong} --input {x}",
    "validate {wrong} --input {x} --device all",
    "reduce {m} --output {out}",
    "reduce {wrong} --output {out}",
    "generate {out} --prompt \x1b[31m",
    "generate {m}\x1b[31m --prompt a",
    "calibrate --device no\x1b[31m",
    "selftest --device no\x1b[31m",
    "selftest --areas no\x1b[31m",
    "run {m}\x1b[31m\u202e --input {x}",
]


@pytest.mark.parametrize("line", [*COMMANDS, *REFUSED], ids=lambda line: re.sub(r"[^ -~]", "?", line))
def test_no_command_prints_a_dangerous_character(
    line: str, folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    paths = {
        "m": "m.onnx",
        "wrong": "wrong.onnx",
        "x": "x.npy",
        "other": "other.npz",
        "labels": "labels.txt",
        "out": "out",
    }
    places = {name: str(folder / path) for name, path in paths.items()}
    status = main([word.format(**places) for word in line.split(" ")])
    if line != "doctor":  # its status reports whether this machine works
        assert (status == 0) == (line in COMMANDS), status
    captured = capfd.readouterr()
    assert captured.out + captured.err, "a command that says nothing tests nothing"
    check(captured.out, line)
    check(captured.err, line)
    for record in caplog.records:
        check(record.getMessage(), line)
    for path in (folder / "out.html", folder / "out.xml"):
        if path.exists():
            check(path.read_text(), path.name)


def texts(loaded: pumice.Model, folder: Path) -> dict[str, Callable[[], str]]:
    """Return functions that produce every text made from a model, by description."""
    with pumice.profile() as profile:
        result = loaded(X)
    run = [loaded.run_async(X)]
    report = validate(loaded, [{hostile("x"): X}], repeat=2, allow_unchecked=True)
    with pumice.profile() as other:
        loaded(X)
    predictor = pumice.BatchPredictor(folder / "m.onnx")
    junit = folder / "report.xml"
    report.to_junit(junit)
    html = folder / "report.html"
    report.to_html(html)
    memory = profile.memory[0] if profile.memory else None
    renderers: dict[str, Callable[[], str]] = {
        "model": lambda: repr(loaded),
        "model in a notebook": lambda: loaded._repr_html_(),
        "inputs": lambda: "".join(map(str, (*loaded.inputs, *loaded.outputs))),
        "report": lambda: str(loaded.report()),
        "report in a notebook": lambda: loaded.report()._repr_html_(),
        "profile": lambda: profile.table() + profile.table("dispatch") + profile.table("kernel"),
        "profile in a notebook": lambda: profile._repr_html_(),
        "comparison": lambda: repr(profile.compare(other)) + profile.compare(other)._repr_html_(),
        "memory": lambda: repr(memory) + (memory._repr_html_() if memory else ""),
        "validation": lambda: str(report) + repr(report) + report.summary,
        "validation in a notebook": lambda: report._repr_html_(),
        "findings": lambda: "\n".join(report.finding_lines()),
        "repeats": lambda: "\n".join(map(str, report.repeats)),
        "JUnit": lambda: junit.read_text(),
        "page": lambda: html.read_text(),
        "predictor": lambda: repr(predictor),
        "run": lambda: repr(run[0]),
        "outputs": lambda: repr(pumice.model.model_runs.Outputs.named((hostile("y"), "b"))((result, result))),
        "tuning": lambda: (
            repr(loaded.tune(X, runs=1, progress=False)) + loaded.tune(X, runs=1, progress=False)._repr_html_()
        ),
    }
    return renderers


def test_no_text_holds_a_dangerous_character(loaded: pumice.Model, folder: Path) -> None:
    result = texts(loaded, folder)
    for name, text in result.items():
        check(text(), name)
    assert any("hidden" in text() for text in result.values())


def test_data_keeps_the_names(loaded: pumice.Model) -> None:
    assert [value.name for value in (*loaded.inputs, *loaded.outputs)] == [hostile("x"), hostile("y")]
    assert hostile("relu") in {row["node"] for row in loaded.report()}
    report = validate(loaded, [{hostile("x"): X}])
    assert {row.node for row in report.rows} >= {hostile("relu"), hostile("add")}
    record = json.loads(json.dumps(report.as_dict()))
    assert {row["node"] for row in record["rows"]} >= {hostile("relu"), hostile("add")}
    with pumice.profile() as profile:
        loaded(X)
    assert any(ALL in item.name for item in profile.rows())
    assert repr(ALL)[1:-1] in repr(profile.as_dict())


def test_no_record_of_a_name_shows_a_dangerous_character() -> None:
    """Covers rarer texts: a lost device, a stored output, a reduced model, a policy."""
    from pumice.model.multi_device_scheduler import LostDevice
    from pumice.validation.checker.stored_output_comparison import StoredOutputRow
    from pumice.validation.search.precision_loss import Float32Candidate
    from pumice.validation.search.precision_tuner import TunedPrecision
    from pumice.validation.validate import Reduction

    name, proto = hostile("n"), hostile_model()
    policy = {"default": "fp16", name: "fp32"}
    seconds = {"fp16": 1.0, "fp32": 2.0, "policy": 1.5}
    tuned = TunedPrecision(policy, (Float32Candidate(name, name, name, name),), 0.1, 0.2, 0.3, 2, 3, seconds, {})
    for shown in (
        LostDevice(0, name, name, 1),
        StoredOutputRow(name, None, note=name),
        Reduction(proto, {name: X}, {}, 2, 2, 3, policy),
        tuned,
    ):
        check(str(shown), type(shown).__name__)


def errors(loaded: pumice.Model, context: pumice.Context, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return calls that fail, by description, each with a name in its message."""
    name = hostile("x")

    def graph() -> None:
        result = pumice.Graph()
        result.add("Conv", result.input(name, "float32", [1]), result.input(name + "2", "float32", [1]), name=name)

    bad_weights = hostile_model()
    bad_weights.graph.initializer[0].raw_data = b"1"
    beyond = hostile_model()
    beyond.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    beyond.graph.initializer[0].external_data.add(key="location", value=hostile("../w"))
    twice = hostile_model()
    twice.graph.node.append(copy.deepcopy(twice.graph.node[0]))
    unknown = hostile_model()
    unknown.graph.node[0].op_type = hostile("Op")
    attribute = hostile_model()
    attribute.graph.node[0].attribute.append(helper.make_attribute(hostile("a"), 1))
    return {
        "shape": lambda: loaded(np.zeros((2, 5), np.float32)),
        "dtype": lambda: loaded(X.astype(np.int32)),
        "name": lambda: loaded(**{name + "!": X}),
        "none": lambda: loaded(),
        "operator": lambda: pumice.load(hostile_model(wrong=True), context),
        "unknown operator": lambda: pumice.load(unknown, context),
        "attribute": lambda: pumice.load(attribute, context),
        "weights": lambda: pumice.load(bad_weights, context),
        "external": lambda: pumice.load(beyond, context),
        "duplicate": lambda: pumice.load(twice, context),
        "policy": lambda: pumice.load(hostile_model(), context, {"default": "fp16", name + "*!": "fp32"}),
        "policy's value": lambda: pumice.load(hostile_model(), context, {"default": "fp16", name: name}),
        "overridable": lambda: pumice.load(hostile_model(), context, overridable=[name + "!"]),
        "graph": graph,
        "device": lambda: pumice.Context(name),
        "kernel": lambda: pumice.Kernel(f"void main() {{ {name} }}", context),
        "tolerance": lambda: validate(loaded, [{name: X}], tolerances={name + "!": 1.0}),
        "reference": lambda: validate(loaded, [{name: X}], reference=name),
        "case": lambda: validate(loaded, [{name + "!": X}]),
        "columns": lambda: pumice.BatchPredictor(folder / "m.onnx", columns={name + "!": "a"})(X),
        "explain": lambda: validate(loaded, [{name: X}]).explain(),
        "option": lambda: pumice.BatchPredictor(folder / "m.onnx", **{name: 1}),
        "closed": lambda: (loaded.close(), loaded(X)),
    }


def test_no_error_holds_a_dangerous_character(loaded: pumice.Model, context: pumice.Context, folder: Path) -> None:
    for name, call in errors(loaded, context, folder).items():
        with pytest.raises(Exception) as caught:
            call()
        error = caught.value
        assert isinstance(error, pumice.Error | TypeError | OSError), (name, error)
        check(str(error), name)
        if isinstance(error, pumice.Error):
            check(str(pickle.loads(pickle.dumps(type(error)(*error.args)))), name)


def test_no_log_line_holds_a_dangerous_character(
    context: pumice.Context, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    proto = hostile_model()
    proto.ir_version = 999
    proto.opset_import.append(helper.make_opsetid(hostile("d"), 1))
    proto.opset_import.append(helper.make_opsetid(hostile("d"), 2))
    with caplog.at_level(logging.DEBUG, "pumice"), pumice.load(proto, context, "fp16") as loaded:
        loaded(X)
        assert "ir_version" in caplog.text
        for record in caplog.records:
            check(record.getMessage())
        check(str(loaded.report()))
    check(capfd.readouterr().err)


def test_progress_shows_no_dangerous_character_and_no_style(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Progress("nodes")
    bar.visible, bar._begin = True, -1e9
    with bar:
        bar.set_phase(hostile("loading") + "[/bold][link=x]", 1, 2)
        assert bar._task is not None
        check(bar._bar.tasks[0].description)


def test_junit_and_files_of_baselines_are_readable(loaded: pumice.Model, folder: Path, context: pumice.Context) -> None:
    report = validate(loaded, [{hostile("x"): X}])
    path = folder / "report.xml"
    report.to_junit(path)
    for item in ElementTree.parse(path).iter():
        for text in (*item.attrib.values(), item.text or "", item.tag):
            check(text)
    cell = type("C", (), {"label": "a", "precision": "fp32"})
    check(str(get_baseline_path(folder, hostile("test"), hostile("m"), cell, context.info).relative_to(folder)))  # type: ignore[arg-type]


# ---- command lines to paste


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_the_line_of_an_explanation_runs_nothing_else(tmp_path: Path, shell: str) -> None:
    """A stub in place of Python prints the command's program, which must parse and contain the names."""
    from types import SimpleNamespace

    from pumice.validation.report.explanation import Explanation

    name = hostile("n")
    policy = {"default": "fp16", name: "fp32"}
    part: Any = SimpleNamespace(inputs={name: X}, proto=SimpleNamespace(graph=SimpleNamespace(node=[])), bytes=1)
    explanation = Explanation(name, "Relu", "y", 0, name, part, {}, True, [name], {name: name}, name, policy)
    check(str(explanation))
    check(explanation.line)
    line = next(splitline for splitline in str(explanation).splitlines() if "python -c" in splitline).strip()
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nprintf %s "$2"\n')
    fake.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", line],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {path.name for path in tmp_path.iterdir()} == {"python"}, "the name ran a command"
    assert done.stdout == explanation.line
    given = [
        item for item in ast.walk(ast.parse(done.stdout)) if isinstance(item, ast.keyword) and item.arg == "precision"
    ]
    assert ast.literal_eval(given[0].value) == policy


@pytest.mark.parametrize("text", ["plain", "two words", SHELL, ALL, "'", "\\", "", "é", "a'\x1b\\n\n"])
def test_a_word_of_a_shell_is_what_it_was(text: str, tmp_path: Path) -> None:
    word = quote_shell_word(text)
    check(word)
    assert "\n" not in word
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], env=environment, cwd=tmp_path, capture_output=True, check=True
    )
    assert done.stdout.decode() == text
    assert not any(tmp_path.iterdir())


def test_a_dimension_in_a_hint_is_quoted(loaded: pumice.Model, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["bench", str(folder / "m.onnx"), "--runs", "1"])
    hint = capfd.readouterr().out
    assert "touch pwned" in hint
    match = re.search(r"--dim (.*) gives another", hint)
    assert match is not None
    words = subprocess.run(["bash", "-c", f"printf '%s|' {match[1]}"], cwd=folder, capture_output=True, check=True)
    assert words.stdout.decode() == f"{hostile('N')}=16|"
    assert not (folder / "pwned").exists()


# ---- the helper


@pytest.mark.parametrize("code", CODES)
def test_every_dangerous_character_is_written_out(code: int) -> None:
    escaped = chr(code).encode("unicode_escape").decode()
    assert escape_unprintable(f"a{chr(code)}b") == shorten_and_escape(f"a{chr(code)}b") == f"a{escaped}b"
    with pytest.raises(pumice.GraphError) as caught:
        pumice.TensorDesc(f"a{chr(code)}b", [1])
    assert f"a{escaped}b" in str(caught.value)


def test_text_in_other_scripts_stays() -> None:
    for text in ("naïve", "模型", "модель", "עברית", "عربي", "😀", "e\u0301"):
        assert escape_unprintable(text) == shorten_and_escape(text) == text
        with pytest.raises(pumice.GraphError, match=re.escape(text)):
            pumice.TensorDesc(text, [1])


def test_lines_stay_where_they_are_asked_for() -> None:
    assert escape_unprintable("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"
    assert shlex.split(quote_shell_word("a b")) == ["a b"]
    assert sys.stdout is not None
