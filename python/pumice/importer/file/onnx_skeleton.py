"""An ONNX file without its large tensors, small enough to be parsed and hashed at once: they stay where they are in the file."""

from __future__ import annotations

import pumice._pumice as _pumice

from ...base.element_types import Bytes

OWN_FILE = "\0"  # location of external data that means the file itself; no other file has such a name


def skeleton(data: Bytes) -> Bytes:
    """The ModelProto with the elements of large tensors as external data in OWN_FILE.

    Bytes that are no ModelProto are returned as they are.
    """
    small = _pumice.onnx_skeleton(data, OWN_FILE)
    return data if small is None else small
