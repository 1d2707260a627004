"""Paths at which the dv driver's C interface is installed."""

from __future__ import annotations

from pathlib import Path

import pumice._pumice as _pumice

_FOLDER = Path(_pumice.__file__).parent


def library_path() -> Path:
    """Return the path of libdmpdv.so, which does not need Python; programs link with -ldmpdv."""
    return _FOLDER / "libdmpdv.so"


def include_path() -> Path:
    """Return the folder of dmp_dv.h and the command headers."""
    return _FOLDER / "include"


def pkgconfig_path() -> Path:
    """Return the folder of dmpdv.pc, for PKG_CONFIG_PATH."""
    return _FOLDER / "lib" / "pkgconfig"


def cmake_path() -> Path:
    """Return the folder of the CMake package, for dmpdv_DIR; its target is dmpdv::dmpdv."""
    return _FOLDER / "lib" / "cmake" / "dmpdv"
