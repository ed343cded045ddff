"""Small C loops of the kinds that the engine is made of, as one program that prints what each computes.

Owns: which loops there are, and compiling and running the program with given flags. A loop is a function
`int64_t f(p, q, o, n, w)`: p and q are 8192 random bytes, o a small offset, n a count of at most 64, w 4096 bytes to
write; the program prints a line for each: its name, and a hash of what it returned and wrote for many o and n.
Does not own: which flags are right (see `scripts/build_kernels.py`).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from scripts import build_kernels

TYPES = ("u8", "i8", "u16", "i16")
INDICES = {
    "plain": "v", "twice": "2 * v", "half": "v / 2", "back": "63 - v", "at_once": "v + 16",
    "and3": "(v & 3)", "and7": "(v & 7)", "and15": "(v & 15)", "mod4": "v % 4", "mod16": "v % 16",
    "narrow": "(u8)(9 * v)",
    "and15_back": "15 - (v & 15)",
}  # fmt: skip
VALUES = {
    "code": "A", "nibble": "(A >> (v & 16 ? 4 : 0) & 15)", "centred": "((A >> (v >= 16 ? 4 : 0) & 15) - 8)",
    "bits": "(A >> (v & 7) & 1)", "looked_up": "table[A & 15]", "shifted": "(A << (v & 3))",
}  # fmt: skip
COUNTS = ("8", "16", "24", "32", "48", "64", "n")
RANDOM = 120
MARK = '_Pragma("clang loop vectorize(enable) interleave(enable)") '

HEAD = """\
#include <stdint.h>
#include <string.h>
typedef uint8_t u8 __attribute__((may_alias)); typedef int8_t i8 __attribute__((may_alias));
typedef uint16_t u16 __attribute__((may_alias)); typedef int16_t i16 __attribute__((may_alias));
typedef int32_t i32 __attribute__((may_alias)); typedef float f32 __attribute__((may_alias));
static const i8 table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
#define LOOP(name) int64_t name(const uint8_t *p, const uint8_t *q, uint32_t o, uint32_t n, uint8_t *w)
#define KEEP (void)p, (void)q, (void)o, (void)n, (void)w
"""
MAIN = """
static uint64_t hash(uint64_t h, const uint8_t *p, int n)
{
    for (int i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}
int main(void)
{
    static uint8_t p[8192], q[8192], w[4096];
    uint32_t s = 1;
    for (int i = 0; i < 8192; i++) {
        p[i] = (uint8_t)((s = s * 1664525u + 1013904223u) >> 24);
        q[i] = (uint8_t)((s = s * 1664525u + 1013904223u) >> 24);
    }
    for (unsigned f = 0; f < sizeof all / sizeof *all; f++) {
        uint64_t h = 0xcbf29ce484222325u;
        for (uint32_t i = 0; i < 24; i++) {
            memset(w, 7, sizeof w);
            const int64_t r = all[f].run(p + 64 * i, q + 32 * i, i % 13, i < 2 ? i : 64 - 2 * i, w);
            h = hash(hash(h, (const uint8_t *)&r, 8), w, sizeof w);
        }
        printf("%s %016llx\\n", all[f].name, (unsigned long long)h);
    }
    return 0;
}
"""


def _dots() -> Iterator[tuple[str, str]]:
    """Integer products and sums, smallest, largest and differences, of random types, indices, lengths and counters."""
    rng = np.random.default_rng(12)
    for i in range(RANDOM):
        a, b = (str(t) for t in rng.choice(TYPES, 2))
        x, y = (str(k) for k in rng.choice(list(INDICES), 2))
        value = str(rng.choice(list(VALUES)))
        count, counter = str(rng.choice(COUNTS)), str(rng.choice(["uint32_t", "int", "int64_t", "uint8_t", "uint16_t"]))
        base = str(rng.choice(["0", "o", "o * 16", "256"]))
        left = VALUES[value].replace("A", f"(int)a[{base} + {INDICES[x]}]")
        right = f"(int)b[{INDICES[y]}]"
        step = [
            "e += L * R", "e += L * R", "e += L * R", "e = L + R < e ? L + R : e", "e = L - R > e ? L - R : e",
            "e += L > R ? L - R : R - L",
        ][int(rng.integers(6))].replace("L", left).replace("R", right)  # fmt: skip
        yield (
            f"dot{i}_{a}_{b}_{x}_{y}_{value}_{count}",
            f"const {a} *a = (const {a} *)p; const {b} *b = (const {b} *)q; int e = 0;\n"
            f"    for ({counter} v = 0; v < ({counter}){count}; v++) {step};\n    return e;",
        )


def _runs() -> Iterator[tuple[str, str]]:
    """Integer products of 32 codes, summed as floats, with a fresh sum for each 16: where the fault was found."""
    for low, high in (("by & 15", "by >> 4"), ("by >> 4", "by & 15")):
        for stride in (36, 64, 144):
            yield (
                f"runs_{stride}_{'low' if low == 'by & 15' else 'high'}",
                f"""const i8 *x = (const i8 *)q; float tot = 0, acc = 0;
    for (unsigned b = 0; b < 32; b++) {{
        const i8 *c = x + b * 32; const uint8_t *t = p + b * {stride}u; int e = 0;
        for (unsigned v = 0; v < 32; v++) {{
            unsigned by = t[o * 16 + (v & 15)];
            e += ((int)(v >> 4 ? {high} : {low}) - 8) * c[v];
        }}
        acc += (float)e;
        if ((b + 1) % 16 == 0) {{ tot = b + 1 == 16 ? acc : tot + acc; acc = 0; }}
    }}
    memcpy(w, &tot, 4); return 0;""",
            )


def _stores() -> Iterator[tuple[str, str]]:
    """Loops that write: a key that repeats, a ring, narrow counters, and copies between types."""
    bodies = {
        "key": "for (uint32_t i = 0; i < (size_t)16 * n; i++) w[i] ^= p[i % 4];",
        "key_size": "size_t m = 9 * n; for (uint32_t i = 0; i < m; i++) w[i] ^= p[o + i % 8];",
        "ring": "for (uint32_t i = 0; i < 4 * n; i++) w[o + (i & 31)] = p[i];",
        "ring_f": "f32 *y = (f32 *)w; const i16 *x = (const i16 *)p;\n"
        "    for (uint32_t i = 0; i < 8 * n; i++) y[i] = (float)x[o + (i & 63)];",
        "narrow": "for (uint16_t i = 0; i < 8 * n; i++) w[(u8)(o + i)] = p[(u8)i];",
        "widen": "i32 *y = (i32 *)w; for (int i = 0; i < (int)(8 * n); i++) y[i] = ((const i8 *)p)[o + (unsigned)i];",
        "nibbles": "for (int i = 0; i < 64; i++) w[i] = p[o + (unsigned)(i & 31)] >> (i & 32 ? 4 : 0) & 15;",
    }
    for name, body in bodies.items():
        for how, mark in (("plain", ""), ("restrict", "uint8_t *restrict d = w; ")):
            text = body.replace("w[", "d[") if mark and "(f32 *)w" not in body and "(i32 *)w" not in body else body
            yield f"store_{name}_{how}", f"{mark if text != body else ''}{text}\n    return 0;"


def _elements() -> Iterator[tuple[str, str]]:
    """The bits of one element of a vector, through a variable of its type. DIRECT: as it is not to be done."""
    for lanes in (4, 8, 16):
        for at in ("0", "1", f"{lanes - 1}", f"(o + n) % {lanes}"):
            yield (
                f"element_{lanes}_{'x' if 'o' in at else at}",
                f"typedef float vec __attribute__((vector_size({4 * lanes}))); vec v; memcpy(&v, p, sizeof v);\n"
                f"    const float x = v[{at}]; return __builtin_bit_cast(int32_t, x);",
            )


def _marked() -> Iterator[tuple[str, str]]:
    """Loops as they may be marked: straight counters. Sums of floats must keep their order."""
    head = "f32 *y = (f32 *)w; const i16 *a = (const i16 *)p; const i8 *b = (const i8 *)q;\n    "
    bodies = {
        "product": f"{MARK}for (int i = 0; i < 256; i++) y[i] = (float)a[i] * (float)b[o + (unsigned)i]; return 0;",
        "scaled": f"int64_t m = 8 * n; {MARK}for (int64_t i = 0; i < m; i++) y[i] = (float)a[i] * 0.37f; return 0;",
        "integers": f"int e = 0; {MARK}for (int i = 0; i < (int)n; i++) e += a[i] * b[i]; return e;",
        "floats": f"float e = 0; int m = (int)(8 * n);\n    {MARK}for (int i = 0; i < m; i++) e += (float)a[i] * 0.4f; "
        "    memcpy(w, &e, 4); return 0;",
        "chosen": f"int m = (int)n; {MARK}for (int i = 0; i < 64; i++) y[i] = i >= 3 && i < m ? (float)a[i] : -1; "
        "return 0;",
    }
    for name, body in bodies.items():
        yield f"marked_{name}", head + body


def loops() -> dict[str, str]:
    """The body of each loop, by name."""
    return {k: v for made in (_dots(), _runs(), _stores(), _elements(), _marked()) for k, v in made}


DIRECT = {
    "direct": "typedef float vec __attribute__((vector_size(16))); vec v; memcpy(&v, p, sizeof v);\n"
    "    return __builtin_bit_cast(int32_t, v[2]);"
}
THROUGH = {"direct": DIRECT["direct"].replace("return", "const float x = v[2]; return").replace("v[2])", "x)")}


def source(bodies: dict[str, str]) -> str:
    """The functions alone: what is compiled with the flags in question."""
    return HEAD + "".join(f"LOOP({name})\n{{\n    KEEP;\n    {body}\n}}\n" for name, body in bodies.items())


def driver(bodies: dict[str, str]) -> str:
    """What calls them."""
    declared = "".join(f"LOOP({name});\n" for name in bodies)
    listed = "".join(f'    {{"{name}", {name}}},\n' for name in bodies)
    call = "const uint8_t *, const uint8_t *, uint32_t, uint32_t, uint8_t *"
    entry = f"static const struct {{ const char *name; int64_t (*run)({call}); }}"
    return f"#include <stdio.h>\n{HEAD}{declared}{entry} all[] = {{\n{listed}}};\n{MAIN}"


def program(bodies: dict[str, str], flags: Sequence[str], arch: str = build_kernels.HOST) -> Path:
    """The program with the functions compiled by exactly `flags`; kept in the build folder by what it is made of."""
    build_kernels.BUILD.mkdir(parents=True, exist_ok=True)
    texts = {"loops": source(bodies), "driver": driver(bodies)}
    libc = f"{arch}-linux-musl" if arch != build_kernels.HOST else build_kernels.target_of(arch)
    made = hashlib.sha256("\0".join([*texts.values(), libc, *flags]).encode()).hexdigest()[:24]
    out = build_kernels.BUILD / f"loops-{arch}-{made}"
    if out.exists():
        return out
    files = {name: out.with_name(f"{out.name}.{os.getpid()}.{name}.c") for name in texts}
    for name, path in files.items():
        path.write_text(texts[name], encoding="utf8")
    part, compiled = out.with_suffix(f".{os.getpid()}.part"), out.with_suffix(f".{os.getpid()}.loops.o")
    common = ["-target", libc, "-fno-sanitize=all"]
    build_kernels.zig(*flags, *common, "-w", "-c", str(files["loops"]), "-o", str(compiled))
    static = ["-static"] if arch != build_kernels.HOST else []
    build_kernels.zig(*common, *static, "-O1", "-w", "-std=gnu11", str(files["driver"]), str(compiled), "-o", str(part))
    part.replace(out)
    for path in (*files.values(), compiled):
        path.unlink()
    return out


def run(command: Sequence[str]) -> dict[str, str]:
    """What each loop computed, by its name."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return dict(line.split() for line in done.stdout.splitlines())
