"""The harness of `make test-sanitized`, without the sanitizers: its cases run, its executor computes what the ordinary
one does with every item in another place, and what is missing for the build is said."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ie.devices import CompiledExecutor, CpuExecutor, weights
from ie.draft.mtp import Mtp
from ie.engine import Engine
from ie.program import Matrix, Vector
from ie.settings import DraftOptions, EngineOptions
from scripts import build_sanitized
from scripts.build_kernels import HOST, ISAS, BuildError
from tests.drafters import chain
from tests.sanitized import poison
from tests.sanitized.cases import GROUPS, HEADS
from tests.sanitized.planted import FAULTS
from tests.variants import make


@pytest.mark.parametrize("group", GROUPS)
def test_the_first_cases_of_each_group(group: str) -> None:
    for _, run in itertools.islice(GROUPS[group](), 3):
        run()


def test_every_head_size_is_swept() -> None:
    names = [name for name, _ in GROUPS["heads"]()]
    for dim in HEADS:
        for op in ("rope", "attention"):
            assert any(name.startswith(op) and f"heads of {dim}," in name for name in names)
    assert list(HEADS) == list(range(1, 301)) and not set(FAULTS) & set(GROUPS)


def _logits(path: str, executor: CompiledExecutor) -> list[bytes]:
    options, draft = EngineOptions(n_ctx=96, chunk=19, threads=2), Mtp(DraftOptions(depth=3, p_min=0.0))
    with Engine.open(path, options, executor, draft=draft) as engine:
        seq, ids = engine.new_sequence(), [(7 * i) % engine.n_vocab for i in range(40)]
        out = [engine.forward(seq, ids).tobytes(), engine.verify(seq, ids[:5]).tobytes()]
        return [*out, repr(chain(engine, seq, 1, 3)).encode()]


def test_items_in_places_of_their_own_change_no_bit(tmp_path: Path) -> None:
    path = make(tmp_path / "m.gguf", arch="qwen35", n_mtp=1)
    assert _logits(path, poison.SanitizedExecutor(2)) == _logits(path, CpuExecutor(2))


def test_what_is_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind items is out of bounds after a step, no byte of an item is, and nothing once it is closed."""
    bad: set[int] = set()
    limit = 1 << 22

    def mark(change: Callable[[set[int]], None]) -> Callable[[int, int], None]:
        return lambda at, n: change(set(range(at, at + min(n, limit))))

    monkeypatch.setattr(poison, "forbid", mark(bad.update))
    monkeypatch.setattr(poison, "allow", mark(bad.difference_update))
    path = make(tmp_path / "m.gguf", arch="llama", n_layer=1, n_ctx=32)
    executor = poison.SanitizedExecutor(1)
    with Engine.open(path, EngineOptions(n_ctx=32, chunk=17, threads=1), executor) as engine:
        engine.forward(engine.new_sequence(), [1, 2, 3])
        items: list[tuple[int, int]] = [
            (region.address + at, weights.nbytes(w, executor.device.layout))
            for w, (region, at) in executor.at.items()
            if isinstance(w, Matrix | Vector)
        ]
        items += [(a.ctypes.data, a.nbytes) for a in engine.steps.inputs.arrays.values()]
        assert len(items) > 10
        for at, n in items:
            assert not bad & set(range(at, at + n)) and {at + n} <= bad | {b for b, _ in items}, (at, n)
    assert not bad


def test_flags_as_clang_spells_them() -> None:
    if HOST != "x86_64":
        pytest.skip("the flags of aarch64 are others")
    got = {isa: build_sanitized.plain_flags(march.split()) for isa, march in ISAS["x86_64"].items()}
    assert got["portable"] == ["-march=x86-64"] and got["avxvnni"] == ["-march=x86-64-v3", "-mavxvnni"]
    assert got["avx512"][:2] == ["-march=x86-64-v4", "-mavx512vnni"]
    assert "-fno-sanitize=all" not in build_sanitized.plain_flags(["-fno-sanitize=all", "-O3", "-fPIC"])


def test_without_clang_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(build_sanitized.shutil, "which", nothing)
    build_sanitized.compiler.cache_clear()
    try:
        with pytest.raises(BuildError, match="apt-get install clang-19"):
            build_sanitized.compiler()
        monkeypatch.setattr("sys.argv", ["build_sanitized.py"])
        assert build_sanitized.main() == 1
    finally:
        build_sanitized.compiler.cache_clear()
    assert capsys.readouterr().err.count("\n") == 1
