"""Repacking in C against its numpy definition, and both against what the layouts say about single bytes."""

from __future__ import annotations

import numpy as np
import pytest

from ie import formats, native
from ie.devices.repack import repack, repack_reference
from ie.errors import DeviceError
from ie.formats import FORMATS, LAYOUTS, Layout, layout_for
from tests.compare import Guarded
from tests.rig import Array, guarded

KEPT = [layout_for(f) for f in FORMATS.values() if f.holds_weights and layout_for(f) not in LAYOUTS]
EVERY = [*LAYOUTS, *KEPT]
SHAPES = [(1, 1), (15, 2), (16, 1), (17, 3), (33, 2), (64, 5)]


def _bytes(layout: Layout, rows: int, blocks: int, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, layout.id, rows, blocks])
    return rng.integers(0, 256, rows * blocks * layout.size_per_row_block, dtype=np.uint8)


def _in_c(layout: Layout, data: Array, rows: int, k: int, threads: int = 1) -> Array:
    out = Guarded(layout.nbytes(rows, k), np.uint8)
    out.array.fill(0)
    repack(guarded(threads).pool, layout, data, out.array, rows, k)
    out.check(layout.name)
    return out.array


@pytest.mark.parametrize(("rows", "blocks"), SHAPES)
@pytest.mark.parametrize("layout", EVERY, ids=lambda x: x.name)
def test_c_equals_the_definition(layout: Layout, rows: int, blocks: int) -> None:
    k, data = blocks * layout.block, _bytes(layout, rows, blocks)
    want = repack_reference(layout, data, rows, k)
    for threads in (1, 2, 3):
        assert np.array_equal(_in_c(layout, data, rows, k, threads), want.reshape(-1)), threads


def _spread(word: int) -> int:
    return sum(((word >> (4 * w + b)) & 1) << (8 * b + w) for w in range(8) for b in range(4))


@pytest.mark.parametrize("layout", [x for x in LAYOUTS if x.arranged], ids=lambda x: x.name)
def test_an_arranged_block_keeps_every_bit(layout: Layout) -> None:
    """Each bit of a row's file block stands in one place of the tile, and no other row's bit does."""
    seen = np.zeros(8 * layout.size, np.int64)
    bits = 8 * layout.size_per_row_block
    for row in (0, 5, 15):
        data = np.zeros((bits, 16, layout.size_per_row_block), np.uint8)
        data[np.arange(bits), row, np.arange(bits) // 8] = 1 << (np.arange(bits) % 8)
        tiles = _in_c(layout, data.reshape(-1), 16 * bits, layout.block).reshape(bits, layout.size)
        places = np.unpackbits(tiles, axis=-1, bitorder="little")
        assert (places.sum(axis=-1) == 1).all()
        seen += places.sum(axis=0, dtype=np.int64)
    assert seen.max() == 1 and seen.sum() == 3 * bits


@pytest.mark.parametrize("layout", [x for x in LAYOUTS if not x.arranged], ids=lambda x: x.name)
def test_every_element_stands_where_the_layout_says(layout: Layout) -> None:
    """Element by element, from the fields' own description; padding lanes are zero."""
    rows, blocks = 21, 2
    data = _bytes(layout, rows, blocks)
    file = data.reshape(rows, blocks, -1)
    tiles = _in_c(layout, data, rows, blocks * layout.block).reshape(-1, blocks, layout.size)
    assert len(tiles) == 2
    for row in range(32):
        for b in range(blocks):
            for f in layout.fields:
                for e in range(f.count):
                    at = layout.offset(f.name) + (e * 16 + row % 16) * f.unit
                    got = int.from_bytes(tiles[row // 16, b, at : at + f.unit].tobytes(), "little")
                    if row >= rows:
                        assert got == 0
                        continue
                    source = file[row, b, f.source + e * f.unit :][: f.unit]
                    word = int.from_bytes(source.tobytes(), "little")
                    want = {"copy": word, "bias": word ^ int("80" * f.unit, 16), "spread": _spread(word)}[f.transform]
                    assert got == want, (row, b, f.name, e)


@pytest.mark.parametrize("layout", EVERY, ids=lambda x: x.name)
def test_layouts_account_for_every_byte(layout: Layout) -> None:
    """Each byte of a file block goes to exactly one field, fields fill the tile without overlap."""
    fmt = formats.format_by_name(layout.format_name)
    assert layout.block == fmt.block and layout.size_per_row_block == fmt.size
    if not layout.fields:
        assert layout.rows == 1 and layout.nbytes(3, 2 * layout.block) == 6 * fmt.size
        return
    assert native.lib()[1].ie_core_matrix_bytes(33, 4, layout.size) == layout.nbytes(33, 4 * layout.block)
    source = [i for f in layout.fields for i in range(f.source, f.source + f.unit * f.count)]
    assert sorted(source) == list(range(fmt.size))
    tile = [
        i for f in layout.fields for i in range(layout.offset(f.name), layout.offset(f.name) + f.unit * f.count * 16)
    ]
    assert sorted(tile) == list(range(layout.size))
    for f in layout.fields:
        assert layout.offset(f.name) % min(f.unit, 4) == 0


def test_ids_and_names_are_unique() -> None:
    assert len({x.id for x in EVERY}) == len({x.name for x in EVERY}) == len(EVERY)


@pytest.mark.parametrize("layout", [*LAYOUTS, KEPT[0]], ids=lambda x: x.name)
@pytest.mark.parametrize(("rows", "extra"), [(0, 0), (4, 1)])
def test_refuses_what_is_not_whole_blocks(layout: Layout, rows: int, extra: int) -> None:
    if layout.block == 1 and extra:
        return  # every length is whole
    _, lib = native.lib()
    data, out = np.zeros(65536, np.uint8), np.full(65536, 7, np.uint8)
    args = [native.pointer(a, "uint8_t *") for a in (data, out)]
    assert lib.ie_repack(guarded().pool, layout.id, *args, rows, layout.block + extra) < 0
    assert (out == 7).all()


@pytest.mark.parametrize("layout_id", [-1, 0, max(x.id for x in LAYOUTS) + 1, 127, 128 + 4, 128 + 43, 5000])
def test_refuses_unknown_layouts(layout_id: int) -> None:
    layout = Layout(layout_id, "strange", "F32", 1, 4)
    with pytest.raises(DeviceError, match="cannot repack 1 rows of 32 values to strange"):
        repack(guarded().pool, layout, np.zeros(4096, np.uint8), np.zeros(4096, np.uint8), 1, 32)


def test_destination_must_be_large_enough() -> None:
    layout = LAYOUTS[0]
    with pytest.raises(AssertionError, match="too small"):
        repack(guarded().pool, layout, np.zeros(4096, np.uint8), np.zeros(layout.size - 1, np.uint8), 1, layout.block)
