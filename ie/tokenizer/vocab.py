"""What a vocabulary is: token texts, types, special ids, and how its text is to be encoded.

Owns: the frozen `Vocab` and what its types mean. Needs nothing but Python, since the process that encodes texts starts
with it. Does not own: reading it from a file (reading.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .pretokenizers import PreType

UNDEFINED, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(7)

SPM, BPE, GEMMA4 = "llama", "gpt2", "gemma4"
NO_MODEL = ("none", "no_vocab")


@dataclass(frozen=True)
class Vocab:
    """A validated vocabulary; index = token id.

    `types` holds the numbers 0…6 of the file format, with the corrections of the end-token rules applied.
    `also_control` are ids that have the control property in addition to their own type: their spelling is plain
    text unless special tokens are parsed, and they print nothing unless special tokens are printed.
    `merges` are raw "left right" records, rank = index; empty for `llama`.
    """

    model: str
    pre: PreType | None
    tokens: list[bytes]
    types: bytes
    scores: bytes | None  # float32, little-endian, one a token
    merges: list[bytes]
    ids: Mapping[str, int]
    also_control: frozenset[int]
    eog_ids: frozenset[int]
    suppress_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    clean_spaces: bool
    name: str

    @property
    def n_vocab(self) -> int:
        return len(self.tokens)

    @property
    def escapes_spaces(self) -> bool:
        """Whether token texts hold U+2581 for a space (else the byte alphabet)."""
        return self.pre is None or self.pre.escaped

    def is_hidden(self, token: int) -> bool:
        """Control or unknown: split out only on request, printed only on request."""
        return self.types[token] in (UNKNOWN, CONTROL) or token in self.also_control


def byte_value(text: bytes) -> int | None:
    """The value of a byte token's text `<0xHH>`; None when the text has another form."""
    if len(text) != 6 or not text.startswith(b"<0x") or text[5:] != b">":
        return None
    try:
        return bytes.fromhex(text[3:5].decode("ascii"))[0]
    except (ValueError, IndexError):
        return None
