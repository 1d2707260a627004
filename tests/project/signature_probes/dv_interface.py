"""The dv interface."""

from __future__ import annotations

from typing import Any

import numpy as np

import pumice
import pumice.dv as dv
from dv_commands import PAGE, committed, doubling
from signature_probes.device import busy
from signature_probes.probe import covers, differ, expect_error, times_out

BUFFERS: dict[str, Any] = {"input_buf": (1, 0), "output_buf": (2, 0)}


@covers("dv.Context.__init__.device", "dv.Context.__init__.strict", "dv.Context.__init__.separate")
def contexts(context: pumice.Context) -> None:
    with dv.Context(context) as given, dv.Context(f"uuid:{context.info.uuid}") as named:
        assert given.device is context
        assert named.device is not context
    differ(*(dv.Context(context, strict=strict).strict for strict in (False, True)))
    seen = []
    for separate in (False, True):
        memory = dv.Context(context, separate=separate).memory(PAGE)
        memory.map()[:] = 7
        memory.sync_start()
        memory.sync_end()
        view = memory.map()
        view[0] = 9  # visible without a sync on a device with unified memory
        seen.append(int(memory.read("uint8", 1)[0]))
    assert seen[1] == 7


@covers("dv.Memory.array.offset", "dv.Memory.write.offset", "dv.Memory.read.offset")
def places(context: pumice.Context) -> None:
    memory = dv.Context(context).memory(PAGE)
    memory.write(np.arange(8, dtype="uint8"))
    memory.write(np.full(2, 99, "uint8"), offset=4)
    assert memory.read("uint8", 2, offset=4).tolist() == [99, 99]
    assert memory.array("uint8", 1, offset=7).tolist() == [7]
    for call in (
        lambda: memory.write(np.zeros(8, "uint8"), offset=PAGE),
        lambda: memory.read("uint8", 8, offset=PAGE),
        lambda: memory.array("uint8", 8, offset=-1),
    ):
        expect_error(call)


@covers("dv.Memory.sync.read", "dv.Memory.sync.write", "dv.Memory.sync_start.read", "dv.Memory.sync_start.write")
def syncs(context: pumice.Context) -> None:
    memory = dv.Context(context).memory(PAGE)
    memory.map()
    for read, write in ((True, False), (False, True), (True, True)):
        with memory.sync(read, write):
            pass
        memory.sync_start(read, write)
        memory.sync_end()
    expect_error(lambda: memory.sync_start(False, False))

    def neither() -> None:
        with memory.sync(False, False):
            pass

    expect_error(neither)


@covers("dv.CommandList.wait.exec_id", "dv.CommandList.wait.timeout", "dv.CommandList.run.timeout")
def lists(context: pumice.Context) -> None:
    own = dv.Context(context)
    memory = own.memory(PAGE)
    commands = committed(own, doubling(memory))
    commands.run(timeout=60)
    expect_error(lambda: commands.wait(1 << 40))
    for call in (
        lambda executed: commands.wait(timeout=0),
        lambda executed: commands.wait(executed, timeout=0),
        lambda executed: commands.run(timeout=0),
    ):
        before = busy(context)
        executed = commands.exec()
        times_out(lambda call=call, executed=executed: call(executed))
        before.wait(timeout=60)
    commands.wait(timeout=60)


@covers(
    "dv.Conv.run_outputs.strict",
    "dv.Conv.required_bytes.strict",
    "dv.ConvV1.run_outputs.strict",
    "dv.ConvV1.required_bytes.strict",
    "dv.FullyConnected.required_bytes.strict",
    "dv.Ipu.required_bytes.strict",
    "dv.Maximizer.required_bytes.strict",
)
def strictness(context: pumice.Context) -> None:
    """Commands that only the vendor's hardware rejects; (1, 0) and (2, 0) are memory handles."""
    conv, of_bytes = (
        dv.Conv(**BUFFERS, w=8, h=8, c=c, run=[dv.Run(pool_enable=dv.POOL_MAX, pool_size=(1, 2), m=c)]) for c in (16, 3)
    )
    blit = {"wr": (2, 0), "tex": (1, 0), "use_tex": 1, "tex_height": 1, "rect_width": 4, "rect_height": 4}
    commands: list[Any] = [
        conv,
        dv.ConvV1(u8tofp16_table=(1, 0), conv_cmd=of_bytes),
        dv.FullyConnected(**BUFFERS, weight_buf=(1, 0), input_size=16385, output_size=16),
        dv.Maximizer(**BUFFERS, width=4096, height=4096, nclass=4),
        dv.Ipu(**blit, tex_width=65535),
    ]
    for command in commands:
        for name in ("required_bytes", "run_outputs"):
            if call := getattr(command, name, None):
                call()
                expect_error(lambda call=call: call(strict=True), "D5")


WEIGHTS = np.arange(16 * 8 * 9, dtype="float16").reshape(16, 8, 3, 3) / 512
INDICES = np.ones((16, 8, 3, 3), "uint8")
TABLE, SIXTEEN = np.linspace(0, 1, 256, dtype="float16"), np.linspace(1, 2, 16, dtype="float16")


@covers(
    *(f"dv.pack_{kind}_weights.{name}" for kind in ("conv", "dil") for name in ("bias", "table", "prelu")),
    "dv.pack_fc_weights.bias",
    "dv.pack_fc_weights.table",
    *(f"dv.unpack_{kind}_weights.{name}" for kind in ("conv", "dil") for name in ("quantized", "prelu")),
    "dv.unpack_fc_weights.quantized",
)
def weights(context: pumice.Context) -> None:
    for pack, unpack in (
        (dv.pack_conv_weights, dv.unpack_conv_weights),
        (dv.pack_dil_weights, dv.unpack_dil_weights),
    ):
        differ(pack(WEIGHTS), pack(WEIGHTS, SIXTEEN), pack(WEIGHTS, prelu=SIXTEEN))
        differ(pack(INDICES, table=TABLE), pack(INDICES, table=TABLE[::-1].copy()))
        assert unpack(pack(WEIGHTS, prelu=SIXTEEN), WEIGHTS.shape, prelu=True).prelu is not None
        assert unpack(pack(WEIGHTS), WEIGHTS.shape).prelu is None
        assert unpack(pack(INDICES, table=TABLE), INDICES.shape, quantized=True).indices is not None
    flat, indices = WEIGHTS.reshape(16, -1), INDICES.reshape(16, -1)
    differ(dv.pack_fc_weights(flat), dv.pack_fc_weights(flat, SIXTEEN))
    packed = dv.pack_fc_weights(indices, table=TABLE)
    assert dv.unpack_fc_weights(packed, indices.shape, quantized=True).indices is not None


@covers("dv.to_whc8.layout", "dv.from_whc8.layout")
def layouts(context: pumice.Context) -> None:
    cube = np.arange(2 * 3 * 4, dtype="uint8").reshape(2, 3, 4)
    differ(dv.to_whc8(cube), dv.to_whc8(cube, "HWC"))
    flat = dv.to_whc8(cube)
    differ(dv.from_whc8(flat, (2, 3, 4)), dv.from_whc8(flat, (3, 4, 2), "HWC"))
    expect_error(lambda: dv.to_whc8(cube, "XYZ"))


def network(sizes: list[int | None]) -> pumice.Graph:
    graph = pumice.Graph("net")
    x = graph.input("x", "float32", [None, 8, *sizes])
    w = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype("float32") / 8
    graph.output("y", graph.add("Relu", graph.add("Conv", x, w, pads=[1, 1, 1, 1])))
    return graph


@covers(
    "dv.from_graph.input_shape",
    "dv.from_graph.images",
    "dv.from_graph.quantize",
    "dv.Network.load.context",
    "dv.LoadedNetwork.__call__.timeout",
)
def networks(context: pumice.Context) -> None:
    expect_error(lambda: dv.from_graph(network([None, None])), "known")
    assert dv.from_graph(network([None, None]), (8, 6, 6)).input_shape == (1, 8, 6, 6)
    made = dv.from_graph(network([6, 6]), images=2)
    assert made.input_shape == (2, 8, 6, 6)
    expect_error(lambda: dv.from_graph(network([6, 6]), images=0), "images")
    differ(len(made.weights), len(dv.from_graph(network([6, 6]), quantize=True).weights))
    with dv.Context(context) as own, made.load(own) as loaded:
        images = np.ones(made.input_shape, "float32")
        loaded(images, timeout=60)
        if context.info.kind == "software":  # on a GPU the work may already be done
            before = busy(context)
            times_out(lambda: loaded(images, timeout=0))
            before.wait(timeout=60)
        context.wait_idle()
