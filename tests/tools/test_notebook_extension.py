"""%load_ext pumice: the cell magic, and the notebook display of pumice objects."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import onnx_models
import pumice
from process import output_of
from pumice.base import progress
from pumice.validation.report.deviation import Deviation
from pumice.validation.report.report import ValidationReport
from pumice.validation.report.report_rows import ValidationRow

pytest.importorskip("IPython")

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

DOUBLE = """layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) writeonly buffer Y { sfp y[]; };
layout(constant_id = 0) const int TIMES = 2;
layout(push_constant) uniform P { float offset; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  buffer_st1(y, i, buffer_ld1(x, i) * afp(TIMES) + afp(offset));
}
"""


@pytest.fixture
def shell(context: pumice.Context) -> Iterator[InteractiveShell]:
    new_shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    new_shell.run_line_magic("load_ext", "pumice")
    new_shell.user_ns["context"] = context
    yield new_shell
    InteractiveShell.clear_instance()


Show = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def failed(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Run a cell that must raise ShaderCompileError; return what it displayed, by MIME type."""

    def run(cell: str) -> list[dict[str, Any]]:
        displayed: list[dict[str, Any]] = []
        monkeypatch.setattr(shell.display_pub, "publish", lambda data, **_: displayed.append(data))
        result = shell.run_cell(cell)
        assert isinstance(result.error_in_exec, pumice.ShaderCompileError)
        assert not result.success  # stops "Run all" and makes nbconvert exit with 1
        return displayed

    return run


@pytest.fixture
def shown(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Run a cell; return what it displayed, by MIME type."""

    def run(cell: str) -> list[dict[str, Any]]:
        displayed: list[dict[str, Any]] = []
        monkeypatch.setattr(shell.display_pub, "publish", lambda data, **_: displayed.append(data))
        shell.run_cell(cell).raise_error()
        return displayed

    return run


class Strict(HTMLParser):
    """An HTML parser that fails for tags not closed in order, and collects the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.undecided_values: list[str] = []
        self.read: list[str] = []
        self.tags: set[str] = set()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.feed(text)
        self.close()
        assert self.undecided_values == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.undecided_values.append(tag)
        self.tags.add(tag)
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.undecided_values.pop() == tag

    def handle_data(self, data: str) -> None:
        self.read.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.read)


def text_of(thing: Any) -> str:
    return Strict(thing._repr_html_()).text


def test_a_cell_becomes_a_kernel(shell: InteractiveShell, shown: Show) -> None:
    assert shown(f"%%glsl double --context context\n{DOUBLE}") == []
    kernel = shell.user_ns["double"]
    assert (type(kernel), kernel.name) == (pumice.Kernel, "double")
    y = np.zeros(4, "float32")
    kernel(x=np.arange(4, dtype="float32"), y=y, offset=1, threads=4)
    assert y.tolist() == [1, 3, 5, 7]


def test_options_are_the_kernels(shell: InteractiveShell, shown: Show) -> None:
    text = DOUBLE.replace("afp(TIMES)", "afp(TIMES) * afp(FACTOR)")
    (displayed,) = shown(f"%%glsl scaled -D FACTOR=10 --spec TIMES=3 --context context --show\n{text}")
    assert "scaled" in Strict(displayed["text/html"]).text
    y = np.zeros(2, "float32")
    shell.user_ns["scaled"](x=np.ones(2, "float32"), y=y, offset=0, threads=2)
    assert y.tolist() == [30, 30]


def test_an_error_shows_its_line_and_leaves_the_name_alone(
    shell: InteractiveShell, shown: Show, failed: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(f"%%glsl double --context context\n{DOUBLE}")
    before = shell.user_ns["double"]
    broken = DOUBLE.replace("uint i =", "uint j =").replace("P {", "P { /* <b>&amp;</b> */")
    (displayed,) = failed(f"%%glsl double --context context\n{broken}")
    assert shell.user_ns["double"] is before
    assert "undeclared" not in "".join(capsys.readouterr())  # displayed once, not also printed as a traceback
    page = Strict(displayed["text/html"])
    assert "double:8:17: 'i' : undeclared identifier" in page.text  # cell line, with the magic as line 1
    assert "buffer_st1(y, i, buffer_ld1(x, i)" in page.text
    plain = displayed["text/plain"].splitlines()
    assert plain[1] == "double:8:17: 'i' : undeclared identifier"
    assert plain[3].index("^") == plain[2].index("i,")
    assert "Traceback" not in displayed["text/plain"]
    assert len(plain) < 12
    failed(f"%%glsl new --context context\n{broken}")
    assert "new" not in shell.user_ns


@pytest.mark.parametrize("before", ["", "\t", "/* \u00e9\u00e8 */ ", "float a = 1.0; /* <b> & */ "])
def test_the_caret_stands_below_what_it_means_in_letters_of_one_width(failed: Show, before: str) -> None:
    text = f"%%glsl k --context context\nvoid main() {{\n  {before}uint x = missing;\n}}"
    (displayed,) = failed(text)
    page = Strict(displayed["text/html"])
    for tag, attributes in page.elements:
        if tag in ("pre", "span"):
            assert "font-family:monospace" in attributes["style"]
            assert "white-space:pre" in attributes["style"]
            assert "bold" not in attributes["style"]  # bold changes the character width in some fonts
    marked = next(i for i, item in enumerate(page.read) if "missing;" in item)
    line, caret = page.read[marked], page.read[marked + 1].split("\n")[1]
    assert line == text.splitlines()[2]
    assert caret.rstrip("^").isspace()
    assert line.expandtabs()[len(caret.expandtabs()) - 1 :].startswith("missing")
    assert page.read[marked - 1].startswith("k:3:")
    assert displayed["text/plain"].splitlines()[3] == caret


def test_what_is_printed_names_the_lines_of_the_cell(shell: InteractiveShell, shown: Show) -> None:
    cell = (
        '%%glsl k --context context\nlayout(binding = 0) buffer Y { float y[]; };\nvoid main() {\n  printf("here");\n}'
    )
    shown(cell)
    kernel = shell.user_ns["k"]
    kernel(y=np.zeros(1, "float32"), threads=1)
    (message,) = kernel.messages
    assert cell.splitlines()[message.line - 1] == '  printf("here");'


def test_what_an_error_quotes_is_escaped(failed: Show) -> None:
    (displayed,) = failed("%%glsl k --context context\nvoid main() { a<script>alert(1)</script>; }")
    page = Strict(displayed["text/html"])
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("9x", "expected the name of a variable, given '9x'"),
        ("class", "expected the name of a variable, given 'class'"),
        ("k --context nowhere", "no variable 'nowhere'"),
        ("k --spec N=much", "--spec N=much: expected NAME=NUMBER"),
        ("k --spec NONE=1 --context context", "NONE"),
        ("k --unknown", "unrecognized arguments"),
        ("", "required"),
        ('k -D "A=1', "No closing quotation"),
    ],
)
def test_a_wrong_line_is_a_usage_error(shell: InteractiveShell, line: str, said: str) -> None:
    result = shell.run_cell(f"%%glsl {line}\nvoid main() {{}}")
    assert isinstance(result.error_in_exec, UsageError)
    assert said in str(result.error_in_exec)


def test_values_with_spaces_stand_in_quotes(shell: InteractiveShell, shown: Show) -> None:
    text = "layout(binding = 0) buffer Y { float y[]; };\nvoid main() { y[0] = float(A) + float(B); }"
    shown(f"%%glsl sum -D \"A=1 + 2\" -D 'B=(4 * 5)' --context context\n{text}")
    y = np.zeros(1, "float32")
    shell.user_ns["sum"](y=y, threads=1)
    assert y[0] == 23


def test_a_cell_times_profiles_and_disassembles_its_kernel(shell: InteractiveShell, shown: Show) -> None:
    shell.user_ns["x"] = np.ones(100, "float32")
    shell.user_ns["y"] = np.zeros(100, "float32")
    call = "x=x, y=y, offset=0, threads=x.size"
    times, profile, assembly = shown(
        f'%%glsl double --context context --time "{call}" --profile "{call}" --disassemble\n{DOUBLE}'
    )
    assert "KernelTimes: 20 runs" in times["text/plain"] and "median" in Strict(times["text/html"]).text
    assert "double" in Strict(profile["text/html"]).text
    assert (shell.user_ns["y"] == 2).all(), "a call that is profiled is one"
    assert "OpEntryPoint" in assembly["text/plain"] or "//" in assembly["text/plain"]
    assert "What runs of kernel double" in Strict(assembly["text/html"]).text


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ('--time "x=1)("', "--time x=1)("),
        ('--time "1, 2"', "expected arguments by name"),
        ('--profile "**x"', "expected arguments by name"),
        ('--time "x="', "--time x=: "),  # followed by the interpreter's message, which depends on its version
    ],
)
def test_arguments_of_a_timed_cell_are_those_of_a_call(shell: InteractiveShell, option: str, said: str) -> None:
    result = shell.run_cell(f"%%glsl double --context context {option}\n{DOUBLE}")
    assert isinstance(result.error_in_exec, UsageError) and said in str(result.error_in_exec)


SHARED = """layout(binding = 0) buffer Y { uint y[]; };
shared uint t[gl_WorkGroupSize.x];
void main() {
  t[gl_LocalInvocationID.x] = gl_GlobalInvocationID.x;
  barrier();
  y[gl_GlobalInvocationID.x] = t[gl_WorkGroupSize.x - 1 - gl_LocalInvocationID.x];
}
"""


@pytest.mark.parametrize("option", ["--local-size 4", "--local-size 4,1,1", "--spec local_size_x=4"])
def test_the_magic_takes_a_local_size(shell: InteractiveShell, shown: Show, option: str) -> None:
    assert shown(f"%%glsl turned {option} --context context\n{SHARED}") == []
    y = np.zeros(8, np.uint32)
    shell.user_ns["turned"](y=y, threads=8)
    assert (y == [3, 2, 1, 0, 7, 6, 5, 4]).all()


@pytest.mark.parametrize("wrong", ["x", "4,", "0", "1,2,3,4"])
def test_the_magic_rejects_what_is_no_local_size(shell: InteractiveShell, wrong: str) -> None:
    result = shell.run_cell(f"%%glsl turned --local-size {wrong} --context context\n{SHARED}")
    assert isinstance(result.error_in_exec, UsageError) and "local" in str(result.error_in_exec)


GLSL_OPTIONS = ["name", "--macro", "--spec", "--context", "--debug", "--show", "--time", "--profile", "--disassemble"]


@pytest.mark.parametrize("cell", ["%%glsl --help", "%%glsl --help\n", "%%glsl -h\nvoid main() {}", "%glsl --help"])
def test_help_shows_the_usage(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str) -> None:
    shell.run_cell(cell).raise_error()
    shown = capsys.readouterr().out
    assert "%%glsl [" in shown and "%%%" not in shown
    for option in GLSL_OPTIONS:
        assert option in shown


def test_a_magic_without_a_cell_says_what_it_wants(shell: InteractiveShell) -> None:
    result = shell.run_cell("%%glsl k")
    assert isinstance(result.error_in_exec, UsageError)
    assert "expected the source of a shader" in str(result.error_in_exec)


def test_the_help_names_every_option(shell: InteractiveShell) -> None:
    help_text = shell.find_cell_magic("glsl").__doc__
    assert help_text is not None
    for option in GLSL_OPTIONS:
        assert option in help_text


def test_a_kernel_shows_its_interface(context: pumice.Context) -> None:
    kernel = pumice.Kernel(DOUBLE, context, name="a<b")
    for x in (np.ones(2, "float32"), np.ones(2, "float16")):
        kernel(x=x, y=np.zeros_like(x), offset=0, threads=2)
    text = text_of(kernel)
    for part in (
        "a<b",
        "x",
        "read",
        "y",
        "write",
        "offset",
        "push constant",
        "TIMES",
        "specialization constant",
        "engine",
    ):
        assert part in text
    assert set(kernel.variants) >= {"fp32"}
    assert len(kernel.variants) == 2
    assert "pumice_threads" not in text.split("source")[0]
    assert repr(kernel).splitlines()[1:] == [
        "  x: read float32[]",
        "  y: write float32[]",
        "  offset: push constant float32",
        "  TIMES: specialization constant int32",
    ]
    assert kernel.shader.interface["guarded"]
    assert "SPIR-V" in text_of(kernel.shader)


def test_tensors_show_small_values_only(context: pumice.Context) -> None:
    small = pumice.tensor(np.array([[1.25, 2.5]], "float32"), context)
    assert "1.25" in text_of(small)
    assert "(1, 2)" in text_of(small)
    large = pumice.tensor(np.full(1000, 7.75, "float32"), context)
    assert "7.75" not in text_of(large)
    assert "4,000" in text_of(large)
    square = pumice.tensor(np.ones((2, 3), "float32"), context)
    assert "strides" in text_of(square.transpose().desc)
    assert "strides" not in text_of(small.desc)


def test_what_is_closed_can_be_shown() -> None:
    context = pumice.Context()
    tensor = pumice.tensor(np.zeros(3, "float32"), context)
    assert context.info.name in text_of(context)
    assert context.info.uuid in text_of(context.info)
    context.close()
    assert "Tensor" in text_of(tensor)
    assert "Context" in text_of(context)


def test_models_and_reports(context: pumice.Context) -> None:
    model = pumice.load(onnx_models.gemm(), context)
    assert all(value.name in text_of(model) for value in (*model.inputs, *model.outputs))
    report = model.report()
    assert all(row["node"] in text_of(report) for row in report)


def test_a_validation_shows_every_tensor(context: pumice.Context) -> None:
    with pumice.load(onnx_models.gemm(), context) as model:
        shape = [size if isinstance(size, int) else 2 for size in model.inputs[0].shape or ()]
        report = pumice.validate(model, [(np.ones(shape, "float32"),)])
    assert report.summary in text_of(report)
    assert all(row.output in text_of(report) for row in report.rows if row.output)


def test_every_cell_of_a_table_is_flush_left(context: pumice.Context) -> None:
    """Notebook pages align cells right by default."""
    model = pumice.load(onnx_models.gemm(), context)
    tensor = pumice.tensor(np.ones((2, 3), "float32"), context)
    kernel = pumice.Kernel(DOUBLE, context)
    shown = (
        context,
        context.info,
        pumice.devices(),
        model,
        model.report(),
        tensor,
        tensor.T.desc,
        kernel,
        kernel.shader,
    )
    for thing in (*shown, pumice.validate(model, [(np.ones((2, 4), "float32"),)])):
        page = Strict(thing._repr_html_())
        cells = [attributes for tag, attributes in page.elements if tag in ("td", "th")]
        assert all("text-align:left" in attributes.get("style", "") for attributes in cells), thing
        assert cells


def test_what_diverges_stands_out_in_colour(context: pumice.Context) -> None:
    wrong = Deviation(1.0, 0.5, (0,), 1.0, 2.0)
    right = wrong._replace(error=0.25)
    rows = [
        ValidationRow(f"node{i}", "Relu", "y", "float32", (1,), 0, wrong if i in (3, 250) else right, None)
        for i in range(300)
    ]
    page = Strict(ValidationReport("m", "d", "fp32", 1, rows, [])._repr_html_())
    coloured = [attributes for tag, attributes in page.elements if tag == "td" and "background" in attributes["style"]]
    assert len(coloured) == 2 * 7
    assert page.read.count("DIVERGES") == 2  # the second is in a row that a long table does not show
    assert "node250: y" in page.read
    assert "... and 99 more" in page.read


def test_devices_are_a_list_and_a_table(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = pumice.devices()
    assert isinstance(devices, list)
    assert [info.index for info in devices] == list(range(len(devices)))
    text = text_of(devices)
    for info in devices:
        assert info.name in text
        assert info.uuid in text
    monkeypatch.setattr("pumice._pumice.device_list", lambda: ([], [], ""))
    assert pumice.devices() == []
    assert "No Vulkan device" in text_of(pumice.devices())


def test_bars_have_what_they_need_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    (extra,) = re.findall(r"^notebook = (\[.*\])$", project, re.MULTILINE)
    assert "ipywidgets" in extra
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    progress._log_missing_ipywidgets.cache_clear()
    with caplog.at_level("INFO", "pumice"):
        for _ in range(2):
            assert not progress.Progress("nodes").visible
    assert [record.getMessage() for record in caplog.records] == [
        "progress bars in a notebook need ipywidgets: pip install 'pumice[notebook]'"
    ]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert progress.Progress("nodes").visible


def test_import_needs_no_ipython() -> None:
    code = "import sys, pumice; print([m for m in ('IPython', 'pumice.base.html', 'pumice.tools.notebook') if m in sys.modules])"
    assert output_of("-c", code) == "[]\n"
