"""The generation loop with an engine that only counts: what is fed, what is drawn, when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from ie.engine import Part
from ie.engine.generation import generate
from ie.errors import ResourceError
from ie.program.step import Phase

V, CHUNK = 10, 50


class FakeSequence:
    def __init__(self, held: int = 0) -> None:
        self.tokens = [0] * held

    def __len__(self) -> int:
        return len(self.tokens)

    limit = 100

    def truncate(self, n: int) -> None:
        del self.tokens[n:]

    def require(self, n: int) -> None:
        if len(self) + n > self.limit:
            raise ResourceError("the context is full")


class Opened(NamedTuple):
    """What a generation asks of an engine that is open."""

    n_ctx: int
    state_slots: int = 0

    def most_rows(self, phase: Phase, every_logit: bool = False) -> int:
        return CHUNK


class FakeEngine:
    """Logits say which token comes next: one more than the last. Records what was asked of it."""

    def __init__(self, n_ctx: int = 100) -> None:
        self.opened, self.calls = Opened(n_ctx), list[tuple[list[int], str]]()

    def step(self, parts: Sequence[Part], phase: Phase) -> list[np.ndarray]:
        ((seq, tokens, outs),) = parts
        wanted = "none" if not outs else "all" if len(outs) == len(tokens) > 1 else "last"
        self.calls.append((list(tokens), wanted if phase is Phase.PROMPT else "verify"))
        assert len(seq) + len(tokens) <= self.opened.n_ctx
        seq.tokens += tokens
        return [np.eye(V, dtype=np.float32)[[(tokens[i] + 1) % V for i in outs]]]


class Greedy:
    def __init__(self) -> None:
        self.indices = list[int]()

    def sample(self, logits: np.ndarray, index: int, history: Sequence[int], length: int | None = None) -> int:
        assert logits.shape == (V,)
        self.indices.append(index)
        return int(logits.argmax())


def run(engine: FakeEngine, seq: FakeSequence, prompt: list[int], n: int, **more: object) -> tuple[list[int], Greedy]:
    sampler, seq.limit = Greedy(), engine.opened.n_ctx
    options = {"eog_ids": frozenset({9}), **more}
    return list(generate(engine, seq, prompt, sampler, max_tokens=n, **options)), sampler  # type: ignore[arg-type]


def test_prompt_first_then_each_token_as_it_was_drawn() -> None:
    engine, seq = FakeEngine(), FakeSequence()
    out, sampler = run(engine, seq, [1, 2, 3], 4)
    assert out == [4, 5, 6, 7] and sampler.indices == [0, 1, 2, 3]
    assert engine.calls == [([1, 2, 3], "last"), ([4], "verify"), ([5], "verify"), ([6], "verify")]
    assert seq.tokens == [1, 2, 3, 4, 5, 6], "the last token is not fed"


def test_ends_behind_an_ending_token() -> None:
    out, _ = run(FakeEngine(), FakeSequence(), [6], 99)
    assert out == [7, 8, 9]
    out, _ = run(FakeEngine(), FakeSequence(), [6], 5, eog_ids=())
    assert out == [7, 8, 9, 0, 1]


def test_nothing_is_asked_for() -> None:
    engine = FakeEngine()
    assert run(engine, FakeSequence(), [1], 0)[0] == [] and engine.calls == []


@pytest.mark.parametrize(
    ("n_ctx", "held", "expected"), [(5, 0, [4, 5, 6]), (5, 2, [4]), (3, 0, [4]), (6, 1, [4, 5, 6])]
)
def test_ends_when_the_context_holds_no_more(n_ctx: int, held: int, expected: list[int]) -> None:
    """The last token drawn needs no room: n_ctx tokens held give one more token."""
    out, _ = run(FakeEngine(n_ctx), FakeSequence(held), [1, 2, 3], 99, eog_ids=())
    assert out == expected


def test_a_prompt_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ResourceError):
        run(FakeEngine(2), FakeSequence(), [1, 2, 3], 5)


def test_every_position_is_reported_once_and_in_order() -> None:
    seen: list[np.ndarray] = []
    engine = FakeEngine()
    out, _ = run(engine, FakeSequence(), [1, 2, 3], 3, on_logits=seen.append)
    assert [want for _, want in engine.calls] == ["all", "verify", "verify"]
    assert np.concatenate(seen).argmax(axis=1).tolist() == [2, 3, 4, 5, 6] and out == [4, 5, 6]


def test_is_lazy() -> None:
    """A caller that stops early pays for no further step."""
    engine = FakeEngine()
    tokens = generate(engine, FakeSequence(), [1], Greedy(), max_tokens=9, eog_ids=())  # type: ignore[arg-type]
    assert engine.calls == []
    assert [next(tokens), next(tokens)] == [2, 3] and len(engine.calls) == 2
    tokens.close()
    assert len(engine.calls) == 2


def test_the_prompt_is_not_changed() -> None:
    prompt = [1, 2]
    run(FakeEngine(), FakeSequence(), prompt, 3)
    assert prompt == [1, 2]


class Guesser:
    """Proposes three tokens, of which `right` will turn out to be what the model says."""

    name, off, limit = "guesser", "", 3

    def __init__(self, right: int) -> None:
        self.right = right

    def begin(self) -> None:
        pass

    def propose(self, seq: FakeSequence, token: int, budget: int) -> list[int]:
        return [(token + 1 + i + (i >= self.right)) % V for i in range(min(3, budget))]

    def observe(self, drafts: list[int], accepted: int, seconds: float) -> None:
        pass


@pytest.mark.parametrize("right", [0, 1, 3])
def test_the_sampler_sees_the_text_before_each_token(right: int) -> None:
    """Also where a draft was right and is not yet accepted, and nothing of one that was wrong."""
    engine, seq, prompt = FakeEngine(), FakeSequence(2), [1, 2]
    seen: list[list[int]] = []

    class Reader:
        def sample(self, logits: np.ndarray, index: int, history: Sequence[int], length: int | None = None) -> int:
            assert len(seen) == index
            seen.append(list(history[:length]))
            return int(logits.argmax())

    out = list(
        generate(engine, seq, prompt, Reader(), max_tokens=6, eog_ids=(), drafter=Guesser(right))  # type: ignore[arg-type]
    )
    assert out == [3, 4, 5, 6, 7, 8]
    assert seen == [[0, 0, 1, 2, *out[:i]] for i in range(6)]
