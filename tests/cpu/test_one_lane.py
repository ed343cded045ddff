"""The loaders of kernels_c/include/tiles.h where a value has one lane, as on a GPU, against the numpy decoders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from ie import formats
from ie.devices.repack import repack_reference
from ie.formats import Layout
from scripts import build_kernels
from tests.unit.test_formats import blocks_of

pytestmark = pytest.mark.cpu
SOURCE = Path(__file__).with_name("one_lane.c")
Decode = Callable[[int, bytes, int], np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory) -> Decode:
    """(layout id, tile, row of its group) -> the row's values."""
    target = tmp_path_factory.mktemp("one_lane") / "one_lane.so"
    flags = [flag for flag in build_kernels.CFLAGS if flag != "-fvisibility=hidden"]
    build_kernels.zig(*flags, "-shared", "-o", str(target), str(SOURCE))
    ffi = cffi.FFI()
    ffi.cdef("int one_lane_decode(int layout, const uint8_t *tile, int row, float *out);")
    library = ffi.dlopen(str(target))

    def made(layout: int, tile: bytes, row: int) -> np.ndarray[Any, Any]:
        out = np.zeros(256, np.float32)
        assert library.one_lane_decode(layout, tile, row, ffi.cast("float *", out.ctypes.data)) == 0
        return out

    return made


@pytest.mark.parametrize("layout", formats.LAYOUTS, ids=lambda layout: layout.name)
def test_a_lane_alone_decodes_its_row(decode: Decode, layout: Layout) -> None:
    fmt = formats.format_by_name(layout.format_name)
    tiles = 12
    blocks = blocks_of(fmt, layout.rows * tiles, seed=7)  # a block of each row of each tile
    expected = formats.dequantize(fmt, np.ascontiguousarray(blocks).reshape(-1)).reshape(tiles, layout.rows, fmt.block)
    finite = 0
    for tile, rows in zip(blocks.reshape(tiles, layout.rows, -1), expected, strict=True):
        packed = repack_reference(layout, np.ascontiguousarray(tile).reshape(-1), layout.rows, layout.block).tobytes()
        for row, values in enumerate(rows):
            found = decode(layout.id, packed, row)[: fmt.block]
            known = np.isfinite(values)
            assert np.array_equal(found[known], values[known])
            assert not np.isfinite(found[~known]).any()
            finite += int(known.sum())
    assert finite > tiles * layout.rows * fmt.block // 2
