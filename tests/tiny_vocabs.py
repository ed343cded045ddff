"""Small vocabularies for tokenizer tests, as GGUF files without tensors.

Owns: a BPE trained here on a short text so that its merges cross every word boundary (a wrong cut shows in the ids),
a SentencePiece-style vocabulary with byte tokens, and writing either with chosen keys. The texts are ours.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
from tokenizers import Tokenizer, models, trainers

from ie import tokenizer
from ie.gguf import GgufFile

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

TEXT = """The old clock said it's 12:45, but they'll say 1234567 isn't 99. I'm sure we've seen  two spaces,
\ttabs and   three. DON'T SHOUT, it's 2024! fooBar BazQux e\u0301a\u0308 na\u00efve \u00dcber здесь
漢字かな漢字 12漢 中文\uff0c中文\u3002 한국 हिन्दी a+b=c (x_y) [0] {1}\n\n\n
  indented = value; # comment\r\nnext line\r\n... and so on -- he said 'so' and ''s. 007 12 123 1234 12345 123456\n
\U0001f600\U0001f44d\U0001f3fd ok \u2028 \u3000 \u00a0 end."""

SCRIPTS = (
    "abcXYZ",
    "\u00e9\u00df\u00c4\u01c5",
    "\u0437\u0416\u0431",
    "\u6f22\u5b57\u304b\u306a",
    "\ud55c\uad6d",
    "\u0939\u093f\u0928\u094d",
    "0123456789",
    "\u00b2\u0664\u2167",
    "\u0301\u0308",
    " ",
    " \t\n\r",
    "\u00a0\u3000\u2028",
    "!?.,;:'\"-_/<>[](){}+=#|",
    "\U0001f600\U0001f44d\U0001f3fd",
    "\x00\x01\x7f",
    "\u2581\u0120\uff0c\u3002",
)
WORDS = ("it's", "DON'T", " the", "they'll", "'s", "12345", "fooBar", "\n\n", "  ", "\r\n", "e\u0301", "...", "'re")


def strings(count: int, seed: int, words: Sequence[str] = ()) -> list[str]:
    """Random texts of mixed scripts, spaces and marks; `words` are mixed in."""
    rnd = random.Random(seed)
    out = []
    for _ in range(count):
        parts = []
        for _ in range(rnd.randint(0, 9)):
            if rnd.random() < 0.35:
                parts.append(rnd.choice([*WORDS, *words]))
            else:
                script = rnd.choice(SCRIPTS)
                parts.append("".join(rnd.choice(script) for _ in range(rnd.randint(1, 5))))
        out.append("".join(parts))
    return out


def byte_alphabet() -> list[str]:
    """The printable stand-ins of the 256 bytes, by the published rule."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [b for b in range(256) if b not in kept]
    table = {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(moved)}
    return [table[b] for b in range(256)]


def to_alphabet(text: str) -> str:
    table = byte_alphabet()
    return "".join(table[b] for b in text.encode())


@functools.cache
def bpe() -> tuple[list[str], list[str]]:
    """(tokens, merges) over the byte alphabet; the first 256 tokens are the bytes. Merges span words."""
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=byte_alphabet(), show_progress=False, special_tokens=byte_alphabet()
    )
    trained = Tokenizer(models.BPE())
    trained.train_from_iterator([to_alphabet(TEXT), to_alphabet(TEXT.lower())], trainer)
    tokens = [text for text, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1])]
    return tokens, merges_of(tokens)


def merges_of(tokens: Sequence[str]) -> list[str]:
    """For every token in order, the cut into the two earlier tokens of lowest rank: a merge list that can make it."""
    rank = {text: i for i, text in enumerate(tokens)}
    merges = []
    for text in tokens:
        cuts = [(text[:i], text[i:]) for i in range(1, len(text))]
        known = [(max(rank[a], rank[b]), a, b) for a, b in cuts if a in rank and b in rank]
        if known:
            _, left, right = min(known)
            merges.append(f"{left} {right}")
    return merges


SPM_WORDS = (
    "the",
    "old",
    "clock",
    "it",
    "is",
    "said",
    "an",
    "and",
    "so",
    "he",
    "th",
    "in",
    "er",
    "\u00e9",
    "\u6f22\u5b57",
)


@functools.cache
def spm() -> tuple[list[str], list[float], list[int]]:
    """(tokens, scores, types): unknown, BOS, EOS, 256 bytes, then pieces with scores by rank; some have spaces."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    pieces = ["\u2581"]
    pieces += sorted({c for word in SPM_WORDS for c in word} | set("abcdefghijklmnopqrstuvwxyz.,'"))
    for word in SPM_WORDS:
        for text in (word, "\u2581" + word):
            pieces += [text[:i] for i in range(2, len(text) + 1)]
    pieces += [
        "\u2581\u2581",
        "\u2581\u2581\u2581",
        "..",
        "...",
        "aa",
        "aaaa",
        "ab",
        "ba",
        "aba",
        "a\u2581",
        "a\u2581b",
    ]
    unique = list(dict.fromkeys(pieces))
    scores = [0.0] * len(tokens) + [-float(i) for i in range(len(unique))]
    # Equal scores: the leftmost pair must win.
    by_text = {text: len(tokens) + i for i, text in enumerate(unique)}
    scores[by_text["ba"]] = scores[by_text["ab"]]
    return tokens + unique, scores, types + [NORMAL] * len(unique)


def write(path: Path, keys: Mapping[str, Any], arch: str = "llama") -> Path:
    """A GGUF file with these keys, `tokenizer.ggml.` standing before those without a dot; None leaves a key out."""
    writer = gguf.GGUFWriter(str(path), arch)
    for name, value in keys.items():
        key = name if "." in name else f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_int32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif value is not None:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def bpe_keys(extra: Mapping[str, int] | None = None, **keys: Any) -> dict[str, Any]:
    """Keys of a `gpt2` file: the trained tokens, then `extra` texts with their types."""
    tokens, merges = bpe()
    extra = extra or {}
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*tokens, *extra],
        "token_type": [NORMAL] * len(tokens) + list(extra.values()),
        "merges": merges,
        **keys,
    }


def spm_keys(extra: Mapping[str, int] | None = None, **keys: Any) -> dict[str, Any]:
    """Keys of a `llama` file: the tokens of `spm`, then `extra` texts with their types."""
    tokens, scores, types = spm()
    extra = extra or {}
    return {
        "model": "llama",
        "tokens": [*tokens, *extra],
        "scores": scores + [-1000.0] * len(extra),
        "token_type": types + list(extra.values()),
        **keys,
    }


def load(path: Path, keys: Mapping[str, Any], arch: str = "llama", isolated: bool = False) -> tokenizer.Tokenizer:
    """Write and load; the file is closed before the tokenizer is used."""
    with GgufFile.open(write(path, keys, arch)) as file:
        return tokenizer.load(file, isolated=isolated)
