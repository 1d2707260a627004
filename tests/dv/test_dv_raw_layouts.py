"""Binary layout of the dv commands: offset and size of every field, and what they require."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
import pumice.dv as dv
from dv_commands import PAGE, committed, doubling
from dv_model import to_whc8

RUN = {
    "weight_buf": 0,
    "conv_pad": 16,
    "pool_pad": 20,
    **{
        name: 24 + 2 * i
        for i, name in enumerate(
            [
                "m",
                "conv_enable",
                "p",
                "pz",
                "conv_stride",
                "conv_dilation",
                "weight_fmt",
                "pool_enable",
                "pool_avg_param",
                "pool_size",
                "pool_stride",
                "actfunc",
                "actfunc_param",
                "rectifi_en",
                "lrn",
            ]
        )
    },
}
CONV = {"topo": 56, "w": 60, "h": 62, "z": 64, "c": 66, "input_circular_offset": 68, "output_mode": 70}
FC = {"input_size": 56, "output_size": 58, "weight_fmt": 60, "actfunc": 62, "actfunc_param": 64}
IPU = {
    "fmt_tex": 56,
    "fmt_rd": 57,
    "fmt_wr": 58,
    "tex_width": 60,
    "tex_height": 62,
    "rect_width": 64,
    "rect_height": 66,
    "stride_rd": 68,
    "stride_wr": 72,
    "ncolor_lut": 204,
    "alpha": 205,
    "transpose": 206,
    "use_const_alpha": 207,
    "use_tex": 208,
    "use_rd": 209,
    "blf": 210,
    "ridx": 211,
    "gidx": 212,
    "bidx": 213,
    "aidx": 214,
    "cnv_type": 215,
}
MAXIMIZER = {"width": 40, "height": 42, "nclass": 44}


@pytest.mark.parametrize(
    ("kind", "size", "header", "fields", "first"),
    [
        (dv.Conv, 1864, (1, 0), CONV, 0),
        (dv.FullyConnected, 72, (2, 0), FC, 0),
        (dv.Ipu, 224, (3, 0), IPU, 0),
        (dv.Maximizer, 48, (4, 0), MAXIMIZER, 0),
        (dv.Run, 56, None, {name: at for name, at in RUN.items() if name != "weight_buf"}, 0),
    ],
)
def test_every_number_has_its_offset(
    kind: Any, size: int, header: tuple[int, int] | None, fields: dict[str, int], first: int
) -> None:
    for name, offset in fields.items():
        low, high = bytes(kind(**{name: 0})), bytes(kind(**{name: 0x55}))
        assert len(high) == size
        if header:
            assert high[:6] == size.to_bytes(4, "little") + bytes(header)
        changed = [i for i in range(size) if low[i] != high[i]]
        assert changed == [offset + first] and high[offset + first] == 0x55, name


def test_positions_pairs_sides_and_halves(dv_context: dv.Context) -> None:
    memory = dv_context.memory(PAGE)
    place = memory.handle.to_bytes(8, "little") + (0x1234).to_bytes(8, "little")
    for command, offsets in (
        (dv.Conv, {"input_buf": 8, "output_buf": 24, "eltwise_buf": 40}),
        (dv.FullyConnected, {"weight_buf": 8, "input_buf": 24, "output_buf": 40}),
        (dv.Ipu, {"tex": 8, "rd": 24, "wr": 40}),
        (dv.Maximizer, {"input_buf": 8, "output_buf": 24}),
        (dv.ConvV1, {"u8tofp16_table": 8}),
        (dv.Run, {"weight_buf": 0}),
    ):
        for name, offset in offsets.items():
            assert bytes(command(**{name: memory + 0x1234}))[offset : offset + 16] == place
    run = bytes(
        dv.Run(p=(3, 5), conv_pad=(1, 2, 3, 4), pool_pad=(5, 6, 7, 8), actfunc_param=0.25, pool_avg_param=0x3C00)
    )
    assert (run[28:30], run[16:24]) == (b"\3\5", bytes(range(1, 9)))
    assert (run[48:50], run[40:42]) == (b"\x00\x34", b"\x00\x3c")
    inner = dv.Conv(run=[dv.Run(m=3), dv.Run(m=4)])
    raw = bytes(dv.ConvV1(to_bgr=1, conv_cmd=inner))
    assert (len(raw), raw[5], raw[24:26], raw[32:]) == (1896, 1, b"\1\0", bytes(inner))
    assert (bytes(inner)[72 + 24], bytes(inner)[72 + 56 + 24], bytes(inner)[56]) == (3, 4, 2)
    ipu = bytes(dv.Ipu(lut=[0x01020304, 5], cnv_param=(7, 8, 9)))
    assert (ipu[76:84], ipu[216:219]) == (b"\4\3\2\1\5\0\0\0", b"\7\x08\x09")


def test_raw_bytes_are_taken_as_they_are(dv_context: dv.Context) -> None:
    memory = dv_context.memory(PAGE)
    memory.write(to_whc8(np.ones((16, 1, 64), np.float16)))
    committed(dv_context, bytes(doubling(memory))).run(timeout=60)
    assert (memory.read(np.float16, 1024, 2048) == 2).all()


def test_sizes_of_a_command(dv_context: dv.Context) -> None:
    run = dv.Run(conv_enable=dv.CONVOLUTION, m=20, p=(3, 3), conv_pad=(1, 1, 1, 1), conv_stride=(2, 2))
    pool = dv.Run(pool_enable=dv.POOL_MAX, pool_size=(2, 2), pool_stride=(2, 2))
    command = dv.Conv(w=15, h=9, c=8, topo=3, input_circular_offset=2, run=[run, pool])
    assert command.run_outputs() == [(8, 5, 20), (7, 4, 8)]
    assert command.required_bytes() == {
        "input_buf": 15 * 9 * 8 * 4,
        "run[0].weight_buf": 3 * 16 + 20 * 144,
        "output_buf": (8 * 5 * 20 + 7 * 4 * 8) * 4,
    }
    with pytest.raises(pumice.BindingError, match="convolution command"):
        dv.Conv.run_outputs(dv.Maximizer(width=1, height=1, nclass=2))
