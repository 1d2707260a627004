"""Results, kernels and messages do not depend on a locale with decimal commas."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from process import output_of
from tool_environment import tool_environment

CODE = """
import locale, sys
import numpy as np, pumice
if sys.argv[1]:
    locale.setlocale(locale.LC_ALL, sys.argv[1])
    assert locale.localeconv()["decimal_point"] == ",", locale.localeconv()
x = np.linspace(-2, 2, 24, dtype="float32").reshape(4, 6)

def graph_of(build):
    graph = pumice.Graph("g")
    graph.output("y", build(graph, graph.input("x", "float32", list(x.shape))))
    return graph

def run(build):
    program = graph_of(build).compile(pumice.default_context())
    print([row["note"] for row in program.report()], program({"x": x})["y"].tolist())

number = lambda value: np.array(value, "float32")
def gelu(graph, x):
    bell = graph.add("Add", graph.add("Erf", graph.add("Div", x, number(2 ** 0.5))), number(1))
    return graph.add("Mul", graph.add("Mul", x, bell), number(0.5))
run(gelu)
run(lambda graph, x: graph.add("Elu", x, alpha=0.375))
run(lambda graph, x: graph.add("LayerNormalization", x, np.full(1, 0.75, "float32"), epsilon=0.125))
if pumice.default_context().feature("shaderFloat64"):
    run(lambda graph, x: graph.add("Cast", graph.add("Selu", graph.add("Cast", x, to=11), alpha=1.25), to=1))
def attention(graph, x):
    scores = graph.add("Mul", graph.add("MatMul", x, graph.add("Transpose", x, perm=[1, 0])), number(0.375))
    return graph.add("MatMul", graph.add("Softmax", scores), x)
run(attention)
printer = pumice.Kernel('layout(binding = 0) buffer Y { float y[]; }; void main() { printf("%.3f", 1.5); }')
printer(y=np.zeros(1, "float32"), threads=1)
print([message.text for message in printer.messages])
try:
    pumice.Graph().input("x", "bool", [2], scale=0.5)
except pumice.GraphError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a compiled de_DE.UTF-8 locale."""
    folder = tmp_path_factory.mktemp("locales")
    compiler = shutil.which("localedef")
    if compiler is None or not Path("/usr/share/i18n/locales/de_DE").exists():
        pytest.skip("no localedef, or nothing to make a locale of (package locales)")
    subprocess.run(
        [compiler, "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")],
        check=True,
        capture_output=True,
        env=tool_environment(),
    )
    return folder


def test_numbers_are_written_alike_in_all_locales(german: Path) -> None:
    plain, foreign = (
        output_of("-c", CODE, name, LOCPATH=str(german), PUMICE_NO_CACHE="1") for name in ("", "de_DE.UTF-8")
    )
    assert "scale 0.5" in plain
    assert "1.500" in plain
    assert foreign == plain
