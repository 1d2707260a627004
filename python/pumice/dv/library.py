"""Where the C interface of the dv driver is installed."""

from __future__ import annotations

from pathlib import Path

import pumice._pumice as _pumice

_FOLDER = Path(_pumice.__file__).parent


def library_path() -> Path:
    """libdmpdv.so, which needs no Python; programs link with -ldmpdv."""
    return _FOLDER / "libdmpdv.so"


def include_path() -> Path:
    """The folder of dmp_dv.h and of the headers of the commands."""
    return _FOLDER / "include"


def pkgconfig_path() -> Path:
    """The folder of dmpdv.pc, for PKG_CONFIG_PATH."""
    return _FOLDER / "lib" / "pkgconfig"


def cmake_path() -> Path:
    """The folder of the CMake package, for dmpdv_DIR; its target is dmpdv::dmpdv."""
    return _FOLDER / "lib" / "cmake" / "dmpdv"
