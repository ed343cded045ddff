"""SentencePiece-style encoding of raw text through the `sentencepiece` package.

Owns: turning a vocabulary into the package's model, the prefix space, and bytes that are not UTF-8.
Does not own: special tokens (special.py cuts them out before), BOS and EOS (codec.py).

The algorithm: start from characters; while some adjacent pair concatenates to a token, merge the pair whose result has
the largest score, leftmost first; a character left without a token becomes byte tokens `<0xHH>`.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from ..errors import TokenizerError
from .vocab import BYTE, NORMAL, UNKNOWN, Vocab

if TYPE_CHECKING:
    import sentencepiece

_BYTE_TEXT = re.compile(rb"<0x[0-9A-F]{2}>")

SPACE_MARK = b"\xe2\x96\x81"  # U+2581

# Length in bytes of a UTF-8 character by the upper four bits of its first byte; a stray continuation byte counts one.
_LENGTH = (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4)


class SpmEncoder:
    """Encodes raw fragments for one vocabulary of the kind `llama`."""

    def __init__(self, vocab: Vocab) -> None:
        self._n_vocab = vocab.n_vocab
        self._prefix = b" " if vocab.add_space_prefix else b""
        self._unk = vocab.ids.get("unk")
        self._bytes = self._byte_tokens(vocab)
        self._backend = _build(vocab)

    def encode(self, raw: bytes) -> list[int]:
        raw = self._prefix + raw
        try:
            return self._encode_text(raw.decode())
        except UnicodeDecodeError:
            return self._encode_invalid(raw)

    def _encode_text(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, out_type=int)
        if max(ids, default=0) >= self._n_vocab:
            # Ids past the vocabulary are the byte pieces that the file lacks, in byte order.
            ids = [i if i < self._n_vocab else self._byte(i - self._n_vocab - 1) for i in ids]
        return ids

    def _encode_invalid(self, raw: bytes) -> list[int]:
        """Symbols are cut by the length that the lead byte announces; invalid ones become byte tokens."""
        raw = raw.replace(b" ", SPACE_MARK)  # now, because a lead byte swallows what follows it after escaping
        ids: list[int] = []
        start = pos = 0
        while pos < len(raw):
            symbol = raw[pos : pos + _LENGTH[raw[pos] >> 4]]
            try:
                symbol.decode()
            except UnicodeDecodeError:
                if start < pos:
                    ids += self._encode_text(raw[start:pos].decode())
                ids += map(self._byte, symbol)
                start = pos + len(symbol)
            pos += len(symbol)
        if start < len(raw):
            ids += self._encode_text(raw[start:].decode())
        return ids

    def _byte(self, value: int) -> int:
        token = self._bytes[value]
        if token is None:
            raise TokenizerError(
                f"tokenizer.ggml.tokens: no token for byte 0x{value:02X}, and no unknown token to stand for it; "
                "the text cannot be encoded with this vocabulary"
            )
        return token

    def _byte_tokens(self, vocab: Vocab) -> list[int | None]:
        ids: list[int | None] = [self._unk] * 256
        for i, text in enumerate(vocab.tokens):
            if len(text) == 1 and ids[text[0]] == self._unk:
                ids[text[0]] = i
            elif len(text) == 6 and _BYTE_TEXT.fullmatch(text):
                ids[int(text[3:5], 16)] = i
        return ids


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _build(vocab: Vocab) -> sentencepiece.SentencePieceProcessor:
    """The package's model, serialised here: a message object for each of 262k pieces would cost a second.

    Every piece that is not a byte is given as normal: merging may produce any token, whatever its type, and finding
    special tokens is not left to the package. The package insists on one unknown piece and on all 256 byte pieces;
    the former and the missing ones of the latter are added behind the vocabulary.
    """
    import sentencepiece

    assert vocab.scores is not None
    wire = {t: b"\x18" + bytes([t]) for t in (NORMAL, UNKNOWN, BYTE)}
    parts: list[bytes] = []

    def add(text: bytes, score: bytes, piece_type: int) -> None:
        body = b"\n" + _varint(len(text)) + text + b"\x15" + score + wire[piece_type]
        parts.append(b"\n" + _varint(len(body)) + body)

    packed = vocab.scores
    present: set[bytes] = set()
    for i, text in enumerate(vocab.tokens):
        is_byte = len(text) == 6 and _BYTE_TEXT.fullmatch(text) is not None
        if is_byte:
            present.add(text)
        try:
            text.decode()
        except UnicodeDecodeError:
            text = b" token %d" % i  # the package takes UTF-8 only; with a space in it, it equals no escaped text
        add(text, packed[4 * i : 4 * i + 4], BYTE if is_byte else NORMAL)
    none = struct.pack("<f", 0.0)
    add(b" unknown", none, UNKNOWN)
    for b in range(256):
        text = b"<0x%02X>" % b
        # A stand-in keeps the numbering even where the piece exists.
        add(text if text not in present else b" byte %d" % b, none, NORMAL if text in present else BYTE)

    trainer = b"\x18\x02" + b"\x98\x02\x01"  # model_type (3) = BPE, byte_fallback (35) = true
    normalizer = b"\n\x08identity" + b"\x18\x00" + b"\x20\x00" + b"\x28\x01"  # prefix, squeeze off; escaping on
    proto = b"".join(parts)
    proto += b"\x12" + _varint(len(trainer)) + trainer + b"\x1a" + _varint(len(normalizer)) + normalizer
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=proto)
    except Exception as e:  # the package raises RuntimeError and OSError, with its own source lines in the text
        reason = str(e).replace("\n", " ")
        raise TokenizerError(f"tokenizer.ggml.tokens: cannot build the SentencePiece model: {reason}") from None
