"""Errors of the dv interface, which name the run and the field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pumice
import pumice.dv as dv

PAGE = 4096


class Place:
    """A context with memories for use by any test."""

    def __init__(self, device: pumice.Context, strict: bool) -> None:
        self.context = dv.Context(device, strict=strict)
        self.memory = self.context.memory(PAGE)
        self.large = self.context.memory(1 << 20)

    def refused(self, command: Any) -> pumice.BindingError:
        with self.context.command_list() as commands:
            with pytest.raises(pumice.BindingError) as caught:
                commands.add(command)
            assert len(commands) == 0, "a refused command was added"
        return caught.value

    def takes(self, command: Any) -> None:
        with self.context.command_list() as commands:
            commands.add(command)
            assert len(commands) == 1


@pytest.fixture(scope="module")
def loose(pumice_context: pumice.Context) -> Place:
    return Place(pumice_context, strict=False)


@pytest.fixture(scope="module")
def strict(pumice_context: pumice.Context) -> Place:
    return Place(pumice_context, strict=True)


@pytest.fixture(scope="module", params=["loose", "strict"])
def either(request: pytest.FixtureRequest) -> Iterator[Place]:
    yield request.getfixturevalue(request.param)


def conv(place: Place, run: dict[str, Any] | None = None, **fields: Any) -> dv.Conv:
    """A valid 3x3 convolution of 8x8 pixels and 8 channels; `fields` override its fields."""
    own = {"weight_buf": place.large, "conv_enable": 1, "m": 8, "p": (3, 3), "conv_pad": (1, 1, 1, 1)} | (run or {})
    given = {
        "input_buf": place.memory,
        "output_buf": place.large,
        "w": 8,
        "h": 8,
        "c": 8,
        "run": [dv.Run(**own)],
    } | fields
    return dv.Conv(**given)


def fc(place: Place, **fields: Any) -> dv.FullyConnected:
    given = {
        "weight_buf": place.large,
        "input_buf": place.memory,
        "output_buf": place.memory,
        "input_size": 16,
        "output_size": 16,
    }
    return dv.FullyConnected(**(given | fields))


def maximizer(place: Place, **fields: Any) -> dv.Maximizer:
    given = {"input_buf": place.large, "output_buf": place.memory, "width": 8, "height": 8, "nclass": 4}
    return dv.Maximizer(**(given | fields))


def test_what_the_cases_start_from_is_taken(either: Place) -> None:
    for command in (conv(either), fc(either), maximizer(either)):
        either.takes(command)


@pytest.mark.parametrize(
    ("slot", "fields"),
    [
        ("input_buf.mem", {"input_buf": None}),
        ("output_buf.mem", {"output_buf": None}),
        ("topo", {"topo": 0}),
        ("z", {"z": 0}),
        ("z", {"z": 2}),
        ("w", {"w": 0}),
        ("h", {"h": 0}),
        ("c", {"c": 0}),
        ("output_mode", {"output_mode": 2}),
    ],
)
def test_fields_of_a_convolution_command(either: Place, slot: str, fields: dict[str, Any]) -> None:
    assert either.refused(conv(either, **fields)).slot == slot


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("pz", {"pz": 0}),
        ("pz", {"pz": 2}),
        ("conv_enable", {"conv_enable": 2}),
        ("conv_enable", {"conv_enable": 9}),
        ("conv_enable, pool_enable, actfunc, lrn", {"conv_enable": 0, "rectifi_en": 1}),
        ("weight_buf.mem", {"weight_buf": None}),
        ("p", {"p": 0}),
        ("p", {"p": (8, 1)}),
        ("p", {"p": (1, 8)}),
        ("p", {"p": (7, 7), "conv_pad": 0, "conv_dilation": (2, 2)}),
        ("conv_stride", {"conv_stride": (0, 1)}),
        ("conv_stride", {"conv_stride": (1, 0)}),
        ("m", {"m": 0}),
        ("m", {"conv_enable": 3, "m": 9}),
        ("m", {"conv_enable": 7, "m": 7}),
        ("weight_fmt", {"weight_fmt": 2}),
        ("pool_enable", {"pool_enable": 3, "conv_enable": 0}),
        ("pool_enable", {"pool_enable": 5, "conv_enable": 0}),
        ("pool_size", {"pool_enable": 1, "pool_size": (0, 1)}),
        ("pool_size", {"pool_enable": 1, "pool_size": (2, 0)}),
        ("pool_size", {"pool_enable": 1, "pool_size": (3, 3), "conv_pad": 0, "p": (7, 7)}),
        ("pool_stride", {"pool_enable": 1, "pool_size": (2, 2), "pool_stride": (0, 1)}),
        ("pool_stride", {"pool_enable": 2, "conv_enable": 0, "pool_size": (2, 2), "pool_stride": (1, 0)}),
        ("actfunc", {"actfunc": 7}),
        ("actfunc", {"actfunc": 4, "conv_enable": 0}),
        ("conv_enable", {"lrn": 0x503}),
        ("pool_enable", {"lrn": 0x503, "conv_enable": 0, "pool_enable": 4}),
        ("lrn", {"lrn": 0x501, "conv_enable": 0}),
    ],
)
def test_fields_of_a_run(either: Place, field: str, fields: dict[str, Any]) -> None:
    fields = {**fields}
    error = either.refused(conv(either, fields, c=16, w=4)) if "lrn" in fields else either.refused(conv(either, fields))
    assert error.slot == f"run[0].{field}"
    assert f"run[0].{field}" in str(error)
    assert error.expected and error.given


def test_a_later_run_is_named(loose: Place) -> None:
    good = dv.Run(actfunc=2, m=8)
    runs = [good, good, dv.Run(pool_enable=9)]
    error = loose.refused(dv.Conv(input_buf=loose.memory, output_buf=loose.large, w=8, h=8, c=8, run=runs))
    assert error.slot == "run[2].pool_enable"


STRICT_RUNS = {
    "an average beside a convolution": ("pool_enable", {"pool_enable": 2, "pool_size": (2, 2)}),
    "an upsampling beside a convolution": ("pool_enable", {"pool_enable": 4}),
    "a narrow maximum": ("pool_size", {"pool_enable": 1, "conv_enable": 0, "pool_size": (1, 2)}),
    "a maximum of one": ("pool_size", {"pool_enable": 1, "conv_enable": 0, "pool_size": (1, 1)}),
    "a wide maximum": ("pool_size", {"pool_enable": 1, "conv_enable": 0, "pool_size": (4, 2)}),
    "a high maximum": ("pool_size", {"pool_enable": 1, "conv_enable": 0, "pool_size": (2, 4)}),
    "a wide average": ("pool_size", {"pool_enable": 2, "conv_enable": 0, "pool_size": (8, 1)}),
    "a dilation that shrinks": ("conv_pad", {"conv_dilation": (2, 2)}),
    "a dilation and a pooling": (
        "pool_enable",
        {"conv_dilation": (2, 2), "conv_pad": (2, 2, 2, 2), "pool_enable": 1, "pool_size": (2, 2)},
    ),
    "a dilation of an even kernel": ("p", {"conv_dilation": (2, 2), "p": (2, 3)}),
    "a dilated deconvolution in steps": (
        "conv_stride",
        {"conv_enable": 5, "conv_dilation": (2, 2), "conv_stride": (2, 2)},
    ),
    "a dilation and PReLU": ("actfunc", {"conv_dilation": (2, 2), "conv_pad": (2, 2, 2, 2), "actfunc": 4}),
    "quantized weights and PReLU": ("weight_fmt", {"weight_fmt": 3, "actfunc": 4}),
    "normalization of 8 channels": ("lrn", {"conv_enable": 0, "lrn": 0x503}),
}


@pytest.mark.parametrize("name", STRICT_RUNS)
def test_strict_lists_reject_what_the_hardware_does_not_take(loose: Place, strict: Place, name: str) -> None:
    field, fields = STRICT_RUNS[name]
    error = strict.refused(conv(strict, fields))
    assert (error.rule, error.slot) == ("D5", f"run[0].{field}")
    assert "hardware" in str(error)
    loose.takes(conv(loose, fields))


def test_strict_lists_dilate_and_normalize_in_single_runs_alone(loose: Place, strict: Place) -> None:
    plain = dv.Run(actfunc=2, m=16)
    dilated = dv.Run(
        conv_enable=1, m=16, p=(3, 3), conv_pad=(2, 2, 2, 2), conv_dilation=(2, 2), weight_buf=strict.large, actfunc=2
    )
    normalized = dv.Run(lrn=0x503, m=16)
    for run, field in ((dilated, "conv_dilation"), (normalized, "lrn")):
        for runs in ([run, plain], [plain, run]):
            command = dv.Conv(input_buf=strict.memory, output_buf=strict.large, w=8, h=8, c=16, run=runs)
            error = strict.refused(command)
            assert (error.rule, error.slot) == ("D5", f"run[{runs.index(run)}].{field}")


@pytest.mark.parametrize("name", ["input_buf", "output_buf", "eltwise_buf"])
def test_every_tensor_lies_in_its_memory(either: Place, name: str) -> None:
    need = 8 * 8 * 8 * 2
    fits = {name: either.memory + (PAGE - need), "output_mode": 1}
    either.takes(conv(either, **fits))
    for offset, slot in (
        (PAGE - need + 2, name),
        (PAGE, f"{name}.offs"),
        (1, f"{name}.offs"),
        (1 << 63, f"{name}.offs"),
    ):
        error = either.refused(conv(either, **{name: either.memory + offset}))
        assert error.slot == slot
    error = either.refused(conv(either, **{name: either.memory + (PAGE - need + 2)}))
    assert (error.expected, error.given) == (f"{need} bytes from offset {PAGE - need + 2}", str(need - 2))


def test_a_batch_is_counted(either: Place) -> None:
    either.takes(conv(either, input_circular_offset=4))
    assert either.refused(conv(either, input_circular_offset=5)).slot == "input_buf"
    error = either.refused(conv(either, input_circular_offset=4, output_buf=either.memory + 2))
    assert error.slot == "output_buf"
    assert either.refused(conv(either, input_circular_offset=32767)).slot == "input_buf"
    either.takes(conv(either, input_circular_offset=4 | dv.WEIGHTS_TRANSPOSED))
    assert either.refused(conv(either, input_circular_offset=5 | dv.WEIGHTS_TRANSPOSED)).slot == "input_buf"


def test_packed_weights_lie_in_their_memory(either: Place) -> None:
    command = conv(either)
    need = command.required_bytes()["run[0].weight_buf"]
    assert need == 16 + 8 * 144
    last = PAGE - need
    either.takes(conv(either, {"weight_buf": either.memory + last}))
    assert either.refused(conv(either, {"weight_buf": either.memory + (last + 16)})).slot == "run[0].weight_buf"


def test_strict_weights_begin_at_16_bytes(loose: Place, strict: Place) -> None:
    assert strict.refused(conv(strict, {"weight_buf": strict.large + 8})).slot == "run[0].weight_buf.offs"
    loose.takes(conv(loose, {"weight_buf": loose.large + 8}))


def test_all_runs_that_write_need_their_part_of_the_output(loose: Place) -> None:
    run = dv.Run(actfunc=2, m=8)
    fields = {"input_buf": loose.memory, "w": 8, "h": 8, "c": 8, "topo": 7, "run": [run] * 3}
    loose.takes(dv.Conv(output_buf=loose.memory + 1024, **fields))
    assert loose.refused(dv.Conv(output_buf=loose.memory + 1026, **fields)).slot == "output_buf"


def test_what_is_added_before_a_pooling_is_as_large_as_the_convolution(loose: Place) -> None:
    command = conv(
        loose, {"pool_enable": 1, "pool_size": (2, 2), "pool_stride": (2, 2)}, eltwise_buf=loose.memory, output_mode=1
    )
    assert command.required_bytes()["eltwise_buf"] == 4 * command.required_bytes()["output_buf"] == 1024


def test_the_input_is_added_only_where_it_has_the_size(either: Place) -> None:
    either.takes(conv(either, output_mode=1))
    assert either.refused(conv(either, {"m": 16}, output_mode=1)).slot == "output_mode"


def test_a_run_makes_no_more_than_a_field_holds(loose: Place) -> None:
    upsample = dv.Run(pool_enable=4, m=1)
    fields = {"input_buf": loose.large, "output_buf": loose.large, "h": 1, "c": 1}
    error = loose.refused(dv.Conv(w=40000, run=[upsample, upsample], **fields))
    assert error.slot == "run[0].output"


@pytest.mark.parametrize(
    ("slot", "fields"),
    [
        ("u8tofp16_table", {"u8tofp16_table": "late"}),
        ("to_bgr", {"to_bgr": 1, "u8tofp16_table": None}),
        ("conv_cmd.c", {"c": 4}),
        ("to_bgr", {"to_bgr": 1, "c": 2}),
    ],
)
def test_fields_of_version_1(either: Place, slot: str, fields: dict[str, Any]) -> None:
    fields = {**fields}
    inner = conv(either, c=fields.pop("c", 3))
    table = fields.pop("u8tofp16_table", either.large)
    table = either.memory + (PAGE - 1536 + 16) if table == "late" else table
    assert either.refused(dv.ConvV1(u8tofp16_table=table, conv_cmd=inner, **fields)).slot == slot


@pytest.mark.parametrize(
    ("slot", "fields"),
    [
        ("weight_buf.mem", {"weight_buf": None}),
        ("input_buf.mem", {"input_buf": None}),
        ("output_buf.mem", {"output_buf": None}),
        ("input_size", {"input_size": 0}),
        ("output_size", {"output_size": 0}),
        ("weight_fmt", {"weight_fmt": 2}),
        ("actfunc", {"actfunc": 5}),
        ("actfunc", {"actfunc": 6}),
        ("weight_buf", {"input_size": 8192, "output_size": 8192}),
        ("input_buf", {"input_size": 2049}),
        ("output_buf", {"output_size": 2049}),
        ("input_buf.offs", {"input_buf": 3}),
    ],
)
def test_fields_of_a_fully_connected_command(either: Place, slot: str, fields: dict[str, Any]) -> None:
    if isinstance(fields.get("input_buf"), int):
        fields = {"input_buf": either.memory + fields["input_buf"]}
    assert either.refused(fc(either, **fields)).slot == slot


@pytest.mark.parametrize("field", ["input_size", "output_size"])
def test_strict_vectors(loose: Place, strict: Place, field: str) -> None:
    for place in (loose, strict):
        place.vectors = place.context.memory(1 << 16)
    fields = {field: 16385}
    error = strict.refused(fc(strict, **fields, input_buf=strict.vectors, output_buf=strict.vectors))
    assert (error.rule, error.slot) == ("D5", field)
    loose.takes(fc(loose, **fields, input_buf=loose.vectors, output_buf=loose.vectors))


@pytest.mark.parametrize(
    ("slot", "fields"),
    [
        ("input_buf.mem", {"input_buf": None}),
        ("output_buf.mem", {"output_buf": None}),
        ("width", {"width": 0}),
        ("height", {"height": 0}),
        ("nclass", {"nclass": 1}),
        ("input_buf", {"width": 512, "height": 512}),
        ("output_buf", {"width": 128, "height": 64}),
    ],
)
def test_fields_of_a_maximizer_command(either: Place, slot: str, fields: dict[str, Any]) -> None:
    assert either.refused(maximizer(either, **fields)).slot == slot


# ---- raw bytes


def test_headers(either: Place) -> None:
    good = bytes(conv(either))
    for offset, value, slot in ((4, 0, "device_type"), (4, 5, "device_type"), (5, 2, "version"), (0, 1, "size")):
        raw = bytearray(good)
        raw[offset] = value
        assert either.refused(bytes(raw)).slot == f"header.{slot}"
    assert either.refused(b"\0" * 7).slot == "header.size"
    shorter = np.frombuffer(good, np.uint8)[:1856].copy()
    shorter[:4] = np.array([1856], "<u4").view(np.uint8)
    assert either.refused(shorter.tobytes()).slot == "header.size"
    other = bytearray(bytes(fc(either)))
    other[4] = dv.DEV_MAXIMIZER
    assert either.refused(bytes(other)).slot == "header.size"


def test_a_handle_of_no_memory(either: Place) -> None:
    raw = bytearray(bytes(conv(either)))
    raw[8:16] = (1 << 60).to_bytes(8, "little")
    error = either.refused(bytes(raw))
    assert "live Memory" in error.expected and error.given == str(1 << 60)


def test_a_closed_memory_is_not_named(loose: Place) -> None:
    memory = loose.context.memory(PAGE)
    raw = bytes(conv(loose, input_buf=memory))
    memory.close()
    assert "live Memory" in loose.refused(raw).expected
    with pytest.raises(pumice.StateError, match="closed"):
        bytes(conv(loose, input_buf=memory))


@pytest.mark.parametrize(("field", "value"), [("w", 65536), ("c", -1), ("topo", 1 << 32)])
def test_numbers_that_a_field_does_not_hold(loose: Place, field: str, value: int) -> None:
    with pytest.raises(pumice.BindingError, match=f"'{field}'.*{value}"):
        bytes(conv(loose, **{field: value}))


def test_pairs_hold_bytes(loose: Place) -> None:
    with pytest.raises(pumice.BindingError, match=r"'conv_stride'.*\(256, 1\)"):
        bytes(dv.Run(conv_stride=(256, 1)))


def test_more_than_32_runs(loose: Place) -> None:
    with pytest.raises(pumice.BindingError, match="at most 32 runs; given 33"):
        bytes(dv.Conv(run=[dv.Run()] * 33))


# ---- lists


def test_an_empty_list(either: Place) -> None:
    with pytest.raises(pumice.BindingError, match="at least one command"):
        either.context.command_list().commit()


def test_strict_lists_are_for_one_device(loose: Place, strict: Place) -> None:
    with strict.context.command_list() as commands:
        commands.add(conv(strict))
        commands.add(fc(strict))
        with pytest.raises(pumice.BindingError, match="commands of one device"):
            commands.commit()
    with strict.context.command_list() as commands:
        commands.add(maximizer(strict))
        commands.add(maximizer(strict))
        with pytest.raises(pumice.BindingError, match="a single command"):
            commands.commit()
    with loose.context.command_list() as commands:
        for command in (maximizer(loose), maximizer(loose), fc(loose)):
            commands.add(command)
        commands.commit()
        commands.run(timeout=60)
