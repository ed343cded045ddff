"""What the engine decides before it allocates, what it refuses, and that a step never reaches past what was planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ie import machine
from ie.devices.base import Sizes
from ie.engine import Engine, opening
from ie.engine import memory as memory_module
from ie.engine.kv import BLOCK
from ie.engine.memory import Demand, choose_context, choose_slots, largest_context
from ie.errors import FormatError, IeError, ModelError, ResourceError
from ie.model.config import ARCHITECTURES
from ie.program import Cache, Command, Partials, Program
from ie.settings import MAX_AUTO_CONTEXT, EngineOptions
from tests import patch_gguf
from tiny_models import ARCHS, make_tiny

SMALL = {"tokenizer": "none", "n_vocab": 96}


def demand(layers: int, weights: int = 1 << 20, work: int = 0, n_seqs: int = 1) -> Demand:
    """Of a model of so many layers of two key and value heads of 16."""
    commands = [Command("rope", {f"{w}_cache": Cache(i, w, 2, 16) for w in "kv"}, i) for i in range(layers)]
    parts = [Command("attention", {"parts": Partials(4, 16)}, 0)]
    return Demand(Program((*commands, *parts)), Sizes(weights, work), (16,), n_seqs)


# ---- the decision, as pure functions ----

BYTES = st.integers(0, 1 << 36)


@given(st.integers(1, 80), st.integers(1, 1 << 20), BYTES, BYTES, st.integers(0, 1 << 38), st.integers(1, 5), st.data())
def test_the_largest_context_fits_and_the_next_block_does_not(
    layers: int, limit: int, weights: int, work: int, free: int, n_seqs: int, data: st.DataObject
) -> None:
    big = demand(layers, weights, work, n_seqs)
    fits = largest_context(big, free, limit)
    assert 0 <= fits <= limit and (fits % BLOCK == 0 or fits == limit)
    if fits:
        assert big.at(fits).total <= free
        fewer = data.draw(st.integers(1, fits))
        assert big.at(fewer).total <= free
    if fits < limit:
        assert big.at(-(-(fits + 1) // BLOCK) * BLOCK).total > free


@given(st.integers(1, 1 << 18), st.integers(0, 1 << 33))
def test_an_automatic_context_is_the_smallest_of_three(trained: int, free: int) -> None:
    big = demand(2)
    fits = largest_context(big, free, trained)
    if not fits:
        with pytest.raises(ResourceError, match="m.gguf: does not fit: .* Not even a short context fits"):
            choose_context("m.gguf", 0, trained, big, free)
    else:
        assert choose_context("m.gguf", 0, trained, big, free) == min(trained, MAX_AUTO_CONTEXT, fits)


@given(st.integers(1, 1 << 24), st.integers(0, 1 << 33))
def test_a_requested_context_is_taken_or_the_error_names_one_that_fits(requested: int, free: int) -> None:
    big = demand(2)
    try:
        assert choose_context("m.gguf", requested, 4096, big, free) == requested
        assert big.at(requested).total <= free
    except ResourceError as error:
        text = str(error)
        named = int(text.split("-c ")[1].rstrip(".")) if "-c " in text else 0
        assert named < requested and "\n" not in text and text.startswith("m.gguf: does not fit: weights ")
        if named:
            assert choose_context("m.gguf", named, 4096, big, free) == named
        with pytest.raises(ResourceError):
            choose_context("m.gguf", (named // BLOCK + 1) * BLOCK, 4096, big, free)


def test_needs_count_keys_and_values_in_whole_chunks() -> None:
    two, per_token = demand(2, 0), 2 * 2 * 2 * 2 * 16
    assert two.at(1).kv == two.at(512).kv == 512 * per_token
    assert two.at(513).kv == 1024 * per_token
    assert demand(2, 0, n_seqs=3).at(200).kv == 1024 * per_token, "blocks of all sequences share chunks"
    need = demand(2, 5_000_000_000, 1_000_000_000).at(1000)
    assert need.total >= need.weights + need.kv + need.work
    assert "weights 5.0 + KV 0.0 + work 1." in need.describe()


@pytest.mark.parametrize("n_seqs", [1, 3])
@pytest.mark.parametrize("arch", [a for a in ARCHITECTURES if a in ARCHS])
def test_what_is_reckoned_is_what_is_taken(
    arch: str, n_seqs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte, for any architecture: the demand is computed from the program, the executor allocates from it."""
    seen: list[tuple[Demand, int]] = []

    def record(demand: Demand, free: int, n_ctx: int) -> int:
        seen.append((demand, n_ctx))
        return choose_slots(demand, free, n_ctx)

    monkeypatch.setattr(opening, "choose_slots", record)
    path = make_tiny(tmp_path / "m.gguf", arch=arch, **SMALL)
    with Engine.open(str(path), EngineOptions(chunk=40, threads=1, n_ctx=700, sequences=n_seqs)) as engine:
        taken, ((asked, n_ctx),) = engine.executor.memory(), seen
        need = asked.at(n_ctx)
        assert taken["weights"] == need.weights and taken["KV cache"] == need.kv
        assert taken.get("state", 0) - 256 * len(asked.program.states()) <= need.state <= taken.get("state", 0)
        assert taken["activations"] + taken["partial results"] + taken["rotary tables"] == need.work


def test_what_is_free_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tiny(tmp_path / "m.gguf", n_ctx=1 << 16, **SMALL)
    with Engine.open(str(path), EngineOptions(chunk=16)) as engine:
        assert engine.n_ctx == MAX_AUTO_CONTEXT
    monkeypatch.setattr(machine, "free_memory", lambda: memory_module.HOST_BYTES + 1_300_000)
    with Engine.open(str(path), EngineOptions(chunk=16)) as engine:
        assert 0 < engine.n_ctx < MAX_AUTO_CONTEXT and engine.n_ctx % BLOCK == 0
        fits = engine.n_ctx
    with pytest.raises(ResourceError, match=f"It fits with -c {fits}\\.$"):
        Engine.open(str(path), EngineOptions(chunk=16, n_ctx=1 << 16))
    with Engine.open(str(path), EngineOptions(chunk=16, n_ctx=fits)) as engine:
        assert engine.n_ctx == fits
    monkeypatch.setattr(machine, "free_memory", lambda: 1000)
    monkeypatch.setattr(opening, "memory_limit", lambda: "")
    with pytest.raises(ResourceError, match=r"free 0\.0 GB\. Not even a short context fits: [^,]* is needed\.$"):
        Engine.open(str(path), EngineOptions(chunk=16))
    monkeypatch.setattr(opening, "memory_limit", lambda: "ulimit -v")
    with pytest.raises(ResourceError, match=r"free 0\.0 GB \(limited by ulimit -v\)\. .* or a higher limit\.$"):
        Engine.open(str(path), EngineOptions(chunk=16))


# ---- refusals of forward ----


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    path = make_tiny(tmp_path / "m.gguf", **SMALL)
    return Engine.open(str(path), EngineOptions(n_ctx=40, threads=1, chunk=8))


@pytest.mark.parametrize(("ids", "bad"), [([5, 96], 96), ([-1, 3], -1), ([1 << 40], 1 << 40), ([-5, 200], -5)])
def test_token_ids_outside_the_vocabulary(engine: Engine, ids: list[int], bad: int) -> None:
    with engine:
        seq = engine.new_sequence()
        with pytest.raises(IeError, match=f"token id {bad} is outside the vocabulary \\(0…95\\)"):
            engine.forward(seq, ids)
        assert len(seq) == 0


def test_empty_or_unknown_requests_are_our_own_faults(engine: Engine) -> None:
    with engine:
        seq = engine.new_sequence()
        for ids, want in (([], "last"), ([1], "some")):
            with pytest.raises(ValueError, match="forward needs tokens"):
                engine.forward(seq, ids, want)
        assert len(seq) == 0


def test_a_full_context_leaves_the_sequence_as_it_was(engine: Engine) -> None:
    with engine:
        seq = engine.new_sequence()
        engine.forward(seq, list(range(39)))
        with pytest.raises(ResourceError, match="39 tokens held, 2 more do not fit into 40"):
            engine.forward(seq, [1, 2])
        assert len(seq) == 39
        before = engine.forward(seq, [7]).copy()
        seq.truncate(39)
        assert np.array_equal(engine.forward(seq, [7]), before)
        engine.steps.pool.check([seq.blocks])


def test_there_is_one_sequence_at_a_time(engine: Engine) -> None:
    with engine:
        first = engine.new_sequence()
        with pytest.raises(ResourceError, match="another sequence is open"):
            engine.new_sequence()
        first.close()
        first.close()
        second = engine.new_sequence()
        engine.forward(second, [1, 2, 3])
        second.close()
        engine.steps.pool.check([])


def test_an_interrupted_prompt_keeps_whole_chunks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine:
        seq = engine.new_sequence()
        run, steps = engine.executor.run, []

        def interrupted(handle: int, step: object) -> None:
            steps.append(handle)
            if len(steps) == 3:
                raise KeyboardInterrupt
            run(handle, step)  # type: ignore[arg-type]

        monkeypatch.setattr(engine.executor, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.forward(seq, list(range(30)))
        assert seq.tokens == list(range(16))
        engine.steps.pool.check([seq.blocks])
        after = engine.forward(seq, list(range(16, 30))).copy()
        seq.truncate(0)
        assert np.array_equal(engine.forward(seq, list(range(30))), after)


# ---- refusals of files ----

Spoil = Callable[[Path], Path]


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (
            lambda p: patch_gguf.rename(p, "blk.1.ffn_up.weight", "blk.1.ffn_vp.weight"),
            ModelError,
            r"tensor blk\.1\.ffn_up\.weight is missing; llama needs it, shape \[64, 96\]",
        ),
        (
            lambda p: patch_gguf.rename(p, "token_embd", "tokem_embd"),
            ModelError,
            r"tensor token_embd\.weight is missing",
        ),
        (
            lambda p: patch_gguf.set_u32(p, "llama.block_count", 1),
            ModelError,
            r"tensors that llama does not use: blk\.1\.attn_norm\.weight.* and 5 more; this kind of model",
        ),
        (
            lambda p: patch_gguf.set_u32(p, "llama.feed_forward_length", 64),
            ModelError,
            r"tensor blk\.0\.ffn_gate\.weight has shape \[64, 96\], expected \[64, 64\]",
        ),
        (
            lambda p: patch_gguf.set_shape(p, "blk.0.attn_output.weight", (32, 128)),
            ModelError,
            r"tensor blk\.0\.attn_output\.weight has shape \[32, 128\], expected \[64, 64\]",
        ),
        (
            lambda p: patch_gguf.rename(p, "llama", "lhama"),
            ModelError,
            r"architecture 'lhama' is not supported; supported: llama",
        ),
        (
            lambda p: patch_gguf.set_type(p, "output_norm.weight", 26),
            FormatError,
            r"tensor output_norm\.weight is I32, expected F32, F16 or BF16",
        ),
        (
            lambda p: patch_gguf.set_type(p, "blk.0.attn_q.weight", 9),
            IeError,
            r"tensor .?blk\.0\.attn_q\.weight.* Q8_1",
        ),
        (
            lambda p: patch_gguf.set_type(p, "token_embd.weight", 77),
            IeError,
            r"tensor .?token_embd\.weight.* 77",
        ),
        (
            lambda p: patch_gguf.set_data(p, "output_norm.weight", float("nan")),
            ModelError,
            r"tensor output_norm\.weight holds NaN",
        ),
    ],
    ids=[
        "missing", "no embedding", "unused", "width", "shape", "architecture", "norm of integers",
        "activations as weights", "unknown format", "NaN",
    ],
)  # fmt: skip
def test_spoiled_models_are_refused_by_name(spoil: Spoil, error: type[IeError], message: str, tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", formats="F32", **SMALL)
    Engine.open(str(path), EngineOptions(threads=1)).close()
    with pytest.raises(error, match=message) as caught:
        Engine.open(str(spoil(path)), EngineOptions(threads=1)).close()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rope.freq_base", 1.0, r"llama\.rope\.freq_base is 1, expected more than 1 with yarn scaling"),
        ("rope.scaling.factor", 1e-30, r"llama\.rope\.scaling\.factor is 1e-30, expected 0 or 1e-06 to 1e\+06"),
    ],
)
def test_rotary_numbers_that_lead_to_infinity(key: str, value: float, message: str, tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", rope="yarn", **SMALL)
    patch_gguf.set_f32(path, f"llama.{key}", value)
    with pytest.raises(ModelError, match=message):
        Engine.open(str(path), EngineOptions(threads=1)).close()


def test_rotary_factors_of_zero(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", rope="llama3", **SMALL)
    patch_gguf.set_data(path, "rope_freqs.weight", 0.0)
    with pytest.raises(ModelError, match=r"tensor rope_freqs\.weight: expected factors of at least 1e-06, found 0"):
        Engine.open(str(path), EngineOptions(threads=1)).close()
