"""Models as people export them (the folder corpus): each matches ONNX Runtime or is rejected by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from corpus import page, run, store
from corpus.case import arrays

REFUSED = {  # model -> message of the error
    "sklearn_dictionaries": "operator ai.onnx.ml::ZipMap: dictionaries",
}
HALVES = (  # also run in fp16
    "bert.script",
    "clip.script",
    "detr.script",
    "gan_generator.script",
    "gru.script",
    "llama.script",
    "mamba.script",
    "resnet.script",
    "spectrum.script",
    "swin.script",
    "t5.script",
    "unet.script",
    "wav2vec2.script",
    "whisper_decoder.script",
)
# Suffixes of variants, most of whose base models also run in the fast tier.
COPIES = (".script", ".fp16", "_int8")
SAMPLE = (
    "bert.script",
    "llama.script",
    "bert.qdq_int8",
    "gpt2.dynamic_int8",
    "lstm_tagger.dynamic_int8",
    "resnet.qdq_int8",
    "t5.fp16",
    "vit.fp16",
)
EXPORTED_AGAIN = ("alibi", "gan_generator", "script_if", "sklearn_logistic", "gru")


def accepted() -> Iterator[Any]:
    for name in store.names():
        if name not in REFUSED:
            slow = name.endswith(COPIES) and name not in SAMPLE
            yield pytest.param(name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("name", list(accepted()))
def test_a_model_gives_what_onnx_runtime_gives(name: str, context: pumice.Context) -> None:
    pytest.importorskip("onnxruntime")
    stored = store.load(name)
    with pumice.load(stored.model, context) as model:
        assert run.worst_error(stored, model, run.reference(stored.model)) <= run.tolerance(stored)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.slow]) for name in HALVES]
)
def test_a_model_in_float16_is_as_close_as_its_depth_allows(name: str, context: pumice.Context) -> None:
    pytest.importorskip("onnxruntime")
    stored = store.load(name)
    with pumice.load(stored.model, context, precision="fp16") as model:
        error = run.worst_error(stored, model, run.reference(stored.model))
    assert error <= run.tolerance(stored, "fp16")


def test_caches_written_by_two_kernels_have_no_hazard_in_shared_words() -> None:
    """Without 16-bit stores, parts of words are stored atomically, which the validation layer counts as a read."""
    pytest.importorskip("onnxruntime")
    stored = store.load("llama.script")
    with (
        pumice.Context(without=["storageBuffer16BitAccess"]) as narrow,
        pumice.load(stored.model, narrow, precision="fp16") as model,
    ):
        assert {row["precision"] for row in model.report()} >= {"fp16_packed"}
        error = run.worst_error(stored, model, run.reference(stored.model))
    assert error <= run.tolerance(stored, "fp16")


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_not_supported_is_rejected_by_name(name: str, context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match=REFUSED[name]):
        pumice.load(store.load(name).model, context)


def test_the_page_has_a_row_for_every_model() -> None:
    lines = [line for line in page.PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    names = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    assert names == store.names()
    assert {name for name, line in zip(names, lines, strict=True) if "refused:" in line} == set(REFUSED)


def test_stored_models_are_small_and_make_the_same_weights_each_time() -> None:
    assert sum(file.stat().st_size for file in store.FOLDER.iterdir()) < 1_500_000
    one, other = (store.load("resnet.script").model for _ in range(2))
    assert one == other
    weight = onnx.numpy_helper.to_array(max(one.graph.initializer, key=lambda tensor: np.prod(tensor.dims)))
    assert 0.5 < weight.std() * np.prod(weight.shape[1:]) ** 0.5 < 2


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED_AGAIN)
def test_a_model_exported_again_has_the_same_nodes_and_results(
    name: str, tmp_path: Path, context: pumice.Context
) -> None:
    for package in ("onnxruntime", "torch", "onnxscript", "skl2onnx"):
        pytest.importorskip(package)
    from corpus import export

    case = next(one for one in export.cases() if one.name == name)
    for make in export.files(case):
        made = make()
        kept = store.load(made.name)
        assert [node.op_type for node in made.model.graph.node] == [node.op_type for node in kept.model.graph.node]
        given = arrays(made.inputs, made.sizes[0])
        expected = run.reference(made.model).run(None, given)
        with pumice.load(made.model, context) as model:
            results = model(*(given[one.name] for one in model.inputs))
        results = [results] if len(expected) == 1 else list(results)
        for actual, wanted in zip(results, expected, strict=True):
            assert run.error_of(actual, wanted) <= run.tolerance(made)


@pytest.mark.slow
def test_there_is_a_file_for_every_case_and_no_other() -> None:
    for package in ("torch", "skl2onnx"):
        pytest.importorskip(package)
    from corpus import export

    assert sorted(name for case in export.cases() for name in case.names) == store.names()
