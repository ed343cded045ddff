"""Kernels of a few instructions, written by hand, so that what they do can be counted by hand.

Owns: the text around the instructions. Two buffers are the arguments; s[0:1] points to them, v0 is the thread's number.
"""

from __future__ import annotations

from tests.sim.asm import HEAD, META, assemble, kernel_text

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
    note = NOTE.format(name=name, vgprs=vgprs, lds=lds, threads=threads)
    return assemble(HEAD + kernel_text(name, body, 16, lds, 16, vgprs) + META.format(kernels=note))
