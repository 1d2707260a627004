"""Indirect dispatch: the device reads the number of workgroups from a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice

# Computes the number of workgroups of four for `n` elements, like a preceding kernel.
COUNT = """
layout(binding = 0) readonly buffer N { uint n[]; };
layout(binding = 1) buffer G { uint g[]; };
layout(push_constant) uniform P { uint first; };
void main() { g[first] = (n[0] + 3u) / 4u; g[first + 1u] = n[1]; g[first + 2u] = 1u; }
"""
# Counts the invocations of each workgroup.
MARK = """
layout(local_size_x = 4) in;
layout(binding = 0) buffer Y { uint y[]; };
void main() {
  uint row = gl_NumWorkGroups.x * 4u * gl_WorkGroupID.y;
  atomicAdd(y[row + gl_GlobalInvocationID.x], gl_NumWorkGroups.x);
}
"""


@pytest.fixture
def mark(context: pumice.Context) -> pumice.Kernel:
    return pumice.Kernel(MARK, context, name="mark")


def tensor(context: pumice.Context, *numbers: int, dtype: str = "uint32") -> pumice.Tensor:
    return pumice.tensor(np.array(numbers, dtype), context)


def expected(columns: int, rows: int, size: int = 64) -> list[int]:
    done = columns * 4 * rows
    return [columns] * done + [0] * (size - done)


@pytest.mark.parametrize("groups", [(3, 1, 1), (1, 5, 1), (2, 2, 1), (0, 1, 1), (4, 0, 1)])
def test_a_call_runs_so_many_groups(context: pumice.Context, mark: pumice.Kernel, groups: tuple[int, ...]) -> None:
    y = np.zeros(64, "uint32")
    mark(y=y, groups=tensor(context, *groups))
    assert y.tolist() == expected(groups[0], groups[1])


def test_calls_read_the_tensor_anew(context: pumice.Context, mark: pumice.Kernel) -> None:
    counts = tensor(context, 1, 1, 1)
    for n in (1, 7, 0, 2):
        counts[:] = np.array([n, 1, 1], "uint32")
        y = np.zeros(64, "uint32")
        mark(y=y, groups=counts)
        assert y.tolist() == expected(n, 1)


@pytest.mark.parametrize("first", [0, 1, 5])
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_list_runs_what_an_earlier_kernel_counts(
    context: pumice.Context, mark: pumice.Kernel, first: int, is_shared: bool
) -> None:
    """At any offset, in a separate tensor and in one shared with the kernel's data."""
    count = pumice.Kernel(COUNT, context)
    n, memory = tensor(context, 0, 0), pumice.tensor(np.zeros(128, "uint32"), context)
    y = memory[64:] if is_shared else pumice.tensor(np.zeros(64, "uint32"), context)
    commands = pumice.CommandList(context)
    commands.dispatch(count.bind(n=n, g=memory, first=first, threads=1))
    bound = mark.bind(y=y, groups=memory[first : first + 3])
    assert bound.groups is None
    commands.dispatch(bound)
    commands.commit()
    for elements, rows in ((10, 1), (0, 1), (13, 2), (64, 0), (1, 7)):
        n[:] = np.array([elements, rows], "uint32")
        y[:] = np.zeros(64, "uint32")
        commands.exec().wait()
        assert y.numpy().tolist() == expected((elements + 3) // 4, rows)


def test_counts_change_between_two_kernels_of_a_list(context: pumice.Context, mark: pumice.Kernel) -> None:
    """Each kernel reads the counts of the kernel before it, never a later kernel's."""
    count = pumice.Kernel(COUNT, context)
    counts = tensor(context, 9, 9, 9)
    results = [pumice.tensor(np.zeros(64, "uint32"), context) for _ in range(6)]
    commands = pumice.CommandList(context)
    for i, y in enumerate(results):
        commands.dispatch(count.bind(n=tensor(context, 4 * i, 1), g=counts, first=0, threads=1))
        commands.dispatch(mark.bind(y=y, groups=counts))
    commands.commit()
    commands.exec().wait()
    for i, y in enumerate(results):
        assert y.numpy().tolist() == expected(i, 1)


def test_a_guarded_source_runs_all_invocations_of_its_groups(context: pumice.Context) -> None:
    text = "layout(local_size_x = 8) in;\nlayout(binding = 0) buffer Y { uint y[]; };\nvoid main() { atomicAdd(y[0], 1u); }"
    kernel = pumice.Kernel(text, context)
    y = np.zeros(1, "uint32")
    kernel(y=y, groups=tensor(context, 100, 30, 2))
    assert y[0] == 8 * 100 * 30 * 2


def test_bounds_are_checked_and_times_taken(context: pumice.Context) -> None:
    checked = pumice.Kernel(MARK, context, debug=True)
    y = np.zeros(6, "uint32")
    with pytest.raises(pumice.OutOfBoundsError, match="'y' at index 6"):
        checked(y=y, groups=tensor(context, 2, 1, 1))
    assert y.tolist() == [2] * 6
    times = pumice.Kernel(MARK, context).time(y=np.zeros(64, "uint32"), groups=tensor(context, 2, 1, 1), runs=2)
    assert len(times.seconds) == 2


@pytest.mark.parametrize(
    ("numbers", "dtype"), [((1, 1, 1), "int32"), ((1, 1, 1), "float32"), ((1, 1), "uint32"), ((1, 1, 1, 1), "uint32")]
)
def test_other_tensors_are_rejected(
    context: pumice.Context, mark: pumice.Kernel, numbers: tuple[int, ...], dtype: str
) -> None:
    for run in (mark, mark.bind):
        with pytest.raises(pumice.BindingError, match="three uint32") as refused:
            run(y=pumice.tensor(np.zeros(64, "uint32"), context), groups=tensor(context, *numbers, dtype=dtype))
        assert refused.value.rule == "K8"


def refusal(kernel: pumice.Kernel, **arguments: Any) -> str:
    with pytest.raises(pumice.BindingError) as refused:
        kernel.bind(**arguments)
    return f"{refused.value.rule}: {refused.value}"


def test_other_launches_are_rejected(context: pumice.Context, mark: pumice.Kernel) -> None:
    y, counts = (pumice.tensor(np.ones(n, "uint32"), context) for n in (64, 3))
    assert "K8" in refusal(mark, y=y, threads=counts)
    assert "row-major" in refusal(mark, y=y, groups=pumice.tensor(np.ones(6, "uint32"), context)[::2])
    assert "does not write" in refusal(mark, y=y, groups=y[8:11])
    free = pumice.Kernel("layout(binding = 0) buffer Y { uint y[]; };\nvoid main() { y[0] = 1u; }", context)
    assert "local_size=" in refusal(free, y=y, groups=counts)
    with pumice.Context() as other:
        foreign = pumice.tensor(np.ones(3, "uint32"), other)
        with pytest.raises(pumice.BindingError, match="context"):
            commands = pumice.CommandList(context)
            commands.dispatch(mark.bind(y=y, groups=foreign))
            commands.commit()
    closed = tensor(context, 1, 1, 1)
    closed.buffer.close()
    with pytest.raises(pumice.StateError):
        mark(y=y, groups=closed)
