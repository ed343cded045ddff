"""Cutting text at special tokens: order, parse_special, overlaps, whitespace that a token swallows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ie.tokenizer import Tokenizer
from ie.tokenizer.codec import VocabTokenizer
from tests import tiny_vocabs as tv

EXTRA = {
    "<|im_start|>": tv.CONTROL,
    "<|im_end|>": tv.CONTROL,
    "<|a|>": tv.USER,
    "<|a|><|b|>": tv.CONTROL,
    "<|b|>": tv.USER,
    "??": tv.UNKNOWN,
    "\t\t": tv.USER,
    "xx": tv.USER,
    "xxx": tv.USER,
}


def bpe(tmp_path: Path, **keys: object) -> Tokenizer:
    return tv.load(tmp_path / "v.gguf", tv.bpe_keys(EXTRA, **keys))


def split(tok: Tokenizer, text: str, parse_special: bool) -> list[str]:
    """The text with ids of special tokens in brackets and raw fragments between."""
    out: list[str] = []
    raw = b""
    assert isinstance(tok, VocabTokenizer)
    first = tok.n_vocab - len(EXTRA)
    for i in tok.encode(text, add_special=False, parse_special=parse_special):
        if i >= first:
            out += [raw.decode()] * bool(raw) + [f"[{tok.text(i).decode()}]"]
            raw = b""
        else:
            raw += tok.piece(i)
    return out + [raw.decode()] * bool(raw)


def test_control_tokens_are_plain_text_unless_parsed(tmp_path: Path) -> None:
    tok = bpe(tmp_path)
    text = "<|im_start|>user\nhi<|im_end|>"
    assert split(tok, text, True) == ["[<|im_start|>]", "user\nhi", "[<|im_end|>]"]
    assert split(tok, text, False) == [text]
    assert split(tok, "a??b", True) == ["a", "[??]", "b"]
    assert split(tok, "a??b", False) == ["a??b"]


def test_user_defined_tokens_are_always_split_out(tmp_path: Path) -> None:
    tok = bpe(tmp_path)
    for parse in (True, False):
        assert split(tok, "1<|a|>2\t\t3", parse) == ["1", "[<|a|>]", "2", "[\t\t]", "3"]


def test_the_longest_spelling_goes_first_and_cuts_from_the_left(tmp_path: Path) -> None:
    tok = bpe(tmp_path)
    assert split(tok, "<|a|><|b|>", True) == ["[<|a|><|b|>]"]
    assert split(tok, "<|a|><|b|>", False) == ["[<|a|>]", "[<|b|>]"]
    assert split(tok, "xxxxx", True) == ["[xxx]", "[xx]"]
    assert split(tok, "xxxxxxx", True) == ["[xxx]", "[xxx]", "x"]
    assert split(tok, "\t\t\t", True) == ["[\t\t]", "\t"]


def test_an_earlier_shorter_token_loses_to_a_longer_one_it_overlaps(tmp_path: Path) -> None:
    """Candidates go by length, not by place: a leftmost-longest search would cut differently."""
    extra = {"abc": tv.USER, "cdefg": tv.USER}
    tok = tv.load(tmp_path / "v.gguf", tv.bpe_keys(extra))
    ids = tok.encode("abcdefg", add_special=False)
    assert ids[-1] == tok.n_vocab - 1
    assert tok.n_vocab - 2 not in ids


def test_hidden_and_visible_pieces(tmp_path: Path) -> None:
    tok = bpe(tmp_path)
    ids = tok.encode("<|im_start|>x<|a|>??", add_special=False)
    assert tok.decode(ids) == "x<|a|>"
    assert tok.decode(ids, special=True) == "<|im_start|>x<|a|>??"
    stream = tok.stream(special=True)
    assert "".join(stream.push(i) for i in ids) == "<|im_start|>x<|a|>??"


@pytest.mark.parametrize("name", ["Phi-3 mini", "my phi3"])
def test_phi3_swallows_the_space_after_a_marker(name: str, tmp_path: Path) -> None:
    extra = {"<|user|>": tv.CONTROL, "<|endoftext|>": tv.CONTROL}
    keys = tv.spm_keys(extra, add_space_prefix=False, **{"general.name": name})
    tok = tv.load(tmp_path / "s.gguf", keys)
    assert tok.decode(tok.encode("<|user|> \n the old<s> the", add_special=False), special=True) == (
        "<|user|>the old<s> the"
    )
    assert tok.decode(tok.encode("<|endoftext|> the", add_special=False), special=True) == "<|endoftext|> the"
    assert tok.decode(tok.encode("<|user|>  ", add_special=False), special=True) == "<|user|>"
    other = tv.load(tmp_path / "t.gguf", {**keys, "general.name": "other"})
    assert other.decode(other.encode("<|user|> the", add_special=False), special=True) == "<|user|> the"


def test_many_candidates_and_many_occurrences(tmp_path: Path) -> None:
    extra = {f"<|{i}|>": tv.USER for i in range(1000)}
    tok = tv.load(tmp_path / "v.gguf", tv.bpe_keys(extra))
    text = "".join(f"<|{i}|>x" for i in range(1000)) + "<|7|>y" * 10_000 + "<" * 100_000
    ids = tok.encode(text, add_special=False)
    assert b"".join(map(tok.piece, ids)) == text.encode()
    assert sum(i >= tok.n_vocab - 1000 for i in ids) == 11_000
