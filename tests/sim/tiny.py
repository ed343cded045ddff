"""Kernels of a few instructions, written by hand, so that what they do can be counted by hand.

Owns: the text around the instructions. Two buffers are the arguments; s[0:1] points to them, v0 is the thread's number.
"""

from __future__ import annotations

from tests.sim.asm import HEAD, META, assemble

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
  .amdhsa_kernarg_size 16
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size 16
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 48
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.text
"""
NOTE = """  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 16
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 16
    .kernarg_segment_align: 8
    .wavefront_size: 32
    .sgpr_count: 48
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: {threads}
    .args:
      - {{.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
      - {{.size: 8, .offset: 8, .value_kind: global_buffer, .address_space: global}}
"""


def tiny(name: str, body: str, vgprs: int = 24, lds: int = 0, threads: int = 1024) -> bytes:
    """The code object of one kernel; `s_endpgm` follows the body."""
    values = {"name": name, "body": body, "vgprs": vgprs, "lds": lds, "threads": threads}
    return assemble(HEAD + KERNEL.format(**values) + META.format(kernels=NOTE.format(**values)))
