"""Paged KV: whatever sequences do, each block has one owner, tables say which, and refusals change nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ie.errors import ResourceError
from ie.kv import BLOCK, BlockPool, Sequence
from ie.step import StepInputs

SLOTS, MAX_BLOCKS = 3, 6


class Sequences(RuleBasedStateMachine):
    """Three sequences share a pool that cannot serve all of them; a list of tokens each is the model."""

    @initialize(blocks=st.integers(1, 12), limit=st.integers(1, MAX_BLOCKS * BLOCK))
    def start(self, blocks: int, limit: int) -> None:
        self.pool, self.limit = BlockPool(blocks), limit
        self.step = StepInputs(4, SLOTS, MAX_BLOCKS)
        self.sequences = [Sequence(i, self.pool, self.step, limit) for i in range(SLOTS)]
        self.expected: list[list[int]] = [[] for _ in range(SLOTS)]

    @rule(i=st.integers(0, SLOTS - 1), n=st.integers(0, 3) | st.integers(0, 80))
    def extend(self, i: int, n: int) -> None:
        seq, have = self.sequences[i], self.expected[i]
        tokens = list(range(len(have), len(have) + n))
        blocks = -(-(len(have) + n) // BLOCK) - -(-len(have) // BLOCK)
        fits = len(have) + n <= self.limit and blocks <= self.pool.n_free
        before = (seq.tokens[:], seq.blocks[:], self.pool.n_free, self.step.tables.tolist())
        try:
            seq.extend(tokens)
        except ResourceError:
            assert not fits
            assert before == (seq.tokens, seq.blocks, self.pool.n_free, self.step.tables.tolist())
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
        for seq, tokens, row in zip(self.sequences, self.expected, self.step.tables.tolist(), strict=True):
            n = -(-len(tokens) // BLOCK)
            assert seq.tokens == tokens and len(seq) == len(tokens)
            assert row == seq.blocks + [-1] * (MAX_BLOCKS - n) and len(seq.blocks) == n
        assert self.pool.n_free == self.pool.n_blocks - sum(len(s.blocks) for s in self.sequences)


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


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
    step = StepInputs(4, 2, 4)
    pool = BlockPool(3)
    seq, other = Sequence(0, pool, step, 40), Sequence(1, pool, step, 1000)
    seq.extend([1] * 30)
    with pytest.raises(ResourceError, match=r"30 tokens held, 11 more do not fit into 40; a longer context \(-c\)"):
        seq.extend([1] * 11)
    with pytest.raises(ResourceError, match="3 blocks needed, 2 free"):
        other.extend([1] * 65)
    seq.extend([1] * 10)
    assert len(seq) == 40 and pool.n_free == 1
