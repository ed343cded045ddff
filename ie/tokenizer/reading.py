"""GGUF metadata → frozen `Vocab`: token texts, types, special ids, end-of-generation set, defaults.

Owns: reading and validating every `tokenizer.*` key, and the rules that find special tokens by their text.
Does not own: pre-tokenizer regexes (pretokenizers.py), encoding (bpe.py, spm.py), cutting text (special.py).

The file is untrusted: every length and id is checked here, so that the modules behind it need not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ..errors import TokenizerError
from ..gguf import GgufArray, GgufFile
from .pretokenizers import PreType, get_pre_type
from .vocab import BPE, BYTE, CONTROL, GEMMA4, NORMAL, SPM, UNDEFINED, USER_DEFINED, Vocab, byte_value

log = logging.getLogger(__name__)

_UNSUPPORTED_MODELS = {
    "bert": "WordPiece, an encoder's",
    "t5": "SentencePiece unigram",
    "rwkv": "RWKV",
    "plamo2": "PLaMo-2",
    "hybriddna": "DNA 6-mers",
    "whitespace": "whitespace words, an embedding model's",
    "test": "a test stub",
}

_P = "tokenizer.ggml."

# Ids that a key may give; several spellings are in use, the first is the present one.
_ID_KEYS: dict[str, tuple[str, ...]] = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unk": ("unknown_token_id",),
    "sep": ("seperator_token_id",),
    "pad": ("padding_token_id",),
    "mask": ("mask_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}

# Texts that name a special token when no key does, in order of preference.
_ID_TEXTS: dict[str, tuple[str, ...]] = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>", "<REPO>"),
    "fim_sep": ("<|file_sep|>",),
}

# Every token with one of these texts ends generation, whatever the keys say.
_EOG_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
)

_HARMONY_MARKERS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


def read_vocab(gguf: GgufFile, model: str) -> Vocab:
    """Read the vocabulary of a `llama`, `gpt2` or `gemma4` tokenizer. Raises TokenizerError naming file and key."""
    meta = gguf.metadata
    where = gguf.path
    if model not in (SPM, BPE, GEMMA4):
        what = _UNSUPPORTED_MODELS.get(model, "unknown")
        raise TokenizerError(
            f"{where}: {_P}model: tokenizer {model!r} ({what}) is not supported; expected llama, gpt2 or gemma4; "
            "give token ids with --tokens"
        )
    pre = _pre_type(meta, model, where)
    tokens = _tokens(meta, where)
    types = bytearray(_types(meta, where, len(tokens)))
    _check_bytes(tokens, types, where)
    scores = _scores(meta, where, len(tokens)) if model == SPM else None
    merges = [] if model == SPM else _merges(meta, where, pre)

    by_text = _lookup(tokens)
    ids = _special_ids(meta, where, model, pre, len(tokens))
    also_control = {i for i in _fill_by_text(ids, by_text) if types[i] != CONTROL}
    eog = _end_set(ids, by_text, types, also_control)

    force_bos = pre is not None and pre.force_bos
    default_bos = pre.add_bos if pre is not None else True
    return Vocab(
        model=model,
        pre=pre,
        tokens=tokens,
        types=bytes(types),
        scores=scores,
        merges=merges,
        ids=ids,
        also_control=frozenset(also_control),
        eog_ids=frozenset(eog),
        suppress_ids=_suppress(meta, where, len(tokens)),
        add_bos=force_bos or _flag(meta, where, "add_bos_token", default_bos),
        add_eos=model != GEMMA4 and _flag(meta, where, "add_eos_token", False),
        add_space_prefix=_flag(meta, where, "add_space_prefix", model == SPM),
        clean_spaces=pre is not None and pre.clean_spaces,
        name=str(meta.get("general.name", "")),
    )


def _error(where: str, key: str, problem: str) -> TokenizerError:
    return TokenizerError(f"{where}: {key}: {problem}")


def _pre_type(meta: Mapping[str, object], model: str, where: str) -> PreType | None:
    if model == SPM:
        return None
    if model == GEMMA4:
        return get_pre_type("gemma4")
    name = meta.get(_P + "pre", "default")
    if not isinstance(name, str):
        raise _error(where, _P + "pre", f"expected a string, found {type(name).__name__}")
    try:
        return get_pre_type(name)
    except TokenizerError as e:
        raise _error(where, _P + "pre", str(e)) from None


def _strings(meta: Mapping[str, object], where: str, key: str) -> list[bytes]:
    array = meta.get(key)
    if array is None:
        raise _error(where, key, "missing; the tokenizer cannot work without it")
    if not isinstance(array, GgufArray) or array.type != "string":
        raise _error(where, key, "expected an array of strings")
    return array.strings()


def _numbers(meta: Mapping[str, object], where: str, key: str) -> npt.NDArray[np.generic] | None:
    array = meta.get(key)
    if array is None:
        return None
    if not isinstance(array, GgufArray) or array.type == "string":
        raise _error(where, key, "expected an array of numbers")
    return array.numpy()


def _tokens(meta: Mapping[str, object], where: str) -> list[bytes]:
    key = _P + "tokens"
    tokens = _strings(meta, where, key)
    if not tokens:
        raise _error(where, key, "is empty; expected at least one token")
    if b"" in tokens:
        tokens = [text or f"[EMPTY_{i}]".encode() for i, text in enumerate(tokens)]
    if len(set(tokens)) != len(tokens):
        first: dict[bytes, int] = {}
        for i, text in enumerate(tokens):
            if text in first:
                raise _error(where, key, f"token {i} repeats token {first[text]} ({text[:40]!r}); texts must differ")
            first[text] = i
    return tokens


def _types(meta: Mapping[str, object], where: str, n: int) -> bytes:
    key = _P + "token_type"
    values = _numbers(meta, where, key)
    if values is None:
        return bytes([NORMAL]) * n
    if len(values) < n:
        raise _error(where, key, f"has {len(values)} entries, expected one for each of {n} tokens")
    if values.dtype.kind not in "iu":
        raise _error(where, key, "expected integers")
    values = values[:n]
    bad = np.flatnonzero((values < UNDEFINED) | (values > BYTE))  # type: ignore[operator]
    if bad.size:
        raise _error(where, key, f"token {bad[0]} has type {values[bad[0]]}, expected 0 to 6")
    return values.astype(np.uint8).tobytes()


def _check_bytes(tokens: list[bytes], types: bytearray, where: str) -> None:
    for i, t in enumerate(types):
        if t == BYTE and byte_value(tokens[i]) is None:
            raise _error(where, _P + "tokens", f"byte token {i} is {tokens[i][:40]!r}, expected <0x00> to <0xFF>")


def _scores(meta: Mapping[str, object], where: str, n: int) -> bytes:
    key = _P + "scores"
    values = _numbers(meta, where, key)
    if values is None:
        return bytes(4 * n)
    if len(values) < n:
        raise _error(where, key, f"has {len(values)} entries, expected one for each of {n} tokens")
    scores = values[:n].astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(scores))
    if bad.size:
        raise _error(where, key, f"score of token {bad[0]} is {scores[bad[0]]}, expected a finite number")
    return scores.astype("<f4").tobytes()


def _merges(meta: Mapping[str, object], where: str, pre: PreType | None) -> list[bytes]:
    key = _P + "merges"
    if key not in meta and pre is not None and pre.may_lack_merges:
        return []
    merges = _strings(meta, where, key)
    for rank, record in enumerate(merges):
        if record.find(b" ", 1) < 1:
            raise _error(where, key, f"merge {rank} is {record[:40]!r}, expected two parts with a space between")
    return merges


def _special_ids(meta: Mapping[str, object], where: str, model: str, pre: PreType | None, n: int) -> dict[str, int]:
    ids: dict[str, int] = {}
    if model == SPM:
        ids = {"bos": 1, "eos": 2, "unk": 0}
    elif model == BPE:
        ids = {"bos": 11, "eos": 11}
        if pre is not None and not pre.default_bos:
            del ids["bos"]
    ids = {name: i for name, i in ids.items() if i < n}
    for name, keys in _ID_KEYS.items():
        for key in (_P + k for k in keys):
            value = meta.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise _error(where, key, f"expected an integer, found {value!r}")
            if 0 <= value < n:
                ids[name] = value
            else:
                log.warning("%s: %s: %d is outside the vocabulary of %d tokens; ignored", where, key, value, n)
            break
    return ids


class _Lookup(dict[str, int]):
    """Text → id for the few texts that the rules below name."""

    def present(self, texts: Iterable[str]) -> Iterator[int]:
        return (self[t] for t in texts if t in self)


def _lookup(tokens: list[bytes]) -> _Lookup:
    named = {t.encode() for texts in _ID_TEXTS.values() for t in texts}
    named.update(t.encode() for t in (*_EOG_TEXTS, *_HARMONY_MARKERS, "<|plamo:eos|>"))
    return _Lookup((text.decode(), i) for i, text in enumerate(tokens) if text in named)


def _fill_by_text(ids: dict[str, int], by_text: _Lookup) -> Iterator[int]:
    """Add ids that no key gave; yields the ids found this way."""
    for name, texts in _ID_TEXTS.items():
        if name not in ids:
            found = next(by_text.present(texts), None)
            if found is not None:
                ids[name] = found
                yield found


def _end_set(ids: Mapping[str, int], by_text: _Lookup, types: bytearray, also_control: set[int]) -> set[int]:
    """The end-of-generation ids; corrects `types` and `also_control` by the rules for particular model families."""
    eog = {ids[name] for name in ("fim_pad", "fim_rep", "fim_sep") if name in ids}
    for i in by_text.present(_EOG_TEXTS):
        eog.add(i)
        if types[i] != CONTROL:
            also_control.add(i)
    eog.update(ids[name] for name in ("eos", "eot", "eom") if name in ids)

    def become(token: int, new_type: int) -> None:
        types[token] = new_type
        also_control.discard(token)

    for i in by_text.present(_HARMONY_MARKERS):
        become(i, USER_DEFINED)
    called = "<|call|>" in by_text or "<|calls|>" in by_text
    if called and "<|end|>" in by_text and ("<|return|>" in by_text or "<|flush|>" in by_text):
        eog.discard(by_text["<|end|>"])
        become(by_text["<|end|>"], USER_DEFINED)
    if "</s>" in by_text and any(i in eog for i in by_text.present(("<|tool_response>", "<|plamo:eos|>"))):
        eog.discard(by_text["</s>"])
        become(by_text["</s>"], NORMAL)
    return eog


def _suppress(meta: Mapping[str, object], where: str, n: int) -> tuple[int, ...]:
    key = _P + "suppress_tokens"
    values = _numbers(meta, where, key)
    if values is None:
        return ()
    if values.dtype.kind not in "iu":
        raise _error(where, key, "expected integers")
    ids = [int(v) for v in values.tolist()]
    for i in ids:
        if not 0 <= i < n:
            raise _error(where, key, f"{i} is outside the vocabulary of {n} tokens")
    return tuple(ids)


def _flag(meta: Mapping[str, object], where: str, name: str, default: bool) -> bool:
    value = meta.get(_P + name, default)
    if not isinstance(value, (bool, np.bool_)):
        raise _error(where, _P + name, f"expected true or false, found {value!r}")
    return bool(value)
