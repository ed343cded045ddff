"""The sample kernels give what numpy gives, in every order of waves and workgroups, and with weak memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.sim.build import SOURCES, code_object
from tests.sim.case import Near, compare
from tests.sim.elf import symbols
from tests.sim.hip import Hip, HipError, simulator
from tests.sim.samples import CASES, NAMES, made

Array = np.ndarray[Any, Any]
SEEDS = range(1, 21)
WEAK_SEEDS = range(1, 6)


@pytest.mark.parametrize("name", NAMES)
def test_equals_numpy(name: str) -> None:
    with simulator() as hip:
        made(name).check(made(name).run(hip))


def plain(x: Array) -> Array:
    """Floats with one NaN for all: which of two operands' payloads survives is the host compiler's choice, and another
    one in each variant of a translation."""
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x) if x.dtype.kind == "f" else x


def _all(hip: Hip) -> dict[str, bytes | str]:
    """The buffers' bytes after each case, or what went wrong. What is allowed to differ must be right instead."""
    out: dict[str, bytes | str] = {}
    for name in NAMES:
        try:
            buffers = made(name).run(hip)
            made(name).check(buffers)
        except (AssertionError, HipError) as error:
            out[name] = str(error)
            if isinstance(error, HipError):
                hip.reset()
            continue
        out[name] = b"" if name == "tickets" else b"".join(plain(b).tobytes() for b in buffers)
    return out


def _differing(mode: dict[str, int], seeds: range) -> list[str]:
    found = []
    with simulator() as hip:
        first = _all(hip)
    assert not [text for text in first.values() if isinstance(text, str)]
    for seed in seeds:
        with simulator(seed=seed, **mode) as hip:
            got = _all(hip)
        found += [f"{name}, seed {seed}: {got[name]!r}"[:500] for name in NAMES if got[name] != first[name]]
    return found


def test_twenty_seeds_give_equal_bits() -> None:
    assert not _differing({}, SEEDS)


def test_weak_memory_gives_equal_bits() -> None:
    assert not _differing({"weak": 1}, WEAK_SEEDS)


def test_every_kernel_has_a_case() -> None:
    declared = set()
    for source in set(SOURCES) - {"faults", "weak"}:
        declared |= {name.removesuffix(".kd") for name in symbols(code_object(source)) if name.endswith(".kd")}
    assert {made(name).kernel for name in CASES} == declared
    assert len(declared) >= 60


def test_the_comparison_sees_a_wrong_bit() -> None:
    x = np.array([1.0, -0.0, np.nan], np.float32)
    compare("same", x.copy(), x)
    for at, value in ((0, np.nextafter(np.float32(1), np.float32(2))), (1, 0.0), (2, 1.0), (0, np.nan)):
        wrong = x.copy()
        wrong[at] = value
        with pytest.raises(AssertionError, match=f"1 of 3 differ, first at \\({at},\\)"):
            compare("x", wrong, x)
    with pytest.raises(AssertionError, match="1 of 3 differ"):
        compare("x", np.array([1.1, 0, np.nan], np.float32), Near(x, 1e-3, 1e-3))


@pytest.mark.parametrize("name", ["matvec_q8", "bitonic_sort", "wmma_i8", "dots"])
def test_a_case_sees_wrong_inputs(name: str) -> None:
    """A case whose input differs in one bit must fail: it does look at what the kernel made of the input."""
    case = made(name)
    first = case.args[0].copy()
    first.view(np.uint8).reshape(-1)[5] ^= 0x10
    with simulator() as hip:
        got = dataclasses.replace(case, args=[first, *case.args[1:]]).run(hip)
    with pytest.raises(AssertionError, match="differ"):
        case.check(got)
