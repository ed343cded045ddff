"""Reads a gfx1201 code object: sections, symbols, kernel descriptors, metadata notes.

Owns: the layout of ELF64, of the 64-byte kernel descriptor and of the metadata note (MessagePack). Every offset and
size in the file is checked against what is there before it is used, and every number of things against a bound, so that
a small file cannot ask for much time or memory. Names are text for people and for comparing: whoever generates code
takes numbers from here, a name's place in the file among them. Nothing here knows instructions.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from .errors import BadFile

EM_AMDGPU = 224
ET_REL = 1
FLAGS_MACH = 0xFF
MACH_GFX1200, MACH_GFX1201 = 0x48, 0x4E
NOTE_METADATA = 32
SHT_SYMTAB, SHT_NOTE, SHT_DYNSYM = 2, 7, 11
SHT_RELA = 4
R_ABS64, R_RELATIVE64 = 3, 13
PT_LOAD = 1
STT_OBJECT, STT_FUNC = 1, 2
BUNDLE, COMPRESSED, CARD = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"-gfx1201"
DESCRIPTOR_BYTES = 64
# What no compiler comes near; real files have some ten sections and a few thousand symbols.
MOST_SECTIONS, MOST_SEGMENTS, MOST_SYMBOLS, MOST_RELOCATIONS = 1024, 256, 1 << 18, 1 << 18
MOST_NAME, MOST_NAMES = 1 << 16, 1 << 26
"""Bytes of a symbol's name, and of all names together."""
MOST_NOTES, MOST_METADATA, MOST_VALUES = 1024, 1 << 26, 1 << 21
"""Notes, bytes of the metadata note, values in it."""
MOST_BUNDLED = 1024
"""Entries of a bundle."""
# A kernel that calls what cannot be bounded says so; its stack is then as large as ROCm makes it by default.
DYNAMIC_STACK, STACK_BYTES = 1 << 11, 16384


@dataclass(frozen=True)
class Symbol:
    """name_at: offset in the file of the name, which has name_bytes bytes."""

    name: str
    address: int
    size: int
    kind: int  # STT_OBJECT 1, STT_FUNC 2
    section: int
    name_at: int = 0

    @property
    def name_bytes(self) -> int:
        return len(encoded(self.name))


@dataclass(frozen=True)
class Kernel:
    """A kernel's entry, its descriptor's fields, and what the metadata say of its arguments.

    name_at: offset in the file of the name, which has name_bytes bytes.
    """

    name: str
    entry: int
    size: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    rsrc1: int
    rsrc2: int
    properties: int
    preload: int
    args: list[dict[str, Any]] = field(default_factory=list)
    vgprs: int = 0
    sgprs: int = 0
    max_threads: int = 1024
    name_at: int = 0

    @property
    def name_bytes(self) -> int:
        return len(encoded(self.name))


def decoded(name: bytes) -> str:
    """A name of a file as text; bytes that are no UTF-8 survive the way back (encoded)."""
    return name.decode("utf-8", "surrogateescape")


def encoded(name: str) -> bytes:
    """The bytes of a name in the file."""
    return name.encode("utf-8", "surrogateescape")


def whole(value: Any) -> bool:
    """Whether a value of the metadata is a number: true and false are none."""
    return type(value) is int


def unbundled(data: bytes) -> bytes:
    """The code object for gfx1201 in a bundle as hipcc writes it, not compressed; anything else as it is. BadFile."""
    if data[: len(COMPRESSED)] == COMPRESSED:
        raise BadFile("a compressed bundle: unpack it with clang-offload-bundler")
    if data[: len(BUNDLE)] != BUNDLE:
        return data
    try:
        (count,), at = struct.unpack_from("<Q", data, 24), 32
        if count > MOST_BUNDLED:
            raise BadFile(f"a bundle of {count} entries, expected at most {MOST_BUNDLED}")
        for _ in range(count):
            offset, size, name_size = struct.unpack_from("<3Q", data, at)
            name = data[at + 24 : at + 24 + name_size]
            if name.partition(b":")[0].endswith(CARD):
                if offset + size > len(data):
                    raise BadFile("a bundle that is cut short")
                return data[offset : offset + size]
            at += 24 + name_size
    except struct.error:
        raise BadFile("a bundle that is cut short") from None
    raise BadFile("a bundle without a code object for gfx1201")


class CodeObject:
    """A parsed code object. Raises BadFile for anything that is none for gfx1200 or gfx1201."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if len(data) < 64 or data[:4] != b"\x7fELF":
            raise BadFile("not an ELF file")
        if data[4] != 2 or data[5] != 1:
            raise BadFile("not a 64-bit little-endian ELF file")
        machine = self._read("<H", 18)
        if machine != EM_AMDGPU:
            raise BadFile(f"ELF machine {machine}, expected {EM_AMDGPU} (AMD GPU)")
        if self._read("<H", 16) == ET_REL:
            raise BadFile("not linked: ld.lld -shared")
        flags = self._read("<I", 48)
        if flags & FLAGS_MACH not in (MACH_GFX1200, MACH_GFX1201):
            raise BadFile(f"code for processor {flags & FLAGS_MACH:#x} of the ELF flags, expected gfx1201 or gfx1200")
        self.processor = {MACH_GFX1200: "gfx1200", MACH_GFX1201: "gfx1201"}[flags & FLAGS_MACH]
        self.segments = self._segments()
        self.sections = self._sections()
        self.symbols = self._symbols()
        self._check_functions()
        self.metadata = self._metadata()
        self.kernels = self._kernels()

    def _read(self, layout: str, offset: int) -> Any:
        values = self._tuple(layout, offset)
        return values[0] if len(values) == 1 else values

    def _tuple(self, layout: str, offset: int) -> tuple[Any, ...]:
        self._inside(offset, struct.calcsize(layout))
        return struct.unpack_from(layout, self.data, offset)

    def _inside(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise BadFile(f"cut short: {size} bytes wanted at offset {offset:#x}, the file has {len(self.data)}")

    def _slice(self, offset: int, size: int) -> bytes:
        self._inside(offset, size)
        return self.data[offset : offset + size]

    def _segments(self) -> list[tuple[int, int, int, int]]:
        """(address, file offset, file bytes, memory bytes) of what is loaded."""
        start, size, count = self._read("<Q", 32), self._read("<H", 54), self._read("<H", 56)
        self._table("program headers", count, MOST_SEGMENTS, size, 56)
        found = []
        for i in range(count):
            kind, _, offset, address, _, in_file, in_memory, _ = self._tuple("<IIQQQQQQ", start + i * size)
            if kind == PT_LOAD:
                self._inside(offset, in_file)
                if in_memory < in_file or address + in_memory > 1 << 32:
                    raise BadFile(f"segment at {address:#x} has an impossible size {in_memory}")
                found.append((address, offset, in_file, in_memory))
        ordered = sorted(found)
        for (address, _, _, in_memory), (after, *_) in zip(ordered, ordered[1:], strict=False):
            if address + in_memory > after:
                raise BadFile(f"the segments at {address:#x} and {after:#x} overlap")
        return found

    def _sections(self) -> list[tuple[int, int, int, int, int, int]]:
        """(type, address, offset, size, link, entry size) of each section."""
        start, size, count = self._read("<Q", 40), self._read("<H", 58), self._read("<H", 60)
        self._table("sections", count, MOST_SECTIONS, size, 64)
        found = []
        for i in range(count):
            _, kind, _, address, offset, length, link, _, _, entry = self._tuple("<IIQQQQIIQQ", start + i * size)
            found.append((kind, address, offset, length, link, entry))
        for kind in (SHT_SYMTAB, SHT_DYNSYM):
            if sum(section[0] == kind for section in found) > 1:
                raise BadFile(f"several symbol tables of type {kind}, expected one")
        return found

    def _table(self, what: str, count: int, most: int, size: int, expected: int) -> None:
        if count > most:
            raise BadFile(f"{count} {what}, expected at most {most}")
        if count and size != expected:
            raise BadFile(f"{what} of {size} bytes each, expected {expected}")

    def _name(self, offset: int, end: int) -> str:
        """The text at an offset of the file up to a zero byte, or to `end` of its table."""
        stop = self.data.find(b"\0", offset, min(end, offset + MOST_NAME + 1))
        stop = min(end, len(self.data), offset + MOST_NAME + 1) if stop < 0 else stop
        if stop - offset > MOST_NAME:
            raise BadFile(f"a symbol's name at offset {offset:#x} has more than {MOST_NAME} bytes")
        return decoded(self.data[offset:stop]) if stop > offset else ""

    def _symbols(self) -> list[Symbol]:
        found: dict[tuple[str, int], Symbol] = {}
        characters = 0
        for kind, _, offset, length, link, _ in self.sections:
            if kind not in (SHT_SYMTAB, SHT_DYNSYM):
                continue
            if link >= len(self.sections):
                raise BadFile(f"a symbol table names section {link} of {len(self.sections)}")
            if length // 24 > MOST_SYMBOLS:
                raise BadFile(f"a table of {length // 24} symbols, expected at most {MOST_SYMBOLS}")
            names, end = self.sections[link][2], self.sections[link][2] + self.sections[link][3]
            self._inside(names, end - names)
            for at in range(offset, offset + length - 23, 24):
                name, info, _, section, address, size = self._tuple("<IBBHQQ", at)
                symbol = Symbol(self._name(names + name, end), address, size, info & 15, section, names + name)
                characters += len(symbol.name)
                if characters > MOST_NAMES:
                    raise BadFile(f"names of symbols with more than {MOST_NAMES} bytes together")
                if symbol.name:
                    found[(symbol.name, address)] = symbol
        return sorted(found.values(), key=lambda s: (s.address, s.name))

    def _check_functions(self) -> None:
        """Functions stand one behind the other, though one may have several names: together they fit into the file."""
        sizes: dict[int, int] = {}
        for symbol in self.symbols:
            if symbol.kind == STT_FUNC and symbol.section:
                sizes[symbol.address] = max(symbol.size, sizes.get(symbol.address, 0))
        total = sum(sizes.values())
        if total > len(self.data):
            raise BadFile(f"functions of {total} bytes together in a file of {len(self.data)}: they overlap")

    def _metadata(self) -> dict[str, Any]:
        notes = 0
        for kind, _, offset, length, _, _ in self.sections:
            at = offset
            while kind == SHT_NOTE and at + 12 <= offset + length:
                notes += 1
                if notes > MOST_NOTES:
                    raise BadFile(f"more than {MOST_NOTES} notes")
                name_size, size, note = self._tuple("<III", at)
                at += 12 + (name_size + 3 & ~3)
                if note == NOTE_METADATA:
                    if size > MOST_METADATA:
                        raise BadFile(f"metadata of {size} bytes, expected at most {MOST_METADATA}")
                    value = Unpacker(self._slice(at, size)).value()
                    return value if isinstance(value, dict) else {}
                at += size + 3 & ~3
        return {}

    def file_offset(self, address: int, size: int) -> int:
        """Where `size` bytes at a virtual address stand in the file."""
        for start, offset, in_file, _ in self.segments:
            if start <= address and address + size <= start + in_file:
                return offset + address - start
        raise BadFile(f"address {address:#x} is in no loaded segment of the file")

    def end_of_segment(self, address: int) -> int:
        """Where the file's part of the segment that holds this address ends."""
        for start, _, in_file, _ in self.segments:
            if start <= address < start + in_file:
                return start + in_file
        raise BadFile(f"address {address:#x} is in no loaded segment of the file")

    def code(self, address: int, size: int) -> bytes:
        return self._slice(self.file_offset(address, size), size)

    def _kernel_notes(self) -> dict[str, dict[str, Any]]:
        """The metadata of each kernel by the name of its descriptor, without values of a type that is not theirs."""
        listed = self.metadata.get("amdhsa.kernels", [])
        notes = {}
        for note in listed if isinstance(listed, list) else []:
            if isinstance(note, dict) and isinstance(note.get(".symbol"), str):
                kept = {k: v for k, v in note.items() if whole(v) and 0 <= v < 1 << 32}
                args = note.get(".args", [])
                kept[".args"] = [a for a in args if isinstance(a, dict)] if isinstance(args, list) else []
                notes[note[".symbol"]] = kept
        return notes

    def _kernels(self) -> list[Kernel]:
        notes = self._kernel_notes()
        functions = {s.name: s for s in self.symbols if s.kind == STT_FUNC}
        kernels: list[Kernel] = []
        seen: set[str] = set()
        code_bytes = 0
        for symbol in self.symbols:
            name = symbol.name.removesuffix(".kd")
            if not symbol.name.endswith(".kd") or name not in functions:
                continue
            code_bytes += functions[name].size
            if name in seen or code_bytes > 2 * len(self.data):
                why = "defined twice" if name in seen else "its code overlaps that of others"
                raise BadFile(f"kernel {name}: {why}")
            seen.add(name)
            at = self.file_offset(symbol.address, DESCRIPTOR_BYTES)
            lds, scratch, kernarg = self._tuple("<III", at)
            entry = symbol.address + self._read("<q", at + 16)
            rsrc1, rsrc2 = self._tuple("<II", at + 48)
            properties, preload = self._tuple("<HH", at + 56)
            if properties & DYNAMIC_STACK:
                scratch += STACK_BYTES
            note = notes.get(symbol.name, {})
            if entry != functions[name].address:
                raise BadFile(f"kernel {name}: its descriptor's entry {entry:#x} is not the function's address")
            threads = note.get(".max_flat_workgroup_size", 1024)
            if lds > 65536 or scratch > 1 << 20 or kernarg > 65536 or not 1 <= threads <= 1024:
                raise BadFile(
                    f"kernel {name}: LDS {lds}, scratch {scratch}, arguments {kernarg}"
                    f" or threads {threads} out of range"
                )
            kernels.append(
                Kernel(
                    name,
                    entry,
                    functions[name].size,
                    lds,
                    scratch,
                    kernarg,
                    rsrc1,
                    rsrc2,
                    properties,
                    preload,
                    note.get(".args", []),
                    note.get(".vgpr_count", 0),
                    note.get(".sgpr_count", 0),
                    threads,
                    symbol.name_at,
                )
            )
        return kernels

    def relocations(self) -> list[tuple[int, int]]:
        """(address, value) of 64-bit words that get the load address added. Raises BadFile for any other kind."""
        found: list[tuple[int, int]] = []
        for kind, _, offset, length, _, _ in self.sections:
            if kind == SHT_RELA and len(found) + length // 24 > MOST_RELOCATIONS:
                raise BadFile(f"more than {MOST_RELOCATIONS} relocations")
            for at in range(offset, offset + length - 23, 24) if kind == SHT_RELA else ():
                address, info, addend = self._tuple("<QQq", at)
                if info & 0xFFFFFFFF == R_RELATIVE64:
                    value = addend
                elif info & 0xFFFFFFFF == R_ABS64:
                    value = self._dynamic_symbol(info >> 32) + addend
                else:
                    raise BadFile(
                        f"relocation of type {info & 0xFFFFFFFF} at {address:#x}: the file is not fully linked"
                    )
                if not any(start <= address <= start + size - 8 for start, _, _, size in self.segments):
                    raise BadFile(f"a relocation at {address:#x} lies in no segment")
                found.append((address, value & (1 << 64) - 1))
        return found

    def _dynamic_symbol(self, index: int) -> int:
        for kind, _, offset, length, _, _ in self.sections:
            if kind == SHT_DYNSYM and 24 * index + 24 <= length:
                value = self._tuple("<IBBHQQ", offset + 24 * index)
                if value[3]:
                    return int(value[4])
        raise BadFile(f"a relocation names symbol {index}, which the file does not define")


class Unpacker:
    """A MessagePack reader for the metadata note; a length beyond the end, a key that is no text or number, and more
    than MOST_VALUES values raise BadFile."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.depth, self.values = data, 0, 0, 0

    def _take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise BadFile(f"metadata cut short at byte {self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def _uint(self, count: int) -> int:
        return int.from_bytes(self._take(count), "big")

    def _sequence(self, count: int, pairs: bool) -> Any:
        self.depth += 1
        if count > len(self.data) - self.at or self.depth > 16:
            raise BadFile(f"metadata cut short at byte {self.at}")
        values = {self._key(): self.value() for _ in range(count)} if pairs else [self.value() for _ in range(count)]
        self.depth -= 1
        return values

    def _key(self) -> str:
        key = self.value()
        if not isinstance(key, str | int):
            raise BadFile(f"metadata with a key at byte {self.at} that is neither text nor a number")
        return str(key)

    def value(self) -> Any:
        """The next value: int, float, bool, None, str, bytes, list or dict."""
        self.values += 1
        if self.values > MOST_VALUES:
            raise BadFile(f"metadata of more than {MOST_VALUES} values")
        tag = self._uint(1)
        if tag < 0x80:
            return tag
        if tag < 0xA0:
            return self._sequence(tag & 15, pairs=tag < 0x90)
        if tag < 0xC0:
            return decoded(self._take(tag & 31))
        if tag >= 0xE0:
            return tag - 256
        if tag in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[tag]
        if tag in (0xC4, 0xC5, 0xC6):
            return self._take(self._uint(1 << tag - 0xC4))
        if tag in (0xCA, 0xCB):
            return struct.unpack(">f" if tag == 0xCA else ">d", self._take(4 << tag - 0xCA))[0]
        if 0xCC <= tag <= 0xCF:
            return self._uint(1 << tag - 0xCC)
        if 0xD0 <= tag <= 0xD3:
            return int.from_bytes(self._take(1 << tag - 0xD0), "big", signed=True)
        if 0xD9 <= tag <= 0xDB:
            return decoded(self._take(self._uint(1 << tag - 0xD9)))
        if 0xDC <= tag <= 0xDF:
            return self._sequence(self._uint(2 << (tag & 1)), pairs=tag >= 0xDE)
        raise BadFile(f"metadata byte {tag:#x} at {self.at - 1} starts no value")
