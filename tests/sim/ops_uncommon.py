"""Instructions that compilers rarely choose, and forms of common ones that the other tables leave out: dot products of
pairs with modifiers, matrix steps with signs, stochastic rounding, cube maps, sums of differences, hardware registers,
DPP on some rows only. All of these snippets are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.sim.asm import LANES, Inputs, Snippet
from tests.sim.exact import F16, F32, F64, U32, U64, bfloat16, fma, from_bfloat16, to_float8
from tests.sim.ops_scalar import left, scc_in
from tests.sim.ops_special import LOW, put, put64
from tests.sim.optypes import comparison, typed, untyped

Array = np.ndarray[Any, Any]
HALF = U64(0xFFFF)
I64 = np.int64


def _value(bits: Array, bf16: bool) -> Array:
    """F32 values of 16-bit patterns."""
    code = np.ascontiguousarray(bits.astype(np.uint16))
    return from_bfloat16(code) if bf16 else code.view(F16).astype(F32)


def _same_bf16(shift: int) -> Callable[[Array, Array], Array]:
    inner = comparison("f32")
    assert inner

    def same(got: Array, want: Array) -> Array:
        rest = (got ^ want) & ~(HALF << U64(shift)) == 0
        return rest & inner(*((v >> U64(shift) & HALF) << U64(16) for v in (got, want)))

    return same


def _same_half(shift: int) -> Callable[[Array, Array], Array]:
    inner = comparison("f16")
    assert inner
    return lambda got, want: (
        ((got ^ want) & ~(HALF << U64(shift)) == 0) & inner(got >> U64(shift) & HALF, want >> U64(shift) & HALF)
    )


def dots() -> Iterator[Snippet]:
    """v_dot2: op_sel and neg_lo of the first product, op_sel_hi and neg_hi of the second one."""
    forms = [([0, 0], [1, 1], [0, 0], [0, 0], 0), ([1, 0], [0, 1], [1, 0], [0, 1], 0)]
    forms += [([0, 1], [1, 0], [1, 1], [1, 1], 1), ([1, 1], [1, 1], [0, 1], [1, 1], 1)]
    for name, bf16, pool in (("f16", False, "f16"), ("bf16", True, "f32")):
        for low, high, neg_low, neg_high, neg_c in forms:

            def wide(i: Inputs, forms: Any = ((low, neg_low), (high, neg_high)), n: int = neg_c, b: bool = bf16) -> Any:
                total = typed(i.c, "f32") * F32(-1 if n else 1)
                for select, neg in forms:
                    x, y = (
                        _value(r >> U64(16 * s) ^ U64(0x8000 * m) if m else r >> U64(16 * s), b)
                        for r, s, m in zip((i.a, i.b), select, neg, strict=True)
                    )
                    total = total + x * y
                return put(i, untyped(total, "f32", i.d))

            text = f"v_dot2_f32_{name} v20, v10, v12, v14 op_sel:{[*low, 0]} op_sel_hi:{[*high, 1]}"
            text += f" neg_lo:{[*neg_low, neg_c]} neg_hi:{[*neg_high, neg_c]}"
            yield Snippet(text, pool, wide, comparison("f32"))
        one = 0x3F80 if bf16 else 0x3C00

        def constant(i: Inputs, one: int = one, b: bool = bf16) -> dict[str, Array]:
            """The constant 1.0 stands in the lower half; op_sel_hi:[1,...] takes the upper one, 0."""
            x = _value(np.full(i.b.shape, one), b)
            total = typed(i.c, "f32") + x * _value(i.b, b)
            return put(i, untyped(total + F32(0) * _value(i.b >> U64(16), b), "f32", i.d))

        yield Snippet(f"v_dot2_f32_{name} v20, 1.0, v12, v14", pool, constant, comparison("f32"))
        for add, out in ((0, 0), (1, 0), (0, 1)):

            def narrow(i: Inputs, b: bool = bf16, add: int = add, out: int = out) -> dict[str, Array]:
                total = _value(i.c >> U64(16 * add), b)
                for shift in (U64(0), U64(16)):
                    total = total + _value(i.a >> shift, b) * _value(i.b >> shift, b)
                bits = (bfloat16(total) if b else total.astype(F16).view(np.uint16)).astype(U64)
                return put(i, i.d & ~(HALF << U64(16 * out)) | bits << U64(16 * out))

            text = f"v_dot2_{name}_{name} v20, v10, v12, v14 op_sel:[0,0,{add},{out}]"
            yield Snippet(text, pool, narrow, (_same_bf16 if bf16 else _same_half)(16 * out))


def ties() -> Iterator[Snippet]:
    """v_fma_mixlo of sums whose F32 is a tie between two halves, or just left or right of one."""
    for a, b, c, want in (
        (2.0**-10, 2.0**-10, 1024.5, 1024.0),
        (2.0**-10, 2.0**-10, 1025.5, 1026.0),
        (-(2.0**-10), 2.0**-10, 1025.5, 1026.0),
        (2.0**-5, 2.0**-5, 1024.5, 1025.0),
        (-(2.0**-5), 2.0**-5, 1025.5, 1025.0),
    ):
        bits = [int(np.array(v, F32).view(U32)) for v in (a, b, c)]
        setup = "; ".join(f"s_mov_b32 s{14 + k}, {v:#x}" for k, v in enumerate(bits))
        setup += "; " + "; ".join(f"v_mov_b32 v{40 + k}, s{14 + k}" for k in range(3))
        half = U64(np.array(want, F16).view(np.uint16))
        assert np.float64(want) == np.float64(fma(F32(a), F32(b), F32(c)).astype(F16))
        for where, shift in (("lo", 0), ("hi", 16)):
            yield Snippet(
                f"v_fma_mix{where}_f16 v20, v40, v41, v42", "int",
                lambda i, h=half, s=shift: put(i, i.d & ~(HALF << U64(s)) | h << U64(s)), setup=setup,
            )  # fmt: skip


def _tile(registers: Array, bf16: bool) -> Array:
    """[groups, 16, 16]: row r stands in lanes r and r + 16, 8 elements each, from 4 registers [4, groups, 32]."""
    halves = np.stack([registers & HALF, registers >> U64(16) & HALF], -1)
    lanes = _value(halves, bf16).transpose(1, 2, 0, 3).reshape(registers.shape[1], 32, 8)
    return np.concatenate([lanes[:, :16], lanes[:, 16:]], -1)


def matrices() -> Iterator[Snippet]:
    """A in v[30:33], B in v[34:37], C from v30 on: neg_lo is the sign of even elements, neg_hi of odd ones; of C neg_lo
    is the sign and neg_hi means absolute."""
    forms = [([1, 0, 0], [0, 0, 0]), ([0, 1, 0], [1, 0, 0]), ([0, 0, 1], [0, 0, 0]), ([0, 0, 0], [0, 0, 1])]
    forms += [([1, 0, 0], [1, 0, 0]), ([0, 1, 1], [0, 1, 1])]
    kinds = [("f32", "f16", "halves"), ("f32", "bf16", "number"), ("f16", "f16", "halves"), ("bf16", "bf16", "number")]
    # The last form has the constant 4.0 for C.
    for (out, name, pool), (low, high) in ((k, f) for k in kinds for f in (*forms, ([0, 0, 0], None))):
        bf16 = name == "bf16"
        four, high = high is None, high or [0, 0, 0]

        def product(
            i: Inputs, out: str = out, bf16: bool = bf16, low: Any = low, high: Any = high, four: bool = four
        ) -> dict[str, Array]:
            words = np.stack([w for r in (i.a, i.b, i.c, i.d) for w in (r & LOW, r >> U64(32))])
            tiles = [_tile(words[4 * k : 4 * k + 4], bf16).astype(F64) for k in range(2)]
            signs = [np.where(np.arange(16) % 2, 1 - 2 * high[k], 1 - 2 * low[k]) for k in range(2)]
            x, y = (t * s for t, s in zip(tiles, signs, strict=True))
            total = np.zeros(x.shape)
            for k in range(16):
                total = total + x[:, :, k, None] * y[:, None, :, k]
            rows = np.arange(8)[:, None] + 8 * (LANES // 16)
            total = total[:, rows, LANES % 16].transpose(1, 0, 2)
            if out == "f32":
                add = typed(words, "f32")
            else:
                add = _value(words[np.arange(8) // 2] >> U64(16) * (np.arange(8) % 2).astype(U64)[:, None, None], bf16)
            add = np.full(add.shape, 4, F32) if four else np.abs(add) if high[2] else add
            total = total + (-add if low[2] else add).astype(F64)
            if out == "f32":
                bits = total.astype(F32).view(U32).astype(U64)
                return put64(i, bits[1] | bits[6] << U64(32))
            code = (bfloat16(total.astype(F32)) if bf16 else total.astype(F16).view(np.uint16)).astype(U64)
            pairs = code[0::2] | code[1::2] << U64(16)
            return put64(i, pairs[1] | pairs[3] << U64(32))

        count, picks = (8, (1, 6)) if out == "f32" else (4, (1, 3))
        c = "4.0" if four else f"v[30:{29 + count}]"
        text = f"v_wmma_{out}_16x16x16_{name} v[40:{39 + count}], v[30:33], v[34:37], {c}"
        text += f" neg_lo:{low} neg_hi:{high}; s_nop 0"
        text += "".join(f"; v_mov_b32 v{20 + k}, v{40 + n}" for k, n in enumerate(picks))
        yield Snippet(text, pool, product, _same_pair(out))


def _same_pair(kind: str) -> Callable[[Array, Array], Array]:
    """Equal elements of 64 bits, or both NaN."""
    inner = comparison("f16" if kind == "f16" else "f32")
    assert inner

    def same(got: Array, want: Array) -> Array:
        good = np.ones(got.shape, bool)
        if kind == "f32":
            return inner(got & LOW, want & LOW) & inner(got >> U64(32), want >> U64(32))
        for at in range(0, 64, 16):
            x, y = (v >> U64(at) & HALF for v in (got, want))
            good &= inner(x << U64(16), y << U64(16)) if kind == "bf16" else inner(x, y)
        return good

    return same


def stochastic() -> Iterator[Snippet]:
    """The random bits are added to the mantissa, which wraps around; the result goes to one byte of the destination."""
    for name, exponent, shift in (("fp8", 4, 12), ("bf8", 5, 11)):
        for byte in range(4):

            def value(i: Inputs, exponent: int = exponent, shift: int = shift, byte: int = byte) -> dict[str, Array]:
                x, random = i.a.astype(U32), i.b.astype(U32)
                mantissa = (x & U32(0x7FFFFF)) + (random >> U32(shift)) & U32(0x7FFFFF)
                mixed = np.where(np.isfinite(x.view(F32)), x & U32(0xFF800000) | mantissa, x)
                at = U64(8 * byte)
                code = to_float8(mixed.view(F32), exponent).astype(U64)
                return put(i, i.d & ~(U64(255) << at) | code << at)

            def same(got: Array, want: Array, byte: int = byte) -> Array:
                """Which NaN of E5M2 a NaN becomes is not published."""
                codes = [v >> U64(8 * byte) & U64(127) for v in (got, want)]
                return ((got ^ want) & ~(U64(127) << U64(8 * byte)) == 0) & (codes[0] > 124) & (codes[1] > 124)

            text = f"v_cvt_sr_{name}_f32 v20, v10, v12" + f" byte_sel:{byte}" * (byte > 0)
            yield Snippet(text, "f32", value, same if name == "bf8" else None)
        ordinary = lambda i, e=exponent, s=shift: put(i, i.d & ~U64(255) | _rounded(-typed(i.a, "f32"), i, e, s))  # noqa: E731
        yield Snippet(f"v_cvt_sr_{name}_f32 v20, -v10, v12", "number", ordinary)


def _rounded(x: Array, i: Inputs, exponent: int, shift: int) -> Array:
    bits = x.view(U32)
    mantissa = (bits & U32(0x7FFFFF)) + (i.b.astype(U32) >> U32(shift)) & U32(0x7FFFFF)
    return to_float8((bits & U32(0xFF800000) | mantissa).view(F32), exponent).astype(U64)


def cubes() -> Iterator[Snippet]:
    def face(x: Array, y: Array, z: Array) -> Array:
        """0 and 1: x is the major axis; 2 and 3: y; 4 and 5: z. Odd: negative."""
        by_z = (np.abs(z) >= np.abs(x)) & (np.abs(z) >= np.abs(y))
        by_y = ~by_z & (np.abs(y) >= np.abs(x))
        return np.where(by_z, 4 + (z < 0), np.where(by_y, 2 + (y < 0), 0 + (x < 0)))

    table: dict[str, Callable[[Array, Array, Array], list[Array]]] = {
        "id": lambda x, y, z: [np.full(x.shape, k, F32) for k in range(6)],
        "sc": lambda x, y, z: [-z, z, x, x, x, -x],
        "tc": lambda x, y, z: [-y, -y, z, -z, -y, -y],
        "ma": lambda x, y, z: [x * F32(2), x * F32(2), y * F32(2), y * F32(2), z * F32(2), z * F32(2)],
    }
    for name, f in table.items():
        for pool in ("f32", "number"):

            def value(i: Inputs, f: Any = f) -> dict[str, Array]:
                xyz = [typed(r, "f32") for r in (i.a, i.b, i.c)]
                return put(i, untyped(np.choose(face(*xyz), f(*xyz)), "f32", i.d))

            yield Snippet(f"v_cube{name}_f32 v20, v10, v12, v14", pool, value, comparison("f32"))


def _differences(a: Array, b: Array, first: int, masked: bool) -> Array:
    """Sum of |a - b| over four bytes, a from byte `first` on."""
    total = np.zeros(a.shape, I64)
    for k in range(4):
        x, y = ((v >> U64(8 * n) & U64(255)).astype(I64) for v, n in ((a, first + k), (b, k)))
        total += np.where(masked & (y == 0), 0, np.abs(x - y))
    return total


def differences() -> Iterator[Snippet]:
    for name, masked in (("qsad", False), ("mqsad", True)):

        def packed(i: Inputs, masked: bool = masked) -> dict[str, Array]:
            out = np.zeros(i.a.shape, U64)
            for k in range(4):
                total = _differences(i.a, i.b, k, masked) + (i.c >> U64(16 * k) & HALF).astype(I64)
                out |= (total & 0xFFFF).astype(U64) << U64(16 * k)
            return put64(i, out)

        yield Snippet(f"v_{name}_pk_u16_u8 v[20:21], v[10:11], v12, v[14:15]", "int", packed)
    for first in (0, 2):

        def words(i: Inputs, first: int = first) -> dict[str, Array]:
            """The addend is v[14:17]: c and d."""
            add = i.d if first else i.c
            low, high = (
                (_differences(i.a, i.b, first + k, True) + (add >> U64(32 * k) & LOW).astype(I64)).astype(U64) & LOW
                for k in range(2)
            )
            return put64(i, low | high << U64(32))

        text = "v_mqsad_u32_u8 v[40:43], v[10:11], v12, v[14:17]"
        text += f"; v_mov_b32 v20, v{40 + first}; v_mov_b32 v21, v{41 + first}"
        yield Snippet(text, "int", words)


def hardware() -> Iterator[Snippet]:
    """One wave of a workgroup of its own; SCC is bit 9 of STATE_PRIV; MODE is denormals on, nearest even."""
    for number, low, bits, want in (
        (1, 0, 8, 0xF0), (1, 4, 3, 7), (1, 0, 4, 0), (23, 0, 5, 0), (24, 0, 32, 0), (17, 0, 32, 0), (18, 0, 32, 0),
    ):  # fmt: skip
        known = lambda i, w=want: left(i, np.full(i.a.shape, w, U32), "u32")  # noqa: E731
        yield Snippet(f"s_getreg_b32 s20, hwreg({number}, {low}, {bits})", "int", known, scalar=True)
    yield Snippet("s_getreg_b32 s20, hwreg(4, 9, 1)", "int", lambda i: left(i, scc_in(i), "u32"), scalar=True)
    yield Snippet("s_getreg_b32 s20, hwreg(4, 8, 3)", "int", lambda i: left(i, scc_in(i) * 2, "u32"), scalar=True)


def rows() -> Iterator[Snippet]:
    """DPP that writes some rows and banks only; the others keep the destination, whatever bound_ctrl says."""
    for row_mask, bank_mask in ((1, 15), (2, 15), (0, 15), (15, 5), (2, 9)):
        written = (row_mask >> LANES // 16 & 1 == 1) & (bank_mask >> LANES % 16 // 4 & 1 == 1)
        source = LANES ^ 3
        for name, f in (("v_mov_b32", None), ("v_add_nc_u32", lambda x, y: x + y)):

            def moved(i: Inputs, f: Any = f, on: Array = written, at: Array = source) -> dict[str, Array]:
                x = np.where(i.on[:, at], i.a[:, at], U64(0))
                return put(i, f(x, i.b) & LOW if f else x, i.on & on)

            text = f"{name}_dpp v20, v10{', v12' if f else ''} quad_perm:[3,2,1,0] row_mask:{row_mask:#x}"
            yield Snippet(text + f" bank_mask:{bank_mask:#x} bound_ctrl:1", "int", moved)


def uncommon_snippets() -> list[Snippet]:
    makers = (dots, ties, matrices, stochastic, cubes, differences, hardware, rows)
    return [s for make in makers for s in make()]
