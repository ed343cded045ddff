"""THE table of GGUF tensor formats and of device layouts.

Owns: which formats exist and their block sizes, the layouts that weights take on a device. Does not own: the meaning
of a format's bytes (`dequant`), moving bytes between file format and layout (`devices.repack`), reading files (`gguf`).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FormatError

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Format:
    """A tensor type: ``block`` elements along the contiguous dimension take ``size`` bytes.

    ``stored`` is False for the two formats that only activations use: a file must not hold them.
    """

    id: int
    name: str
    block: int
    size: int
    stored: bool = True

    @property
    def holds_weights(self) -> bool:
        """Whether a model's matrices may have it: not the activation formats, not integers (index tables)."""
        return self.stored and self.name not in ("I8", "I16", "I32", "I64")

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of ``n`` elements. FormatError unless ``n`` is a whole number of blocks."""
        if n < 0 or n % self.block:
            raise FormatError(f"a row of {n} elements cannot be {self.name}: blocks of {self.block} are expected")
        return n // self.block * self.size


@dataclass(frozen=True)
class Field:
    """A field of a file block and how a tile keeps it: ``count`` elements of ``unit`` bytes from byte ``source``.

    Element e of lane r stands at (e * lanes + r) * unit inside the tile's field, so that one load gives the same
    element of all lanes. ``transform``: copy; bias (sign bit of each byte flipped: code + 128); spread (bit 4w + b
    of a 32-bit word moves to bit 8b + w, see ie_spread_bits in core_laws/ie_core.h). nibbles and pairs make planes, in
    which 4 or 2 bits of each of the lanes stand side by side (ie_plane_bit): of byte e, the low nibble is in plane e
    and the high one in plane count + e; the four pairs of bits, lowest first, are in planes 4e … 4e + 3.
    """

    name: str
    source: int
    unit: int
    count: int
    transform: str = "copy"


@dataclass(frozen=True)
class Layout:
    """How a device keeps weights of one format: tiles of ``rows`` rows (lanes) by ``block`` elements.

    The tiles of one row group follow each other in ascending K, the groups in ascending row; rows that do not fill
    the last group are zero bytes. A layout takes as many bytes as the file format it comes from. Without fields
    (``rows`` 1) it is the file format itself. ``activation``: what the matrix product reads, q8 or f32. ``arranged``:
    the bits of a block are permuted before the fields are taken from it (ie/devices/repack.py says how).

    What a matrix product must know of codes, where the activation is q8 (kernels_c/include/tiles.h): ``bias``, which a
    loader's unsigned codes have too much (128: codes use whole bytes); ``halves``: a scale for each 16 values, not 32;
    ``lookup``: codes are looked up in a table of values.
    """

    id: int
    name: str
    format_name: str
    block: int
    size_per_row_block: int
    fields: tuple[Field, ...] = ()
    rows: int = 16
    activation: str = "q8"
    arranged: bool = False
    bias: int = 0
    halves: bool = False
    lookup: bool = False

    @property
    def runs(self) -> int:
        """Runs of 32 values that a tile has along K: of each row as many as share one scale of the activations."""
        return self.block // 32

    @property
    def has_minimum(self) -> bool:
        """Whether values are scale * code + minimum: then the file's block has a field for it."""
        return any(field.name == "m" for field in self.fields)

    @property
    def size(self) -> int:
        """Bytes of one tile."""
        return self.rows * self.size_per_row_block

    def offset(self, name: str) -> int:
        """Byte offset of a field in the tile."""
        pos = 0
        for field in self.fields:
            if field.name == name:
                return pos
            pos += field.unit * field.count * self.rows
        raise KeyError(name)

    def nbytes(self, n_rows: int, n_elements: int) -> int:
        """Bytes of a matrix of ``n_rows`` rows of ``n_elements``, its padding rows included."""
        if n_elements % self.block:
            raise FormatError(f"a row of {n_elements} elements cannot be {self.name}: blocks of {self.block}")
        return -(-n_rows // self.rows) * (n_elements // self.block) * self.size


# id, name, elements, bytes
_TABLE: tuple[tuple[int, str, int, int], ...] = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)
_ACTIVATION_ONLY = frozenset({"Q8_1", "Q8_K"})
_REMOVED = frozenset({4, 5, 31, 32, 33, 36, 37, 38})

FORMATS: dict[int, Format] = {
    id_: Format(id_, name, block, size, name not in _ACTIVATION_ONLY) for id_, name, block, size in _TABLE
}
_BY_NAME: dict[str, Format] = {fmt.name: fmt for fmt in FORMATS.values()}


def _half(name: str, source: int) -> Field:
    return Field(name, source, 2, 1)


def _words(name: str, source: int, count: int, transform: str = "copy") -> Field:
    return Field(name, source, 4, count, transform)


def _grid_layout(
    id_: int, name: str, size: int, indices: int, scales: int = 0, high: int = 0, halves: bool = False
) -> Layout:
    """A layout of blocks of 256 that index a grid: d, words of index bytes, signs, then words of scales and bytes of
    the indices' higher bits where a format has them."""
    signs = 2 + 4 * indices
    fields = [_half("d", 0), _words("q", 2, indices), Field("g", signs, 1, 32, "nibbles")]
    if scales:
        fields.append(_words("s", signs + 32, scales))
    if high:
        fields.append(Field("h", signs + 32 + 4 * scales, 1, high, "pairs"))
    return Layout(
        id_, f"{name.lower()}x16", name, 256, size, tuple(fields), arranged=True, bias=128, halves=halves, lookup=True
    )


# Codes stand in 4-byte words, one lane a row: one 64-byte load gives a dot4 operand for each of 16 rows.
LAYOUTS: tuple[Layout, ...] = (
    Layout(1, "q4_1x16", "Q4_1", 32, 20, (_half("d", 0), _half("m", 2), _words("q", 4, 4))),
    Layout(2, "q8_0x16", "Q8_0", 32, 34, (_half("d", 0), _words("q", 2, 8, "bias")), bias=128),
    Layout(3, "f32x16", "F32", 1, 4, (Field("v", 0, 4, 1),), activation="f32"),
    Layout(4, "f16x16", "F16", 1, 2, (Field("v", 0, 2, 1),), activation="f32"),
    Layout(5, "bf16x16", "BF16", 1, 2, (Field("v", 0, 2, 1),), activation="f32"),
    Layout(6, "q4_0x16", "Q4_0", 32, 18, (_half("d", 0), _words("q", 2, 4)), bias=8),
    Layout(
        7, "q5_0x16", "Q5_0", 32, 22,
        (_half("d", 0), _words("h", 2, 1, "spread"), _words("q", 6, 4)), bias=16,
    ),
    Layout(
        8, "q5_1x16", "Q5_1", 32, 24,
        (_half("d", 0), _half("m", 2), _words("h", 4, 1, "spread"), _words("q", 8, 4)),
    ),
    Layout(9, "q4_kx16", "Q4_K", 256, 144, (_half("d", 0), _half("m", 2), _words("s", 4, 3), _words("q", 16, 32))),
    Layout(
        10, "q5_kx16", "Q5_K", 256, 176,
        (_half("d", 0), _half("m", 2), _words("s", 4, 3), _words("h", 16, 8), _words("q", 48, 32)),
    ),
    Layout(
        11, "q6_kx16", "Q6_K", 256, 210,
        (_half("d", 208), Field("s", 192, 1, 16), _words("h", 128, 16), _words("q", 0, 32)), bias=32, halves=True,
    ),
    Layout(12, "iq4_nlx16", "IQ4_NL", 32, 18, (_half("d", 0), _words("q", 2, 4)), bias=128, lookup=True),
    Layout(13, "mxfp4x16", "MXFP4", 32, 17, (Field("e", 0, 1, 1), _words("q", 1, 4)), bias=128, lookup=True),
    Layout(
        14, "iq4_xsx16", "IQ4_XS", 256, 136,
        (_half("d", 0), _half("h", 2), _words("s", 4, 1), _words("q", 8, 32)), bias=128, lookup=True,
    ),
    Layout(
        15, "q2_kx16", "Q2_K", 256, 84,
        (_half("d", 80), _half("m", 82), _words("s", 0, 4), _words("q", 16, 16)), halves=True,
    ),
    Layout(
        16, "q3_kx16", "Q3_K", 256, 110,
        (_half("d", 108), _words("s", 96, 3), _words("h", 0, 8), _words("q", 32, 16)), bias=4, halves=True,
    ),
    _grid_layout(17, "IQ2_XXS", 66, 8),
    _grid_layout(18, "IQ2_XS", 74, 8, scales=1, high=4, halves=True),
    _grid_layout(19, "IQ2_S", 82, 8, scales=2, high=8, halves=True),
    _grid_layout(20, "IQ3_XXS", 98, 16),
    _grid_layout(21, "IQ3_S", 110, 16, scales=1, high=8),
)  # fmt: skip

ROWS_LAYOUT = 128
"""Layout ids from here on are file formats kept as they are: ROWS_LAYOUT + format id, decoded row by row."""


def format_by_name(name: str) -> Format:
    """The format of that name, as in ``Q4_1``. FormatError when there is none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise FormatError(f"no tensor format is called {name!r}: expected one of {' '.join(_BY_NAME)}") from None


def get_format(id_: int) -> Format:
    """The format of that GGUF type id. FormatError when the id is removed or unknown."""
    fmt = FORMATS.get(id_)
    if fmt is None:
        why = "was removed from GGUF: quantise the model again" if id_ in _REMOVED else "is unknown"
        raise FormatError(f"tensor type {id_} {why} (known: 0 to {max(FORMATS)})")
    return fmt


def layout_by_name(name: str) -> Layout:
    """The interleaved layout of that name, as in ``q4_1x16``. FormatError when there is none."""
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    raise FormatError(f"no layout is called {name!r}: expected one of {' '.join(lay.name for lay in LAYOUTS)}")


def activation_of(fmt: Format) -> str:
    """What a matrix product with weights of this format reads: q8 or f32, on every device the same. FormatError for one
    that is none of weights."""
    return layout_for(fmt).activation


def layout_for(fmt: Format) -> Layout:
    """The device layout for weights of a file format: interleaved where the kernels have one, else the file's rows."""
    for layout in LAYOUTS:
        if layout.format_name == fmt.name:
            return layout
    if not fmt.holds_weights:
        raise FormatError(f"{fmt.name} is not a format of weights")
    name = f"{fmt.name.lower()}_rows"
    return Layout(ROWS_LAYOUT + fmt.id, name, fmt.name, fmt.block, fmt.size, rows=1, activation="f32")
