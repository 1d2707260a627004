"""Weights written on the device: by an earlier command of the list, a later one, another list, the command itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
import pumice.dv as dv
from dv_commands import PAGE, committed

Array = npt.NDArray[Any]
SIZE = 1 << 16
INPUT, OUTPUT, WEIGHTS, SOURCE = 0, 8192, 24576, 45056  # offsets in one memory


@pytest.fixture(scope="module", params=[False, True], ids=["one memory", "separate memories"])
def context(pumice_context: pumice.Context, request: pytest.FixtureRequest) -> Iterator[dv.Context]:
    """A context with unified memory, and one with separate host and device memory."""
    with dv.Context(pumice_context, separate=request.param) as made:
        yield made


def copied(memory: dv.Memory, count: int, source: int = SOURCE, target: int = WEIGHTS) -> dv.Ipu:
    """A blit that copies `count` bytes of any content."""
    width = -(-count // 4)
    places = {"tex": memory + source, "wr": memory + target}
    sizes = {"tex_width": width, "tex_height": 1, "rect_width": width, "rect_height": 1}
    return dv.Ipu(use_tex=1, fmt_tex=dv.RGBA8888, fmt_wr=dv.RGBA8888, **places, **sizes)


Layer = tuple[bytes, Callable[[dv.Memory], dv.Conv | dv.FullyConnected]]


def conv_layer(random: np.random.Generator, kind: int, **options: Any) -> Layer:
    """Return packed random weights, and a function that creates a command using them at WEIGHTS."""
    kx, ky = options.get("kernel", (3, 3))
    dilation = options.get("dilation", (1, 1))
    channels, kernels = options.get("channels", 8), options.get("kernels", 8)
    if kind & 2:
        kernels = channels
    shape = (kernels, 1 if kind & 2 else channels, ky, kx)
    bias = random.standard_normal(kernels).astype(np.float16)
    slopes = random.standard_normal(kernels).astype(np.float16) if options.get("prelu") else None
    table = random.standard_normal(256).astype(np.float16) if options.get("quantized") else None
    values = (
        random.standard_normal(shape).astype(np.float16) if table is None else random.integers(0, 256, shape, np.uint8)
    )
    pack = dv.pack_dil_weights if max(dilation) > 1 else dv.pack_conv_weights
    packed = bytes(pack(values, bias, table=table, prelu=slopes))

    def command(memory: dv.Memory) -> dv.Conv:
        run = dv.Run(
            weight_buf=memory + WEIGHTS,
            conv_enable=kind,
            m=kernels,
            p=(kx, ky),
            conv_pad=(kx // 2,) * 2 + (ky // 2,) * 2,
            conv_stride=(2, 1) if kind & 4 else (1, 1),
            conv_dilation=dilation,
            weight_fmt=3 if options.get("quantized") else 1,
            actfunc=dv.ACT_PRELU if options.get("prelu") else 0,
            pool_enable=options.get("pool", 0),
            pool_size=(2, 2),
            pool_avg_param=0.25,
        )
        places = {"input_buf": memory + INPUT, "output_buf": memory + OUTPUT}
        return dv.Conv(w=8, h=7, c=channels, run=[run], **places)

    return packed, command


def fc_layer(random: np.random.Generator, quantized: bool) -> Layer:
    inputs, outputs = 37, 11
    bias = random.standard_normal(outputs).astype(np.float16)
    table = random.standard_normal(256).astype(np.float16) if quantized else None
    shape = (outputs, 1, 1, inputs, 1, 1)
    values = random.integers(0, 256, shape, np.uint8) if quantized else random.standard_normal(shape).astype(np.float16)

    def command(memory: dv.Memory) -> dv.FullyConnected:
        places = {"weight_buf": memory + WEIGHTS, "input_buf": memory + INPUT, "output_buf": memory + OUTPUT}
        return dv.FullyConnected(input_size=inputs, output_size=outputs, weight_fmt=int(quantized), **places)

    return bytes(dv.pack_fc_weights(values, bias, table=table)), command


LAYERS: dict[str, Callable[[np.random.Generator], Layer]] = {
    "convolution": lambda random: conv_layer(random, dv.CONVOLUTION),
    "1x1": lambda random: conv_layer(random, dv.CONVOLUTION, kernel=(1, 1), channels=70, kernels=9),
    "2x4": lambda random: conv_layer(random, dv.CONVOLUTION, kernel=(2, 4), kernels=12),
    "5x5 of few channels": lambda random: conv_layer(random, dv.CONVOLUTION, kernel=(5, 5), channels=3, kernels=10),
    "7x7": lambda random: conv_layer(random, dv.CONVOLUTION, kernel=(7, 7), channels=2),
    "quantized": lambda random: conv_layer(random, dv.CONVOLUTION, quantized=True, kernels=13),
    "slopes": lambda random: conv_layer(random, dv.CONVOLUTION, prelu=True, kernels=20),
    "quantized with slopes": lambda random: conv_layer(random, dv.CONVOLUTION, prelu=True, quantized=True),
    "averaged, so in float32": lambda random: conv_layer(random, dv.CONVOLUTION, pool=dv.POOL_AVERAGE),
    "dilated": lambda random: conv_layer(random, dv.CONVOLUTION, dilation=(2, 1)),
    "dilated and quantized": lambda random: conv_layer(random, dv.CONVOLUTION, dilation=(1, 2), quantized=True),
    "depthwise": lambda random: conv_layer(random, dv.DEPTHWISE, channels=24),
    "deconvolution": lambda random: conv_layer(random, dv.DECONVOLUTION, kernels=16),
    "depthwise deconvolution": lambda random: conv_layer(random, dv.DEPTHWISE_DECONVOLUTION, quantized=True),
    "fully connected": lambda random: fc_layer(random, False),
    "fully connected and quantized": lambda random: fc_layer(random, True),
}


class Case:
    """One layer with its input, in a separate memory."""

    def __init__(self, context: dv.Context, name: str, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.context = context
        self.first, self.second = (LAYERS[name](random)[0] for _ in range(2))
        self.command = LAYERS[name](random)[1]
        self.memory = context.memory(SIZE)
        self.memory.write(random.standard_normal(4096).astype(np.float16), INPUT)
        assert len(self.first) <= SOURCE - WEIGHTS and len(self.first) <= SIZE - SOURCE
        self.place(self.first)
        self.place(self.second, SOURCE)

    def place(self, packed: bytes, offset: int = WEIGHTS) -> None:
        self.memory.write(packed, offset)

    def copy(self) -> dv.Ipu:
        return copied(self.memory, len(self.first))

    def result(self, commands: dv.CommandList) -> bytes:
        self.memory.write(np.zeros(WEIGHTS - OUTPUT, np.uint8), OUTPUT)
        commands.run(timeout=60)
        return self.memory.read(np.uint8, WEIGHTS - OUTPUT, OUTPUT).tobytes()

    def expected(self) -> tuple[bytes, bytes]:
        """Return the layer's results with each of the two weights, when written by the host."""
        results = []
        for packed in (self.first, self.second):
            self.place(packed)
            with committed(self.context, self.command(self.memory)) as commands:
                results.append(self.result(commands))
        self.place(self.first)
        assert results[0] != results[1]
        return results[0], results[1]


@pytest.mark.parametrize("name", LAYERS)
def test_weights_that_an_earlier_command_of_the_list_writes(context: dv.Context, name: str) -> None:
    case = Case(context, name)
    expected = case.expected()
    with committed(context, case.copy(), case.command(case.memory)) as commands:
        assert case.result(commands) == expected[1]
        case.place(case.first, SOURCE)
        assert case.result(commands) == expected[0]


@pytest.mark.parametrize("name", LAYERS)
def test_weights_that_another_list_writes(context: dv.Context, name: str) -> None:
    case = Case(context, name)
    expected = case.expected()
    with committed(context, case.command(case.memory)) as reader, committed(context, case.copy()) as writer:
        assert case.result(reader) == expected[0]
        writer.exec()  # without a wait
        assert case.result(reader) == expected[1]
        case.place(case.first, SOURCE)
        writer.run(timeout=60)
        assert case.result(reader) == expected[0]
        case.place(case.second)
        assert case.result(reader) == expected[1], "what the host publishes is seen as before"


@pytest.mark.parametrize("name", ["convolution", "fully connected"])
def test_weights_that_a_later_command_of_the_list_writes(context: dv.Context, name: str) -> None:
    case = Case(context, name)
    expected = case.expected()
    with committed(context, case.command(case.memory), case.copy()) as commands:
        assert case.result(commands) == expected[0]
        assert case.result(commands) == expected[1]


@pytest.mark.parametrize("name", ["convolution", "fully connected"])
def test_weights_that_were_written_before_the_list_was_made(context: dv.Context, name: str) -> None:
    case = Case(context, name)
    expected = case.expected()
    with committed(context, case.copy()) as writer:
        writer.exec()
        with committed(context, case.command(case.memory)) as reader:
            assert case.result(reader) == expected[1]


@pytest.mark.parametrize("name", ["convolution", "fully connected"])
def test_weights_that_the_command_itself_writes_over_are_those_before(context: dv.Context, name: str) -> None:
    case = Case(context, name)
    expected = case.expected()
    command = case.command(case.memory)
    command.output_buf = case.memory + WEIGHTS
    size = len(expected[0])
    with committed(context, command) as commands:
        for packed, wanted in ((case.first, expected[0]), (case.second, expected[1])):
            case.place(packed)
            commands.run(timeout=60)
            written = dict(command.required_bytes())["output_buf"]
            assert case.memory.read(np.uint8, written, WEIGHTS).tobytes() == wanted[:written] and size >= written


def test_weights_of_every_writer(context: dv.Context) -> None:
    """Each kind of command overwrites the weights of a fully connected command, all ones, with zeros."""
    ones = bytes(dv.pack_fc_weights(np.ones((4, 1, 1, 8, 1, 1), np.float16), np.ones(4, np.float16)))
    run = dv.Run(pool_enable=dv.POOL_AVERAGE, pool_size=(1, 1), pool_avg_param=1.0, m=8)
    writers = {
        "convolution": lambda m: dv.Conv(input_buf=m + PAGE, output_buf=m, w=1, h=5, c=8, run=[run]),
        "fully connected": lambda m: dv.FullyConnected(
            weight_buf=m + PAGE, input_buf=m + PAGE, output_buf=m, input_size=8, output_size=40
        ),
        "ipu, upwards": lambda m: dv.Ipu(
            use_tex=1, tex=m + PAGE, wr=m + 64, tex_width=4, tex_height=5, rect_width=4, rect_height=5, stride_wr=-16
        ),
        "maximizer": lambda m: dv.Maximizer(input_buf=m + PAGE, output_buf=m, width=1, height=80, nclass=2),
    }
    assert len(ones) == 80
    for name, writer in writers.items():
        with context.memory(4 * PAGE) as memory:
            memory.write(ones)
            memory.write(np.zeros(PAGE, np.uint8), PAGE)
            memory.write(np.ones(8, np.float16), 2 * PAGE)
            layer = dv.FullyConnected(
                weight_buf=memory,
                input_buf=memory + 2 * PAGE,
                output_buf=memory + 3 * PAGE,
                input_size=8,
                output_size=4,
            )
            with committed(context, layer) as reader, committed(context, writer(memory)) as other:
                reader.run(timeout=60)
                assert (memory.read(np.float16, 4, 3 * PAGE) == 9).all()
                other.exec()
                reader.run(timeout=60)
                assert (memory.read(np.float16, 4, 3 * PAGE) == 0).all(), name
            memory.write(ones)
            with committed(context, writer(memory), layer) as both:
                both.run(timeout=60)
                assert (memory.read(np.float16, 4, 3 * PAGE) == 0).all(), name


def test_bytes_beside_the_weights_may_be_written(context: dv.Context) -> None:
    """Output next to the weights in one memory does not force repeated unpacking: no more kernels than with two memories."""
    case = Case(context, "convolution")
    with committed(context, case.command(case.memory)) as beside, context.memory(SIZE) as other:
        apart = case.command(case.memory)
        apart.output_buf = other
        with committed(context, apart) as separate:
            assert beside.dispatch_count == separate.dispatch_count


def test_many_ranges_of_one_memory_are_followed(context: dv.Context) -> None:
    """More lists write to one memory than it tracks separately."""
    case = Case(context, "convolution")
    expected = case.expected()
    run = dv.Run(pool_enable=dv.POOL_AVERAGE, pool_size=(1, 1), pool_avg_param=1.0, m=8)
    with committed(context, case.command(case.memory)) as reader, committed(context, case.copy()) as writer:
        assert case.result(reader) == expected[0]
        writer.run(timeout=60)
        for i in range(70):
            command = dv.Conv(
                input_buf=case.memory, output_buf=case.memory + (16384 + 32 * i), w=1, h=1, c=8, run=[run]
            )
            with committed(context, command) as one:
                one.run(timeout=60)
        assert case.result(reader) == expected[1]


def test_a_palette_is_that_of_the_lists_context(pumice_context: pumice.Context) -> None:
    with dv.Context(pumice_context) as mine, dv.Context(pumice_context) as other:
        memory = other.memory(PAGE)
        memory.write(np.zeros(64, np.uint8))
        blit = {"use_tex": 1, "fmt_tex": dv.LUT, "tex": memory, "tex_width": 1, "tex_height": 1}
        target = {"wr": memory + 64, "rect_width": 1, "rect_height": 1}
        with committed(mine, dv.Ipu(lut=[0x04030201], ncolor_lut=1, **blit, **target)) as with_colours:
            with_colours.run(timeout=60)
        with committed(mine, dv.Ipu(**blit, **target)) as reuses:
            reuses.run(timeout=60)
            assert list(memory.read(np.uint8, 4, 64)) == [1, 2, 3, 4]
        with committed(other, dv.Ipu(**blit, **target)) as reuses:
            reuses.run(timeout=60)
            assert list(memory.read(np.uint8, 4, 64)) == [0, 0, 0, 0], "a palette of another context"
