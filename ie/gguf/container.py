"""The container: from a path to metadata and tensor views.

Owns: header, metadata records, tensor records, split files, and every check that makes their bytes safe to use.
Does not own: what a key means for a model (`model.config`), what a tensor's bytes mean (`formats`), what a file that
is no GGUF seems to be (`hints`).

The file is mapped and read through a cursor that compares each need with the bytes left before it looks;
its first error sticks. A declared count is believed only when the bytes left could hold that many of the
smallest record. Arrays and tensors stay views of the mapping: opening touches the metadata alone.
Versions 2 and 3, little-endian. Gaps between tensors and any order of them are accepted, overlaps are not.
"""

import math
import mmap
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType, TracebackType
from typing import NoReturn, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, GgufError
from ..formats import Format, get_format
from .hints import HEADER_SIZE, MAGIC, describe, other_kind
from .mapped import map_file, show

VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_STRING = 1 << 30
MAX_ARRAY = 1 << 30
MAX_NAME = 63
MAX_DIMS = 4
MAX_INT64 = (1 << 63) - 1
# The smallest records that can exist: key of 1 byte with a 1-byte value; name of 1 byte with one dimension.
MIN_RECORD = 8 + 1 + 4 + 1
MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8

STRING = 8
ARRAY = 9
# type id: name, struct code, numpy type
_SCALARS: dict[int, tuple[str, struct.Struct, str]] = {
    0: ("u8", struct.Struct("<B"), "<u1"),
    1: ("i8", struct.Struct("<b"), "<i1"),
    2: ("u16", struct.Struct("<H"), "<u2"),
    3: ("i16", struct.Struct("<h"), "<i2"),
    4: ("u32", struct.Struct("<I"), "<u4"),
    5: ("i32", struct.Struct("<i"), "<i4"),
    6: ("f32", struct.Struct("<f"), "<f4"),
    7: ("bool", struct.Struct("<B"), "<u1"),
    10: ("u64", struct.Struct("<Q"), "<u8"),
    11: ("i64", struct.Struct("<q"), "<i8"),
    12: ("f64", struct.Struct("<d"), "<f8"),
}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

D = TypeVar("D")


class GgufArray:
    """An array of a metadata record, as a view of the mapping. Strings are raw bytes.

    ``type`` is ``"string"`` or the element's scalar type: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool.
    """

    __slots__ = ("_count", "_offset", "_part", "_type_id", "type")

    def __init__(self, part: "_Part", type_id: int, count: int, offset: int) -> None:
        self.type: str = "string" if type_id == STRING else _SCALARS[type_id][0]
        self._type_id = type_id
        self._count = count
        self._offset = offset
        self._part = part

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"GgufArray({self.type}[{self._count}])"

    def numpy(self) -> npt.NDArray[np.generic]:
        """The elements, read-only; no copy unless the type is bool. GgufError for strings."""
        if self._type_id == STRING:
            raise GgufError(f"{self._part.shown}: the array at byte offset {self._offset} holds strings, not numbers")
        dtype = np.dtype(_SCALARS[self._type_id][2])
        if self._count == 0:
            out = np.zeros(0, dtype=dtype)
        else:
            out = np.frombuffer(self._part.buffer(), dtype=dtype, count=self._count, offset=self._offset)
        return out != 0 if self.type == "bool" else out

    def strings(self) -> list[bytes]:
        """All strings, built anew on each call. GgufError when the elements are numbers."""
        return list(self._walk())

    def _walk(self) -> Iterator[bytes]:
        if self._type_id != STRING:
            raise GgufError(
                f"{self._part.shown}: the array at byte offset {self._offset} holds {self.type}, not strings"
            )
        buffer, position, unpack = self._part.buffer(), self._offset, _U64.unpack_from
        try:
            for _ in range(self._count):
                start = position + 8
                position = start + unpack(buffer, position)[0]
                yield buffer[start:position]
        except (struct.error, OverflowError):
            # open() has walked these lengths: only a file written to since then gets here
            raise GgufError(
                f"{self._part.shown}: the file changed while it was open: close it and open it again"
            ) from None

    def __iter__(self) -> Iterator[object]:
        return self._walk() if self._type_id == STRING else iter(self.numpy().tolist())

    def __getitem__(self, index: int) -> object:
        """One element: bytes or a number. A string costs a walk up to it: use ``strings()`` for many."""
        position = index + self._count if index < 0 else index
        if not 0 <= position < self._count:
            raise IndexError(f"index {index} of an array of {self._count}")
        if self._type_id != STRING:
            return self.numpy()[position].item()
        walk = self._walk()
        for _ in range(position):
            next(walk)
        return next(walk)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: ``shape`` in GGUF order (fastest dimension first), ``offset`` absolute in its part's file."""

    name: str
    shape: tuple[int, ...]
    format: Format
    nbytes: int
    offset: int
    part: int
    _part: "_Part" = field(repr=False, compare=False)

    @property
    def n_elements(self) -> int:
        """Product of the dimensions."""
        return math.prod(self.shape)

    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes, uint8 [nbytes], as a read-only view of the mapping."""
        return np.frombuffer(self._part.buffer(), dtype=np.uint8, count=self.nbytes, offset=self.offset)

    def release(self) -> None:
        """Give the memory of the whole pages inside the tensor back; the next access reads the file again."""
        start = -(-self.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (self.offset + self.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            self._part.buffer().madvise(mmap.MADV_DONTNEED, start, end - start)


@dataclass(frozen=True, slots=True)
class _Record:
    """A metadata value with what an error message about it needs."""

    value: object
    type: str
    offset: int


class _Part:
    """One mapped file: a whole model, or one part of a split one."""

    def __init__(self, path: str, index: int) -> None:
        self.path = path
        self.shown = show(path, limit=4096)
        self.index = index
        self.version = 0
        self.alignment = DEFAULT_ALIGNMENT
        self.records: dict[str, _Record] = {}
        self.tensors: list[TensorInfo] = []
        self._mapping: mmap.mmap | None
        self._mapping, self.size, self._unwatch = map_file(path)

    def buffer(self) -> mmap.mmap:
        """The mapping. GgufError after ``close``."""
        if self._mapping is None:
            raise GgufError(f"{self.shown}: the file has been closed: open it again")
        return self._mapping

    def close(self) -> None:
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            try:
                mapping.close()
            except BufferError:
                # views are still held: the mapping goes when the last of them does
                return
            self._unwatch()


class _Cursor:
    """A bounded read position in one part. ``context`` says what is being read, for messages."""

    def __init__(self, part: _Part) -> None:
        self.part = part
        self.buffer = part.buffer()
        self.end = part.size
        self.position = 0
        self.context = "the header"
        self._error: GgufError | None = None

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        """Raise the first error of this cursor, made of ``what`` and the place."""
        if self._error is None:
            place = self.position if at is None else at
            self._error = GgufError(f"{self.part.shown}: {self.context} (byte offset {place}): {what}")
        raise self._error

    def need(self, size: int) -> None:
        """Fail unless ``size`` more bytes exist."""
        if self._error is not None:
            raise self._error
        left = self.end - self.position
        if size > left:
            self.fail(f"the file ends here: {size:,} bytes expected, {left:,} there. Is the download complete?")

    def scalar(self, code: struct.Struct) -> int | float:
        """The next scalar."""
        self.need(code.size)
        value: int | float = code.unpack_from(self.buffer, self.position)[0]
        self.position += code.size
        return value

    def u32(self) -> int:
        return int(self.scalar(_U32))

    def u64(self) -> int:
        return int(self.scalar(_U64))

    def string(self) -> bytes:
        """The next length and that many bytes."""
        start = self.position
        length = self.u64()
        if length > MAX_STRING:
            self.fail(f"a string of {length:,} bytes: at most {MAX_STRING:,} are allowed. The file is damaged", start)
        self.need(length)
        value = self.buffer[self.position : self.position + length]
        self.position += length
        return value

    def skip_strings(self, count: int) -> None:
        """Pass over ``count`` strings. A vocabulary has hundreds of thousands: the loop does the least it can."""
        position, unpack, buffer = self.position, _U64.unpack_from, self.buffer
        try:
            for number in range(count):
                length = unpack(buffer, position)[0]
                if length > MAX_STRING:
                    self.fail(f"string {number} of {count:,} has {length:,} bytes: the file is damaged", position)
                position += 8 + length
        except struct.error:
            # a length led past the end of the mapping, where unpack_from does not read
            position = self.end + 1
        if position > self.end:
            self.fail(f"the file ends inside an array of {count:,} strings. Is the download complete?")
        self.position = position


class GgufFile:
    """An open model file with all of its parts. Use as a context manager, or call ``close``.

    ``metadata`` holds int, float, bool, str (invalid UTF-8 replaced) and GgufArray values;
    ``tensors`` is in file order, part after part. Numpy views made before ``close`` stay valid after it.
    """

    def __init__(self, parts: list[_Part]) -> None:
        first = parts[0]
        self.path = first.path
        self.version = first.version
        self.alignment = first.alignment
        self.n_parts = len(parts)
        self.file_size = sum(part.size for part in parts)
        self.metadata: Mapping[str, object] = MappingProxyType({k: r.value for k, r in first.records.items()})
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {info.name: info for part in parts for info in part.tensors}
        )
        self._parts = parts
        self._shown = first.shown

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "GgufFile":
        """Map a model and check all of its records. ``path`` is the file, or the first part of a split model.

        GgufError, with a hint where the mistake is a usual one, for anything that is not a safe GGUF model.
        As with every mapping, the file must not be shortened while it is open.
        """
        parts: list[_Part] = []
        try:
            first = _open_part(os.fsdecode(path), 0, parts)
            _refuse_other_kinds(first)
            _open_other_parts(first, parts)
            return cls(parts)
        except BaseException:
            for part in parts:
                part.close()
            raise

    def close(self) -> None:
        """Unmap the files, or leave that to the last view that is still held."""
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def get(self, key: str, default: object = None) -> object:
        """The value of a key, of whatever type."""
        return self.metadata.get(key, default)

    @overload
    def get_int(self, key: str, *, lo: int | None = None, hi: int | None = None) -> int: ...
    @overload
    def get_int(self, key: str, default: D, lo: int | None = None, hi: int | None = None) -> int | D: ...
    def get_int(self, key: str, default: object = ..., lo: int | None = None, hi: int | None = None) -> object:
        """An integer of any width, ``lo <= value <= hi``. GgufError when missing without default or wrong."""
        record = self._record(key, default, "an integer", int)
        return default if record is None else self._in_range(key, record, lo, hi)

    @overload
    def get_float(self, key: str, *, lo: float | None = None, hi: float | None = None) -> float: ...
    @overload
    def get_float(self, key: str, default: D, lo: float | None = None, hi: float | None = None) -> float | D: ...
    def get_float(self, key: str, default: object = ..., lo: float | None = None, hi: float | None = None) -> object:
        """A finite number, ``lo <= value <= hi``; an integer record will do. Errors as ``get_int``."""
        record = self._record(key, default, "a number", int, float)
        return default if record is None else float(self._in_range(key, record, lo, hi))

    @overload
    def get_bool(self, key: str) -> bool: ...
    @overload
    def get_bool(self, key: str, default: D) -> bool | D: ...
    def get_bool(self, key: str, default: object = ...) -> object:
        """A bool record. Errors as ``get_int``."""
        record = self._record(key, default, "a bool", bool)
        return default if record is None else record.value

    @overload
    def get_str(self, key: str) -> str: ...
    @overload
    def get_str(self, key: str, default: D) -> str | D: ...
    def get_str(self, key: str, default: object = ...) -> object:
        """A string record; bytes that are not UTF-8 are replaced. Errors as ``get_int``."""
        record = self._record(key, default, "a string", str)
        return default if record is None else record.value

    @overload
    def get_array(self, key: str, *, types: tuple[str, ...] = (), length: int | None = None) -> GgufArray: ...
    @overload
    def get_array(
        self, key: str, default: D, *, types: tuple[str, ...] = (), length: int | None = None
    ) -> GgufArray | D: ...
    def get_array(
        self, key: str, default: object = ..., *, types: tuple[str, ...] = (), length: int | None = None
    ) -> object:
        """An array, of one of ``types`` and of ``length`` elements where given. Errors as ``get_int``."""
        expected = "an array" + ("" if length is None else f" of {length} elements")
        if types:
            expected += " of type " + " or ".join(types)
        record = self._record(key, default, expected, GgufArray)
        if record is None:
            return default
        value = record.value
        assert isinstance(value, GgufArray)
        if (types and value.type not in types) or (length is not None and len(value) != length):
            self._wrong(key, record, expected)
        return value

    def _record(self, key: str, default: object, expected: str, *kinds: type) -> _Record | None:
        """The record of a key, of one of the Python types ``kinds``; None when it is absent and may be."""
        record = self._parts[0].records.get(key)
        if record is None and default is ...:
            raise GgufError(
                f"{self._shown}: the key {show(key)} is missing: expected {expected}. "
                "Is this a complete model, written by a current converter?"
            )
        # not isinstance: a bool is an int for Python, but not here
        if record is not None and type(record.value) not in kinds:
            self._wrong(key, record, expected)
        return record

    def _wrong(self, key: str, record: _Record, expected: str) -> NoReturn:
        value = record.value
        found = f"{len(value):,} elements" if isinstance(value, GgufArray) else show(str(value))
        raise GgufError(
            f"{self._shown}: key {show(key)} (byte offset {record.offset}) is {found} of type {record.type}: "
            f"expected {expected}"
        )

    def _in_range(self, key: str, record: _Record, lo: float | None, hi: float | None) -> int | float:
        value = record.value
        assert isinstance(value, int | float)
        if not math.isfinite(value):
            self._wrong(key, record, "a finite number")
        if (lo is not None and value < lo) or (hi is not None and value > hi):
            self._wrong(
                key, record, f"at least {lo}" if hi is None else f"at most {hi}" if lo is None else f"{lo} to {hi}"
            )
        return value


# --- one part ---------------------------------------------------------------------------------------------------


def _open_part(path: str, index: int, parts: list[_Part]) -> _Part:
    """Map, parse and check one file; it is in ``parts`` from the moment it holds a mapping."""
    part = _Part(path, index)
    parts.append(part)
    head = part.buffer()[:1024]
    if not head.startswith(MAGIC):
        raise GgufError(f"{part.shown}: {describe(head, part.size)}")
    cursor = _Cursor(part)
    n_tensors, n_records = _read_header(cursor)
    for number in range(n_records):
        cursor.context = f"metadata record {number} of {n_records}"
        _read_record(cursor)
    _read_alignment(cursor)
    _read_tensors(cursor, n_tensors)
    return part


def _read_header(cursor: _Cursor) -> tuple[int, int]:
    """Check version and counts: (tensors, records)."""
    cursor.need(HEADER_SIZE)
    cursor.position = len(MAGIC)
    version = cursor.u32()
    if version & 0xFFFF == 0 and version != 0:
        cursor.fail(
            "this is a big-endian file (for s390x and the like): expected a little-endian one. Convert it with "
            "gguf-convert-endian of the gguf package, or download the usual little-endian file",
            4,
        )
    if version not in VERSIONS:
        advice = (
            "convert the model again"
            if version < min(VERSIONS)
            else "this program is too old for the file, or it is damaged"
        )
        cursor.fail(f"GGUF version {version}: expected {' or '.join(map(str, VERSIONS))}; {advice}", 4)
    cursor.part.version = version
    n_tensors, n_records = cursor.u64(), cursor.u64()
    left, least = cursor.end - cursor.position, n_records * MIN_RECORD + n_tensors * MIN_TENSOR
    if least > left:
        cursor.fail(
            f"{n_tensors:,} tensors and {n_records:,} metadata records are declared, at least {least:,} bytes: "
            f"{left:,} follow. The file is damaged or its download incomplete",
            8,
        )
    return n_tensors, n_records


def _read_record(cursor: _Cursor) -> None:
    """One key/value record."""
    start = cursor.position
    key = cursor.string().decode("utf-8", "backslashreplace")
    if not key:
        cursor.fail("an empty key", start)
    cursor.context = f"key {show(key)}"
    if key in cursor.part.records:
        cursor.fail("the key occurs twice: the file is damaged or was edited badly", start)
    at = cursor.position
    type_id = cursor.u32()
    value: object
    if type_id == STRING:
        value, type_name = cursor.string().decode("utf-8", "replace"), "string"
    elif type_id == ARRAY:
        value = _read_array(cursor)
        type_name = f"array of {value.type}"
    elif type_id in _SCALARS:
        type_name, code, _ = _SCALARS[type_id]
        value = cursor.scalar(code)
        if type_name == "bool":
            value = value != 0
    else:
        cursor.fail(f"value type {type_id} is unknown: expected 0 to 12", at)
    cursor.part.records[key] = _Record(value, type_name, start)


def _read_array(cursor: _Cursor) -> GgufArray:
    """Element type and count; the elements are passed over, strings one by one."""
    at = cursor.position
    type_id, count = cursor.u32(), cursor.u64()
    if type_id == ARRAY:
        cursor.fail("an array of arrays: no model needs one, so it is not supported", at)
    if type_id != STRING and type_id not in _SCALARS:
        cursor.fail(f"array element type {type_id} is unknown: expected 0 to 12", at)
    if count > MAX_ARRAY:
        cursor.fail(f"an array of {count:,} elements: at most {MAX_ARRAY:,} are allowed. The file is damaged", at + 4)
    cursor.need(count * (8 if type_id == STRING else _SCALARS[type_id][1].size))
    array = GgufArray(cursor.part, type_id, count, cursor.position)
    if type_id == STRING:
        cursor.skip_strings(count)
    else:
        cursor.position += count * _SCALARS[type_id][1].size
    return array


def _read_alignment(cursor: _Cursor) -> None:
    record = cursor.part.records.get("general.alignment")
    if record is None:
        return
    cursor.context = "key general.alignment"
    value = record.value
    if record.type != "u32" or not isinstance(value, int):
        cursor.fail(f"it is of type {record.type}: expected u32", record.offset)
    if value == 0 or value & (value - 1) or value > MAX_ALIGNMENT:
        cursor.fail(f"it is {value}: expected a power of two up to {MAX_ALIGNMENT:,}", record.offset)
    cursor.part.alignment = value


def _read_tensors(cursor: _Cursor, count: int) -> None:
    """All tensor records, then where their data lies."""
    part = cursor.part
    found: list[tuple[str, tuple[int, ...], Format, int, int]] = []
    names: set[str] = set()
    for number in range(count):
        cursor.context = f"tensor record {number} of {count}"
        name = _read_name(cursor)
        if name in names:
            cursor.fail("the tensor name occurs twice: the file is damaged or was edited badly")
        names.add(name)
        shape = _read_shape(cursor)
        fmt = _read_format(cursor, shape)
        nbytes = math.prod(shape) // fmt.block * fmt.size
        if nbytes > MAX_INT64:
            cursor.fail(f"{nbytes:,} bytes do not fit in 63 bits: the file is damaged")
        at = cursor.position
        offset = cursor.u64()
        if offset % part.alignment:
            cursor.fail(f"data offset {offset:,} is not a multiple of the alignment {part.alignment}", at)
        found.append((name, shape, fmt, nbytes, offset))
    start = -(-cursor.position // part.alignment) * part.alignment
    part.tensors = [
        TensorInfo(name, shape, fmt, nbytes, start + offset, part.index, part)
        for name, shape, fmt, nbytes, offset in found
    ]
    _check_extents(part)


def _read_name(cursor: _Cursor) -> str:
    start = cursor.position
    raw = cursor.string()
    if not 0 < len(raw) <= MAX_NAME:
        cursor.fail(f"a tensor name of {len(raw):,} bytes: expected 1 to {MAX_NAME}", start)
    name = raw.decode("utf-8", "backslashreplace")
    cursor.context = f"tensor {show(name)}"
    return name


def _read_shape(cursor: _Cursor) -> tuple[int, ...]:
    at = cursor.position
    n_dims = cursor.u32()
    if not 0 < n_dims <= MAX_DIMS:
        cursor.fail(f"{n_dims} dimensions: expected 1 to {MAX_DIMS}", at)
    shape = tuple(cursor.u64() for _ in range(n_dims))
    if any(not 0 < n <= MAX_INT64 for n in shape) or math.prod(shape) > MAX_INT64:
        dims = " x ".join(map(str, shape))
        cursor.fail(f"shape {dims}: expected dimensions of at least 1 whose product fits in 63 bits", at + 4)
    return shape


def _read_format(cursor: _Cursor, shape: tuple[int, ...]) -> Format:
    at = cursor.position
    try:
        fmt = get_format(cursor.u32())
    except FormatError as error:
        cursor.fail(f"{error}. Is this program too old for the file?", at)
    if not fmt.stored:
        cursor.fail(f"{fmt.name} is a format of activations: a file of weights must not use it", at)
    if shape[0] % fmt.block:
        cursor.fail(f"rows of {shape[0]} elements: {fmt.name} needs a multiple of {fmt.block}", at)
    return fmt


def _check_extents(part: _Part) -> None:
    """Every tensor inside the file, none over another."""
    ordered = sorted(part.tensors, key=lambda info: info.offset)
    needed = max((info.offset + info.nbytes for info in ordered), default=0)
    for info in ordered:
        if info.offset + info.nbytes > part.size:
            there = max(0, part.size - info.offset)
            raise GgufError(
                f"{part.shown}: the file ends inside tensor {show(info.name)}: {info.nbytes:,} bytes expected at "
                f"offset {info.offset:,}, {there:,} there; in all {needed - part.size:,} bytes are missing. "
                "Is the download complete?"
            )
    for before, after in pairwise(ordered):
        if after.offset < before.offset + before.nbytes:
            raise GgufError(
                f"{part.shown}: tensor {show(after.name)} at offset {after.offset:,} overlaps {show(before.name)}, "
                f"which ends at {before.offset + before.nbytes:,}: the file is damaged or was edited badly"
            )


# --- split models -----------------------------------------------------------------------------------------------

_PART_NAME = re.compile(r"^(?P<prefix>.*)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf$", re.DOTALL)


def _split_value(part: _Part, key: str, high: int, default: int | None = None) -> int:
    """A ``split.*`` key, an integer of any width from 0 to ``high``."""
    record = part.records.get(key)
    if record is None:
        if default is None:
            raise GgufError(f"{part.shown}: the key {key} is missing: expected in every part of a split model")
        return default
    value = record.value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise GgufError(
            f"{part.shown}: key {key} (byte offset {record.offset}) is {show(str(value))} of type {record.type}: "
            f"expected an integer from 0 to {high}"
        )
    return value


def _open_other_parts(first: _Part, parts: list[_Part]) -> None:
    """Find, open and check the parts that follow ``first``, when it says that there are any."""
    count = _split_value(first, "split.count", 0xFFFF, 0)
    if count < 2:
        return
    names = _part_paths(first, count)
    total = _split_value(first, "split.tensors.count", 0x7FFFFFFF)
    missing = [name for name in names[1:] if not os.path.exists(name)]
    if missing:
        shown = ", ".join(show(os.path.basename(name)) for name in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise GgufError(f"{first.shown}: {len(missing)} of {count} parts are missing: expected {shown}{more} beside it")
    owners = {info.name: first for info in first.tensors}
    for index, name in enumerate(names[1:], 1):
        part = _open_part(name, index, parts)
        number, its_count = _split_value(part, "split.no", 0xFFFF), _split_value(part, "split.count", 0xFFFF)
        if (number, its_count) != (index, count):
            raise GgufError(
                f"{part.shown}: it says it is part {number + 1} of {its_count}: expected part {index + 1} of {count}. "
                "Was a file renamed, or do the parts belong to different models?"
            )
        for info in part.tensors:
            if info.name in owners:
                raise GgufError(f"{part.shown}: tensor {show(info.name)} is also in {owners[info.name].shown}")
            owners[info.name] = part
    if len(owners) != total:
        raise GgufError(
            f"{first.shown}: the parts hold {len(owners):,} tensors together: split.tensors.count says {total:,}. "
            "Do all parts belong to the same model?"
        )


def part_paths(path: str) -> list[str]:
    """The paths of all parts of the model of which `path` is one, by its name; of a model in one file, that."""
    folder, name = os.path.split(path)
    match = _PART_NAME.match(name)
    if not match:
        return [path] if path else []
    count = int(match["count"])
    return [os.path.join(folder, f"{match['prefix']}-{i:05d}-of-{match['count']}.gguf") for i in range(1, count + 1)]


def _part_paths(first: _Part, count: int) -> list[str]:
    """The paths of all parts, from the path of the first."""
    folder, name = os.path.split(first.path)
    match = _PART_NAME.match(name)
    number = _split_value(first, "split.no", 0xFFFF)
    if number != 0:
        prefix = match["prefix"] if match else "<name>"
        start = show(os.path.join(folder, f"{prefix}-00001-of-{count:05d}.gguf"), 4096)
        raise GgufError(
            f"{first.shown}: this is part {number + 1} of {count} of a split model: give its first part, {start}"
        )
    if not match or int(match["number"]) != 1 or int(match["count"]) != count:
        raise GgufError(
            f"{first.shown}: this is part 1 of {count} of a split model, but its name does not end in "
            f"-00001-of-{count:05d}.gguf, so that the other parts cannot be found: give the files their names back"
        )
    return [os.path.join(folder, f"{match['prefix']}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]


def _refuse_other_kinds(part: _Part) -> None:
    """GGUF files that hold no model."""
    for key in ("general.type", "general.architecture"):
        record = part.records.get(key)
        if record is not None and (kind := other_kind(record.value)):
            raise GgufError(
                f"{part.shown}: key {key} (byte offset {record.offset}) is {record.value}: this is {kind}. "
                "Give the model's own file"
            )
