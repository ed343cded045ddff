"""The integer functions of core_laws/ie_core.h as Python calls them, against definitions written anew here."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ie import native
from ie.devices import reference, weights
from ie.engine import kv
from ie.model import config
from ie.ops import OP_IDS, OPS
from ie.ops.table import ARGS_BYTES, COMMAND_BYTES, HEADER_BYTES, KINDS
from ie.program.plan import Span, check
from ie.program.stages import Access, check_stages
from tests.op_cases import SWEPT, draw, weight_formats
from tests.rig import Q8

LIB = native.lib()[1]
ALIGN = native.constant("align")


def test_constants_that_python_repeats() -> None:
    assert native.constant("kv_block") == kv.BLOCK == reference.BLOCK == 32
    assert native.constant("kv_chunk") == kv.CHUNK
    assert ALIGN == weights.ALIGN == 256
    assert native.constant("lanes") == 16
    assert native.constant("q8_block") == 32
    assert native.constant("attn_segment") % kv.BLOCK == 0
    assert config.MAX_HEAD_DIM == 512
    with pytest.raises(KeyError):
        native.constant("lane")


@given(st.integers(1, 1 << 20).map(lambda n: 32 * n))
def test_a_q8_row_holds_codes_scales_products_and_sums(k: int) -> None:
    n = LIB.ie_core_q8_row_bytes(k)
    assert n % 64 == 0 and 0 <= n - (k + k // 32 * (4 + 4 + 8)) < 64


@given(st.integers(1, 1 << 24))
def test_an_f32_row_is_whole_cache_lines(n: int) -> None:
    size = LIB.ie_core_f32_row_bytes(n)
    assert size % 64 == 0 and 0 <= size - 4 * n < 64


def test_q8_fields_read_back() -> None:
    """The harness that other tests build on."""
    codes = np.random.default_rng(0).integers(-127, 128, (3, 96)).astype(np.int8)
    rows = Q8.of(codes, np.ones((3, 3), np.float32))
    again = Q8.read(rows.raw(), 96)
    assert all(np.array_equal(getattr(rows, f), getattr(again, f)) for f in ("codes", "d", "dsum", "sums"))
    assert abs(rows.sums[0, 0, 1]) == abs(codes[0, 16:32].astype(int).sum())


@given(st.integers(1, 1 << 18), st.integers(1, 4096), st.integers(1, 4096))
def test_matrix_bytes_counts_padded_groups(rows: int, blocks: int, tile: int) -> None:
    assert LIB.ie_core_matrix_bytes(rows, blocks, tile) == -(-rows // 16) * blocks * tile


@pytest.mark.parametrize(("heads", "dim"), [(1, 16), (3, 5), (2, 64)])
def test_cache_indices_are_a_permutation_in_the_documented_order(heads: int, dim: int) -> None:
    chunks, per_chunk = 2, native.constant("kv_chunk")
    size = LIB.ie_core_kv_chunk_elems(heads, dim)
    assert size == per_chunk * heads * dim * 32
    keys = np.arange(chunks * size).reshape(chunks, heads, per_chunk, dim, 32)
    values = np.arange(chunks * size).reshape(chunks, heads, per_chunk, 32, dim)
    for b, h, d, s in itertools.product(range(chunks * per_chunk), range(heads), range(0, dim, 3), range(32)):
        c, i = divmod(b, per_chunk)
        assert LIB.ie_core_k_index(size, b, dim, h, d, s) == keys[c, h, i, d, s]
        assert LIB.ie_core_v_index(size, b, dim, h, s, d) == values[c, h, i, s, d]


# ---- the op table ----


def test_structs_are_laid_out_as_c_does() -> None:
    """Offsets against the natural alignment that ctypes computes."""
    import ctypes

    kinds = {"Q": ctypes.c_uint64, "i": ctypes.c_int32, "f": ctypes.c_float}
    for op in OPS.values():
        members = []
        for a in op.args:
            fields = [(f"m{i}", kinds[code]) for i, code in enumerate(KINDS[a.kind].fields)]
            members.append((a.name, type("Member", (ctypes.Structure,), {"_fields_": fields})))
        whole = type("Whole", (ctypes.Structure,), {"_fields_": members})
        assert {a.name: getattr(whole, a.name).offset for a in op.args} == op.offsets()
        assert op.args_size() >= ctypes.sizeof(whole) and op.args_size() - ctypes.sizeof(whole) < 8
        assert op.args_size() <= ARGS_BYTES == COMMAND_BYTES - HEADER_BYTES


def test_packing_writes_each_field_at_its_offset_and_nothing_else() -> None:
    for op in OPS.values():
        for arg in op.args:
            code = KINDS[arg.kind].fields
            values = tuple(0.5 if c == "f" else 3 + i for i, c in enumerate(code))
            packed, empty = op.pack({arg.name: values}), op.pack({})
            at, end = op.offsets()[arg.name], op.offsets()[arg.name] + KINDS[arg.kind].size
            assert struct.unpack_from("<" + code, packed, at) == values
            assert packed[:at] == empty[:at] and packed[end:] == empty[end:]


def _command(op: str, seed: int, fmt: str | None = None) -> tuple[object, bytes, int]:
    case = draw(op, seed, fmt)
    (command,) = case.program.commands
    values = {}
    for arg, view in command.views():
        values[arg.name] = (1 << 20, 4 * view.cols, view.cols)
    for arg in OPS[op].args:
        value = command.args.get(arg.name)
        if arg.kind in ("i32", "f32"):
            values[arg.name] = (value,)
        elif arg.kind == "matrix":
            lay = value.layout
            values[arg.name] = (1 << 20, lay.id, lay.size, value.k // lay.block, lay.rows)
    head = struct.pack("<HHiII", OP_IDS[op], command.domain, 0, 0, 0)
    return command, (head + OPS[op].pack(values)).ljust(COMMAND_BYTES, b"\0"), case.live(command.domain)


@pytest.mark.parametrize("op", SWEPT)
def test_geometry_covers_every_row(op: str) -> None:
    """Tiles grow with the rows, there are none without rows, and an unknown op has none."""
    command, raw, rows = _command(op, 3)
    assert LIB.ie_core_command_tiles(raw, 0) == LIB.ie_core_command_bytes(raw, 0) == 0
    tiles = [LIB.ie_core_command_tiles(raw, n) for n in (1, 2, rows + 1)]
    assert 1 <= tiles[0] <= tiles[1] <= tiles[2]
    if op == "matmul":
        assert tiles[0] == tiles[2]
    assert LIB.ie_core_command_bytes(raw, 1) > 0
    unknown = struct.pack("<H", len(OPS)) + raw[2:]
    assert LIB.ie_core_command_tiles(unknown, 5) == LIB.ie_core_command_flops(unknown, 5) == 0


@pytest.mark.parametrize("fmt", weight_formats())
def test_a_matrix_product_moves_its_matrix_once(fmt: str) -> None:
    command, raw, rows = _command("matmul", 2, fmt)
    w = command.args["w"]  # type: ignore[attr-defined]
    for n in (1, rows):
        assert LIB.ie_core_command_bytes(raw, n) == w.layout.nbytes(w.m, w.k)
        assert LIB.ie_core_command_flops(raw, n) == 2 * n * w.m * w.k
        assert LIB.ie_core_command_tiles(raw, n) == -(-w.m // 16)


# ---- the arena check ----

SPANS = st.lists(
    st.builds(
        lambda size, first, length: Span(size, first, first + length),
        st.integers(1, 2000),
        st.integers(0, 6),
        st.integers(0, 4),
    ),
    max_size=7,
)


def _accepts(spans: list[Span], offsets: list[int], arena: int) -> bool:
    """The definition, written with interval ends."""
    for s, o in zip(spans, offsets, strict=True):
        if o % ALIGN or o < 0 or o + s.size > arena or s.first > s.last:
            return False
    for (a, x), (b, y) in itertools.combinations(zip(spans, offsets, strict=True), 2):
        together = max(a.first, b.first) <= min(a.last, b.last)
        if together and max(x, y) < min(x + a.size, y + b.size):
            return False
    return True


@settings(max_examples=200)
@given(SPANS, st.data())
def test_arena_check_equals_its_definition(spans: list[Span], data: st.DataObject) -> None:
    steps = st.integers(-1, 20).map(lambda i: i * ALIGN) | st.integers(-300, 4000)
    offsets = [data.draw(steps) for _ in spans]
    arena = data.draw(st.integers(0, 6000))
    bad = check(spans, offsets, arena)
    assert (bad < 0) == _accepts(spans, offsets, arena)
    if bad >= 0:
        assert _accepts(spans[:bad], offsets[:bad], arena) and not _accepts(spans[: bad + 1], offsets[: bad + 1], arena)


def test_arena_check_at_the_ends_of_64_bits() -> None:
    huge = (1 << 63) - 1
    assert check([Span(1, 0, 0)], [huge - huge % ALIGN], huge) == -1
    assert check([Span(huge, 0, 0)], [0], huge) == -1
    assert check([Span(huge, 0, 0)], [ALIGN], huge) == 0
    assert check([Span(-1, 0, 0)], [0], 100) == 0
    assert check([Span(1, 2, 1)], [0], 100) == 0
    assert check([Span(1, 0, 0)], [0], -1) == 0


# ---- the schedule check ----


def _refuses(stage: list[int], acc: list[Access]) -> bool:
    """Two commands of one stage touch the same place and one writes; or a stage follows a later one."""
    if any(a > b for a, b in itertools.pairwise(stage)):
        return True
    return any(
        a.command != b.command
        and stage[a.command] == stage[b.command]
        and a.space == b.space
        and set(range(a.lo, a.hi)) & set(range(b.lo, b.hi))
        and (a.write or b.write)
        for a, b in itertools.combinations(acc, 2)
    )


@settings(max_examples=200)
@given(st.data())
def test_schedule_check_equals_its_definition(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    acc = []
    for i in range(n):
        for _ in range(data.draw(st.integers(1, 3))):
            lo = data.draw(st.integers(0, 3))
            hi = lo + data.draw(st.integers(1, 3))
            acc.append(Access(i, data.draw(st.integers(0, 1)), lo, hi, data.draw(st.booleans())))
    stage = [0]
    for _ in range(n - 1):
        stage.append(max(0, stage[-1] + data.draw(st.sampled_from([0, 0, 0, 1, 1, -1]))))
    try:
        check_stages(tuple(stage), acc)
        refused = False
    except AssertionError:
        refused = True
    assert refused == _refuses(stage, acc)


@pytest.mark.parametrize(
    "acc",
    [
        [Access(2, "a", 0, 1, False)],
        [Access(-1, "a", 0, 1, False)],
        [Access(1, "a", 0, 1, False), Access(0, "a", 0, 1, False)],
        [Access(0, "a", 1, 0, False)],
    ],
    ids=["no such command", "negative command", "out of order", "empty backwards"],
)
def test_schedule_check_refuses_malformed_accesses(acc: list[Access]) -> None:
    with pytest.raises(AssertionError, match="stage check refused access"):
        check_stages((0, 1), acc)
