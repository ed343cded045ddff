"""Byte-level BPE against the same rules written naively here, for every pre-tokenizer; escaped BPE; odd files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import regex
from tokenizers import pre_tokenizers

from ie.errors import TokenizerError
from ie.tokenizer import Tokenizer, bpe
from ie.tokenizer.bpe import BpeEncoder, cut_long, digit_groups, split_steps
from ie.tokenizer.codec import VocabTokenizer
from ie.tokenizer.pretokenizers import PRE_TYPES, DigitGroups, get_pre_type
from tests import tiny_vocabs as tv

# The upstream patterns whose place a DigitGroups step takes.
UPSTREAM_DIGITS = {
    DigitGroups.BEFORE_BOUNDARY: (r"\d{1,3}(?=(?:\d{3})*\b)",),
    DigitGroups.ANY_NUMBER: (r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",),
    DigitGroups.INSIDE_NUMBER: (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
}
BYTE_LEVEL = {name: pre for name, pre in PRE_TYPES.items() if not pre.escaped}
# One name for each list of steps and flag that decides ids.
DISTINCT = {(pre.steps, pre.ignore_merges): name for name, pre in reversed(BYTE_LEVEL.items())}


def patterns(name: str) -> list[str]:
    out: list[str] = []
    for step in PRE_TYPES[name].steps:
        out += [step] if isinstance(step, str) else UPSTREAM_DIGITS[step]
    return [regex.sub(r"\\x\{([0-9A-F]+)\}", lambda m: regex.escape(chr(int(m[1], 16))), p) for p in out]


def cut(pieces: list[str], pattern: str) -> list[str]:
    """Every piece into matches and gaps; an empty match cuts there."""
    out = []
    for piece in pieces:
        edges = {0, len(piece)}
        for match in regex.finditer(pattern, piece):
            edges |= {match.start(), match.end()}
        order = sorted(edges)
        out += [piece[a:b] for a, b in zip(order, order[1:], strict=False)]
    return out


def merge(symbols: list[str], rank: dict[tuple[str, str], int]) -> list[str]:
    """Apply the adjacent pair of smallest rank, leftmost first, until none applies."""
    while True:
        ranked = [(rank[pair], i) for i, pair in enumerate(zip(symbols, symbols[1:], strict=False)) if pair in rank]
        if not ranked:
            return symbols
        _, i = min(ranked)
        symbols = [*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :]]


class Naive:
    """The rules of byte-level BPE, one after the other."""

    def __init__(self, tokens: Sequence[str], merges: Sequence[str], name: str) -> None:
        self.ids = {text: i for i, text in enumerate(tokens)}
        self.rank = {tuple(m.split(" ", 1)): i for i, m in enumerate(merges)}
        self.patterns = patterns(name)
        self.whole = PRE_TYPES[name].ignore_merges

    def encode(self, text: str) -> list[int]:
        pieces = [text] if text else []
        for pattern in self.patterns:
            pieces = cut(pieces, pattern)
        ids: list[int] = []
        for piece in map(tv.to_alphabet, pieces):
            symbols = [piece] if self.whole and piece in self.ids else merge(list(piece), self.rank)
            ids += [self.ids[s] for s in symbols]
        return ids


@pytest.mark.parametrize("name", sorted(DISTINCT.values()))
def test_ids_are_those_of_the_naive_rules(name: str, tmp_path: Path) -> None:
    keys = tv.bpe_keys(pre=name)
    naive = Naive(keys["tokens"], keys["merges"], name)
    tok = tv.load(tmp_path / "v.gguf", keys)
    for text in tv.strings(150, seed=len(name)):
        assert tok.encode(text, add_special=False) == naive.encode(text), text
        assert b"".join(map(tok.piece, tok.encode(text, add_special=False))) == text.encode()


def pieces(name: str, text: str) -> list[str]:
    """What the pre-tokenizer makes of a text, seen before the merges."""
    pre = PRE_TYPES[name]
    splits = pre_tokenizers.Sequence(split_steps(pre))
    return [piece for part in digit_groups(pre, text) for piece, _ in splits.pre_tokenize_str(part)]


CUTS = [
    ("gpt-2", "Hello  world's 123abc!!\n\n x", ["Hello", " ", " world", "'s", " 123", "abc", "!!", "\n\n", " x"]),
    ("gpt-2", "IT'S 1234567", ["IT", "'", "S", " 1234567"]),
    ("llama-bpe", "12345 it'S a\u2019s\r\n\tb", ["123", "45", " it", "'S", " a", "\u2019s", "\r\n", "\tb"]),
    ("qwen2", "123 a\u0301b  c\n \n d", ["1", "2", "3", " a", "\u0301b", " ", " c", "\n \n", " d"]),
    ("qwen35", "123 a\u0301b", ["1", "2", "3", " a\u0301b"]),
    ("smollm", "ab12 3", ["ab", "1", "2", " ", "3"]),
    ("default", "a+b 12345", ["a", "+", "b", " ", "123", "45"]),
    ("gpt-4o", "fooBar's 1234a/\n", ["foo", "Bar's", " ", "123", "4", "a", "/\n"]),
    ("tekken", "fooBar's 12", ["foo", "Bar", "'s", " ", "1", "2"]),
    ("deepseek-v3", "a\u6f22\u5b57b 1234 +x", ["a", "\u6f22\u5b57", "b", " ", "123", "4", " +", "x"]),
    ("deepseek-llm", "ab \u6f22\u5b57 12\n  ", ["ab", " ", "\u6f22\u5b57", " ", "12", "\n", "  "]),
    ("deepseek-coder", "a \u6f22, 12", ["a", " ", "\u6f22", ",", " ", "1", "2"]),
    ("bloom", "Hello, world\u3002x", ["Hello", ",", " world", "\u3002", "x"]),
    ("viking", "ab12 c", ["ab", "1", "2", " c"]),
    ("falcon", "12345`a", ["123", "45", "`", "a"]),
    ("chameleon", "<sentinel:12>a7", ["<", "sentinel", ":", "1", "2", ">", "a", "7"]),
    ("jais-2", "     a", ["    ", " a"]),
    ("laguna", "a b\n\nc", ["a", " b", "\n\n", "c"]),
    ("tiny_aya", "1234567 x", ["1", "234", "567", " x"]),
    ("tiny_aya", "1234abc", ["123", "4", "abc"]),
    ("afmoe", "a1234b", ["a", "1", "234", "b"]),
    ("superbpe", "x 12345 y", ["x ", "12", "345", " y"]),
    ("superbpe", "\u00b212345\u00b2", ["\u00b212", "345\u00b2"]),
    ("kimi-k2", "\u6f22\u5b57Ab\u3042", ["\u6f22\u5b57", "Ab\u3042"]),
    ("ufakzeka", "it's 12", ["it", "'s", " ", "1", "2"]),
    ("seed-coder", "a!\nb", ["a", "!", "\n", "b"]),
    ("minicpm5", "a12345", ["a", "123", "45"]),
]


@pytest.mark.parametrize(("name", "text", "expected"), CUTS, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(CUTS)])
def test_cuts(name: str, text: str, expected: list[str]) -> None:
    assert pieces(name, text) == expected


def test_every_pre_tokenizer_of_the_format_is_known() -> None:
    names = """default gpt-2 phi-2 jina-es jina-de gigachat a.x-4.0 mellum modern-bert exaone4 llama-bpe llama3 llama-v3
    falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 qwen35
    smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 deepseek-llm deepseek-coder deepseek-v3
    hunyuan-dense joyai-llm hy_v4 chatglm-bpe glm4 glm5 gpt-4o llama4 kanana2 talkie minimax-m2 tekken mpt olmo jais
    jina-v2-es jina-v2-de jina-v1-en roberta-bpe jina-v2-code trillion granite-docling dbrx smaug-bpe hunyuan
    solar-open grok-2 ufakzeka bailingmoe bailingmoe2 llada-moe seed-coder laguna exaone-moe minicpm5 jais-2 spark2_5
    falcon poro-chat bloom gpt3-finnish viking chameleon granite-embed-multi-97m youtu tiny_aya cohere2moe afmoe
    kimi-k2 superbpe gemma4 granite-embed-multi-311m sarvam-moe""".split()
    assert set(names) == set(PRE_TYPES)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("qwen-2", "unknown pre-tokenizer 'qwen-2'; nearest known: 'qwen2'"),
        ("mmbert", "pre-tokenizer 'mmbert' belongs to embedding models"),
        ("whitespace", "pre-tokenizer 'whitespace' belongs to embedding models"),
    ],
)
def test_an_unknown_pre_tokenizer_is_named(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="^" + says):
        get_pre_type(name)
    with pytest.raises(TokenizerError, match="tokenizer.ggml.pre: " + says):
        tv.load(tmp_path / "v.gguf", tv.bpe_keys(pre=name))


def test_flags_of_some_pre_tokenizers() -> None:
    def flags(name: str) -> tuple[bool, bool, bool, bool]:
        pre = get_pre_type(name)
        return pre.ignore_merges, pre.add_bos, pre.clean_spaces, pre.default_bos

    assert flags("llama-bpe") == (True, True, True, True)
    assert flags("tekken") == (True, True, False, True)
    assert flags("qwen2") == (False, False, False, True)
    assert flags("stablelm2") == (False, False, True, True)
    assert flags("glm4") == (True, False, True, False)
    assert flags("smollm") == (False, False, False, True)
    assert flags("starcoder") == (False, False, True, True)
    assert flags("chameleon") == (False, True, False, True)
    assert [n for n, p in PRE_TYPES.items() if p.force_bos] == ["gemma4", "granite-embed-multi-311m"]


def byte_level(tmp_path: Path, name: str = "gpt-2") -> Tokenizer:
    return tv.load(tmp_path / "v.gguf", tv.bpe_keys(pre=name))


def test_every_byte_makes_the_round_trip(tmp_path: Path) -> None:
    tok = byte_level(tmp_path)
    assert b"".join(tok.piece(i) for i in range(256)) == bytes(range(256))
    for b in range(0x80):
        assert tok.decode(tok.encode(chr(b))) == chr(b)


def test_bytes_that_are_not_utf8_become_one_replacement_each(tmp_path: Path) -> None:
    tok = byte_level(tmp_path)
    replacement = tok.encode("\ufffd")
    # A stray byte, a truncated sequence of two, an overlong sequence of two, a surrogate of three.
    raw = b"a\xffb\xe6\xbcc\xc0\x80d\xed\xa0\x80"
    expected = [r for n in (1, 2, 2, 3) for r in ["x", "\ufffd" * n]]
    expected[::2] = ["a", "b", "c", "d"]
    assert tok.encode(raw) == tok.encode("".join(expected))
    assert replacement * 3 == tok.encode(b"\xff\xfe\xfd")


def test_surrogates_from_the_command_line(tmp_path: Path) -> None:
    tok = byte_level(tmp_path)
    raw = b"caf\xe9 \xff"
    assert tok.encode(raw.decode("utf-8", "surrogateescape")) == tok.encode(raw)
    assert tok.encode("\ud800x\udbff") == tok.encode("\ufffdx\ufffd")
    whole = "\u6f22".encode().decode("ascii", "surrogateescape")  # escaped bytes that are a character after all
    assert tok.encode(whole) == tok.encode("\u6f22")


def test_bytes_and_text_give_the_same(tmp_path: Path) -> None:
    tok = byte_level(tmp_path)
    for text in tv.strings(50, seed=3):
        assert tok.encode(text.encode()) == tok.encode(text)


def test_a_symbol_without_token_is_dropped_and_does_not_join_its_neighbours(tmp_path: Path) -> None:
    tokens = ["a", "b", "ab"]
    keys = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": ["a b"]}
    tok = tv.load(tmp_path / "v.gguf", keys)
    assert tok.encode("ab") == [2]
    assert tok.encode("azb") == [0, 1]


def test_a_merge_whose_result_is_no_token_falls_back_to_bytes(tmp_path: Path) -> None:
    tokens = ["a", "b", "c", "bc"]
    keys = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": ["a b", "b c", "x y"]}
    tok = tv.load(tmp_path / "v.gguf", keys)
    assert tok.encode("abc") == [0, 1, 2]  # "ab" is merged first, then spelled
    assert tok.encode("bc") == [3]
    assert tok.encode("xy") == []


def test_odd_vocabularies_still_load(tmp_path: Path) -> None:
    tokens = [b"a", b"\xff\xfe", b"", b"b"]
    keys = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": [b"a b", b"\xff x"]}
    tok = tv.load(tmp_path / "v.gguf", keys)
    assert tok.encode("ab") == [0, 3]
    assert tok.text(2) == b"[EMPTY_2]"


def test_a_character_outside_the_byte_alphabet_is_spelled_out(tmp_path: Path) -> None:
    tok = tv.load(tmp_path / "v.gguf", {"model": "gpt2", "tokens": ["a\u2581b"], "merges": ["a b"]})
    assert tok.piece(0) == b"a[UNK_BYTE_0xe29681" + "a\u2581b".encode() + b"]b"


def test_ignore_merges(tmp_path: Path) -> None:
    keys = {"model": "gpt2", "tokens": ["a", "b", "c", "abc"], "merges": []}
    whole = tv.load(tmp_path / "v.gguf", {**keys, "pre": "llama-bpe", "merges": ["a b"], "add_bos_token": False})
    assert whole.encode("abc") == [3]
    parts = tv.load(tmp_path / "w.gguf", {**keys, "pre": "dbrx", "merges": ["a b"]})
    assert parts.encode("abc") == [0, 1, 2]


ESCAPED = [*(f"<0x{b:02X}>" for b in range(256)), "\u2581", "a", "b", "\n", "\n\n", "\u2581a", "\u2581a\u2581b", "a\n"]


def escaped(tmp_path: Path, drop: str = "", **keys: object) -> Tokenizer:
    tokens = [t for t in ESCAPED if t != drop]
    merges = ["\u2581 a", "a \n", "\u2581a \u2581b", "\u2581 b"]
    types = [tv.BYTE if t.startswith("<0x") else tv.NORMAL for t in tokens]
    base = {"model": "gemma4", "tokens": tokens, "token_type": types, "merges": merges, "bos_token_id": 0}
    return tv.load(tmp_path / "g.gguf", {**base, **keys})


def texts(tok: Tokenizer, text: str) -> list[str]:
    return [tok.text(i).decode() for i in tok.encode(text, add_special=False)]


def test_escaped_bpe(tmp_path: Path) -> None:
    tok = escaped(tmp_path)
    assert texts(tok, " a") == ["\u2581a"]
    assert texts(tok, "a a") == ["a", "\u2581a"]
    assert texts(tok, "a\n\nb") == ["a", "\n\n", "b"]  # a run that is a token is emitted at once
    assert texts(tok, "a\n\n\nb") == ["a", "\n", "\n", "\n", "b"]
    assert texts(tok, "\u00e9") == ["<0xC3>", "<0xA9>"]
    assert texts(tok, "a\tb") == ["a", "<0x09>", "b"]
    assert texts(tok, " a b") == ["\u2581a\u2581b"]  # through "\u2581b", which is no token itself
    assert texts(tok, " b") == ["<0xE2>", "<0x96>", "<0x81>", "<0x62>"]
    assert tok.decode(tok.encode(" a \u00e9\n\nb", add_special=False)) == " a \u00e9\n\nb"
    assert tok.encode("a")[0] == 0, "BOS is forced"


def test_escaped_bpe_adds_bos_against_its_key_and_drops_missing_bytes(tmp_path: Path) -> None:
    assert escaped(tmp_path, add_bos_token=False).add_bos
    tok = escaped(tmp_path, drop="<0xA9>")
    assert texts(tok, "a\u00e9b") == ["a", "<0xC3>", "b"]
    relative = escaped(tmp_path, model="gpt2", pre="sarvam-moe")
    assert not relative.add_bos
    assert texts(relative, "a\n\nb") == ["a", "\n", "\n", "b"]  # by merges only


N = 131_072


@pytest.mark.parametrize(
    "name", ["smollm", "qwen35", "deepseek-llm", "jais-2", "tiny_aya", "afmoe", "superbpe", "kimi-k2"]
)
def test_long_runs(name: str, tmp_path: Path) -> None:
    """Quadratic time would show as a test that never ends."""
    tok = byte_level(tmp_path, name)
    assert isinstance(tok, VocabTokenizer) and isinstance(tok._get_encoder(), BpeEncoder)
    for text in ("a" * N, " " * N, " " * N + "1", "\n" * N, "7" * N, "7" * N + "x", "\u6f22" * (N // 2), "'" * N):
        ids = tok.encode(text, add_special=False)
        assert b"".join(map(tok.piece, ids)) == text.encode()


def test_long_runs_escaped(tmp_path: Path) -> None:
    tok = escaped(tmp_path)
    for text in ("a" * N, " " * N, "\n" * N, "\n\na" * (N // 3), "\u6f22" * (N // 4)):
        assert tok.decode(tok.encode(text, add_special=False)) == text


WORDS = ["a", "Zb", "é", "漢", "1", "23", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0"]
MARKS = [".", ",", "!?", "'s", "'", "-", "_", "<"]


@pytest.mark.parametrize("name", [n for n, pre in PRE_TYPES.items() if bpe.cuts_lines(pre)])
def test_long_texts_are_cut_where_every_pre_tokenizer_cuts(name: str) -> None:
    """Pieces encoded one by one give the ids of the whole."""
    import tokenizers

    pre = PRE_TYPES[name]
    steps = tokenizers.pre_tokenizers.Sequence(split_steps(pre))

    def words(text: str) -> list[str]:
        return [w for piece in digit_groups(pre, text) for w, _ in steps.pre_tokenize_str(piece)]

    rng = random.Random(name)
    cuts = 0
    for _ in range(40):
        text = "".join(rng.choices(WORDS + MARKS, k=300)) + "end.\nNew line\nthen"
        pieces = list(cut_long(text, 20))
        assert "".join(pieces) == text
        cuts += len(pieces) - 1
        assert [w for p in pieces for w in words(p)] == words(text), (name, text)
    assert cuts > 40


def test_few_pre_tokenizers_join_lines() -> None:
    joining = {n for n, pre in PRE_TYPES.items() if not bpe.cuts_lines(pre)}
    assert joining == {"superbpe", "gemma4", "granite-embed-multi-311m", "sarvam-moe"}


def test_a_long_text_has_the_same_ids_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tok = byte_level(tmp_path, "smollm")
    text = "The old cat sat on the mats.\nThe other one did not,\nand so on\n\n" * 200
    whole = tok.encode(text)
    monkeypatch.setattr(bpe, "PIECE", 100)
    assert tok.encode(text) == whole and len(list(cut_long(text, 100))) > 20
