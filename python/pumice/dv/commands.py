"""The commands of the dv interface as objects with the fields of the C structures; bytes() serializes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

import pumice._pumice as _pumice

from ..base.errors import binding_error
from .context_and_memory import Memory

# A Memory, or its handle in raw commands, optionally with a byte offset.
MemoryLocation = Memory | tuple[Memory | int, int] | None
Pair = int | tuple[int, int]  # (x, y), or the raw value
Sides = int | tuple[int, int, int, int]  # left, right, top, bottom, or the raw value
Fp16 = int | float  # a float is converted to float16; an int is the bits of a float16

_CONSTANTS = _pumice.dv_constants()
DEV_CONV, DEV_FC, DEV_IPU, DEV_MAXIMIZER = (_CONSTANTS[f"DEV_{kind}"] for kind in ("CONV", "FC", "IPU", "MAXIMIZER"))
RGBA8888, RGB888 = _CONSTANTS["RGBA8888"], _CONSTANTS["RGB888"]
RGBFP16, LUT = _CONSTANTS["RGBFP16"], _CONSTANTS["LUT"]
CNV_FP16_SUB, CNV_FP16_DIV_255 = _CONSTANTS["CNV_FP16_SUB"], _CONSTANTS["CNV_FP16_DIV_255"]
WEIGHTS_TRANSPOSED = _CONSTANTS["WEIGHTS_TRANSPOSED"]  # flag in input_circular_offset
# Values of the command field conv_enable.
CONVOLUTION, DEPTHWISE = _CONSTANTS["CONVOLUTION"], _CONSTANTS["DEPTHWISE"]
DECONVOLUTION, DEPTHWISE_DECONVOLUTION = _CONSTANTS["DECONVOLUTION"], _CONSTANTS["DEPTHWISE_DECONVOLUTION"]
# Values of the command field pool_enable.
POOL_MAX, POOL_AVERAGE, UPSAMPLE = _CONSTANTS["POOL_MAX"], _CONSTANTS["POOL_AVERAGE"], _CONSTANTS["UPSAMPLE"]
# Values of actfunc in a convolution command.
ACT_TANH, ACT_LEAKY_RELU = _CONSTANTS["ACT_TANH"], _CONSTANTS["ACT_LEAKY_RELU"]
ACT_SIGMOID, ACT_PRELU = _CONSTANTS["ACT_SIGMOID"], _CONSTANTS["ACT_PRELU"]
ACT_ELU, ACT_RELU6 = _CONSTANTS["ACT_ELU"], _CONSTANTS["ACT_RELU6"]
MAX_RUNS = 32

_LOCATION_FORMAT = "QQ"  # struct format of a memory location: handle and byte offset
_STRUCT_LAYOUTS = _pumice.dv_structures()


def to_fp16_bits(value: Fp16) -> int:
    """Return the float16 bits of a float; an int is returned unchanged."""
    return int(np.float16(value).view(np.uint16)) if isinstance(value, float) else int(value)


def _encode_location(location: MemoryLocation) -> tuple[int, int]:
    if location is None:
        return 0, 0
    memory, offset = location if isinstance(location, tuple) else (location, 0)
    return memory.handle if isinstance(memory, Memory) else memory, offset


def _pack_byte_fields(values: Sequence[int]) -> int:
    return sum(value << 8 * i for i, value in enumerate(values))


class _RawStruct:
    """A structure of the C interface with its fields as attributes; bytes() serializes it."""

    _struct_name: ClassVar[str]
    _header: ClassVar[tuple[int, int]] = (0, 0)  # device type, version
    _fp16_fields: ClassVar[frozenset[str]] = frozenset()

    def _encode_field(self, name: str, value: Any) -> tuple[int, ...]:
        if name in self._fp16_fields:
            return (to_fp16_bits(value),)
        if name in ("lut", "cnv_param"):
            return tuple(value)
        if isinstance(value, tuple):
            if any(not 0 <= byte <= 0xFF for byte in value):
                raise binding_error("D4", name, "numbers from 0 to 255", str(value), kind="field")
            return (_pack_byte_fields(value),)
        return (int(value),)

    def _pack_field(self, name: str, format_code: str, count: int, value: Any) -> bytes:
        raw = _encode_location(value) if format_code == _LOCATION_FORMAT else self._encode_field(name, value)
        format_code = format_code if len(format_code) > 1 else format_code * count
        try:
            return struct.pack("<" + format_code, *raw)
        except struct.error as error:
            raise binding_error(
                "D4", name, f"what {count} of '{format_code[0]}' hold", str(value), kind="field"
            ) from error

    def __bytes__(self) -> bytes:
        size, fields = _STRUCT_LAYOUTS[self._struct_name]
        raw = bytearray(size)
        for name, (offset, format_code, count) in fields.items():
            if name == "header":
                encoded = struct.pack("<" + format_code, size, *self._header)
            elif not format_code:
                encoded = b"".join(bytes(structure) for structure in self._get_nested_structs(name))
            else:
                encoded = self._pack_field(name, format_code, count, getattr(self, name))
            raw[offset : offset + len(encoded)] = encoded
        return bytes(raw)

    def _get_nested_structs(self, name: str) -> Sequence[_RawStruct]:
        value: Sequence[_RawStruct] = getattr(self, name)
        return value


class _Command(_RawStruct):
    """A command that can be added to a command list."""

    def required_bytes(self, strict: bool = False) -> dict[str, int]:
        """Return the number of bytes that the command accesses from the offset of each memory field, by field name.

        Raise the errors of `CommandList.add`.
        """
        return dict(_pumice.dv_required_bytes(bytes(self), strict))


@dataclass(kw_only=True)
class Run(_RawStruct):
    """One run of a convolution command. Each field is a raw value, or a tuple or float if its type allows it."""

    _struct_name = "run"
    _fp16_fields = frozenset({"pool_avg_param", "actfunc_param"})

    weight_buf: MemoryLocation = None
    conv_pad: Sides = 0
    pool_pad: Sides = 0
    m: int = 0
    conv_enable: int = 0
    p: Pair = (1, 1)
    pz: int = 1
    conv_stride: Pair = (1, 1)
    conv_dilation: Pair = 0
    weight_fmt: int = 1
    pool_enable: int = 0
    pool_avg_param: Fp16 = 0
    pool_size: Pair = 0
    pool_stride: Pair = (1, 1)
    actfunc: int = 0
    actfunc_param: Fp16 = 0
    rectifi_en: int = 0
    lrn: int = 0


@dataclass(kw_only=True)
class Conv(_Command):
    """A convolution command with up to 32 runs. Without `topo`, the runs form one chain and the last writes to memory.

    `input_circular_offset` is the batch size; 0 and 1 mean one image. The flag WEIGHTS_TRANSPOSED in it makes x the innermost axis of the
    command's tensors instead of y; each kernel must have been packed with x and y swapped. All other fields, and the results, are as
    without the flag.
    """

    _struct_name = "conv"
    _header = (DEV_CONV, 0)

    input_buf: MemoryLocation = None
    output_buf: MemoryLocation = None
    eltwise_buf: MemoryLocation = None
    topo: int | None = None
    w: int = 0
    h: int = 0
    z: int = 1
    c: int = 0
    input_circular_offset: int = 0
    output_mode: int = 0
    run: Sequence[Run] = field(default_factory=list)

    def __bytes__(self) -> bytes:
        if len(self.run) > MAX_RUNS:
            raise binding_error("D4", "run", f"at most {MAX_RUNS} runs", str(len(self.run)), kind="field")
        return super().__bytes__()

    def _encode_field(self, name: str, value: Any) -> tuple[int, ...]:
        if name == "topo" and value is None:
            return (1 << len(self.run) >> 1,)
        return super()._encode_field(name, value)

    def run_outputs(self, strict: bool = False) -> list[tuple[int, int, int]]:
        """Return (width, height, channels) of each run's output. Raise BindingError like `CommandList.add`."""
        return _pumice.dv_run_outputs(bytes(self), strict)


@dataclass(kw_only=True)
class ConvV1(_Command):
    """A convolution command with an optional uint8 input, converted by a table of 3 x 256 float16."""

    _struct_name = "conv_v1"
    _header = (DEV_CONV, 1)

    u8tofp16_table: MemoryLocation = None
    to_bgr: int = 0
    conv_cmd: Conv = field(default_factory=Conv)

    def _get_nested_structs(self, name: str) -> Sequence[_RawStruct]:
        return [self.conv_cmd]

    def run_outputs(self, strict: bool = False) -> list[tuple[int, int, int]]:
        """Return (width, height, channels) of each run's output. Raise BindingError like `CommandList.add`."""
        return _pumice.dv_run_outputs(bytes(self), strict)


@dataclass(kw_only=True)
class FullyConnected(_Command):
    """A fully connected layer; its weights are read like a convolution's (`CommandList.commit`)."""

    _struct_name = "fc"
    _header = (DEV_FC, 0)
    _fp16_fields = frozenset({"actfunc_param"})

    weight_buf: MemoryLocation = None
    input_buf: MemoryLocation = None
    output_buf: MemoryLocation = None
    input_size: int = 0
    output_size: int = 0
    weight_fmt: int = 0
    actfunc: int = 0  # 1 ReLU, 2 tanh, 3 leaky ReLU, 4 sigmoid; these codes differ from a convolution's
    actfunc_param: Fp16 = 0


@dataclass(kw_only=True)
class Ipu(_Command):
    """A blit: scales a texture to the rectangle, blends it over an image of that size, and writes the result.

    Pixel (x, y) samples the texture at ((x + 1/2) * tex_width / rect_width, ...), with x and y swapped if `transpose` is set; bilinear
    weights have 8 bits. Bytes of a texture and of palette colours are red, green, blue, alpha from the lowest on; `ridx` to `aidx` are
    the channel positions in `rd` and `wr`. Alpha is `alpha` with `use_const_alpha`, else the pixel's, or 255 if it has none. The result
    is (tex * alpha + rd * (255 - alpha)) / 255, rounded. float16 results are values minus `cnv_param`, or divided by 255. A palette
    remains in effect for later commands of the context with `ncolor_lut` 0.
    """

    _struct_name = "ipu"
    _header = (DEV_IPU, 0)

    tex: MemoryLocation = None
    rd: MemoryLocation = None
    wr: MemoryLocation = None
    fmt_tex: int = RGBA8888
    fmt_rd: int = RGBA8888
    fmt_wr: int = RGBA8888
    tex_width: int = 0
    tex_height: int = 0
    rect_width: int = 0
    rect_height: int = 0
    stride_rd: int = 0
    stride_wr: int = 0
    lut: Sequence[int] = ()
    ncolor_lut: int = 0
    alpha: int = 0
    transpose: int = 0
    use_const_alpha: int = 0
    use_tex: int = 0
    use_rd: int = 0
    blf: int = 0
    ridx: int = 0
    gidx: int = 1
    bidx: int = 2
    aidx: int = 3
    cnv_type: int = CNV_FP16_SUB
    cnv_param: Sequence[int] = (0, 0, 0)

    def _encode_field(self, name: str, value: Any) -> tuple[int, ...]:
        if name == "lut":
            return (*value, *[0] * (32 - len(value)))
        return super()._encode_field(name, value)


@dataclass(kw_only=True)
class Maximizer(_Command):
    """Channel-wise argmax over `nclass` channels: writes one byte per pixel at x * height + y. Ties go to the first channel; NaN counts as
    the largest.
    """

    _struct_name = "maximizer"
    _header = (DEV_MAXIMIZER, 0)

    input_buf: MemoryLocation = None
    output_buf: MemoryLocation = None
    width: int = 0
    height: int = 0
    nclass: int = 0
