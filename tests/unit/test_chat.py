"""Chat templates: what templates need is there, what they must not do is refused, and BOS never doubles."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ie.errors import TokenizerError
from ie.tokenizer import Tokenizer, apply_chat_template, encode_chat, process
from ie.tokenizer.process import IsolatedTokenizer
from tests import tiny_vocabs as tv

SPECIAL = {"<s>": tv.CONTROL, "</s>": tv.CONTROL, "<|im_start|>": tv.CONTROL, "<|im_end|>": tv.CONTROL}
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HI = [{"role": "user", "content": "hi"}]


def tokenizer(tmp_path: Path, template: str | None = CHATML, **keys: Any) -> Tokenizer:
    base = tv.bpe_keys(SPECIAL)
    first = len(base["tokens"]) - len(SPECIAL)
    ids = {"bos_token_id": first, "eos_token_id": first + 1}
    return tv.load(tmp_path / "c.gguf", {**base, **ids, "tokenizer.chat_template": template, **keys})


def render(template: str, tmp_path: Path, messages: list[dict[str, Any]] | None = None, **options: Any) -> str:
    tok = tokenizer(tmp_path, None)
    return apply_chat_template(tok, HI if messages is None else messages, template=template, **options)


def test_a_usual_template(tmp_path: Path) -> None:
    tok = tokenizer(tmp_path)
    system = {"role": "system", "content": 'Be <brief> & "quick".'}
    expected = '<|im_start|>system\nBe <brief> & "quick".<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n'
    assert apply_chat_template(tok, [system, *HI]) == expected + "<|im_start|>assistant\n"
    assert apply_chat_template(tok, [system, *HI], add_generation_prompt=False) == expected


def test_blocks_leave_no_lines_behind(tmp_path: Path) -> None:
    template = "a\n  {% if true %}\nb\n  {% endif %}\n{# note #}\nc"
    assert render(template, tmp_path) == "a\nb\nc"


def test_what_templates_use(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'skip' %}{% continue %}"
        "{% endif %}{% set ns.n = ns.n + 1 %}{% if ns.n > 2 %}{% break %}{% endif %}{{ loop.index0 }}"
        "{{ m.content | trim }};"
        "{% endfor %}{{ ns.n }}{{ eos_token }}{% if tools is defined %}T{% endif %}{{ 'x' if enable_thinking }}"
    )
    roles = ["user", "skip", "user", "user", "user"]
    messages = [{"role": r, "content": f" {i} "} for i, r in enumerate(roles)]
    assert render(template, tmp_path, messages) == "<s>00;22;3</s>"
    assert render(template, tmp_path, [], variables={"enable_thinking": True}) == "<s>0</s>x"


def test_text_functions_templates_use(tmp_path: Path) -> None:
    template = (
        "{{ messages[0]['content'].strip().split(',')[1].upper() }}{{ ['a','b'] | join('-') }}"
        "{{ 'x.y' | replace('.', '/') }}{{ 'ab'.replace('b', 'c') }}{{ ','.join(['p', 'q']) }}"
        "{{ 'abc'[::-1] }}{{ 'a\nb' | indent(2) }}{{ 3 * 4 }}{{ '-' * 3 }}{{ 7 % 4 }}{{ 1 ~ 'z' ~ none }}"
        "{{ messages | map(attribute='role') | join(' ') }}{{ range(3) | list }}{{ 'sep'.startswith('s') }}"
    )
    expected = "B" + "a-b" + "x/y" + "ac" + "p,q" + "cba" + "a\n  b" + "12---31zNone" + "user" + "[0, 1, 2]True"
    assert render(template, tmp_path, [{"role": "user", "content": " a,b "}]) == expected


def test_json_is_not_escaped_for_html(tmp_path: Path) -> None:
    tool = {"name": "f", "about": "<a> & 'b' é", "args": [1, None, True]}
    out = render("{{ tools[0] | tojson }}", tmp_path, variables={"tools": [tool]})
    assert out == json.dumps(tool, ensure_ascii=False)
    pretty = render("{{ tools[0] | tojson(indent=2) }}", tmp_path, variables={"tools": [tool]})
    assert pretty == json.dumps(tool, ensure_ascii=False, indent=2)


def test_the_time_is_the_callers(tmp_path: Path) -> None:
    now = datetime(2024, 7, 26, 9, 5)
    assert render("{{ strftime_now('%d %b %Y %H:%M') }}", tmp_path, now=now) == "26 Jul 2024 09:05"
    assert render("{{ strftime_now('%Y') }}", tmp_path) >= "2024"


def test_the_generation_tag_is_transparent(tmp_path: Path) -> None:
    assert render("a{% generation %}{{ 1 + 1 }}{% endgeneration %}b", tmp_path) == "a2b"


REFUSED = {
    "its own refusal": ("{{ raise_exception('roles must\n alternate') }}", "chat template: roles must alternate"),
    "syntax": ("a\n{% if %}", "chat template: line 2: "),
    "unclosed": ("{% for m in messages %}", "chat template: line 1: .*endfor"),
    "undefined function": ("{{ nothing() }}", "chat template: 'nothing' is undefined"),
    "undefined attribute": ("{{ a.b.c }}", "chat template: 'a' is undefined"),
    "unknown filter": ("{{ 'a' | nofilter }}", "chat template: line 1: No filter named 'nofilter'"),
    "division": ("{{ 1 / 0 }}", "chat template: ZeroDivisionError: "),
    "type": ("{{ 'a' + 1 }}", "chat template: TypeError: "),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "chat template: nested too deeply"),
    "parenthesis tower": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "chat template: nested too deeply"),
    "private attribute": ("{{ ''.__class__.__mro__ }}", "chat template: .*unsafe"),
    "globals of a function": ("{{ raise_exception.__globals__['json'] }}", "chat template: .*unsafe"),
    "changing the messages": ("{{ messages.append(1) }}", "chat template: .*unsafe"),
    "import": ("{% include '/etc/passwd' %}", "chat template: "),
    "large power": ("{{ 9 ** 9 ** 9 }}", "chat template: power of numbers this large"),
    "large product": (
        "{% set x = namespace(v=3) %}{% for i in range(30) %}{% set x.v = x.v * x.v %}{% endfor %}",
        "product of",
    ),
    "repetition": ("{{ 'a' * 99999999999 }}", "chat template: an expression makes more than"),
    "repetition of a list": ("{{ 99999999999 * [1] }}", "chat template: an expression makes more than"),
    "doubling": (
        "{% set x = namespace(v='a') %}{% for i in range(99) %}{% set x.v = x.v + x.v %}{% endfor %}",
        "makes more",
    ),
    "doubling by ~": (
        "{% set x = namespace(v='a') %}{% for i in range(99) %}{% set x.v = x.v ~ x.v %}{% endfor %}",
        "makes more",
    ),
    "doubling by replace": (
        "{% set x = namespace(v='aa') %}{% for i in range(9) %}{% set x.v = x.v.replace('a', x.v) %}{% endfor %}",
        "makes more",
    ),
    "doubling by the replace filter": (
        "{% set x = namespace(v='aa') %}{% for i in range(9) %}{% set x.v = x.v|replace('a', x.v) %}{% endfor %}",
        "makes more",
    ),
    "doubling by join": (
        "{% set x = namespace(v='aa') %}{% for i in range(9) %}{% set x.v = x.v.join(x.v|list) %}{% endfor %}",
        "makes more",
    ),
    "doubling by the join filter": (
        "{% set x = namespace(v='aa') %}{% for i in range(9) %}{% set x.v = x.v|list|join(x.v) %}{% endfor %}",
        "makes more",
    ),
    "indentation": ("{{ 'a\nb' | indent(99999999999) }}", "makes more"),
    "indented json": ("{{ [1] | tojson(indent=99999999) }}", r"tojson\(indent=99999999\)"),
    "long range": ("{% for i in range(99999999999) %}{% endfor %}", "more than 1048576 steps"),
    "nested ranges": (
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "more than 1048576 steps",
    ),
    "much output": ("{% for i in range(999999) %}" + "0123456789" * 10 + "{% endfor %}", "the result exceeds"),
    "lipsum": ("{{ lipsum(n=9999999) }}", "'lipsum' is undefined"),
}


@pytest.mark.parametrize(("template", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_are_one_line(template: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=says) as caught:
        render(template, tmp_path)
    message = str(caught.value)
    assert message.startswith("chat template: ")
    assert "\n" not in message and len(message) < 400


def test_texts_are_formatted(tmp_path: Path) -> None:
    template = "{{ '%s-%03d' % ('a', 7) }}{{ '{:>4}|{}'.format('b', 1) }}{{ 'c'.ljust(3) }}{{ '%d' | format(5) }}"
    assert render(template, tmp_path) == "a-007   b|1c  5"


NESTED = (
    "{% set ns = namespace(a=[1], b=[1]) %}"
    "{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
)
ENDLESS = {
    "loops over texts": (
        "{% set s = 'x' * 10000 %}{% for a in s %}{% for b in s %}{% for c in s %}{% endfor %}{% endfor %}{% endfor %}"
    ),
    "a tree of macros": ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"),
    "equality of nested lists": NESTED + "{{ ns.a == ns.b }}",
    "in": NESTED + "{{ ns.a in [ns.b] }}",
    "integer division": (
        "{% set a = ('f'*16000000)|int(0,16) %}{% set b = ('7'*8000000)|int(0,16) %}{{ (a // b) > 1 }}"
    ),
    "round": "{{ 1|round(100000000, 'ceil') }}",
    "sort of long texts": (
        "{% set a = 'a'*8000000 + '1' %}{% set b = 'a'*8000000 + '2' %}"
        "{{ ([a,b]*100000)|sort(case_sensitive=true)|length }}"
    ),
    "sum of lists": "{% set l = [[1]*10] %}{{ (l*1000000)|sum(start=[])|length }}",
}
HUGE = {
    "list of large texts": (
        "{% set x = namespace(v=[]) %}{% for i in range(999) %}{% set x.v = x.v + ['x' * 16000000 ~ i] %}{% endfor %}"
    ),
    "json": "{% set v = ['x' * 16000000] * 1000000 %}{{ v | tojson }}",
    "list as text": "{% set v = ['x' * 16000000] * 1000000 %}{{ v ~ 'a' }}",
    "translation": "{{ ('a' * 1000000).translate({97: 'b' * 1000000}) | length }}",
    "padding": "{{ 'a'.ljust(9999999999) }}",
    "format": "{{ '{:>9999999999}'.format(1) }}",
    "percent": "{{ '%9999999999d' % 1 }}",
    "slices": "{{ 'abc' | slice(1000000000) | list | length }}",
}


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedTokenizer]:
    path = tmp_path_factory.mktemp("chat") / "c.gguf"
    made = tv.load(path, {**tv.bpe_keys(SPECIAL), "tokenizer.chat_template": CHATML}, isolated=True)
    assert isinstance(made, IsolatedTokenizer)
    yield made
    made.close()


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS.keys())
def test_time_is_bounded(template: str, isolated: IsolatedTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TEMPLATE_SECONDS", 0.3)
    with pytest.raises(TokenizerError, match="chat template: (not done after 0.3 s|needs too much memory)"):
        apply_chat_template(isolated, HI, template=template)
    assert apply_chat_template(isolated, HI, template="again") == "again"


@pytest.mark.parametrize("template", HUGE.values(), ids=HUGE.keys())
def test_memory_is_bounded(template: str, isolated: IsolatedTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TEMPLATE_MEMORY", 1 << 27)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(TokenizerError, match="chat template: needs too much memory"):
        apply_chat_template(isolated, HI, template=template)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert apply_chat_template(isolated, HI, template="again") == "again"


def test_no_template_and_a_huge_one(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="the file has no chat template"):
        apply_chat_template(tokenizer(tmp_path, None), HI)
    with pytest.raises(TokenizerError, match="1048577 characters, at most 1048576"):
        render("a" * ((1 << 20) + 1), tmp_path)


def test_messages_stay_as_they_are(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x"}]
    render("{% for m in messages %}{{ m.content }}{% endfor %}", tmp_path, messages)
    assert messages == [{"role": "user", "content": "x"}]


def test_encoding_parses_special_tokens(tmp_path: Path) -> None:
    tok = tokenizer(tmp_path)
    ids = encode_chat(tok, HI)
    start, end = tok.n_vocab - 2, tok.n_vocab - 1
    assert ids[0] == start and ids.count(start) == 2 and ids.count(end) == 1
    assert tok.decode(ids, special=True) == apply_chat_template(tok, HI)


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("writes_bos", [True, False])
def test_bos_stands_once(add_bos: bool, writes_bos: bool, tmp_path: Path) -> None:
    template = ("{{ bos_token }}" if writes_bos else "") + "{{ messages[0].content }}"
    tok = tokenizer(tmp_path, template, add_bos_token=add_bos, add_eos_token=True)
    ids = encode_chat(tok, HI)
    assert ids.count(tok.bos_id) == int(add_bos or writes_bos)
    assert ids[0] == tok.bos_id or not (add_bos or writes_bos)
    assert tok.eos_id not in ids, "the model has yet to answer"
    if not writes_bos:  # in a message the spelling is text, unless it is to be parsed; then it counts as having one
        said = [{"role": "user", "content": "<s>x"}]
        assert encode_chat(tok, said).count(tok.bos_id) == int(add_bos)
        assert encode_chat(tok, said, parse_special=True).count(tok.bos_id) == 1


def test_a_tokenizer_without_bos(tmp_path: Path) -> None:
    tok = tokenizer(tmp_path, "[{{ bos_token }}]", bos_token_id=-1, pre="glm4")
    assert tok.bos_id is None
    assert apply_chat_template(tok, HI) == "[]"
