"""The format table against the gguf package, bit for bit, and against scalar decoders written here."""

from __future__ import annotations

import importlib.util
import math
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from ie import formats
from ie.errors import FormatError
from ie.formats import dequant, iq_grids, table
from scripts import c_tables

ROOT = Path(__file__).resolve().parents[2]

# The package has no decoder for these; its Q8_1 is an obsolete layout, and it does not know Q2_0.
LACKING = ("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "Q1_0", "Q2_0")
PRESENT = tuple(fmt.name for fmt in formats.FORMATS.values() if fmt.name not in LACKING)

# Where the F16 scales of a block stand.
HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,),
    "IQ3_S": (0,), "IQ1_S": (0,), "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,), "F16": (0,),
    "Q8_1": (0,), "Q1_0": (0,), "Q2_0": (0,),
}  # fmt: skip
# zeros, subnormals, ordinary, the largest, infinities, NaN
HALF_BITS = (0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x2E66, 0xAE66, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01)


def blocks_of(fmt: formats.Format, count: int, seed: int = 0) -> np.ndarray:
    """Random blocks; the first ones carry every kind of half as scale."""
    data = np.random.default_rng(seed + fmt.id).integers(0, 256, (count, fmt.size), dtype=np.uint8)
    for field, offset in enumerate(HALVES.get(fmt.name, ())):
        bits = np.roll(np.array(HALF_BITS, dtype="<u2"), 5 * field)
        data[: len(bits), offset : offset + 2] = bits.view(np.uint8).reshape(-1, 2)
    return data


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal as bits, or both NaN."""
    assert found.dtype == expected.dtype == np.float32
    assert found.shape == expected.shape
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
    wrong = np.argwhere(~same)
    assert not len(wrong), f"{len(wrong)} of {same.size} differ, first at {wrong[0]}: {found[tuple(wrong[0])]!r}"


def package_values(name: str, data: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name])
    return np.asarray(values).astype(np.float32)


@pytest.mark.parametrize("name", PRESENT)
def test_equals_the_package(name: str) -> None:
    fmt = table.format_by_name(name)
    data = blocks_of(fmt, 300)
    expected = package_values(name, data)
    if fmt.block > 1:
        assert np.isfinite(expected).mean() > 0.5
    assert_same_bits(formats.dequantize(fmt, data), expected)


@pytest.mark.parametrize("name", ["MXFP4", "NVFP4"])
def test_every_byte_as_scale(name: str) -> None:
    fmt = table.format_by_name(name)
    data = blocks_of(fmt, 256)
    width = 1 if name == "MXFP4" else 4
    data[:, :width] = np.arange(256)[:, None]
    assert_same_bits(formats.dequantize(fmt, data), package_values(name, data))


def test_mxfp4_and_nvfp4_scales_by_hand() -> None:
    mxfp4, nvfp4 = table.format_by_name("MXFP4"), table.format_by_name("NVFP4")
    for e, value in ((0, 2.0**-128), (1, 2.0**-127), (2, 2.0**-126), (254, 2.0**126), (255, 2.0**127)):
        block = np.array([[e] + [0x11] * 16], dtype=np.uint8)
        assert (formats.dequantize(mxfp4, block) == np.float32(value)).all()
    for byte, value in ((0, 0.0), (0x7F, 0.0), (0x80, 0.0), (0xFF, 240.0), (1, 2.0**-10), (0x38, 0.5)):
        block = np.array([[byte] * 4 + [0x11] * 32], dtype=np.uint8)
        assert (formats.dequantize(nvfp4, block) == np.float32(value)).all()


def test_q3_k_with_all_ones_scales() -> None:
    fmt = table.format_by_name("Q3_K")
    data = blocks_of(fmt, 20)
    data[:, 96:108] = 0xFF
    assert_same_bits(formats.dequantize(fmt, data), package_values("Q3_K", data))


def test_iq1_m_scale_from_differing_nibbles() -> None:
    fmt = table.format_by_name("IQ1_M")
    data = blocks_of(fmt, len(HALF_BITS))
    for block, bits in zip(data, HALF_BITS, strict=True):
        for t in range(4):
            block[49 + 2 * t] = (int(block[49 + 2 * t]) & 15) | (bits >> 4 * t & 15) << 4
    expected = package_values("IQ1_M", data)
    assert len({float(abs(row).max()) for row in expected if np.isfinite(row).all()}) > 5
    assert_same_bits(formats.dequantize(fmt, data), expected)


def scalar_block(name: str, b: bytes) -> list[float]:
    """One block of a format the package lacks, element by element; exact products, rounded by the caller."""

    def half(offset: int) -> float:
        return struct.unpack_from("<e", b, offset)[0]

    if name == "Q8_1":
        return [half(0) * v for v in struct.unpack_from("<32b", b, 4)]
    if name == "Q8_K":
        return [struct.unpack_from("<f", b, 0)[0] * v for v in struct.unpack_from("<256b", b, 4)]
    if name == "Q1_0":
        return [math.copysign(1.0, -0.5 + ((b[2 + i // 8] >> i % 8) & 1)) * half(0) for i in range(128)]
    if name == "Q2_0":
        return [float(((b[2 + i // 4] >> 2 * (i % 4)) & 3) - 1) * half(0) for i in range(64)]
    code = {"I8": "<b", "I16": "<h", "I32": "<i", "I64": "<q", "F64": "<d"}[name]
    return [struct.unpack(code, b)[0]]


@pytest.mark.parametrize("name", LACKING)
def test_equals_a_scalar_decoder(name: str) -> None:
    fmt = table.format_by_name(name)
    data = blocks_of(fmt, 100)
    if name == "F64":
        data[:50] = np.random.default_rng(1).standard_normal(50).view(np.uint8).reshape(50, 8)
    with np.errstate(all="ignore"):
        expected = np.array([scalar_block(name, block.tobytes()) for block in data]).astype(np.float32)
    if name == "I64":
        expected = data.view("<i8").astype(np.float32)
    assert_same_bits(formats.dequantize(fmt, data), expected)


def test_known_q4_1_block() -> None:
    block = np.frombuffer(struct.pack("<ee", 0.5, -1.0) + bytes(range(0, 256, 17)), dtype=np.uint8)
    expected = [0.5 * i - 1.0 for i in range(16)] * 2
    assert formats.dequantize(table.format_by_name("Q4_1"), block).tolist() == expected


def test_the_table_equals_the_package() -> None:
    ours = {fmt.id: (fmt.name, fmt.block, fmt.size) for fmt in formats.FORMATS.values()}
    theirs = {int(t): (t.name, *sizes) for t, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert ours.pop(9) == ("Q8_1", 32, 36) and theirs.pop(9)
    assert ours.pop(42) == ("Q2_0", 64, 18)
    assert ours == theirs
    assert {fmt.name for fmt in formats.FORMATS.values() if not fmt.stored} == {"Q8_1", "Q8_K"}
    assert all(table.format_by_name(fmt.name) is fmt is formats.get_format(i) for i, fmt in formats.FORMATS.items())


@pytest.mark.parametrize("id_", [-1, 4, 5, 31, 32, 33, 36, 37, 38, 43, 1 << 31])
def test_unknown_ids(id_: int) -> None:
    with pytest.raises(FormatError, match=str(id_)):
        formats.get_format(id_)


def test_row_bytes_and_names() -> None:
    fmt = table.format_by_name("Q6_K")
    assert (fmt.row_bytes(0), fmt.row_bytes(512)) == (0, 420)
    for n in (-256, 1, 255, 257):
        with pytest.raises(FormatError, match="blocks of 256"):
            fmt.row_bytes(n)
    for call in (table.format_by_name, table.layout_by_name):
        with pytest.raises(FormatError, match="q4_9"):
            call("q4_9")


def test_shapes_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = table.format_by_name("Q5_K")
    data = blocks_of(fmt, 60).reshape(3, 4, 5 * fmt.size)
    whole = formats.dequantize(fmt, data)
    assert whole.shape == (3, 4, 5 * 256)
    monkeypatch.setattr(dequant, "_CHUNK_ELEMENTS", 7 * 256)
    assert_same_bits(formats.dequantize(fmt, data), whole)
    strided = np.repeat(data, 2, axis=1)[:, ::2]
    assert_same_bits(formats.dequantize(fmt, strided), whole)
    assert formats.dequantize(fmt, data[:0]).shape == (0, 4, 5 * 256)


def test_the_result_is_a_copy() -> None:
    data = np.zeros(8, dtype=np.uint8)
    values = formats.dequantize(table.format_by_name("F32"), data)
    data[:] = 255
    assert values.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "data", [np.zeros(17, np.uint8), np.zeros((2, 19), np.uint8), np.zeros(18, np.int8), np.uint8(0)]
)
def test_partial_blocks_are_refused(data: np.ndarray) -> None:
    with pytest.raises(FormatError, match="multiple of 18"):
        formats.dequantize(table.format_by_name("Q4_0"), data)


def test_layouts() -> None:
    for layout in formats.LAYOUTS:
        fmt = table.format_by_name(layout.format_name)
        assert (layout.block, layout.size_per_row_block) == (fmt.block, fmt.size)
        assert layout.size == layout.rows * fmt.size
        end, used = 0, [0] * fmt.size
        for field in layout.fields:
            assert layout.offset(field.name) == end
            end += field.unit * field.count * layout.rows
            for byte in range(field.source, field.source + field.unit * field.count):
                used[byte] += 1
            assert field.unit == 4 or field.transform in ("copy", "nibbles", "pairs")
        assert end == layout.size
        assert used == [1] * fmt.size, "every byte of a file block stands in the tile once"
        assert layout.nbytes(48, 256) == 48 * fmt.row_bytes(256)
        assert layout.nbytes(33, 256) == layout.nbytes(48, 256)
        assert table.layout_for(fmt) is layout is table.layout_by_name(layout.name)
        assert layout.id < table.ROWS_LAYOUT
    assert len({layout.id for layout in formats.LAYOUTS}) == len(formats.LAYOUTS)
    q4_1, q8_0 = table.layout_by_name("q4_1x16"), table.layout_by_name("q8_0x16")
    assert (q4_1.size, q4_1.offset("d"), q4_1.offset("m"), q4_1.offset("q")) == (320, 0, 32, 64)
    assert (q8_0.size, q8_0.offset("d"), q8_0.offset("q")) == (544, 0, 32)
    with pytest.raises(FormatError, match="33"):
        q4_1.nbytes(16, 33)


def test_formats_without_an_interleaved_layout_keep_their_rows() -> None:
    assert [f.name for f in formats.FORMATS.values() if f.stored and not f.holds_weights] == ["I8", "I16", "I32", "I64"]
    own = {x.format_name for x in formats.LAYOUTS}
    kept = [f for f in formats.FORMATS.values() if f.holds_weights and f.name not in own]
    assert kept
    for fmt in kept:
        layout = table.layout_for(fmt)
        assert (layout.id, layout.rows, layout.size) == (table.ROWS_LAYOUT + fmt.id, 1, fmt.size)
        assert layout.nbytes(3, 512) == 3 * fmt.row_bytes(512)
    for fmt in formats.FORMATS.values():
        if not fmt.holds_weights:
            with pytest.raises(FormatError, match=fmt.name):
                table.layout_for(fmt)


@pytest.mark.parametrize("name", iq_grids.NAMES)
def test_grids_equal_the_package(name: str) -> None:
    source = getattr(gguf.quants, name)
    source.init_grid()
    assert np.array_equal(iq_grids.grid(name), source.grid[0, 0])
    assert not iq_grids.grid(name).flags.writeable


def test_written_files_are_current() -> None:
    include = ROOT / "kernels_c" / "include"
    assert (include / "formats.h").read_text() == c_tables.formats_header()
    assert (include / "iq_grids.h").read_text() == c_tables.grids_header()
    spec = importlib.util.spec_from_file_location("make_iq_grids", ROOT / "scripts" / "make_iq_grids.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "ie" / "formats" / "iq_grids.py").read_text()
    assert module.module_text(text) == text
    wrong = text.replace("AAACAAUACAAKABEAFAAgACIAKAAqAEEA", "BAACAAUACAAKABEAFAAgACIAKAAqAEEA", 1)
    assert wrong != text and module.module_text(wrong) == text
