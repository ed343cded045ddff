"""Messages → prompt text, by the chat template that the file carries.

Owns: running an untrusted Jinja template within bounds, the globals that templates expect, and encoding the result
without a second BOS. Does not own: which messages there are.

The template comes with the model and is as untrusted as the rest of the file. It runs in Jinja's immutable sandbox, and
the sizes that it most easily blows up (ranges, repetition, concatenation, the output) are bounded, so that it is told
which expression was too much. Time and memory of the whole are bounded from outside: a file's template is rendered in a
process of its own (process.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import TokenizerError
from .codec import VocabTokenizer
from .marks import Marks, harmless, texts_of

if TYPE_CHECKING:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from . import Tokenizer

MAX_TEMPLATE = 1 << 20  # characters
MAX_OUTPUT = 1 << 24  # characters, of the result and of any string made on the way
MAX_ITERATIONS = 1 << 20  # of all range() together, in one rendering


class _TemplateError(Exception):
    """What the template itself reports with raise_exception."""


def apply_chat_template(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    now: datetime | None = None,
    variables: Mapping[str, object] | None = None,
    template: str | None = None,
) -> str:
    """Render messages (`role`, `content`) with the tokenizer's template, or with `template` instead of it.

    `variables` are further names the template may look at, such as `enable_thinking` or `tools`; `now` is the time
    that it may ask for. Raises TokenizerError, one line, when there is no template, when it is not valid, when it
    exceeds the bounds, and when it refuses the messages.
    """
    source = tokenizer.chat_template if template is None else template
    if source is None:
        raise TokenizerError("the file has no chat template; give plain text, without a conversation")
    if len(source) > MAX_TEMPLATE:
        raise TokenizerError(f"chat template: {len(source)} characters, at most {MAX_TEMPLATE} are accepted")
    import jinja2

    moment = now
    spent = 0

    def strftime_now(pattern: str) -> str:
        return (moment or datetime.now()).strftime(str(pattern)[:200])

    def bounded_range(*args: int) -> range:
        nonlocal spent
        numbers = range(*args)
        spent += len(numbers)
        if spent > MAX_ITERATIONS:
            raise _TemplateError(f"more than {MAX_ITERATIONS} steps of range()")
        return numbers

    context: dict[str, object] = {
        **(variables or {}),
        "messages": [dict(m) for m in messages],
        "add_generation_prompt": add_generation_prompt,
        "bos_token": _token_text(tokenizer, tokenizer.bos_id),
        "eos_token": _token_text(tokenizer, tokenizer.eos_id),
        "strftime_now": strftime_now,
        "range": bounded_range,
    }
    try:
        parts: list[str] = []
        size = 0
        for part in _compile(source).generate(context):
            size += len(part)
            if size > MAX_OUTPUT:
                raise _TemplateError(f"the result exceeds {MAX_OUTPUT} characters")
            parts.append(part)
        return "".join(parts)
    except jinja2.TemplateSyntaxError as e:
        raise TokenizerError(f"chat template: line {e.lineno}: {_one_line(e.message or 'syntax error')}") from None
    except RecursionError:
        raise TokenizerError("chat template: nested too deeply") from None
    except MemoryError:
        raise TokenizerError("chat template: needs too much memory") from None
    except Exception as e:  # whatever the template's expressions raise: it is data, not our code
        what = "" if isinstance(e, (_TemplateError, jinja2.TemplateError)) else f"{type(e).__name__}: "
        raise TokenizerError(f"chat template: {what}{_one_line(str(e))}") from None


def _among(some: Sequence[int], every: Sequence[int]) -> bool:
    """Whether `some` is `every` with nothing changed but what is left out."""
    rest = iter(every)
    return all(token in rest for token in some)


def encode_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    now: datetime | None = None,
    variables: Mapping[str, object] | None = None,
    template: str | None = None,
    parse_special: bool = False,
) -> list[int]:
    """Token ids of rendered messages: one BOS if the vocabulary wants one, no EOS.

    The template's own markers become control tokens. Their spelling in a message, or in `variables`, is text like any
    other, unless `parse_special`; tokens that the vocabulary finds in any text are found there too (see `marks`).
    Most templates write the BOS themselves, and some files also ask for one to be added: it is added only where the
    rendered text does not already begin with it.
    """
    source = tokenizer.chat_template if template is None else template
    spellings = getattr(tokenizer, "control_spellings", list[bytes])()
    marks = None
    if not parse_special and spellings:
        try:
            marks = Marks(spellings, (source or "", *texts_of(messages), *texts_of(variables or {})))
        except ValueError as error:
            raise TokenizerError(f"chat template: {error}") from None

    def render(said: Sequence[Mapping[str, Any]], more: Mapping[str, object] | None) -> str:
        return apply_chat_template(
            tokenizer, said, add_generation_prompt=add_generation_prompt, now=now, variables=more, template=template
        )

    if marks is None:
        ids = tokenizer.encode(render(messages, variables), add_special=False, parse_special=True)
    else:
        assert isinstance(tokenizer, VocabTokenizer)
        text = render(marks.broken(messages), marks.broken(variables or {}))
        told = (*texts_of(messages), *texts_of(variables or {}))
        if any(not c.isalnum() and not c.isspace() for t in told for c in t):
            own = render(harmless(messages), harmless(variables or {}))
            if not _among(tokenizer.control_tokens(text), tokenizer.control_tokens(own)):
                raise TokenizerError(
                    "chat template: it turns the text of a message into control tokens; --parse-special allows that"
                )
        ids = tokenizer.encode_marked(text, marks)
    if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
    return ids


def _token_text(tokenizer: Tokenizer, token: int | None) -> str:
    return "" if token is None else tokenizer.text(token).decode("utf-8", "replace")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300] or "failed"


def _raise_exception(message: object = "refused") -> None:
    raise _TemplateError(str(message))


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training: without the HTML escapes of Jinja's own filter."""
    if indent is not None and not 0 <= indent <= 16:
        raise _TemplateError(f"tojson(indent={indent}): expected 0 to 16")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=8)
def _compile(source: str) -> jinja2.Template:
    return _environment().from_string(source)


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import nodes
    from jinja2.compiler import CodeGenerator, Frame
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.runtime import Context, Undefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}…{% endgeneration %}` marks assistant text for training; here it is only its content."""

        tags = {"generation"}

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Generator(CodeGenerator):
        """Sends the `~` operator through the same check as `+`."""

        def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
            self.write("environment.concat_bounded((")
            for operand in node.nodes:
                self.visit(operand, frame)
                self.write(", ")
            self.write("))")

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"+", "*", "**"})
        code_generator_class = Generator

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            _check_operands(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def concat_bounded(self, operands: tuple[object, ...]) -> str:
            texts = [str(o) for o in operands]
            _check_size(sum(map(len, texts)))
            return "".join(texts)

        def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
            method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps str.format
            owner = getattr(method, "__self__", None)
            if isinstance(owner, str):
                _check_method(getattr(method, "__name__", ""), owner, args)
            return super().call(context, obj, *args, **kwargs)

    def replace(text: object, old: object, new: object, count: int | None = None) -> str:
        old, new = str(old), str(new)
        _check_method("replace", str(text), (old, new))
        return str(text).replace(old, new, -1 if count is None else count)

    def join(values: Any, separator: object = "", attribute: str | None = None) -> str:
        items = list(values) if attribute is None else [env.getitem(v, attribute) for v in values]
        texts = ["" if isinstance(i, Undefined) else str(i) for i in items]
        _check_method("join", str(separator), (texts,))
        return str(separator).join(texts)

    env = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    env.filters.update(tojson=_to_json, replace=replace, join=join)
    indent = env.filters["indent"]

    def bounded_indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        _check_size(len(text) + (text.count("\n") + 1) * (width if isinstance(width, int) else len(width)))
        return str(indent(text, width, first, blank))

    env.filters["indent"] = bounded_indent
    del env.globals["lipsum"]
    env.globals["raise_exception"] = _raise_exception
    return env


def _check_size(characters: int) -> None:
    if characters > MAX_OUTPUT:
        raise _TemplateError(f"an expression makes more than {MAX_OUTPUT} characters or items")


def _check_operands(operator: str, left: object, right: object) -> None:
    sized = (str, bytes, list, tuple)
    if operator == "**" and not (isinstance(left, int) and isinstance(right, int) and abs(left) < 1e6 and right < 64):
        raise _TemplateError("power of numbers this large")
    if operator == "+" and isinstance(left, sized) and isinstance(right, sized):
        _check_size(len(left) + len(right))
    if operator == "*":
        for value, times in ((left, right), (right, left)):
            if isinstance(value, sized) and isinstance(times, int):
                _check_size(len(value) * max(times, 0))
            if isinstance(value, int) and value.bit_length() > 4096:
                raise _TemplateError("product of numbers this large")


def _check_method(name: str, owner: str, args: tuple[Any, ...]) -> None:
    """Refuse a string method whose result would be too large, before it runs."""
    if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        _check_size(len(owner) + owner.count(args[0]) * len(args[1]))
    if name == "join" and args and isinstance(args[0], (list, tuple)):
        _check_size(sum(len(t) + len(owner) for t in args[0] if isinstance(t, str)))
