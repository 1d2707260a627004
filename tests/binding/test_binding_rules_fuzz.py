"""Fuzz test of binding tables: the engine and the oracle reject the same random ranges, by the same rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pumice
from binding_oracle import Described, Memory, Model, Range, Rejection, Table
from binding_tables import F64, initialise, operator, run
from pumice import BindingTable, Buffer, BufferRange, CommandList, Initializer, Tensor, TensorDesc

ROWS, OWNED, HALF = (
    TensorDesc("float32", [4, 8]),
    TensorDesc("float32", [8, 8], owned=True),
    TensorDesc("float32", [32]),
)
ALIGNED = TensorDesc("float32", [64], alignment=64)
EMPTY = TensorDesc("float32", [0])
TALL, WIDE = TensorDesc("float32", [8, 8], strides=[1, 8]), TensorDesc("float32", [8, 8])
IMAGE, FILTER, RESULT = (TensorDesc("float32", shape) for shape in ([1, 2, 5, 5], [3, 2, 3, 3], [1, 3, 3, 3]))
SIZE = 4096

Strategy = st.SearchStrategy


def described(desc: TensorDesc | None) -> Described:
    if desc is None:
        return Described(None)
    return Described(desc.bytes, desc.owned, max(16, desc.alignment), (desc.dtype, desc.shape, desc.strides))


def model_of(compiled: pumice.CompiledOperator, in_place: set[tuple[int, int]]) -> Model:
    needs = compiled.binding_properties
    return Model(
        tuple(described(slot.desc) for slot in compiled.inputs),
        tuple(described(slot.desc) for slot in compiled.outputs),
        needs.temporary_bytes,
        needs.persistent_bytes,
        frozenset(in_place),
    )


@dataclass
class World:
    """Buffers by their names in the oracle, and dispatchables with their models."""

    buffers: dict[str, Buffer]
    memories: list[Memory]
    subjects: list[tuple[pumice.Dispatchable, Model]]
    strategies: list[Strategy[list[tuple[str, Any]]]]  # sequences of calls for each subject

    def real(self, binding: Any) -> Any:
        if isinstance(binding, list):
            return [self.real(one) for one in binding]
        if binding is None:
            return None
        if binding.tensor is None:
            return BufferRange(self.buffers[binding.memory.name], binding.offset, binding.bytes)
        dtype, shape, strides = binding.tensor
        desc = TensorDesc(dtype, shape, strides)
        return Tensor(desc, self.buffers[binding.memory.name], binding.offset // 4)


@pytest.fixture(scope="module")
def world(pumice_context: pumice.Context) -> Iterator[World]:
    context = pumice_context
    described_operators: list[tuple[str, list[TensorDesc | None], list[TensorDesc | None], dict[str, int], set[tuple[int, int]]]] = [
        ("Add", [F64, F64], [F64], {}, {(0, 0), (1, 0)}),
        ("PRelu", [ALIGNED, F64], [ALIGNED], {}, {(0, 0)}),
        ("Softmax", [F64], [F64], {}, set()),
        ("Relu", [TALL], [WIDE], {}, {(0, 0)}),
        ("Split", [F64], [HALF, HALF], {"axis": 0}, set()),
        ("Concat", [HALF, EMPTY, HALF], [F64], {"axis": 0}, set()),
        ("MatMul", [ROWS, OWNED], [ROWS], {}, set()),
        ("Conv", [IMAGE, FILTER, None], [RESULT], {}, set()),
    ]  # fmt: skip
    subjects: list[tuple[pumice.Dispatchable, Model]] = []
    for name, inputs, outputs, attributes, in_place in described_operators:
        compiled = operator(context, name, inputs, outputs, **attributes)
        subjects.append((compiled, model_of(compiled, in_place)))
    for picked in ([], [6], [0, 6], [6, 0, 7]):
        targets = [operator(context, *described_operators[i][:3], **described_operators[i][3]) for i in picked]
        models = tuple(model_of(one, set()) for one in targets)
        subjects.append((Initializer(context, targets), Model(targets=models)))
    with pumice.Context(f"uuid:{context.info.uuid}") as other:
        memories = [Memory(name, SIZE) for name in ("a", "b", "c")]
        memories += [Memory("upload", SIZE, "upload"), Memory("readback", SIZE, "readback")]
        memories.append(Memory("foreign", SIZE, foreign=True))
        buffers = {one.name: Buffer(other if one.foreign else context, one.bytes, one.heap) for one in memories}
        world = World(buffers, memories, subjects, [])
        world.strategies = [calls(world, model) for _, model in subjects]
        yield world


def ranges(world: World, slot: Described | None, resource: int, empty: bool = False) -> Strategy[Range | None]:
    """Draw mostly valid ranges for the slot, and sometimes invalid ones."""
    if empty:
        return st.one_of(*[st.none()] * 7, ranges(world, slot, resource))
    size = resource or (slot.bytes or 0 if slot else 0)
    common = st.sampled_from(world.memories[:2])
    memory = st.one_of(*[common] * (2 if slot and slot.owned else 8), st.sampled_from(world.memories))
    step = 256 if resource else 64
    offset = st.one_of(
        *[st.integers(0, 7).map(lambda k: k * step)] * 8,
        st.sampled_from([8, 16, 32, 100, SIZE - 16, SIZE, SIZE + 64, 2**64 - 16]),
    )
    extent = st.sampled_from([size] * 24 + [size + 16, size + 256, max(size - 4, 0), 0, 2**63])
    plain: Strategy[Range | None] = st.builds(Range, memory, offset, extent)
    choices = [plain] * 5
    if slot and slot.tensor and not resource:
        choices.append(tensors(world, slot))
    return st.one_of(*choices, st.none())


def tensors(world: World, slot: Described) -> Strategy[Range | None]:
    dtype, shape, strides = slot.tensor or ("float32", (), ())
    rows = (shape[0], *([1] * (len(shape) - 1))) if shape else ()
    variants = [(dtype, shape, strides)] * 3
    variants += [
        ("int32", shape, strides),
        (dtype, (*shape, 1), (*strides, 1)),
        (dtype, shape, tuple(2 * s for s in strides)),
    ]
    variants.append((dtype, rows, tuple(1 for _ in rows)))

    def build(memory: Memory, block: int, variant: tuple[str, tuple[int, ...], tuple[int, ...]]) -> Range:
        return Range(memory, 64 * block, TensorDesc(*variant).bytes, variant)

    return st.builds(build, st.sampled_from(world.memories[:3]), st.integers(0, 7), st.sampled_from(variants))


def lists(
    world: World, slots: tuple[Described, ...], resources: tuple[int, ...], empty: tuple[bool, ...] = ()
) -> Strategy[Any]:
    """Draw a binding for every slot, sometimes one too many or too few, or a nested list."""
    empty = empty or (False,) * len(slots)
    right = st.tuples(*(ranges(world, *one) for one in zip(slots, resources, empty, strict=True))).map(list)
    odd = st.lists(st.one_of(ranges(world, None, 256), st.lists(ranges(world, None, 256), max_size=2)), max_size=4)
    return st.one_of(*[right] * 12, odd, st.none())


def calls(world: World, model: Model) -> Strategy[list[tuple[str, Any]]]:
    if model.targets is None:
        absent = tuple(slot.owned or slot.bytes is None for slot in model.inputs)
        inputs = lists(world, model.inputs, (0,) * len(model.inputs), absent)
        outputs = lists(world, model.outputs, (0,) * len(model.outputs))
    else:
        arrays = [
            st.one_of(
                st.none(),
                *[lists(world, one.inputs, (0,) * len(one.inputs), tuple(not slot.owned for slot in one.inputs))] * 5,
            )
            for one in model.targets
        ]
        inputs = st.one_of(*[st.tuples(*arrays).map(list)] * 5, lists(world, (), ()))
        sizes = tuple(target.persistent for target in model.targets)
        outputs = lists(world, tuple(Described(size) for size in sizes), sizes)
    temporary, persistent = (ranges(world, None, size) for size in (model.temporary, model.persistent))
    call = st.one_of(
        st.tuples(st.just("bind_inputs"), inputs),
        st.tuples(st.just("bind_outputs"), outputs),
        st.tuples(st.just("bind_temporary"), temporary),
        st.tuples(st.just("bind_persistent"), persistent),
    )
    first = st.tuples(st.tuples(st.just("bind_inputs"), inputs), st.tuples(st.just("bind_outputs"), outputs)).map(list)
    return st.builds(lambda a, b: [*a, *b], first, st.lists(call, max_size=6))


def outcome(call: Callable[[], object]) -> str | None:
    """Return the rule of the error, if any."""
    try:
        call()
    except pumice.BindingError as error:
        assert error.slot and error.expected and error.given, error
        return error.rule
    except Rejection as refused:
        return refused.rule
    return None


SEEN: set[str | None] = set()


def compare(world: World, data: st.DataObject) -> None:
    subject = data.draw(st.integers(0, len(world.subjects) - 1), label="subject")
    dispatchable, model = world.subjects[subject]
    table, oracle = BindingTable(dispatchable), Table(model)
    for name, given_binding in data.draw(world.strategies[subject], label="calls"):
        nested = isinstance(given_binding, list) and any(
            isinstance(one, list) and any(isinstance(entry, list) for entry in one) for one in given_binding
        )
        if nested:
            continue
        real = world.real(given_binding)
        wanted = outcome(lambda: getattr(oracle, name)(given_binding))  # noqa: B023
        found = outcome(lambda: getattr(table, name)(real))  # noqa: B023
        SEEN.add(wanted)
        assert found == wanted, f"{dispatchable.name}.{name}: the oracle says {wanted}, the engine {found}"
    commands = CommandList(dispatchable.context)
    assert outcome(lambda: commands.dispatch(dispatchable, table)) == outcome(oracle.dispatch)


QUIET = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.function_scoped_fixture,
    HealthCheck.large_base_example,
]


@settings(max_examples=400, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_random_tables_agree_with_the_oracle(world: World, data: st.DataObject) -> None:
    compare(world, data)


@pytest.mark.slow
def test_many_random_tables_agree_with_the_oracle(world: World) -> None:
    """The random tables break most of the rules that ranges can break."""

    @settings(max_examples=500, deadline=None, suppress_health_check=QUIET)
    @given(data=st.data())
    def many(data: st.DataObject) -> None:
        compare(world, data)

    many()
    assert None in SEEN
    assert len(SEEN) > 20, SEEN


GUARD = 0xA5


@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_accepted_tables_write_their_outputs_and_nothing_else(context: pumice.Context, data: st.DataObject) -> None:
    """Bind random operators, dtypes and ranges in one buffer filled with guard bytes. Rejected tables are bound again and run."""
    dtype = data.draw(st.sampled_from(["float32", "float16", "int64", "int32", "uint8"]))
    size = data.draw(st.integers(1, 70))
    name, function = data.draw(st.sampled_from([("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract)]))
    desc = TensorDesc(dtype, [size])
    compiled = operator(context, name, [desc, desc], [desc])
    initialise(context, compiled)
    offsets = [16 * data.draw(st.integers(0, 60)) for _ in range(3)]
    host = np.full(4096, GUARD, "uint8")
    values = [np.arange(size).astype(dtype), (np.arange(size) % 5 + 1).astype(dtype)]
    for offset, value in zip(offsets, values, strict=False):
        host[offset : offset + value.nbytes] = value.view("uint8")
    memory = pumice.tensor(host, context)
    a, b, y = (BufferRange(memory.buffer, offset, desc.bytes) for offset in offsets)
    table = BindingTable(compiled)
    table.bind_inputs([a, b])
    try:
        table.bind_outputs([y])
    except pumice.BindingError as error:
        assert error.rule == "H5"
        offsets[2] = 2048 + 16 * data.draw(st.integers(0, 20))
        table.bind_outputs([BufferRange(memory.buffer, offsets[2], desc.bytes)])
    operands = [host[offset : offset + size * values[0].itemsize].copy().view(dtype) for offset in offsets[:2]]
    run(context, compiled, table)
    after = memory.numpy()
    with np.errstate(all="ignore"):
        expected = function(*operands)
    begin, end = offsets[2], offsets[2] + desc.bytes
    np.testing.assert_array_equal(after[begin : begin + expected.nbytes].view(dtype), expected)
    np.testing.assert_array_equal(after[:begin], host[:begin])
    np.testing.assert_array_equal(after[end:], host[end:])
