"""Finds a kernel's machine code in a code object: for tests that patch it or read it."""

from __future__ import annotations

import struct


def symbols(image: bytes) -> dict[str, tuple[int, int, int]]:
    """Name to (type, address, size) of a little-endian 64-bit ELF file's dynamic symbols."""
    (shoff,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, shoff + i * size) for i in range(count)]
    out = {}
    for header in headers:
        if header[1] in (2, 11):
            names = headers[header[6]]
            for at in range(header[4], header[4] + header[5], 24):
                name, info, _, _, value, length = struct.unpack_from("<IBBHQQ", image, at)
                end = image.index(b"\0", names[4] + name)
                out[image[names[4] + name : end].decode()] = (info & 15, value, length)
    return out


def file_offset(image: bytes, address: int) -> int:
    """Where in the file the segment that holds this address keeps it."""
    (phoff,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    for i in range(count):
        kind, _, offset, virtual, _, filesz, _, _ = struct.unpack_from("<IIQQQQQQ", image, phoff + i * size)
        if kind == 1 and virtual <= address < virtual + filesz:
            return offset + address - virtual
    raise ValueError(f"no segment holds {address:#x}")


def functions(image: bytes) -> dict[str, tuple[int, int]]:
    """Name to (address, size) of the functions."""
    return {name: (value, size) for name, (kind, value, size) in symbols(image).items() if kind == 2}


def kernel_code(image: bytes, name: str) -> tuple[int, bytes]:
    """File offset and bytes of a function."""
    address, size = functions(image)[name]
    start = file_offset(image, address)
    return start, image[start : start + size]


def patched(image: bytes, at: int, data: bytes) -> bytes:
    return image[:at] + data + image[at + len(data) :]
