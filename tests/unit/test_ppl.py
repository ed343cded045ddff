"""Perplexity and divergence on models whose answers are known; the base file against a reader and writer of its own."""

from __future__ import annotations

import errno
import io
import math
import os
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ie.errors import FormatError, ResourceError, SampleError
from ie.measure import ppl, ppl_file


class FakeModel:
    """Logits are a function of the token fed and its position, from a fixed random table."""

    def __init__(self, n_vocab: int = 50, seed: int = 0, spread: float = 3.0) -> None:
        self.n_vocab = n_vocab
        rng = np.random.default_rng(seed)
        self.table = (spread * rng.standard_normal((64, n_vocab))).astype(np.float32)
        self.fed: list[list[int]] = []
        self.computed = 0
        self.open = 0

    def row(self, token: int, position: int) -> np.ndarray:
        return self.table[(7 * token + position) % 64]

    def new_sequence(self) -> FakeSequence:
        self.open += 1
        assert self.open == 1
        self.fed.append([])
        return FakeSequence(self)

    def forward(self, seq: object, tokens: Sequence[int], want: str) -> np.ndarray:
        start = len(self.fed[-1])
        self.fed[-1] += tokens
        rows = np.array([self.row(t, start + i) for i, t in enumerate(tokens)], np.float32)
        self.computed += len(rows) if want == "all" else 1
        return rows if want == "all" else rows[-1:]


class FakeSequence:
    def __init__(self, model: FakeModel) -> None:
        self.model = model

    def close(self) -> None:
        self.model.open -= 1


def text(n: int, n_vocab: int = 50) -> list[int]:
    return [int(t) for t in np.random.default_rng(5).integers(0, n_vocab, n)]


def losses_of(model: FakeModel, window: list[int], first: int) -> list[float]:
    """-ln p of the predictions that count, in float64, one at a time."""
    out = []
    for i in range(first, len(window) - 1):
        row = model.row(window[i], i).astype(np.float64)
        out.append(math.log(sum(math.exp(x - row.max()) for x in row)) + row.max() - row[window[i + 1]])
    return out


def last(values):  # type: ignore[no-untyped-def]
    *_, found = values
    return found


# -- windows -----------------------------------------------------------------------------------------------------------


def test_1024_tokens_are_two_windows_of_512_with_510_predictions() -> None:
    windows = ppl.disjoint(1024, 512)
    assert list(windows.starts) == [0, 512] and windows.first == 256
    assert len(windows.starts) * windows.predictions == 510
    assert list(ppl.disjoint(1535, 512).starts) == [0, 512]


@pytest.mark.parametrize("n", [0, 1, 512, 1023])
def test_too_short_a_text(n: int) -> None:
    with pytest.raises(ResourceError, match=rf"too short: {n:,} tokens, and two windows of 512 need 1,024"):
        ppl.disjoint(n, 512)


@pytest.mark.parametrize("first", [-1, 511, 600])
def test_a_first_position_outside_the_window(first: int) -> None:
    with pytest.raises(ResourceError, match=f"first position that counts, {first} does not lie inside"):
        ppl.disjoint(2000, 512, first)


def test_the_first_token_is_replaced_and_not_inserted() -> None:
    windows = ppl.disjoint(12, 4, bos=99)
    assert windows.tokens(list(range(12)), 1) == [99, 5, 6, 7]
    assert ppl.disjoint(12, 4).tokens(list(range(12)), 1) == [4, 5, 6, 7]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.integers(4, 60), st.integers(1, 60))
def test_strided_windows_count_each_prediction_once(n: int, size: int, stride: int) -> None:
    whole = size + stride // 2
    if stride >= whole or n < 2 * whole:
        with pytest.raises(ResourceError):
            ppl.strided(n, size, stride)
        return
    windows = ppl.strided(n, size, stride)
    counted = [start + i + 1 for start in windows.starts for i in range(windows.first, windows.size - 1)]
    assert windows.size == whole and windows.predictions == stride and windows.bos is None
    assert counted == list(range(counted[0], counted[0] + len(counted)))
    assert windows.starts[-1] + whole <= n < windows.starts[-1] + whole + 2 * stride


# -- perplexity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_vocab", [2, 50, 49152])
def test_uniform_logits_give_exactly_the_size_of_the_vocabulary(n_vocab: int) -> None:
    model = FakeModel(n_vocab, spread=0.0)
    found = last(ppl.perplexity(model, text(64, n_vocab), ppl.disjoint(64, 16)))
    assert found.value == pytest.approx(n_vocab, rel=1e-12)
    assert found.error < 1e-9
    assert found.losses.count == 4 * 7


@pytest.mark.parametrize("first", [None, 0, 3, 14])
@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_perplexity(monkeypatch: pytest.MonkeyPatch, first: int | None, block: int) -> None:
    monkeypatch.setattr(ppl, "BLOCK_BYTES", block * 4 * 50)
    model, words = FakeModel(), text(70)
    windows = ppl.disjoint(len(words), 16, first, bos=7)
    counts, values = [], []
    for found in ppl.perplexity(model, words, windows):
        counts.append(found.losses.count)
        values.append(found.value)
    fed = [[7, *words[i + 1 : i + 16]] for i in range(0, 64, 16)]
    assert model.fed == [window[:-1] for window in fed] and model.open == 0
    expected = [loss for window in fed for loss in losses_of(model, window, windows.first)]
    assert counts == [windows.predictions * i for i in (1, 2, 3, 4)] and counts[-1] == len(expected)
    assert found.value == values[-1] == pytest.approx(math.exp(np.mean(expected)), rel=1e-6)
    assert found.error == pytest.approx(found.value * np.std(expected) / math.sqrt(len(expected) - 1), rel=1e-5)
    assert values[0] == pytest.approx(math.exp(np.mean(expected[: counts[0]])), rel=1e-6)
    # Beside those that count, one row in each window at most.
    assert model.computed <= len(expected) + 4


def test_perplexity_with_a_stride() -> None:
    model, words = FakeModel(), text(60)
    windows = ppl.strided(len(words), 16, 6)
    found = last(ppl.perplexity(model, words, windows))
    expected = [loss for start in range(0, 42, 6) for loss in losses_of(model, words[start : start + 19], 19 - 1 - 6)]
    assert len(windows.starts) == 7 and found.losses.count == len(expected)
    assert found.value == pytest.approx(math.exp(np.mean(expected)), rel=1e-6)


def test_a_limit_of_windows() -> None:
    windows = ppl.disjoint(64, 16)
    assert len(windows.limited(-1).starts) == 4
    assert list(windows.limited(3).starts) == [0, 16, 32]
    assert list(windows.limited(9).starts) == [0, 16, 32, 48]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_numbers(bad: float) -> None:
    model = FakeModel()
    model.table[:, 3] = bad
    with pytest.raises(SampleError):
        last(ppl.perplexity(model, text(64), ppl.disjoint(64, 16)))
    assert model.open == 0


def test_a_masked_token_is_allowed() -> None:
    logits = np.array([[0.0, -np.inf, 0.0]], np.float32)
    assert ppl.score(logits, [2]).losses[0] == pytest.approx(math.log(2))
    assert ppl.score(logits, [1]).losses[0] == np.inf


# -- the file ----------------------------------------------------------------------------------------------------------


def naive_file(n: int, n_vocab: int, tokens: list[int], rows: list[np.ndarray]) -> bytes:
    """The format written down again with nothing but struct: independent of ie/ppl_file.py."""
    out = b"_logits_" + struct.pack("<Iii", n, n_vocab, len(tokens) // n) + struct.pack(f"<{len(tokens)}i", *tokens)
    for row in rows:
        values = [float(x) for x in row]
        top, least = max(values), min(values)
        floor = max(least, top - 16)
        log_sum = math.log(sum(math.exp(x - top) for x in values))
        step = (top - floor) / 65535
        out += struct.pack("<ff", step, floor - top - log_sum)
        codes = [round((x - floor) / step) if step and x > floor else 0 for x in values]
        out += struct.pack(f"<{n_vocab}H", *codes) + b"\0\0" * (n_vocab % 2)
    return out


def naive_rows(data: bytes) -> tuple[tuple[int, int, int], list[int], list[list[float]]]:
    """Header, tokens and log-probabilities of a file, read with nothing but struct."""
    assert data[:8] == b"_logits_"
    n, n_vocab, chunks = struct.unpack_from("<Iii", data, 8)
    tokens = list(struct.unpack_from(f"<{n * chunks}i", data, 20))
    at, rows = 20 + 4 * n * chunks, []
    for _ in range(chunks * (n - 1 - n // 2)):
        step, floor = struct.unpack_from("<ff", data, at)
        rows.append([step * c + floor for c in struct.unpack_from(f"<{n_vocab}H", data, at + 8)])
        at += 2 * (2 * ((n_vocab + 1) // 2) + 4)
    assert at == len(data)
    return (n, n_vocab, chunks), tokens, rows


def written(model: FakeModel, words: list[int], windows: ppl.Windows) -> bytes:
    file = io.BytesIO()
    n, chunks = windows.size, len(windows.starts)
    writer = ppl_file.Writer(file, ppl_file.Shape(n, model.n_vocab, chunks), np.array(words[: n * chunks]))
    last(ppl.perplexity(model, words, windows, lambda scores: writer.add(scores.logits)))
    return file.getvalue()


@pytest.mark.parametrize("n_vocab", [50, 51])
@pytest.mark.parametrize("n", [16, 17])
@pytest.mark.parametrize("spread", [0.0, 3.0, 20.0])
def test_the_file_is_what_the_format_says(n_vocab: int, n: int, spread: float) -> None:
    model, words = FakeModel(n_vocab, spread=spread), text(40)
    data = written(model, words, ppl.disjoint(len(words), n, bos=1))
    header, tokens, rows = naive_rows(data)
    assert header == (n, n_vocab, 2) and tokens == words[: 2 * n]  # as they stand in the text, without BOS
    exact = []
    for start in (0, n):
        window = [1, *words[start + 1 : start + n]]
        exact += [model.row(window[i], i).astype(np.float64) for i in range(n // 2, n - 1)]
    assert len(rows) == len(exact)
    for row, logits in zip(rows, exact, strict=True):
        logp = logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())
        floor = logp.max() - 16
        assert np.abs(np.array(row) - np.maximum(logp, floor)).max() < 16 / 65535
    again = naive_file(n, n_vocab, tokens, exact)
    assert len(again) == len(data)
    ours, theirs = (np.frombuffer(x, "<u2").astype(int) for x in (data, again))
    differing = ours != theirs  # last bits of the two floats, and codes that lie between two
    assert differing.mean() < 0.1


def test_a_file_written_independently_is_read(tmp_path: Path) -> None:
    model, words = FakeModel(51), text(34)
    exact = [model.row(words[i], i) for i in range(8, 16)] * 2
    path = tmp_path / "base.kld"
    path.write_bytes(naive_file(17, 51, words, exact))
    with ppl_file.Reader(path) as base:
        assert base.shape == ppl_file.Shape(17, 51, 2)
        assert base.tokens.tolist() == [words[:17], words[17:]]
        got = np.vstack([base.rows(3), base.rows(5), base.rows(8)])
    want = np.array([row - np.log(np.exp(row.astype(np.float64)).sum()) for row in exact])
    assert np.abs(got - np.maximum(want, want.max(axis=1, keepdims=True) - 16)).max() < 16 / 65535


@pytest.fixture
def base_bytes() -> bytes:
    return written(FakeModel(), text(64), ppl.disjoint(64, 16))


@pytest.mark.parametrize(
    ("offset", "new", "message"),
    [
        (0, b"_logitz_", "not a file of log-probabilities"),
        (8, struct.pack("<I", 2), "offset 8: tokens of a window 2, expected 3 to"),
        (8, struct.pack("<I", 2**32 - 1), "offset 8: tokens of a window"),
        (8, struct.pack("<I", 17), "bytes, expected .* for 4 windows of 17 tokens"),
        (12, struct.pack("<i", -5), "offset 12: size of the vocabulary -5"),
        (12, struct.pack("<i", 2**31 - 1), "offset 12: size of the vocabulary"),
        (16, struct.pack("<i", 0), "offset 16: number of windows 0"),
        (16, struct.pack("<i", 2**31 - 1), "bytes, expected"),
        (24, struct.pack("<i", 50), "offset 24: expected a token from 0 to 49"),
        (28, struct.pack("<i", -1), "offset 28: expected a token from 0 to 49"),
        (20 + 256, struct.pack("<f", math.nan), "offset 276: step nan"),
        (20 + 256, struct.pack("<f", -1.0), "offset 276: step -1"),
        (24 + 256, struct.pack("<f", 2.0), "floor 2: these are not"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, base_bytes: bytes, offset: int, new: bytes, message: str) -> None:
    path = tmp_path / "base.kld"
    path.write_bytes(base_bytes[:offset] + new + base_bytes[offset + len(new) :])
    with pytest.raises(FormatError, match=message), ppl_file.Reader(path) as base:
        base.rows(7)


@pytest.mark.parametrize("cut", [0, 7, 19, 100, -1, 1])
def test_a_file_of_the_wrong_length_is_refused(tmp_path: Path, base_bytes: bytes, cut: int) -> None:
    path = tmp_path / "base.kld"
    path.write_bytes(base_bytes + b"\0" if cut == 1 else base_bytes[:cut])
    with pytest.raises(FormatError):
        ppl_file.Reader(path)


@pytest.mark.parametrize("left", [0, 1, 2, 15])
def test_a_file_that_is_shortened_while_it_is_read(tmp_path: Path, left: int) -> None:
    """Also in the middle of a code of two bytes. The file is larger than what its reader has fetched ahead."""
    path = tmp_path / "base.kld"
    path.write_bytes(written(FakeModel(5000), text(64), ppl.disjoint(64, 16)))
    with ppl_file.Reader(path) as base:
        width = 2 * base.shape.row_codes
        os.truncate(path, 20 + 4 * base.tokens.size + 2 * width + left)
        base.rows(2)
        with pytest.raises(FormatError, match="base.kld: offset .*: the file ends inside a row"):
            base.rows(1)


def test_an_error_of_the_disk_names_the_file(tmp_path: Path, base_bytes: bytes) -> None:
    path = tmp_path / "base.kld"
    path.write_bytes(base_bytes)

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with ppl_file.Reader(path) as base:
        base._file.close()
        base._file = Failing()
        with pytest.raises(OSError, match=r"base\.kld"):
            base.rows(1)


# -- divergence --------------------------------------------------------------------------------------------------------


def compare(tmp_path: Path, q: FakeModel, base: FakeModel, n: int = 128, size: int = 32, **more: int) -> ppl.Divergence:
    path = tmp_path / "base.kld"
    path.write_bytes(written(base, text(n), ppl.disjoint(n, size, bos=1)))
    with ppl_file.Reader(path) as file:
        found: ppl.Divergence = last(ppl.divergence(q, file, 1, **more))
    return found


def test_a_model_does_not_differ_from_itself(tmp_path: Path) -> None:
    found = compare(tmp_path, FakeModel(), FakeModel(), n=256)
    assert found.count == 8 * 15 and found.same_top_share == ppl.Estimate(1.0, 0.0)
    assert abs(found.kl_mean.value) < 1e-4 and np.abs(found.kl_values()).max() < 1e-3
    assert found.ratio.value == pytest.approx(1, abs=1e-4) and found.correlation == pytest.approx(1, abs=1e-4)
    assert found.delta_rms.value < 1e-4


def test_statistics_of_two_models(tmp_path: Path) -> None:
    q, base = FakeModel(seed=1, spread=0.5), FakeModel(seed=0, spread=1.0)
    q.table += base.table
    found = compare(tmp_path, q, base, n=256)
    words = text(256)
    kl, delta, nll, nll_base, same = [], [], [], [], 0
    for start in range(0, 256, 32):
        window = [1, *words[start + 1 : start + 32]]
        for i in range(16, 31):
            a, b = (m.row(window[i], i).astype(np.float64) for m in (q, base))
            log_q, log_p = a - np.log(np.exp(a).sum()), b - np.log(np.exp(b).sum())
            kl.append(float((np.exp(log_p) * (log_p - log_q)).sum()))
            delta.append(math.exp(log_q[window[i + 1]]) - math.exp(log_p[window[i + 1]]))
            nll.append(-log_q[window[i + 1]])
            nll_base.append(-log_p[window[i + 1]])
            same += int(a.argmax() == b.argmax())
    m = len(kl)
    close = {"rel": 2e-3, "abs": 1e-5}
    assert found.count == m == 120 and found.same_top == same and 0 < same < m
    assert found.kl_mean.value == pytest.approx(np.mean(kl), **close)
    assert found.kl_mean.error == pytest.approx(np.std(kl) / math.sqrt(m - 1), **close)
    assert found.q.value == pytest.approx(math.exp(np.mean(nll)), **close)
    assert found.base.value == pytest.approx(math.exp(np.mean(nll_base)), **close)
    difference = np.array(nll) - np.array(nll_base)
    assert found.log_ratio.value == pytest.approx(difference.mean(), **close)
    assert found.log_ratio.error == pytest.approx(difference.std() / math.sqrt(m - 1), **close)
    assert found.ratio.value == pytest.approx(math.exp(difference.mean()), **close)
    assert found.difference.value == pytest.approx(found.q.value - found.base.value, **close)
    assert found.correlation == pytest.approx(np.corrcoef(nll, nll_base)[0, 1], rel=0.01)
    assert found.delta_mean.value == pytest.approx(np.mean(delta), **close)
    square = np.array(delta) ** 2
    assert found.delta_rms.value == pytest.approx(math.sqrt(square.mean()), **close)
    assert found.delta_rms.error == pytest.approx(
        0.5 * square.std() / math.sqrt(m - 1) / math.sqrt(square.mean()), **close
    )
    share = same / m
    assert found.same_top_share.error == pytest.approx(math.sqrt(share * (1 - share) / (m - 1)))
    assert ppl.quantiles(found.kl_values(), [0.0, 0.5, 1.0]) == pytest.approx(np.quantile(kl, [0, 0.5, 1]), **close)


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), min_size=1, max_size=5))
def test_moments_do_not_depend_on_how_values_are_grouped(groups: list[list[float]]) -> None:
    found, values = ppl.Moments(), np.array([value for group in groups for value in group])
    for group in groups:
        found.add(np.array(group))
    assert found.count == len(values) and found.mean == pytest.approx(values.mean(), rel=1e-12, abs=1e-9)
    expected = values.std() / math.sqrt(len(values) - 1) if len(values) > 1 else 0.0
    assert found.error == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_quantiles_lie_between_values() -> None:
    assert ppl.quantiles(np.array([4, 0, 2], np.float32), [1, 0.5, 0.25, 0.1, 0]) == pytest.approx([4, 2, 1, 0.4, 0])


def test_other_vocabularies_and_too_few_predictions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="vocabulary of 50 tokens, and this one has 51"):
        compare(tmp_path, FakeModel(51), FakeModel())
    with pytest.raises(ResourceError, match="60 predictions to compare, at least 100"):
        compare(tmp_path, FakeModel(), FakeModel())
    with pytest.raises(ResourceError, match="90 predictions to compare"):
        compare(tmp_path, FakeModel(), FakeModel(), n=256, limit=6)
    assert compare(tmp_path, FakeModel(), FakeModel(), n=256, limit=7).count == 105


# ---- numbers at the end of what there is ----


def test_a_perplexity_beyond_float64_is_infinite() -> None:
    model = FakeModel(spread=2000.0)
    (*_, found) = ppl.perplexity(model, text(64), ppl.disjoint(64, 32, None, None))
    assert found.losses.mean > 710 and found.value == math.inf and found.error == math.inf
    one = ppl.Perplexity()
    one.losses.add(np.array([800.0]))
    assert one.value == math.inf and one.error == 0.0


@pytest.mark.filterwarnings("error")
def test_a_masked_token_that_comes_makes_the_perplexity_infinite() -> None:
    model = FakeModel()
    model.table[:, 7] = -np.inf
    ids = [7 if i % 9 == 0 else t for i, t in enumerate(text(64))]
    for found in ppl.perplexity(model, ids, ppl.disjoint(64, 32, None, None)):
        assert found.value == math.inf and found.error == math.inf and found.losses.mean == math.inf
    unseen = [t if t != 7 else 8 for t in ids]
    (*_, found) = ppl.perplexity(model, unseen, ppl.disjoint(64, 32, None, None))
    assert math.isfinite(found.value)


@pytest.mark.filterwarnings("error")
def test_logits_as_far_apart_as_float32_allows() -> None:
    model = FakeModel()
    model.table = np.where(model.table > 0, np.float32(3.4e38), np.float32(-3.4e38))
    (*_, found) = ppl.perplexity(model, text(64), ppl.disjoint(64, 32, None, None))
    assert found.value == math.inf


def test_rows_whose_steps_have_no_inverse() -> None:
    """Logits that lie closer together than float32 can invert: codes at both ends, and no warning."""
    logits = np.array([[0, 1e-38, 5e-39, 0], [3, 3, 3, 3]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = ppl_file.encode(logits)
    assert rows[0, 4:8].tolist() == [0, ppl_file.CODES, ppl_file.CODES, 0] and not rows[1, 4:8].any()
