"""Byte-pair encoding of raw text through the `tokenizers` package.

Owns: the byte alphabet, pre-tokenizer steps, the merge model, and what happens to symbols that have no token.
Does not own: special tokens (special.py cuts them out before), BOS and EOS (codec.py).

Two spellings of a token exist. *Byte alphabet*: every byte stands as one printable character (bytes 21-7E, A1-AC,
AE-FF as themselves, the other 68 in ascending order as U+0100, U+0101, …). *Escaped*: UTF-8 as it is, with U+2581
for a space, and byte tokens `<0xHH>` for characters that have no token.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import TokenizerError
from .pretokenizers import DigitGroups, PreType
from .vocab import Vocab

if TYPE_CHECKING:
    import tokenizers

SPACE_MARK = "\u2581"

PIECE = 1 << 18  # characters of a text that are encoded at once
# After one newline that ends a word, before a letter: no regex joins these (a test asks all of them).
_SAFE_CUT = re.compile(r"(?<=[A-Za-z.,;:!?]\n)(?=[A-Za-z])")


def _byte_alphabet() -> str:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_in = iter(range(0x100, 0x200))
    return "".join(chr(b if b in printable else next(stand_in)) for b in range(256))


BYTE_TO_CHAR = _byte_alphabet()
CHAR_TO_BYTE = {c: b for b, c in enumerate(BYTE_TO_CHAR)}


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("ie.each_byte", _each_byte)


def decode_lossy(raw: bytes) -> str:
    """UTF-8 → text, one U+FFFD for every undecodable byte."""
    return raw.decode("utf-8", "ie.each_byte")


def cuts_lines(pre: PreType) -> bool:
    """Whether a pre-tokenizer keeps the words of two lines apart: one without a regex does not."""
    return not pre.escaped and any(isinstance(step, str) for step in pre.steps)


def cut_long(text: str, piece: int) -> Iterator[str]:
    """Pieces of at least `piece` characters, but for the last, cut where the pre-tokenizer cuts anyway, so that the
    package, which takes some two hundred times a text's size, sees little of it at once."""
    start = 0
    while len(text) - start > piece:
        cut = _SAFE_CUT.search(text, start + piece)
        if cut is None:
            break
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


class BpeEncoder:
    """Encodes raw fragments for one vocabulary of the kinds `gpt2` and `gemma4`.

    The merge model needs both parts and the result of every merge, and every symbol it may meet, as tokens. Texts that
    the vocabulary lacks get ids from n_vocab upwards; `_expand` turns these into the ids of their bytes, as far as
    those exist.
    """

    def __init__(self, vocab: Vocab) -> None:
        assert vocab.pre is not None
        self._pre = vocab.pre
        self._n_vocab = vocab.n_vocab
        texts: dict[str, int] = {}
        for i, token in enumerate(vocab.tokens):
            try:
                texts[token.decode()] = i
            except UnicodeDecodeError:
                continue  # equals no text, and no merge makes it
        extra: list[str] = []
        pairs = self._complete(texts, extra, vocab.merges)
        self._expand = self._byte_ids(texts, extra)
        self._newline_runs = {}
        if self._pre.newline_runs:
            self._newline_runs = {t: i for t, i in texts.items() if i < self._n_vocab and t.strip("\n") == ""}
        self._backend = _build(texts, pairs, self._pre)
        self._has_digit_step = any(isinstance(step, DigitGroups) for step in self._pre.steps)

    def encode(self, raw: bytes) -> list[int]:
        text = decode_lossy(raw)
        if not self._pre.escaped:
            ids = self._run(text)
        else:
            text = text.replace(" ", SPACE_MARK)
            ids = self._run(text) if not self._newline_runs else self._run_lines(text)
        if self._expand and max(ids, default=0) >= self._n_vocab:
            ids = [j for i in ids for j in (self._expand[i] if i >= self._n_vocab else (i,))]
        return ids

    def _run(self, text: str) -> list[int]:
        if len(text) <= PIECE or not cuts_lines(self._pre):
            return self._run_piece(text)
        return [i for piece in cut_long(text, PIECE) for i in self._run_piece(piece)]

    def _run_piece(self, text: str) -> list[int]:
        if self._has_digit_step:
            pieces = digit_groups(self._pre, text)
            encoding = self._backend.encode(pieces, is_pretokenized=True, add_special_tokens=False)
        else:
            encoding = self._backend.encode(text, add_special_tokens=False)
        return list(encoding.ids)

    def _run_lines(self, text: str) -> list[int]:
        ids: list[int] = []
        start = 0
        # A single newline needs no care: it is one symbol whether emitted at once or merged.
        for match in re.finditer("\n\n+", text):
            token = self._newline_runs.get(match[0])
            if token is None:
                continue
            if start < match.start():
                ids += self._run(text[start : match.start()])
            ids.append(token)
            start = match.end()
        if start < len(text):
            ids += self._run(text[start:])
        return ids

    def _complete(self, texts: dict[str, int], extra: list[str], merges: list[bytes]) -> list[tuple[str, str]]:
        """Merge pairs in rank order; adds to `texts` (and `extra`) what the merge model needs and the file lacks."""

        def need(text: str) -> None:
            if text not in texts:
                texts[text] = self._n_vocab + len(extra)
                extra.append(text)

        pairs: list[tuple[str, str]] = []
        for record in merges:
            try:
                text = record.decode()
            except UnicodeDecodeError:
                continue  # its parts never arise
            cut = text.index(" ", 1)
            left, right = text[:cut], text[cut + 1 :]
            if not right:
                continue
            if left not in texts or right not in texts or left + right not in texts:
                for part in (left, right, left + right):
                    need(part)
            pairs.append((left, right))
        for b in range(256):
            need(f"<0x{b:02X}>" if self._pre.escaped else BYTE_TO_CHAR[b])
        return pairs

    def _byte_ids(self, texts: dict[str, int], extra: list[str]) -> dict[int, tuple[int, ...]]:
        byte_texts = {f"<0x{b:02X}>" for b in range(256)}

        def spell(text: str) -> list[str]:
            if not self._pre.escaped:
                return list(text)
            return [] if text in byte_texts else [f"<0x{b:02X}>" for b in text.encode()]

        return {
            texts[t]: tuple(i for p in spell(t) if (i := texts.get(p, self._n_vocab)) < self._n_vocab) for t in extra
        }


def _build(texts: dict[str, int], pairs: list[tuple[str, str]], pre: PreType) -> tokenizers.Tokenizer:
    import tokenizers
    from tokenizers import models, pre_tokenizers

    try:
        model = models.BPE(texts, pairs, ignore_merges=pre.ignore_merges, byte_fallback=pre.escaped)
    except Exception as e:  # the package raises plain Exception
        raise TokenizerError(f"tokenizer.ggml.merges: cannot build the merge model: {e}") from None
    backend = tokenizers.Tokenizer(model)
    steps = split_steps(pre)
    if not pre.escaped:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return backend


def split_steps(pre: PreType) -> list[tokenizers.pre_tokenizers.PreTokenizer]:
    """The regex steps of a pre-tokenizer, each cutting into matches and gaps."""
    from tokenizers import Regex, pre_tokenizers

    return [pre_tokenizers.Split(Regex(step), "isolated") for step in pre.steps if isinstance(step, str)]


def digit_groups(pre: PreType, text: str) -> list[str]:
    """The `DigitGroups` step, where there is one: it always stands before the regexes."""
    from tokenizers import Regex, pre_tokenizers

    kind = next((step for step in pre.steps if isinstance(step, DigitGroups)), None)
    if kind is None:
        return [text]
    # Look-behind and possessive repetition: a number that fails the boundary is not tried again from its middle.
    run = r"(?<!\d)\d++\b" if kind is DigitGroups.BEFORE_BOUNDARY else r"\p{N}+"
    pieces: list[str] = []
    for piece, _ in pre_tokenizers.Split(Regex(run), "isolated").pre_tokenize_str(text):
        if kind is DigitGroups.INSIDE_NUMBER:
            pieces += _cut_inside(piece) if _is_number(piece) else [piece]
        elif piece.isdecimal() if kind is DigitGroups.BEFORE_BOUNDARY else _is_number(piece):
            pieces += _threes(piece)
        else:
            pieces.append(piece)
    return pieces


def _is_number(piece: str) -> bool:
    """For a piece that is a run of number characters or holds none."""
    return unicodedata.category(piece[0])[0] == "N"


def _threes(run: str) -> list[str]:
    first = len(run) % 3
    groups = [run[i : i + 3] for i in range(first, len(run), 3)]
    return [run[:first], *groups] if first else groups


def _cut_inside(piece: str) -> list[str]:
    """Cut before every decimal digit that a positive multiple of three digits, itself included, ends a run."""
    cuts = {0, len(piece)}
    for match in re.finditer(r"\d+", piece):
        cuts.update(range(match.end() - 3, match.start() - 1, -3))
    edges = sorted(cuts)
    return [piece[a:b] for a, b in zip(edges, edges[1:], strict=False)]
