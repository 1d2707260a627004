"""Chat templates of model folders: from messages to the prompt text and its tokens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pumice
from decoder_folders import STORY

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

TEMPLATE = """{{ bos_token }}{% for message in messages %}
<|{{ message['role'] }}|>{{ message['content'] | trim }}<|end|>
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""
MESSAGES = [{"role": "user", "content": " Tell me of a fox. "}, {"role": "assistant", "content": "Once there was"}]
TEXT = "<s><|user|>Tell me of a fox.<|end|>\n<|assistant|>Once there was<|end|>\n<|assistant|>"

Opened = Callable[..., pumice.text.Generator]


@pytest.fixture
def opened(tmp_path: Path, context: pumice.Context) -> Opened:
    """Open the example with these tokenizer settings, this template file, these prompt templates."""

    def made(
        settings: dict[str, Any] | None = None, template: str | None = None, roles: dict[str, str] | None = None
    ) -> pumice.text.Generator:
        folder = tmp_path / "story"
        shutil.copytree(STORY, folder, dirs_exist_ok=True)
        if settings is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        if template is not None:
            (folder / "chat_template.jinja").write_text(template)
        config = json.loads((folder / "genai_config.json").read_text())
        config["model"].pop("prompt_templates", None)
        if roles is not None:
            config["model"]["prompt_templates"] = roles
        (folder / "genai_config.json").write_text(json.dumps(config))
        return pumice.text.Generator(folder, context)

    return made


@pytest.mark.parametrize("bos", ["<s>", {"content": "<s>", "special": True}])
@pytest.mark.parametrize("place", ["field", "list", "file"])
def test_templates_stand_in_the_settings_or_in_a_file(place: str, bos: Any, opened: Opened) -> None:
    settings: dict[str, Any] = {"bos_token": bos}
    if place == "field":
        settings["chat_template"] = TEMPLATE
    elif place == "list":
        settings["chat_template"] = [
            {"name": "tool_use", "template": "other"},
            {"name": "default", "template": TEMPLATE},
        ]
    with opened(settings, TEMPLATE if place == "file" else None) as generator:
        assert generator.template_text(MESSAGES) == TEXT
        assert generator.template_text(MESSAGES, add_generation_prompt=False) == TEXT.removesuffix("<|assistant|>")


def test_tokens_of_a_template_are_a_prompt(opened: Opened) -> None:
    with opened({"bos_token": ""}, "{% for one in messages %}{{ one.content }}{% endfor %}") as generator:
        tokens = generator.apply_template([{"role": "user", "content": "Once there was a fox"}])
        assert tokens == generator.encode("Once there was a fox", special=False)
        text = "".join(generator.stream(tokens, max_tokens=8))
        assert text == "".join(generator.stream("Once there was a fox", max_tokens=8))


def test_variables_and_functions_of_templates(opened: Opened) -> None:
    text = "{{ tools | tojson }}{{ strftime_now('%Y') | length }}{% for i in [1, 2] %}{% break %}{% endfor %}"
    with opened({}, text) as generator:
        assert generator.template_text(MESSAGES, tools={"a": "é<"}) == '{"a": "é<"}4'


def test_tools_and_documents_are_none_if_not_given(opened: Opened) -> None:
    """As in transformers; templates test them without `is defined`."""
    text = "{% if tools is not none %}T{% endif %}{% if documents is none %}D{% endif %}"
    with opened({}, text) as generator:
        assert generator.template_text(MESSAGES) == "D"
        assert generator.template_text(MESSAGES, tools=[{}], documents=[]) == "T"


def test_a_template_for_tools_serves_calls_with_tools(opened: Opened) -> None:
    templates = [{"name": "tool_use", "template": "with"}, {"name": "default", "template": "without"}]
    with opened({"chat_template": templates}) as generator:
        assert generator.template_text(MESSAGES) == "without"
        assert generator.template_text(MESSAGES, tools=[{"name": "look"}]) == "with"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("ensure_ascii=true", '{"b": "\\u00e9", "a": [1, 2]}'),
        ("separators=(',', ':')", '{"b":"é","a":[1,2]}'),
        ("sort_keys=true", '{"a": [1, 2], "b": "é"}'),
        ("indent=1", '{\n "b": "é",\n "a": [\n  1,\n  2\n ]\n}'),
    ],
)
def test_json_has_the_options_of_transformers(options: str, expected: str, opened: Opened) -> None:
    with opened({}, "{{ tools | tojson(" + options + ") }}") as generator:
        assert generator.template_text(MESSAGES, tools={"b": "é", "a": [1, 2]}) == expected


def test_tags_of_what_the_model_says_leave_it_as_it_is(opened: Opened) -> None:
    text = "{% for m in messages %}{% generation %}{{ m.role }}:{% endgeneration %}{% endfor %}"
    with opened({}, text) as generator:
        assert generator.template_text(MESSAGES) == "user:assistant:"


def test_prompt_templates_take_the_place_of_a_template(opened: Opened) -> None:
    with opened(None, None, {"user": "[{Content}]", "assistant": "({Content})"}) as generator:
        assert generator.template_text(MESSAGES) == "[ Tell me of a fox. ](Once there was)"
        with pytest.raises(pumice.Error, match="role among assistant, user .*given 'tool'"):
            generator.template_text([{"role": "tool", "content": ""}])


@pytest.mark.parametrize(
    ("template", "error", "message"),
    [
        ("{% if %}", pumice.text.FolderError, "expected a template in Jinja"),
        ("{{ 1 // 0 }}", pumice.text.FolderError, "the template failed: ZeroDivisionError"),
        ("{{ messages.append(1) }}", pumice.text.FolderError, "the template failed: SecurityError"),
        ("{{ ''.__class__.__mro__ }}", pumice.text.FolderError, "the template failed: SecurityError"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", pumice.text.FolderError, "the template failed: OverflowError"),
        (
            "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
            pumice.text.FolderError,
            "at most 16777216 characters",
        ),
        ("{{ raise_exception('one user') }}", pumice.Error, "chat template rejects them: one user"),
    ],
)
def test_templates_that_fail_say_so(template: str, error: type[Exception], message: str, opened: Opened) -> None:
    with opened({}, template) as generator, pytest.raises(error, match=message):
        generator.template_text(MESSAGES)


@pytest.mark.parametrize("messages", ["Hello", {}, [], ["Hello"], [{"content": "Hello"}], [{"role": 1}]])
def test_what_is_no_list_of_messages_is_rejected(messages: Any, opened: Opened) -> None:
    with opened({}, TEMPLATE) as generator, pytest.raises(pumice.Error, match="messages: expected"):
        generator.template_text(messages)


@pytest.mark.parametrize("given", [5, [{"name": "tool_use", "template": ""}]])
def test_settings_without_a_template_are_rejected_by_their_field(given: Any, opened: Opened) -> None:
    with opened({"chat_template": given}) as generator, pytest.raises(pumice.text.FolderError) as caught:
        generator.template_text(MESSAGES)
    assert (caught.value.file, caught.value.field) == ("tokenizer_config.json", "chat_template")


def test_a_folder_without_a_template_says_so(opened: Opened) -> None:
    with opened() as generator, pytest.raises(pumice.text.FolderError, match="expected a chat template"):
        generator.template_text(MESSAGES)
