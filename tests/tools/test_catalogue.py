"""The operator catalogue, and its list as Markdown."""

from __future__ import annotations

import json
import re

import pytest

import pumice
from pumice.tools import operator_catalogue
from pumice.tools.cli import main


def test_a_schema_lists_all_that_the_table_knows() -> None:
    conv = pumice.operators("Conv")
    assert (conv.name, conv.domain, conv.skeleton) == ("Conv", "ai.onnx", "contraction")
    assert conv.since[:2] == (1, 11)
    assert "convolution" in conv.doc
    assert [(role.name, role.optional) for role in conv.inputs] == [("x", False), ("w", False), ("b", True)]
    assert conv.inputs[0].dtypes == ["float32", "float16", "bfloat16"]
    attributes = {attribute.name: attribute for attribute in conv.attributes}
    assert (attributes["group"].kind, attributes["group"].default) == ("int", 1)
    assert attributes["strides"].kind == "ints"
    assert attributes["auto_pad"].default == "NOTSET"


def test_ranks_choices_in_place_and_host_inputs_are_shown() -> None:
    resize = pumice.operators("ai.onnx::Resize")
    assert resize.host_inputs == ("roi", "scales", "sizes")
    assert "cubic" in next(attribute for attribute in resize.attributes if attribute.name == "mode").choices
    assert pumice.operators("TopK").ranks == (1, 8)
    assert pumice.operators("Relu").in_place
    assert pumice.operators("Concat").inputs[0].variadic
    assert next(item for item in pumice.operators("Concat").attributes if item.name == "axis").required


def test_operators_that_become_others_are_there() -> None:
    for name in ("Loop", "RandomNormal", "DeformConv", "ai.onnx.ml::Scaler"):
        item = pumice.operators(name)
        assert item.skeleton == "composed" and item.since and item.doc
    with pytest.raises(pumice.UnsupportedError):
        pumice.operators("ai.onnx.ml::ZipMap")


def test_an_nnapi_operation_lists_its_operands_in_order() -> None:
    conv = pumice.operators("nnapi::CONV_2D")
    assert (conv.domain, conv.since) == ("nnapi", (1,))
    names = [role.name for role in conv.inputs]
    assert names[:4] == ["x", "filter", "bias", "padding_left"]
    assert [role.name for role in conv.implicit][3:6] == ["padding_scheme", "stride_width", "stride_height"]
    assert [role.kind for role in conv.inputs][2:4] == ["tensor", "scalar"]
    assert "dilation_height?" in conv.facts()["or"]
    add = pumice.operators("nnapi::ADD").as_dict()
    assert [role["dtypes"] for role in add["inputs"]][2] == ["int32"]


@pytest.mark.parametrize(("asked", "near"), [("Convolution", "Conv"), ("gatherNd", "GatherND"), ("Rezise", "Resize")])
def test_an_unknown_name_is_rejected_with_those_near_it(asked: str, near: str) -> None:
    with pytest.raises(pumice.UnsupportedError, match=f"operator {asked}; near are .*{near}"):
        pumice.operators(asked)


def test_a_name_near_none_is_rejected_alone() -> None:
    with pytest.raises(pumice.UnsupportedError, match="operator Xyzzyx$"):
        pumice.operators("Xyzzyx")


def test_every_operator_is_shown_as_text_html_and_json() -> None:
    for schema in pumice.operators():
        if schema.domain != "pumice":  # pumice's own operators have no ONNX version or text
            assert schema.since
            assert schema.doc
        assert schema.name in repr(schema)
        assert schema.qualified_name.startswith(f"{schema.domain}::")
        assert schema.qualified_name in str(schema)
        assert schema.qualified_name in schema._repr_html_()
        assert json.loads(json.dumps(schema.as_dict()))["name"] == schema.name


def test_the_command_lists_all_and_shows_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operators"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(pumice.operators())
    assert main(["operators", "TopK"]) == 0
    assert "known on the host  k" in capsys.readouterr().out
    assert main(["operators", "TopK", "Conv", "--json"]) == 0
    assert [load["name"] for load in json.loads(capsys.readouterr().out)] == ["TopK", "Conv"]
    assert main(["operators", "TopQ"]) == 2
    assert "near are TopK" in capsys.readouterr().err


def test_the_markdown_lists_every_operator_once() -> None:
    text = operator_catalogue.render_markdown()
    composed = {schema.name for schema in pumice.operators() if schema.skeleton == "composed"}
    sections = re.findall(r"^## ([\w.:]+)$", text, re.MULTILINE)
    assert sections == [schema.name for schema in pumice.operators() if schema.name not in composed]
    for name in composed:
        assert len(re.findall(rf"^\| {re.escape(name)} \|", text, re.MULTILINE)) == 1
    assert f"runs {sum(schema.domain.startswith('ai.onnx') for schema in pumice.operators())} ONNX operators" in text
