"""Models as people export them (the folder corpus): each gives what ONNX Runtime gives, or is refused by name."""

from __future__ import annotations

import pytest

import pumice
from corpus import page, run, store

REFUSED: dict[str, str] = {}  # model -> a part of what the refusal says
HALVES = ("bert.dynamo", "gpt2.script", "resnet.dynamo")  # run in fp16 too


@pytest.mark.parametrize("name", sorted(set(store.names()) - set(REFUSED)))
def test_a_model_gives_what_onnx_runtime_gives(name: str, context: pumice.Context) -> None:
    pytest.importorskip("onnxruntime")
    stored = store.load(name)
    with pumice.load(stored.model, context) as model:
        assert run.worst_error(stored, model, run.reference(stored.model)) <= run.tolerance(stored)


@pytest.mark.parametrize("name", HALVES)
def test_a_model_in_halves_is_as_close_as_its_depth_allows(name: str, context: pumice.Context) -> None:
    pytest.importorskip("onnxruntime")
    stored = store.load(name)
    with pumice.load(stored.model, context, precision="fp16") as model:
        error = run.worst_error(stored, model, run.reference(stored.model))
    assert error <= run.tolerance(stored, "fp16")


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_not_supported_is_refused_by_name(name: str, context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match=REFUSED[name]):
        pumice.load(store.load(name).model, context)


def test_the_page_has_a_row_for_every_model() -> None:
    lines = page.PAGE.read_text().splitlines()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")]
    assert rows[1:] == store.names()
    assert {name for name, line in zip(rows[1:], lines[-len(rows) + 1 :], strict=True) if "refused:" in line} == set(REFUSED)


def test_stored_models_are_small_and_make_the_same_weights_each_time() -> None:
    files = list(store.FOLDER.iterdir())
    assert sum(file.stat().st_size for file in files) < 1_500_000
    one, other = (store.load(store.names()[0]).model for _ in range(2))
    assert one == other
    assert len(one.SerializeToString()) > 4 * files[0].stat().st_size
