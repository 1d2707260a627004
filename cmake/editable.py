"""Write an editable wheel: the package's metadata and a .pth file with the folder of the development build.

python cmake/editable.py SITE FOLDER    SITE: the folder that has the built `pumice`; FOLDER: receives the wheel
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from scikit_build_core.build import prepare_metadata_for_build_editable


def main(site: str, folder: str) -> None:
    with tempfile.TemporaryDirectory() as unpacked:
        prepare_metadata_for_build_editable(unpacked)
        Path(unpacked, "pumice.pth").write_text(f"{Path(site).resolve()}\n")
        command = [sys.executable, "-m", "wheel", "pack", unpacked, "--dest-dir", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(*sys.argv[1:])
