"""Damaged code objects give error codes, never a crash. Each batch runs in a process of its own, which must live on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.build import code_object
from tests.sim.hip import library_path

ROOT = Path(__file__).resolve().parent.parent.parent
CHILD = r"""
import ctypes, random, sys
lib, image = ctypes.CDLL(sys.argv[1]), open(sys.argv[2], "rb").read()
mode, seed, count = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
rng, good = random.Random(seed), 0
assert lib.hipInit(0) == 0

def attempt(data, padding):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    held = ctypes.create_string_buffer(data + padding)
    code = lib.hipModuleLoadData(ctypes.byref(module), held)
    assert 0 <= code < 1000, code
    if code == 0:
        code = lib.hipModuleGetFunction(ctypes.byref(function), module, b"rmsnorm")
        assert 0 <= code < 1000, code
        assert lib.hipModuleUnload(module) == 0
    return code == 0

shoff = int.from_bytes(image[40:48], "little")
for k in range(count):
    data = bytearray(image)
    if mode == "header":
        at = rng.choice([rng.randrange(64), rng.randrange(64, 64 + 56 * 8), shoff + rng.randrange(len(image) - shoff)])
        data[at] = rng.randrange(256)
    elif mode == "bytes":
        for _ in range(rng.choice((1, 1, 4, 40))):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif mode == "words":
        at = rng.randrange(0, len(data) - 8, 4)
        data[at:at + 8] = rng.choice((b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80"))
    else:
        data = data[:rng.randrange(len(data))]
    good += attempt(bytes(data), rng.choice((bytes(65536), rng.randbytes(65536))))
assert attempt(image, b"")
print(good)
"""


@pytest.mark.parametrize("mode, count", [("header", 24), ("bytes", 8), ("words", 8), ("cut", 16)])
def test_a_damaged_code_object_never_crashes(mode: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "image.hsaco"
    path.write_bytes(code_object("norm"))
    command = [sys.executable, "-c", CHILD, library_path(), str(path), mode, "1", str(count)]
    environment = {**os.environ, "RDNA4SIM_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-2000:])
    # Some damage is harmless (names, padding, bytes nobody reads), or shows at the launch; most cuts are seen.
    good = int(done.stdout)
    assert 0 <= good <= count - (mode == "cut")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not an ELF file at all" * 10, bytes(4096), b"\xff" * 4096])
def test_what_is_no_code_object_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(data)
    code = "import ctypes, sys; m = ctypes.c_void_p(); l = ctypes.CDLL(sys.argv[1]); l.hipInit(0)\n"
    code += "r = l.hipModuleLoad(ctypes.byref(m), sys.argv[2].encode()); print(r); assert r != 0\n"
    code += "r = l.hipModuleLoad(ctypes.byref(m), b'/no/such/file'); assert r != 0"
    done = subprocess.run(
        [sys.executable, "-c", code, library_path(), str(path)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_missing_kernel_is_an_error() -> None:
    from tests.sim.hip import HipError, simulator

    with simulator() as hip, pytest.raises(HipError) as caught:
        hip.kernel(code_object("norm"), "no_such_kernel")
    assert caught.value.code == 500
