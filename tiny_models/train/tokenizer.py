"""Byte-level BPE of the trained model: pre-tokenizer of type `qwen35`, three control tokens at the end.

Owns: training, packing documents into ids, and the `tokenizer.*` metadata of the GGUF file. It does not own the
engine's tokenizer, which reads that metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tiny_models.vocab import CHAT_TEMPLATE, CONTROL, CONTROL_TYPE, NORMAL

#: Splits as pre type `qwen35` does: contractions, words with marks, single digits, punctuation, white space.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END, IM_START, IM_END = CONTROL
DOCUMENTS_AT_ONCE = 2000


def _assemble(model: Any) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

    tok = Tokenizer(model)
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    return tok


def train(documents: Iterable[str], n_vocab: int) -> Any:
    """A `tokenizers.Tokenizer` of exactly `n_vocab` ids; the control tokens have the last three."""
    from tokenizers import AddedToken, models, pre_tokenizers, trainers

    tok = _assemble(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab - len(CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        max_token_length=24,
    )
    tok.train_from_iterator(documents, trainer)
    tok.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    if tok.get_vocab_size() != n_vocab:
        raise ValueError(f"the sample gave {tok.get_vocab_size()} tokens, wanted {n_vocab}: use more text")
    return tok


def load(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def pack(tok: Any, documents: list[str]) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """All documents as one id sequence, <|endoftext|> after each."""
    end = tok.token_to_id(END)
    parts: list[np.ndarray[Any, np.dtype[np.uint16]]] = []
    for start in range(0, len(documents), DOCUMENTS_AT_ONCE):
        for encoding in tok.encode_batch_fast(documents[start : start + DOCUMENTS_AT_ONCE], add_special_tokens=False):
            parts.append(np.array([*encoding.ids, end], np.uint16))
    return np.concatenate(parts)


def metadata(tok: Any) -> dict[str, object]:
    """GGUF keys below `tokenizer.`: lists of str and int, single values."""
    ids = tok.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    merges = json.loads(tok.to_str())["model"]["merges"]
    return {
        "ggml.model": "gpt2",
        "ggml.pre": "qwen35",
        "ggml.tokens": tokens,
        "ggml.token_type": [CONTROL_TYPE if t in CONTROL else NORMAL for t in tokens],
        "ggml.merges": [" ".join(m) if isinstance(m, list) else m for m in merges],
        "ggml.eos_token_id": ids[IM_END],
        "ggml.padding_token_id": ids[END],
        "ggml.add_bos_token": False,
        "chat_template": CHAT_TEMPLATE,
    }
