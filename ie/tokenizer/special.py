"""Cutting raw text at the spelling of special tokens.

Owns: which tokens are looked for, in which order, and what whitespace they swallow. Does not own: encoding the text
between them.

Candidates are the control, unknown and user-defined tokens, longest spelling first. For each in turn, every fragment
that is still raw text is cut at each occurrence from left to right: a plain byte search without word boundaries. With
special parsing off only user-defined tokens are looked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from .vocab import CONTROL, UNKNOWN, USER_DEFINED, Vocab

Fragment = bytes | int  # raw text, or a token id

_SPACES = b" \t\n\v\f\r"
_PHI3_KEEPS_SPACE = (b"<unk>", b"<s>", b"<|endoftext|>")


class SpecialSplitter:
    """Cuts text for one vocabulary. Linear in the text for each candidate that occurs in it."""

    def __init__(self, vocab: Vocab) -> None:
        wanted = [
            i
            for i, t in enumerate(vocab.types)
            if t in (UNKNOWN, CONTROL, USER_DEFINED) or (vocab.also_control and i in vocab.also_control)
        ]
        wanted.sort(key=lambda i: -len(vocab.tokens[i]))
        self._all = [(vocab.tokens[i], i) for i in wanted]
        self._visible = [(vocab.tokens[i], i) for i in wanted if not vocab.is_hidden(i)]
        self.hidden = [vocab.tokens[i] for i in wanted if vocab.is_hidden(i)]
        name = vocab.name.lower()
        self._swallows_right: frozenset[int] = frozenset()
        if "phi-3" in name or "phi3" in name:
            # The file format has no field for it: these models were trained with the spaces after a marker removed.
            self._swallows_right = frozenset(i for text, i in self._all if text not in _PHI3_KEEPS_SPACE)

    def split(self, text: bytes, *, parse_special: bool) -> list[Fragment]:
        """Non-empty raw fragments and token ids, in order."""
        fragments: list[Fragment] = [text] if text else []
        present = set(text)
        for spelling, token in self._all if parse_special else self._visible:
            # Cutting only removes occurrences, so a spelling absent from the whole text needs no further look; the
            # first-byte test is there because most texts hold no "<" at all.
            if spelling[0] not in present or spelling not in text:
                continue
            fragments = list(self._cut(fragments, spelling, token))
        return fragments

    def _cut(self, fragments: list[Fragment], spelling: bytes, token: int) -> Iterable[Fragment]:
        swallow = token in self._swallows_right
        for fragment in fragments:
            if isinstance(fragment, int) or spelling not in fragment:
                yield fragment
                continue
            first, *rest = fragment.split(spelling)
            if first:
                yield first
            for raw in rest:
                yield token
                if swallow:
                    raw = raw.lstrip(_SPACES)
                if raw:
                    yield raw
