"""A model that needs no file: it spells the alphabet. `python -m tests.cli.fake ARGS` is ie-run with it.

Token ids 0 … 255 are bytes; 256 is BOS, 257 ends a text. After a letter comes the next one, after z the end
token, or an `a` where that is forbidden; after [ comes é, which is two tokens, then `!`; after any other byte an `a`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from ie.cli import run
from ie.cli.options import Options
from ie.cli.session import Session
from ie.errors import ModelError, ResourceError
from ie.tokenizer import TextStream

BOS, END, N_VOCAB = 256, 257, 258
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class FakeTokenizer:
    n_vocab = N_VOCAB
    bos_id, eos_id = BOS, END
    eog_ids = frozenset({END})
    add_eos = False
    suppress_ids: tuple[int, ...] = ()

    def __init__(self, add_bos: bool = False, chat_template: str | None = TEMPLATE) -> None:
        self.add_bos, self.chat_template = add_bos, chat_template

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        return [BOS] * (self.add_bos and add_special) + list(data)

    def text(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else {BOS: b"<bos>", END: b"<end>"}[token]

    def piece(self, id: int, *, special: bool = False) -> bytes:
        return self.text(id) if id < 256 or special else b""

    def decode(self, ids: Iterable[int], *, special: bool = False, remove_special: bool = False) -> str:
        return b"".join(self.piece(i, special=special) for i in ids).decode("utf-8", "replace")

    def stream(self, *, special: bool = False) -> TextStream:
        return TextStream(lambda token: self.piece(token, special=special))


class FakeSequence:
    def __init__(self, engine: FakeEngine) -> None:
        self.tokens: list[int] = []
        self._engine = engine

    def __len__(self) -> int:
        return len(self.tokens)

    def truncate(self, n: int) -> None:
        assert 0 <= n <= len(self.tokens)
        del self.tokens[n:]

    def require(self, n: int) -> None:
        if len(self) + n > self._engine.n_ctx:
            raise ResourceError("the context is full")

    def close(self) -> None:
        self._engine.open_sequences -= 1


def logits_after(token: int) -> np.ndarray:
    """float32 [258]: the successor 2, the second best 1."""
    row = np.zeros(N_VOCAB, np.float32)
    second = ord("a")
    if token == ord("z"):
        best = END
    elif token < 256 and chr(token).isascii() and chr(token).isalpha():
        best = token + 1
    else:
        best = {ord("["): 0xC3, 0xC3: 0xA9, 0xA9: ord("!")}.get(token, ord("a"))
        second = ord("b")
    row[second], row[best] = 1, 2
    return row


class FakeEngine:
    n_vocab = N_VOCAB

    def __init__(self, n_ctx: int = 64, delay: float = 0.0) -> None:
        self.n_ctx, self.delay = n_ctx, delay
        self.fed: list[list[int]] = []
        self.open_sequences = 0
        self.closed = False

    def new_sequence(self) -> FakeSequence:
        self.open_sequences += 1
        if self.open_sequences > 1:
            raise ResourceError("another sequence is open")
        return FakeSequence(self)

    def forward(self, seq: FakeSequence, tokens: Sequence[int], want: str) -> np.ndarray:
        if len(seq) + len(tokens) > self.n_ctx:
            raise ResourceError("the context is full")
        time.sleep(self.delay)
        self.fed.append(list(tokens))
        seq.tokens.extend(tokens)
        rows = np.array([logits_after(t) for t in tokens], np.float32)
        return rows if want == "all" else rows[-1:]

    def verify(self, seq: FakeSequence, tokens: Sequence[int]) -> np.ndarray:
        return self.forward(seq, tokens, "all")

    def close(self) -> None:
        self.closed = True


def fake_generate(
    engine: Any,
    seq: Any,
    prompt: list[int],
    sampler: Any,
    *,
    max_tokens: int,
    eog_ids: frozenset[int],
    on_logits: Any = None,
) -> Generator[int, None, None]:
    """The loop of ie.generate, as far as the commands depend on it."""
    rows = engine.forward(seq, prompt, "all" if on_logits else "last")
    for index in range(max_tokens):
        if on_logits:
            on_logits(rows)
        token = sampler.sample(rows[-1], index, seq.tokens)
        yield token
        if token in eog_ids or index + 1 == max_tokens or len(seq) >= engine.n_ctx:
            return
        rows = engine.forward(seq, [token], "last")


class Greedy:
    def __init__(self, forbidden: Collection[int] = ()) -> None:
        self._forbidden = list(forbidden)

    def sample(self, logits: np.ndarray, index: int, history: Sequence[int], length: int | None = None) -> int:
        allowed = logits.copy()
        allowed[self._forbidden] = -np.inf
        return int(np.argmax(allowed))


@dataclasses.dataclass
class FakeLoader:
    """What main() gets in place of the real loader; keeps what it made, for the test to look at."""

    engine: FakeEngine = dataclasses.field(default_factory=FakeEngine)
    tokenizer: FakeTokenizer = dataclasses.field(default_factory=FakeTokenizer)
    seeds: list[int] = dataclasses.field(default_factory=list)

    def __call__(self, chosen: Options) -> Session:
        if chosen.model != "fake.gguf":
            raise ModelError(f"{chosen.model}: not the fake model")

        def make_sampler(chosen: Options, seed: int, forbidden: Collection[int]) -> Greedy:
            self.seeds.append(seed)
            return Greedy(forbidden)

        return Session(
            engine=self.engine,
            tokenizer=self.tokenizer,
            generate=fake_generate,
            make_sampler=make_sampler,
            load_seconds=0.31,
            weight_bytes=1000,
            bandwidth=lambda: 33.1e9,
            trained_context=max(128, self.engine.n_ctx),
            notes=("threads 2",),
        )


if __name__ == "__main__":
    slow = os.environ.get("FAKE_DELAY", "0")
    sys.exit(run.main(loader=FakeLoader(FakeEngine(n_ctx=10**6, delay=float(slow)))))
