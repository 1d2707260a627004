"""Integers of any size are rejected by the rule of their argument, not with a type error."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np
import pytest

import pumice
from pumice import BindingTable, Buffer, BufferRange, CommandList, Graph, Tensor, TensorDesc

HUGE = [2**31, 2**32, 2**63, 2**64, 2**70, -(2**70), 10**5000]
NUMBERS = [-1, -16, *HUGE]


class Index:
    """A number that implements __index__ without being an int."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def relu(context: pumice.Context) -> pumice.CompiledOperator:
    desc = TensorDesc("float32", [64])
    return pumice.Operator("Relu", [desc], [desc]).compile(context)


def listed(context: pumice.Context) -> CommandList:
    commands = CommandList(context)
    commands.commit()
    return commands


# Functions that reject a negative number, or one beyond 64 bits, and the rules they may report. Some of the numbers are
# valid for some functions.
PLACES: dict[str, tuple[Callable[[pumice.Context, Any], object], set[str]]] = {
    "BufferRange offset": (lambda context, n: BufferRange(Buffer(context, 64), n, 32), {"R1"}),
    "BufferRange bytes": (lambda context, n: BufferRange(Buffer(context, 64), 0, n), {"R1"}),
    "Tensor offset": (lambda context, n: Tensor(TensorDesc("float32", [1]), Buffer(context, 64), n), {"R1", "R8"}),
    # "" is an error without a rule: out of memory
    "Buffer bytes": (lambda context, n: Buffer(context, n), {"M5", ""}),
    "size": (lambda context, n: TensorDesc("float32", [n, 0]), {"R8"}),
    "sizes of a layout": (lambda context, n: TensorDesc.with_layout("float32", [n, 1, 1, 1], "NHWC"), {"R8"}),
    "stride": (lambda context, n: TensorDesc("float32", [2], strides=[n]), {"R8"}),
    "alignment": (lambda context, n: TensorDesc("float32", [2], alignment=n), {"R4"}),
    "total_bytes": (lambda context, n: TensorDesc("float32", [2], total_bytes=n), {"R5", "R6"}),
    "zero_point": (lambda context, n: TensorDesc("int8", [2], scale=1.0, zero_point=n), {""}),
    "channel_axis": (lambda context, n: TensorDesc("int8", [2], scale=[1.0], channel_axis=n), {""}),
    "broadcast": (lambda context, n: TensorDesc("float32", [1]).broadcast_to([n]), {"R8", ""}),
    "permutation": (lambda context, n: TensorDesc("float32", [1, 1]).permute([0, n]), {""}),
    "rows": (lambda context, n: TensorDesc("float32", [2, 3]).pad_rows(n), {"R8", ""}),
    "buffer_size": (lambda context, n: pumice.buffer_size("float32", [n]), {"R8"}),
    "buffer_size stride": (lambda context, n: pumice.buffer_size("float32", [2], [n]), {"R8"}),
    "strides": (lambda context, n: pumice.strides([1, n, 1, 1], "NHWC"), {"R8"}),
    "empty": (lambda context, n: pumice.empty((n, 0), "float32", context), {"R8"}),
    "empty, one size": (lambda context, n: pumice.empty(n, "uint8", context), {"R8", ""}),
    "reshape": (lambda context, n: pumice.zeros(6, context=context).reshape((n, 5)), {"R8", ""}),
    "view": (lambda context, n: pumice.zeros(1, context=context).broadcast_to((n,)), {"R8", ""}),
    "transpose": (lambda context, n: pumice.zeros((1, 1), context=context).transpose((0, n)), {""}),
    "squeeze": (lambda context, n: pumice.zeros((2, 2), context=context).squeeze(n), {""}),
    "expand_dims": (lambda context, n: pumice.zeros(2, context=context).expand_dims(n), {""}),
    "descriptors": (lambda context, n: BindingTable(relu(context), n), {"C10"}),
    "descriptors of a reset": (lambda context, n: BindingTable(relu(context)).reset(relu(context), n), {"C10"}),
    "execution of a list": (lambda context, n: listed(context).wait(n), {"L7"}),
    "execution": (lambda context, n: context.wait(n), {"L7"}),
    "runs": (lambda context, n: listed(context).time(-abs(index(n))), {"K12"}),
    "warm_up": (lambda context, n: listed(context).warm_up(-abs(index(n))), {"K12"}),
    "graph input": (lambda context, n: Graph().input("x", "float32", [n]), {"R8"}),
    "graph zero_point": (lambda context, n: Graph().input("x", "int8", [2], scale=1.0, zero_point=n), {""}),
    "graph bytes": (lambda context, n: Graph().constant_bytes(b"", "float32", [n]), {"R8", ""}),
    "outputs of a node": (lambda context, n: split().add("Relu", np.ones(2, "float32"), outputs=n), {""}),
    "outputs of an operator": (lambda context, n: pumice.output_descs("Relu", [TensorDesc("float32", [2])], n), {""}),
    "zero_point of an operation": (
        lambda context, n: split().add("nnapi::QUANTIZE", np.ones(2, "float32"), scale=1.0, zero_point=n),
        {""},
    ),
}
NEGATIVE_ALLOWED = {  # -1: from the end, inferred or a zero point
    "zero_point", "channel_axis", "permutation", "transpose", "reshape", "squeeze", "expand_dims", "graph zero_point", "graph input",
}  # fmt: skip


def split() -> Graph:
    return Graph()


@pytest.mark.parametrize("place", PLACES)
def test_a_number_out_of_range_is_rejected_by_its_rule(context: pumice.Context, place: str) -> None:
    call, rules = PLACES[place]
    refused = 0
    for number in [*NUMBERS, *map(Index, NUMBERS), np.int64(-(2**40)), np.uint64(2**64 - 1)]:
        try:
            call(context, number)
        except (pumice.BindingError, pumice.GraphError, pumice.StateError) as error:
            refused += 1
            assert error.rule in rules, error
            assert len(str(error)) < 400
        except (pumice.OutOfMemoryError, pumice.UnsupportedError):
            refused += 1
    assert refused >= 10


def test_what_is_no_whole_number_is_a_type_error(context: pumice.Context) -> None:
    for call, _ in PLACES.values():
        for given in (1.5, "1", np.float32(2), np.array([1.5]), object()):
            with pytest.raises((TypeError, pumice.Error)) as caught:
                call(context, given)
            assert not isinstance(caught.value, pumice.OutOfMemoryError)


def test_numbers_in_range_are_taken_as_they_are(context: pumice.Context) -> None:
    buffer = Buffer(context, Index(1024))
    assert buffer.bytes == 1024
    for whole in (16, np.int8(16), np.uint64(16), Index(16)):
        assert BufferRange(buffer, whole, 32).offset == 16
        assert BufferRange(buffer, whole).bytes == 1008
        desc = TensorDesc("float32", [whole, np.int64(3)], alignment=whole)
        assert (desc.shape, desc.alignment) == ((16, 3), 16)
    assert BufferRange(buffer, 2**64 - 16, 32).offset == 2**64 - 16  # bounds are checked at binding
    assert TensorDesc("int8", [2], scale=1.0, zero_point=-(2**31)).zero_point == -(2**31)
    assert TensorDesc("float32", [2, 3]).permute([-1, -2]).shape == (3, 2)


def test_a_message_names_what_was_given(context: pumice.Context) -> None:
    buffer = Buffer(context, 256)
    with pytest.raises(pumice.BindingError, match=r"\[R1\] offset: expected .* given -16"):
        BufferRange(buffer, -16, 32)
    with pytest.raises(pumice.BindingError, match=rf"\[R1\] bytes: .* given {2**70}"):
        BufferRange(buffer, 0, 2**70)
    with pytest.raises(pumice.GraphError, match=r"\[R4\] 'alignment'.* given -16"):
        TensorDesc("float32", [4], alignment=-16)
    with pytest.raises(pumice.GraphError, match=rf"\[R8\] 'shape'.* given {2**70}"):
        TensorDesc("float32", [2**70])
    with pytest.raises(pumice.GraphError, match=r"\[R6\] 'total_bytes'.* given -4"):
        TensorDesc("float32", [4], total_bytes=-4)
