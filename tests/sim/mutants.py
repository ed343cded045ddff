"""Damaged code objects, the same ones for the same seed, and what becomes of them.

Owns: the kinds of damage; reading one as every command does (`read_all`); running them in a process of its own
(`launched`).
`python -m tests.sim.mutants SECONDS [SEED]` goes on for as long as it is told and prints what is not as it should be.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rdna4sim import disasm, info
from rdna4sim.elf import CodeObject, unbundled
from rdna4sim.errors import SimError
from rdna4sim.translate import Variant, translate
from tests.sim.build import code_object
from tests.sim.hip import library_path

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = (
    0,
    1,
    7,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    (1 << 64) - 64,
)
NAMES = (
    b"*\\\n/ int x;",
    b'"); int x;',
    b"\x1b[31m\x07",
    b"\xff\xfe\xc2\x85",
    b"\xe2\x80\xae",
    b"%s%n%p",
    b"??/\n",
    b"/* */",
)


def headers(data: bytes) -> tuple[int, int]:
    """Where the section headers stand, and how many there are."""
    return struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]


def sections(data: bytes, *kinds: int) -> list[tuple[int, int]]:
    """(offset, size) of the sections of these types in an undamaged file."""
    start, count = headers(data)
    found = [struct.unpack_from("<IIQQQQ", data, start + 64 * i) for i in range(count)]
    return [(at, size) for _, kind, _, _, at, size in found if kind in kinds and size]


def put(data: bytearray, at: int, layout: str, value: int) -> None:
    size = struct.calcsize(layout)
    data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def damage_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 3, 20))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def damage_length(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def damage_header(data: bytearray, rng: random.Random) -> None:
    at, layout = rng.choice(
        ((32, "<Q"), (40, "<Q"), (54, "<H"), (56, "<H"), (58, "<H"), (60, "<H"), (48, "<I"), (16, "<I"))
    )
    put(data, at, layout, rng.choice(NUMBERS))


def damage_section(data: bytearray, rng: random.Random) -> None:
    start, count = headers(data)
    at, layout = rng.choice(((4, "<I"), (16, "<Q"), (24, "<Q"), (32, "<Q"), (40, "<I"), (56, "<Q")))
    value = rng.choice((*NUMBERS, 2, 4, 11, len(data) - 1, rng.randrange(len(data))))
    put(data, start + 64 * rng.randrange(count) + at, layout, value)


def damage_segment(data: bytearray, rng: random.Random) -> None:
    (start,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    at, layout = rng.choice(((0, "<I"), (8, "<Q"), (16, "<Q"), (32, "<Q"), (40, "<Q")))
    put(data, start + 56 * rng.randrange(count) + at, layout, rng.choice((*NUMBERS, 4096, len(data))))


def damage_symbol(data: bytearray, rng: random.Random) -> None:
    offset, size = rng.choice(sections(data, 2, 11))
    at = offset + 24 * rng.randrange(size // 24)
    other = offset + 24 * rng.randrange(size // 24)
    if rng.random() < 0.3:
        data[at : at + 24] = data[other : other + 24]
    else:
        place, layout = rng.choice(((0, "<I"), (4, "<B"), (6, "<H"), (8, "<Q"), (16, "<Q")))
        put(data, at + place, layout, rng.choice((*NUMBERS, rng.randrange(1 << 14))))


def damage_name(data: bytearray, rng: random.Random) -> None:
    offset, size = rng.choice(sections(data, 3))
    name = rng.choice(NAMES)[: size - 1]
    at = offset + rng.randrange(size - len(name))
    data[at : at + len(name)] = name


def damage_note(data: bytearray, rng: random.Random) -> None:
    offset, size = rng.choice(sections(data, 7))
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[offset + rng.randrange(size)] = rng.choice(
            (0xC3, 0xC0, 0xDD, 0xDF, 0xDB, 0x8F, 0x9F, 0xCF, rng.randrange(256))
        )


def damage_descriptor(data: bytearray, rng: random.Random) -> None:
    """The kernel descriptors, which are the read-only data of these files."""
    offset, size = rng.choice([place for place in sections(data, 1) if place[1] % 64 == 0] or sections(data, 1))
    put(data, offset + rng.randrange(0, size - 8, 4), "<Q", rng.choice((*NUMBERS, rng.getrandbits(64))))


def damage_code(data: bytearray, rng: random.Random) -> None:
    offset, size = max(sections(data, 1), key=lambda place: place[1])
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = offset + rng.randrange(0, size - 4, 4)
        if rng.random() < 0.5:
            put(data, at, "<I", rng.getrandbits(32))
        else:
            data[at + rng.randrange(4)] ^= 1 << rng.randrange(8)


KINDS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    damage_bits, damage_length, damage_header, damage_section, damage_segment, damage_symbol, damage_name, damage_note,
    damage_descriptor, damage_code,
)  # fmt: skip


def mutant(image: bytes, number: int) -> bytes:
    """The image with one kind of damage, or two."""
    rng, data = random.Random(number), bytearray(image)
    for kind in rng.sample(KINDS[2:], 1 + (rng.random() < 0.2)) if rng.random() < 0.85 else (rng.choice(KINDS[:2]),):
        with suppress(
            struct.error, IndexError, ValueError, OverflowError
        ):  # The first damage hid where the second one belongs.
            kind(data, rng)
    return bytes(data)


def read_all(data: bytes) -> bool:
    """Reads a file as info, disasm and run do, without compiling; whether it was accepted. Lets only SimError pass."""
    try:
        code = CodeObject(unbundled(data))
        texts = [info.as_text("x", info.describe(code))]
        known = disasm.functions(code)
        texts += [line + "\n" for symbol in known for line in disasm.listing(code, symbol, known)]
        assert all(c == "\t" or c == "\n" or c.isprintable() for text in texts for c in text)
        translated = "".join(translate(code, Variant()))
    except SimError as e:
        assert "\n" not in disasm.printable(str(e))
        return False
    assert translated.isascii() and "\r" not in translated and "??" not in translated and "\0" not in translated
    return True


CHILD = r"""
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from tests.sim.build import code_object
from tests.sim.mutants import mutant
lib = ctypes.CDLL(sys.argv[2])
image, names = code_object(sys.argv[3]), sys.argv[5].encode().split(b",")
for number in map(int, sys.argv[4].split(",")):
    print(number, flush=True)
    os.write(2, b"%d\n" % number)
    lib.hipDeviceReset()
    module = ctypes.c_void_p()
    if lib.hipModuleLoadData(ctypes.byref(module), mutant(image, number)):
        continue
    pointer = ctypes.c_void_p()
    lib.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096))
    value = ctypes.create_string_buffer(bytes(ctypes.c_uint64(pointer.value)) * 8192, 65536)
    values = (ctypes.c_void_p * 64)(*[ctypes.addressof(value)] * 64)
    for name in names:
        function = ctypes.c_void_p()
        if lib.hipModuleGetFunction(ctypes.byref(function), module, name) == 0:
            threads = [ctypes.c_uint(n) for n in (3, 1, 1, 64, 1, 1, 0)]
            lib.hipModuleLaunchKernel(function, *threads, None, values, None)
            if lib.hipDeviceSynchronize():
                break
"""


def launched(stem: str, numbers: list[int], names: list[str], cache: Path, weak: bool = False) -> tuple[int, str]:
    """Status and last words of a host program that loads these mutants one after the other and runs their kernels."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RDNA4SIM_")}
    environment |= {"RDNA4SIM_CACHE": str(cache), "RDNA4SIM_LIMIT": "200000", "RDNA4SIM_WEAK": str(int(weak))}
    command = [
        sys.executable,
        "-c",
        CHILD,
        str(ROOT),
        library_path(),
        stem,
        ",".join(map(str, numbers)),
        ",".join(names),
    ]
    try:
        done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, timeout=600)
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode(errors="replace")[-200:]
    said = done.stderr.decode(errors="backslashreplace")
    bad = [
        line
        for line in said.splitlines()
        if not line.isprintable() or "Traceback" in line or "translator failed" in line
    ]
    return done.returncode or (1 if bad else 0), "\n".join(bad) or (done.stdout.decode()[-200:] + said[-2000:])


def main() -> None:
    seconds, number = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    stems = ("norm", "control", "faults", "scratch")
    end, read, accepted, ran = time.monotonic() + seconds, 0, 0, 0
    with tempfile.TemporaryDirectory() as cache:
        while time.monotonic() < end:
            for stem in stems:
                image = code_object(stem)
                names = [kernel.name for kernel in CodeObject(image).kernels]
                for each in range(number, number + 200):
                    began = time.monotonic()
                    try:
                        accepted += read_all(mutant(image, each))
                    except Exception:
                        print(f"{stem} {each}: {traceback.format_exc()}", flush=True)
                    if time.monotonic() - began > 20:
                        print(f"{stem} {each}: {time.monotonic() - began:.0f} s to read", flush=True)
                    read += 1
                few = list(range(number, number + 6))
                status, said = launched(stem, few, names, Path(cache), weak=bool(number // 200 % 2))
                ran += len(few)
                if status:
                    print(f"{stem} {few}: status {status}: {said}", flush=True)
            number += 200
            print(f"{read} read, {accepted} accepted, {ran} loaded and run; next seed {number}", flush=True)


if __name__ == "__main__":
    main()
