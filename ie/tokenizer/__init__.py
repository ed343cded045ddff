"""Text ↔ token ids, as the GGUF file's own vocabulary defines it; chat templates.

Owns: the interface and `load`. A file per task behind it: reading.py reads and validates the metadata into what
vocab.py says a vocabulary is, pretokenizers.py is the table of pre-tokenizers, special.py cuts text at special tokens,
bpe.py and spm.py encode what lies between, codec.py puts these together, stream.py decodes token by token, chat.py
renders messages, marks.py tells the template's markers from text that looks like them. Rendering and encoding happen in
a process of their own (process.py), which worker.py is.

Importing this needs Python only: that process starts with it. `tokenizers`, `sentencepiece` and `jinja2` are imported
there, numpy where a file is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import TokenizerError
from . import chat
from .codec import NoTokenizer, VocabTokenizer
from .stream import StopMatcher, TextStream
from .vocab import NO_MODEL

if TYPE_CHECKING:
    from ..gguf import GgufFile

__all__ = ["StopMatcher", "TextStream", "Tokenizer", "apply_chat_template", "encode_chat", "load"]


class Tokenizer(Protocol):
    """What the rest of the engine knows of a tokenizer. All ids lie in 0 … n_vocab − 1."""

    n_vocab: int
    bos_id: int | None
    eos_id: int | None
    eog_ids: frozenset[int]  # any of these ends generation
    add_bos: bool
    add_eos: bool
    chat_template: str | None
    suppress_ids: tuple[int, ...]  # never to be sampled

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]: ...

    def text(self, token: int) -> bytes: ...

    def piece(self, id: int, *, special: bool = False) -> bytes: ...

    def decode(self, ids: Iterable[int], *, special: bool = False, remove_special: bool = False) -> str: ...

    def stream(self, *, special: bool = False) -> TextStream: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def apply_chat_template(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """See `chat.apply_chat_template`; done in the tokenizer's own process, where it has one."""
    here = getattr(tokenizer, "apply_chat_template", None)
    return str(here(messages, **options) if here else chat.apply_chat_template(tokenizer, messages, **options))


def encode_chat(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
    """See `chat.encode_chat`; done in the tokenizer's own process, where it has one."""
    here = getattr(tokenizer, "encode_chat", None)
    return list(here(messages, **options) if here else chat.encode_chat(tokenizer, messages, **options))


def load(gguf: GgufFile, *, isolated: bool = True) -> Tokenizer:
    """The tokenizer of a file; the file may be closed afterwards. Raises TokenizerError naming file and key.

    `isolated`: texts and templates are worked on in a process of their own, within bounds of time and memory. Without
    it they are in this one, without bounds: for vocabularies and templates that are trusted.
    """
    from .process import IsolatedTokenizer
    from .reading import read_vocab

    model = gguf.metadata.get("tokenizer.ggml.model", "none")
    if not isinstance(model, str):
        raise TokenizerError(f"{gguf.path}: tokenizer.ggml.model: expected a string, found {model!r}")
    if model in NO_MODEL:
        return NoTokenizer(_vocab_size(gguf), gguf.path)
    template = gguf.metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise TokenizerError(f"{gguf.path}: tokenizer.chat_template: expected a string, found {template!r}")
    vocab = read_vocab(gguf, model)
    return IsolatedTokenizer(vocab, template, gguf.path) if isolated else VocabTokenizer(vocab, template)


def _vocab_size(gguf: GgufFile) -> int:
    key = f"{gguf.metadata.get('general.architecture', '')}.vocab_size"
    size = gguf.metadata.get(key)
    if size is None:
        embedding = gguf.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise TokenizerError(f"{gguf.path}: no tokenizer, and neither {key} nor token_embd.weight gives its size")
        size = embedding.shape[1]
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 1 << 31:
        raise TokenizerError(f"{gguf.path}: {key}: expected a positive 32-bit integer, found {size!r}")
    return size
