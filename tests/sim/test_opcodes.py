"""Each instruction on thousands of operand patterns: registers, masks, SCC, EXEC and memory after it.

One snippet in four is run here of the tables of vector, special, scalar and memory instructions, and all uncommon ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.sim.asm import Inputs, Snippet, differences, sweep
from tests.sim.case import specials, whole
from tests.sim.exact import F16, F32, F64, I32, U32, U64
from tests.sim.hip import simulator
from tests.sim.ops_memory import memory_snippets
from tests.sim.ops_scalar import scalar_snippets
from tests.sim.ops_special import special_snippets
from tests.sim.ops_uncommon import uncommon_snippets
from tests.sim.variants import table_snippets

Array = np.ndarray[Any, Any]
GROUPS = 64
TABLES = {"vector": table_snippets, "special": special_snippets, "scalar": scalar_snippets, "memory": memory_snippets}
TABLES["uncommon"] = uncommon_snippets
EVERY = {"uncommon": 1}
KINDS = ("int", "f16", "f32", "f64", "number", "halves")


def _words(kind: str, n: int, random: np.random.Generator) -> Array:
    """n raw operands of 64 bits."""
    if kind == "f64":
        return specials(F64, n, random).view(U64)
    if kind == "f32":
        return specials(F32, 2 * n, random).view(U64)
    if kind == "f16":
        return specials(F16, 4 * n, random).view(U64)
    if kind == "number":
        return (random.standard_normal(2 * n) * 100).astype(F32).view(U64)
    if kind == "halves":
        return random.integers(-100, 100, 4 * n).astype(F16).view(U64)
    wide, narrow = whole(U64, n, random), whole(U32, 2 * n, random).view(U64)
    return np.where(random.random(n) < 0.5, wide, narrow)


@cache
def inputs(kind: str) -> Inputs:
    """Operands of 64 waves; a quarter of them with all lanes on, one with none."""
    random = np.random.default_rng(KINDS.index(kind))
    n = GROUPS * 32
    a, b, c, d = (_words(kind, n, random).reshape(GROUPS, 32) for _ in range(4))
    if kind == "f32":
        # Shift counts, exponents and class masks come from small integers in some waves; equal operands in others.
        b[:8] = (random.integers(-160, 160, (8, 32)).astype(I32).view(U32)).astype(U64)
    if kind in ("f16", "f64"):
        b[:8] = random.integers(0, 1100, (8, 32)).astype(U64)
    b[8:12] = a[8:12]
    exec_, vcc = random.integers(0, 2**32, (2, GROUPS), U32)
    exec_[::4], exec_[1] = 2**32 - 1, 0
    return Inputs(a, b, c, d, exec_, vcc)


@cache
def of_kind(table: str, kind: str) -> list[Snippet]:
    return [s for s in TABLES[table]() if s.kind == kind]


COMBINATIONS = [(t, k) for t in TABLES for k in KINDS if of_kind(t, k)]


@pytest.mark.parametrize("table, kind", COMBINATIONS)
def test_instructions_do_what_the_pseudo_code_says(table: str, kind: str) -> None:
    with simulator() as hip:
        memory = np.zeros(GROUPS * 32 * 4, U32)
        wrong, refused = sweep(hip, of_kind(table, kind)[:: EVERY.get(table, 4)], inputs(kind), memory)
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])
    assert not refused, f"{len(refused)} refused:\n" + "\n".join(refused[:40])


def test_the_tables_are_wide() -> None:
    counts = {t: sum(len(of_kind(t, k)) for k in KINDS) for t in TABLES}
    assert counts["vector"] > 1000 and counts["special"] > 400 and counts["scalar"] > 200 and counts["memory"] > 140
    assert len({s.name for t in TABLES for k in KINDS for s in of_kind(t, k)}) > 600


@pytest.mark.parametrize("field", range(6))
def test_the_comparison_sees_one_wrong_bit(field: int) -> None:
    given = inputs("int")
    snippet = next(s for s in of_kind("scalar", "int") if s.name == "s_add_co_u32")
    right = _left_by(snippet, given)
    assert differences(snippet, given, right) == ""
    right[3, 17, field] ^= 1
    # The scalar sweep has no mask destination of its own: what stands there is constant.
    assert "of lane 17" in differences(snippet, given, right)


def _left_by(snippet: Snippet, given: Inputs) -> Array:
    """Result fields as a right simulator leaves them."""
    from tests.sim.asm import FIELDS, wanted

    want = wanted(snippet, given)
    return np.stack([want[f] for f in FIELDS], -1)
