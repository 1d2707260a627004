"""An explanation of a wrong row: a small model that fails, its kernels, and variations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...base.element_types import Array
from ...base.printable_text import escape_unprintable, quote_shell_word, shorten_and_escape
from ...importer.file.model_file import Folder
from ...model.precision_policy import Precision, parse_policy
from .subgraph import (
    DATA_SET_FOLDER,
    Subgraph,
    make_test_files,
    write_folder,
)

if TYPE_CHECKING:
    pass


class Explanation(NamedTuple):
    """A fault reduced to as few nodes as possible, usually one, with the inputs that the device computed.

    node, op, output, case: of the wrong row, or of the tensor that differs between runs. said: the verdict in words.
    repeat: number of runs. part, expected: the subgraph with its inputs, and the reference's results. fails: whether the
    subgraph fails on its own. kernels: a line per dispatch. trials: variation -> verdict. setup: device, driver and
    precision in words.
    """

    node: str
    op: str
    output: str
    case: int
    said: str
    part: Subgraph
    expected: dict[str, Array]
    fails: bool
    kernels: list[str]
    trials: dict[str, str]
    setup: str
    precision: Precision
    repeat: int = 0

    @property
    def line(self) -> str:
        """One line of Python that reproduces the fault, to run in the folder written by `save`."""
        load = f'{{t.name: n.to_array(t) for t in map(onnx.load_tensor, glob.glob("{DATA_SET_FOLDER}/input_*.pb"))}}'
        repeat = f", repeat={self.repeat}" if self.repeat else ""
        precision = self.precision if isinstance(self.precision, str) else dict(parse_policy(self.precision).entries)
        return (
            "import glob, onnx, pumice; from onnx import numpy_helper as n; "
            f'print(pumice.validate("model.onnx", [{load}], precision={precision!a}{repeat}))'
        )

    def __str__(self) -> str:
        verdict = (
            f"The part {'differs from run to run' if self.repeat else 'is wrong'} by itself."
            if self.fails
            else f"The part {'is the same at every run' if self.repeat else 'is right'} by itself: the fault needs what stands around it."
        )
        folder = os.environ.get("PUMICE_SHADERS")
        shapes = [f"  {shorten_and_escape(name)}: {x.dtype}{list(x.shape)}" for name, x in self.part.inputs.items()]
        nodes = [
            f"  {shorten_and_escape(node.name)} ({shorten_and_escape(node.op_type)})"
            for node in self.part.proto.graph.node
        ]
        return "\n".join(
            [
                escape_unprintable(self.said),
                escape_unprintable(self.setup),
                *([f"PUMICE_SHADERS={quote_shell_word(folder)}"] if folder else []),
                "",
                f"The part, {self.part.bytes:,} bytes with its inputs:",
                *nodes,
                "on",
                *shapes,
                verdict,
                "",
                "What runs it:",
                *(f"  {escape_unprintable(line)}" for line in self.kernels),
                "",
                "What a validation says of it:",
                *(
                    f"  {escape_unprintable(variant)}: {escape_unprintable(outcome)}"
                    for variant, outcome in self.trials.items()
                ),
                "",
                "To see it again, in this folder:",
                f"  python -c {quote_shell_word(self.line)}",
                "",
            ]
        )

    def save(self, folder: Folder) -> None:
        """Write model.onnx, test_data_set_0, explanation.txt and reproduce.py into a new or empty folder, atomically.

        Raise InputError if the folder is not empty, or OSError.
        """
        texts = {"explanation.txt": str(self), "reproduce.py": f"{self.line}\n"}
        files = {**make_test_files(self.part, self.expected), **{name: text.encode() for name, text in texts.items()}}
        write_folder(Path(folder), files)
