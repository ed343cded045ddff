"""Weights that are no numbers: refused while loading, with the same line by both executors, in every format and field.

Extreme numbers that are some are accepted, and what overflows in the course of a step is an error of the step, not a
warning of a library.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie import native
from ie.devices import CpuExecutor, ReferenceExecutor, diff
from ie.draft.mtp import Mtp
from ie.engine import Engine
from ie.errors import IeError, ModelError
from ie.formats import FORMATS, LAYOUTS, dequantize, format_by_name
from ie.formats.table import ROWS_LAYOUT
from ie.settings import EngineOptions
from tests.fuzz.case import FORMAT_NAMES, POISONS
from tests.fuzz.model import HALVES, PLAIN, poison, write
from tests.rig import guarded

BAD = ("nan", "inf", "-inf")


def verdict(path: Path, executor: Any, **options: Any) -> str | None:
    try:
        Engine.open(str(path), EngineOptions(threads=1, n_ctx=32), executor=executor, **options).close()
    except IeError as error:
        return str(error)
    return None


def case(**genes: Any) -> dict[str, Any]:
    """A small model; widths that whole blocks of every format fill."""
    small = {"seed": 1, "arch": "llama", "n_embd": 256, "n_ff": 256, "n_layer": 1, "tokenizer": "none", "n_vocab": 7}
    return {**small, **genes}


@pytest.mark.parametrize("kind", POISONS)
@pytest.mark.parametrize("fmt", FORMAT_NAMES)
def test_bad_weights_are_refused_alike(fmt: str, kind: str, tmp_path: Path) -> None:
    path = write(case(format=fmt, poison=kind, poison_tensor=2), tmp_path)
    cpu, reference = verdict(path, CpuExecutor(2)), verdict(path, ReferenceExecutor())
    assert cpu == reference
    bad = kind in BAD and fmt != "NVFP4"  # whose scales have no such values
    assert (cpu is not None) == bad, cpu
    if cpu is not None:
        assert cpu.startswith(f"{path}: tensor blk.0.attn_q.weight holds ") and "\n" not in cpu


@pytest.mark.parametrize("fmt", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("kind", BAD)
def test_bad_vectors_are_refused_alike(fmt: str, kind: str, tmp_path: Path) -> None:
    path = write(case(vector_format=fmt, poison=kind, poison_tensor=1), tmp_path)
    cpu, reference = verdict(path, CpuExecutor(1)), verdict(path, ReferenceExecutor())
    what = "NaN" if kind == "nan" else "an infinity"
    assert cpu == reference and cpu is not None and f"tensor blk.0.attn_norm.weight holds {what} (value " in cpu


def fields() -> Iterator[tuple[str, int]]:
    """(format, byte offset) of every F16 field, one at a time."""
    return ((fmt, at) for fmt, offsets in HALVES.items() for at in offsets)


def repacked(fmt: str, data: np.ndarray, k: int) -> int:
    """What C says of rows of one format: 0 or 1."""
    layout = next((x.id for x in LAYOUTS if x.format_name == fmt), ROWS_LAYOUT + format_by_name(fmt).id)
    out = np.zeros(4 * data.size + (1 << 16), np.uint8)
    pointers = native.pointer(data, "uint8_t *"), native.pointer(out, "uint8_t *")
    return int(native.lib()[1].ie_repack(guarded(2).pool, layout, *pointers, len(data), k))


@pytest.mark.parametrize(("fmt", "at"), list(fields()))
def test_every_field_is_looked_at(fmt: str, at: int) -> None:
    """One bad F16 in one block of the last of 21 rows: C must see what decoding shows."""
    f = format_by_name(fmt)
    data = np.zeros((21, 3, f.size), np.uint8)
    assert repacked(fmt, data, 3 * f.block) == 0
    for bits, bad in ((0x7C00, 1), (0xFC00, 1), (0x7E01, 1), (0x7BFF, 0), (0xFBFF, 0), (0x0001, 0)):
        for block in (0, 2):
            wrong = data.copy()
            wrong[20, block, at : at + 2] = np.array([bits], "<u2").view(np.uint8)
            assert repacked(fmt, wrong, 3 * f.block) == bad
            assert np.isfinite(dequantize(f, wrong)).all() != bad


@pytest.mark.parametrize("fmt", [f.name for f in FORMATS.values() if f.holds_weights])
def test_random_bytes_are_judged_as_they_decode(fmt: str) -> None:
    """Many blocks of random bytes: refused by C exactly when something of them decodes to no number."""
    f = format_by_name(fmt)
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(300):
        data = rng.integers(0, 256, (1, f.size), np.uint8)
        if rng.random() < 0.5:
            poison(data, fmt, str(rng.choice(POISONS)), "one", random.Random(0))
        finite = bool(np.isfinite(dequantize(f, data)).all())
        seen.add(finite)
        if fmt == "MXFP4" and data[0, 0] > 252:
            continue  # of these scales only the small codes are numbers: C may say so without looking at codes
        assert repacked(fmt, data, f.block) == (not finite)
    assert seen == ({True} if fmt == "NVFP4" else {True, False}), "both happened"


def test_formats_are_all_known_here() -> None:
    assert set(HALVES) | set(PLAIN) | {"MXFP4", "NVFP4", "IQ1_M"} == set(FORMAT_NAMES)


def test_a_damaged_mtp_block_is_refused_when_it_is_used(tmp_path: Path) -> None:
    hybrid = {"arch": "qwen35", "mtp": True, "head_dim": 16}
    found = set()
    for index in (3, 16, 17, 26, 27):
        path = write(case(**hybrid, poison="nan", poison_tensor=index), tmp_path)
        plain = verdict(path, CpuExecutor(1))
        drafts = verdict(path, CpuExecutor(1), draft=Mtp())
        assert verdict(path, ReferenceExecutor(), draft=Mtp()) == drafts
        assert plain is None or plain == drafts
        if plain is None and drafts is not None:
            found.add(drafts.split("tensor ")[1].split(" ")[0])
    assert {"blk.1.nextn.eh_proj.weight", "blk.1.attn_q.weight"} <= found


def test_bad_rows_of_the_embedding_show_in_the_logits(tmp_path: Path) -> None:
    """It is read row by row, as it is used: rows of no numbers give logits of none, on both executors."""
    for kind in BAD:
        path = write(case(format="F16", poison=kind, poison_tensor=0, poison_where="all"), tmp_path)
        for executor in (CpuExecutor(1), ReferenceExecutor()):
            with Engine.open(str(path), EngineOptions(n_ctx=32), executor=executor) as engine:
                assert not np.isfinite(engine.forward(engine.new_sequence(), [1, 2, 3], "all")).any()


def test_overflow_is_no_warning(tmp_path: Path) -> None:
    path = write(case(format="F32", weights="huge", eps=1e-12, biases=True), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for executor in (CpuExecutor(1), ReferenceExecutor(), ReferenceExecutor("float64")):
            with Engine.open(str(path), EngineOptions(n_ctx=32), executor=executor) as engine:
                engine.forward(engine.new_sequence(), [1, 2, 3], "all")


@pytest.mark.parametrize("pair", ["cpu,reference", "reference,cpu", "reference-float64,cpu", "cpu,reference-float64"])
@pytest.mark.parametrize("index", range(1, 12))
def test_comparing_what_overflows_is_no_warning(pair: str, index: int, tmp_path: Path) -> None:
    """Numbers beyond float32 are a difference, which the comparison tells, or none; in whatever tensor they are."""
    path = write(case(format="F32", poison="max", poison_where="all", poison_tensor=index, biases=True), tmp_path)
    executor = diff.make_pair(pair, 1, "auto")
    with warnings.catch_warnings(), contextlib.suppress(diff.Disagreement):
        warnings.simplefilter("error")
        with Engine.open(str(path), EngineOptions(n_ctx=32), executor=executor) as engine:
            engine.forward(engine.new_sequence(), [1, 2, 3], "all")


def test_a_limit_as_float32_holds_it_is_inside(tmp_path: Path) -> None:
    """1e-12 and 1e-6 are a little less in float32 than in float64."""
    path = write(case(eps=1e-12, rope="linear", rope_factor=1e-6, attn_factor=1e-6), tmp_path)
    assert verdict(path, CpuExecutor(1)) is None
    assert "expected" in (verdict(write(case(eps=0.9e-12), tmp_path), CpuExecutor(1)) or "")


def test_loading_names_the_first_bad_tensor(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tensor blk\.0\.ffn_down\.weight holds NaN \(value \d+ of row \d+\)"):
        path = write(case(poison="nan", poison_tensor=9), tmp_path)
        Engine.open(str(path), EngineOptions(n_ctx=32)).close()


def test_experts_too_unlikely_for_an_exponential_are_chosen_alike(tmp_path: Path) -> None:
    """Router logits hundreds apart: all but the likeliest have probability 0, and the lowest ids come next."""
    path = write(case(arch="qwen35moe", recurrent="none", head_dim=16, weights="large", n_expert=8), tmp_path)
    for pair in ("cpu,reference", "reference-float64,cpu"):
        with Engine.open(str(path), EngineOptions(n_ctx=32), executor=diff.make_pair(pair, 1, "auto")) as engine:
            engine.forward(engine.new_sequence(), [1, 2, 3, 4, 5, 6], "all")
