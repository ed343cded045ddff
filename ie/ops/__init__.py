"""The op table: every command a program may hold, one module an op.

From a declaration come the C enum and argument struct (kernels_c/include/ops.h, with assertions on
size and offsets), the packing code, argument checks, geometry and byte counts (C functions of
core_laws/ie_core.h that the table names), the numpy reference, the test sweep and docs/ops.md.
The C body of op X is kernels_c/cpu/X.c.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    add,
    attention,
    combine,
    conv,
    deltanet,
    embed,
    experts,
    gather,
    glu,
    matmul,
    pick,
    quantize,
    ring_get,
    ring_put,
    rmsnorm,
    rope,
    route,
    softcap,
)
from .table import Arg, Op

__all__ = ["OPS", "OP_IDS", "Arg", "Op"]

OPS: Mapping[str, Op] = {
    m.OP.name: m.OP
    for m in (
        *(embed, gather, rmsnorm, quantize, matmul, rope, attention, glu, add),
        *(softcap, conv, deltanet, ring_put, ring_get, pick, route, experts, combine),
    )
}
"""Name to op, in the order of their ids."""

OP_IDS: Mapping[str, int] = {name: i for i, name in enumerate(OPS)}
