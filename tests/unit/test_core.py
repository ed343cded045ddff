"""The integer functions of core_laws/ie_core.h as Python calls them, against definitions written anew here."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ie import native
from ie.devices import reference, weights
from ie.engine import kv
from ie.formats import format_by_name, layout_for
from ie.model import config
from ie.ops import OP_IDS, OPS
from ie.ops.table import ARGS_BYTES, COMMAND_BYTES, HEADER_BYTES, KINDS
from ie.program.plan import Span, check
from ie.program.stages import Access, check_stages
from ie.program.step import Run, StepInputs
from tests.op_cases import SWEPT, draw, weight_formats
from tests.rig import Q8

LIB = native.lib()[1]
ROOT = Path(__file__).resolve().parents[2]
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
        elif arg.kind in ("matrix", "matrices"):
            lay = layout_for(format_by_name(value.format))
            fields = (1 << 20, lay.id, lay.size, value.k // lay.block, lay.rows)
            more = (lay.nbytes(value.rows[0], value.k), 0) if arg.kind == "matrices" else ()
            values[arg.name] = (*fields, *more)
    head = struct.pack("<HHiII", OP_IDS[op], command.domain, 0, 0, 0)
    return command, (head + OPS[op].pack(values)).ljust(COMMAND_BYTES, b"\0"), case.live(command.domain)


def _step(n: int) -> StepInputs:
    """n rows, output rows and segments: a row at position 0 of each of n sequences."""
    step = StepInputs(max(n, 1), max(n, 1), 1)
    step.fill([Run(i, 0, [0]) for i in range(n)], range(n))
    return step


def _work(raw: bytes, step: StepInputs) -> tuple[int, int, int]:
    """Tiles, bytes, operations."""
    counts = (LIB.ie_core_command_tiles, LIB.ie_core_command_bytes, LIB.ie_core_command_flops)
    tiles, moved, flops = (int(count(raw, step.address)) for count in counts)
    return tiles, moved, flops


@pytest.mark.parametrize("op", SWEPT)
def test_geometry_covers_every_row(op: str) -> None:
    """Tiles grow with the rows, there are none without rows, and an unknown op has none."""
    _, raw, rows = _command(op, 3)
    assert _work(raw, _step(0)) == (0, 0, 0)
    tiles = [_work(raw, _step(n))[0] for n in (1, 2, rows + 1)]
    assert 1 <= tiles[0] <= tiles[1] <= tiles[2]
    if op == "matmul":
        assert tiles[0] == tiles[2]
    assert _work(raw, _step(1))[1] > 0
    unknown = struct.pack("<H", len(OPS)) + raw[2:]
    assert _work(unknown, _step(5)) == (0, 0, 0)


def test_a_command_that_is_left_out_does_no_work() -> None:
    _, raw, rows = _command("add", 3)
    step = _step(rows)
    head = struct.Struct("<HHiII")
    op, domain, layer, _, row = head.unpack_from(raw)
    skippable = head.pack(op, domain, layer, 1, row) + raw[head.size :]
    assert _work(raw, step) == _work(skippable, step) != (0, 0, 0)
    step.header["skip"] = 1
    assert _work(skippable, step) == (0, 0, 0) != _work(raw, step)


@pytest.mark.parametrize("fmt", weight_formats())
def test_a_matrix_product_moves_its_matrix_once(fmt: str) -> None:
    command, raw, rows = _command("matmul", 2, fmt)
    w = command.args["w"]  # type: ignore[attr-defined]
    for n in (1, rows):
        assert _work(raw, _step(n)) == (
            -(-w.m // 16),
            layout_for(format_by_name(w.format)).nbytes(w.m, w.k),
            2 * n * w.m * w.k,
        )


def test_experts_move_the_matrices_that_rows_use() -> None:
    command, raw, rows = _command("experts", 2)
    args = command.args  # type: ignore[attr-defined]
    used = args["route"].cols // 2
    for n in (1, rows):
        _, moved, flops = _work(raw, _step(n))
        layout = layout_for(format_by_name(args["w"].format))
        assert moved == n * used * layout.nbytes(args["w"].rows[0], args["w"].k)
        assert flops == 2 * n * args["y"].cols * args["k"]


# Two sequences: rows at 2 … 4 and at 300 … 301, with states: from none, and from slot 1 with both rows kept.
PARTS = (range(2, 5), range(300, 302))
LENGTHS = [len(part) for part in PARTS]


def _two_sequences() -> StepInputs:
    step = StepInputs(8, 2, 10)
    step.fill([Run(0, 2, [0] * 3, -1, 1), Run(1, 300, [0] * 2, 1, 2)], [4])
    return step


@pytest.mark.parametrize("seed", range(4))
def test_attention_moves_the_keys_that_rows_see_once_for_a_sequence(seed: int) -> None:
    command, raw, _ = _command("attention", seed)
    args = command.args  # type: ignore[attr-defined]
    window, cols = args.get("window", 0), args["q"].cols
    seen = [[set(range(max(0, pos + 1 - window) if window else 0, pos + 1)) for pos in part] for part in PARTS]
    _, moved, flops = _work(raw, _two_sequences())
    keys = sum(len(set().union(*rows)) for rows in seen)
    assert moved == sum(LENGTHS) * cols * 4 + keys * args["kv_heads"] * args["head_dim"] * 2 * np.float16().nbytes
    assert flops == sum(len(row) for rows in seen for row in rows) * cols * 2 * 2


def test_a_row_of_a_drafting_chain_sees_its_own_keys() -> None:
    command, raw, _ = _command("attention", 0)
    args = command.args  # type: ignore[attr-defined]
    head = struct.Struct("<HHiII")
    op, _, layer, flags, _ = head.unpack_from(raw)
    step = _two_sequences()
    for row, pos in enumerate([*PARTS[0], *PARTS[1]]):
        window = args.get("window", 0)
        seen = min(pos + 1, window) if window else pos + 1
        _, moved, flops = _work(head.pack(op, 3, layer, flags, row) + raw[head.size :], step)
        assert moved == args["q"].cols * 4 + seen * args["kv_heads"] * args["head_dim"] * 4
        assert flops == 4 * seen * args["q"].cols


def test_the_delta_rule_moves_the_states_that_it_starts_from_and_keeps() -> None:
    command, raw, _ = _command("deltanet", 1)
    args = command.args  # type: ignore[attr-defined]
    state = args["value_heads"] * args["dim"] ** 2
    _, moved, flops = _work(raw, _two_sequences())
    assert moved == 4 * (sum(LENGTHS) * args["qkv"].cols + (0 + 1 + 1 + 2) * state)
    assert flops == 7 * sum(LENGTHS) * state


def test_a_convolution_moves_its_rows_and_what_its_taps_reach() -> None:
    command, raw, _ = _command("conv", 1)
    args = command.args  # type: ignore[attr-defined]
    before = sum(min(args["taps"] - 1, part[0]) for part in PARTS)
    _, moved, flops = _work(raw, _two_sequences())
    assert moved == 4 * args["x"].cols * (sum(LENGTHS) + before + sum(LENGTHS))
    assert flops == 2 * sum(LENGTHS) * args["x"].cols * args["taps"]


# ---- every function is used ----

CODE = [path for part in ("kernels_c", "core_laws") for path in (ROOT / part).rglob("*.[ch]")]
DEFINED = re.compile(r"^IE_FN .*?\b(ie_\w+)\(|^#define (IE_\w+)\(", re.M)


def _uncalled(core: str, others: Iterable[str]) -> set[str]:
    """Functions of ie_core.h, and macros with arguments, whose name stands nowhere but where they are defined."""
    names = {a or b for a, b in DEFINED.findall(core)}
    text = "\n".join([DEFINED.sub("", core), *others])
    return names - set(re.findall(r"\b\w+\b", re.sub(r"/\*.*?\*/", "", text, flags=re.S)))


def test_every_function_of_the_core_is_called_by_the_code_it_speaks_for() -> None:
    """What is called through core_export.c counts: Python calls it."""
    core = ROOT / "core_laws" / "ie_core.h"
    texts = [path.read_text(encoding="utf8") for path in CODE if path != core]
    assert len(DEFINED.findall(core.read_text(encoding="utf8"))) > 40
    assert not _uncalled(core.read_text(encoding="utf8"), texts)


def test_a_function_that_nobody_calls_is_found() -> None:
    core = "IE_FN int64_t ie_a(int64_t x) { return ie_b(x); }\nIE_FN int ie_b(int x) { return x; }\n#define IE_C(x) x\n"
    assert _uncalled(core, ["/* ie_a(1) */ int ie_aa;"]) == {"ie_a", "IE_C"}
    assert not _uncalled(core, ["ie_a(IE_C(1))"])


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
