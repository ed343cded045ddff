"""SMEM, GLOBAL, FLAT, SCRATCH and DS.

Owns: addressing, sizes of elements, atomics' functions, and which call of the sim_*.h headers does an access. In
weak memory
mode the same accesses go to the stand-in's model, and results land in registers only at the matching wait.
"""

from __future__ import annotations

import re

from ..decode import NULL, Inst
from ..emit import Body

# Suffix of an atomic → (C type, bytes, statements over old, x and y that set r).
ATOMICS: dict[str, tuple[str, int, str]] = {
    "cond_sub_u32": ("u32", 4, "r = old >= x ? old - x : old"),
    "sub_clamp_u32": ("u32", 4, "r = old >= x ? old - x : 0"),
    "add_f32": ("u32", 4, "r = of_f(as_f(old) + as_f(x))"),
    "min_num_f32": ("u32", 4, "r = ((V)min_f((VF)SP(old), (VF)SP(x)))[0]"),
    "max_num_f32": ("u32", 4, "r = ((V)max_f((VF)SP(old), (VF)SP(x)))[0]"),
    "min_num_f64": ("u64", 8, "r = ((VQ)min_d((VD)SPQ(old), (VD)SPQ(x)))[0]"),
    "max_num_f64": ("u64", 8, "r = ((VQ)max_d((VD)SPQ(old), (VD)SPQ(x)))[0]"),
    "pk_add_f16": ("u32", 4, "r = of_h(as_h(old) + as_h(x)) | of_h(as_h(old >> 16) + as_h(x >> 16)) << 16"),
    "pk_add_bf16": (
        "u32",
        4,
        "r = f32_to_bf16(as_f(old << 16) + as_f(x << 16))"
        " | f32_to_bf16(as_f(old & 0xffff0000u) + as_f(x & 0xffff0000u)) << 16",
    ),
}
for _w, _bytes in (("32", 4), ("64", 8)):
    _u, _i = f"u{_w}", f"i{_w}"
    for _name, _code in {
        "swap_b": "r = x", "storexchg_b": "r = x", "cmpswap_b": "r = old == y ? x : old",
        "cmpstore_b": "r = old == y ? x : old",
        "and_b": "r = old & x", "or_b": "r = old | x", "xor_b": "r = old ^ x", "mskor_b": "r = (old & ~x) | y",
    }.items():  # fmt: skip
        ATOMICS[f"{_name}{_w}"] = (_u, _bytes, _code)
    for _name, _code in {
        "add_u": "r = old + x", "sub_u": "r = old - x", "rsub_u": "r = x - old", "inc_u": "r = old >= x ? 0 : old + 1",
        "dec_u": "r = old == 0 || old > x ? x : old - 1", "min_u": "r = x < old ? x : old",
        "max_u": "r = x > old ? x : old",
    }.items():  # fmt: skip
        ATOMICS[f"{_name}{_w}"] = (_u, _bytes, _code)
    ATOMICS[f"min_i{_w}"] = (_i, _bytes, "r = x < old ? x : old")
    ATOMICS[f"max_i{_w}"] = (_i, _bytes, "r = x > old ? x : old")
NEEDS_Y = ("cmpswap", "cmpstore", "mskor")


def width(name: str) -> tuple[str, int, int, bool, bool]:
    """(element "u8" "i8" "u16" "i16" or "", bytes, registers, half written only, upper half) of a load or store."""
    half, high = "d16" in name, "d16_hi" in name
    match = re.search(r"_([ubi])(\d+)(?:_d16(?:_hi)?)?$", name)
    assert match is not None
    kind, bits = match[1], int(match[2])
    if bits < 32:
        return f"{'i' if kind == 'i' else 'u'}{bits}", bits // 8, 1, half, high
    return "", bits // 8, bits // 32, False, False


def address(body: Body, inst: Inst) -> str:
    """Declare `a`, the addresses of a GLOBAL instruction."""
    f = inst.f
    if f["saddr"] != NULL:
        return f"Ad a = ad_s({body.scalar(f['saddr'], 'q')}, {body.v(f['vaddr'])}, {f['ioffset']}ll);"
    pair = f"{body.v(f['vaddr'])}, {body.v(f['vaddr'] + 1)}"
    return f"Ad a = ad_v(w, exec, {inst.address:#x}, {pair}, {f['ioffset']}ll);"


def pc(body: Body) -> str:
    """The address of the present instruction, as C."""
    assert body.inst is not None
    return f"{body.inst.address:#x}"


def count(body: Body, counter: str) -> None:
    """An instruction that a wait counts and that brings nothing to a register."""
    body.line(f"w->rt->weak_pending(w, {counter}, LAND_NOTHING, 0, 0, 0, 0, {pc(body)});")


def hold(body: Body, registers: int, first: int) -> None:
    """FLAT counts in both counters: what it loads is there when both were waited for."""
    if registers:
        body.reach_v(first, registers)
        what = f"PENDING_DS, LAND_HOLD, {first}, {registers}, exec, 0"
        body.line(f"w->rt->weak_pending(w, {what}, {pc(body)});")
    else:
        count(body, "PENDING_DS")


def land(body: Body, registers: int, first: int, half: bool, high: bool, counter: str) -> None:
    """Move the loaded r[] to its registers: now, or at the wait."""
    if body.weak:
        body.reach_v(first, registers)
        what = "LAND_HIGH" if high else "LAND_LOW" if half else "LAND_V"
        body.line(f"w->rt->weak_pending(w, {counter}, {what}, {first}, {registers}, exec, (const u32 *)r, {pc(body)});")
        return
    if half:
        body.line(f"r[0] = set_{'hi' if high else 'lo'}16({body.v(first)}, lo16(r[0]));")
    for i in range(registers):
        body.write_vector(first + i, "u", f"r[{i}]")


def load(body: Body, inst: Inst) -> None:
    element, size, registers, half, high = width(inst.name)
    head = f"w, exec, {body.site()}, {inst.address:#x}, a"
    body.line(f"{{ {address(body, inst)} V r[{registers}];")
    if body.weak:
        signed = int(element.startswith("i"))
        body.line(f"weak_gload({head}, {size}, {signed}, {inst.f['scope']}, r);")
    elif element:
        body.line(f"r[0] = gload_{element}({head});")
    else:
        body.line(f"gload_{registers}({head}, r);")
    land(body, registers, inst.f["vdst"], half, high, "PENDING_LOAD")
    body.line("}")


def store(body: Body, inst: Inst) -> None:
    element, size, registers, _, high = width(inst.name)
    first = inst.f["vsrc"]
    head = f"w, exec, {body.site()}, {inst.address:#x}, a"
    data = [body.v(first + i) for i in range(registers)]
    if high:
        data = [f"{data[0]} >> 16"]
    body.line(f"{{ {address(body, inst)}")
    if body.weak:
        body.line(f"V x[{registers}] = {{{', '.join(data)}}}; weak_gstore({head}, {size}, {inst.f['scope']}, x);")
    elif element or registers == 1:
        body.line(f"gstore_{element or 'b32'}({head}, {data[0]});")
    else:
        body.line(f"V x[{registers}] = {{{', '.join(data)}}}; gstore_n({head}, {registers}, x);")
    body.line("}")


def operation(body: Body, suffix: str) -> str:
    """The name of a function that makes an atomic's new value from the old one, data and comparand."""
    kind, size, code = ATOMICS[suffix]
    name, result = f"op_{suffix}", "u32" if size == 4 else "u64"
    values = f"{kind} old = ({kind})old_, x = ({kind})x_, y = ({kind})y_, r; (void)x, (void)y;"
    body.functions[name] = f"static u64 {name}(u64 old_, u64 x_, u64 y_) {{ {values} {code}; return ({result})r; }}"
    return name


def atomic(body: Body, inst: Inst, suffix: str) -> None:
    """GLOBAL and FLAT atomics; th bit 0 asks for the old value."""
    f = inst.f
    kind, size, code = ATOMICS[suffix]
    words, first = size // 4, f["vsrc"]
    returns = f["th"] & 1

    def lane(at: int) -> str:
        parts = [f"{body.v(at + i)}[l]" for i in range(words)]
        return f"({kind})pair({parts[0]}, {parts[1]})" if words == 2 else f"({kind}){parts[0]}"

    second = lane(first + words) if suffix.startswith(NEEDS_Y) else "0"
    site = body.site()
    is_flat = inst.fmt == "FLAT"
    where = flat_address(body, inst) if is_flat else address(body, inst)
    body.line(f"{{ {where} Site *site = {site}; const u32 pc = {inst.address:#x}; V r_[{words}];")
    for i in range(words):
        body.line(f"r_[{i}] = SP(0);")
    keep = "r_[0][l] = (u32)old" + ("; r_[1][l] = (u32)((u64)old >> 32)" if words == 2 else "")
    body.line("#undef RETURN_OLD")
    body.line(f"#define RETURN_OLD {keep}")
    rest = f"{kind}, {kind}, {size}, {lane(first)}, {second}, {code})"
    to_global, to_lds = f"ATOMIC_LOOP({rest}", f"LDS_ATOMIC_LOOP({rest}"
    if body.weak and returns:
        to_global, to_lds = f"WEAK_ATOMIC_LOOP({f['scope']}, {rest}", f"w->rt->weak_lds_drain(w); {to_lds}"
    elif body.weak:
        rest = f"{size}, {lane(first)}, {second}, {operation(body, suffix)})"
        to_global, to_lds = f"WEAK_ATOMIC_DEFER({f['scope']}, {rest}", f"WEAK_LDS_DEFER({rest}"
    if is_flat:
        # Each memory's lanes in a block where EXEC is theirs. With no lane it still counts as a store.
        body.line("const u32 lds = flat_lds(exec, at64), other = flat_global(w, exec, pc, at64);")
        body.line(f"{{ const u32 exec = other; Ad a = flat_ad(w, exec, pc, at64); {to_global} }}")
        body.line(f"if (lds) {{ const u32 exec = lds; V at = low_v(at64); {to_lds} }}")
    else:
        body.line(to_global)
    if returns:
        body.line("V *r = r_;")
        land(body, words, f["vdst"], False, False, "PENDING_LOAD")
    if body.weak and is_flat:
        hold(body, words if returns else 0, f["vdst"])
    body.line("}")


def flat_address(body: Body, inst: Inst) -> str:
    """Declare `at64`, the 64-bit addresses of a FLAT instruction."""
    f = inst.f
    if f["saddr"] != NULL:
        base = f"SPQ({body.scalar(f['saddr'], 'q')}) + CVT({body.v(f['vaddr'])}, VQ)"
    else:
        base = f"pair_v({body.v(f['vaddr'])}, {body.v(f['vaddr'] + 1)})"
    return f"VQ at64 = {base} + (u64){f['ioffset']}ll;"


def scratch(body: Body, inst: Inst) -> None:
    f = inst.f
    parts = [f"(u32)({f['ioffset']})"]
    if f["sve"]:
        parts.append(body.v(f["vaddr"]))
    if f["saddr"] != NULL:
        parts.append(body.scalar(f["saddr"]))
    element, size, registers, half, high = width(inst.name)
    body.line(f"{{ V off = SP(0) + {' + '.join(parts)};")
    if "load" in inst.name:
        body.line(f"V r[{registers}];")
        for i in range(registers):
            body.line(f"r[{i}] = SP(0);")
        body.line(f"scratch_load(w, exec, {inst.address:#x}, off, {size}, {int(element.startswith('i'))}, r);")
        land(body, registers, f["vdst"], half, high, "PENDING_LOAD")
    else:
        data = [body.v(f["vsrc"] + i) for i in range(registers)]
        if high:
            data = [f"{data[0]} >> 16"]
        body.line(f"V x[{registers}] = {{{', '.join(data)}}};")
        body.line(f"scratch_store(w, exec, {inst.address:#x}, off, {size}, x);")
        if body.weak:
            count(body, "PENDING_STORE")
    body.line("}")


def flat(body: Body, inst: Inst) -> None:
    """FLAT: lanes whose address lies in an aperture go to LDS or scratch, the others to global memory."""
    f = inst.f
    element, size, registers, half, high = width(inst.name)
    signed = int(element.startswith("i"))
    body.line(f"{{ {flat_address(body, inst)} Site *site = {body.site()};")
    weak = f", {f['scope']}"
    if "load" in inst.name:
        body.line(f"V r[{registers}]; flat_load(w, exec, site, {inst.address:#x}, at64, {size}, {signed}{weak}, r);")
        land(body, registers, f["vdst"], half, high, "PENDING_LOAD")
    else:
        data = [body.v(f["vsrc"] + i) for i in range(registers)]
        if high:
            data = [f"{data[0]} >> 16"]
        body.line(f"V x[{registers}] = {{{', '.join(data)}}};")
        body.line(f"flat_store(w, exec, site, {inst.address:#x}, at64, {size}{weak}, x);")
    if body.weak:
        hold(body, registers if "load" in inst.name else 0, f["vdst"])
    body.line("}")


def vmem(body: Body, inst: Inst) -> bool:
    name, f = inst.name, inst.f
    if name in ("global_inv", "global_wb", "global_wbinv"):
        if body.weak:
            if name != "global_inv":
                body.line(f"w->rt->weak_wb(w, {f['scope']});")
                count(body, "PENDING_STORE")
            if name != "global_wb":
                body.line(f"w->rt->weak_inv(w, {f['scope']});")
                count(body, "PENDING_LOAD")
        return True
    match = re.fullmatch(r"(global|flat)_atomic_(\w+)", name)
    if match and match[2] in ATOMICS:
        atomic(body, inst, match[2])
    elif re.search(r"_(block|addtid_b32|tr_b\d+)$", name):
        return False
    elif inst.fmt == "SCRATCH":
        scratch(body, inst)
    elif inst.fmt == "FLAT":
        flat(body, inst)
    elif "_load_" in name:
        load(body, inst)
    elif "_store_" in name:
        store(body, inst)
    else:
        return False
    return True


def smem(body: Body, inst: Inst) -> bool:
    """Scalar loads. In weak memory mode the registers hold nothing until s_wait_kmcnt 0."""
    f, name = inst.f, inst.name
    if name == "s_dcache_inv":
        if body.weak:
            body.line("w->rt->weak_inv(w, WEAK_SCALAR);")
        return True
    match = re.fullmatch(r"s_load_([bui])(\d+)", name)
    if not match:
        return False
    bits = int(match[2])
    words, first = max(bits // 32, 1), f["sdata"]
    parts = [body.scalar(f["sbase"] * 2, "q"), f"(u64){f['ioffset']}ll"]
    if f["soffset"] != NULL:
        parts.append(body.scalar(f["soffset"]))
    site = body.site()
    body.line(f"{{ u64 p = scalar_at(w, {site}, {inst.address:#x}, {' + '.join(parts)}, {bits // 8}); u32 r[{words}];")
    if body.weak:
        body.line(f"weak_scalar_load(w, {inst.address:#x}, p, {bits // 8}, {f['scope']}, (u8 *)r);")
    else:
        body.line(f"__builtin_memcpy(r, (const void *)p, {bits // 8});")
    if bits < 32:
        kind = f"{'i' if match[1] == 'i' else 'u'}{bits}"
        body.line(f"r[0] = (u32)({kind})r[0];")
    if body.weak:
        body.reach_s(first, words)
        body.line(f"w->rt->weak_pending(w, PENDING_SCALAR, LAND_S, {first}, {words}, ~0u, r, {pc(body)});")
    else:
        for i in range(words):
            body.write_scalar(first + i, "u", f"r[{i}]")
    body.line("}")
    return True


def ds_atomic(body: Body, inst: Inst, suffix: str, returns: bool) -> None:
    f = inst.f
    kind, size, code = ATOMICS[suffix]
    words = size // 4

    def lane(at: int) -> str:
        parts = [f"{body.v(at + i)}[l]" for i in range(words)]
        return f"({kind})pair({parts[0]}, {parts[1]})" if words == 2 else f"({kind}){parts[0]}"

    second = lane(f["data1"]) if suffix.startswith(NEEDS_Y) else "0"
    body.line(
        f"{{ V at = {body.v(f['addr'])} + {f['offset0'] | f['offset1'] << 8}u;"
        f" const u32 pc = {inst.address:#x}; V r_[{words}];"
    )
    for i in range(words):
        body.line(f"r_[{i}] = SP(0);")
    keep = "r_[0][l] = (u32)old" + ("; r_[1][l] = (u32)((u64)old >> 32)" if words == 2 else "")
    body.line("#undef RETURN_OLD")
    body.line(f"#define RETURN_OLD {keep}")
    if body.weak and not returns:
        body.line(f"WEAK_LDS_DEFER({size}, {lane(f['data0'])}, {second}, {operation(body, suffix)})")
    else:
        if body.weak:
            body.line("w->rt->weak_lds_drain(w);")
        body.line(f"LDS_ATOMIC_LOOP({kind}, {kind}, {size}, {lane(f['data0'])}, {second}, {code})")
    if returns:
        body.line("V *r = r_;")
        land(body, words, f["vdst"], False, False, "PENDING_DS")
    elif body.weak:
        count(body, "PENDING_DS")
    body.line("}")


def ds_two(body: Body, inst: Inst) -> None:
    """ds_load_2addr and ds_store_2addr: two elements at offsets counted in elements."""
    f, name = inst.f, inst.name
    words = 2 if name.endswith("b64") else 1
    scale = words * 4 * (64 if "stride64" in name else 1)
    pc = f"{inst.address:#x}"
    places = [f"{body.v(f['addr'])} + {f[key] * scale}u" for key in ("offset0", "offset1")]
    if "load" in name:
        body.line(f"{{ V r[{2 * words}];")
        if body.weak:
            body.line("w->rt->weak_lds_drain(w);")
        for i, place in enumerate(places):
            body.line(f"lload_{words}(w, exec, {pc}, {place}, r + {i * words});")
            if body.weak:
                body.line(f"lds_note(w, exec, {place}, {4 * words}, 0);")
        land(body, 2 * words, f["vdst"], False, False, "PENDING_DS")
    else:
        body.line("{")
        for place, key in zip(places, ("data0", "data1"), strict=True):
            data = ", ".join(body.v(f[key] + i) for i in range(words))
            body.line(f"{{ V x[{words}] = {{{data}}}; lstore(w, exec, {pc}, {place}, {4 * words}, x); }}")
        if body.weak:
            count(body, "PENDING_DS")
    body.line("}")


def swizzle_lanes(body: Body, offset: int) -> tuple[int, ...]:
    """Source lane of each lane for ds_swizzle."""
    if offset & 0x8000:
        if offset >= 0xE000:
            mask = offset & 31
            shift = bin(mask).count("1")
            found = []
            for i in range(32):
                j = int(f"{i:05b}"[::-1], 2) >> shift
                found.append((j | i & mask) & 31)
            return tuple(found)
        if offset >= 0xC000:
            count, mask = offset >> 5 & 31, offset & 31
            if offset >> 10 & 1:
                count = 32 - count
            return tuple(i & mask | (i + count) & ~mask & 31 for i in range(32))
        return tuple(i & ~3 | offset >> 2 * (i & 3) & 3 for i in range(32))
    keep, either, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return tuple(((i & keep) | either) ^ flip for i in range(32))


def ds_lanes(body: Body, inst: Inst) -> bool:
    """DS instructions that move data between lanes and touch no LDS."""
    f, name = inst.f, inst.name
    offset = f["offset0"] | f["offset1"] << 8
    if name == "ds_swizzle_b32":
        lanes = swizzle_lanes(body, offset)
        numbers = ", ".join(map(str, lanes))
        data = body.v(f["addr"])
        text = f"__builtin_shufflevector({data}, {data}, {numbers})"
        ok = f"(exec == ~0u ? ~0u : permute_bits(exec, {body.table(lanes)}))"
        text = f"sel({ok}, {text}, SP(0))"
    elif name in ("ds_bpermute_b32", "ds_bpermute_fi_b32"):
        text = f"bpermute(exec, {body.v(f['addr'])} + {offset}u, {body.v(f['data0'])}, {int('_fi_' in name)})"
    elif name == "ds_permute_b32":
        text = f"permute(exec, {body.v(f['addr'])} + {offset}u, {body.v(f['data0'])})"
    else:
        return False
    body.line(f"{{ V r[1] = {{{text}}};")
    land(body, 1, f["vdst"], False, False, "PENDING_DS")
    body.line("}")
    return True


def ds(body: Body, inst: Inst) -> bool:
    f, name = inst.f, inst.name
    offset = f["offset0"] | f["offset1"] << 8
    if name == "ds_nop" or ds_lanes(body, inst):
        return True
    suffix = name.removeprefix("ds_").replace("_rtn", "")
    if "_addtid_" in name or name in ("ds_append", "ds_consume"):
        return False
    if suffix in ATOMICS:
        ds_atomic(body, inst, suffix, "_rtn" in name)
    elif "_2addr_" in name and "xchg" not in name:
        ds_two(body, inst)
    elif name.startswith("ds_load_"):
        element, size, registers, half, high = width(name)
        head = f"w, exec, {inst.address:#x}, {body.v(f['addr'])} + {offset}u"
        body.line(f"{{ V r[{registers}];")
        if body.weak:
            body.line("w->rt->weak_lds_drain(w);")
        if element:
            body.line(f"r[0] = lload_small({head}, {size}, {int(element.startswith('i'))});")
        else:
            body.line(f"lload_{registers}({head}, r);")
        if body.weak:
            at = f"{body.v(f['addr'])} + {offset}u"
            body.line(f"lds_note(w, exec, {at}, {size}, {int(element.startswith('i'))});")
        land(body, registers, f["vdst"], half, high, "PENDING_DS")
        body.line("}")
    elif name.startswith("ds_store_"):
        _, size, registers, _, high = width(name)
        data = [body.v(f["data0"] + i) for i in range(registers)]
        if high:
            data = [f"{data[0]} >> 16"]
        body.line(f"{{ V x[{registers}] = {{{', '.join(data)}}};")
        body.line(f"lstore(w, exec, {inst.address:#x}, {body.v(f['addr'])} + {offset}u, {size}, x); }}")
        if body.weak:
            count(body, "PENDING_DS")
    else:
        return False
    return True


def emit(body: Body, inst: Inst) -> bool:
    """Translate a memory instruction; False if this module does not know it."""
    if inst.fmt == "SMEM":
        return smem(body, inst)
    if inst.fmt == "DS":
        return ds(body, inst)
    if inst.fmt in ("GLOBAL", "FLAT", "SCRATCH"):
        return vmem(body, inst)
    return False
