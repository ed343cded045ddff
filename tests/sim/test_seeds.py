"""What the hardware leaves open differs from seed to seed: contents of LDS, scratch and registers that nobody wrote,
the order of waves and workgroups. And bounds, to the byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.asm import HEAD, META, META_KERNEL, assemble, kernel_text
from tests.sim.build import code_object, compile_source
from tests.sim.exact import U32, U64
from tests.sim.hip import ILLEGAL_ADDRESS, LAUNCH_FAILURE, Hip, HipError, simulator

Array = np.ndarray[Any, Any]
PRIVATE = ".private_segment_fixed_size: "
ORDER = """
#include "gfx.h"
KERNEL(128) order(u32 *ticket, u32 *groups, u32 *waves) {
    if (lane() != 0) return;
    u32 mine = __scoped_atomic_fetch_add(ticket + 1 + group(), 1, __ATOMIC_RELAXED, DEVICE);
    waves[group() * 4 + wave()] = mine;
    if (mine == 0) groups[group()] = __scoped_atomic_fetch_add(ticket, 1, __ATOMIC_RELAXED, DEVICE);
}
KERNEL(128) barriers(u32 *out) {
    for (u32 i = 0; i < 3; i++) {
        u32 first, state, after;
        __asm__ volatile("s_barrier_signal_isfirst -1\\n s_cselect_b32 %0, 1, 0\\n s_get_barrier_state %1, -1\\n"
                         "s_wait_kmcnt 0\\n s_barrier_wait -1\\n s_get_barrier_state %2, -1\\n s_wait_kmcnt 0"
                         : "=&s"(first), "=&s"(state), "=&s"(after) : : "scc", "memory");
        u32 *mine = out + (i * 4 + wave()) * 3;
        if (lane() == 0) mine[0] = first, mine[1] = state, mine[2] = after;
        barrier();
    }
}
"""


def assembled(bodies: dict[str, str]) -> bytes:
    """A code object with a kernel for each body: s[4:5] its first argument, s8 and s10 the third and fourth, v0 the
    lane; 64 bytes of scratch a lane, 4096 of LDS."""
    load = "  s_load_b256 s[4:11], s[0:1], 0x0\n  v_and_b32 v0, 0x3ff, v0\n  s_wait_kmcnt 0\n"
    text = HEAD
    for name, body in bodies.items():
        text += kernel_text(name, load + "\n".join("  " + line.strip() for line in body.split(";")), scratch=64)
    meta = META.format(kernels="".join(META_KERNEL.format(name=name) for name in bodies))
    return assemble(text + meta.replace(PRIVATE + "0", PRIVATE + "64"))


def left_by(name: str, **options: Any) -> Array:
    """What one wave of this kernel stores in 32 words."""
    with simulator(**options) as hip:
        out = hip.buffer(np.zeros(32, U32))
        hip.launch(hip.kernel(assembled(UNWRITTEN), name), [1], [32], [out] * 4)
        return out.read(U32)


STORE = "v_lshlrev_b32 v1, 2, v0; global_store_b32 v1, v40, s[4:5]"
UNWRITTEN = {
    "lds": "v_lshlrev_b32 v1, 2, v0; ds_load_b32 v40, v1 offset:1024; s_wait_dscnt 0; " + STORE,
    "scratch": "scratch_load_b32 v40, off, off offset:16; s_wait_loadcnt 0; " + STORE,
    "vgpr": STORE,
    "sgpr": "v_mov_b32 v40, s40; " + STORE,
    "vcc": "v_mov_b32 v40, vcc_lo; " + STORE,
    "m0": "v_mov_b32 v40, m0; " + STORE,
}
# Not unwritten, but in the same code object: cycles between two readings of the clock.
UNWRITTEN["clock"] = (
    "s_getreg_b32 s20, hwreg(29); s_mov_b32 s21, 50; s_branch .Lnext; .Lnext:; s_sub_co_u32 s21, s21, 1;"
    "s_cmp_lg_u32 s21, 0; s_cbranch_scc1 .Lnext; s_getreg_b32 s22, hwreg(29); s_sub_co_u32 s22, s22, s20;"
    "v_mov_b32 v40, s22; " + STORE
)


@pytest.mark.parametrize("weak", [0, 1])
@pytest.mark.parametrize("what", sorted(set(UNWRITTEN) - {"clock"}))
def test_what_nobody_wrote_differs_by_seed(what: str, weak: int) -> None:
    seen = [left_by(what, undefined=0, seed=seed, weak=weak) for seed in (1, 2, 3)]
    assert len({x.tobytes() for x in seen}) == 3
    # Neither 0 nor a small number: what looks like a sound value hides the mistake.
    assert all((x > 0xFFFF).all() for x in seen)
    assert (left_by(what, undefined=0, seed=2, weak=weak) == seen[1]).all()


def test_the_clock_goes_on() -> None:
    assert (left_by("clock") >= 100).all()


def _orders(seed: int) -> tuple[Array, Array]:
    with simulator(seed=seed) as hip:
        groups, waves = hip.buffer(np.zeros(8, U32)), hip.buffer(np.zeros(32, U32))
        args = [hip.buffer(np.zeros(9, U32)), groups, waves]
        hip.launch(hip.kernel(compile_source(ORDER), "order"), [8], [128], args)
        return groups.read(U32), waves.read(U32, (8, 4))


def test_the_order_of_waves_and_workgroups_differs_by_seed() -> None:
    plain = _orders(0)
    assert (plain[0] == np.arange(8)).all() and (plain[1] == np.arange(4)).all()
    groups, waves = zip(*(_orders(seed) for seed in range(1, 9)), strict=True)
    for found in (*groups, *(row for w in waves for row in w)):
        assert sorted(found) == list(range(len(found)))
    assert len({g.tobytes() for g in groups}) >= 6
    # Waves in turn from any one of them, forwards or backwards.
    assert len({row.tobytes() for w in waves for row in w}) >= 6
    again = _orders(5)
    assert (again[0] == groups[4]).all() and (again[1] == waves[4]).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_wave_is_the_first_at_a_barrier(seed: int) -> None:
    with simulator(seed=seed) as hip:
        out = hip.buffer(np.zeros(36, U32))
        hip.launch(hip.kernel(compile_source(ORDER), "barriers"), [1], [128], [out])
        first, state, after = out.read(U32, (3, 4, 3)).transpose(2, 0, 1)
    assert (first.sum(1) == 1).all()
    # Signals so far above bit 16 (the fourth one ends the phase), members above bit 4, valid in bit 0.
    assert (np.sort(state >> 16, 1) == np.arange(4)).all() and (state & 0xFFFF == 4 << 4 | 1).all()
    assert (state[first == 1] >> 16 == 1).all()
    assert (after & 0xFFFF == 4 << 4 | 1).all()


SIZES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
SCALARS = {"b32": (4, "s20"), "b64": (8, "s[20:21]"), "b128": (16, "s[20:23]")}


def _accesses() -> dict[str, str]:
    """Kernels of one access each: lane l at s8 + s10 * l of LDS, or of memory from s[4:5] on."""
    at, out = "v_mul_lo_u32 v1, s10, v0; v_add_nc_u32 v1, s8, v1; ", {}
    for name, size in SIZES.items():
        data, narrow = f"v[40:{39 + max(1, size // 4)}]", name.replace("b8", "u8").replace("b16", "u16")
        out[f"lds_load_{name}"] = f"{at}ds_load_{narrow} {data}, v1; s_wait_dscnt 0"
        out[f"lds_store_{name}"] = f"{at}ds_store_{name} v1, {data}; s_wait_dscnt 0"
        out[f"global_load_{name}"] = f"{at}global_load_{narrow} {data}, v1, s[4:5]; s_wait_loadcnt 0"
        out[f"global_store_{name}"] = f"{at}global_store_{name} v1, {data}, s[4:5]; s_wait_storecnt 0"
    for name, (_, registers) in SCALARS.items():
        out[f"scalar_load_{name}"] = f"s_load_{name} {registers}, s[4:5], s8 offset:0x0; s_wait_kmcnt 0"
    return out


def _fault(hip: Hip, kernel: str, nbytes: int, start: int, step: int = 0) -> HipError | None:
    """How a wave's access to a buffer of `nbytes` went wrong."""
    buffer = hip.buffer(np.zeros(nbytes, np.uint8))
    try:
        hip.launch(hip.kernel(assembled(_accesses()), kernel), [1], [32], [buffer, buffer, U64(start), U64(step)])
    except HipError as error:
        hip.reset()
        return error
    return None


@pytest.mark.parametrize("weak", [0, 1])
@pytest.mark.parametrize("what", ["load", "store"])
def test_lds_ends_where_it_ends(what: str, weak: int) -> None:
    """The last lane's access (or that of all) ends with LDS, or a byte or an element beyond."""
    with simulator(undefined=0, weak=weak) as hip:
        for (name, size), apart in ((s, a) for s in SIZES.items() for a in (0, 1)):
            for beyond in (0, 1, size):
                start = 4096 - size + beyond - 31 * size * apart
                error = _fault(hip, f"lds_{what}_{name}", 4, start, size * apart)
                if beyond:
                    assert error and error.code in (ILLEGAL_ADDRESS, LAUNCH_FAILURE), (name, beyond)
                    assert f"LDS {'read' if what == 'load' else 'write'} of {size} bytes" in error.report
                else:
                    assert error is None, (name, error)


@pytest.mark.parametrize("weak", [0, 1])
@pytest.mark.parametrize("what", ["load", "store"])
def test_an_allocation_ends_where_it_ends(what: str, weak: int) -> None:
    """1001 bytes: the last byte can be read, an unaligned access may end with it, and nothing goes one byte beyond."""
    with simulator(weak=weak) as hip:
        for (name, size), apart in ((s, a) for s in SIZES.items() for a in (0, 1)):
            for beyond in (0, 1):
                start = 1001 - size + beyond - 31 * size * apart
                error = _fault(hip, f"global_{what}_{name}", 1001, start, size * apart)
                if beyond:
                    assert error and error.code == ILLEGAL_ADDRESS, (name, start)
                else:
                    assert error is None, (name, error)


@pytest.mark.parametrize("weak", [0, 1])
def test_scalar_loads_end_where_the_allocation_ends(weak: int) -> None:
    with simulator(weak=weak) as hip:
        for name, (size, _) in SCALARS.items():
            for nbytes in (96, 97, 99):
                assert _fault(hip, f"scalar_load_{name}", nbytes, 96 - size) is None
                assert _fault(hip, f"scalar_load_{name}", nbytes, 100 - size)


def test_the_sample_that_reads_lds_unchecked_differs_by_seed() -> None:
    image, seen = code_object("faults", "FAULT"), []
    for seed in (1, 2):
        with simulator(seed=seed, undefined=0) as hip:
            out = hip.buffer(np.zeros(64, U32))
            hip.launch(hip.kernel(image, "uninitialised_lds_load"), [1], [64], [out])
            seen.append(out.read(U32))
    assert (seen[0][1:] == seen[1][1:]).all() and seen[0][0] != seen[1][0]
