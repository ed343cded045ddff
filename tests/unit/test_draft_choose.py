"""Which drafter drafts: the MTP chain beside looked-up text, and the choice by speed. Fake engine, fake clock."""

from __future__ import annotations

from typing import Any

import pytest

from ie.draft.choose import AGREE, MARGIN, PROBE_EVERY, TRIALS, AutoDrafter, LookupDrafter, MtpDrafter, Plain, make
from ie.draft.lookup import MAX_DRAFT
from ie.draft.mtp import CHAIN, Mtp
from ie.engine.drafter import PLAIN, DraftStats
from ie.errors import OptionError


class File:
    path = "m.gguf"


class Chain:
    outputs = (1, 2)


class Engine:
    """Drafts what it was told to, with these probabilities."""

    p_min = 0.6
    gguf = File()

    def __init__(self, chain: list[int] | None = None, probabilities: list[float] | None = None) -> None:
        self.programs = {} if chain is None else {CHAIN: Chain}
        self.draft_model = Mtp()
        self.tokens = chain or []
        self.probabilities = probabilities or [1.0] * len(self.tokens)
        self.asked: list[int] = []

    def draft(self, seq: Any, token: int, n: int) -> list[tuple[int, float]]:
        self.asked.append(n)
        out = []
        for pair in list(zip(self.tokens, self.probabilities, strict=True))[:n]:
            out.append(pair)
            if pair[1] < self.p_min:
                break
        return out


class Text:
    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens


def propose(drafter: Any, text: list[int], budget: int = 15) -> list[int]:
    drafter.begin()
    return list(drafter.propose(Text(text[:-1]), text[-1], budget))


# ---- MTP ----


def test_the_chain_ends_before_an_unlikely_token() -> None:
    engine = Engine([5, 6, 7, 8], [0.9, 0.6, 0.59, 0.9])
    drafter = MtpDrafter(engine, 7, False)  # type: ignore[arg-type]
    assert drafter.off == "no guess reached --draft-pmin"
    assert propose(drafter, [1, 2]) == [5, 6]
    drafter.observe([5, 6], 2, 1.0)
    assert drafter.off == "" and drafter.source == "mtp" and drafter.limit == 7
    assert propose(MtpDrafter(engine, 1, False), [1, 2]) == [5]  # type: ignore[arg-type]
    assert propose(drafter, [1, 2], budget=1) == [5] and engine.asked == [7, 1, 1]


LONG = list(range(100, 140))
REPEATED = [*LONG, *LONG[:17]]  # a match of 16 and more; next is 117


def test_a_long_match_that_the_chain_begins_with_is_taken_whole() -> None:
    engine = Engine([117, 118, 0, 0])
    drafter = MtpDrafter(engine, 7, True)  # type: ignore[arg-type]
    assert propose(drafter, REPEATED) == LONG[17 : 17 + MAX_DRAFT]
    assert drafter.source == "lookup" and engine.asked == [AGREE], "two steps of the chain are enough"
    assert drafter.limit == MAX_DRAFT and len(propose(drafter, REPEATED, budget=4)) == 4


def test_a_long_match_that_the_chain_contradicts_is_not_taken() -> None:
    engine = Engine([117, 3, 4])
    drafter = MtpDrafter(engine, 7, True)  # type: ignore[arg-type]
    assert propose(drafter, REPEATED) == [117, 3, 4]
    assert drafter.source == "mtp" and engine.asked == [AGREE, 7]


SHORT = [1, 2, 3, 4, 5, 6, 1, 2]  # a match of 2; next is 3


@pytest.mark.parametrize(
    ("chain", "probabilities", "expected", "source"),
    [
        ([3, 4], [1, 1], [3, 4, 5, 6, 1, 2], "lookup"),
        ([3, 4, 5, 9], [1, 1, 1, 0.1], [3, 4, 5, 6, 1, 2], "lookup"),
        ([3, 9], [1, 1], [3, 9], "mtp"),
        ([3, 9], [1, 0.1], [3], "mtp"),  # one token is no agreement
        ([9], [0.1], [], "mtp"),
    ],
)
def test_a_short_match_goes_on_where_the_whole_chain_agrees(
    chain: list[int], probabilities: list[float], expected: list[int], source: str
) -> None:
    drafter = MtpDrafter(Engine(chain, probabilities), 7, True)  # type: ignore[arg-type]
    assert propose(drafter, SHORT, budget=6) == expected
    assert drafter.source == source


# ---- auto ----


class Scripted:
    """A drafter whose steps take `seconds` and give `tokens`."""

    limit, off = 7, ""

    def __init__(self, name: str, tokens: int, seconds: float) -> None:
        self.source, self.tokens, self.seconds, self.used = name, tokens, seconds, 0
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def propose(self, seq: Any, token: int, budget: int) -> list[int]:
        self.used += 1
        return [0] * (self.tokens - 1)

    def observe(self, drafts: list[int], accepted: int, seconds: float) -> None:
        assert len(drafts) == self.tokens - 1


def steps(auto: AutoDrafter, drafters: list[Scripted], n: int) -> list[str]:
    used = []
    for _ in range(n):
        drafts = auto.propose(None, 0, 7)  # type: ignore[arg-type]
        by = next(d for d in drafters if d.source == auto.source)
        auto.observe(drafts, by.tokens - 1, by.seconds)
        used.append(by.source)
    return used


def test_each_is_tried_and_the_fastest_used() -> None:
    drafters = [Scripted("a", 1, 1.0), Scripted("b", 4, 2.0), Scripted("c", 8, 5.0)]
    auto = AutoDrafter(drafters)  # type: ignore[arg-type]
    used = steps(auto, drafters, 200)
    assert used[: 3 * TRIALS] == [d for d in "abc" for _ in range(TRIALS)]
    rest = used[3 * TRIALS :]
    assert set(rest) == {"a", "b", "c"} and rest.count("b") >= len(rest) - len(rest) // PROBE_EVERY - 1
    others = [i for i, name in enumerate(rest) if name != "b"]
    assert all(j - i == PROBE_EVERY for i, j in zip(others, others[1:], strict=False))
    assert abs(rest.count("a") - rest.count("c")) <= 1, "the others take turns"


def test_the_first_step_of_each_does_not_count() -> None:
    """It is the slow one: memory is touched for the first time."""
    drafters = [Scripted("a", 2, 100.0), Scripted("b", 1, 1.0)]
    auto = AutoDrafter(drafters)  # type: ignore[arg-type]
    steps(auto, drafters, 1)
    drafters[0].seconds = 1.0
    assert steps(auto, drafters, 30)[2 * TRIALS :].count("a") >= 20


def test_changes_when_another_becomes_faster_by_the_margin() -> None:
    drafters = [Scripted("a", 1, 1.0), Scripted("b", 1, 2.0)]
    auto = AutoDrafter(drafters)  # type: ignore[arg-type]
    assert steps(auto, drafters, 60)[-10:].count("a") >= 9
    drafters[1].seconds = 1 / (MARGIN - 0.05)
    assert steps(auto, drafters, 400)[-10:].count("a") >= 9, "5 % are not worth a change"
    drafters[1].seconds = 0.5
    assert steps(auto, drafters, 400)[-10:].count("b") >= 9
    drafters[1].seconds = 4.0
    assert steps(auto, drafters, 400)[-10:].count("a") >= 9


def test_plain_steps_that_are_faster_turn_drafting_off() -> None:
    mtp = Scripted("mtp", 2, 3.0)
    auto = AutoDrafter([mtp, Plain()])  # type: ignore[list-item]
    for _ in range(100):
        drafts = auto.propose(None, 0, 7)  # type: ignore[arg-type]
        auto.observe(drafts, len(drafts), 3.0 if drafts else 1.0)
    assert auto.off == "plain steps were faster" and mtp.used <= TRIALS + 100 // PROBE_EVERY + 1
    assert auto.limit == 7
    mtp.tokens = 9
    for _ in range(200):
        drafts = auto.propose(None, 0, 7)  # type: ignore[arg-type]
        auto.observe(drafts, len(drafts), 3.0 if drafts else 1.0)
    assert auto.off == "" and auto.source == "mtp"


def test_a_new_answer_begins_for_all() -> None:
    drafters = [Scripted("a", 1, 1.0), Scripted("b", 1, 1.0)]
    auto = AutoDrafter(drafters)  # type: ignore[arg-type]
    steps(auto, drafters, 20)
    rates = [r.value for r in auto.rates]
    auto.begin()
    assert [d.begun for d in drafters] == [1, 1] and [r.value for r in auto.rates] == rates


def test_alone_it_has_nothing_to_choose() -> None:
    drafters = [Scripted("a", 1, 1.0)]
    assert steps(AutoDrafter(drafters), drafters, 40) == ["a"] * 40  # type: ignore[arg-type]


# ---- which one is made ----


@pytest.mark.parametrize(
    ("kind", "has_mtp", "measured", "expected", "limit"),
    [
        ("auto", True, False, MtpDrafter, MAX_DRAFT),
        ("auto", False, False, LookupDrafter, 5),
        ("auto", True, True, AutoDrafter, MAX_DRAFT),
        ("auto", False, True, LookupDrafter, MAX_DRAFT),
        ("mtp", True, False, MtpDrafter, 5),
        ("mtp", True, True, AutoDrafter, 5),
        ("mtp+lookup", True, False, MtpDrafter, MAX_DRAFT),
        ("lookup", True, False, LookupDrafter, 5),
    ],
)
def test_made_by_what_the_model_has(kind: str, has_mtp: bool, measured: bool, expected: type, limit: int) -> None:
    engine = Engine([1] if has_mtp else None)
    made: Any = make(kind, engine, 5, measured)  # type: ignore[arg-type]
    assert type(made) is expected and made.limit == limit
    if isinstance(made, AutoDrafter):
        assert [type(d) for d in made.drafters] == [MtpDrafter, Plain]


def test_none_and_errors() -> None:
    assert make("auto", Engine([1]), 0) is None  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"m.gguf holds no MTP block: draft with --drafter lookup, or name.*--mtp"):
        make("mtp", Engine(), 3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="unknown drafter 'x'; known: auto, mtp, mtp"):
        make("x", Engine([1]), 3)  # type: ignore[arg-type]


# ---- what the summary says ----


def test_nothing_to_say() -> None:
    stats = DraftStats()
    assert stats.describe() == ""
    stats.off = "the text does not repeat itself"
    assert stats.describe() == "drafts: none (the text does not repeat itself)"


def test_counts_by_whom() -> None:
    stats = DraftStats()
    for _ in range(3):
        stats.add("mtp", 4, 3, 2.0)
    stats.add("lookup", 1000, 999, 10.0)
    assert stats.describe() == (
        "drafts: mtp 12 proposed, 9 accepted (75 %); lookup 1,000 proposed, 999 accepted (100 %), 253.0 tok/step"
    )
    for _ in range(4):
        stats.add(PLAIN, 0, 0, 1.0)
    assert stats.speedup == pytest.approx((1016 / 20) / 1)
    stats.off = "plain steps were faster"
    assert stats.describe().endswith("127.0 tok/step · 50.8× plain; then off: plain steps were faster")


def test_answers_add_up() -> None:
    total = DraftStats()
    for name, off in (("mtp", ""), ("lookup", "a"), ("mtp", "b")):
        one = DraftStats(off=off)
        one.add(name, 5, 2, 1.0)
        one.add(PLAIN, 0, 0, 0.5)
        total += one
    assert (total.steps, total.proposed, total.accepted, total.emitted) == (6, 15, 6, 12)
    assert total.by_name == {"mtp": [10, 4], "lookup": [5, 2]} and total.off == "b"
    assert (total.seconds, total.plain_steps, total.plain_seconds) == (4.5, 3, 1.5)
