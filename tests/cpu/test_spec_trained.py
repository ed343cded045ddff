"""Drafting with the small trained model: on real code its MTP block is right often, and the text stays the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ie import tokenizer
from ie.draft.choose import make
from ie.draft.mtp import Mtp
from ie.engine import Engine
from ie.engine.drafter import DraftStats
from ie.engine.generation import generate
from ie.sample import Sampler, SamplerParams
from ie.settings import DraftOptions, EngineOptions

ROOT = Path(__file__).resolve().parents[2]
MODEL = next((ROOT / "tiny_models" / "trained").glob("*.gguf"), None)
PROMPTS = [p["text"] for p in json.loads((ROOT / "benchmarks" / "prompts.json").read_text()) if p["kind"] == "code"]


pytestmark = pytest.mark.skipif(MODEL is None, reason="a wheel or archive without tiny_models/trained")
GREEDY: dict[str, Any] = {"temp": 0.0}
SAMPLED: dict[str, Any] = {"temp": 0.8, "seed": 5}


class Writer:
    """Continues the prompts, the same engine for all ways of drafting."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.words = engine, tokenizer.load(engine.gguf)
        self.plain: dict[float, list[list[int]]] = {}

    def write(self, params: dict[str, Any], drafter: Any = None) -> tuple[list[list[int]], DraftStats]:
        """120 tokens after each prompt."""
        texts, total = [], DraftStats()
        for text in PROMPTS:
            seq, stats = self.engine.new_sequence(), DraftStats()
            sampler = Sampler(SamplerParams(**params), self.engine.n_vocab)
            ids = self.words.encode(text)
            options: dict[str, Any] = {"max_tokens": 120, "eog_ids": self.words.eog_ids}
            texts.append(list(generate(self.engine, seq, ids, sampler, drafter=drafter, stats=stats, **options)))
            seq.close()
            total += stats
        return texts, total


@pytest.fixture(scope="module")
def writer() -> Iterator[Writer]:
    with Engine.open(str(MODEL), EngineOptions(n_ctx=256), draft=Mtp(DraftOptions(7))) as engine:
        yield Writer(engine)


@pytest.mark.parametrize(
    ("kind", "depth", "params", "least"),
    [("mtp", 3, GREEDY, 2.2), ("mtp+lookup", 7, GREEDY, 2.5), ("mtp+lookup", 7, SAMPLED, 1.4)],
)
def test_code(kind: str, depth: int, params: dict[str, Any], least: float, writer: Writer) -> None:
    """At least so many tokens a step over all prompts, at the default --draft-pmin."""
    key = params["temp"]
    if key not in writer.plain:
        writer.plain[key], _ = writer.write(params)
    texts, total = writer.write(params, make(kind, writer.engine, depth))
    assert texts == writer.plain[key] and min(map(len, texts)) > 10
    assert total.emitted / total.steps >= least, total.describe()
    assert total.accepted > 0.6 * total.proposed


def test_perplexity_is_that_of_llama_cpp(writer: Writer) -> None:
    """Eight windows of 512 tokens of a novel; llama.cpp (llama-cpp-python 0.3.36, flash attention) gave 28.7788."""
    from ie.measure import ppl

    text = (ROOT / "tests" / "golden" / "persuasion.txt").read_bytes().removesuffix(b"\n")
    ids = writer.words.encode(text, add_special=True, parse_special=False)
    with Engine.open(str(MODEL), EngineOptions(n_ctx=512)) as engine:
        *_, found = ppl.perplexity(engine, ids, ppl.disjoint(len(ids), 512, bos=None).limited(8))
    assert found.losses.count == 8 * 255
    assert abs(found.value / 28.7788 - 1) <= 0.005
