"""Runs single instructions on tables of operands.

Owns: the kernels around an instruction (load operands, run it, store what it left), assembling and launching them, and
comparing. A vector snippet finds its operands in v[10:11], v[12:13], v[14:15], the destination's old value in
v[20:21], and leaves results in v[20:21], s20, VCC, EXEC and SCC. A scalar snippet runs once a pattern, with operands in
s[10:11], s[12:13], s[14:15] and the destination s[20:21]. Does not own: instructions and what they should do (`ops_*`).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.sim.build import CACHE
from tests.sim.hip import Hip, HipError

Array = np.ndarray[Any, Any]
U32, U64 = np.uint32, np.uint64
LANES = np.arange(32)
OLD_SDST = 0x13579BDF
PER_KERNEL = 16
FIELDS = ("d0", "d1", "sdst", "vcc", "exec", "scc", "m0", "m1")


@dataclass
class Inputs:
    """Operands as raw bits, uint64 [groups, 32]; `exec` and `vcc` uint32 [groups]."""

    a: Array
    b: Array
    c: Array
    d: Array
    exec: Array
    vcc: Array

    @property
    def on(self) -> Array:
        """bool [groups, 32]: which lanes are active."""
        return (self.exec[:, None] >> LANES.astype(U32)) & U32(1) == 1

    @property
    def carry(self) -> Array:
        return (self.vcc[:, None] >> LANES.astype(U32)) & U32(1) == 1


@dataclass(frozen=True)
class Snippet:
    """asm: lines, separated by semicolons. expect: what it leaves, a value for each field that it changes.

    Values are uint32 [groups, 32], or [groups] for what a wave has once. `same` compares the first two result registers
    instead of equality, when bits are not everything (NaN, tolerances): (got, want) uint64 -> bool.
    """

    asm: str
    kind: str
    expect: Callable[[Inputs], dict[str, Array]]
    same: Callable[[Array, Array], Array] | None = None
    scalar: bool = False
    setup: str = ""
    mnemonic: str = field(default="")

    @property
    def name(self) -> str:
        return self.mnemonic or self.asm.split(";")[0].split()[0]


HEAD = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
.text
"""
KERNEL = """
.globl {name}
.p2align 8
.type {name},@function
{name}:
{body}
  s_endpgm
.size {name}, .-{name}
.section .rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size {arguments}
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 48
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.text
"""


def kernel_text(name: str, body: str, arguments: int = 32, lds: int = 4096, scratch: int = 0, vgprs: int = 64) -> str:
    """A kernel and its descriptor; s_endpgm follows the body. arguments, lds, scratch: bytes."""
    return KERNEL.format(name=name, body=body, arguments=arguments, lds=lds, scratch=scratch, vgprs=vgprs)


META = """
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx1201
amdhsa.kernels:
{kernels}
...
.end_amdgpu_metadata
"""
META_KERNEL = """  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 32
    .group_segment_fixed_size: 4096
    .private_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .wavefront_size: 32
    .sgpr_count: 48
    .vgpr_count: 64
    .max_flat_workgroup_size: 32
    .args:
      - {{.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
      - {{.size: 8, .offset: 8, .value_kind: global_buffer, .address_space: global}}
      - {{.size: 8, .offset: 16, .value_kind: global_buffer, .address_space: global}}
      - {{.size: 8, .offset: 24, .value_kind: global_buffer, .address_space: global}}
"""
# s[4:5] operands, s[6:7] results, s[8:9] masks, s[2:3] memory of the group; v1 pattern, v2 and v3 byte offsets.
PROLOGUE = """
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b128 s[24:27], s[0:1], 0x10
  s_lshl_b32 s12, ttmp9, 3
  s_wait_kmcnt 0
  s_mov_b64 s[2:3], s[26:27]
  s_load_b64 s[18:19], s[24:25], s12 offset:0x0
  v_and_b32 v0, 0x3ff, v0
  v_lshl_or_b32 v1, ttmp9, 5, v0
  v_lshlrev_b32 v2, 5, v1
  v_lshlrev_b32 v3, 5, v1
  v_lshlrev_b32 v4, 4, v0
  v_lshlrev_b32 v5, 4, v1
  global_load_b128 v[30:33], v2, s[4:5]
  global_load_b128 v[34:37], v2, s[4:5] offset:16
  s_wait_kmcnt 0
  s_wait_loadcnt 0
"""
OPERANDS = (
    "\n".join(f"  v_mov_b32 v{10 + i}, v{30 + i}" for i in range(8)) + "\n  v_mov_b32 v20, v36\n  v_mov_b32 v21, v37"
)
VECTOR = """
{operands}
  v_mov_b32 v26, 0
  v_mov_b32 v27, 0
  s_mov_b32 s20, {old}
  s_mov_b32 vcc_lo, s19
{setup}
  s_mov_b32 exec_lo, s18
{asm}
  s_cselect_b32 s23, 1, 0
  s_mov_b32 s21, vcc_lo
  s_mov_b32 s22, exec_lo
  s_mov_b32 exec_lo, -1
  v_mov_b32 v22, s20
  v_mov_b32 v23, s21
  v_mov_b32 v24, s22
  v_mov_b32 v25, s23
{store}
"""
SCALAR = """
  s_mov_b32 s30, 0
{label}:
  v_readlane_b32 s10, v30, s30
  v_readlane_b32 s11, v31, s30
  v_readlane_b32 s12, v32, s30
  v_readlane_b32 s13, v33, s30
  v_readlane_b32 s14, v34, s30
  v_readlane_b32 s15, v35, s30
  v_readlane_b32 s20, v36, s30
  v_readlane_b32 s21, v37, s30
  s_mov_b32 vcc_lo, s19
  s_bitcmp1_b32 s21, 0
{asm}
  s_cselect_b32 s23, 1, 0
  s_mov_b32 s22, exec_lo
  s_mov_b32 exec_lo, -1
  v_writelane_b32 v20, s20, s30
  v_writelane_b32 v21, s21, s30
  v_writelane_b32 v24, s22, s30
  v_writelane_b32 v25, s23, s30
  s_mov_b32 s21, vcc_lo
  v_writelane_b32 v23, s21, s30
  s_add_co_i32 s30, s30, 1
  s_cmp_lt_u32 s30, 32
  s_cbranch_scc1 {label}
  v_mov_b32 v22, {old}
  v_mov_b32 v26, 0
  v_mov_b32 v27, 0
{store}
"""
STORE = """  global_store_b128 v3, v[20:23], s[6:7]
  global_store_b128 v3, v[24:27], s[6:7] offset:16
  s_add_co_u32 s6, s6, {stride}
  s_add_co_ci_u32 s7, s7, 0"""


def _body(snippets: Sequence[Snippet], name: str, patterns: int) -> str:
    out = [
        PROLOGUE,
        "  v_mov_b32 v20, 0\n  v_mov_b32 v21, 0\n  v_mov_b32 v23, 0\n  v_mov_b32 v24, 0\n  v_mov_b32 v25, 0",
    ]
    store = STORE.format(stride=patterns * 32)
    for i, s in enumerate(snippets):
        lines = "\n".join("  " + line.strip() for line in s.asm.split(";"))
        if s.scalar:
            out.append(SCALAR.format(label=f".L{name}_{i}", asm=lines, store=store, old=OLD_SDST))
        else:
            setup = "\n".join("  " + line.strip() for line in s.setup.split(";"))
            out.append(VECTOR.format(operands=OPERANDS, old=OLD_SDST, setup=setup, asm=lines, store=store))
    return "\n".join(out)


def assemble(text: str) -> bytes:
    """A code object from assembly; kept by content like compiled kernels."""
    key = hashlib.sha256(text.encode()).hexdigest()[:24]
    target = CACHE / f"{key}.hsaco"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        zig = [sys.executable, "-m", "ziglang"]
        clang = [*zig, "clang", "-x", "assembler", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-c"]
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            source = Path(folder) / "code.s"
            source.write_text(text)
            for command in (
                [*clang, str(source), "-o", f"{folder}/code.o"],
                [*zig, "ld.lld", "-shared", f"{folder}/code.o", "-o", f"{folder}/code.hsaco"],
            ):
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    raise RuntimeError(done.stderr[:4000])
            (Path(folder) / "code.hsaco").rename(target)
    return target.read_bytes()


def image_of(groups: Sequence[Sequence[Snippet]], patterns: int) -> bytes:
    """A code object whose kernels k0, k1, ... run one group of snippets each."""
    names = [f"k{i}" for i in range(len(groups))]
    kernels = [kernel_text(n, _body(g, n, patterns)) for n, g in zip(names, groups, strict=True)]
    return assemble(HEAD + "".join(kernels) + META.format(kernels="".join(META_KERNEL.format(name=n) for n in names)))


def execute(
    hip: Hip, image: bytes, kernel: str, count: int, inputs: Inputs, memory: Array | None = None
) -> tuple[Array, Array]:
    """Results uint32 [count, groups, 32, 8 fields], and the memory after."""
    groups = len(inputs.exec)
    table = np.stack([inputs.a, inputs.b, inputs.c, inputs.d], -1)
    masks = np.stack([inputs.exec, inputs.vcc], -1)
    out = hip.buffer(np.zeros((count, groups, 32, 8), U32))
    space = hip.buffer(np.zeros(1024, U32) if memory is None else memory)
    given = [hip.buffer(table), out, hip.buffer(masks), space]
    hip.launch(hip.kernel(image, kernel), [groups], [32], given)
    results = out.read(U32, (count, groups, 32, 8)), space.read(U32)
    for buffer in given:
        buffer.free()
    return results


def wanted(snippet: Snippet, inputs: Inputs) -> dict[str, Array]:
    """All fields: what the snippet says it changes, the rest as before."""
    with np.errstate(all="ignore"):
        changed = snippet.expect(inputs)
    shape = inputs.a.shape
    scc = (inputs.d >> U64(32)).astype(U32) & U32(1)
    rest = {"d0": inputs.d.astype(U32), "d1": (inputs.d >> U64(32)).astype(U32), "vcc": inputs.vcc, "exec": inputs.exec}
    rest |= {
        "sdst": np.full(shape[0], OLD_SDST, U32),
        "m0": np.zeros(shape, U32),
        "m1": np.zeros(shape, U32),
        "scc": scc,
    }
    if snippet.scalar:
        rest["exec"] = np.full(shape[0], 2**32 - 1, U32)
    elif "scc" not in changed:
        rest.pop("scc")
    rest |= changed
    return {k: np.broadcast_to(v[:, None] if v.ndim == 1 else v, shape).astype(U32) for k, v in rest.items()}


def differences(snippet: Snippet, inputs: Inputs, got: Array) -> str:
    """Empty if all is right, else one line about the first wrong lane."""
    want = wanted(snippet, inputs)
    for field_name, value in want.items():
        at = FIELDS.index(field_name)
        good = got[..., at] == value
        if snippet.same and field_name in ("d0", "d1"):
            whole = [got[..., 0].astype(U64) | got[..., 1].astype(U64) << U64(32)]
            whole.append(want["d0"].astype(U64) | want["d1"].astype(U64) << U64(32))
            good = (whole[0] == whole[1]) | snippet.same(*whole)
        if not good.all():
            g, lane = (int(i[0]) for i in np.nonzero(~good))
            operands = ", ".join(f"{n}={getattr(inputs, n)[g, lane]:#x}" for n in "abcd")
            return (
                f"{snippet.asm}: {field_name} of lane {lane} is {got[g, lane, at]:#x}, want {value[g, lane]:#x} "
                f"({operands}, exec={inputs.exec[g]:#x}, vcc={inputs.vcc[g]:#x}; {np.count_nonzero(~good)} wrong)"
            )
    return ""


def sweep(
    hip: Hip, snippets: Iterable[Snippet], inputs: Inputs, memory: Array | None = None
) -> tuple[list[str], list[str]]:
    """(wrong, refused): a line for each snippet that gave something else, and for each that the simulator refuses."""
    todo = list(snippets)
    patterns = inputs.a.size
    groups = [todo[i : i + PER_KERNEL] for i in range(0, len(todo), PER_KERNEL)]
    wrong, refused = [], []
    image = image_of(groups, patterns)
    for i, group in enumerate(groups):
        try:
            got, _ = execute(hip, image, f"k{i}", len(group), inputs, memory)
        except HipError as error:
            hip.reset()
            if len(todo) == 1:
                return [], [f"{group[0].asm}: {str(error)[:300]}"]
            # One bad instruction makes the whole code object unusable: take each on its own.
            for part in [group] if len(groups) > 1 else [[s] for s in group]:
                w, r = sweep(hip, part, inputs, memory)
                wrong, refused = wrong + w, refused + r
            continue
        wrong += filter(None, (differences(s, inputs, got[k]) for k, s in enumerate(group)))
    return wrong, refused
