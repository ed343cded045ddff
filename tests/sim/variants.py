"""Makes snippets of vector instructions: each operation of the table with constants, modifiers, DPP, opsel and clamp.

Owns: which forms an operation is tried in, and what the forms mean. Does not own: the operations (`ops_vector`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.sim.asm import LANES, OLD_SDST, Inputs, Snippet
from tests.sim.exact import F16, F32, U32, U64, float8, fma
from tests.sim.ops_vector import OPS, Op, classes, dot, fraction
from tests.sim.optypes import PAIRS, SIGN, clamped, comparison, modified, typed, untyped, width

Array = np.ndarray[Any, Any]
REGISTERS = {"a": 10, "b": 12, "c": 14, "d": 20}
FLOATS = ("f16", "f32", "f64")
I64 = np.int64


def reg(operand: str, kind: str) -> str:
    first = REGISTERS[operand]
    return f"v[{first}:{first + 1}]" if width(kind) == 64 else f"v{first}"


def kind_of(op: Op) -> str:
    """Which pool of operand patterns suits the operation."""
    for name in ("f64", "f16", "f32", "h2"):
        if name in op.ins:
            return {"h2": "f16"}.get(name, name)
    return "int"


def result(
    op: Op, inputs: Inputs, raws: list[Array], on: Array, post: Callable[[Array], Array] | None = None
) -> dict[str, Array]:
    """Registers after the operation on these raw operands, in the lanes that are on."""
    values = [typed(r, k) for r, k in zip(raws, op.ins, strict=True)]
    value = op.f(*values)
    if post:
        value = post(np.asarray(value, values[0].dtype))
    bits = untyped(value, op.out, inputs.d)
    if width(op.out) == 32:
        bits = bits & U64(0xFFFFFFFF) | inputs.d & U64(0xFFFFFFFF00000000)
    bits = np.where(on, bits, inputs.d)
    return {"d0": bits.astype(U32), "d1": (bits >> U64(32)).astype(U32)}


def operands(op: Op, inputs: Inputs) -> list[Array]:
    names = "abc"[: len(op.ins) - op.reads_old]
    return [getattr(inputs, n) for n in names] + ([inputs.d] if op.reads_old else [])


def listed(op: Op) -> list[str]:
    """The assembler's operands: destination and sources."""
    count = len(op.ins) - op.reads_old
    return [reg("d", op.out)] + [reg(n, k) for n, k in zip("abc"[:count], op.ins, strict=False)]


def make(op: Op, text: str, expect: Callable[[Inputs], dict[str, Array]], setup: str = "") -> Snippet:
    same = same_float8 if op.name == "v_cvt_pk_bf8_f32" else comparison(op.out, *op.near)
    return Snippet(text, kind_of(op), expect, same, setup=setup)


def same_float8(got: Array, want: Array) -> Array:
    """Two E5M2 codes: which NaN a NaN becomes is not published."""
    one = comparison("f32")
    assert one
    good = (got ^ want) & U64(0xFFFFFFFFFFFF0000) == 0
    for at in (0, 8):
        values = [float8((v >> U64(at) & U64(255)).astype(U32), 5).view(U32).astype(U64) for v in (got, want)]
        good &= one(*values)
    return good


def plain(op: Op) -> Snippet:
    return make(op, f"{op.name} {', '.join(listed(op))}", lambda i: result(op, i, operands(op, i), i.on))


INLINE = {
    "f16": ("0.5", 0x3800), "f32": ("0.5", 0x3F000000), "f64": ("-4.0", 0xC010000000000000),
    "h2": ("2.0", 0x4000), "int": ("-7", 2**64 - 7),
}  # fmt: skip


def with_constants(op: Op) -> Iterator[Snippet]:
    """First source an inline constant, a literal, or a scalar register."""
    kind, args = op.ins[0], listed(op)
    name, bits = INLINE.get(kind, INLINE["int"])
    if kind in ("u64", "i64") or kind in PAIRS:
        return
    mask = 2 ** (64 if kind == "f64" else 16 if kind in ("f16", "u16", "i16") else 32) - 1
    literal = 0x4123 if mask == 0xFFFF else 0x40490FDB
    choices = [(name, bits & mask, ""), (f"{literal:#x}", literal << 32 if kind == "f64" else literal, "")]
    if kind != "f64":
        choices.append(("s16", 0xC0B51234 & mask, "s_mov_b32 s16, 0xc0b51234"))
        choices.append(("17", 17, ""))
    for text, value, setup in choices:

        def expect(i: Inputs, value: int = value) -> dict[str, Array]:
            raws = operands(op, i)
            return result(op, i, [np.full_like(raws[0], value), *raws[1:]], i.on)

        yield make(op, f"{op.name} {', '.join([args[0], text, *args[2:]])}", expect, setup)


def with_modifiers(op: Op) -> Iterator[Snippet]:
    """Negated and absolute sources, and clamp, of float operations."""
    count = len(op.ins) - op.reads_old
    suffix = "" if op.form == "3" else "_e64"
    if op.out in FLOATS and all(k in FLOATS for k in op.ins) or (op.ins[0] in FLOATS and count == 1):
        patterns = [
            [(i % 2 == 0, i % 2 == 1) for i in range(count)],
            [(True, True), (False, True), (True, False)][:count],
        ]
        for pattern in patterns:
            args = listed(op)
            for i, (negate, absolute) in enumerate(pattern):
                if op.ins[i] in FLOATS:
                    args[i + 1] = ("-" if negate else "") + (f"|{args[i + 1]}|" if absolute else args[i + 1])

            def expect(inputs: Inputs, pattern: Any = tuple(pattern)) -> dict[str, Array]:
                raws = operands(op, inputs)
                for k, (negate, absolute) in enumerate(pattern):
                    if op.ins[k] in FLOATS:
                        raws[k] = modified(raws[k], op.ins[k], negate, absolute)
                return result(op, inputs, raws, inputs.on)

            yield make(op, f"{op.name}{suffix} {', '.join(args)}", expect)
    if op.out in FLOATS and op.ins[0] == op.out and op.name not in UNCLAMPED:
        text = f"{op.name}{suffix} {', '.join(listed(op))} clamp"
        yield make(op, text, lambda i: result(op, i, operands(op, i), i.on, clamped))


# frexp_mant with clamp means nothing, and approximations are compared where they are exact enough anyway.
UNCLAMPED = {"v_frexp_mant_f16", "v_frexp_mant_f32", "v_frexp_mant_f64"}
SATURATING = {
    "v_add_nc_u32": lambda a, b: np.minimum(a.astype(I64) + b, 2**32 - 1),
    "v_sub_nc_u32": lambda a, b: np.maximum(a.astype(I64) - b, 0),
    "v_add_nc_i32": lambda a, b: np.clip(a.astype(I64) + b, -(2**31), 2**31 - 1),
    "v_sub_nc_i32": lambda a, b: np.clip(a.astype(I64) - b, -(2**31), 2**31 - 1),
    "v_add_nc_u16": lambda a, b: np.minimum(a.astype(I64) + b, 65535),
    "v_sub_nc_u16": lambda a, b: np.maximum(a.astype(I64) - b, 0),
    "v_add_nc_i16": lambda a, b: np.clip(a.astype(I64) + b, -32768, 32767),
    "v_sub_nc_i16": lambda a, b: np.clip(a.astype(I64) - b, -32768, 32767),
    "v_pk_add_u16": lambda a, b: np.minimum(a.astype(I64) + b, 65535),
    "v_pk_sub_u16": lambda a, b: np.maximum(a.astype(I64) - b, 0),
    "v_pk_add_i16": lambda a, b: np.clip(a.astype(I64) + b, -32768, 32767),
    "v_pk_sub_i16": lambda a, b: np.clip(a.astype(I64) - b, -32768, 32767),
}


def saturating(op: Op) -> Iterator[Snippet]:
    if op.name in SATURATING:
        other = Op(op.name, op.form, op.out, op.ins, SATURATING[op.name])
        text = f"{op.name}{'_e64' if op.form == '2' else ''} {', '.join(listed(op))} clamp"
        yield make(op, text, lambda i: result(other, i, operands(op, i), i.on))


def packed_forms(op: Op) -> Iterator[Snippet]:
    """op_sel and op_sel_hi pick halves; neg_lo and neg_hi negate them."""
    if op.form != "p" or op.ins[0] not in PAIRS:
        return
    n = len(op.ins)
    low, high = ([1, 0, 1][:n], [0, 1, 1][:n])

    def pick(raw: Array, i: int) -> Array:
        halves = [raw & U64(0xFFFF), raw >> U64(16) & U64(0xFFFF)]
        return halves[low[i]] | halves[high[i]] << U64(16)

    text = f"{op.name} {', '.join(listed(op))} op_sel:{low} op_sel_hi:{high}"
    yield make(op, text, lambda i: result(op, i, [pick(r, k) for k, r in enumerate(operands(op, i))], i.on))
    if op.out == "h2":
        neg_low, neg_high = [0, 1, 0][:n], [1, 1, 0][:n]
        signs = [U64(0x8000 * a + 0x80000000 * b) for a, b in zip(neg_low, neg_high, strict=True)]
        text = f"{op.name} {', '.join(listed(op))} neg_lo:{neg_low} neg_hi:{neg_high}"
        yield make(
            op, text, lambda i: result(op, i, [r ^ s for r, s in zip(operands(op, i), signs, strict=True)], i.on)
        )
        text = f"{op.name} {', '.join(listed(op))} clamp"
        yield make(op, text, lambda i: result(op, i, operands(op, i), i.on, clamped))


# The assembler offers op_sel for these only with true sixteen-bit registers.
NO_OP_SEL = {
    f"v_{n}"
    for n in "mul_lo_u16 min_i16 max_i16 min_u16 max_u16 lshlrev_b16 lshrrev_b16 and_b16 or_b16 xor_b16".split()
}
NO_OP_SEL |= {"v_ashrrev_i16"}


def half_selects(op: Op) -> Iterator[Snippet]:
    """op_sel of VOP3 sixteen-bit operations: high halves as sources and as destination."""
    sixteen = [k in ("f16", "u16", "i16") for k in op.ins]
    if op.form != "3" or op.name in NO_OP_SEL or not all(sixteen) or op.out not in ("f16", "u16", "i16"):
        return
    choice = [1, 0, 1][: len(op.ins)]

    def expect(i: Inputs) -> dict[str, Array]:
        raws = [r >> U64(16) if c else r for r, c in zip(operands(op, i), choice, strict=True)]
        value = untyped(op.f(*(typed(r, k) for r, k in zip(raws, op.ins, strict=True))), op.out, U64(0) * i.d)
        bits = np.where(i.on, value << U64(16) | i.d & U64(0xFFFFFFFF0000FFFF), i.d)
        return {"d0": bits.astype(U32)}

    def same(got: Array, want: Array) -> Array:
        inner = comparison(op.out)
        rest = (got ^ want) & U64(0xFFFF) == 0
        return rest & inner(got >> U64(16), want >> U64(16)) if inner else got == want

    text = f"{op.name} {', '.join(listed(op))} op_sel:{[*choice, 1]}"
    yield Snippet(text, kind_of(op), expect, same)


def dpp_sources(control: int) -> Array:
    from tests.sim.cases_lanes import dpp_source

    return dpp_source(control)


DPP = {
    "row_shr:1": 0x111, "row_shl:3": 0x103, "row_ror:5": 0x125, "quad_perm:[3,2,1,0]": 0x1B, "row_mirror": 0x140,
    "row_half_mirror": 0x141, "row_share:6": 0x156, "row_xmask:9": 0x169,
}  # fmt: skip


def dpp_result(
    op: Op, inputs: Inputs, control: int, rows: int, banks: int, bound: bool, inactive: bool
) -> dict[str, Array]:
    source = dpp_sources(control)
    at = np.maximum(source, 0)
    valid = np.broadcast_to(source >= 0, inputs.on.shape) & (inputs.on[:, at] | inactive)
    raws = operands(op, inputs)
    moved = np.where(valid, raws[0][:, at], U64(0))
    write = (rows >> LANES // 16 & 1 == 1) & (banks >> (LANES & 15) // 4 & 1 == 1)
    on = inputs.on & write & (valid | bound)
    return result(op, inputs, [moved, *raws[1:]], on)


def dpp_forms(op: Op, thorough: bool) -> Iterator[Snippet]:
    kinds = (*op.ins, op.out)
    if op.form not in ("1", "2") or any(width(k) == 64 for k in kinds):
        return
    settings = [("row_shr:1", 15, 15, False, False)]
    if thorough:
        settings += [(c, 15, 15, False, False) for c in DPP] + [(c, 15, 15, True, False) for c in DPP]
        settings += [
            ("row_ror:5", 15, 15, False, True),
            ("row_shr:1", 1, 15, True, True),
            ("row_shl:3", 2, 5, False, True),
        ]
        settings += [("row_xmask:9", 15, 10, True, False), ("quad_perm:[3,2,1,0]", 1, 3, False, False)]
    for control, rows, banks, bound, inactive in settings:
        text = f"{op.name}_dpp {', '.join(listed(op))} {control} row_mask:{rows:#x} bank_mask:{banks:#x}"
        text += " bound_ctrl:1" * bound + " fi:1" * inactive
        setting = DPP[control], rows, banks, bound, inactive
        yield make(op, text, lambda i, s=setting: dpp_result(op, i, *s))
    if thorough:
        for inactive in (False, True):
            lanes = [7, 6, 1, 0, 3, 3, 2, 5]
            at = (LANES & ~7) + np.array(lanes)[LANES & 7]

            def expect(i: Inputs, at: Array = at, inactive: bool = inactive) -> dict[str, Array]:
                raws = operands(op, i)
                return result(op, i, [np.where(i.on[:, at] | inactive, raws[0][:, at], U64(0)), *raws[1:]], i.on)

            text = f"{op.name}_dpp {', '.join(listed(op))} dpp8:[{','.join(map(str, lanes))}]" + " fi:1" * inactive
            yield make(op, text, expect)


THOROUGH_DPP = ("v_mov_b32", "v_add_f32", "v_add_nc_u32", "v_max_num_f32", "v_add_f16")


def all_forms(op: Op) -> Iterator[Snippet]:
    yield plain(op)
    if op.form in ("1", "2"):
        yield from with_constants(op)
    yield from with_modifiers(op)
    yield from saturating(op)
    yield from packed_forms(op)
    yield from half_selects(op)
    yield from dpp_forms(op, op.name in THOROUGH_DPP)


def table_snippets() -> list[Snippet]:
    return [s for op in OPS for s in all_forms(op)]


__all__ = ["F16", "F32", "OLD_SDST", "SIGN", "classes", "dot", "fma", "fraction", "table_snippets"]
