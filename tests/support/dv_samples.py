"""Raw dv commands of every kind for tests of the reader.

`python tests/support/dv_samples.py` writes the fuzz target's corpus.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pumice.dv as dv

CORPUS = Path(__file__).resolve().parents[1] / "fuzz" / "corpus" / "dv_commands"


def samples(source: Any = None, target: Any = None) -> dict[str, Any]:
    """Return commands by name; they read memory `source` and write `target`, of 65,536 bytes each."""
    conv = {"weight_buf": source, "conv_enable": dv.CONVOLUTION, "m": 16, "p": (3, 3), "conv_pad": (1, 1, 1, 1)}
    image = {"input_buf": source, "output_buf": target, "w": 12, "h": 10, "c": 8}
    runs: dict[str, list[dv.Run]] = {
        "convolution": [dv.Run(**conv, actfunc=dv.ACT_LEAKY_RELU)],
        "prelu_pooled": [dv.Run(**conv, actfunc=dv.ACT_PRELU, pool_enable=1, pool_size=(2, 2), pool_stride=(2, 2))],
        "quantized": [dv.Run(**conv, weight_fmt=3)],
        "dilated": [dv.Run(**conv | {"conv_dilation": (2, 2), "conv_pad": (2, 2, 2, 2)})],
        "depthwise": [dv.Run(**conv | {"conv_enable": dv.DEPTHWISE, "m": 8, "conv_stride": (2, 1)})],
        "deconvolution": [dv.Run(**conv | {"conv_enable": dv.DECONVOLUTION, "conv_stride": (2, 2)})],
        "deconvolution_depthwise": [dv.Run(**conv | {"conv_enable": dv.DEPTHWISE_DECONVOLUTION, "m": 8})],
        "average": [dv.Run(pool_enable=2, pool_size=(3, 3), pool_avg_param=0.125, m=8)],
        "upsampled": [dv.Run(pool_enable=4, m=8, actfunc=dv.ACT_ELU, rectifi_en=1)],
        "normalized": [dv.Run(lrn=0x503, m=8)],
        "chain": [dv.Run(**conv), dv.Run(actfunc=dv.ACT_TANH, m=16), dv.Run(pool_enable=1, pool_size=(2, 2), m=16)],
    }
    result: dict[str, Any] = {name: dv.Conv(**image, run=run) for name, run in runs.items()}
    result["branches"] = dv.Conv(**image, topo=5, run=runs["chain"])
    result["batch_added"] = dv.Conv(
        **image, input_circular_offset=2, output_mode=1, eltwise_buf=source, run=runs["average"]
    )
    bytes_in = dv.Conv(**image | {"c": 3}, run=[dv.Run(actfunc=dv.ACT_SIGMOID, m=3)])
    result["table"] = dv.ConvV1(u8tofp16_table=source, to_bgr=1, conv_cmd=bytes_in)
    result["fully_connected"] = dv.FullyConnected(
        weight_buf=source,
        input_buf=source,
        output_buf=target,
        input_size=40,
        output_size=24,
        actfunc=3,
        actfunc_param=0.5,
    )
    result["maximizer"] = dv.Maximizer(input_buf=source, output_buf=target, width=9, height=7, nclass=12)
    blit = {
        "tex": source,
        "rd": source,
        "wr": target,
        "tex_width": 8,
        "tex_height": 6,
        "rect_width": 12,
        "rect_height": 10,
    }
    result["ipu"] = dv.Ipu(**blit, use_tex=1, use_rd=1, stride_rd=48, alpha=99, use_const_alpha=1, blf=1)
    result["ipu_palette"] = dv.Ipu(
        **blit, use_tex=1, fmt_tex=dv.LUT, fmt_wr=dv.RGBFP16, ncolor_lut=3, lut=[1, 2, 3], cnv_param=(1, 2, 3)
    )
    return result


def main() -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, command in samples((1, 0), (2, 0)).items():
        (CORPUS / name).write_bytes(bytes(command))


if __name__ == "__main__":
    main()
