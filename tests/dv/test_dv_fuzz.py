"""Raw dv commands as untrusted bytes: they raise an Error of the engine, or run and write only their output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pumice
import pumice.dv as dv
from dv_samples import CORPUS, samples

SIZE = 65536
NAMES = sorted(samples())
EDGES = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 254, 255]

CHANGES = st.lists(st.tuples(st.integers(0, 1895), st.sampled_from(EDGES)), min_size=1, max_size=6)
RELAXED = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Bench:
    """Two contexts, and memories for all buffers of a command."""

    def __init__(self, device: pumice.Context) -> None:
        self.contexts = [dv.Context(device), dv.Context(device, strict=True)]
        self.source, self.target = (self.contexts[0].memory(SIZE) for _ in range(2))
        self.bystander = self.contexts[0].memory(SIZE)
        self.raw = {name: bytes(command) for name, command in samples(self.source, self.target).items()}

    def added(self, raw: bytes) -> list[dv.CommandList]:
        lists = [context.command_list() for context in self.contexts]
        kept = []
        for commands in lists:
            try:
                commands.add(raw)
                kept.append(commands)
            except pumice.BindingError as error:
                assert error.slot and error.expected and error.given
        return kept


@pytest.fixture(scope="module")
def bench(pumice_context: pumice.Context) -> Iterator[Bench]:
    yield Bench(pumice_context)


def changed(raw: bytes, changes: list[tuple[int, int]]) -> bytes:
    bytes_ = bytearray(raw)
    for at, value in changes:
        bytes_[at % len(bytes_)] = value
    return bytes(bytes_)


def test_the_corpus_is_of_these_samples() -> None:
    expected = {name: bytes(command) for name, command in samples((1, 0), (2, 0)).items()}
    kept = [path for path in CORPUS.iterdir() if not path.name.startswith(("crash-", "timeout-"))]
    assert {path.name: path.read_bytes() for path in kept} == expected, "python tests/support/dv_samples.py"


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_runs(bench: Bench, name: str) -> None:
    bench.source.write(np.zeros(SIZE, np.uint8))
    (commands, *_) = bench.added(bench.raw[name])
    commands.commit()
    commands.run(timeout=60)


@RELAXED
@given(name=st.sampled_from(NAMES), changes=CHANGES)
def test_changed_commands_are_taken_or_rejected_by_name(
    bench: Bench, name: str, changes: list[tuple[int, int]]
) -> None:
    bench.added(changed(bench.raw[name], changes))


@RELAXED
@given(raw=st.binary(max_size=2000))
def test_any_bytes(bench: Bench, raw: bytes) -> None:
    assert not bench.added(raw) or len(raw) in (48, 72, 224, 1864, 1896)


@settings(RELAXED, max_examples=40)
@given(name=st.sampled_from(NAMES), changes=CHANGES)
def test_what_is_taken_writes_its_output_alone(bench: Bench, name: str, changes: list[tuple[int, int]]) -> None:
    raw = changed(bench.raw[name], changes)
    for memory in (bench.source, bench.bystander):
        memory.write(np.full(SIZE, 0x11, np.uint8))
    for commands in bench.added(raw)[:1]:
        try:
            commands.commit()
        except (pumice.UnsupportedError, pumice.OutOfMemoryError):
            return
        commands.run(timeout=60)
        for memory in (bench.source, bench.bystander):
            if raw[24:32] != memory.handle.to_bytes(8, "little"):
                assert (memory.read(np.uint8, SIZE) == 0x11).all()
        commands.close()
