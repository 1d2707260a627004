"""Chat templates and tokenizers that would hang, exhaust memory or panic are rejected with an error of the folder."""

from __future__ import annotations

import base64
import json
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pumice
from decoder_folders import STORY

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

from pumice.text import jinja_sandbox
from pumice.text.chat import ChatTemplate
from pumice.text.errors import FolderError
from pumice.text.model_folder import ModelFolder, read_model_folder
from pumice.text.tokenization import FolderTokenizer

MESSAGES = [{"role": "user", "content": "Hello. " * 2000}, {"role": "assistant", "content": "Yes?"}] * 50

A = "{% set a = 'a' * 1000000 %}"
BOMBS = {
    "string times": "{{ 'a' * 10**10 }}",
    "list times": "{{ ([1] * 10**9)|length }}",
    "power": "{{ 10**(10**10) }}",
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "filter loop": "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "doubling": "{% set ns=namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "plus": "{% set ns=namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "lists": "{% set ns=namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "tuples": "{% set ns=namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ ns.s }}",
    "dicts": "{% set ns=namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = {'a':ns.s, 'b':ns.s} %}{% endfor %}{{ ns.s|tojson }}",
    "dict()": "{% set ns=namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = dict(a=ns.s, b=ns.s) %}{% endfor %}{{ ns.s }}",
    "macro": "{% macro f(n) %}{{ f(n-1) }}{{ f(n-1) }}{% endmacro %}{{ f(100) }}",
    "macro2": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(100) }}",
    "recursive": "{% for x in [[1]] recursive %}{{ loop([[1],[1]]) }}{% endfor %}",
    "center": "{{ 'a'|center(10**10) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "zfill": "{{ 'a'.zfill(10**10) }}",
    "format": "{{ '%1000000000d' % 1 }}",
    "format2": "{{ '{:1000000000}'.format(1) }}",
    "format3": "{{ '{:{w}}'.format(1, w='1000000000') }}",
    "format4": "{{ '%*d' % (1000000, 1) }}",
    "format5": "{{ '%1000000000d'|format(1) }}",
    "replace": A + "{{ a.replace('a', a) }}",
    "replace2": A + "{{ a|replace('a', a) }}",
    "replace3": A + "{{ a|replace('', a) }}",
    "join": A + "{{ range(99999)|join(a) }}",
    "join2": A + "{{ a.join(a) }}",
    "join3": A + "{{ range(99999)|map('string')|join(a) }}",
    "map": "{{ range(99999)|map('center', 1000000)|join }}",
    "indent": "{% set a = '\\n' * 1000000 %}{{ a|indent(1000000) }}",
    "expandtabs": "{% set a = '\\t' * 1000000 %}{{ a.expandtabs(1000000) }}",
    "translate": A + "{{ a.translate({97: a}) }}",
    "tojson": "{{ [[[[[[1]]]]]]|tojson(indent=10**9) }}",
    "wordwrap": "{% set a = 'a ' * 1000000 %}{{ a|wordwrap(1, wrapstring=a) }}",
    "set block": A + "{% set x %}{% for i in range(99999) %}{{ a }}{% endfor %}{% endset %}",
    "output": "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "lipsum": "{{ lipsum(n=1000000) }}",
    "batch": "{{ [1]|batch(10**9, 0)|list|length }}",
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "nested": "{% for i in range(9) %}" * 30 + "{% endfor %}" * 30,
    "deep": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep list": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "include": "{% include 'x' %}",
    "undefined": "{{ a.b.c }}",
    "sum": "{% set ns=namespace(n=2) %}{% for i in range(100) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "filter block": A + "{% filter upper %}{% for i in range(99999) %}{{ a }}{% endfor %}{% endfilter %}",
    "call block": A
    + "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% call m() %}{% for i in range(99999) %}{{ a }}{% endfor %}{% endcall %}",
    "sort": "{% for i in range(99999) %}{{ range(99999)|sort|length }}{% endfor %}",
}


@pytest.fixture
def short_memory() -> Iterator[None]:
    """Limit the address space, so that a memory bomb raises MemoryError and does not crash the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def template(tmp_path: Path, source: str) -> ChatTemplate:
    (tmp_path / "chat_template.jinja").write_text(source)
    return ChatTemplate(ModelFolder(str(tmp_path), "genai_config.json", "", ""))


@pytest.mark.usefixtures("short_memory")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_template_ends_soon(bomb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja_sandbox, "MAX_SECONDS", 1.0)
    begin = time.monotonic()
    with pytest.raises(FolderError) as caught:
        template(tmp_path, BOMBS[bomb]).render(MESSAGES, True, {})
    assert time.monotonic() - begin < 20
    assert (caught.value.file, caught.value.field) == ("chat_template.jinja", "chat_template")
    assert "MemoryError" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 'a' * 10**9 }}", "exceeds a limit: expected values of at most 16777216 characters, given one of "),
        ("{{ 'a'.center(10**9) }}", "exceeds a limit: center: expected numbers of at most 1000000, given a larger one"),
        (
            BOMBS["loops"],
            "exceeds a limit: expected (the template to end within 1 seconds|at most 4194304 loop iterations)",
        ),
    ],
)
def test_the_limit_is_named(source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja_sandbox, "MAX_SECONDS", 1.0)
    with pytest.raises(FolderError, match=message):
        template(tmp_path, source).render(MESSAGES, True, {})


def test_what_templates_do_is_within_the_limits(tmp_path: Path) -> None:
    """A long conversation that uses all common template features."""
    source = """{%- macro shown(value, deep=0) -%}
    {%- if value is mapping -%}{{ value | tojson(indent=2) }}{%- else -%}{{ value | string | indent(4) }}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(text='', last=[]) -%}
{%- for message in messages -%}
    {%- set ns.text = ns.text ~ '<' + message.role + '>' ~ message['content'].replace('. ', '.  ').split('!')[0] | trim -%}
    {%- set ns.last = ns.last + [message.content | length] -%}
    {%- if loop.index > 1000 -%}{%- break -%}{%- endif -%}
{%- endfor -%}
{{ ns.text }}{{ shown({'a': [1, 2, ('x', 3)], 'b': '{:>10}'.format('y')}) }}{{ shown('%5d' % 3) }}
{{- ns.last | sum }} {{ messages | map(attribute='role') | join(', ') }} {{ 2 ** 10 }} {{ 7 * 'ab' }}
{%- set block %}{% for i in range(3) %}{{ i }}{% endfor %}{% endset %}{{ block }}
{%- filter upper %}end{% endfilter %}"""
    text = template(tmp_path, source).render(MESSAGES, True, {})
    assert text.startswith("<user>Hello.  Hello.")
    assert text.endswith("user, assistant 1024 ababababababab012END")
    assert len(text) > 50 * 2000 * len("Hello.  ")


def test_each_run_has_its_own_budget(tmp_path: Path) -> None:
    result = template(tmp_path, "{% for i in range(99999) %}{% endfor %}{{ 'x' * 1000000 }}")
    for _ in range(jinja_sandbox.MAX_PRODUCED // 1_000_000 + 2):
        assert len(result.render(MESSAGES, True, {})) == 1_000_000


def normalizer(words: bytes) -> dict[str, str]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(words).decode()}


@pytest.mark.parametrize(
    ("charsmap", "message"),
    [
        (bytes(3), "expected a tokenizer of the package tokenizers: .*precompiled_charsmap"),
        (
            b"\x04\0\0\0" + b"\xff" * 3 + b"\x3f" + bytes(1),
            "the tokenizer failed on a text of 4 characters: index out of bounds",
        ),
    ],
    ids=["when it is read", "when it is used"],
)
def test_a_panic_of_the_tokenizer_is_an_error_of_the_folder(charsmap: bytes, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "story"
    shutil.copytree(STORY, folder)
    values = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**values, "normalizer": normalizer(charsmap)}))
    with pytest.raises(FolderError, match=message) as caught:
        FolderTokenizer(read_model_folder(folder)).encode("text")
    assert caught.value.file == "tokenizer.json"
    assert isinstance(caught.value, pumice.Error)


def test_an_interrupt_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = FolderTokenizer(read_model_folder(STORY))

    class Interrupted:
        def encode(self, *_: object, **__: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(tokens, "tokenizer", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        tokens.encode("text")
