"""SentencePiece-style encoding against the greedy rule written naively here; prefix space; bytes; odd files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ie.errors import TokenizerError
from ie.tokenizer import Tokenizer
from tests import tiny_vocabs as tv

MARK = "\u2581"


def naive(text: str, tokens: Sequence[str], scores: Sequence[float], prefix: bool) -> list[int]:
    """Merge the adjacent pair whose result has the largest score, leftmost first; then bytes for what is left."""
    ids = {t: i for i, t in enumerate(tokens)}
    symbols = list(((" " if prefix else "") + text).replace(" ", MARK))
    while True:
        pairs = [symbols[i] + symbols[i + 1] for i in range(len(symbols) - 1)]
        found = [(-scores[ids[pair]], i) for i, pair in enumerate(pairs) if pair in ids]
        if not found:
            break
        _, i = min(found)
        symbols[i : i + 2] = [pairs[i]]
    out: list[int] = []
    for s in symbols:
        out += [ids[s]] if s in ids else [ids[f"<0x{b:02X}>"] for b in s.encode()]
    return out


def spm(tmp_path: Path, extra: dict[str, int] | None = None, **keys: object) -> Tokenizer:
    return tv.load(tmp_path / "s.gguf", tv.spm_keys(extra, **keys))


def texts(tok: Tokenizer, text: str | bytes, parse_special: bool = False) -> list[str]:
    return [tok.text(i).decode() for i in tok.encode(text, add_special=False, parse_special=parse_special)]


@pytest.mark.parametrize("prefix", [True, False])
def test_ids_are_those_of_the_naive_rule(prefix: bool, tmp_path: Path) -> None:
    tok = spm(tmp_path, add_space_prefix=prefix)
    tokens, scores, _ = tv.spm()
    words = [
        "the old clock",
        " said",
        "abab",
        "ababa",
        "aaaaa",
        "a  b",
        "...",
        "<s>",
        "<0x41>",
        "\u6f22\u5b57",
        "\u2581",
    ]
    for text in tv.strings(400, seed=5, words=words):
        if text:
            expected = naive(text, tokens, scores, prefix)
            assert tok.encode(text, add_special=False, parse_special=False) == expected, text


def test_the_empty_text(tmp_path: Path) -> None:
    tok = spm(tmp_path)
    assert tok.encode("") == [1]
    assert tok.encode("", add_special=False) == []


def test_the_prefix_space_stands_before_every_raw_fragment(tmp_path: Path) -> None:
    tok = spm(tmp_path, {"<|x|>": tv.USER})
    assert texts(tok, "the<|x|>old") == [MARK + "the", "<|x|>", MARK + "old"]
    assert texts(tok, "the</s>old", parse_special=True) == [MARK + "the", "</s>", MARK + "old"]
    assert texts(tok, " the") == [MARK, MARK + "the"]
    assert texts(tok, "  ") == [MARK * 3]
    without = spm(tmp_path, {"<|x|>": tv.USER}, add_space_prefix=False)
    assert texts(without, "the<|x|>old") == ["the", "<|x|>", "old"]


def test_bos_and_eos(tmp_path: Path) -> None:
    assert spm(tmp_path).encode("the") == [1, *spm(tmp_path).encode("the", add_special=False)]
    both = spm(tmp_path, add_eos_token=True)
    assert both.encode("the")[0] == 1 and both.encode("the")[-1] == 2
    neither = spm(tmp_path, add_bos_token=False)
    assert neither.encode("the") == neither.encode("the", add_special=False)


def test_user_defined_runs_of_spaces(tmp_path: Path) -> None:
    tok = spm(tmp_path, {"      ": tv.USER, "    ": tv.USER}, add_space_prefix=False)
    assert texts(tok, "a" + " " * 10 + "b") == ["a", " " * 6, " " * 4, "b"]
    assert texts(tok, "a" + " " * 5 + "the") == ["a", " " * 4, MARK + "the"]
    # The text of a user-defined token holds real spaces: a literal U+2581 in the text does not make one.
    assert "    " not in texts(tok, MARK * 4)
    assert tok.decode(tok.encode("a" + " " * 10 + "b")) == "a" + " " * 10 + "b"


def test_every_byte_makes_the_round_trip(tmp_path: Path) -> None:
    tok = spm(tmp_path, add_space_prefix=False)
    assert [tok.piece(3 + b) for b in range(256)] == [bytes([b]) for b in range(256)]
    for b in range(256):
        raw = bytes([b])
        ids = tok.encode(raw, add_special=False)
        assert b"".join(map(tok.piece, ids)) == raw
    text = "\U0001f600 na\u00efve \u00df\n"
    assert tok.decode(tok.encode(text)) == text


def test_bytes_that_are_not_utf8_survive(tmp_path: Path) -> None:
    tok = spm(tmp_path, add_space_prefix=False)
    for raw in (b"the \x80 old", b"\xe6\xbc", b"a\xf0\x9f", b"\x80\x80the", b"\xfethe", b"\xc3(", b"\xed\xa0\x80 old"):
        ids = tok.encode(raw, add_special=False)
        assert b"".join(map(tok.piece, ids)) == raw, raw
    assert tok.encode(b"a\xff".decode("utf-8", "surrogateescape")) == tok.encode(b"a\xff")
    assert tok.encode("\ud800") == tok.encode("\ufffd")
    # A lead byte takes as many bytes as it announces, here four, of the text whose spaces are already marks.
    assert texts(tok, b"the\xffold") == ["the", "<0xFF>", "<0x6F>", "<0x6C>", "<0x64>"]
    assert texts(tok, b"\xf0 a") == ["<0xF0>", "<0xE2>", "<0x96>", "<0x81>", "a"]


def test_a_missing_byte_token(tmp_path: Path) -> None:
    keys = tv.spm_keys()
    at = keys["tokens"].index("<0x5A>")
    keys["tokens"][at], keys["token_type"][at] = "unusual", tv.NORMAL
    tok = tv.load(tmp_path / "s.gguf", keys)
    assert tok.encode("Z", add_special=False)[-1] == 0  # the unknown token stands for it
    keys["tokens"][at] = "Z"
    assert tv.load(tmp_path / "t.gguf", keys).encode("Z", add_special=False)[-1] == at
    keys["tokens"][at] = "unusual"
    bare = {**keys, "unknown_token_id": -1, "tokens": ["zz", *keys["tokens"][1:]]}
    bare["token_type"] = [tv.NORMAL, *keys["token_type"][1:]]
    tok = tv.load(tmp_path / "u.gguf", bare)
    assert tok.encode("Z", add_special=False)[-1] == 0  # the kind's default unknown id


def test_a_vocabulary_without_bytes_or_unknown(tmp_path: Path) -> None:
    # The default unknown id 0 exists in every vocabulary, so a text always has ids.
    tok = tv.load(tmp_path / "s.gguf", {"model": "llama", "tokens": ["a", MARK], "scores": [0.0, 0.0]})
    assert tok.encode("ab", add_special=False) == [1, 0, 0]


def test_several_unknown_tokens_and_odd_types(tmp_path: Path) -> None:
    """The package takes one unknown piece and no unused one; a file may hold many."""
    extra = {"<u1>": tv.UNKNOWN, "<u2>": tv.UNKNOWN, "olo": tv.UNUSED, "lol": 0, "<c>": tv.CONTROL}
    tok = spm(tmp_path, extra)
    assert texts(tok, "<u1>a<c>", parse_special=True) == ["<u1>", MARK + "a", "<c>"]
    assert tok.piece(tok.n_vocab - 3) == b""  # unused
    assert tok.piece(tok.n_vocab - 1) == b"" and tok.piece(tok.n_vocab - 1, special=True) == b"<c>"


def test_tokens_that_are_not_utf8(tmp_path: Path) -> None:
    tok = tv.load(
        tmp_path / "s.gguf",
        {"model": "llama", "tokens": [b"<unk>", b"a", b"\xff\xff", b"\xe6"], "scores": [0.0] * 4},
    )
    assert tok.encode("a", add_special=False)[-1] == 1
    assert tok.piece(2) == b"\xff\xff"


def test_whole_text_and_streamed_decoding_differ_by_the_prefix_space(tmp_path: Path) -> None:
    tok = spm(tmp_path)
    ids = tok.encode("the old", add_special=False)
    assert tok.decode(ids) == "the old"
    stream = tok.stream()
    assert "".join(stream.push(i) for i in ids) + stream.flush() == " the old"
    # With the BOS dropped the space stays, as the format's reference has it.
    assert tok.decode([1, *ids], remove_special=True) == " the old"


N = 131_072


def test_long_runs(tmp_path: Path) -> None:
    """Quadratic time would show as a test that never ends."""
    tok = spm(tmp_path, add_space_prefix=False)
    for text in ("a" * N, " " * N, "\n" * N, "7" * N, "\u6f22" * (N // 2), "ab" * (N // 2)):
        assert tok.decode(tok.encode(text)) == text
    invalid = b"\xe6\x80a \x80" * (N // 8)
    assert b"".join(map(tok.piece, tok.encode(invalid))) == invalid


def test_the_model_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="cannot build the SentencePiece model"):
        spm(tmp_path, {" byte 65": tv.NORMAL}).encode("a")
