"""Spoils single fields of a valid GGUF file in place, for tests of what the engine refuses.

Owns: finding a metadata value or a tensor record by its name and overwriting it with as many bytes. It does not know
what the fields mean.
"""

from __future__ import annotations

import struct
from pathlib import Path

from ie.gguf import GgufFile

U32, F32, STRING = 4, 6, 8


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _after(data: bytearray, name: str) -> int:
    """Offset behind the one record that starts with this name."""
    assert data.count(_string(name)) == 1, f"{name} stands {data.count(_string(name))} times"
    return data.index(_string(name)) + len(_string(name))


def _edit(path: Path, at: int, new: bytes, data: bytearray) -> Path:
    data[at : at + len(new)] = new
    path.write_bytes(data)
    return path


def set_u32(path: Path, key: str, value: int) -> Path:
    data = bytearray(path.read_bytes())
    at = _after(data, key)
    assert struct.unpack_from("<I", data, at)[0] == U32
    return _edit(path, at + 4, struct.pack("<I", value), data)


def set_f32(path: Path, key: str, value: float) -> Path:
    data = bytearray(path.read_bytes())
    at = _after(data, key)
    assert struct.unpack_from("<I", data, at)[0] == F32
    return _edit(path, at + 4, struct.pack("<f", value), data)


def set_data(path: Path, tensor: str, value: float) -> Path:
    """Every element of an F32 tensor."""
    with GgufFile.open(path) as gguf:
        info = gguf.tensors[tensor]
        at, n = info.offset, info.n_elements
    return _edit(path, at, struct.pack("<f", value) * n, bytearray(path.read_bytes()))


def set_type(path: Path, tensor: str, type_id: int) -> Path:
    """The tensor's type id; its offset and bytes stay."""
    data = bytearray(path.read_bytes())
    at = _after(data, tensor)
    (dims,) = struct.unpack_from("<I", data, at)
    return _edit(path, at + 4 + 8 * dims, struct.pack("<I", type_id), data)


def set_shape(path: Path, tensor: str, shape: tuple[int, ...]) -> Path:
    data = bytearray(path.read_bytes())
    at = _after(data, tensor)
    assert struct.unpack_from("<I", data, at)[0] == len(shape)
    return _edit(path, at + 4, struct.pack(f"<{len(shape)}Q", *shape), data)


def rename(path: Path, old: str, new: str) -> Path:
    """Replace a name everywhere; both have one length."""
    assert len(old) == len(new)
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode()))
    return path
