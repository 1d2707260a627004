"""Old public names work, warn once and name their successors."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pumice
from control_graphs import counting_loop, integer
from decoder_folders import STORY
from onnx_models import relu
from pumice.base.deprecation import RENAMED
from pumice.base.errors import InputError

MESSAGES = [{"role": "user", "content": "Tell me of a fox."}]
X = np.float32([[1, -2, 3, -4]])


Call = Callable[["Objects"], Any]


class Objects(NamedTuple):
    context: pumice.Context
    generator: pumice.text.Generator
    session: pumice.text.Session
    report: pumice.ValidationReport
    profile: pumice.Profile
    loop: pumice.Program

    def load(self, fusion: str) -> Any:
        """Return the results of a model loaded with one fusion."""
        with pumice.load(relu(), self.context, fuse=[fusion]) as model:
            return model(X).tolist()


def _copy_with_template(folder: Path) -> Path:
    """Copy the example decoder and give it a chat template without jinja2."""
    shutil.copytree(STORY, folder)
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["prompt_templates"] = {"user": "[{Content}]"}
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def objects(pumice_context: pumice.Context, tmp_path_factory: pytest.TempPathFactory) -> Any:
    model = pumice.load(relu(), pumice_context)
    report = pumice.validate(model, [(X,)])
    with pumice.profile() as profile:
        model(X)
    folder = _copy_with_template(tmp_path_factory.mktemp("decoder") / "story")
    with pumice.text.Generator(folder, pumice_context) as generator:
        session = generator.session()
        session("Once", max_tokens=2)
        yield Objects(pumice_context, generator, session, report, profile, counting_loop().compile(pumice_context))


def _quirk(objects: Objects) -> pumice.DriverQuirk:
    with pumice.Context(objects.context.info.name, quirks=["loop_limit"]) as context:
        return next(quirk for quirk in context.driver_quirks if quirk.name == "loop_limit")


def _error(objects: Objects) -> pumice.text.ContextError:
    with pytest.raises(pumice.text.ContextError) as caught:
        objects.session([5] * 600)
    return caught.value


def _template(objects: Objects, method: str, **keywords: bool) -> Any:
    return getattr(objects.generator, method)(MESSAGES, **keywords)


def _operator(name: str) -> Call:
    """Return a function that returns the error of the operator without inputs; it contains the operator's name."""

    def error(_: Objects) -> str:
        with pytest.raises(pumice.Error) as caught:
            pumice.Operator(f"pumice::{name}", [], [])
        return str(caught.value)

    return error


# Old name -> a use of it, and of its successor.
USES: dict[str, tuple[Call, Call]] = {
    "DriverQuirk.answer": (lambda o: _quirk(o).answer, lambda o: _quirk(o).workaround),
    "DriverQuirk.shown": (lambda o: _quirk(o).shown, lambda o: _quirk(o).detected),
    "Profile.table(most)": (lambda o: o.profile.table(most=1), lambda o: o.profile.table(max_rows=1)),
    "Program.observe_runs(most)": (
        lambda o: len(o.loop.observe_runs((integer(0), integer(3)), most=1)["runs"]),
        lambda o: len(o.loop.observe_runs((integer(0), integer(3)), max_runs=1)["runs"]),
    ),
    "ValidationReport.told": (lambda o: o.report.told(), lambda o: o.report.finding_lines()),
    "ValidationRow.judged": (lambda o: o.report.rows[0].judged, lambda o: o.report.rows[0].deviation),
    **{
        f"load(fuse=['{old}'])": (lambda o, old=old: o.load(old), lambda o, new=new: o.load(new))  # type: ignore[misc]
        for old, new in (("block_products", "block_quant"), ("integer_products", "qlinear"))
    },
    **{
        f"Operator('pumice::{old}')": (_operator(old), _operator(new))
        for old, new in (
            ("BlockMatMul", "BlockQuantMatMul"),
            ("ProductSoftmax", "MatMulSoftmax"),
            ("SelectBoxes", "NMS"),
            ("SuppressBoxes", "SoftNMS"),
        )
    },
    "text.ContextError.most": (lambda o: _error(o).most, lambda o: _error(o).context_length),
    "text.Generator.apply_template(answer)": (
        lambda o: _template(o, "apply_template", answer=False),
        lambda o: _template(o, "apply_template", add_generation_prompt=False),
    ),
    "text.Generator.device": (lambda o: o.generator.device, lambda o: o.generator.decoder),
    "text.Generator.encoded": (lambda o: o.generator.encoded("a fox"), lambda o: o.generator.encode("a fox")),
    "text.Generator.template_text(answer)": (
        lambda o: _template(o, "template_text", answer=False),
        lambda o: _template(o, "template_text", add_generation_prompt=False),
    ),
    "text.Generator(width)": (
        lambda o: o.generator("a fox", max_tokens=4, speculate="ngram", width=2),
        lambda o: o.generator("a fox", max_tokens=4, speculate="ngram", num_draft_tokens=2),
    ),
    "text.Session.room": (lambda o: o.session.room, lambda o: o.session.capacity),
}


def test_every_deprecated_name_is_tested() -> None:
    assert USES.keys() == RENAMED.keys()


@pytest.mark.parametrize("old", USES)
def test_a_deprecated_name_warns_and_works(old: str, objects: Objects) -> None:
    use_old, use_new = USES[old]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = use_old(objects)
    (warning,) = [each for each in caught if each.category is DeprecationWarning]
    assert str(warning.message) == f"pumice.{old} is now pumice.{RENAMED[old]}"
    assert warning.filename == __file__  # the warning names the caller's line
    assert result == use_new(objects)


def test_a_value_under_both_names_is_refused(objects: Objects) -> None:
    with (
        pytest.raises(
            InputError, match=r"table\(most\): expected no value in addition to .*table\(max_rows\), given 3"
        ),
        pytest.warns(DeprecationWarning),
    ):
        objects.profile.table(max_rows=2, most=3)
