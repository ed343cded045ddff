"""Vector instructions with several results or results outside vector registers: comparisons, carries, selects,
division steps, mixed precision, dual issue, and moves between lanes and scalars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.sim.asm import LANES, Inputs, Snippet
from tests.sim.exact import F16, F32, F64, U32, U64, float8, fma
from tests.sim.ops_vector import classes
from tests.sim.optypes import comparison, modified, typed, untyped, width

Array = np.ndarray[Any, Any]
I64 = np.int64
LOW = U64(0xFFFFFFFF)
PI = np.array(0x40490FDB, U32).view(F32)


def mask_of(lanes: Array) -> Array:
    """bool [groups, 32] to the wave's mask, uint32 [groups]."""
    return (lanes.astype(U64) << LANES.astype(U64)).sum(-1).astype(U32)


def put(inputs: Inputs, value: Array, on: Array | None = None) -> dict[str, Array]:
    """32 bits into the destination's first register."""
    return {"d0": np.where(inputs.on if on is None else on, value.astype(U32), inputs.d.astype(U32))}


def put64(inputs: Inputs, value: Array) -> dict[str, Array]:
    bits = np.where(inputs.on, value, inputs.d)
    return {"d0": bits.astype(U32), "d1": (bits >> U64(32)).astype(U32)}


def _unordered(x: Array, y: Array) -> Array:
    return np.isnan(x) | np.isnan(y)


INTEGER = {
    "lt": lambda x, y: x < y, "eq": lambda x, y: x == y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y,
    "ne": lambda x, y: x != y, "ge": lambda x, y: x >= y,
}  # fmt: skip
FLOAT = {
    "lt": lambda x, y: x < y, "eq": lambda x, y: x == y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y,
    "lg": lambda x, y: (x < y) | (x > y), "ge": lambda x, y: x >= y, "o": lambda x, y: ~_unordered(x, y),
    "u": _unordered,
    "nge": lambda x, y: ~(x >= y), "nlg": lambda x, y: ~((x < y) | (x > y)), "ngt": lambda x, y: ~(x > y),
    "nle": lambda x, y: ~(x <= y), "neq": lambda x, y: ~(x == y), "nlt": lambda x, y: ~(x < y),
}  # fmt: skip


def _pool(kind: str) -> str:
    return kind if kind[0] == "f" else "int"


def _pair(kind: str) -> tuple[str, str]:
    return ("v[10:11]", "v[12:13]") if width(kind) == 64 else ("v10", "v12")


def comparisons() -> Iterator[Snippet]:
    for kind in ("f16", "f32", "f64", "i16", "u16", "i32", "u32", "i64", "u64"):
        a, b = _pair(kind)
        for name, f in (FLOAT if kind[0] == "f" else INTEGER).items():

            def outcome(i: Inputs, kind: str = kind, f: Any = f, change: bool = False) -> Array:
                x, y = i.a, i.b
                if change:
                    x, y = modified(x, kind, True, False), modified(y, kind, False, True)
                return mask_of(f(typed(x, kind), typed(y, kind)) & i.on)

            op, pool = f"{name}_{kind}", _pool(kind)
            yield Snippet(
                f"v_cmp_{op} vcc_lo, {a}, {b}", pool, lambda i, o=outcome: {"vcc": o(i)}, mnemonic=f"v_cmp_{op}"
            )
            yield Snippet(f"v_cmp_{op}_e64 s20, {a}, {b}", pool, lambda i, o=outcome: {"sdst": o(i)})
            yield Snippet(f"v_cmpx_{op} {a}, {b}", pool, lambda i, o=outcome: {"exec": o(i)})
            if kind[0] == "f":
                changed = f"v_cmp_{op}_e64 s20, -{a}, |{b}|"
                yield Snippet(changed, pool, lambda i, o=outcome: {"sdst": o(i, change=True)})
        if kind[0] == "f":

            def of_class(i: Inputs, kind: str = kind) -> Array:
                return mask_of(classes(typed(i.a, kind), i.b.astype(U32) & U32(1023)) & i.on)

            yield Snippet(f"v_cmp_class_{kind} vcc_lo, {a}, v12", pool, lambda i, o=of_class: {"vcc": o(i)})
            yield Snippet(f"v_cmp_class_{kind}_e64 s20, {a}, v12", pool, lambda i, o=of_class: {"sdst": o(i)})
            yield Snippet(f"v_cmpx_class_{kind} {a}, v12", pool, lambda i, o=of_class: {"exec": o(i)})
    yield Snippet(
        "v_cmp_lt_i32_e64_dpp s20, v10, v12 row_ror:5 row_mask:0xf bank_mask:0xf bound_ctrl:1", "int",
        lambda i: {"sdst": mask_of((_rotated(i.a, i, 5).astype(np.int32) < i.b.astype(U32).view(np.int32)) & i.on)},
    )  # fmt: skip
    yield Snippet("v_cmp_gt_u32_e64 null, v10, v12", "int", lambda i: {})


def _rotated(raw: Array, i: Inputs, amount: int) -> Array:
    at = (LANES & 16) + ((LANES & 15) - amount) % 16
    return np.where(i.on[:, at], raw[:, at], U64(0)).astype(U32).view(np.int32)


def carries() -> Iterator[Snippet]:
    def low(raw: Array) -> Array:
        return (raw & LOW).astype(I64)

    def result(total: Array, i: Inputs, where: str) -> dict[str, Array]:
        out = put(i, (total & 0xFFFFFFFF).astype(U32))
        return out | ({where: mask_of(((total < 0) | (total > 0xFFFFFFFF)) & i.on)} if where else {})

    table: dict[str, Callable[[Array, Array, Array], Array]] = {
        "add": lambda x, y, c: x + y + c, "sub": lambda x, y, c: x - y - c, "subrev": lambda x, y, c: y - x - c,
    }  # fmt: skip
    for name, f in table.items():
        zero = I64(0)
        for sdst, where in (("s20", "sdst"), ("vcc_lo", "vcc"), ("null", "")):
            text = f"v_{name}_co_u32 v20, {sdst}, v10, v12"
            yield Snippet(text, "int", lambda i, f=f, w=where, z=zero: result(f(low(i.a), low(i.b), z), i, w))
            text = f"v_{name}_co_ci_u32_e64 v20, {sdst}, v10, v12, s16"
            setup = "s_mov_b32 s16, vcc_lo"
            yield Snippet(
                text, "int", lambda i, f=f, w=where: result(f(low(i.a), low(i.b), i.carry), i, w), setup=setup
            )
        text = f"v_{name}_co_ci_u32 v20, vcc_lo, v10, v12, vcc_lo"
        yield Snippet(text, "int", lambda i, f=f: result(f(low(i.a), low(i.b), i.carry), i, "vcc"))
    for name, signed in (("u64_u32", False), ("i64_i32", True)):

        def wide(i: Inputs, signed: bool = signed) -> dict[str, Array]:
            x, y, z = i.a & LOW, i.b & LOW, i.c
            if signed:
                x, y = (v.astype(U32).view(np.int32).astype(I64).view(U64) for v in (x, y))
                exact = x.view(I64).astype(object) * y.view(I64).astype(object) + z.view(I64).astype(object)
                # 65 bits of two's complement: the topmost one goes to the mask.
                top = np.array([(v >> 64) & 1 for v in exact.ravel()], bool).reshape(exact.shape)
            else:
                exact = x.astype(object) * y.astype(object) + z.astype(object)
                top = np.array([v >> 64 for v in exact.ravel()], bool).reshape(exact.shape)
            return put64(i, x * y + z) | {"sdst": mask_of(top & i.on)}

        yield Snippet(f"v_mad_co_{name} v[20:21], s20, v10, v12, v[14:15]", "int", wide)
        drop = lambda i, w=wide: {k: v for k, v in w(i).items() if k != "sdst"}  # noqa: E731
        yield Snippet(f"v_mad_co_{name} v[20:21], null, v10, v12, v[14:15]", "int", drop)


def selects() -> Iterator[Snippet]:
    def chosen(i: Inputs) -> Array:
        return np.where(i.carry, i.b, i.a)

    yield Snippet("v_cndmask_b32 v20, v10, v12, vcc_lo", "int", lambda i: put(i, chosen(i)))
    yield Snippet(
        "v_cndmask_b32_e64 v20, v10, v12, s16", "int", lambda i: put(i, chosen(i)), setup="s_mov_b32 s16, vcc_lo"
    )
    yield Snippet("v_cndmask_b32 v20, 0, v12, vcc_lo", "int", lambda i: put(i, np.where(i.carry, i.b, U64(0))))
    yield Snippet(
        "v_cndmask_b32_e64 v20, -v10, |v12|, vcc_lo", "f32",
        lambda i: put(i, np.where(i.carry, modified(i.b, "f32", False, True), modified(i.a, "f32", True, False))),
    )  # fmt: skip
    half = lambda i: put(i, i.d & U64(0xFFFF0000) | chosen(i) & U64(0xFFFF))  # noqa: E731
    yield Snippet("v_cndmask_b16 v20, v10, v12, vcc_lo", "int", half)
    count = lambda i: np.array([[int(m & ((1 << n) - 1)).bit_count() for n, m in enumerate(r)] for r in i.a & LOW])  # noqa: E731
    yield Snippet(
        "v_mbcnt_lo_u32_b32 v20, v10, v12", "int", lambda i: put(i, (count(i) + (i.b & LOW).astype(I64)) & 0xFFFFFFFF)
    )
    yield Snippet("v_mbcnt_hi_u32_b32 v20, v10, v12", "int", lambda i: put(i, i.b))

    def swapped(i: Inputs) -> dict[str, Array]:
        first, second = i.d & LOW, i.d >> U64(32)
        return {"d0": np.where(i.on, second, first).astype(U32), "d1": np.where(i.on, first, second).astype(U32)}

    yield Snippet("v_swap_b32 v20, v21", "int", swapped)


def lanes_and_scalars() -> Iterator[Snippet]:
    def first(i: Inputs) -> Array:
        """The first active lane, lane 0 if there is none."""
        return np.where(i.on.any(-1), i.on.argmax(-1), 0)

    def at(raw: Array, lane: Array) -> Array:
        return np.take_along_axis(raw, lane[:, None], 1)[:, 0].astype(U32)

    yield Snippet("v_readfirstlane_b32 s20, v10", "int", lambda i: {"sdst": at(i.a, first(i))})
    for lane in (0, 5, 31):
        yield Snippet(f"v_readlane_b32 s20, v10, {lane}", "int", lambda i, n=lane: {"sdst": i.a[:, n].astype(U32)})
    yield Snippet(
        "v_readlane_b32 s20, v10, s16", "int", lambda i: {"sdst": i.a[:, 9].astype(U32)}, setup="s_mov_b32 s16, 0x29"
    )

    def written(i: Inputs, lane: int) -> dict[str, Array]:
        value = i.d.astype(U32).copy()
        value[:, lane] = 0x12345678
        return {"d0": value}

    setup = "s_mov_b32 s16, 0x12345678"
    yield Snippet("v_writelane_b32 v20, s16, 3", "int", lambda i: written(i, 3), setup=setup)
    yield Snippet("v_writelane_b32 v20, s16, s17", "int", lambda i: written(i, 30), setup=setup + "; s_mov_b32 s17, 62")
    for cross, name in ((0, "permlane16"), (16, "permlanex16")):
        low, high, row = 0x02468ACE, 0x13579BDF, (LANES & 16) ^ cross
        picks = np.array([(low >> 4 * k if k < 8 else high >> 4 * (k - 8)) & 15 for k in LANES & 15])
        setup = f"s_mov_b32 s16, {low:#x}; s_mov_b32 s17, {high:#x}"
        for text, inactive, bound in (
            ("", False, False),
            (" op_sel:[1,0]", True, False),
            (" op_sel:[0,1]", False, True),
        ):

            def moved(
                i: Inputs, source: Array = row + picks, fi: bool = inactive, bound: bool = bound
            ) -> dict[str, Array]:
                valid = i.on[:, source] | fi
                value = np.where(valid, i.a[:, source], U64(0) if bound else i.d)
                return put(i, value)

            yield Snippet(f"v_{name}_b32 v20, v10, s16, s17{text}", "int", moved, setup=setup)

        def by_lane(i: Inputs, row: Array = row) -> dict[str, Array]:
            source = row + (i.b & U64(15)).astype(np.int64)
            valid = np.take_along_axis(i.on, source, 1)
            return put(i, np.where(valid, np.take_along_axis(i.a, source, 1), i.d))

        yield Snippet(f"v_{name}_var_b32 v20, v10, v12", "int", by_lane)
    for name, f in (("exp", np.exp2), ("rcp", lambda x: 1 / x), ("sqrt", np.sqrt), ("rsq", lambda x: 1 / np.sqrt(x))):
        yield from _scalar_float(name, f)


def _scalar_float(name: str, f: Callable[[Array], Array]) -> Iterator[Snippet]:
    """v_s_*: a vector-unit function of one scalar."""
    for bits in (0x3FC00000, 0x40490FDB, 0x3E000000, 0x00000000, 0x7F800000):
        with np.errstate(all="ignore"):
            value = float(f(np.array(bits, U32).view(F32).astype(F64)))
        exact = np.array([value], F32).view(U32)[0]
        if exact & U32(0x007FFFFF) == 0:
            yield Snippet(
                f"v_s_{name}_f32 s20, s16", "int", lambda i, v=exact: {"sdst": np.full(len(i.exec), v, U32)},
                setup=f"s_mov_b32 s16, {bits:#x}",
            )  # fmt: skip


def _exponent(v: Array) -> Array:
    """The exponent field."""
    field = 0x7FF if v.dtype == F64 else 0xFF
    return (v.view(f"u{v.itemsize}") >> np.finfo(v.dtype).nmant).astype(I64) & field


def _fixup(q: Array, y: Array, x: Array, kind: str) -> Array:
    """v_div_fixup of quotient, denominator, numerator."""
    sign = np.signbit(y) ^ np.signbit(x)
    signed = lambda v: np.where(sign, -np.abs(v), np.abs(v)).astype(q.dtype)  # noqa: E731
    inf, zero, nan = (np.full(q.shape, v, q.dtype) for v in (np.inf, 0, np.nan))
    exponents = [np.frexp(np.abs(v).astype(F64))[1] for v in (x, y)]
    # The published steps would keep a NaN quotient, but that is what an overflow leaves, and C wants infinity.
    beyond = np.where(exponents[0] > exponents[1], inf, zero)
    out = signed(np.where(np.isnan(q), beyond, q))
    if kind != "f16":
        limit = -150 if kind == "f32" else -1075
        out = np.where(_exponent(x) - _exponent(y) < limit, signed(zero), out)
    out = np.where(np.isinf(y) | (x == 0), signed(zero), out)
    out = np.where((y == 0) | np.isinf(x), signed(inf), out)
    out = np.where((np.isinf(y) & np.isinf(x)) | ((y == 0) & (x == 0)), nan, out)
    return np.where(np.isnan(x) | np.isnan(y), nan, out)


def divisions() -> Iterator[Snippet]:
    for kind, regs in (
        ("f16", "v20, v10, v12, v14"),
        ("f32", "v20, v10, v12, v14"),
        ("f64", "v[20:21], v[10:11], v[12:13], v[14:15]"),
    ):

        def fixed(i: Inputs, kind: str = kind) -> dict[str, Array]:
            value = _fixup(*(typed(r, kind) for r in (i.a, i.b, i.c)), kind)
            bits = np.where(i.on, untyped(value, kind, i.d), i.d)
            return (
                {"d0": bits.astype(U32), "d1": (bits >> U64(32)).astype(U32)}
                if kind == "f64"
                else {"d0": bits.astype(U32)}
            )

        yield Snippet(f"v_div_fixup_{kind} {regs}", kind, fixed, comparison(kind))

    # With VCC set it also undoes the scaling of v_div_scale. The published factor, 2^32, cannot do that (v_div_scale
    # takes 2^64): that part is left to the sample kernels, whose quotients must be exact for operands of all exponents.
    def step(i: Inputs) -> dict[str, Array]:
        value = fma(*(typed(r, "f32") for r in (i.a, i.b, i.c)))
        return put(i, untyped(value, "f32", i.d)) | {"vcc": np.zeros(len(i.exec), U32)}

    setup = "s_mov_b32 vcc_lo, 0"
    yield Snippet("v_div_fmas_f32 v20, v10, v12, v14", "f32", step, comparison("f32"), setup=setup)


def mixed() -> Iterator[Snippet]:
    """v_fma_mix: op_sel_hi says which sources are f16, op_sel which half, neg_hi is the absolute value."""
    forms = [([0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]), ([1, 0, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0])]
    forms += [([0, 1, 0], [1, 1, 0], [1, 0, 1], [0, 1, 0]), ([1, 1, 0], [0, 1, 1], [0, 1, 0], [1, 1, 0])]
    for sel, half, neg, absolute in forms:

        def value(
            i: Inputs, sel: list[int] = sel, half: list[int] = half, neg: Any = neg, size: Any = absolute
        ) -> list[Array]:
            out = []
            for k, raw in enumerate((i.a, i.b, i.c)):
                x = typed(raw >> U64(16) if sel[k] else raw, "f16").astype(F32) if half[k] else typed(raw, "f32")
                x = np.abs(x) if size[k] else x
                out.append(-x if neg[k] else x)
            return out

        tail = ""
        sources = [
            ("-" if n else "") + (f"|{r}|" if a else r)
            for r, n, a in zip(("v10", "v12", "v14"), neg, absolute, strict=True)
        ]
        tail = f" op_sel:{sel} op_sel_hi:{half}"
        args = ", ".join(sources)
        yield Snippet(
            f"v_fma_mix_f32 v20, {args}{tail}",
            "f16",
            lambda i, v=value: put(i, untyped(fma(*v(i)), "f32", i.d)),
            comparison("f32"),
        )
        for where, shift in (("lo", 0), ("hi", 16)):

            def narrow(i: Inputs, v: Any = value, shift: int = shift) -> dict[str, Array]:
                bits = fma(*v(i)).astype(F16).view(np.uint16).astype(U64)
                keep = U64(0xFFFF0000 if shift == 0 else 0x0000FFFF)
                return put(i, i.d & keep | bits << U64(shift))

            yield Snippet(f"v_fma_mix{where}_f16 v20, {args}{tail}", "f16", narrow, _near_half(shift))


def _near_half(shift: int) -> Callable[[Array, Array], Array]:
    """Equal halves, or both NaN; the rest of the register equal."""
    inner = comparison("f16")
    assert inner

    def same(got: Array, want: Array) -> Array:
        rest = (got ^ want) & ~(U64(0xFFFF) << U64(shift)) == 0
        return rest & inner(got >> U64(shift) & U64(0xFFFF), want >> U64(shift) & U64(0xFFFF))

    return same


def dots() -> Iterator[Snippet]:
    for bits, name in ((8, "dot4_i32_iu8"), (4, "dot8_i32_iu4")):
        for neg in ([0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]):
            for clamp in (False, True):

                def value(i: Inputs, bits: int = bits, neg: list[int] = neg, clamp: bool = clamp) -> dict[str, Array]:
                    total = i.c.astype(U32).view(np.int32).astype(I64)
                    for at in range(0, 32, bits):
                        x, y = ((r >> U64(at) & U64((1 << bits) - 1)).astype(I64) for r in (i.a, i.b))
                        x, y = (
                            np.where(n & (v >> (bits - 1)), v - (1 << bits), v)
                            for n, v in zip(neg, (x, y), strict=False)
                        )
                        total = total + x * y
                    if clamp:
                        total = np.clip(total, -(2**31), 2**31 - 1)
                    return put(i, total & 0xFFFFFFFF)

                yield Snippet(f"v_{name} v20, v10, v12, v14 neg_lo:{neg}{' clamp' * clamp}", "int", value)


def eight_bit_floats() -> Iterator[Snippet]:
    for name, exponent in (("fp8", 4), ("bf8", 5)):

        def pair(i: Inputs, exponent: int = exponent, shift: int = 0) -> dict[str, Array]:
            codes = [(i.a >> U64(shift + 8 * k) & U64(255)).astype(U32) for k in range(2)]
            bits = [float8(c, exponent).view(U32).astype(U64) for c in codes]
            return put64(i, bits[0] | bits[1] << U64(32))

        def same(got: Array, want: Array) -> Array:
            one = comparison("f32")
            assert one
            return one(got & LOW, want & LOW) & one(got >> U64(32), want >> U64(32))

        yield Snippet(f"v_cvt_pk_f32_{name} v[20:21], v10", "int", pair, same)
        high = lambda i, p=pair: p(i, shift=16)  # noqa: E731
        yield Snippet(f"v_cvt_pk_f32_{name}_e64 v[20:21], v10 op_sel:[1,0]", "int", high, same)
        for k, sel in ((1, "[0,1]"), (2, "[1,0]"), (3, "[1,1]")):

            def single(i: Inputs, exponent: int = exponent, k: int = k) -> dict[str, Array]:
                return put(i, float8((i.a >> U64(8 * k) & U64(255)).astype(U32), exponent).view(U32))

            yield Snippet(f"v_cvt_f32_{name}_e64 v20, v10 byte_sel:{k}", "int", single, comparison("f32"))
            assert sel


def fused_constants() -> Iterator[Snippet]:
    k = np.array(0x40490FDB, U32).view(F32)
    x = lambda r: typed(r, "f32")  # noqa: E731
    out = lambda i, v: put(i, untyped(v, "f32", i.d))  # noqa: E731
    same = comparison("f32")
    yield Snippet("v_fmaak_f32 v20, v10, v12, 0x40490fdb", "f32", lambda i: out(i, fma(x(i.a), x(i.b), k)), same)
    yield Snippet("v_fmamk_f32 v20, v10, 0x40490fdb, v12", "f32", lambda i: out(i, fma(x(i.a), k, x(i.b))), same)
    h = np.array(0x4248, np.uint16).view(F16)
    y = lambda r: typed(r, "f16")  # noqa: E731
    half = lambda i, v: put(i, untyped(v, "f16", i.d))  # noqa: E731
    yield Snippet(
        "v_fmaak_f16 v20, v10, v12, 0x4248", "f16", lambda i: half(i, fma(y(i.a), y(i.b), h, F16)), comparison("f16")
    )
    yield Snippet(
        "v_fmamk_f16 v20, v10, 0x4248, v12", "f16", lambda i: half(i, fma(y(i.a), h, y(i.b), F16)), comparison("f16")
    )


def dual() -> Iterator[Snippet]:
    """Two operations at once: all sources are read before either result is written."""
    f = lambda r, hi=False: typed(r >> U64(32) if hi else r, "f32")  # noqa: E731
    halves: dict[str, tuple[str, str, Callable[[Inputs], Array]]] = {
        "mul": ("v_dual_mul_f32", "v10, v12", lambda i: f(i.a) * f(i.b)),
        "add": ("v_dual_add_f32", "v11, v13", lambda i: f(i.a, True) + f(i.b, True)),
        "sub": ("v_dual_sub_f32", "v11, v13", lambda i: f(i.a, True) - f(i.b, True)),
        "subrev": ("v_dual_subrev_f32", "v10, v12", lambda i: f(i.b) - f(i.a)),
        "max": ("v_dual_max_num_f32", "v10, v12", lambda i: np.fmax(f(i.a), f(i.b))),
        "min": ("v_dual_min_num_f32", "v11, v13", lambda i: np.fmin(f(i.a, True), f(i.b, True))),
        "fmac": ("v_dual_fmac_f32", "v10, v12", lambda i: fma(f(i.a), f(i.b), f(i.d))),
        "fmaak": ("v_dual_fmaak_f32", "v10, v12, 0x40490fdb", lambda i: fma(f(i.a), f(i.b), PI)),
        "mov": ("v_dual_mov_b32", "v11", lambda i: f(i.a, True)),
        "cnd": ("v_dual_cndmask_b32", "v11, v13", lambda i: np.where(i.carry, f(i.b, True), f(i.a, True))),
        "cnd0": ("v_dual_cndmask_b32", "v10, v12", lambda i: np.where(i.carry, f(i.b), f(i.a))),
    }  # fmt: skip
    integer: dict[str, tuple[str, str, Callable[[Inputs], Array]]] = {
        "inc": ("v_dual_add_nc_u32", "v11, v13", lambda i: (i.a >> U64(32)) + (i.b >> U64(32)) & LOW),
        "shl": ("v_dual_lshlrev_b32", "v11, v13", lambda i: (i.b >> U64(32)) << (i.a >> U64(32) & U64(31)) & LOW),
        "and": ("v_dual_and_b32", "v11, v13", lambda i: (i.a & i.b) >> U64(32)),
    }  # fmt: skip
    pairs = [
        ("mul", "add"),
        ("subrev", "sub"),
        ("max", "min"),
        ("fmac", "mov"),
        ("fmaak", "add"),
        ("cnd0", "sub"),
        ("mul", "cnd"),
    ]
    pairs += [("mul", "inc"), ("max", "shl"), ("cnd0", "and"), ("fmac", "inc")]
    one = comparison("f32")
    assert one

    def same(got: Array, want: Array) -> Array:
        return one(got & LOW, want & LOW) & one(got >> U64(32), want >> U64(32))

    for left, right in pairs:
        x, y = halves[left], (halves | integer)[right]

        def value(i: Inputs, x: Any = x, y: Any = y) -> dict[str, Array]:
            parts = [v[2](i) for v in (x, y)]
            bits = [p.view(U32).astype(U64) if p.dtype == F32 else p.astype(U64) for p in parts]
            return put64(i, bits[0] | bits[1] << U64(32))

        yield Snippet(f"{x[0]} v20, {x[1]} :: {y[0]} v21, {y[1]}", "f32", value, same)
    # Each half reads what the other one writes.
    cross = lambda i: put64(i, (i.d >> U64(32)) | (i.d & LOW) << U64(32))  # noqa: E731
    yield Snippet("v_dual_mov_b32 v20, v21 :: v_dual_mov_b32 v21, v20", "f32", cross)


TRUE16 = {"add": (0x32, lambda x, y: x + y), "sub": (0x33, lambda x, y: x - y), "mul": (0x35, lambda x, y: x * y)}


def high_halves() -> Iterator[Snippet]:
    """Sixteen-bit operations in their short form: a register field of 128 and more means the high half."""
    for name, (number, f) in TRUE16.items():
        for dst, first, second in ((0, 0, 1), (1, 1, 0), (1, 0, 0), (0, 1, 1)):
            word = number << 25 | (20 + 128 * dst) << 17 | (12 + 128 * second) << 9 | 256 + 10 + 128 * first

            def value(
                i: Inputs, f: Any = f, dst: int = dst, first: int = first, second: int = second
            ) -> dict[str, Array]:
                out = f(typed(i.a >> U64(16 * first), "f16"), typed(i.b >> U64(16 * second), "f16"))
                bits = out.view(np.uint16).astype(U64) << U64(16 * dst)
                return put(i, i.d & ~(U64(0xFFFF) << U64(16 * dst)) | bits)

            same = comparison("f16") if dst == 0 else _near_half(16)
            yield Snippet(
                f".long {word:#010x}", "f16", value, same, mnemonic=f"v_{name}_f16 with halves {dst}{first}{second}"
            )


def special_snippets() -> list[Snippet]:
    makers = (
        comparisons,
        carries,
        selects,
        lanes_and_scalars,
        divisions,
        mixed,
        dots,
        eight_bit_floats,
        fused_constants,
        dual,
        high_halves,
    )
    return [s for make in makers for s in make()]
