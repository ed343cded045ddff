"""Crafted GGUF bytes for tests, valid or broken on purpose.

Owns: a writer that takes every field as given, so that each can be wrong on its own. Written from the format's
description and not from ie/gguf/. Does not own: models that can run (tiny_models/).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}

TYPE_F32, TYPE_F16, TYPE_Q4_0, TYPE_Q8_0, TYPE_Q8_1, TYPE_Q8_K, TYPE_Q4_K = 0, 1, 2, 8, 9, 15, 12


def string(text: str | bytes) -> bytes:
    """A length and the bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def scalar(type_id: int, value: object) -> bytes:
    """A value of a scalar type, or a string."""
    if type_id == STRING:
        assert isinstance(value, str | bytes)
        return string(value)
    return struct.pack("<" + _CODES[type_id], value)


def record(key: str | bytes, type_id: int, value: object) -> bytes:
    """A metadata record with a scalar or string value."""
    return string(key) + struct.pack("<I", type_id) + scalar(type_id, value)


def array(key: str | bytes, type_id: int, values: Sequence[object], count: int | None = None) -> bytes:
    """A metadata record with an array; ``count`` lies about its length."""
    head = struct.pack("<IIQ", ARRAY, type_id, len(values) if count is None else count)
    return string(key) + head + b"".join(scalar(type_id, value) for value in values)


def tensor(name: str | bytes, dims: Sequence[int], type_id: int = TYPE_F32, offset: int = 0) -> bytes:
    """A tensor record."""
    return (
        string(name)
        + struct.pack("<I", len(dims))
        + struct.pack(f"<{len(dims)}Q", *dims)
        + struct.pack("<IQ", type_id, offset)
    )


def header(n_tensors: int, n_records: int, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    """The first 24 bytes."""
    return magic + struct.pack("<IQQ", version, n_tensors, n_records)


def gguf(
    records: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A whole file; the data section is padded to ``alignment`` when there are tensors."""
    head = header(len(tensors), len(records), version) + b"".join(records) + b"".join(tensors)
    padding = b"\0" * (-len(head) % alignment) if tensors else b""
    return head + padding + data
