"""Drafts change nothing: the same tokens come out with and without them, whoever drafts, however many hold, wherever
the text ends. Models are tiny; `agreement` lets their MTP block be right now and then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie import native
from ie.draft.choose import make
from ie.draft.mtp import Mtp
from ie.engine import Engine
from ie.engine.drafter import Drafter, DraftStats
from ie.engine.generation import generate
from ie.sample import Sampler, SamplerParams
from ie.settings import DraftOptions, EngineOptions
from tests.drafters import Scripted
from tests.variants import make as make_model
from tests.variants import tokens

LIB = native.lib()[1]
N_VOCAB = 96
SHAPE: dict[str, Any] = {"arch": "qwen35", "n_layer": 2, "n_mtp": 1, "agreement": 10.0, "formats": "Q8_0"}
MODELS: dict[str, dict[str, Any]] = {
    "qwen35": SHAPE,
    "qwen35moe": {**SHAPE, "arch": "qwen35moe"},
    "llama": {"arch": "llama", "formats": "Q8_0"},
    "gemma3": {"arch": "gemma3", "formats": "Q8_0", "sliding_window": 20},
}
PLAIN: tuple[int, ...] = ()

Params = dict[str, Any]
GREEDY: Params = {"temp": 0.0}
SAMPLED: Params = {"temp": 0.8}
COLD: Params = {"temp": 0.4, "top_k": 3}
PENALTY: Params = {"temp": 0.6, "repeat_penalty": 1.4, "repeat_last_n": 12, "frequency_penalty": 0.3}


class Models:
    """Files by name, and one engine that stays open for each set of options."""

    def __init__(self, folder: Path) -> None:
        self.paths = {name: make_model(folder / f"{name}.gguf", **shape) for name, shape in MODELS.items()}
        self.engine = cache(self._open)

    def _open(self, name: str, **options: Any) -> Engine:
        depth = options.pop("depth", 15)
        draft = Mtp(DraftOptions(depth, options.pop("p_min", 0.0), 0, True))
        return Engine.open(self.paths[name], EngineOptions(**{"n_ctx": 256, "threads": 1, **options}), draft=draft)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    made = Models(tmp_path_factory.mktemp("spec"))
    opened = []
    real = made._open
    made.engine = cache(lambda name, **options: opened.append(real(name, **options)) or opened[-1])  # type: ignore[assignment,func-returns-value]
    yield made
    for engine in opened:
        engine.close()


def run(
    engine: Engine,
    prompt: Sequence[int],
    n: int,
    params: Params,
    drafter: Drafter | None = None,
    eog: Sequence[int] = (),
    seed: int = 1,
) -> tuple[list[int], list[int], DraftStats]:
    """(tokens out, tokens held at the end, what drafting did)."""
    seq, stats = engine.new_sequence(), DraftStats()
    sampler = Sampler(SamplerParams(**{"seed": seed, **params}), engine.n_vocab)
    out = list(
        generate(engine, seq, prompt, sampler, max_tokens=n, eog_ids=frozenset(eog), drafter=drafter, stats=stats)
    )
    held = list(seq.tokens)
    engine.steps.pool.check([seq.blocks])
    assert seq.stored == len(seq)
    seq.close()
    return out, held, stats


# ---- many seeds ----


@pytest.mark.parametrize(
    ("name", "params", "seeds"), [("qwen35", SAMPLED, 300), ("qwen35moe", COLD, 60), ("qwen35", PENALTY, 60)]
)
def test_many_seeds(name: str, params: Params, seeds: int, models: Models) -> None:
    """D = 7. The first three tokens of each of 300 seeds, and what follows."""
    engine = models.engine(name)
    drafter = make("mtp", engine, 7)
    accepted, texts = set[int](), set[tuple[int, ...]]()
    for seed in range(seeds):
        prompt = tokens(3 + seed % 5, seed=seed)
        plain, held, _ = run(engine, prompt, 10, params, None, seed=seed)
        out, held_too, stats = run(engine, prompt, 10, params, drafter, seed=seed)
        assert out == plain and held == held_too == prompt + plain[:-1], seed
        if seed % 3 == 0:  # the budget ends inside the first draft
            assert run(engine, prompt, 3, params, drafter, seed=seed)[0] == plain[:3]
        accepted.add(stats.accepted)
        texts.add(tuple(plain))
    assert len(texts) > 0.9 * seeds and {1, 2, 3, 4} <= accepted, accepted


# ---- every depth, drafter, way of sampling, cut and thread count ----

COVER: list[tuple[str, int, str, str, int, int]] = [
    # model, D, drafter, sampling, chunk, threads
    *((("qwen35", "qwen35moe")[d % 2], d, ("mtp", "mtp+lookup", "lookup")[d % 3],
       ("greedy", "sampled", "penalty")[d // 2 % 3], (512, 16, 5)[d % 3], 1 + d // 3 % 2) for d in range(1, 16)),
    ("llama", 15, "lookup", "greedy", 512, 2),
    ("llama", 4, "auto", "sampled", 7, 1),
    ("gemma3", 7, "lookup", "penalty", 512, 1),
    ("gemma3", 12, "auto", "greedy", 3, 2),
    ("qwen35", 7, "auto", "greedy", 1, 2),
    ("qwen35", 7, "mtp+lookup", "sampled", 2, 1),
    ("qwen35moe", 3, "measured", "sampled", 33, 2),
    ("qwen35", 7, "measured", "greedy", 512, 1),
]  # fmt: skip
SAMPLING = {"greedy": GREEDY, "sampled": SAMPLED, "penalty": PENALTY}


@pytest.mark.parametrize(("name", "depth", "kind", "sampling", "chunk", "threads"), COVER)
def test_covering_set(
    name: str, depth: int, kind: str, sampling: str, chunk: int, threads: int, models: Models
) -> None:
    options = {"depth": depth} if "qwen" in name else {}
    engine = models.engine(name, chunk=chunk, threads=threads, **options)
    plain_engine = models.engine(name)
    part = tokens(12, seed=depth)
    prompt = [*part, 95, *part]  # something to look up
    drafter = make("auto" if kind == "measured" else kind, engine, depth, kind == "measured")
    proposed = 0
    for seed in (3, 4):
        plain, _, _ = run(plain_engine, prompt, 60, SAMPLING[sampling], seed=seed)
        out, held, stats = run(engine, prompt, 60, SAMPLING[sampling], drafter, seed=seed)
        assert out == plain and held == prompt + plain[:-1]
        proposed += stats.proposed
    assert proposed > 0 or kind in ("lookup", "auto", "measured")


def test_the_cover_covers() -> None:
    assert {c[1] for c in COVER} >= set(range(1, 16))
    for kind in ("mtp", "mtp+lookup", "lookup"):
        chosen = [c for c in COVER if c[2] == kind]
        assert (
            len({c[3] for c in chosen}) >= 2 and {c[5] for c in chosen} == {1, 2} and len({c[4] for c in chosen}) >= 1
        )
    assert len({(c[0], c[2]) for c in COVER}) >= 9 and len({c[4] for c in COVER}) >= 5


@pytest.mark.parametrize("executor", ["reference", "reference-float64"])
def test_on_the_reference_executors(executor: str, models: Models) -> None:
    """numpy adds rows of one matrix product in other orders: equal but for near ties, of which this text has none."""
    engine = models.engine("qwen35", executor=executor)
    prompt = tokens(9, seed=2)
    plain, _, _ = run(engine, prompt, 16, GREEDY)
    out, _, stats = run(engine, prompt, 16, GREEDY, make("mtp", engine, 5))
    assert out == plain and stats.proposed > 0


# ---- wrong and right drafters ----


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("depth", [1, 7, 15])
def test_rejected_at_every_row(name: str, depth: int, models: Models) -> None:
    """A drafter that is wrong from its row 0, 1, … D on: the last of them is an oracle, always right."""
    engine = models.engine(name)
    prompt = tokens(20, seed=7)
    for params in (GREEDY, SAMPLED):
        truth, held, _ = run(engine, prompt, 50, params)
        for right in range(depth + 1):
            drafter = Scripted(prompt, truth, right, depth)
            out, held_too, stats = run(engine, prompt, 50, params, drafter)
            assert out == truth and held == held_too, (right, params)
            assert set(drafter.accepted[:-2]) == {right}, "exactly the right ones are accepted"
            assert stats.emitted == 49 and stats.accepted == 49 - stats.steps


# ---- where a text ends ----


@pytest.mark.parametrize("right", [0, 2, 7])
def test_ends_inside_a_draft(right: int, models: Models) -> None:
    """End tokens, a full context and a budget at every place of a draft; the tokens held are those without drafts."""
    engine = models.engine("qwen35")
    prompt = tokens(11, seed=8)
    truth, _, _ = run(engine, prompt, 30, SAMPLED, seed=5)
    for end in range(1, 24):
        eog = [truth[end]]
        want, want_held, _ = run(engine, prompt, 30, SAMPLED, eog=eog, seed=5)
        got, held, _ = run(engine, prompt, 30, SAMPLED, Scripted(prompt, truth, right, 7), eog=eog, seed=5)
        assert got == want == truth[: truth.index(truth[end]) + 1] and held == want_held
        got, held, _ = run(engine, prompt, end, SAMPLED, Scripted(prompt, truth, right, 7), seed=5)
        assert got == truth[:end] and held == prompt + truth[: end - 1]


@pytest.mark.parametrize("name", ["qwen35", "llama"])
def test_a_full_context(name: str, models: Models) -> None:
    prompt = tokens(11, seed=8)
    for n_ctx in (12, 13, 15, 18, 19, 32, 33):
        engine = models.engine(name, n_ctx=n_ctx)
        want, want_held, _ = run(engine, prompt, 99, SAMPLED)
        assert len(want) == n_ctx - len(prompt) + 1 and len(want_held) == n_ctx
        for drafter in (Scripted(prompt, want, 15, 15), Scripted(prompt, want, 0, 15), make("auto", engine, 7)):
            got, held, _ = run(engine, prompt, 99, SAMPLED, drafter)
            assert got == want and held == want_held


@pytest.mark.parametrize("name", ["qwen35", "llama"])
def test_a_caller_that_stops_inside_a_draft(name: str, models: Models) -> None:
    """As stop texts do. What it has seen is held, but for the last token; going on from there is as without drafts."""
    engine = models.engine(name)
    prompt = tokens(10, seed=9)
    truth, _, _ = run(engine, prompt, 40, GREEDY)
    sampler = Sampler(SamplerParams(**GREEDY), engine.n_vocab)
    for stop in range(1, 22):
        seq = engine.new_sequence()
        first = generate(
            engine, seq, prompt, sampler, max_tokens=40, eog_ids=(), drafter=Scripted(prompt, truth, 15, 15)
        )
        assert [next(first) for _ in range(stop)] == truth[:stop]
        first.close()
        assert seq.tokens == prompt + truth[: stop - 1]
        engine.steps.pool.check([seq.blocks])
        drafter = make("auto", engine, 7)
        rest = generate(engine, seq, [truth[stop - 1]], sampler, max_tokens=40 - stop, eog_ids=(), drafter=drafter)
        assert list(rest) == truth[stop:]
        seq.close()


def test_turns_of_a_conversation(models: Models) -> None:
    """A drafter that lives on while its text is cut and continued otherwise."""
    engine = models.engine("qwen35")
    drafter = make("mtp+lookup", engine, 7)
    results = []
    for used in (None, drafter):
        seq, out = engine.new_sequence(), []
        for turn in range(6):
            keep = min(len(seq), (0, 15, 31, 12, 40, 3)[turn])
            seq.truncate(keep)
            sampler = Sampler(SamplerParams(temp=0.5, seed=turn), engine.n_vocab)
            fed = tokens(9, seed=turn % 2)
            out.append(list(generate(engine, seq, fed, sampler, max_tokens=25, eog_ids=(), drafter=used)))
        seq.close()
        results.append(out)
    assert results[0] == results[1]


# ---- what it costs ----


@pytest.mark.parametrize("name", ["qwen35", "qwen35moe", "llama"])
def test_steady_state_allocates_nothing(name: str, models: Models) -> None:
    engine = models.engine(name, threads=2)
    drafter = make("auto", engine, 7)
    prompt = tokens(30, seed=1) * 2
    run(engine, prompt, 20, SAMPLED, drafter)
    counted = LIB.ie_alloc_count()
    for seed in range(6):
        run(engine, prompt, 60, SAMPLED, drafter, seed=seed)
    assert LIB.ie_alloc_count() == counted


def test_fewer_state_slots_mean_shorter_drafts(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    from ie.engine import opening

    prompt = tokens(12, seed=3)
    truth, _, _ = run(models.engine("qwen35"), prompt, 60, GREEDY)
    monkeypatch.setattr(opening, "choose_slots", lambda *args: 8)
    with Engine.open(
        models.paths["qwen35"], EngineOptions(threads=1, n_ctx=256), draft=Mtp(DraftOptions(15, 0.0))
    ) as engine:
        assert engine.state_slots == 8
        for drafter in (make("mtp", engine, 15), Scripted(prompt, truth, 15, 15), Scripted(prompt, truth, 3, 15)):
            out, _, stats = run(engine, prompt, 60, GREEDY, drafter)
            assert out == truth and stats.proposed <= 7 * stats.steps
        assert stats.proposed > 6 * (stats.steps - 2)


def test_fewer_rows_of_work_than_without(models: Models) -> None:
    """The oracle: a step for eight tokens."""
    engine = models.engine("qwen35")
    prompt = tokens(20, seed=7)
    truth, _, _ = run(engine, prompt, 57, GREEDY)
    before = engine.stats.steps
    out, _, stats = run(engine, prompt, 57, GREEDY, Scripted(prompt, truth, 7, 7))
    assert out == truth and engine.stats.steps - before == 1 + stats.steps == 1 + 7
    assert np.isclose(stats.emitted / stats.steps, 8)
