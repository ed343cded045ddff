"""What drafting takes of memory is reckoned with before loading; hidden states limit how far a text steps back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ie import machine
from ie.draft.mtp import Mtp
from ie.engine import Engine, opening
from ie.engine.kv import BlockPool, KvSequence
from ie.engine.memory import FEW_STATE_SLOTS, STATE_SLOTS, Demand, choose_slots
from ie.settings import DraftOptions, EngineOptions
from tests.drafters import mtp
from tiny_models import make_tiny


def needs(path: str, monkeypatch: pytest.MonkeyPatch, draft: DraftOptions | None = None) -> list[int]:
    """Bytes of weights, and of activations and hidden states, that the engine reckons with, and bytes of weights that
    it then has."""
    seen: list[int] = []

    def record(demand: Demand, free: int, n_ctx: int) -> int:
        need = demand.at(n_ctx)
        seen.extend((need.weights, need.work + need.state))
        return choose_slots(demand, free, n_ctx)

    with monkeypatch.context() as patch:
        patch.setattr(opening, "choose_slots", record)
        with Engine.open(path, EngineOptions(n_ctx=64), draft=mtp(draft)) as engine:
            return [*seen, engine.executor.memory()["weights"]]


def test_the_blocks_weights_and_head_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape: dict[str, Any] = {"arch": "qwen35", "n_layer": 2, "n_mtp": 1, "n_vocab": 2048, "formats": "F16"}
    path = str(make_tiny(tmp_path / "m.gguf", **shape))
    trunk = str(make_tiny(tmp_path / "t.gguf", part="trunk", **shape))
    block = str(make_tiny(tmp_path / "b.gguf", part="mtp", **shape))
    plain = needs(path, monkeypatch)
    assert plain[0] == plain[2] == needs(trunk, monkeypatch)[0], "a block that does not draft is not loaded"
    full = needs(path, monkeypatch, draft=DraftOptions(q4_head=False))
    small = needs(path, monkeypatch, draft=DraftOptions(q4_head=True))
    assert full[0] == full[2] and small[0] == small[2]
    assert full[0] > plain[0] and small[0] >= full[0] + 2048 * 64 * 18 // 32, "a copy of the head beside the head"
    assert full[1] > plain[1], "hidden states"
    assert needs(trunk, monkeypatch, draft=DraftOptions(q4_head=False, file=block))[0] == full[0]


def test_eight_slots_when_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(make_tiny(tmp_path / "m.gguf", arch="qwen35", n_layer=2, n_mtp=1))
    options, asked = EngineOptions(n_ctx=64, chunk=16), list[Demand]()

    def record(demand: Demand, free: int, n_ctx: int) -> int:
        asked.append(demand)
        return choose_slots(demand, free, n_ctx)

    monkeypatch.setattr(opening, "choose_slots", record)
    with Engine.open(path, options, draft=Mtp(DraftOptions(15))) as engine:
        assert engine.state_slots == STATE_SLOTS
    many, few = (asked[0].at(64, slots).total for slots in (STATE_SLOTS, FEW_STATE_SLOTS))
    assert few < many
    monkeypatch.setattr(machine, "free_memory", lambda: (few + many) // 2)
    with Engine.open(path, options, draft=Mtp(DraftOptions(15))) as engine:
        assert engine.state_slots == FEW_STATE_SLOTS
        seq = engine.new_sequence()
        engine.forward(seq, list(range(20)))
        engine.verify(seq, list(range(8)))
        seq.truncate(21)
        assert seq.stored == 21


@given(st.integers(2, 40), st.data())
def test_a_text_steps_back_while_the_hidden_state_is_there(hidden: int, data: st.DataObject) -> None:
    """The model: which position each place of the ring holds."""
    seq = KvSequence(0, BlockPool(20), 600, 0, hidden)
    ring: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        rows = data.draw(st.integers(1, hidden - 1))
        if len(seq) + rows > 500:
            break
        seq.extend([0] * rows)
        while seq.stored < len(seq):  # all that was forgotten is fed first
            step = min(len(seq) - seq.stored, hidden - 1)
            ring |= {p % hidden: p for p in range(seq.stored, seq.stored + step)}
            seq.advance(step)
        if data.draw(st.booleans()):
            ahead = data.draw(st.integers(1, hidden - 1))
            ring |= {p % hidden: p for p in range(seq.stored, seq.stored + ahead)}
            seq.touch(seq.stored + ahead)
        n = data.draw(st.integers(0, len(seq)))
        there = n == len(seq) or (n > 0 and ring[(n - 1) % hidden] == n - 1)
        seq.truncate(n)
        assert seq.stored == (n if there or n == 0 else 0)
        assert len(seq) == n
