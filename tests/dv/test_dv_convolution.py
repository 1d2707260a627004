"""Convolution commands of the dv interface against a NumPy model of its formulas, with guard bytes around all outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
import pumice.dv as dv
from dv_commands import committed
from dv_model import Command, Run, to_whc8

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(7)


@pytest.fixture(scope="module")
def dv_context(pumice_context: pumice.Context) -> Iterator[dv.Context]:
    with dv.Context(pumice_context) as made:
        yield made


def whole(*shape: int, most: int = 3) -> Array:
    """Return small integers, whose sums are exact."""
    return RANDOM.integers(-most, most + 1, shape).astype(np.float16)


def real(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float16)


def conv(m: int, c: int, kx: int = 3, ky: int = 3, **more: Any) -> Run:
    kind = more.pop("kind", 1)
    return Run(kind=kind, weights=whole(m, 1 if kind & 2 else c, ky, kx, most=2), bias=whole(m), **more)


SIDES = (1, 1, 1, 1)

# Convolutions by name: channels, height and width of the input, and the run.
RUNS = {
    "3x3": (16, 7, 10, conv(24, 16, pads=SIDES)),
    "1x1 of many channels": (72, 5, 6, conv(16, 72, 1, 1)),
    "no whole groups": (20, 5, 6, conv(12, 20, pads=SIDES)),
    "three channels": (3, 9, 9, conv(16, 3, 7, 7, stride=(2, 2), pads=(3, 3, 3, 3))),
    "kernel 2x4": (8, 8, 8, conv(8, 8, 2, 4)),
    "kernel 6x5": (8, 8, 8, conv(3, 8, 6, 5, pads=(2, 3, 1, 2))),
    "unequal strides and pads": (8, 9, 11, conv(8, 8, stride=(3, 2), pads=(0, 2, 3, 1))),
    "wide pads": (8, 3, 3, conv(8, 8, pads=(100, 130, 5, 9))),
    "dilation": (8, 12, 12, conv(8, 8, dilation=(2, 3), pads=(2, 2, 3, 3))),
    "dilation of an even kernel": (8, 12, 12, conv(16, 8, 2, 2, dilation=(3, 1))),
    "depthwise": (24, 7, 9, conv(24, 24, kind=3, pads=SIDES, stride=(2, 1))),
    "depthwise of no whole groups": (13, 7, 9, conv(13, 13, kind=3, pads=SIDES)),
    "dilated depthwise": (8, 9, 9, conv(8, 8, kind=3, dilation=(2, 2), pads=(2, 2, 2, 2))),
    "deconvolution": (8, 5, 6, conv(16, 8, kind=5, stride=(2, 2), pads=SIDES)),
    "deconvolution with wide pads": (8, 5, 6, conv(8, 8, 2, 2, kind=5, stride=(2, 3), pads=(3, 0, 1, 4))),
    "deconvolution by more than its kernel": (8, 4, 4, conv(8, 8, 2, 2, kind=5, stride=(3, 3), pads=SIDES)),
    "dilated deconvolution": (8, 6, 6, conv(8, 8, kind=5, dilation=(2, 1), stride=(2, 1), pads=(4, 4, 2, 2))),
    "depthwise deconvolution": (16, 5, 5, conv(16, 16, 4, 4, kind=7, stride=(2, 2), pads=(2, 2, 2, 2))),
    "maximum pooling": (16, 9, 8, Run(pool=1, window=(3, 2), step=(2, 1), pool_pads=(1, 0, 1, 1))),
    "maximum pooling of no whole groups": (11, 9, 8, Run(pool=1, window=(2, 2), step=(2, 2))),
    "average pooling": (16, 9, 8, Run(pool=2, window=(3, 3), step=(2, 2), pool_pads=SIDES, factor=1 / 9)),
    "average pooling by a factor alone": (11, 4, 4, Run(pool=2, factor=0.3)),
    "global average": (32, 13, 13, Run(pool=2, window=(13, 13), factor=1 / 169)),
    "upsampling": (16, 3, 5, Run(pool=4)),
    "upsampling of no whole groups": (9, 3, 5, Run(pool=4, act=2)),
    "convolution and maximum pooling": (8, 9, 9, conv(16, 8, pads=SIDES, pool=1, window=(3, 3), step=(2, 2), act=2)),
    "convolution, pooling and absolute value": (8, 9, 9, conv(8, 8, pool=1, window=(2, 2), step=(2, 2), absolute=True)),
    "convolution and falling activation": (8, 9, 9, conv(8, 8, pool=1, window=(2, 2), act=2, slope=-0.5)),
    "convolution and average": (8, 9, 9, conv(8, 8, pool=2, window=(2, 2), step=(2, 2), factor=0.25)),
    "convolution and upsampling": (8, 4, 4, conv(16, 8, pads=SIDES, pool=4, act=6)),
    "normalization": (32, 5, 6, Run(lrn=True)),
    "normalization of no whole groups": (18, 5, 6, Run(lrn=True, act=2)),
    "activation alone": (16, 4, 6, Run(act=1)),
}


@pytest.mark.parametrize("name", RUNS)
def test_each_kind_of_run(dv_context: dv.Context, name: str) -> None:
    c, h, w, run = RUNS[name]
    Command(dv_context, [run], whole(1, c, h, w, most=20 if run.lrn else 4)).check()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("act", range(7))
@pytest.mark.parametrize("pool", [0, 1, 4])
def test_each_activation_of_a_convolution(dv_context: dv.Context, act: int, pool: int, absolute: bool) -> None:
    run = Run(kind=1, weights=real(16, 8, 3, 3), bias=real(16), act=act, pool=pool, absolute=absolute)
    run.slope = 0.2 if act == 2 else 0.0
    run.slopes = real(16) if act == 4 else None
    if pool == 1:
        run.window, run.step = (2, 2), (2, 2)
    Command(dv_context, [run], real(1, 8, 8, 8)).check(ulps=2)


@pytest.mark.parametrize("name", RUNS)
def test_a_command_with_transposed_weights_is_the_plain_one_of_tensors_with_x_innermost(
    dv_context: dv.Context, name: str
) -> None:
    c, h, w, run = RUNS[name]
    for images in (0, 2):  # 0: an unbatched command
        command = Command(dv_context, [run], whole(max(images, 1), c, h, w, most=20 if run.lrn else 4), transposed=True)
        if images == 0:
            raw = command.raw()
            raw.input_circular_offset = dv.WEIGHTS_TRANSPOSED
            with committed(dv_context, raw) as commands:
                commands.run(timeout=60)
            command.compare()
        else:
            command.check()


def test_transposed_commands_of_several_runs_add_and_branch(dv_context: dv.Context) -> None:
    runs = [
        conv(5, 8, 3, 1, pads=(1, 1, 0, 0)),
        conv(8, 8, 1, 3, pads=(0, 0, 1, 1), act=4, slopes=whole(8)),
        Run(act=2),
    ]
    added = [whole(2, 5, 3, 4), whole(2, 8, 3, 4), whole(2, 8, 3, 4)]
    Command(dv_context, runs, whole(2, 8, 3, 4), topo=7, adds=True, added=added, transposed=True).check(ulps=0)
    Command(dv_context, CHAIN, whole(2, 8, 8, 6), transposed=True).check(ulps=0)


def test_transposed_commands_have_the_sizes_and_rejections_of_plain_ones(dv_context: dv.Context) -> None:
    run = dv.Run(conv_enable=dv.CONVOLUTION, m=8, p=(5, 3), conv_pad=(1, 0, 0, 0), conv_stride=(2, 1))
    plain, transposed = (dv.Conv(w=12, h=7, c=8, run=[run], input_circular_offset=bit) for bit in (0, 0x8000))
    assert plain.run_outputs() == transposed.run_outputs() == [(5, 5, 8)]
    assert plain.required_bytes() == transposed.required_bytes()
    seen = []
    for command in (plain, transposed):
        command.h = 2  # below the kernel's height; valid as a width
        with pytest.raises(pumice.BindingError) as caught:
            command.run_outputs()
        seen.append(str(caught.value))
    assert seen[0] == seen[1] and "12 x 2" in seen[0]


@pytest.mark.parametrize("kind", [1, 5])
def test_transposed_quantized_and_dilated_weights(dv_context: dv.Context, kind: int) -> None:
    table = np.concatenate([[0], RANDOM.standard_normal(255)]).astype(np.float16)
    weights = RANDOM.integers(0, 256, (16, 8, 2, 3)).astype(np.uint8)
    for dilation in ((1, 1), (2, 1)):
        run = Run(kind=kind, weights=weights, bias=whole(16), table=table, dilation=dilation, pads=(2, 2, 1, 1))
        Command(dv_context, [run], real(1, 8, 7, 9), transposed=True).check(ulps=2)


@pytest.mark.parametrize("act", [0, 1, 2, 3, 5, 6])
def test_each_activation_alone(dv_context: dv.Context, act: int) -> None:
    x = np.linspace(-9, 9, 960).astype(np.float16).reshape(1, 16, 6, 10)
    Command(dv_context, [Run(pool=2, factor=1.0, act=act, slope=0.5)], x).check(ulps=1)


def test_a_slope_of_zero_is_relu_of_all_numbers(dv_context: dv.Context) -> None:
    x = np.array([np.inf, -np.inf, -0.0, 5e-8, 65504, -65504, 1, -1], np.float16).reshape(1, 8, 1, 1)
    Command(dv_context, [Run(act=2)], x).check(ulps=0)


def test_sums_are_rounded_once(dv_context: dv.Context) -> None:
    """Sums beyond 2048, where fp16 has no odd integers, and an addition that would round twice."""
    weights, x = np.ones((8, 64, 3, 3), np.float16), RANDOM.integers(0, 12, (1, 64, 9, 9)).astype(np.float16)
    run = Run(kind=1, weights=weights, bias=whole(8), pads=SIDES)
    Command(dv_context, [run], x).check(ulps=0)
    added = [np.full((1, 8, 9, 9), 1.0, np.float16)]
    Command(dv_context, [run], x, adds=True, added=added).check(ulps=0)


@pytest.mark.parametrize("name", ["plain", "pooled", "averaged", "upsampled", "prelu", "alone", "normalized"])
def test_elementwise_addition(dv_context: dv.Context, name: str) -> None:
    run = {
        "plain": conv(16, 8, pads=SIDES, act=2),
        "pooled": conv(16, 8, pads=SIDES, pool=1, window=(2, 2), step=(2, 2), act=2),
        "averaged": Run(pool=2, window=(2, 2), step=(2, 2), factor=0.25),
        "upsampled": Run(pool=4, act=6),
        "prelu": conv(20, 8, pads=SIDES, act=4, slopes=whole(20)),
        "alone": Run(pool=2, factor=1.0, act=2),
        "normalized": Run(lrn=True),
    }[name]
    added = [whole(1, *run.summed_shape((8, 6, 8)))]
    Command(dv_context, [run], whole(1, 8, 6, 8), adds=True, added=added).check()


def test_the_input_is_added_without_an_eltwise_buffer(dv_context: dv.Context) -> None:
    Command(dv_context, [conv(8, 8, pads=SIDES, act=2)], whole(1, 8, 6, 8), adds=True).check(ulps=0)


def test_output_mode_of_0_leaves_the_eltwise_buffer_alone(dv_context: dv.Context) -> None:
    command = Command(dv_context, [Run(act=2)], whole(1, 8, 4, 4))
    raw = command.raw()
    raw.eltwise_buf = command.memory(np.full(128, np.nan, np.float16))
    with dv_context.command_list() as commands:
        commands.add(raw)
        commands.commit()
        commands.run(timeout=60)
    command.compare(ulps=0)


CHAIN = [conv(16, 8, pads=SIDES, act=2), conv(24, 16, 1, 1, act=2), Run(pool=1, window=(2, 2), step=(2, 2))]


@pytest.mark.parametrize("images", [1, 3])
def test_a_chain_rounds_between_its_runs(dv_context: dv.Context, images: int) -> None:
    Command(dv_context, CHAIN, whole(images, 8, 8, 6)).check(ulps=0)


@pytest.mark.parametrize("images", [1, 2])
def test_runs_that_write_to_memory_read_the_input_again(dv_context: dv.Context, images: int) -> None:
    """Four branches into one output: runs 0, 1 -> 2, 3 -> 4 and 5 -> 6."""
    runs = [
        conv(16, 8, 1, 1, stride=(2, 2)),
        conv(8, 8, 1, 1, act=2),
        conv(24, 8, pads=SIDES, stride=(2, 2)),
        conv(8, 8, 1, 1),
        conv(8, 8, 5, 5, pads=(2, 2, 2, 2), stride=(2, 2), act=6),
        Run(pool=1, window=(3, 3), step=(2, 2), pool_pads=SIDES),
        conv(16, 8, 1, 1),
    ]
    Command(dv_context, runs, whole(images, 8, 8, 8, most=2), topo=0x55).check(ulps=1)


def test_each_run_that_writes_adds_its_channels(dv_context: dv.Context) -> None:
    runs = [conv(5, 8, 1, 1), conv(8, 8, pads=SIDES, act=4, slopes=whole(8)), Run(act=2)]
    added = [whole(2, 5, 3, 3), whole(2, 8, 3, 3), whole(2, 8, 3, 3)]
    Command(dv_context, runs, whole(2, 8, 3, 3), topo=7, adds=True, added=added).check(ulps=0)


def test_thirty_two_runs(dv_context: dv.Context) -> None:
    runs = [Run(pool=2, factor=0.5 if i % 2 else 2.0) for i in range(32)]
    Command(dv_context, runs, whole(1, 8, 2, 3)).check(ulps=0)


def test_a_batch_is_its_images_one_by_one(dv_context: dv.Context) -> None:
    run, x = Run(kind=1, weights=real(16, 16, 3, 3), bias=real(16), pads=SIDES, act=1), real(5, 16, 6, 5)
    together = Command(dv_context, [run], x)
    together.check(ulps=2)
    size = 16 * 6 * 5
    results = together.target.read(np.uint16, 5 * size, together.output_offset)
    for n in range(5):
        alone = Command(dv_context, [run], x[n : n + 1])
        alone.check(ulps=2)
        assert (alone.target.read(np.uint16, size, alone.output_offset) == results[n * size : (n + 1) * size]).all()


def test_a_batch_of_vectors_is_a_matmul(dv_context: dv.Context) -> None:
    Command(dv_context, [conv(64, 48, 1, 1)], whole(1000, 48, 1, 1)).check(ulps=0)


@pytest.mark.parametrize("offset", [0, 2, 6, 16, 30])
@pytest.mark.parametrize("output_offset", [2, 14, 48])
def test_any_even_offset_and_nothing_beside_the_output(dv_context: dv.Context, offset: int, output_offset: int) -> None:
    for run in (conv(5, 3, 2, 2), Run(act=2), conv(8, 3, pads=SIDES, act=4, slopes=whole(8), pool=1, window=(2, 2))):
        Command(dv_context, [run], whole(2, 3, 3, 3), offset=offset, output_offset=output_offset).check(ulps=0)


def test_the_result_does_not_depend_on_where_it_lies(dv_context: dv.Context) -> None:
    run, x = Run(kind=1, weights=real(24, 16, 3, 3), bias=real(24), pads=SIDES, act=3), real(1, 16, 7, 9)
    seen = set()
    for offset, output_offset in [(0, 0), (16, 32), (2, 6), (0, 0)]:
        command = Command(dv_context, [run], x, offset=offset, output_offset=output_offset)
        command.check(ulps=2)
        seen.add(command.target.read(np.uint8, 24 * 7 * 9 * 2, output_offset).tobytes())
    assert len(seen) == 1


@pytest.mark.parametrize(
    "run", [conv(8, 8, pads=SIDES), Run(act=2), Run(pool=1, window=(3, 3), pool_pads=SIDES), Run(lrn=True)]
)
@pytest.mark.parametrize("distance", [0, 2, 64])
def test_input_and_output_may_overlap(dv_context: dv.Context, run: Run, distance: int) -> None:
    x = whole(1, 8, 6, 6)
    wanted = run(x[0]).astype(np.float16)
    memory = dv_context.memory(4096)
    memory.write(to_whc8(x[0]))
    weights = dv_context.memory(4096)
    if run.weights is not None:
        weights.write(run.packed())
    command = dv.Conv(
        input_buf=memory, output_buf=memory + distance, eltwise_buf=memory, w=6, h=6, c=8, run=[run.raw(weights, 8)]
    )
    with dv_context.command_list() as commands:
        commands.add(command)
        commands.commit()
        commands.run(timeout=60)
    np.testing.assert_allclose(memory.read(np.float16, 8 * 36, distance), to_whc8(wanted), rtol=2e-3)


def test_the_eltwise_buffer_may_be_input_and_output(dv_context: dv.Context) -> None:
    x = whole(8, 4, 4)
    memory = dv_context.memory(4096)
    memory.write(to_whc8(x))
    run = dv.Run(pool_enable=2, pool_size=(1, 1), pool_avg_param=1.0, m=8)
    with dv_context.command_list() as commands:
        commands.add(
            dv.Conv(input_buf=memory, output_buf=memory, eltwise_buf=memory, output_mode=1, w=4, h=4, c=8, run=[run])
        )
        commands.commit()
        for _ in range(3):
            commands.run(timeout=60)
    assert (memory.read(np.float16, 128) == 8 * to_whc8(x)).all()


def test_later_commands_see_what_earlier_ones_made(dv_context: dv.Context) -> None:
    x = whole(16, 8, 8, most=1)
    runs = [conv(16, 16, pads=SIDES, act=2), conv(8, 16, 1, 1), Run(pool=2, window=(8, 8), factor=1 / 64)]
    memory = dv_context.memory(1 << 14)
    memory.write(to_whc8(x))
    wanted = x
    with dv_context.command_list() as commands:
        for i, run in enumerate(runs):
            weights = dv_context.memory(8192)
            if run.weights is not None:
                weights.write(run.packed())
            raw = run.raw(weights, len(wanted))
            commands.add(
                dv.Conv(
                    input_buf=memory + 4096 * i, output_buf=memory + 4096 * (i + 1), w=8, h=8, c=len(wanted), run=[raw]
                )
            )
            wanted = run(wanted).astype(np.float16)
        commands.commit()
        commands.run(timeout=60)
    np.testing.assert_allclose(memory.read(np.float16, 8, 3 * 4096), wanted.ravel(), rtol=1e-3)


@pytest.mark.parametrize("prelu", [False, True])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 2)])
def test_quantized_weights(dv_context: dv.Context, dilation: tuple[int, int], prelu: bool) -> None:
    table = np.concatenate([[0], RANDOM.standard_normal(255)]).astype(np.float16)
    run = Run(kind=1, weights=RANDOM.integers(0, 256, (16, 8, 3, 3)).astype(np.uint8), bias=whole(16), table=table)
    run.dilation = dilation
    if prelu:
        run.act, run.slopes = 4, whole(16)
    Command(dv_context, [run], real(1, 8, 9, 9)).check(ulps=2)


def test_weight_format_0_is_float16(dv_context: dv.Context) -> None:
    command = Command(dv_context, [conv(8, 8)], whole(1, 8, 5, 5))
    raw = command.raw()
    raw.run[0].weight_fmt = 0
    with dv_context.command_list() as commands:
        commands.add(raw)
        commands.commit()
        commands.run(timeout=60)
    command.compare(ulps=0)


def test_normalization_interpolates_between_the_powers_of_four(dv_context: dv.Context) -> None:
    x = np.zeros((1, 16, 1, 1), np.float16)
    x[0, 4:8, 0, 0] = 1.3, 20.5, 792, 49.5
    command = Command(dv_context, [Run(lrn=True)], x)
    command.check()
    assert abs(float(command.expected()[0][0][6, 0, 0]) - 143.1) < 1.5, "the exact formula gives 111.75"


# ---- version 1


@pytest.mark.parametrize(("c", "to_bgr"), [(3, 0), (3, 1), (1, 0), (2, 0)])
@pytest.mark.parametrize("offset", [0, 6])
@pytest.mark.parametrize("transposed", [0, dv.WEIGHTS_TRANSPOSED])
def test_bytes_are_looked_up_in_the_table_of_their_channel(
    dv_context: dv.Context, c: int, to_bgr: int, offset: int, transposed: int
) -> None:
    w, h, n = (7, 5, 2) if transposed else (5, 7, 2)
    table, pixels = real(3, 256), RANDOM.integers(0, 256, (n, 5, 7, c)).astype(np.uint8)
    values = np.stack([table[k][pixels[..., k]] for k in range(c)], -1)
    wanted = values[..., ::-1] if to_bgr else values
    memory, tables = dv_context.memory(4096), dv_context.memory(4096)
    memory.write(pixels, offset)
    tables.write(table)
    conv_cmd = dv.Conv(
        input_buf=memory + offset,
        output_buf=memory + 1024,
        w=w,
        h=h,
        c=c,
        input_circular_offset=n | transposed,
        run=[dv.Run(actfunc=6, m=c)],
    )
    with dv_context.command_list() as commands:
        commands.add(dv.ConvV1(u8tofp16_table=tables, to_bgr=to_bgr, conv_cmd=conv_cmd))
        commands.commit()
        commands.run(timeout=60)
    assert (memory.read(np.float16, wanted.shape, 1024) == np.clip(wanted, 0, 6)).all()


def test_version_1_without_a_table_is_version_0(dv_context: dv.Context) -> None:
    command = Command(dv_context, [conv(8, 8, pads=SIDES)], whole(1, 8, 5, 5))
    with dv_context.command_list() as commands:
        commands.add(dv.ConvV1(conv_cmd=command.raw()))
        commands.commit()
        commands.run(timeout=60)
    command.compare(ulps=0)


# ---- fully connected


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("act", range(5))
def test_fully_connected(dv_context: dv.Context, act: int, quantized: bool) -> None:
    inputs, outputs = 100, 37
    table = np.concatenate([[0], RANDOM.standard_normal(255)]).astype(np.float16) if quantized else None
    weights = RANDOM.integers(0, 256, (outputs, inputs)).astype(np.uint8) if quantized else real(outputs, inputs)
    bias, x = real(outputs), real(inputs)
    values = (weights if table is None else table[weights]).astype(np.float64)
    sums = values @ x.astype(np.float64) + bias.astype(np.float64)
    wanted = [sums, np.maximum(sums, 0), np.tanh(sums), np.where(sums > 0, sums, 0.25 * sums), 1 / (1 + np.exp(-sums))][
        act
    ]
    packed = dv_context.memory(1 << 14)
    packed.write(bytes(dv.pack_fc_weights(weights.reshape(outputs, inputs), bias, table=table)))
    memory = dv_context.memory(4096)
    memory.write(np.full(2048, 0x7E55, np.uint16))
    memory.write(x, 2)
    with dv_context.command_list() as commands:
        commands.add(
            dv.FullyConnected(
                weight_buf=packed,
                input_buf=memory + 2,
                output_buf=memory + 1026,
                input_size=inputs,
                output_size=outputs,
                weight_fmt=int(quantized),
                actfunc=act,
                actfunc_param=0.25,
            )
        )
        commands.commit()
        commands.run(timeout=60)
    np.testing.assert_allclose(memory.read(np.float16, outputs, 1026), wanted.astype(np.float16), rtol=4e-3, atol=4e-3)
    assert (memory.read(np.uint16, 1, 1024) == 0x7E55).all()
    assert (memory.read(np.uint16, 8, 1026 + 2 * outputs) == 0x7E55).all()


def test_fully_connected_and_convolution_in_one_list(dv_context: dv.Context) -> None:
    memory, packed = dv_context.memory(4096), dv_context.memory(4096)
    memory.write(np.arange(-8, 8).astype(np.float16))
    packed.write(bytes(dv.pack_fc_weights(np.eye(16, dtype=np.float16), np.zeros(16, np.float16))))
    with dv_context.command_list() as commands:
        commands.add(dv.Conv(input_buf=memory, output_buf=memory + 256, w=1, h=1, c=16, run=[dv.Run(actfunc=2, m=16)]))
        commands.add(
            dv.FullyConnected(
                weight_buf=packed, input_buf=memory + 256, output_buf=memory + 512, input_size=16, output_size=16
            )
        )
        commands.commit()
        commands.run(timeout=60)
    assert (memory.read(np.float16, 16, 512) == np.maximum(np.arange(-8, 8), 0)).all()


# ---- devices without some features


@pytest.fixture(scope="module", params=["subgroupShuffle", "storageBuffer16BitAccess"])
def lacking(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[dv.Context]:
    """Devices whose kernels use shared memory, or store fp16 packed in 32-bit words."""
    device = pumice.Context(f"uuid:{pumice_context.info.uuid}", without=[request.param])
    with device, dv.Context(device) as made:
        yield made


@pytest.mark.parametrize(
    "name",
    [
        "3x3",
        "1x1 of many channels",
        "no whole groups",
        "three channels",
        "depthwise of no whole groups",
        "deconvolution",
        "maximum pooling of no whole groups",
        "average pooling",
        "convolution and maximum pooling",
        "upsampling of no whole groups",
    ],
)
def test_runs_where_a_feature_is_lacking(lacking: dv.Context, name: str) -> None:
    c, h, w, run = RUNS[name]
    Command(lacking, [run], whole(2, c, h, w), output_offset=70).check()


def test_odd_sizes_where_float16_is_stored_in_words(lacking: dv.Context) -> None:
    for run in (conv(5, 3, 2, 2), Run(act=2), Run(pool=1, window=(2, 2)), conv(3, 3, act=4, slopes=whole(3))):
        for output_offset in (0, 2, 16):
            Command(lacking, [run], whole(1, 3, 3, 3), offset=6, output_offset=output_offset).check(ulps=0)
