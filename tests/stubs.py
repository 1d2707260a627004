"""The stub of the extension: python/pumice/_pumice.pyi, made by pybind11-stubgen from the extension that is installed.

python tests/stubs.py --write   regenerates the file (./dev stubs)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

STUB = Path(__file__).resolve().parents[1] / "python" / "pumice" / "_pumice.pyi"


def generate() -> str:
    """The text that the file should have."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pybind11_stubgen", "pumice._pumice", "--exit-code", "-o", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pybind11-stubgen: exit status {done.returncode}\n{done.stderr}")
        return (Path(folder) / "pumice" / "_pumice.pyi").read_text()


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    STUB.write_text(generate())
    print(f"written: {STUB.relative_to(Path.cwd())}")
