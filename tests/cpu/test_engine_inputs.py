"""What an engine is given by those who use it as a library: what is no token id, no open sequence, or too large
for the fields of a command is refused in words, and the sequence stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ie.draft.mtp import Mtp
from ie.engine import Engine, opening
from ie.engine.opening import MAX_BYTES, check_sizes
from ie.errors import IeError, ModelError
from ie.program import Buffer, Command, Program, View
from ie.settings import EngineOptions
from tests.drafters import chain
from tests.variants import make


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("inputs") / "m.gguf", arch="qwen35", n_mtp=1)


@pytest.fixture
def opened(model: str) -> Iterator[Engine]:
    with Engine.open(model, EngineOptions(n_ctx=64, chunk=16, threads=1), draft=Mtp()) as made:
        yield made


WRONG: dict[str, tuple[Any, str]] = {
    "float": (1.5, "token id 1.5 is no whole number"),
    "whole float": (2.0, "token id 2.0 is no whole number"),
    "float of numpy": (np.float32(1), "is no whole number"),
    "not a number": (float("nan"), "token id nan is no whole number"),
    "bool": (True, "token id True is no whole number"),
    "bool of numpy": (np.bool_(True), "is no whole number"),
    "text": ("7", "token id '7' is no whole number"),
    "nothing": (None, "token id None is no whole number"),
    "negative": (-1, "token id -1 is outside the vocabulary (0…95)"),
    "past the end": (96, "token id 96 is outside"),
    "beyond 32 bits": (2**32 + 1, "token id 4294967297 is outside"),
    "beyond 64 bits": (2**70, "is outside"),
    "negative of numpy": (np.int8(-5), "token id -5 is outside"),
}


@pytest.mark.parametrize("many", [1, 20])
@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_token_id(opened: Engine, kind: str, many: int) -> None:
    wrong, words = WRONG[kind]
    seq = opened.new_sequence()
    opened.forward(seq, [3, 4])
    calls: list[Callable[[], object]] = [lambda: opened.forward(seq, [1] * (many - 1) + [wrong])]
    if many == 1:
        calls += [lambda: opened.verify(seq, [1, wrong]), lambda: chain(opened, seq, wrong, 2)]
    for call in calls:
        with pytest.raises(IeError) as caught:
            call()
        assert words in str(caught.value) and len(seq) == seq.stored == 2


def test_integers_of_numpy_are_ids(opened: Engine) -> None:
    want: list[bytes] = []
    for ids in (
        [5, 6, 7] * 7,
        np.array([5, 6, 7] * 7),
        np.array([5, 6, 7] * 7, np.uint8),
        [np.int16(t) for t in (5, 6, 7)] * 7,
    ):
        seq = opened.new_sequence()
        want.append(opened.forward(seq, ids).tobytes())  # type: ignore[arg-type]
        assert {type(t) for t in seq.tokens} == {int}
        seq.close()
    assert len(set(want)) == 1


@pytest.mark.parametrize("count", [0, 17])
def test_a_verification_has_1_to_16_tokens(opened: Engine, count: int) -> None:
    with pytest.raises(IeError, match=f"{count} tokens to verify, expected 1 to 16"):
        opened.verify(opened.new_sequence(), [1] * count)


def test_a_closed_sequence_writes_into_nobodys_cache(model: str, opened: Engine) -> None:
    """Its slot may be another's by now."""
    first = opened.new_sequence()
    opened.forward(first, [1, 2])
    first.close()
    second = opened.new_sequence()
    with Engine.open(model, EngineOptions(n_ctx=64, chunk=16, threads=1)) as other:
        foreign = other.new_sequence()
        for seq in (first, foreign):
            for call in (opened.forward, opened.verify):
                with pytest.raises(IeError, match="the sequence is closed, or belongs to another engine"):
                    call(seq, [1])
            with pytest.raises(IeError, match="closed"):
                chain(opened, seq, 1, 2)
    assert np.isfinite(opened.forward(second, [1])).all()
    opened.close()
    with pytest.raises(IeError, match="the engine is closed"):
        opened.forward(second, [1])


def test_sizes_that_no_command_can_say(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    wide = Buffer("logits", "f32", MAX_BYTES // 4 + 1)
    command = Command("softcap", {"x": View.of(wide), "cap": 1.0})
    with pytest.raises(ModelError, match="m.gguf: logits has .* values a row, expected at most"):
        check_sizes("m.gguf", Program((command,), (0,)))
    fits = replace(wide, cols=MAX_BYTES // 4)
    check_sizes("m.gguf", Program((replace(command, args={"x": View.of(fits), "cap": 1.0}),), (0,)))
    monkeypatch.setattr(opening, "MAX_BYTES", 4 * 95)
    with pytest.raises(ModelError, match="values a row, expected at most 95"):
        Engine.open(model, EngineOptions(n_ctx=64, threads=1))
