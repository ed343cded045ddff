"""The suffix index against a search through the whole text, and what the lookup drafter makes of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ie.draft.choose import LOOKUP_PROBE, LookupDrafter
from ie.draft.lookup import MAX_CANDIDATES, MAX_DRAFT, MAX_MATCH, MIN_MATCH, SuffixIndex
from ie.engine.drafter import PLAIN

TEXTS = st.lists(st.integers(0, 3), max_size=80)


def brute_force(text: list[int]) -> tuple[int, int]:
    """(length of the longest match, position after it): every earlier end is tried, the most recent ones first."""
    n, tried, best, where = len(text), 0, 0, 0
    for end in range(n - 1, MIN_MATCH - 1, -1):
        if text[end - MIN_MATCH : end] != text[n - MIN_MATCH :]:
            continue
        tried += 1
        if tried > MAX_CANDIDATES:
            break
        m = max(m for m in range(MIN_MATCH, MAX_MATCH + 1) if m <= end and text[end - m : end] == text[n - m :])
        if m > best:
            best, where = m, end
    return best, where


def index_of(text: list[int]) -> SuffixIndex:
    index = SuffixIndex()
    if text:
        index.update(text[:-1], text[-1])
    return index


@given(TEXTS)
def test_finds_what_a_search_through_the_text_finds(text: list[int]) -> None:
    assert index_of(text).find() == brute_force(text)


@given(TEXTS, st.lists(st.integers(1, 7), max_size=12))
def test_growing_in_pieces_is_the_same(text: list[int], sizes: list[int]) -> None:
    index, end = SuffixIndex(), 0
    for size in sizes:
        end = min(len(text), end + size)
        if end:
            index.update(text[: end - 1], text[end - 1])
            assert index.tokens == text[:end]
            assert index.find() == brute_force(text[:end])


@given(TEXTS, st.integers(1, 20))
def test_proposes_what_followed(text: list[int], limit: int) -> None:
    match, drafts = index_of(text).propose(limit)
    length, where = brute_force(text)
    assert match == length and len(drafts) == (min(limit, MAX_DRAFT) if match else 0)
    longer = text[:]
    for draft in drafts:  # the text goes on as it did `len(text) - where` tokens before
        assert draft == longer[len(longer) - (len(text) - where)]
        longer.append(draft)


def test_examples() -> None:
    assert index_of([]).propose(5) == (0, [])
    assert index_of([7]).propose(5) == (0, [])
    assert index_of([1, 2, 3, 4, 1]).propose(5) == (0, []), "one token is no match"
    assert index_of([1, 2, 3, 4, 1, 2]).propose(2) == (2, [3, 4])
    assert index_of([1, 2, 9, 5, 1, 2, 8, 5, 1, 2]).propose(1) == (3, [8]), "the longest match, not the first found"
    assert index_of([1, 2, 3, 1, 2, 4, 1, 2]).propose(1) == (2, [4]), "of equally long ones the most recent"
    assert index_of([5, 5, 5]).propose(6) == (2, [5] * 6)
    assert index_of([0, 8, 9, 8, 9]).propose(5) == (2, [8, 9, 8, 9, 8]), "a period goes on"
    long = list(range(40))
    assert index_of(long + long).propose(99) == (MAX_MATCH, long[:MAX_DRAFT])


# ---- the drafter ----


class Text:
    """Stands for a sequence: all tokens but the newest."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens


def follow(
    drafter: LookupDrafter, text: list[int], start: int, seconds: dict[int, float] | None = None, per_row: float = 0.2
) -> tuple[int, int, list[list[int]]]:
    """Generate `text` from `start` on with a clock of 1 + per_row * drafts a step: (steps, drafts that held, all)."""
    steps = held = 0
    proposals = []
    drafter.begin()
    while start < len(text):
        drafts = drafter.propose(Text(text[: start - 1]), text[start - 1], 15)  # type: ignore[arg-type]
        proposals.append(drafts)
        true = text[start : start + len(drafts)]
        accepted = next((i for i, (a, b) in enumerate(zip(drafts, true, strict=False)) if a != b), len(true))
        drafter.observe(drafts, accepted, 1 + per_row * len(drafts))
        steps, held, start = steps + 1, held + accepted, start + accepted + 1
    return steps, held, proposals


def test_repeating_text_takes_few_steps() -> None:
    part = np.random.default_rng(0).integers(0, 1000, 120).tolist()
    drafter = LookupDrafter()
    steps, held, proposals = follow(drafter, part * 3, len(part))
    assert steps < 60 and held > 180
    assert drafter.source in ("lookup", PLAIN) and max(map(len, proposals)) <= MAX_DRAFT


def test_silent_where_nothing_repeats() -> None:
    text = np.random.default_rng(1).permutation(5000).tolist()
    drafter = LookupDrafter()
    steps, held, proposals = follow(drafter, text, 10)
    assert steps == len(text) - 10 and held == 0 and not any(proposals)
    assert drafter.source == PLAIN and drafter.off == "the text does not repeat itself"


def test_gives_up_where_repetitions_go_on_differently() -> None:
    """Pairs return all the time but what follows is random: drafts stop, apart from a rare trial."""
    rng = np.random.default_rng(2)
    text = [t for _ in range(1500) for t in (1, 2, int(rng.integers(10, 10**6)))]
    drafter = LookupDrafter()
    steps, _, proposals = follow(drafter, text, 30, per_row=0.3)
    late = proposals[steps // 2 :]
    assert sum(map(len, late)) <= len(late) / LOOKUP_PROBE + 1
    assert drafter.off == "what followed the same words earlier held too seldom"


def test_notices_that_a_text_begins_to_repeat() -> None:
    rng = np.random.default_rng(3)
    noise = [t for _ in range(500) for t in (1, 2, int(rng.integers(10, 10**6)))]
    part = [1, 2, *rng.integers(10**6, 2 * 10**6, 60).tolist()]
    _, held, _ = follow(LookupDrafter(), noise + part * 12, 30)
    assert held > 300


def test_no_drafts_before_a_plain_step_was_timed() -> None:
    drafter = LookupDrafter()
    assert drafter.propose(Text([1, 2, 3, 1]), 2, 9) == []  # type: ignore[arg-type]
    drafter.observe([], 0, 1.0)
    assert drafter.propose(Text([1, 2, 3, 1, 2]), 3, 9) != []  # type: ignore[arg-type]


def test_long_steps_that_do_not_pay_are_not_taken() -> None:
    """A second row that costs as much as a step: nothing is gained by drafting, whatever holds."""
    part = np.random.default_rng(4).integers(0, 1000, 100).tolist()
    steps, _, proposals = follow(LookupDrafter(), part * 6, len(part), per_row=1.0)
    assert sum(map(bool, proposals)) < 0.1 * steps


def test_limits() -> None:
    part = np.random.default_rng(5).integers(0, 1000, 100).tolist()
    _, _, proposals = follow(LookupDrafter(3), part * 3, len(part), per_row=0.01)
    assert max(map(len, proposals)) == 3
    drafter = LookupDrafter()
    drafter.observe([], 0, 1.0)
    assert len(drafter.propose(Text(part + part[:20]), part[20], 2)) == 2  # type: ignore[arg-type]


def test_a_new_text_forgets_the_old_one() -> None:
    drafter = LookupDrafter()
    follow(drafter, list(range(50)) * 2, 50)
    drafter.begin()
    assert drafter.propose(Text([3, 4]), 5, 9) == []  # type: ignore[arg-type]
    assert drafter.index.tokens == [3, 4, 5]
