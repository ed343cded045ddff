"""Scalar instructions: what they compute, and what they do to SCC and EXEC.

Owns: the table and the snippets made from it. Operands stand in s[10:11], s[12:13]; the destination's old value is in
s[20:21], whose bit 32 is SCC before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.sim.asm import Inputs, Snippet
from tests.sim.exact import F16, F32, I32, U32, U64, fma
from tests.sim.ops_special import FLOAT, INTEGER
from tests.sim.ops_vector import (
    bits_of,
    extended,
    length,
    lowest,
    nan_max,
    nan_min,
    number_max,
    number_min,
    reverse,
    sign_bits,
    to_int_clipped,
    toward_zero,
)  # fmt: skip
from tests.sim.optypes import PAIRS, comparison, typed, untyped, width

Array = np.ndarray[Any, Any]
I64 = np.int64
HIGH = U64(0xFFFFFFFF00000000)


def scc_in(i: Inputs) -> Array:
    return (i.d >> U64(32) & U64(1)).astype(I64)


def left(i: Inputs, value: Array, kind: str, scc: Array | None = None) -> dict[str, Array]:
    """Destination registers, and SCC where the instruction sets it."""
    bits = untyped(value, kind, i.d)
    if width(kind) == 32:
        bits = bits & ~HIGH | i.d & HIGH
    out = {"d0": bits.astype(U32), "d1": (bits >> U64(32)).astype(U32)}
    return out | ({} if scc is None else {"scc": scc.astype(U32)})


def regs(kind: str, first: int) -> str:
    return f"s[{first}:{first + 1}]" if width(kind) == 64 else f"s{first}"


# name: (signature, value, SCC). SCC: None keeps it, "nz" is result != 0, else a function of the operands.
Entry = tuple[str, Callable[..., Array], Any]
TABLE: dict[str, Entry] = {}


def _add() -> None:
    def outside(f: Any, low: int, high: int) -> Any:
        """Whether the exact result lies outside a range."""
        return lambda a, b: (f(a.astype(I64), b.astype(I64)) < low) | (f(a.astype(I64), b.astype(I64)) > high)

    wide, over = (lambda f: outside(f, 0, 2**32 - 1)), (lambda f: outside(f, -(2**31), 2**31 - 1))
    plus, minus = (lambda a, b: a + b), (lambda a, b: a - b)
    TABLE.update({
        "add_co_u32": ("u32 u32 u32", plus, wide(plus)), "sub_co_u32": ("u32 u32 u32", minus, wide(minus)),
        "add_co_i32": ("i32 i32 i32", plus, over(plus)), "sub_co_i32": ("i32 i32 i32", minus, over(minus)),
        "absdiff_i32": ("i32 i32 i32", lambda a, b: np.where(a - b < 0, -(a - b), a - b), "nz"),
        "add_nc_u64": ("u64 u64 u64", plus, None), "sub_nc_u64": ("u64 u64 u64", minus, None),
        "mul_u64": ("u64 u64 u64", lambda a, b: a * b, None), "mul_i32": ("i32 i32 i32", lambda a, b: a * b, None),
        "mul_hi_u32": ("u32 u32 u32", lambda a, b: (a.astype(U64) * b) >> U64(32), None),
        "mul_hi_i32": ("i32 i32 i32", lambda a, b: (a.astype(I64) * b) >> 32, None),
    })  # fmt: skip
    for n in range(1, 5):
        shifted = lambda a, b, n=n: (a.astype(I64) << n) + b.astype(I64)  # noqa: E731
        TABLE[f"lshl{n}_add_u32"] = ("u32 u32 u32", shifted, lambda a, b, f=shifted: f(a, b) > 0xFFFFFFFF)
    for kind in ("i32", "u32"):
        TABLE[f"min_{kind}"] = (f"{kind} {kind} {kind}", np.minimum, lambda a, b: a < b)
        TABLE[f"max_{kind}"] = (f"{kind} {kind} {kind}", np.maximum, lambda a, b: a >= b)


def _any_of_four(a: Array, at: list[int]) -> Array:
    """Bit i: whether any of the four bits from at[i] on is set."""
    out = np.zeros_like(a)
    for i, first in enumerate(at):
        out |= (a >> a.dtype.type(first) & a.dtype.type(15) != 0).astype(a.dtype) << a.dtype.type(i)
    return out


def _doubled(a: Array) -> Array:
    out = np.zeros(a.shape, U64)
    for i in range(32):
        out |= (a.astype(U64) >> U64(i) & U64(1)) * U64(3) << U64(2 * i)
    return out


def _bits() -> None:
    logic: dict[str, Callable[[Array, Array], Array]] = {
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "nand": lambda a, b: ~(a & b),
        "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b), "and_not1": lambda a, b: a & ~b,
        "or_not1": lambda a, b: a | ~b,
    }  # fmt: skip
    for n, kind in ((32, "u32"), (64, "u64")):
        one, mask = (U32, U32(31)) if n == 32 else (U64, U32(63))
        for name, f in logic.items():
            TABLE[f"{name}_b{n}"] = (f"{kind} {kind} {kind}", f, "nz")
        shift = f"{kind} {kind} u32"
        TABLE[f"lshl_b{n}"] = (shift, lambda a, b, m=mask, t=one: a << (b & m).astype(t), "nz")
        TABLE[f"lshr_b{n}"] = (shift, lambda a, b, m=mask, t=one: a >> (b & m).astype(t), "nz")
        TABLE[f"ashr_i{n}"] = (f"i{n} i{n} u32", lambda a, b, m=mask: a >> (b & m).astype(a.dtype), "nz")
        bfm = lambda a, b, m=mask, t=one: ((t(1) << (a & m).astype(t)) - t(1)) << (b & m).astype(t)  # noqa: E731
        TABLE[f"bfm_b{n}"] = (f"{kind} u32 u32", bfm, None)
        TABLE[f"not_b{n}"] = (f"{kind} {kind}", lambda a: ~a, "nz")
        TABLE[f"mov_b{n}"] = (f"{kind} {kind}", lambda a: a, None)
        TABLE[f"brev_b{n}"] = (f"{kind} {kind}", lambda a, n=n: reverse(a, n), None)
        TABLE[f"ctz_i32_b{n}"] = (f"i32 {kind}", lowest, None)
        TABLE[f"clz_i32_{kind}"] = (f"i32 {kind}", lambda a, n=n: np.where(a == 0, -1, n - length(a)), None)
        TABLE[f"bcnt1_i32_b{n}"] = (f"i32 {kind}", bits_of, "nz")
        TABLE[f"bcnt0_i32_b{n}"] = (f"i32 {kind}", lambda a, n=n: n - bits_of(a), "nz")
        quads = [4 * i for i in range(n // 4)]
        TABLE[f"quadmask_b{n}"] = (f"{kind} {kind}", lambda a, at=quads: _any_of_four(a, at), "nz")
        TABLE[f"wqm_b{n}"] = (f"{kind} {kind}", lambda a, n=n: _any_of_four(a, [i & ~3 for i in range(n)]), "nz")
    TABLE["cls_i32"] = ("i32 i32", sign_bits, None)
    TABLE["sext_i32_i8"] = ("i32 i8", lambda a: a.astype(I32), None)
    TABLE["sext_i32_i16"] = ("i32 i16", lambda a: a.astype(I32), None)
    TABLE["abs_i32"] = ("i32 i32", lambda a: np.where(a < 0, -a, a), "nz")
    TABLE["bitreplicate_b64_b32"] = ("u64 u32", _doubled, None)
    for name, low, high in (("ll", 0, 0), ("lh", 0, 16), ("hh", 16, 16), ("hl", 16, 0)):
        pack = lambda a, b, x=low, y=high: (a >> U32(x) & U32(0xFFFF)) | (b >> U32(y) & U32(0xFFFF)) << U32(16)  # noqa: E731
        TABLE[f"pack_{name}_b32_b16"] = ("u32 u32 u32", pack, None)


def _floats() -> None:
    for kind in ("f32", "f16"):
        two = f"{kind} {kind} {kind}"
        arithmetic = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}
        arithmetic |= {"min_num": number_min, "max_num": number_max, "minimum": nan_min, "maximum": nan_max}
        for name, f in arithmetic.items():
            TABLE[f"{name}_{kind}"] = (two, f, None)
        for name, g in {"ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "rndne": np.rint}.items():
            TABLE[f"{name}_{kind}"] = (f"{kind} {kind}", g, None)
    TABLE["cvt_f32_i32"] = ("f32 i32", lambda a: a.astype(F32), None)
    TABLE["cvt_f32_u32"] = ("f32 u32", lambda a: a.astype(F32), None)
    TABLE["cvt_i32_f32"] = ("i32 f32", lambda a: to_int_clipped(a, I32), None)
    TABLE["cvt_u32_f32"] = ("u32 f32", lambda a: to_int_clipped(a, U32), None)
    TABLE["cvt_f16_f32"] = ("f16 f32", lambda a: a.astype(F16), None)
    TABLE["cvt_f32_f16"] = ("f32 f16", lambda a: a.astype(F32), None)
    TABLE["cvt_hi_f32_f16"] = ("f32 h2", lambda a: a[..., 1].astype(F32), None)
    TABLE["cvt_pk_rtz_f16_f32"] = ("h2 f32 f32", lambda a, b: np.stack([toward_zero(a), toward_zero(b)], -1), None)


_add()
_bits()
_floats()


def _same(kind: str) -> Any:
    """Of a half only its own sixteen bits are compared: what a scalar half leaves above is not published."""
    inner = comparison(kind)
    if kind != "f16" or inner is None:
        return inner
    return lambda got, want: inner(got & U64(0xFFFF), want & U64(0xFFFF))


def table() -> Iterator[Snippet]:
    for name, (signature, f, scc) in TABLE.items():
        out, *ins = signature.split()
        pool = next((k for k in ("f32", "f16") if k in ins), "f16" if "h2" in ins else "int")

        def expect(i: Inputs, out: str = out, ins: list[str] = ins, f: Any = f, scc: Any = scc) -> dict[str, Array]:
            values = [typed(r, k) for r, k in zip((i.a, i.b), ins, strict=False)]
            value = f(*values)
            if scc == "nz":
                bits = untyped(value, out, U64(0) * i.d)
                flag = (bits & ~HIGH if width(out) == 32 else bits) != 0
            else:
                flag = None if scc is None else scc(*values)
            return left(i, value, out, flag)

        args = [regs(out, 20)] + [regs(k, 10 + 2 * n) for n, k in enumerate(ins)]
        yield Snippet(f"s_{name} {', '.join(args)}", pool, expect, _same(out), scalar=True)
        if ins[0] not in PAIRS and width(ins[0]) == 32 and ins[0][0] != "f":
            constant = {"i8": -7, "i16": -7}.get(ins[0], -7)

            def inline(i: Inputs, expect: Any = expect, value: int = constant) -> dict[str, Array]:
                return expect(Inputs(np.full_like(i.a, value % 2**64), i.b, i.c, i.d, i.exec, i.vcc))

            yield Snippet(f"s_{name} {', '.join([args[0], '-7', *args[2:]])}", pool, inline, _same(out), scalar=True)


def carries_and_selects() -> Iterator[Snippet]:
    def with_carry(i: Inputs, sign: int) -> dict[str, Array]:
        a, b = (r.astype(U32).astype(I64) for r in (i.a, i.b))
        total = a + sign * (b + scc_in(i))
        return left(i, total, "u32", (total < 0) | (total > 0xFFFFFFFF))

    yield Snippet("s_add_co_ci_u32 s20, s10, s12", "int", lambda i: with_carry(i, 1), scalar=True)
    yield Snippet("s_sub_co_ci_u32 s20, s10, s12", "int", lambda i: with_carry(i, -1), scalar=True)
    choose = lambda i: np.where(scc_in(i) == 1, i.a, i.b)  # noqa: E731
    yield Snippet("s_cselect_b32 s20, s10, s12", "int", lambda i: left(i, choose(i), "u32"), scalar=True)
    yield Snippet("s_cselect_b64 s[20:21], s[10:11], s[12:13]", "int", lambda i: left(i, choose(i), "u64"), scalar=True)
    kept = lambda i: np.where(scc_in(i) == 1, i.a, i.d)  # noqa: E731
    yield Snippet("s_cmov_b32 s20, s10", "int", lambda i: left(i, kept(i), "u32"), scalar=True)
    yield Snippet("s_cmov_b64 s[20:21], s[10:11]", "int", lambda i: left(i, kept(i), "u64"), scalar=True)

    def old(i: Inputs) -> Array:
        return i.d.astype(U32).view(I32).astype(I64)

    for k in (-7, 0x1234):
        moved = lambda i, k=k: np.where(scc_in(i) == 1, k, old(i))  # noqa: E731
        total = lambda i, k=k: old(i) + k  # noqa: E731
        yield Snippet(f"s_movk_i32 s20, {k}", "int", lambda i, k=k: left(i, np.full(i.a.shape, k), "i32"), scalar=True)
        yield Snippet(f"s_cmovk_i32 s20, {k}", "int", lambda i, f=moved: left(i, f(i), "i32"), scalar=True)
        yield Snippet(f"s_mulk_i32 s20, {k}", "int", lambda i, k=k: left(i, old(i) * k, "i32"), scalar=True)
        over = lambda i, f=total: (f(i) > 2**31 - 1) | (f(i) < -(2**31))  # noqa: E731
        yield Snippet(
            f"s_addk_co_i32 s20, {k}", "int", lambda i, f=total, o=over: left(i, f(i), "i32", o(i)), scalar=True
        )


def fields() -> Iterator[Snippet]:
    """Bit fields; the operand is cut to offsets and widths below the register's own: beyond, nothing is published."""
    for n in (32, 64):
        cut = f"s_and_b32 s12, s12, {0x001F001F if n == 32 else 0x003F003F:#x}"

        def parts(i: Inputs, n: int = n) -> tuple[Array, Array]:
            return i.b & U64(n - 1), i.b >> U64(16) & U64(n - 1)

        for signed in (False, True):
            kind = f"{'i' if signed else 'u'}{n}"

            def field(i: Inputs, kind: str = kind, signed: bool = signed, parts: Any = parts) -> dict[str, Array]:
                at, count = parts(i)
                x = typed(i.a, kind)
                if signed:
                    value = extended(x.astype(I64) >> at.astype(I64), count)
                else:
                    value = (x.astype(U64) >> at) & ((U64(1) << count) - U64(1))
                return left(i, value, kind, value != 0)

            # The cut comes first and sets SCC itself; s_bfe overwrites it.
            text = (
                f"s_mov_b32 s31, s12; {cut}; s_bfe_{kind} {regs(kind, 20)}, {regs(kind, 10)}, s12; s_mov_b32 s12, s31"
            )
            yield Snippet(text, "int", field, scalar=True, mnemonic=f"s_bfe_{kind}")
        reg, high = ("s20", False) if n == 32 else ("s[20:21]", True)
        for value in (0, 1):

            def bit(i: Inputs, n: int = n, value: int = value) -> dict[str, Array]:
                mask = U64(1) << (i.a & U64(n - 1))
                return left(i, i.d | mask if value else i.d & ~mask, f"u{n}")

            yield Snippet(f"s_bitset{value}_b{n} {reg}, s10", "int", bit, scalar=True)
            source = "s[10:11]" if high else "s10"
            test = lambda i, n=n, v=value: {"scc": ((i.a >> (i.b & U64(n - 1)) & U64(1)) == v).astype(U32)}  # noqa: E731
            yield Snippet(f"s_bitcmp{value}_b{n} {source}, s12", "int", test, scalar=True)


def comparisons() -> Iterator[Snippet]:
    for kind, names in (("i32", INTEGER), ("u32", INTEGER), ("f32", FLOAT), ("f16", FLOAT)):
        for name, f in names.items():
            outcome = lambda i, f=f, k=kind: {"scc": f(typed(i.a, k), typed(i.b, k)).astype(U32)}  # noqa: E731
            name = "lg" if name == "ne" else name
            yield Snippet(f"s_cmp_{name}_{kind} s10, s12", kind if kind[0] == "f" else "int", outcome, scalar=True)
    yield Snippet("s_cmp_eq_u64 s[10:11], s[12:13]", "int", lambda i: {"scc": (i.a == i.b).astype(U32)}, scalar=True)
    yield Snippet("s_cmp_lg_u64 s[10:11], s[12:13]", "int", lambda i: {"scc": (i.a != i.b).astype(U32)}, scalar=True)


EXEC: dict[str, Callable[[Array, Array], Array]] = {
    "and": lambda s, e: s & e, "or": lambda s, e: s | e, "xor": lambda s, e: s ^ e, "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e), "xnor": lambda s, e: ~(s ^ e), "and_not0": lambda s, e: ~s & e,
    "or_not0": lambda s, e: ~s | e,
    "and_not1": lambda s, e: s & ~e, "or_not1": lambda s, e: s | ~e,
}  # fmt: skip


def execs() -> Iterator[Snippet]:
    """EXEC is s12 before; s_cselect and the stores around the snippet put it back."""
    for name, f in EXEC.items():

        def saved(i: Inputs, f: Any = f) -> dict[str, Array]:
            before = i.b.astype(U32)
            after = f(i.a.astype(U32), before)
            return left(i, before, "u32", after != 0) | {"exec": after}

        yield Snippet(
            f"s_mov_b32 exec_lo, s12; s_{name}_saveexec_b32 s20, s10",
            "int",
            saved,
            scalar=True,
            mnemonic=f"s_{name}_saveexec_b32",
        )
        if name in ("and_not0", "and_not1"):

            def replaced(i: Inputs, f: Any = f) -> dict[str, Array]:
                after = f(i.a.astype(U32), i.b.astype(U32))
                return left(i, after, "u32", after != 0) | {"exec": after}

            yield Snippet(
                f"s_mov_b32 exec_lo, s12; s_{name}_wrexec_b32 s20, s10",
                "int",
                replaced,
                scalar=True,
                mnemonic=f"s_{name}_wrexec_b32",
            )


def fused() -> Iterator[Snippet]:
    k = F32(np.array(0x40490FDB, U32).view(F32))
    x = lambda r: typed(r, "f32")  # noqa: E731
    same = comparison("f32")
    yield Snippet(
        "s_fmac_f32 s20, s10, s12", "f32", lambda i: left(i, fma(x(i.a), x(i.b), x(i.d)), "f32"), same, scalar=True
    )
    yield Snippet(
        "s_fmaak_f32 s20, s10, s12, 0x40490fdb",
        "f32",
        lambda i: left(i, fma(x(i.a), x(i.b), k), "f32"),
        same,
        scalar=True,
    )
    yield Snippet(
        "s_fmamk_f32 s20, s10, 0x40490fdb, s12",
        "f32",
        lambda i: left(i, fma(x(i.a), k, x(i.b)), "f32"),
        same,
        scalar=True,
    )
    y = lambda r: typed(r, "f16")  # noqa: E731
    half = lambda i: left(i, fma(y(i.a), y(i.b), y(i.d), F16), "f16")  # noqa: E731
    yield Snippet("s_fmac_f16 s20, s10, s12", "f16", half, _same("f16"), scalar=True)


def scalar_snippets() -> list[Snippet]:
    return [s for make in (table, carries_and_selects, fields, comparisons, execs, fused) for s in make()]
