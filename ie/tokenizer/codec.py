"""The tokenizer of a vocabulary: text → ids, id → bytes, ids → text.

Owns: the order of the steps (special tokens, BOS, fragments, EOS), pieces, whole-text decoding. Does not own: reading
the vocabulary (vocab.py) or the encoders (bpe.py, spm.py), which are built on first use: decoding alone needs neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ..errors import TokenizerError
from .stream import TextStream
from .vocab import BYTE, NORMAL, SPM, USER_DEFINED, Vocab, byte_value

if TYPE_CHECKING:
    from .marks import Marks
    from .special import Fragment, SpecialSplitter

SPACE_MARK = b"\xe2\x96\x81"  # U+2581


SHORT = 64  # bytes of a token whose whole text stands beside each byte that it cannot spell


class Encoder(Protocol):
    def encode(self, raw: bytes) -> list[int]: ...


def to_bytes(text: str | bytes) -> bytes:
    """UTF-8 of a text that may hold surrogates: escaped bytes (U+DC80…DCFF) come back, others become U+FFFD."""
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError:
        fixed = "".join("\ufffd" if "\ud800" <= c <= "\udfff" and not "\udc80" <= c <= "\udcff" else c for c in text)
        return fixed.encode("utf-8", "surrogateescape")


class VocabTokenizer:
    """A tokenizer for a validated vocabulary. Not for use by several threads at once before the first `encode`."""

    def __init__(self, vocab: Vocab, chat_template: str | None) -> None:
        self.vocab = vocab
        self.n_vocab: int = vocab.n_vocab
        self.bos_id: int | None = vocab.ids.get("bos")
        self.eos_id: int | None = vocab.ids.get("eos")
        self.eog_ids: frozenset[int] = vocab.eog_ids
        self.add_bos: bool = vocab.add_bos and self.bos_id is not None
        self.add_eos: bool = vocab.add_eos and self.eos_id is not None
        self.suppress_ids: tuple[int, ...] = vocab.suppress_ids
        self.chat_template: str | None = chat_template
        self._encoder: Encoder | None = None
        self._splitter: SpecialSplitter | None = None
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of a text; bytes that are not UTF-8 never fail.

        `add_special`: BOS before and EOS after, where the vocabulary wants them. `parse_special`: the spelling of
        control tokens in the text becomes these tokens; user-defined tokens are recognised either way.
        """
        ids: list[int] = []
        if add_special and self.add_bos and self.bos_id is not None:
            ids.append(self.bos_id)
        ids += self._encode_fragments(self._get_splitter().split(to_bytes(text), parse_special=parse_special))
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def _encode_fragments(self, fragments: Iterable[Fragment]) -> list[int]:
        ids: list[int] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                ids += self._get_encoder().encode(fragment)
        return ids

    def encode_marked(self, text: str, marks: Marks) -> list[int]:
        """Token ids of a rendered template in which `marks` broke the spelling of control tokens that are only text."""
        splitter = self._get_splitter()
        fragments: list[Fragment] = []
        for fragment in splitter.split(to_bytes(text), parse_special=True):
            if isinstance(fragment, int) or not marks.within(fragment):
                fragments.append(fragment)
            else:  # without its marks it may hold tokens that are found in any text
                fragments += splitter.split(marks.removed(fragment), parse_special=False)
        return self._encode_fragments(fragments)

    def control_tokens(self, text: str) -> list[int]:
        """The control tokens of a rendered text, in their order."""
        found = self._get_splitter().split(to_bytes(text), parse_special=True)
        return [f for f in found if isinstance(f, int) and self.vocab.is_hidden(f)]

    def control_spellings(self) -> list[bytes]:
        """Texts of the tokens that only a template may write, longest first."""
        return self._get_splitter().hidden

    def prepare(self) -> None:
        """Build what the first text would otherwise wait for."""
        self._get_splitter()
        self._get_encoder()

    def start(self) -> None:
        """Nothing runs elsewhere."""

    def close(self) -> None:
        """Nothing is held."""

    def _get_splitter(self) -> SpecialSplitter:
        if self._splitter is None:
            from .special import SpecialSplitter

            self._splitter = SpecialSplitter(self.vocab)
        return self._splitter

    def _get_encoder(self) -> Encoder:
        if self._encoder is None:
            if self.vocab.model == SPM:
                from .spm import SpmEncoder

                self._encoder = SpmEncoder(self.vocab)
            else:
                from .bpe import BpeEncoder

                self._encoder = BpeEncoder(self.vocab)
        return self._encoder

    def text(self, token: int) -> bytes:
        """A token's text as the file spells it."""
        self._check(token)
        return self.vocab.tokens[token]

    def piece(self, id: int, *, special: bool = False) -> bytes:
        """The bytes that a token prints; control and unknown tokens print nothing unless `special`."""
        self._check(id)
        if self.vocab.is_hidden(id):
            return self.vocab.tokens[id] if special else b""
        piece = self._pieces.get(id)
        if piece is None:
            piece = self._pieces[id] = self._visible_piece(id)
        return piece

    def _check(self, token: int) -> None:
        if not 0 <= token < self.n_vocab:
            raise TokenizerError(f"token id {token} is outside the vocabulary of {self.n_vocab} tokens")

    def _visible_piece(self, token: int) -> bytes:
        text, kind = self.vocab.tokens[token], self.vocab.types[token]
        if kind == USER_DEFINED:
            return text
        if kind == NORMAL:
            return text.replace(SPACE_MARK, b" ") if self.vocab.escapes_spaces else _from_byte_alphabet(text)
        if kind == BYTE:
            value = byte_value(text)
            return b"" if value is None else bytes([value])
        return b""

    def decode(self, ids: Iterable[int], *, special: bool = False, remove_special: bool = False) -> str:
        """The text of a whole sequence.

        Differs from joined pieces: a vocabulary with a prefix space loses one leading space, and one that says so has
        the spaces before punctuation cleaned. `remove_special`: drop the BOS and EOS that `encode` added. Incomplete
        UTF-8 becomes U+FFFD.
        """
        ids = list(ids)
        strip = self.vocab.add_space_prefix
        if remove_special:
            if self.add_bos and ids and ids[0] == self.bos_id:
                ids, strip = ids[1:], False
            if self.add_eos and ids and ids[-1] == self.eos_id:
                ids.pop()
        pieces = [self.piece(i, special=special) for i in ids]
        if strip and pieces and pieces[0].startswith(b" "):
            pieces[0] = pieces[0][1:]
        text = b"".join(pieces).decode("utf-8", "replace")
        return clean_spaces(text) if self.vocab.clean_spaces else text

    def stream(self, *, special: bool = False) -> TextStream:
        """Decoding token by token: pieces as they are, complete characters only."""
        return TextStream(lambda token: self.piece(token, special=special))


def _from_byte_alphabet(text: bytes) -> bytes:
    from .bpe import CHAR_TO_BYTE

    out = bytearray()
    for char in text.decode("utf-8", "replace"):
        byte = CHAR_TO_BYTE.get(char)
        if byte is None:
            out += b"[UNK_BYTE_0x" + char.encode().hex().encode() + (text if len(text) <= SHORT else b"") + b"]"
        else:
            out.append(byte)
    return bytes(out)


def clean_spaces(text: str) -> str:
    """Undo the spaces that some tokenizers' training put before punctuation and around apostrophes."""
    for mark in "?!.,":
        text = text.replace(" " + mark, mark)
    text = text.replace(" ' ", "'")
    for ending in ("'s", "'m", "'re", "'ve"):
        text = text.replace(" " + ending, ending)
    return text


class NoTokenizer:
    """Stands in where the file has no tokenizer: ids only."""

    def __init__(self, n_vocab: int, where: str) -> None:
        self.n_vocab = n_vocab
        self.bos_id: int | None = None
        self.eos_id: int | None = None
        self.eog_ids: frozenset[int] = frozenset()
        self.add_bos = False
        self.add_eos = False
        self.suppress_ids: tuple[int, ...] = ()
        self.chat_template: str | None = None
        self._where = where

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        raise TokenizerError(f"{self._where}: the file has no tokenizer; give token ids with --tokens")

    def start(self) -> None:
        """There is nothing to start."""

    def close(self) -> None:
        """Nothing is held."""

    def text(self, token: int) -> bytes:
        return b""

    def piece(self, id: int, *, special: bool = False) -> bytes:
        return b""

    def decode(self, ids: Iterable[int], *, special: bool = False, remove_special: bool = False) -> str:
        return ""

    def stream(self, *, special: bool = False) -> TextStream:
        return TextStream(self.piece)
