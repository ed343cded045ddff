"""What the engine decides before it allocates, what it refuses, and that a step never reaches past what was planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ie.engine import Engine
from ie.engine import engine as engine_module
from ie.engine import memory as memory_module
from ie.engine.kv import BLOCK
from ie.engine.memory import choose_context, largest_context, memory_need
from ie.errors import FormatError, IeError, ModelError, ResourceError
from ie.gguf import GgufFile
from ie.model.config import ARCHITECTURES, ModelConfig
from ie.settings import MAX_AUTO_CONTEXT, EngineOptions
from tests import patch_gguf
from tiny_models import ARCHS, make_tiny

SMALL = {"tokenizer": "none", "n_vocab": 96}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    path = make_tiny(tmp_path_factory.mktemp("m") / "m.gguf", n_ctx=4096, **SMALL)
    with GgufFile.open(path) as gguf:
        return ModelConfig.from_gguf(gguf)


# ---- the decision, as pure functions ----

BYTES = st.integers(0, 1 << 36)


@given(st.integers(1, 80), st.integers(1, 1 << 20), BYTES, BYTES, st.integers(0, 1 << 38), st.data())
def test_the_largest_context_fits_and_the_next_block_does_not(
    config: ModelConfig, layers: int, limit: int, weights: int, work: int, free: int, data: st.DataObject
) -> None:
    big = replace(config, layers=config.layers * layers)
    fits = largest_context(big, weights, work, free, limit)
    assert 0 <= fits <= limit and (fits % BLOCK == 0 or fits == limit)
    if fits:
        assert memory_need(big, weights, work, fits).total <= free
        fewer = data.draw(st.integers(1, fits))
        assert memory_need(big, weights, work, fewer).total <= free
    if fits < limit:
        assert memory_need(big, weights, work, -(-(fits + 1) // BLOCK) * BLOCK).total > free


@given(st.integers(1, 1 << 18), st.integers(0, 1 << 33))
def test_an_automatic_context_is_the_smallest_of_three(config: ModelConfig, trained: int, free: int) -> None:
    big = replace(config, n_ctx_train=trained)
    fits = largest_context(big, 1 << 20, 0, free, trained)
    if not fits:
        with pytest.raises(ResourceError, match="m.gguf: does not fit: .* Not even a short context fits"):
            choose_context("m.gguf", 0, big, 1 << 20, 0, free)
    else:
        assert choose_context("m.gguf", 0, big, 1 << 20, 0, free) == min(trained, MAX_AUTO_CONTEXT, fits)


@given(st.integers(1, 1 << 24), st.integers(0, 1 << 33))
def test_a_requested_context_is_taken_or_the_error_names_one_that_fits(
    config: ModelConfig, requested: int, free: int
) -> None:
    try:
        assert choose_context("m.gguf", requested, config, 1 << 20, 0, free) == requested
        assert memory_need(config, 1 << 20, 0, requested).total <= free
    except ResourceError as error:
        text = str(error)
        named = int(text.split("-c ")[1].rstrip(".")) if "-c " in text else 0
        assert named < requested and "\n" not in text and text.startswith("m.gguf: does not fit: weights ")
        if named:
            assert choose_context("m.gguf", named, config, 1 << 20, 0, free) == named
        with pytest.raises(ResourceError):
            choose_context("m.gguf", (named // BLOCK + 1) * BLOCK, config, 1 << 20, 0, free)


def test_needs_count_keys_and_values_in_whole_chunks(config: ModelConfig) -> None:
    per_token = sum(2 * 2 * layer.n_kv * config.head_dim for layer in config.layers)
    assert config.kv_bytes_per_token == per_token == 2 * 2 * 2 * 2 * 16
    assert memory_need(config, 0, 0, 1).kv == memory_need(config, 0, 0, 512).kv == 512 * per_token
    assert memory_need(config, 0, 0, 513).kv == 1024 * per_token
    need = memory_need(config, 5_000_000_000, 1_000_000_000, 1000)
    assert need.total >= need.weights + need.kv + need.work
    assert "weights 5.0 + KV 0.0 + work 1." in need.describe()


def test_what_is_free_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tiny(tmp_path / "m.gguf", n_ctx=1 << 16, **SMALL)
    with Engine.open(str(path), EngineOptions(chunk=16)) as engine:
        assert engine.n_ctx == MAX_AUTO_CONTEXT
    monkeypatch.setattr(engine_module, "free_memory", lambda: memory_module.HOST_BYTES + 1_300_000)
    with Engine.open(str(path), EngineOptions(chunk=16)) as engine:
        assert 0 < engine.n_ctx < MAX_AUTO_CONTEXT and engine.n_ctx % BLOCK == 0
        fits = engine.n_ctx
    with pytest.raises(ResourceError, match=f"It fits with -c {fits}\\.$"):
        Engine.open(str(path), EngineOptions(chunk=16, n_ctx=1 << 16))
    with Engine.open(str(path), EngineOptions(chunk=16, n_ctx=fits)) as engine:
        assert engine.n_ctx == fits
    monkeypatch.setattr(engine_module, "free_memory", lambda: 1000)
    monkeypatch.setattr(engine_module, "memory_limit", lambda: "")
    with pytest.raises(ResourceError, match=r"free 0\.0 GB\. Not even a short context fits: [^,]* is needed\.$"):
        Engine.open(str(path), EngineOptions(chunk=16))
    monkeypatch.setattr(engine_module, "memory_limit", lambda: "ulimit -v")
    with pytest.raises(ResourceError, match=r"free 0\.0 GB \(limited by ulimit -v\)\. .* or a higher limit\.$"):
        Engine.open(str(path), EngineOptions(chunk=16))


@pytest.mark.parametrize("arch", [a for a in ARCHITECTURES if a in ARCHS])
@pytest.mark.parametrize("chunk", [1, 40, 512])
def test_activations_take_no_more_than_was_reckoned(
    arch: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reckoned = []

    def record(*args: int) -> int:
        reckoned.append(args[4])
        return choose_context(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(engine_module, "choose_context", record)
    path = make_tiny(tmp_path / "m.gguf", arch=arch, **SMALL)
    with Engine.open(str(path), EngineOptions(chunk=chunk, threads=1)) as engine:
        seq = engine.new_sequence()
        for want in ("last", "all"):
            engine.forward(seq, list(range(60)), want)
        assert engine.executor.memory()["activations"] <= reckoned[0]
        taken = engine.executor.memory()
        need = memory_need(engine.config, 0, reckoned[0], engine.n_ctx)
        assert taken["activations"] + taken["partial results"] + taken["rotary tables"] <= need.work


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
        engine.pool.check([seq.blocks])


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
        engine.pool.check([])


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
        engine.pool.check([seq.blocks])
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
