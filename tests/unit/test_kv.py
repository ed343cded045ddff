"""Paged KV: whatever sequences do, each block has one owner, tables say which, and refusals change nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ie.engine.kv import BLOCK, BlockPool, KvSequence
from ie.errors import ResourceError
from ie.program.step import StepInputs

SLOTS, MAX_BLOCKS = 3, 6


class Sequences(RuleBasedStateMachine):
    """Three sequences share a pool that cannot serve all of them; a list of tokens each is the model."""

    @initialize(blocks=st.integers(1, 12), limit=st.integers(1, MAX_BLOCKS * BLOCK))
    def start(self, blocks: int, limit: int) -> None:
        self.pool, self.limit = BlockPool(blocks), limit
        self.step = StepInputs(4, SLOTS, MAX_BLOCKS)
        self.sequences = [KvSequence(i, self.pool, limit) for i in range(SLOTS)]
        self.expected: list[list[int]] = [[] for _ in range(SLOTS)]

    @rule(i=st.integers(0, SLOTS - 1), n=st.integers(0, 3) | st.integers(0, 80))
    def extend(self, i: int, n: int) -> None:
        seq, have = self.sequences[i], self.expected[i]
        tokens = list(range(len(have), len(have) + n))
        blocks = -(-(len(have) + n) // BLOCK) - -(-len(have) // BLOCK)
        fits = len(have) + n <= self.limit and blocks <= self.pool.n_free
        before = (seq.tokens[:], seq.blocks[:], self.pool.n_free, list(seq.phases))
        try:
            seq.extend(tokens)
        except ResourceError:
            assert not fits
            assert before == (seq.tokens, seq.blocks, self.pool.n_free, list(seq.phases))
        else:
            assert fits
            have += tokens

    @rule(i=st.integers(0, SLOTS - 1), share=st.floats(0, 1))
    def truncate(self, i: int, share: float) -> None:
        n = round(share * len(self.expected[i]))
        kept = self.sequences[i].blocks[: -(-n // BLOCK)]
        self.sequences[i].truncate(n)
        assert self.sequences[i].blocks == kept, "kept positions stay where they are"
        del self.expected[i][n:]

    @rule(i=st.integers(0, SLOTS - 1))
    def write_table(self, i: int) -> None:
        """By difference, as the engine does before a step; in between anything may have happened to the sequence."""
        seq = self.sequences[i]
        self.step.set_blocks(i, seq.blocks, seq.changed)
        seq.changed = len(seq.blocks)
        assert self.step.tables[i].tolist() == seq.blocks + [-1] * (MAX_BLOCKS - len(seq.blocks))

    @rule(i=st.integers(0, SLOTS - 1), wrong=st.sampled_from([-1, 1]))
    def truncate_wrongly(self, i: int, wrong: int) -> None:
        n = len(self.expected[i]) + 1 if wrong > 0 else -1
        with pytest.raises(ValueError, match="truncate to"):
            self.sequences[i].truncate(n)

    @rule(i=st.integers(0, SLOTS - 1), times=st.integers(1, 2))
    def close(self, i: int, times: int) -> None:
        for _ in range(times):
            self.sequences[i].close()
        self.expected[i] = []

    @precondition(lambda self: hasattr(self, "pool"))
    @invariant()
    def tables_are_right(self) -> None:
        self.pool.check([s.blocks for s in self.sequences])
        for seq, tokens in zip(self.sequences, self.expected, strict=True):
            assert seq.tokens == tokens and len(seq) == len(tokens) == len(seq.phases)
            assert len(seq.blocks) == -(-len(tokens) // BLOCK)
        assert self.pool.n_free == self.pool.n_blocks - sum(len(s.blocks) for s in self.sequences)


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


# ---- recurrent state ----


class States(RuleBasedStateMachine):
    """A ring of state copies. The model knows which tokens each slot has seen; a state that is used must have seen
    exactly the tokens before the next one."""

    @initialize(slots=st.sampled_from([1, 2, 8, 16]))
    def start(self, slots: int) -> None:
        self.seq = KvSequence(0, BlockPool(20), 600, slots)
        self.ring: dict[int, list[int]] = {}
        self.fresh = 0
        self.single = 0  # states of the last tokens that are in the ring

    def step(self, rows: int) -> None:
        """What a step of the engine does to the ring (ie_state_slot in core_laws/ie_core.h)."""
        seq, keep = self.seq, self.seq.keep(rows)
        assert 1 <= keep <= min(rows, seq.copies)
        begin, state = seq.stored, seq.state
        assert self.ring.get(state, []) == seq.tokens[:begin] if state >= 0 else begin == 0
        for t in range(rows - keep, rows):
            self.ring[(state + 1 + t - (rows - keep)) % seq.copies] = seq.tokens[: begin + t + 1]
        self.single = min(self.single + rows, seq.copies) if keep == rows else 1
        seq.advance(rows)

    @rule(rows=st.integers(1, 16) | st.integers(1, 40))
    def feed(self, rows: int) -> None:
        if len(self.seq) + rows > self.seq.limit:
            return
        self.seq.extend([self.fresh + i for i in range(rows)])
        self.fresh += rows  # never the same token twice: a stale state shows
        if self.seq.stored < len(self.seq) - rows:
            self.step(len(self.seq) - rows - self.seq.stored)
        self.step(rows)

    @rule(back=st.integers(0, 20) | st.integers(0, 600))
    def truncate(self, back: int) -> None:
        n = max(0, len(self.seq) - back)
        gone = max(0, self.seq.stored - n)  # of what the state has seen
        cheap = gone < self.single
        self.seq.truncate(n)
        if gone:
            assert self.seq.stored in (0, n)
            assert self.seq.stored == n or not cheap, "a state that is still there was not used"
            self.single = self.single - gone if self.seq.stored else 0

    @precondition(lambda self: hasattr(self, "seq"))
    @invariant()
    def the_state_has_seen_what_is_stored(self) -> None:
        seq = self.seq
        assert 0 <= seq.stored <= len(seq.tokens) and -1 <= seq.state < seq.copies
        if seq.stored:
            assert self.ring[seq.state] == seq.tokens[: seq.stored]
            for back in range(1, seq.kept + 1):
                if seq.stored > back:
                    assert self.ring[(seq.state - back) % seq.copies] == seq.tokens[: seq.stored - back]


TestStates = States.TestCase
TestStates.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_models_without_state_feed_nothing_again() -> None:
    seq = KvSequence(0, BlockPool(4), 100)
    seq.extend(list(range(50)))
    seq.advance(50)
    seq.truncate(20)
    assert (seq.stored, seq.state, len(seq)) == (20, -1, 20)
    seq.truncate(0)
    assert seq.stored == 0


# ---- the pool ----


@given(st.integers(1, 50), st.data())
def test_a_pool_hands_out_each_block_once(n: int, data: st.DataObject) -> None:
    pool = BlockPool(n)
    taken = [pool.take() for _ in range(data.draw(st.integers(0, n)))]
    assert taken == list(range(len(taken)))
    for block in data.draw(st.permutations(taken)):
        pool.give(block)
    assert sorted(pool.take() for _ in range(n)) == list(range(n))
    with pytest.raises(ResourceError, match=f"all {n} blocks of 32 positions"):
        pool.take()


def test_pool_check_finds_lost_and_shared_blocks() -> None:
    pool = BlockPool(4)
    a, b = pool.take(), pool.take()
    pool.check([[a], [b]])
    for owned in ([[a]], [[a], [a, b]], [[a, b], [3]], [[a, b, 9]]):
        with pytest.raises(AssertionError, match="lost or owned twice"):
            pool.check(owned)


def test_messages_say_what_to_do() -> None:
    pool = BlockPool(3)
    seq, other = KvSequence(0, pool, 40), KvSequence(1, pool, 1000)
    seq.extend([1] * 30)
    with pytest.raises(ResourceError, match=r"30 tokens held, 11 more do not fit into 40; a longer context \(-c\)"):
        seq.extend([1] * 11)
    with pytest.raises(ResourceError, match="3 blocks needed, 2 free"):
        other.extend([1] * 65)
    seq.extend([1] * 10)
    assert len(seq) == 40 and pool.n_free == 1
