"""Loads, stores and atomics of LDS and global memory: old value returned, memory after.

Each pattern has a slot of 16 bytes that holds c and d before; what the slot holds after is read back into the result
fields d0, d1 (loads) or m0, m1 (memory). Does not own: order and scopes, which the sample kernels and faults look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.sim.asm import Inputs, Snippet
from tests.sim.exact import F16, U32, U64
from tests.sim.ops_vector import number_max, number_min
from tests.sim.optypes import comparison, typed, untyped

Array = np.ndarray[Any, Any]
LOW = U64(0xFFFFFFFF)
# The slot's address: v4 (of the lane, in LDS) or v5 beside s[2:3] (of the pattern, in global memory).
LDS = ("ds_store_b128 v4, v[14:17]; s_wait_dscnt 0", "v4", "s_wait_dscnt 0", "ds_load_b64 v[26:27], v4")
GLOBAL = ("global_store_b128 v5, v[14:17], s[2:3]; s_wait_storecnt 0", "v5", "s_wait_loadcnt 0; s_wait_storecnt 0",
          "global_load_b64 v[26:27], v5, s[2:3] scope:SCOPE_DEV")  # fmt: skip


def _around(space: tuple[str, str, str, str], instruction: str) -> str:
    """Fill the slot in every lane, run the instruction in the active ones, read the slot back in every lane."""
    fill, _, wait, back = space
    done = "s_wait_dscnt 0" if space is LDS else "s_wait_loadcnt 0"
    all_on, masked = "s_mov_b32 exec_lo, -1", "s_mov_b32 exec_lo, s18"
    return "; ".join((all_on, fill, masked, instruction, wait, all_on, back, done, masked))


def fields(i: Inputs, returned: Array | None, memory: Array | None) -> dict[str, Array]:
    value = i.d if returned is None else np.where(i.on, returned, i.d)
    slot = i.c if memory is None else np.where(i.on, memory, i.c)
    return {
        "d0": value.astype(U32),
        "d1": (value >> U64(32)).astype(U32),
        "m0": slot.astype(U32),
        "m1": (slot >> U64(32)).astype(U32),
    }


def low(i: Inputs, value: Array, old: Array) -> Array:
    """32 bits beside what the upper register or word held."""
    return value.astype(U64) & LOW | old & ~LOW


Atomic = Callable[[Array, Array], Array]
ATOMICS: dict[str, tuple[str, Atomic]] = {
    "add": ("u", lambda m, x: m + x), "sub": ("u", lambda m, x: m - x),
    "min_i": ("i", np.minimum), "max_i": ("i", np.maximum), "min_u": ("u", np.minimum), "max_u": ("u", np.maximum),
    "and": ("u", lambda m, x: m & x), "or": ("u", lambda m, x: m | x), "xor": ("u", lambda m, x: m ^ x),
    "inc": ("u", lambda m, x: np.where(m >= x, m.dtype.type(0), m + m.dtype.type(1))),
    "dec": ("u", lambda m, x: np.where((m == 0) | (m > x), x, m - m.dtype.type(1))),
}  # fmt: skip


def _name(stem: str, bits: int) -> str:
    if stem in ("and", "or", "xor"):
        return f"{stem}_b{bits}"
    base, _, sign = stem.partition("_")
    return f"{base}_{sign or 'u'}{bits}"


def atomics() -> Iterator[Snippet]:
    for bits in (32, 64):
        data, dest = ("v10", "v20") if bits == 32 else ("v[10:11]", "v[20:21]")
        for stem, (sign, f) in ATOMICS.items():
            kind, name = f"{sign}{bits}", _name(stem, bits)

            def expect(i: Inputs, returns: bool, kind: str = kind, f: Atomic = f, bits: int = bits) -> dict[str, Array]:
                new = untyped(f(typed(i.c, kind), typed(i.a, kind)), kind, U64(0) * i.c)
                if bits == 32:
                    return fields(i, low(i, i.c, i.d) if returns else None, low(i, new, i.c))
                return fields(i, i.c if returns else None, new)

            with_old, without = (lambda i, e=expect: e(i, True)), (lambda i, e=expect: e(i, False))
            ds = name.replace("_u", "_rtn_u").replace("_i", "_rtn_i").replace("_b", "_rtn_b")
            yield Snippet(_around(LDS, f"ds_{name} v4, {data}"), "int", without, mnemonic=f"ds_{name}")
            yield Snippet(_around(LDS, f"ds_{ds} {dest}, v4, {data}"), "int", with_old, mnemonic=f"ds_{ds}")
            plain = f"global_atomic_{name} v5, {data}, s[2:3]"
            yield Snippet(_around(GLOBAL, plain), "int", without, mnemonic=f"global_atomic_{name}")
            back = f"global_atomic_{name} {dest}, v5, {data}, s[2:3] th:TH_ATOMIC_RETURN scope:SCOPE_DEV"
            yield Snippet(_around(GLOBAL, back), "int", with_old, mnemonic=f"global_atomic_{name} with return")


def exchanges() -> Iterator[Snippet]:
    for bits in (32, 64):
        data, dest, pair = ("v10", "v20", "v[10:11]") if bits == 32 else ("v[10:11]", "v[20:21]", "v[10:13]")
        cut = (lambda i, new, old: low(i, new, old)) if bits == 32 else (lambda i, new, old: new)
        swap = lambda i, c=cut: fields(i, c(i, i.c, i.d), c(i, i.a, i.c))  # noqa: E731
        yield Snippet(
            _around(LDS, f"ds_storexchg_rtn_b{bits} {dest}, v4, {data}"),
            "int",
            swap,
            mnemonic=f"ds_storexchg_rtn_b{bits}",
        )
        text = f"global_atomic_swap_b{bits} {dest}, v5, {data}, s[2:3] th:TH_ATOMIC_RETURN"
        yield Snippet(_around(GLOBAL, text), "int", swap, mnemonic=f"global_atomic_swap_b{bits}")
        # Compare with what is there in half of the lanes: the operand is taken from memory's own old value.
        same = "; ".join(f"v_cndmask_b32 v{12 + k}, v{12 + k}, v{14 + k}, vcc_lo" for k in range(2))
        source = "v[10:11]" if bits == 64 else "v10"
        compare = "v[12:13]" if bits == 64 else "v12"

        def exchanged(i: Inputs, c: Any = cut, bits: int = bits) -> dict[str, Array]:
            wanted = np.where(i.carry, i.c, i.b)
            hit = (wanted == i.c) if bits == 64 else ((wanted ^ i.c) & LOW == 0)
            return fields(i, c(i, i.c, i.d), np.where(hit, c(i, i.a, i.c), i.c))

        text = f"ds_cmpstore_rtn_b{bits} {dest}, v4, {source}, {compare}"
        yield Snippet(_around(LDS, f"{same}; {text}"), "int", exchanged, mnemonic=f"ds_cmpstore_rtn_b{bits}")
        moves = (
            "v_mov_b32 v40, v10; v_mov_b32 v41, v12"
            if bits == 32
            else "v_mov_b32 v40, v10; v_mov_b32 v41, v11; v_mov_b32 v42, v12; v_mov_b32 v43, v13"
        )
        wide = "v[40:41]" if bits == 32 else "v[40:43]"
        text = f"global_atomic_cmpswap_b{bits} {dest}, v5, {wide}, s[2:3] th:TH_ATOMIC_RETURN"
        yield Snippet(
            _around(GLOBAL, f"{same}; {moves}; {text}"), "int", exchanged, mnemonic=f"global_atomic_cmpswap_b{bits}"
        )
        assert pair


def floats() -> Iterator[Snippet]:
    for name, f in (("add_f32", lambda m, x: m + x), ("min_num_f32", number_min), ("max_num_f32", number_max)):

        def expect(i: Inputs, f: Atomic = f) -> dict[str, Array]:
            new = untyped(f(typed(i.c, "f32"), typed(i.a, "f32")), "f32", U64(0) * i.c)
            # NaN of any payload: both sides are made the same one, since memory is compared bit by bit.
            return fields(i, low(i, i.c, i.d), low(i, new, i.c))

        ds = name.replace("_f32", "_rtn_f32")
        tame = "v_max_num_f32 v10, v10, v10; v_max_num_f32 v14, v14, v14"
        assert tame
        yield Snippet(_around(LDS, f"ds_{ds} v20, v4, v10"), "number", expect, mnemonic=f"ds_{ds}")
        text = f"global_atomic_{name} v20, v5, v10, s[2:3] th:TH_ATOMIC_RETURN"
        yield Snippet(_around(GLOBAL, text), "number", expect, mnemonic=f"global_atomic_{name}")

    def pair(i: Inputs) -> dict[str, Array]:
        new = untyped(typed(i.c, "h2") + typed(i.a, "h2"), "h2", U64(0) * i.c)
        return fields(i, low(i, i.c, i.d), low(i, new, i.c))

    yield Snippet(_around(LDS, "ds_pk_add_rtn_f16 v20, v4, v10"), "halves", pair, mnemonic="ds_pk_add_rtn_f16")
    text = "global_atomic_pk_add_f16 v20, v5, v10, s[2:3] th:TH_ATOMIC_RETURN"
    yield Snippet(_around(GLOBAL, text), "halves", pair, mnemonic="global_atomic_pk_add_f16")


def _loaded(i: Inputs, bits: int, signed: bool, at: int) -> Array:
    part = i.c >> U64(8 * at) & U64((1 << bits) - 1)
    if signed:
        part = np.where(part >> U64(bits - 1) == 1, part | U64(2**32 - (1 << bits)), part)
    return part


def loads() -> Iterator[Snippet]:
    for name, bits, signed in (
        ("u8", 8, False),
        ("i8", 8, True),
        ("u16", 16, False),
        ("i16", 16, True),
        ("b32", 32, False),
    ):
        at = 2 if bits < 32 else 4
        plain = lambda i, b=bits, s=signed, at=at: fields(i, low(i, _loaded(i, b, s, at), i.d), None)  # noqa: E731
        yield Snippet(_around(LDS, f"ds_load_{name} v20, v4 offset:{at}"), "int", plain, mnemonic=f"ds_load_{name}")
        text = f"global_load_{name} v20, v5, s[2:3] offset:{at}"
        yield Snippet(_around(GLOBAL, text), "int", plain, mnemonic=f"global_load_{name}")
        if bits < 32:
            for hi in (False, True):

                def half(i: Inputs, b: int = bits, s: bool = signed, hi: bool = hi) -> dict[str, Array]:
                    part = _loaded(i, b, s, 2) & U64(0xFFFF)
                    value = i.d & U64(0xFFFF) | part << U64(16) if hi else i.d & U64(0xFFFF0000) | part
                    return fields(i, low(i, value, i.d), None)

                form = "b16" if name in ("u16", "i16") else name
                if name != "i16":
                    text = f"global_load_d16_{'hi_' if hi else ''}{form} v20, v5, s[2:3] offset:2"
                    yield Snippet(_around(GLOBAL, text), "int", half, mnemonic=text.split()[0])
                    text = f"ds_load_{name}_d16{'_hi' if hi else ''} v20, v4 offset:2"
                    yield Snippet(_around(LDS, text), "int", half, mnemonic=text.split()[0])
    whole = lambda i: fields(i, i.c, None)  # noqa: E731
    yield Snippet(_around(LDS, "ds_load_b64 v[20:21], v4"), "int", whole, mnemonic="ds_load_b64")
    yield Snippet(_around(GLOBAL, "global_load_b64 v[20:21], v5, s[2:3]"), "int", whole, mnemonic="global_load_b64")
    second = lambda i: fields(i, i.c >> U64(32) | i.c << U64(32), None)  # noqa: E731
    yield Snippet(
        _around(LDS, "ds_load_2addr_b32 v[20:21], v4 offset0:1 offset1:0"), "int", second, mnemonic="ds_load_2addr_b32"
    )
    negative = lambda i: fields(i, low(i, i.c, i.d), None)  # noqa: E731
    text = "v_add_nc_u32 v6, 64, v5; global_load_b32 v20, v6, s[2:3] offset:-64"
    yield Snippet(_around(GLOBAL, text), "int", negative, mnemonic="global_load_b32 negative offset")
    address = "v_mov_b32 v7, 0; v_add_co_u32 v6, s17, s2, v5; v_add_co_ci_u32_e64 v7, null, s3, v7, s17"
    for space in ("global_load_b32 v20, v[6:7], off offset:4", "flat_load_b32 v20, v[6:7] offset:4"):
        upper = lambda i: fields(i, low(i, i.c >> U64(32), i.d), None)  # noqa: E731
        wait = "; s_wait_loadcnt_dscnt 0" if space[0] == "f" else ""
        yield Snippet(
            _around(GLOBAL, f"{address}; {space}{wait}"), "int", upper, mnemonic=space.split()[0] + " by pair"
        )


def stores() -> Iterator[Snippet]:
    for name, bits, shift in (
        ("b8", 8, 0),
        ("b16", 16, 0),
        ("b32", 32, 0),
        ("d16_hi_b8", 8, 16),
        ("d16_hi_b16", 16, 16),
    ):

        def put(i: Inputs, bits: int = bits, shift: int = shift) -> dict[str, Array]:
            mask, at = (1 << bits) - 1, 32 if bits == 32 else 16
            part = i.a >> U64(shift) & U64(mask)
            return fields(i, None, i.c & U64(~(mask << at) & (2**64 - 1)) | part << U64(at))

        at = 4 if bits == 32 else 2
        yield Snippet(
            _around(GLOBAL, f"global_store_{name} v5, v10, s[2:3] offset:{at}"),
            "int",
            put,
            mnemonic=f"global_store_{name}",
        )
        ds = name if shift == 0 else f"b{bits}_d16_hi"
        yield Snippet(_around(LDS, f"ds_store_{ds} v4, v10 offset:{at}"), "int", put, mnemonic=f"ds_store_{ds}")
    whole = lambda i: fields(i, None, i.a)  # noqa: E731
    yield Snippet(_around(LDS, "ds_store_b64 v4, v[10:11]"), "int", whole, mnemonic="ds_store_b64")
    yield Snippet(_around(GLOBAL, "global_store_b64 v5, v[10:11], s[2:3]"), "int", whole, mnemonic="global_store_b64")
    two = lambda i: fields(i, None, i.b & LOW | i.a << U64(32))  # noqa: E731
    yield Snippet(
        _around(LDS, "ds_store_2addr_b32 v4, v10, v12 offset0:1 offset1:0"), "int", two, mnemonic="ds_store_2addr_b32"
    )


def memory_snippets() -> list[Snippet]:
    return [s for make in (atomics, exchanges, floats, loads, stores) for s in make()]


__all__ = ["F16", "comparison", "memory_snippets"]
