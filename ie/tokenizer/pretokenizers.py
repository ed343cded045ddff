r"""The table of pre-tokenizers: what each value of `tokenizer.ggml.pre` means.

Owns: names, regex lists, and the flags that go with a name. Does not own: running them (bpe.py).

A list is applied in order. The first regex cuts the text into matches and the gaps between them, both kept; each
further one cuts every piece so far by itself, so that look-ahead sees only that piece. The patterns are those of the
upstream tokenizer files, in Oniguruma syntax, non-ASCII members written `\x{…}`.

Three upstream patterns group digits in threes from the right by a look-ahead that scans the rest of the number at
every group, quadratic in its length. Their place is taken by a `DigitGroups` step, which gives the same cuts.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum, auto

from ..errors import TokenizerError


class DigitGroups(Enum):
    """Cut runs of digits in groups of three, counted from the right."""

    BEFORE_BOUNDARY = auto()  # \d{1,3}(?=(?:\d{3})*\b): only numbers that no word character follows
    ANY_NUMBER = auto()  # \p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))
    INSIDE_NUMBER = auto()  # \p{N}+, then the empty match (?=(\d{3})+(?!\d)): the first group keeps what precedes it


@dataclass(frozen=True)
class PreType:
    """One pre-tokenizer. `steps`: regexes in Oniguruma syntax, or a `DigitGroups`.

    `ignore_merges`: a piece that is itself a token is emitted without merging. `add_bos`: default when the file has no
    key; `force_bos` overrides the key too. `clean_spaces`: spaces before punctuation go when a whole text is decoded.
    `default_bos`: whether the kind's usual BOS id is assumed without a key. `escaped`: token texts hold U+2581 for a
    space and raw UTF-8 otherwise, instead of the byte alphabet; `newline_runs`: then a run of newlines that is itself
    a token is emitted at once. `may_lack_merges`: a file without merges is accepted.
    """

    name: str
    steps: tuple[str | DigitGroups, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    clean_spaces: bool = True
    default_bos: bool = True
    force_bos: bool = False
    escaped: bool = False
    newline_runs: bool = False
    may_lack_merges: bool = False


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_PUNCT = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_PUNCT_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_ASCII_PUNCT_WORD = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_MARK_WORD = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"

_G = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_L = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_PUNCT}|{_SPACE}"
_U = rf"{_WORD}|\p{{N}}|{_PUNCT}|{_SPACE}"
_Q = rf"{_CONTRACTION}|{_U}"
_Q35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_N1 = r"\p{N}"
_X1 = r"[\p{P}\$\+<=>\^~\|]+"
_X1F = r"[\p{P}\$\+<=>\^~\|`]+"
_X2 = r"\p{N}+"
_X3 = r"[0-9][0-9][0-9]"


def _cased(contraction: str, digits: str) -> str:
    """Words cut where lower case turns to upper, as in `fooBar`."""
    return (
        rf"{_LEAD}{_UPPER}*{_LOWER}+{contraction}|{_LEAD}{_UPPER}+{_LOWER}*{contraction}"
        rf"|{digits}|{_PUNCT_SLASH}|{_SPACE}"
    )


_O = _cased(_CONTRACTION + "?", r"\p{N}{1,3}")
_O1 = _cased(_CONTRACTION + "?", r"\p{N}")
_T = _cased("", r"\p{N}")
_D3A = r"\p{N}{1,3}"
_D3B = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
_D3C = rf"{_ASCII_PUNCT_WORD}|{_MARK_WORD}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACE}"
_P = rf"{_ASCII_PUNCT_WORD}|{_MARK_WORD}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+"
_CJK = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
_DC = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")


def _char_class(ranges: str) -> str:
    """Hexadecimal code points and ranges, such as `41-5A B5` → the members of a regex character class."""
    return "".join("-".join(rf"\x{{{end}}}" for end in item.split("-")) for item in ranges.split())


_DL_LETTERS = _char_class(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F "
    "104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_DL_PUNCT = _char_class("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
_DL = (
    r"[\r\n]",
    rf"\s?[{_DL_LETTERS}]+",
    rf"\s?[{_DL_PUNCT}]+",
    # The upstream pattern is \s+$. A run of spaces that does not end the piece would be tried from each of its
    # characters; look-behind and possessive repetition try it once.
    r"(?<!\s)\s++$",
    _CJK,
    r"\p{N}+",
)
_B = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_S = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACE}"
_NL = r"[^\n]+|[\n]+"
_E = (
    rf"{_CONTRACTION}|{_LEAD}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_M = rf"{_CONTRACTION}|{_WORD}|\p{{N}}+|{_PUNCT}|{_SPACE}"
_J_SPACES = "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
_J = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_PUNCT}|\s*[\r\n]+{_J_SPACES}|\s{{1,2}}(?!\S)|\s{{1}}"
_W = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+"
_C1 = r"<sentinel:[0-9]+>"
_C2 = r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"
_C3 = r"([\t\n]|    |  )"
_C4 = r"[\p{P}!-/:-@\[-`{-~]"
_Y = (
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+"
    r"|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}"
    r"\x{FE30}-\x{FE4F}]+"
    r"|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
)
_A = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}"
    r"\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}"
    r"\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
)
_K_UPPER = rf"(?:(?!\p{{Han}}){_UPPER})"
_K_LOWER = rf"(?:(?!\p{{Han}}){_LOWER})"
_K = (
    rf"[\p{{Han}}]+|{_LEAD}{_K_UPPER}*{_K_LOWER}+{_CONTRACTION}?|{_LEAD}{_K_UPPER}+{_K_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}|{_PUNCT}|{_SPACE}"
)

# Embedding models' kinds whose word rules differ from everything above.
_ENCODERS_ONLY = ("mmbert", "whitespace")


def _table() -> dict[str, PreType]:
    table: dict[str, PreType] = {}

    def add(
        names: str,
        *steps: str | DigitGroups,
        clean: bool = True,
        ignore_merges: bool = False,
        add_bos: bool = False,
        default_bos: bool = True,
        may_lack_merges: bool = False,
    ) -> None:
        for name in names.split():
            table[name] = PreType(
                name,
                steps,
                ignore_merges,
                add_bos,
                clean,
                default_bos,
                may_lack_merges=may_lack_merges,
            )

    add("gpt-2 phi-2 jina-es jina-de gigachat a.x-4.0 mellum modern-bert exaone4", _G)
    add("mpt olmo jais jina-v2-es jina-v2-de jina-v1-en roberta-bpe jina-v2-code", _G)
    add("trillion granite-docling", _G, clean=False)
    add("default", _X1, _G, _X2, _X3)
    llama3 = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
    add(llama3, _L, ignore_merges=True, add_bos=True)
    add("dbrx smaug-bpe", _L)
    add("chatglm-bpe", _L, default_bos=False)
    add("glm4 glm5", _L, ignore_merges=True, default_bos=False)
    add("qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2", _Q, clean=False)
    add("megrez stablelm2", _Q)
    add("qwen35", _Q35, clean=False)
    add("smollm command-r", _N1, _G, clean=False)
    add("starcoder refact codeshell exaone minerva-7b mellum2", _N1, _G)
    add("deepseek-llm", *_DL, clean=False)
    add("deepseek-coder", *_DC, clean=False)
    add("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _D3A, _D3B, _D3C, clean=False)
    add("gpt-4o llama4 kanana2 talkie minimax-m2", _O, clean=False)
    add("tekken", _T, clean=False, ignore_merges=True, add_bos=True)
    add("ufakzeka", _U, clean=False)
    add("bailingmoe bailingmoe2 llada-moe", _B, clean=False)
    add("seed-coder", _S, clean=False)
    add("laguna", _NL, _Q, clean=False)
    add("exaone-moe", _E)
    add("minicpm5", _D3A, _M, ignore_merges=True)
    add("jais-2", _J)
    add("spark2_5", _D3A, _D3B, _P, _N1, clean=False)
    add("falcon", _X1F, _G, _X3)
    add("poro-chat", _W, clean=False)
    add("bloom gpt3-finnish", _W)
    add("viking", _W, _N1, clean=False)
    add("chameleon", _C1, _C2, _C3, _N1, _C4, _G, clean=False, add_bos=True)
    add("granite-embed-multi-97m", _O, clean=False, ignore_merges=True)
    add("youtu", _Y, _O1, clean=False, ignore_merges=True)
    add("tiny_aya cohere2moe", DigitGroups.BEFORE_BOUNDARY, _O, clean=False)
    add("afmoe", DigitGroups.ANY_NUMBER, _A, _D3C, clean=False)
    add("kimi-k2", _K, clean=False, may_lack_merges=True)
    add("superbpe", DigitGroups.INSIDE_NUMBER, clean=False)
    for name in ("gemma4", "granite-embed-multi-311m"):
        table[name] = PreType(name, (_NL,), default_bos=False, force_bos=True, escaped=True, newline_runs=True)
    table["sarvam-moe"] = PreType("sarvam-moe", (_NL,), clean_spaces=False, escaped=True)
    return table


PRE_TYPES: dict[str, PreType] = _table()


def get_pre_type(name: str) -> PreType:
    """The pre-tokenizer of that name. Raises TokenizerError naming it and the nearest known one."""
    pre = PRE_TYPES.get(name)
    if pre is not None:
        return pre
    if name in _ENCODERS_ONLY:
        raise TokenizerError(f"pre-tokenizer {name!r} belongs to embedding models and is not supported")
    nearest = difflib.get_close_matches(name, PRE_TYPES, n=1, cutoff=0.0)
    hint = f"; nearest known: {nearest[0]!r}" if nearest else ""
    raise TokenizerError(f"unknown pre-tokenizer {name[:60]!r}{hint}; text cannot be cut as the model expects")
