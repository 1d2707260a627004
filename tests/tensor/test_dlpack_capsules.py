"""DLPack capsules with inconsistent fields: rejected before any element is read, and released."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice

NAME, VERSIONED = b"dltensor", b"dltensor_versioned"
HUGE = 1 << 62


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class ElementType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("rank", ctypes.c_int32),
        ("type", ElementType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("array", Array), ("owner", ctypes.c_void_p), ("release", RELEASE)]


class VersionedManaged(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("release", RELEASE),
        ("flags", ctypes.c_uint64),
        ("array", Array),
    ]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """A producer of float32 [2, 3] with values 0 to 5; `change` may alter any field of the capsule."""

    def __init__(self, change: Callable[[Producer], Any] = lambda _: None, versioned: bool = True) -> None:
        self.memory = np.arange(6, dtype=np.float32)
        self.shape = (ctypes.c_int64 * 16)(2, 3)
        self.strides = (ctypes.c_int64 * 16)(3, 1)
        self.released = 0
        self.device: Any = (1, 0)
        self.name = VERSIONED if versioned else NAME
        self.managed: Any = VersionedManaged(1, 0) if versioned else Managed()
        self.managed.release = RELEASE(self._release)
        self.array = self.managed.array
        self.array.data = self.memory.ctypes.data
        self.array.device = Device(1, 0)
        self.array.rank = 2
        self.array.type = ElementType(2, 32, 1)
        self.array.shape = self.shape
        self.array.strides = self.strides
        change(self)
        self.capsule = _new_capsule(ctypes.addressof(self.managed), self.name, None)

    def _release(self, _: int) -> None:
        self.released += 1

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


def put(**fields: Any) -> Callable[[Producer], None]:
    """Return a change that sets fields of the array."""

    def change(producer: Producer) -> None:
        for name, value in fields.items():
            setattr(producer.array, name, value)

    return change


def sizes(name: str, *values: int) -> Callable[[Producer], None]:
    """Return a change that sets the sizes or strides."""

    def change(producer: Producer) -> None:
        getattr(producer, name)[: len(values)] = values

    return change


def packed(rows: int, columns: int) -> Callable[[Producer], None]:
    """Return a change that sets the sizes and removes the strides."""

    def change(producer: Producer) -> None:
        producer.shape[:2] = rows, columns
        producer.array.strides = None

    return change


CONTRADICTIONS: dict[str, tuple[Callable[[Producer], Any], str]] = {
    "other device": (put(device=Device(2, 0)), r"expected .*__dlpack_device__, \(1, 0\); given .*\(2, 0\)"),
    "negative rank": (put(rank=-1), "expected .*0 to 8 axes; given ndim -1"),
    "huge rank": (put(rank=1 << 30), f"expected .*0 to 8 axes; given ndim {1 << 30}"),
    "no shape": (put(shape=None), "expected .*a shape of 2 sizes; given a null pointer"),
    "no data": (put(data=None), r"expected .*data.*; given a null pointer.*float32\[2, 3\]"),
    "negative size": (sizes("shape", 2, -3), r"expected .*non-negative sizes; given shape \[2, -3\]"),
    "huge size": (sizes("shape", HUGE, 1), rf"expected .*at most 4294967295 elements; given shape \[{HUGE}, 1\]"),
    "sizes whose product overflows": (sizes("shape", HUGE, HUGE), "expected .*at most 4294967295 elements"),
    "sizes whose product overflows to 0": (sizes("shape", 1 << 32, 1 << 32), "expected .*at most 4294967295 elements"),
    "more than the memory": (packed(1 << 15, 1 << 16), "expected .*memory of this process; given .*unmapped memory"),
    "huge stride": (sizes("strides", HUGE, 1), r"expected .*strides.*2\*\*63 bytes; given strides"),
    "stride beyond the memory": (
        sizes("strides", 1 << 40, 1),
        "expected .*memory of this process; given .*unmapped memory",
    ),
    "stride before the memory": (sizes("strides", -(1 << 40), 1), "expected .*(address space|memory of this process)"),
    "least stride": (sizes("strides", -(1 << 63), 1), r"expected .*strides.*2\*\*63 bytes"),
    "offset beyond the memory": (put(byte_offset=1 << 45), "expected .*memory of this process; given byte_offset"),
    "offset that wraps": (put(byte_offset=(1 << 64) - 1), "expected .*address space; given byte_offset"),
    "address that is not mapped": (put(data=4096), "expected .*memory of this process"),
    "no bits": (put(type=ElementType(2, 0, 1)), "expected elements of a dtype.*given DLPack's code 2 with 0 bits"),
    "odd bits": (put(type=ElementType(0, 31, 1)), "expected elements of a dtype.*with 31 bits"),
    "no lanes": (put(type=ElementType(2, 32, 0)), "expected elements of a dtype.*in 0 lanes"),
    "lanes": (put(type=ElementType(2, 32, 4)), "expected elements of a dtype.*in 4 lanes"),
    "unknown code": (put(type=ElementType(200, 32, 1)), "expected elements of a dtype.*code 200"),
}


@pytest.mark.parametrize("copy", [None, False])
@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictory_fields_are_rejected(
    context: pumice.Context, case: str, versioned: bool, copy: bool | None
) -> None:
    change, message = CONTRADICTIONS[case]
    producer = Producer(change, versioned)
    with pytest.raises((pumice.BindingError, pumice.UnsupportedError), match=message):
        pumice.from_dlpack(producer, context, copy=copy)
    assert producer.released == 1


def test_the_fields_unchanged_are_read(context: pumice.Context) -> None:
    for versioned in (True, False):
        producer = Producer(versioned=versioned)
        expected = producer.memory.reshape(2, 3)
        np.testing.assert_array_equal(pumice.from_dlpack(producer, context).numpy(), expected)
        assert producer.released == 1


@pytest.mark.parametrize(
    "change",
    [
        put(strides=None),
        lambda one: (put(data=None, strides=None)(one), sizes("shape", 0, 3)(one)),
        lambda one: (sizes("shape", 0, 3)(one), sizes("strides", HUGE, HUGE)(one)),
        put(rank=0, shape=None, strides=None),
        lambda one: setattr(one.managed, "minor", 3),
        lambda one: setattr(one.managed, "flags", 4),
    ],
    ids=["no strides", "no elements", "no elements of odd strides", "scalar", "minor version", "padded flag"],
)
def test_what_is_allowed_is_read(context: pumice.Context, change: Callable[[Producer], Any]) -> None:
    producer = Producer(change)
    shape = tuple(producer.shape[: producer.array.rank])
    tensor = pumice.from_dlpack(producer, context)
    assert tensor.shape == shape
    np.testing.assert_array_equal(tensor.numpy().ravel(), producer.memory[: tensor.size])


@pytest.mark.parametrize(("field", "value"), [("major", 0), ("major", 2), ("flags", 8), ("flags", 1 << 63)])
def test_versions_and_flags_that_are_not_known_are_rejected(context: pumice.Context, field: str, value: int) -> None:
    producer = Producer(lambda one: setattr(one.managed, field, value))
    message = f"expected a capsule of DLPack 1.x, given version {value}" if field == "major" else f"the flags {value}"
    with pytest.raises(pumice.UnsupportedError, match=message):
        pumice.from_dlpack(producer, context)


def test_read_only_memory_is_only_copied(context: pumice.Context) -> None:
    read_only = lambda one: setattr(one.managed, "flags", 1)  # noqa: E731
    assert pumice.from_dlpack(Producer(read_only), context).shape == (2, 3)
    with pytest.raises(pumice.UnsupportedError, match="read-only"):
        pumice.from_dlpack(Producer(read_only), context, copy=False)


def test_a_capsule_is_taken_once(context: pumice.Context) -> None:
    producer = Producer()
    pumice.from_dlpack(producer, context)
    expected = "given a capsule named 'used_dltensor_versioned', which another consumer has used already"
    with pytest.raises(pumice.BindingError, match=expected):
        pumice.from_dlpack(producer, context)
    assert producer.released == 1


@pytest.mark.parametrize("given", [None, "text", 5])
def test_what_is_no_capsule_is_rejected(context: pumice.Context, given: Any) -> None:
    producer = Producer()
    producer.capsule = given
    expected = f"__dlpack__ returns a capsule named 'dltensor'.*given {type(given).__name__}"
    with pytest.raises(pumice.BindingError, match=expected):
        pumice.from_dlpack(producer, context)


def test_a_capsule_of_another_name_is_rejected(context: pumice.Context) -> None:
    producer = Producer(lambda one: setattr(one, "name", b"arrow_schema"))
    with pytest.raises(pumice.BindingError, match="given a capsule named 'arrow_schema'"):
        pumice.from_dlpack(producer, context)


@pytest.mark.parametrize("device", ["cpu", (1,), (1, 2, 3), (1 << 40, 0), None])
def test_a_device_that_is_no_pair_of_integers_is_rejected(context: pumice.Context, device: Any) -> None:
    producer = Producer(lambda one: setattr(one, "device", device))
    with pytest.raises(pumice.BindingError, match="a pair of integers"):
        pumice.from_dlpack(producer, context)
