"""Generate python/pumice/_pumice.pyi from the installed extension with pybind11-stubgen.

python tests/stubs.py --write   regenerates the file (./dev stubs)
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

STUB = Path(__file__).resolve().parents[1] / "python" / "pumice" / "_pumice.pyi"

# Patterns of pybind11-stubgen's output, and replacements for mypy --strict and for readers.
CORRECTIONS = {
    # Our names that shadow names of the standard library or NumPy.
    r"class TimeoutError\(Error, TimeoutError\)": "class TimeoutError(Error, builtins.TimeoutError)",
    r"(?:typing_extensions|collections\.abc)\.Buffer": "Buffer",
    r"\bself: Buffer\b": "self",
    r"import typing_extensions\n": "",
    r"import collections\.abc\nimport numpy\n": "import builtins\nimport collections.abc\nimport numpy as np\n",
    r"\bnumpy\.ndarray\b(?!\[)": "numpy.typing.NDArray[typing.Any]",
    r"\bnumpy\.(?=typing\.NDArray\[|dtype\b|uint8\b)": "np.",
    # Types missing from signatures.
    r"(def __[gs]etstate__\([^\n]*?)\btuple\b(?!\[)": r"\1tuple[typing.Any, ...]",
    r"(\*args|\*\*kwargs)(?=[,)])": r"\1: typing.Any",
    r"def __eq__\(self, arg0: \w+\)": "def __eq__(self, other: object)",
    r"(__hash__: typing\.ClassVar\[None\]) = None": r"\1  # type: ignore[assignment]",
    # Attributes of error instances: the class holds their values without a cause.
    r"typing\.ClassVar\[tuple\] = tuple\(\)": "collections.abc.Sequence[str]",
    r"typing\.ClassVar\[(str|bool|int)\] = .*": r"\1",
    r"typing\.ClassVar\[tuple\] = \(0, 0, 0\)": "tuple[int, int, int]",
}


def generate() -> str:
    """Return the expected text of the file."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pybind11_stubgen", "pumice._pumice", "--exit-code", "-o", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pybind11-stubgen: exit status {done.returncode}\n{done.stderr}")
        text = (Path(folder) / "pumice" / "_pumice.pyi").read_text()
    for wrong, right in CORRECTIONS.items():
        text = re.sub(wrong, right, text)
    return text


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    STUB.write_text(generate())
    print(f"written: {STUB.relative_to(Path.cwd())}")
