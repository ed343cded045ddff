"""Bits that must not move: whatever cut, thread count, instruction set or placement, a token's logits are the same.

Every architecture with a quantised and a float format, and every other format with one of them, compared byte for byte
with one plain run: the whole prompt as one chunk, one thread, the best instruction set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ie import formats
from ie.engine import Engine
from ie.settings import EngineOptions
from tests import variants
from tests.rig import ISAS, Array
from tests.variants import NAMES, make, run, tokens

PROMPT = tokens(70, seed=1)
CHUNKS = (1, 2, 3, 7, 16, 17, 32, 64)
EVERYWHERE = ("Q4_1", "F32")
IN_TURN = [x.format_name for x in formats.LAYOUTS if x.format_name not in EVERYWHERE] + ["Q3_K", "IQ4_NL"]
MODELS = [(arch, fmt) for arch in NAMES for fmt in EVERYWHERE]
MODELS += [(NAMES[i % len(NAMES)], fmt) for i, fmt in enumerate(IN_TURN)]

each = pytest.mark.parametrize(("arch", "fmt"), MODELS)
each_arch = pytest.mark.parametrize("arch", NAMES)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], tuple[str, Array]]]:
    """Path and plain logits, made when first asked for."""
    folder = tmp_path_factory.mktemp("models")

    class Made(dict[tuple[str, str], tuple[str, Array]]):
        def __missing__(self, key: tuple[str, str]) -> tuple[str, Array]:
            arch, fmt = key
            path = make(folder / f"{arch}-{fmt}.gguf", arch=arch, formats=fmt, n_ctx=512, **variants.shape_for(fmt))
            self[key] = path, run(path, PROMPT, n_ctx=128, chunk=512)
            return self[key]

    yield Made()


Models = dict[tuple[str, str], tuple[str, Array]]


def same(got: Array, want: Array, what: object) -> None:
    assert got.shape == want.shape and np.isfinite(want).all()
    rows = np.flatnonzero((got.view(np.uint32) != want.view(np.uint32)).any(axis=1))
    assert rows.size == 0, f"{what}: rows {rows[:5].tolist()} of {len(want)} differ"


def opened(path: str, **options: object) -> Engine:
    return Engine.open(path, EngineOptions(**{"threads": 1, "n_ctx": 128, **options}))  # type: ignore[arg-type]


@each
def test_cuts_threads_and_instruction_sets(arch: str, fmt: str, models: Models) -> None:
    path, want = models[arch, fmt]
    assert len({r.tobytes() for r in want}) > 60, "rows differ from each other"
    for i, chunk in enumerate(CHUNKS):
        threads, isa = 1 + i % 4, ISAS[i % len(ISAS)]
        same(run(path, PROMPT, n_ctx=128, chunk=chunk, threads=threads, cpu_isa=isa), want, (chunk, threads, isa))


@each_arch
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_threads_with_every_instruction_set(arch: str, isa: str, threads: int, models: Models) -> None:
    path, want = models[arch, "Q4_1"]
    same(run(path, PROMPT, n_ctx=128, chunk=33, threads=threads, cpu_isa=isa), want, (isa, threads))


@each
def test_decode_equals_prefill(arch: str, fmt: str, models: Models) -> None:
    """One token at a time, in twos, in odd groups; wanting the last row only or all."""
    path, want = models[arch, fmt]
    with opened(path, chunk=40, threads=2) as engine:
        seq = engine.new_sequence()
        out, pos = [engine.forward(seq, PROMPT[:40])[-1:].copy()], 40
        rows = [39]
        for size in (1, 1, 1, 2, 3, 1, 5, 1, 9, 1, 1, 4):
            got = engine.forward(seq, PROMPT[pos : pos + size], "all" if size > 2 else "last").copy()
            rows += range(pos + size - len(got), pos + size)
            out.append(got)
            pos += size
        assert pos == 70
        same(np.concatenate(out), want[rows], "decode")


@each
def test_truncating_and_feeding_again(arch: str, fmt: str, models: Models) -> None:
    path, want = models[arch, fmt]
    with opened(path, chunk=16) as engine:
        seq = engine.new_sequence()
        engine.forward(seq, PROMPT[:50])
        for keep, wrong in ((45, 3), (33, 20), (32, 1), (31, 16), (0, 70), (64, 6), (63, 1)):
            if len(seq) < keep:
                engine.forward(seq, PROMPT[len(seq) : keep])
            seq.truncate(keep)
            engine.forward(seq, [(t + 1) % 96 for t in PROMPT[keep : keep + wrong]])  # a draft that is rejected
            seq.truncate(keep)
            end = min(70, keep + 12)
            same(engine.forward(seq, PROMPT[keep:end], "all"), want[keep:end], (keep, wrong))
            assert seq.tokens == PROMPT[:end]
            engine.steps.pool.check([seq.blocks])


@each_arch
@pytest.mark.parametrize("fmt", ["F32", "Q8_0"])
def test_scattered_blocks(arch: str, fmt: str, models: Models) -> None:
    """Blocks in any order and with gaps, as when other sequences took and gave some in between."""
    path, want = models[arch, fmt]
    with opened(path, n_ctx=512, chunk=32) as engine:
        for order in ([9, 2, 14, 0, 5], [15, 14, 13, 12, 11]):
            rest = [b for b in range(16) if b not in order]
            engine.steps.pool._free = rest + order[::-1]
            seq = engine.new_sequence()
            out = [engine.forward(seq, PROMPT[i : i + 23], "all").copy() for i in range(0, 70, 23)]
            assert seq.blocks == order[:3]
            same(np.concatenate(out), want, order)
            seq.close()
            engine.steps.pool.check([])


@each_arch
def test_a_second_sequence_sees_nothing_of_the_first(arch: str, models: Models) -> None:
    path, want = models[arch, "Q4_1"]
    with opened(path, chunk=64) as engine:
        for other in (tokens(100, seed=5), tokens(3, seed=6)):
            seq = engine.new_sequence()
            engine.forward(seq, other)
            seq.close()
            seq = engine.new_sequence()
            same(engine.forward(seq, PROMPT, "all"), want, "after another sequence")
            seq.close()


@each_arch
def test_long_prompts_cross_segments(arch: str, tmp_path: Path) -> None:
    """Beyond position 256 attention merges segments: not a bit depends on where chunks end beside the seam."""
    ids = tokens(300, seed=2)
    path = make(tmp_path / "m.gguf", arch=arch, formats="Q8_0", n_ctx=512)
    want = run(path, ids, n_ctx=512, chunk=512)
    for chunk, threads in ((1, 1), (255, 2), (256, 3), (257, 1), (64, 2)):
        same(run(path, ids, n_ctx=512, chunk=chunk, threads=threads), want, chunk)
    reference = run(path, ids, n_ctx=512, executor="reference")
    assert np.abs(want - reference).max() < 0.5 and np.median(np.abs(want - reference)) < 0.05


@pytest.mark.parametrize("arch", [a for a in NAMES if "long window" in variants.options_of(a)])
@pytest.mark.parametrize("window", [1, 5, 31, 32, 33, 64, 200])
def test_windows_shorter_and_longer_than_the_prompt(arch: str, window: int, tmp_path: Path) -> None:
    path = make(tmp_path / "m.gguf", arch=arch, formats="F32", sliding_window=window)
    want = run(path, PROMPT, n_ctx=128)
    for chunk in (1, 7, 33):
        same(run(path, PROMPT, n_ctx=128, chunk=chunk, threads=2), want, (window, chunk))
    reference = run(path, PROMPT, n_ctx=128, executor="reference")
    assert np.abs(want - reference).max() < 5e-3
    whole = run(make(tmp_path / "w.gguf", arch=arch, formats="F32", sliding_window=500), PROMPT, n_ctx=128)
    changed = np.flatnonzero((whole != want).any(axis=1))
    assert changed.size == max(0, 70 - window) and (changed.size == 0 or changed[0] == window)


@each_arch
def test_context_length_and_spare_capacity_do_not_matter(arch: str, models: Models) -> None:
    path, want = models[arch, "F16"]
    for n_ctx in (70, 71, 300):
        same(run(path, PROMPT, n_ctx=n_ctx, chunk=50), want, n_ctx)
