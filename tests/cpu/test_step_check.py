"""Step inputs that no kernel may see: each broken rule is refused in words, before the first command, and the next step
is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ie import native
from ie.engine import Engine
from ie.errors import IeError
from ie.program.step import StepInputs
from ie.settings import EngineOptions
from tests.variants import make

N_CTX, PROMPT = 96, 40

Spoil = Callable[[StepInputs], None]


def _set(array: str, at: int | tuple[int, ...], value: int) -> Spoil:
    def spoil(step: StepInputs) -> None:
        getattr(step, array)[at] = value

    return spoil


def _head(name: str, value: int) -> Spoil:
    def spoil(step: StepInputs) -> None:
        step.header[name] = value

    return spoil


BROKEN = {
    "no rows": (_head("n_rows", 0), "0 rows, expected 1 to"),
    "negative rows": (_head("n_rows", -3), "-3 rows, expected 1 to"),
    "more rows than the binding has": (_head("n_rows", 17), "17 rows, expected 1 to 16"),
    "more outputs than the logits hold": (_head("n_outs", 5), "5 output rows, expected at most"),
    "negative outputs": (_head("n_outs", -1), "-1 output rows, expected at most"),
    "no segments": (_head("n_segs", 0), "segment 0"),
    "two segments": (_head("n_segs", 2), "segment"),
    "a sequence that is not there": (_set("seq", 1, 1), "row 1: there is no sequence 1, only 1"),
    "a negative sequence": (_set("seq", 0, -1), "row 0: there is no sequence -1"),
    "a negative position": (_set("pos", 2, -1), "row 2: position -1 is outside the context of 96"),
    "a position past the context": (_set("pos", 2, N_CTX), "row 2: position 96 is outside the context of 96"),
    "an enormous position": (_set("pos", 0, 2**31 - 1), "row 0: position 2147483647 is outside"),
    "a negative id": (_set("token", 0, -1), "row 0: token id -1 is outside the vocabulary of"),
    "an id past the vocabulary": (_set("token", 2, 1 << 24), "row 2: token id 16777216 is outside the vocabulary of"),
    "a block that was not handed out": (_set("tables", (0, 0), -1), "its block table lacks a block"),
    "a block past the pool": (_set("tables", (0, 1), 3), "names one beyond the 3"),
    "a segment of too many rows": (_set("seg", (0, 1), 4), "segment 0 [0, 4,"),
    "a segment of too few rows": (_set("seg", (0, 1), 2), "segment"),
    "a segment that begins late": (_set("seg", (0, 0), 1), "segment 0 [1, 3,"),
    "a state slot past the ring": (_set("seg", (0, 2), 16), "beyond the 16 that there are"),
    "a state slot below zero": (_set("seg", (0, 2), -2), "beyond the 16 that there are"),
    "more states than rows": (_set("seg", (0, 3), 4), "beyond the 16 that there are"),
    "an output row past the rows": (_set("out_row", 0, 3), "output 0 names a row"),
    "a negative output row": (_set("out_row", 0, -1), "output 0 names a row"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make(tmp_path_factory.mktemp("step") / "m.gguf", arch="qwen35", n_ctx=N_CTX))


@pytest.mark.parametrize("executor", ["cpu", "reference"])
@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_step_is_refused(model: Path, executor: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, words = BROKEN[rule]
    if executor == "reference" and rule.startswith("more rows"):
        pytest.skip("numpy's buffers grow: it has no capacity but the step's own")
    with Engine.open(str(model), EngineOptions(n_ctx=N_CTX, chunk=16, threads=2, executor=executor)) as engine:
        ids = [(7 * i) % engine.n_vocab for i in range(PROMPT)]
        seq = engine.new_sequence()
        engine.forward(seq, ids)
        want = engine.verify(seq, ids[:3]).copy()
        seq.truncate(PROMPT)
        fill = StepInputs.fill

        def spoilt(self: StepInputs, *args: object) -> None:
            fill(self, *args)  # type: ignore[arg-type]
            spoil(self)

        monkeypatch.setattr(StepInputs, "fill", spoilt)
        with pytest.raises(IeError) as caught:
            engine.verify(seq, ids[:3])
        monkeypatch.undo()
        assert str(caught.value).startswith("the step is refused: ") and words in str(caught.value), str(caught.value)
        seq.close()
        seq = engine.new_sequence()
        engine.forward(seq, ids)
        assert engine.verify(seq, ids[:3]).tobytes() == want.tobytes()


def test_memory_has_what_kernels_may_read_past_an_item() -> None:
    """16 lanes are loaded where fewer are left: behind the last item as well."""
    past = native.constant("read_past")
    memory = native.Memory(1 << 20, "a test")
    end = memory.address + memory.nbytes
    ranges = [line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [[int(x, 16) for x in span.split("-")] for span, rights in ranges if rights.startswith("r")]
    assert past >= 64 and any(lo <= memory.address and end + past <= hi for lo, hi in spans)


@pytest.mark.parametrize("dim", [2, 6, 8, 18, 20, 24, 40, 100, 126, 130, 300])
def test_head_sizes_of_every_kind(tmp_path: Path, dim: int) -> None:
    """A context filled to its end, so that the last block of the last chunk is read."""
    path = make(tmp_path / "m.gguf", arch="llama", n_layer=1, n_head=2, n_kv=1, head_dim=dim, n_ctx=512, formats="F32")
    rows = []
    for executor in ("cpu", "reference"):
        with Engine.open(path, EngineOptions(n_ctx=512, chunk=512, executor=executor)) as engine:
            seq = engine.new_sequence()
            engine.forward(seq, [(5 * i) % engine.n_vocab for i in range(511)])
            rows.append(engine.forward(seq, [1])[0].copy())
    assert np.isfinite(rows[0]).all() and np.abs(rows[0] - rows[1]).max() < 1e-2 * np.abs(rows[1]).max()
