"""Many sequences in one engine: each one's tokens are those of it alone, whoever else is there, comes and goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ie.devices import CompiledExecutor
from ie.draft.choose import LookupDrafter, MtpDrafter, make
from ie.draft.mtp import Mtp
from ie.engine import Engine, Part
from ie.engine.generation import Generation, generate
from ie.engine.kv import KvSequence
from ie.errors import IeError, ResourceError
from ie.program.step import Phase
from ie.sample.params import SamplerParams
from ie.sample.sampler import Sampler
from ie.settings import DraftOptions, EngineOptions
from tests import variants
from tests.drafters import Scripted
from tests.remote import RemoteDevice

N_CTX, CHUNK = 160, 24
PROMPTS = [variants.tokens(n, seed=n) for n in (7, 40, 61)]
"""One of a single chunk, one of two, one of three."""
LENGTHS = (9, 17, 30)


def opened(path: str, sequences: int = 3, executor: Any = None, n_ctx: int = N_CTX) -> Engine:
    options = EngineOptions(n_ctx=n_ctx, chunk=CHUNK, threads=1, sequences=sequences)
    return Engine.open(path, options, executor, draft=Mtp(DraftOptions(5, 0.0, 0, False)))


def sampler(i: int) -> Sampler:
    """Each sequence draws with numbers of its own."""
    return Sampler(SamplerParams(temp=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=i), variants.N_VOCAB)


class Text:
    """A generation with the sequence and the drafter that belong to it."""

    def __init__(self, engine: Engine, i: int, n: int, truth: Sequence[int] = (), right: int = -1) -> None:
        self.seq, self.out = engine.new_sequence(), list[int]()
        drafter: Any = Scripted(PROMPTS[i], truth, right, 6) if right >= 0 else make("auto", engine, 5)
        self.asked = Generation(
            engine, self.seq, PROMPTS[i], sampler(i), max_tokens=n, eog_ids=(), drafter=drafter
        )  # fmt: skip


def together(engine: Engine, waiting: list[Any], most: int = 3) -> list[list[int]]:
    """Run texts as a scheduler would: those that wait join one a step, prompts go first, one phase a step, as many as
    fit. `waiting` makes a text each when it joins."""
    active: list[Text] = []
    done: list[Text] = []
    order: list[Text] = []
    while waiting or active:
        if waiting and len(active) < most:
            active.append(waiting.pop(0)())
            order.append(active[-1])
        phase = min(text.asked.phase for text in active)
        chosen, parts, rows = list[Text](), list[Part](), 0
        for text in active:
            if text.asked.phase is phase:
                part = text.asked.wants()
                if rows + len(part.tokens) <= engine.opened.bindings[phase].rows:
                    chosen.append(text)
                    parts.append(part)
                    rows += len(part.tokens)
        for text, logits in zip(chosen, engine.step(parts, phase), strict=True):
            text.out += text.asked.take(logits)
        for text in [t for t in active if t.asked.done]:
            active.remove(text)
            done.append(text)
            text.seq.close()
    engine.steps.pool.check([])
    return [text.out for text in order]


@pytest.fixture(scope="module", params=["llama", "gemma3", "qwen35", "qwen35moe"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    mtp = {"n_mtp": 1} if request.param.startswith("qwen35") else {}
    return variants.make(tmp_path_factory.mktemp("m") / "m.gguf", arch=request.param, **mtp)


@pytest.fixture(scope="module")
def alone(path: str) -> list[list[int]]:
    """Tokens of each text in an engine of its own, without drafts."""
    out = []
    for i, prompt in enumerate(PROMPTS):
        with opened(path, 1) as engine:
            out.append(list(generate(engine, engine.new_sequence(), prompt, sampler(i), max_tokens=60, eog_ids=())))
    assert len({tuple(text) for text in out}) == 3
    return out


@pytest.fixture(scope="module")
def engine(path: str) -> Iterator[Engine]:
    with opened(path) as made:
        yield made


@pytest.mark.parametrize("leaving", list(permutations(LENGTHS)))
@pytest.mark.parametrize("joining", list(permutations(range(3))))
def test_every_order_of_joining_and_leaving(
    joining: tuple[int, ...], leaving: tuple[int, ...], engine: Engine, alone: list[list[int]]
) -> None:
    """Text joining[k] joins k-th; text i ends after leaving[i] tokens. Drafts are the model's own."""
    waiting = [lambda i=i: Text(engine, i, leaving[i]) for i in joining]
    assert together(engine, waiting) == [alone[i][: leaving[i]] for i in joining]


@pytest.mark.parametrize("right", range(7))
def test_drafts_that_hold_and_drafts_that_do_not(right: int, engine: Engine, alone: list[list[int]]) -> None:
    """So that the sequences of a step keep different numbers of rows, and step back by different ones."""
    waiting = [lambda i=i: Text(engine, i, 40, alone[i], (right + 2 * i) % 7) for i in range(3)]
    assert together(engine, waiting) == [text[:40] for text in alone]


def test_more_texts_than_sequences(engine: Engine, alone: list[list[int]]) -> None:
    """Places are taken again; nothing of the one before is left."""
    chosen = [0, 1, 2, 0, 2, 1, 1, 0]
    waiting = [lambda i=i, k=k: Text(engine, i, 5 + 4 * k) for k, i in enumerate(chosen)]
    assert together(engine, waiting, most=3) == [alone[i][: 5 + 4 * k] for k, i in enumerate(chosen)]


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_whatever_happens_to_the_others(data: st.DataObject, engine: Engine) -> None:
    """Logits of every step of a sequence, with others stepping, truncating, closing and failing in between."""
    n_ids = 50
    ids = [np.random.default_rng(i).integers(0, variants.N_VOCAB, n_ids).tolist() for i in range(3)]
    want = []
    for i in range(3):
        seq = engine.new_sequence()
        want.append(engine.forward(seq, ids[i], "all").copy())
        seq.close()
    seqs: list[KvSequence | None] = [None] * 3
    try:
        for _ in range(data.draw(st.integers(3, 12))):
            _one_round(data, engine, seqs, ids, want)
    finally:
        for seq in seqs:
            if seq is not None:
                seq.close()
    engine.steps.pool.check([])


def _one_round(
    data: st.DataObject, engine: Engine, seqs: list[KvSequence | None], ids: list[list[int]], want: list[Any]
) -> None:
    parts = []
    for i in sorted(data.draw(st.sets(st.integers(0, 2), min_size=1))):
        seq = seqs[i] = seqs[i] or engine.new_sequence()
        seq.truncate(max(0, len(seq) - data.draw(st.integers(0, 3))))
        n = min(data.draw(st.integers(1, 8)), len(ids[i]) - len(seq))
        if n:
            parts.append((i, Part(seq, ids[i][len(seq) : len(seq) + n], range(n))))
    if not parts:
        return
    phase, starts = data.draw(st.sampled_from(list(Phase))), [len(part.sequence) for _, part in parts]
    if data.draw(st.booleans()):  # a step that is refused leaves everybody as they were
        wrong = Part(parts[-1][1].sequence, [variants.N_VOCAB], [0])
        with pytest.raises(IeError):
            engine.step([part for _, part in parts[:-1]] + [wrong], phase)
        assert [len(part.sequence) for _, part in parts] == starts
    logits = engine.step([part for _, part in parts], phase)
    for (i, part), start, got in zip(parts, starts, logits, strict=True):
        assert got.tobytes() == want[i][start : start + len(part.tokens)].tobytes()
    leaving = data.draw(st.integers(0, 5))
    if leaving < 3:
        gone, seqs[leaving] = seqs[leaving], None
        if gone is not None:
            gone.close()


def test_the_pool_is_shared_and_refusals_change_nothing(path: str) -> None:
    with opened(path, 3, n_ctx=64) as engine:
        seqs = [engine.new_sequence() for _ in range(3)]
        with pytest.raises(ResourceError, match="close"):
            engine.new_sequence()
        for seq in seqs:
            engine.forward(seq, variants.tokens(60))
        with pytest.raises(ResourceError, match="60 tokens held, 5 more do not fit into 64"):
            engine.step([Part(seqs[0], [1]), Part(seqs[1], variants.tokens(5))], Phase.PROMPT)
        assert [len(seq) for seq in seqs] == [60] * 3
        engine.steps.pool.check([seq.blocks for seq in seqs])
        with pytest.raises(IeError, match="of different ones"):
            engine.step([Part(seqs[0], [1]), Part(seqs[0], [2])], Phase.PROMPT)
        with pytest.raises(IeError, match="at least one token"):
            engine.step([Part(seqs[0], [1]), Part(seqs[1], [])], Phase.PROMPT)
        assert [len(seq) for seq in seqs] == [60] * 3


def test_tokens_keep_their_phase(path: str) -> None:
    """What is fed again after a step back runs in the phase that it had, also when a prompt stands between."""
    with opened(path, 1) as engine:
        seq, run, seen = engine.new_sequence(), engine.executor.run, list[tuple[Phase, int]]()
        engine.forward(seq, variants.tokens(30))
        engine.verify(seq, [5, 6, 7])
        engine.forward(seq, variants.tokens(9))
        engine.verify(seq, [1, 2])
        assert list(seq.phases) == [0] * 30 + [1] * 3 + [0] * 9 + [1] * 2

        def watch(handle: int, step: Any) -> None:
            seen.append((step.phase, step.n_rows))
            run(handle, step)

        engine.executor.run = watch  # type: ignore[method-assign]
        seq.stored, seq.state, seq.kept, seq.reached = 0, -1, 0, 0
        engine.verify(seq, [9])
        P, G = Phase
        assert seen == [(P, 24), (P, 6), (G, 3), (P, 9), (G, 2), (G, 1)]


def test_on_a_device_of_other_addresses(path: str, alone: list[list[int]]) -> None:
    with opened(path, 3, CompiledExecutor(RemoteDevice())) as engine:
        waiting = [lambda i=i: Text(engine, i, 12) for i in range(3)]
        assert together(engine, waiting) == [text[:12] for text in alone]


def test_the_drafters_are_what_they_are_thought_to_be(path: str) -> None:
    with opened(path) as engine:
        kind = MtpDrafter if engine.config.mtp is not None else LookupDrafter
        assert isinstance(make("auto", engine, 5), kind)


def test_files_are_closed_when_opening_fails(tmp_path: Path) -> None:
    closed = []

    class Watched(Mtp):
        def close(self) -> None:
            closed.append(True)

    with pytest.raises(IeError):
        Engine.open(str(tmp_path / "none.gguf"), draft=Watched())
    assert closed == [True]
