"""What steps, rejections and rewinds leave behind: keys, values, recurrent state, convolution inputs and hidden states
equal those of a fresh run of the same tokens, bit for bit.

Only what can still be read is compared: entries of the positions held, the current state slot, the convolution's last
inputs, the hidden state of the last position.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.devices.base import Place
from ie.engine import Engine
from ie.engine.kv import BLOCK, CHUNK, KvSequence
from ie.program import State, union
from ie.settings import DraftOptions, EngineOptions
from tests.drafters import chain, mtp
from tests.rig import Array
from tests.variants import make

N_VOCAB = 48
SMALL: dict[str, Any] = {
    "arch": "qwen35", "n_layer": 2, "n_mtp": 1, "n_embd": 32, "n_head": 2, "n_kv": 1, "n_ff": 32, "n_vocab": N_VOCAB,
    "d_state": 16, "n_k_heads": 1, "n_v_heads": 2, "agreement": 8.0, "formats": "Q8_0",
}  # fmt: skip
DRAFT = DraftOptions(depth=4, p_min=0.0, vocabulary=0, q4_head=False)


def opened(path: str, chunk: int = 24, draft: DraftOptions | None = DRAFT) -> Engine:
    return Engine.open(path, EngineOptions(n_ctx=224, threads=1, chunk=chunk), draft=mtp(draft))


def remains(engine: Engine, seq: KvSequence) -> dict[str, Array]:
    """Everything that later steps may read, by name."""
    programs = union(list(engine.programs.values()))
    pos, n = np.arange(len(seq)), len(seq)
    none = np.zeros(0, np.int64)
    entries = Place(0, np.array(seq.blocks, np.int64)[pos // BLOCK], pos % BLOCK, none)
    out = {}
    for cache in programs.caches():
        values = engine.executor.peek(0, cache, entries)
        assert isinstance(values, np.ndarray) and values.shape == (n, cache.heads, cache.dim)
        out[f"{cache.layer} {cache.which}"] = values
    for state in programs.states():
        ring = np.asarray(engine.executor.peek(0, state, Place(0, none, none, np.array([seq.index]))))[0]
        out[f"{state.layer} {state.which}"] = ring[_live(engine, seq, state)]
    return out


def _live(engine: Engine, seq: KvSequence, state: State) -> Any:
    if state.which == "delta":
        return [seq.state] if seq.stored else []
    back = {"conv": engine.config.delta.taps - 1, "hidden": 1}[state.which] if engine.config.delta else 1
    return [p % state.shape[0] for p in range(max(0, len(seq) - back), len(seq))]


def assert_same(got: dict[str, Array], want: dict[str, Array], what: object) -> None:
    assert got.keys() == want.keys() and len(want) > 3
    for name, values in want.items():
        assert values.size == 0 or np.isfinite(values).all()
        bits = f"u{values.itemsize}"
        assert np.array_equal(got[name].view(bits), values.view(bits)), f"{what}: {name}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("state") / "m.gguf", **SMALL)


@pytest.fixture(scope="module")
def fresh(path: str) -> Iterator[Engine]:
    """An engine that only reads prompts, in one chunk."""
    with opened(path, chunk=224) as engine:
        yield engine


def compare(engine: Engine, seq: KvSequence, fresh: Engine, what: object) -> None:
    """State of `seq` against a new sequence that is fed the same tokens."""
    assert seq.stored == len(seq)
    other = fresh.new_sequence()
    if seq.tokens:
        fresh.forward(other, seq.tokens)
    want = remains(fresh, other)
    other.close()
    assert_same(remains(engine, seq), want, what)


def test_ten_thousand_steps(path: str, fresh: Engine) -> None:
    """Random drafts, rows, acceptances, rewinds near and far, and prompts between them."""
    rng = np.random.default_rng(1)
    steps = compared = chains = again = 0
    with opened(path) as engine:
        seq = engine.new_sequence()
        while steps < 10_000:
            steps += 1
            room = engine.n_ctx - len(seq)
            if room < 2 or rng.random() < 0.004:
                back = int(rng.integers(0, len(seq) + 1)) if rng.random() < 0.7 else int(rng.integers(0, 20))
                seq.truncate(max(0, len(seq) - back))
                again += seq.stored < len(seq)
            elif rng.random() < 0.01 or seq.stored < len(seq):
                engine.forward(seq, rng.integers(0, N_VOCAB, min(room, int(rng.integers(1, 60)))).tolist())
            else:
                rows = int(rng.integers(1, min(room, 16) + 1))
                ids = rng.integers(0, N_VOCAB, rows).tolist()
                if rng.random() < 0.3:
                    drafts = [t for t, _ in chain(engine, seq, ids[0], 4)]
                    ids[1 : 1 + len(drafts)] = drafts[: rows - 1]
                    chains += 1
                start = len(seq)
                engine.verify(seq, ids)
                seq.truncate(start + 1 + int(rng.integers(0, rows)))
            if steps % 50 == 0 and seq.stored == len(seq):
                compare(engine, seq, fresh, steps)
                engine.steps.pool.check([seq.blocks])
                compared += 1
    assert compared > 150 and chains > 1500 and again > 5


def test_the_comparison_sees_a_wrong_state(path: str, fresh: Engine) -> None:
    """An accepted row too many, a slot beside the right one, another token in the text: each is found."""
    ids = np.random.default_rng(2).integers(0, N_VOCAB, 40).tolist()
    with opened(path) as engine:
        seq = engine.new_sequence()
        engine.forward(seq, ids[:30])
        engine.verify(seq, ids[30:36])
        compare(engine, seq, fresh, "right")
        seq.state = (seq.state - 1) % seq.copies
        with pytest.raises(AssertionError, match="delta"):
            compare(engine, seq, fresh, "slot")
        seq.state = (seq.state + 1) % seq.copies
        seq.tokens[33] = (seq.tokens[33] + 1) % N_VOCAB
        with pytest.raises(AssertionError, match="text"):
            compare(engine, seq, fresh, "text")


@pytest.mark.parametrize("pieces", [(40,), (30, 10), (20, 7, 1, 1, 1, 10), (24, 16), (3, 2, 16, 16, 3)])
def test_truncating_by_any_amount(pieces: tuple[int, ...], path: str, fresh: Engine) -> None:
    """Within the copies kept the state steps back; beyond them the next forward makes it anew. Bits are the same."""
    ids = np.random.default_rng(3).integers(0, N_VOCAB, 60).tolist()
    with opened(path) as engine:
        for back in range(41):
            seq, at = engine.new_sequence(), 0
            for n in pieces:
                engine.forward(seq, ids[at : at + n])
                at += n
            kept = seq.kept
            seq.truncate(40 - back)
            if 0 < 40 - back:
                assert (seq.stored == 40 - back) == (back <= kept), (back, kept)
            else:
                assert (seq.stored, seq.state) == (0, -1)
            more = ids[45 : 45 + 1 + back % 9]
            want = fresh.new_sequence()
            expected = fresh.forward(want, ids[: 40 - back] + more, "all")[-len(more) :]
            want.close()
            got = engine.forward(seq, more, "all")
            assert np.array_equal(got.view(np.uint32), expected.view(np.uint32)), back
            compare(engine, seq, fresh, back)
            seq.close()


def test_copies_kept_cover_the_longest_draft(path: str) -> None:
    """After any step of up to 16 rows all but its first can be taken back."""
    with opened(path) as engine:
        seq = engine.new_sequence()
        engine.forward(seq, list(range(20)))
        for rows in range(1, 17):
            engine.verify(seq, list(range(rows)))
            assert seq.kept >= rows - 1
            seq.truncate(len(seq) - rows + 1)
            assert seq.stored == len(seq)


def test_drafting_changes_no_text(path: str, fresh: Engine) -> None:
    """A chain that nobody verifies leaves everything that counts as it was."""
    with opened(path) as engine:
        seq = engine.new_sequence()
        engine.forward(seq, list(range(31)))
        for token in range(12):
            drafts = chain(engine, seq, token, 1 + token % 4)
            assert len(drafts) == 1 + token % 4 and drafts == chain(engine, seq, token, 1 + token % 4)
            assert len(seq) == seq.stored
            compare(engine, seq, fresh, token)
            engine.verify(seq, [token])
            compare(engine, seq, fresh, token)


def test_drafts_do_not_depend_on_the_way_here(path: str, fresh: Engine) -> None:
    """The same text gives the same drafts and probabilities, whether it was read or written, in whatever steps."""
    ids = np.random.default_rng(5).integers(0, N_VOCAB, 50).tolist()
    whole = fresh.new_sequence()
    fresh.forward(whole, ids)
    want = chain(fresh, whole, 7, 4)
    whole.close()
    with opened(path) as engine:
        for seed in range(6):
            rng = np.random.default_rng(seed)
            seq = engine.new_sequence()
            engine.forward(seq, ids[:10])
            while len(seq) < 50:
                right = min(int(rng.integers(1, 9)), 50 - len(seq))
                wrong = rng.integers(0, N_VOCAB, int(rng.integers(0, 8))).tolist()
                start = len(seq)
                engine.verify(seq, ids[start : start + right] + wrong)
                seq.truncate(start + right)
            assert chain(engine, seq, 7, 4) == want
            seq.close()


@pytest.mark.parametrize("p_min", [0.0, 0.2, 0.5, 0.9])
def test_a_chain_is_the_beginning_of_a_longer_one(p_min: float, path: str) -> None:
    """It ends at the first token below p_min, which is its last."""
    lengths = set()
    with (
        opened(path, draft=DraftOptions(6, p_min, 0, False)) as engine,
        opened(path, draft=DraftOptions(6, 0.0, 0, False)) as free,
    ):
        for token in range(N_VOCAB):
            seqs = [e.new_sequence() for e in (engine, free)]
            for e, seq in zip((engine, free), seqs, strict=True):
                e.forward(seq, [token, 3, (token * 7) % N_VOCAB])
            long = chain(free, seqs[1], token, 6)
            n = next((i + 1 for i, (_, p) in enumerate(long) if p < p_min), 6)
            for limit in (1, 3, 6):
                assert chain(engine, seqs[0], token, limit) == long[: min(n, limit)]
            lengths.add(n)
            for seq in seqs:
                seq.close()
    assert len(lengths) > 1 or p_min == 0.0


def test_hidden_states_that_are_gone_are_made_anew(tmp_path: Path) -> None:
    """A model without recurrent layers can go back as far as it likes, but for what the MTP block pairs next."""
    path = make(tmp_path / "m.gguf", **SMALL, recurrent_layers=(0, 0))
    ids = np.random.default_rng(6).integers(0, N_VOCAB, 200).tolist()
    again = 0
    with opened(path) as engine, opened(path, chunk=224) as fresh:
        assert engine.config.delta is None and engine.opened.ring == 32
        for back in (1, 2, 15, 16, 17, 28, 29, 31, 32, 33, 60, 150, 199):
            seq = engine.new_sequence()
            engine.forward(seq, ids)
            chain(engine, seq, 3, 4)  # writes hidden states ahead of the text
            seq.truncate(200 - back)
            assert (seq.stored == 200 - back) == (200 - back + 32 > 204), back
            again += seq.stored == 0
            engine.forward(seq, [5, 6])
            compare(engine, seq, fresh, back)
            other = fresh.new_sequence()
            fresh.forward(other, seq.tokens)
            assert chain(engine, seq, 7, 4) == chain(fresh, other, 7, 4)
            for one in (seq, other):
                one.close()
    assert again >= 6


@pytest.mark.parametrize("late", [False, True], ids=["before the step", "after the step"])
@pytest.mark.parametrize(
    ("call", "rows"), [("forward", 1), ("forward", 5), ("forward", 16), ("forward", 40), ("verify", 16)]
)
def test_a_step_that_was_cut_short_leaves_nothing_behind(
    path: str, call: str, rows: int, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C: the kernels have run to their end or not begun, and Python has not noted it."""
    text = [3 + i * 7 % (N_VOCAB - 3) for i in range(70)]
    with opened(path, draft=None) as engine:
        seq, run = engine.new_sequence(), engine.executor.run
        engine.forward(seq, text[:30])
        want = engine.forward(seq, text[30 : 30 + rows], "all")
        seq.close()
        seq = engine.new_sequence()
        engine.forward(seq, text[:30])

        def interrupted(*args: Any) -> None:
            if late:
                run(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(engine.executor, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            getattr(engine, call)(seq, text[30 : 30 + rows])
        monkeypatch.setattr(engine.executor, "run", run)
        assert len(seq) == 30
        assert np.array_equal(engine.forward(seq, text[30 : 30 + rows], "all"), want)


def test_a_second_chunk_of_the_cache_leaves_the_first_as_it_was(path: str) -> None:
    with Engine.open(path, EngineOptions(n_ctx=2 * CHUNK * BLOCK, threads=1), draft=mtp(DRAFT)) as engine:
        seq = engine.new_sequence()
        engine.forward(seq, [3 + i * 7 % (N_VOCAB - 3) for i in range(CHUNK * BLOCK)])
        pos = np.arange(len(seq))
        place = Place(0, np.array(seq.blocks, np.int64)[pos // BLOCK], pos % BLOCK, pos[:0])
        before = [engine.executor.peek(0, cache, place) for cache in engine.program.caches()]
        engine.forward(seq, [3 + i * 5 % (N_VOCAB - 3) for i in range(200)])
        after = [engine.executor.peek(0, cache, place) for cache in engine.program.caches()]
        assert len(before) >= 2 and all(map(np.array_equal, before, after))
