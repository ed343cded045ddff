"""Toy vocabularies that turn text into token ids and back: byte-level BPE and SentencePiece-style.

Owns: the tokenizer metadata of a tiny model. Each vocabulary covers all 256 bytes, so any text has tokens; a few
merges are learned from the sentences below. Whatever does not fill the wanted size becomes `[PAD<id>]`.
"""

from __future__ import annotations

from collections import Counter

TEXT = (
    "the small model reads the text and then it writes the next word of the text. a model that is small is quick to "
    "load, and the test that uses it is quick to run. when the weights are random the words are random too, but the "
    "same seed gives the same words, and that is all that a test needs. one and two are three; three and four are "
    "seven. there are letters, numbers and signs in this line, and the line ends here."
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
NORMAL, UNKNOWN, CONTROL_TYPE, UNUSED, BYTE = 1, 2, 3, 5, 6


def byte_alphabet() -> list[str]:
    """The printable stand-in of each byte value in byte-level BPE: itself where printable, else U+0100 upwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    out, spare = [], 0x100
    for b in range(256):
        if b in printable:
            out.append(chr(b))
        else:
            out.append(chr(spare))
            spare += 1
    return out


def learn_merges(words: list[str], limit: int) -> list[tuple[str, str]]:
    """Plain BPE training: repeatedly join the most frequent adjacent pair (ties: the smaller pair), up to `limit`."""
    pieces = [list(w) for w in words]
    merges: list[tuple[str, str]] = []
    while len(merges) < limit:
        counts = Counter(pair for p in pieces for pair in zip(p, p[1:], strict=False))
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for p in pieces:
            i = 0
            while i < len(p) - 1:
                if (p[i], p[i + 1]) == best:
                    p[i : i + 2] = [p[i] + p[i + 1]]
                i += 1
    return merges


def _pad(tokens: list[str], types: list[int], n_vocab: int) -> None:
    for i in range(len(tokens), n_vocab):
        tokens.append(f"[PAD{i}]")
        types.append(UNUSED)


def _too_small(kind: str, n_vocab: int, need: int) -> ValueError:
    return ValueError(f"n_vocab={n_vocab}: tokenizer {kind!r} needs at least {need}, or use tokenizer='none'")


def bpe(n_vocab: int) -> dict[str, object]:
    """Byte-level BPE: 3 control tokens, 256 bytes, then learned merges. The pre-tokenizer's name depends on the
    architecture and is added by build.py.

    Returned as `tokenizer.ggml.*` keys without the prefix (plus `chat_template`).
    """
    alphabet = byte_alphabet()
    tokens = [*CONTROL, *alphabet]
    types = [CONTROL_TYPE] * len(CONTROL) + [NORMAL] * 256
    if n_vocab < len(tokens):
        raise _too_small("bpe", n_vocab, len(tokens))
    space = alphabet[0x20]
    words = [w if i == 0 else space + w for i, w in enumerate(TEXT.split(" "))]
    merges = []
    for left, right in learn_merges(words, n_vocab - len(tokens)):
        if left + right not in tokens:
            tokens.append(left + right)
            types.append(NORMAL)
        merges.append(f"{left} {right}")
    _pad(tokens, types, n_vocab)
    return {
        "model": "gpt2",
        "tokens": tokens,
        "token_type": types,
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "padding_token_id": 2,
        "add_bos_token": False,
        "chat_template": CHAT_TEMPLATE,
    }


def spm(n_vocab: int) -> dict[str, object]:
    """SentencePiece-style: unk, bos, eos, 256 byte tokens, then merges and letters with falling scores."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    types = [UNKNOWN, CONTROL_TYPE, CONTROL_TYPE] + [BYTE] * 256
    if n_vocab < len(tokens):
        raise _too_small("spm", n_vocab, len(tokens))
    scores = [0.0] * len(tokens)
    words = ["\u2581" + w for w in TEXT.split(" ")]
    merged = [left + right for left, right in learn_merges(words, (n_vocab - len(tokens)) // 2)]
    letters = [c for c, _ in Counter("".join(words)).most_common()]
    for piece in dict.fromkeys([*merged, *letters]):
        if len(tokens) < n_vocab:
            tokens.append(piece)
            types.append(NORMAL)
            scores.append(float(259 - len(tokens)))
    _pad(tokens, types, n_vocab)
    scores += [-1e4] * (n_vocab - len(scores))
    return {
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "scores": scores,
        "token_type": types,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": True,
        "add_space_prefix": True,
        "chat_template": CHAT_TEMPLATE,
    }


def none(n_vocab: int) -> dict[str, object]:
    """No tokenizer: the size stands in `<arch>.vocab_size` only."""
    return {"model": "none"}


VOCABS = {"bpe": bpe, "spm": spm, "none": none}
