"""Odd tokenizers, chat templates and texts.

Owns: the `tokenizer.*` keys of a fuzzed file. Does not own their validation (ie/tokenizer), nor how keys are written.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ie.tokenizer.pretokenizers import PRE_TYPES
from tiny_models.vocab import byte_alphabet, learn_merges

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
WORDS = "the old clock said that the old clock is old and the rest of the text is the text of the rest".split()
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>"]

TEXTS: tuple[bytes, ...] = (
    b"the old clock said that the old clock",
    b"",
    b" ",
    b"\0",
    b"a",
    b"\xff\xfe\x80",
    "na\u00efve \u6f22\u5b57\u304b\u306a \U0001f600\U0001f44d\U0001f3fd \u2581\u2581 \u0120".encode(),
    b"<|im_start|>user\nhi<|im_end|></s><s><unk><|endoftext|>",
    b"\n\n\r\n\t   \x1b[2J",
    b"x" * 3000,
    b" " * 700,
    "e\u0301".encode() * 300,
    b"12345678901234567890 1.5e300",
    b"\xe2\x96",
    b"[PAD1]<0x00><0x41>",
)

TEMPLATES: dict[str, str] = {
    "empty": "",
    "space": "\n  \n",
    "whole": "{{ messages }}",
    "roles": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}",
    "undefined": "{{ nothing.at.all }}",
    "silent": "{% if nothing %}x{% endif %}",
    "refuses": "{{ raise_exception('no\\nuser \x1b[31m') }}",
    "syntax": "{% for %}",
    "division": "{{ 1 // 0 }}",
    "nul": "\0{{ messages[0].content }}\x07",
    "emoji": "\U0001f600{{ messages[-1].content | upper }}\u2028",
    "nested": "{{" + "(" * 150 + "1" + ")" * 150 + "}}",
    "wide": "x" * 20000,
    "bos": "{{ bos_token }}{{ eos_token }}{{ messages[0]['content'] }}",
    "json": "{{ messages | tojson }}",
    "bytes": "{{ '\\ud800' }}",
}

ODDITIES = (
    "empty tokens", "two empty tokens", "duplicates", "all control", "all user", "all unused", "all unknown",
    "all byte", "random types", "no bos", "bos outside", "eog everywhere", "eos first", "add eos", "no add bos",
    "add bos", "odd merges", "no merges", "merges twice", "merges of what is not there", "bytes missing", "huge token",
    "scores equal", "scores extreme", "scores missing", "types missing", "longer arrays", "suppress all",
    "suppress one", "space prefix", "no space prefix", "other pre", "invalid utf-8", "nul tokens", "one token",
    "id types", "names twice", "terminal tokens", "long similar",
)  # fmt: skip


def keys(kind: str, oddities: tuple[str, ...], template: str | None, rng: random.Random) -> dict[str, Any]:
    """Keys without `tokenizer.ggml.` (chat_template: without `tokenizer.`); lists are arrays."""
    if kind in ("none", "no_vocab"):
        out: dict[str, Any] = {"model": kind}
    else:
        out = _bpe(kind) if kind in ("bpe", "gemma4", "few bpe") else _spm()
        if kind.startswith("few"):
            keep = rng.randint(1, 12)
            out["tokens"] = out["tokens"][:keep]
            out["token_type"] = out["token_type"][:keep]
            out["merges"] = [] if "merges" in out else None
        for oddity in oddities:
            _APPLY[oddity](out, rng)
    if template is not None:
        out["chat_template"] = TEMPLATES[template]
    return {name: value for name, value in out.items() if value is not None}


def _bpe(kind: str) -> dict[str, Any]:
    letters = byte_alphabet() if kind != "gemma4" else [f"<0x{b:02X}>" for b in range(256)]
    space = letters[32] if kind != "gemma4" else "\u2581"
    words = [WORDS[0], *(space + w for w in WORDS[1:])]
    tokens = [*SPECIALS, *letters]
    types = [CONTROL] * len(SPECIALS) + [NORMAL if kind != "gemma4" else BYTE] * 256
    if kind == "gemma4":
        tokens += sorted({c for w in words for c in w})
    merges = []
    for left, right in learn_merges(words, 20):
        merges.append(f"{left} {right}")
        tokens += [left + right] if left + right not in tokens else []
    types += [NORMAL] * (len(tokens) - len(types))
    pre = {} if kind == "gemma4" else {"pre": "gpt-2"}
    model = "gemma4" if kind == "gemma4" else "gpt2"
    return {
        "model": model,
        **pre,
        "tokens": tokens,
        "token_type": types,
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _spm() -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    pieces = sorted({"\u2581" + w[:i] for w in WORDS for i in range(len(w) + 1)} | {c for w in WORDS for c in w})
    tokens += pieces
    types += [NORMAL] * len(pieces)
    scores = [-float(i) for i in range(len(tokens))]
    return {
        "model": "llama",
        "tokens": tokens,
        "token_type": types,
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


# ---- oddities ----

Change = Callable[[dict[str, Any], random.Random], None]


def _some(out: dict[str, Any], rng: random.Random, n: int = 1) -> list[int]:
    return [rng.randrange(len(out["tokens"])) for _ in range(n)]


def _put(*texts: Any) -> Change:
    """These texts in place of some tokens."""

    def change(out: dict[str, Any], rng: random.Random) -> None:
        for text, i in zip(texts, _some(out, rng, len(texts)), strict=True):
            out["tokens"][i] = text
            if out["token_type"]:
                out["token_type"][min(i, len(out["token_type"]) - 1)] = NORMAL

    return change


def _types(kind: int | None) -> Change:
    def change(out: dict[str, Any], rng: random.Random) -> None:
        n = len(out["tokens"])
        out["token_type"] = [rng.randint(0, 5) if kind is None else kind for _ in range(n)]
        if kind == BYTE:
            out["tokens"] = [f"<0x{i:02x}>" if i < 256 else f"<0x{i % 256:02X}>" for i in range(min(n, 256))]
            out["token_type"] = [BYTE] * len(out["tokens"])

    return change


def _set(**values: Any) -> Change:
    return lambda out, rng: out.update(values)


def _duplicates(out: dict[str, Any], rng: random.Random) -> None:
    out["tokens"][-1] = out["tokens"][0]


def _end_everywhere(out: dict[str, Any], rng: random.Random) -> None:
    for name in ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"):
        out[f"{name}_token_id"] = rng.randrange(len(out["tokens"]))
    ends = [
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "</s>",
        "<eos>",
        "<turn|>",
    ]
    for text in ends:
        if text not in out["tokens"]:
            _put(text)(out, rng)


def _odd_merges(out: dict[str, Any], rng: random.Random) -> None:
    tokens = [t for t in out["tokens"] if isinstance(t, str) and " " not in t] or ["a"]
    out["merges"] = [f"{rng.choice(tokens)} {rng.choice(tokens)}" for _ in range(40)]


def _bytes_missing(out: dict[str, Any], rng: random.Random) -> None:
    for i in range(len(out["tokens"])):
        if rng.random() < 0.5:
            out["tokens"][i] = f"word{i}"
            if out["token_type"]:
                out["token_type"][min(i, len(out["token_type"]) - 1)] = NORMAL


def _scores(low: float, high: float) -> Change:
    return lambda out, rng: out.update(scores=[rng.choice((low, high)) for _ in out["tokens"]])


def _longer(out: dict[str, Any], rng: random.Random) -> None:
    out["token_type"] = out["token_type"] + [1] * 7
    out["scores"] = (out.get("scores") or [0.0] * len(out["tokens"])) + [float("nan")] * 9


def _one(out: dict[str, Any], rng: random.Random) -> None:
    out["tokens"], out["token_type"] = out["tokens"][:1], out["token_type"][:1]
    out["merges"] = [] if "merges" in out else None


def _other_pre(out: dict[str, Any], rng: random.Random) -> None:
    out["pre"] = rng.choice(sorted(PRE_TYPES))


def _similar(out: dict[str, Any], rng: random.Random) -> None:
    for n in range(60):
        out["tokens"].append("x" * (n + 2))
        out["token_type"].append(rng.choice((NORMAL, USER, CONTROL)))
        if "scores" in out:
            out["scores"].append(float(n))


_APPLY: dict[str, Change] = {
    "empty tokens": _put(""),
    "two empty tokens": _put("", "", ""),
    "duplicates": _duplicates,
    "all control": _types(CONTROL),
    "all user": _types(USER),
    "all unused": _types(UNUSED),
    "all unknown": _types(UNKNOWN),
    "all byte": _types(BYTE),
    "random types": _types(None),
    "no bos": _set(bos_token_id=None, eos_token_id=None),
    "bos outside": _set(bos_token_id=1 << 30, eos_token_id=(1 << 31) - 1),
    "eog everywhere": _end_everywhere,
    "eos first": _set(eos_token_id=0, bos_token_id=0),
    "add eos": _set(add_eos_token=True),
    "no add bos": _set(add_bos_token=False),
    "add bos": _set(add_bos_token=True),
    "odd merges": _odd_merges,
    "no merges": _set(merges=[]),
    "merges twice": lambda out, rng: out.update(merges=2 * (out.get("merges") or ["t h"])),
    "merges of what is not there": lambda out, rng: out.update(merges=["\u00e9 \u00e8", "zq qz", " a", "a  b"]),
    "bytes missing": _bytes_missing,
    "huge token": _put("h" * (1 << 20)),
    "scores equal": _scores(0.0, 0.0),
    "scores extreme": _scores(-3e38, 3e38),
    "scores missing": _set(scores=None),
    "types missing": _set(token_type=None),
    "longer arrays": _longer,
    "suppress all": lambda out, rng: out.update(suppress_tokens=list(range(len(out["tokens"])))),
    "suppress one": lambda out, rng: out.update(suppress_tokens=_some(out, rng)),
    "space prefix": _set(add_space_prefix=True),
    "no space prefix": _set(add_space_prefix=False),
    "other pre": _other_pre,
    "invalid utf-8": _put(b"\xff", b"\xe2\x96", b"a\x80", b"\xed\xa0\x80"),
    "nul tokens": _put("\0", "a\0b", "\0\0"),
    "one token": _one,
    "id types": lambda out, rng: out.update(padding_token_id=0, mask_token_id=0, seperator_token_id=0),
    "names twice": _put("<|im_end|>", "<|end|>", "<|call|>", "<|return|>", "<|channel|>"),
    "terminal tokens": _put("\x1b[2J", "\x1b]0;x\x07", "\x9b31m"),
    "long similar": _similar,
}


def tolerant(change: Change) -> Change:
    """Two oddities may exclude each other: what the first has taken away, the second leaves alone."""

    def apply(out: dict[str, Any], rng: random.Random) -> None:
        if out.get("token_type") is None:
            out["token_type"] = [NORMAL] * len(out["tokens"])
        change(out, rng)

    return apply


_APPLY = {name: tolerant(change) for name, change in _APPLY.items()}
assert set(_APPLY) == set(ODDITIES)
