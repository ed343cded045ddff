"""kernels_c/host/dequant.c and the decoders of decode.h against ie/formats/, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cffi
import numpy as np
import pytest
import ziglang

from ie import formats
from tests.unit.test_formats import assert_same_bits, blocks_of

KERNELS = Path(__file__).resolve().parents[2] / "kernels_c"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-ffp-contract=off", f"-I{KERNELS / 'include'}"]
GUARD = 64


def compile_c(tool: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "ziglang", tool, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[cffi.FFI, object]:
    target = tmp_path_factory.mktemp("dequant") / "libdequant.so"
    compile_c("cc", *FLAGS, "-shared", "-fPIC", str(KERNELS / "host" / "dequant.c"), "-o", str(target))
    ffi = cffi.FFI()
    ffi.cdef("int ie_dequant(int32_t fmt, const uint8_t *src, float *dst, int64_t n);")
    return ffi, ffi.dlopen(str(target))


def run(library: tuple[cffi.FFI, object], fmt_id: int, data: np.ndarray, n: int) -> tuple[int, np.ndarray]:
    """(return code, n floats) from an odd source address; the floats around the output must stay as they were."""
    ffi, lib = library
    source = np.zeros(data.size + 1, dtype=np.uint8)
    source[1:] = data.ravel()
    room = np.full(max(n, 0) + 2 * GUARD, -7.25, dtype=np.float32)
    code = lib.ie_dequant(
        fmt_id, ffi.cast("uint8_t *", source.ctypes.data + 1), ffi.cast("float *", room.ctypes.data + 4 * GUARD), n
    )
    assert (room[:GUARD] == -7.25).all() and (room[len(room) - GUARD :] == -7.25).all()
    return code, room[GUARD : len(room) - GUARD]


@pytest.mark.parametrize("fmt", formats.FORMATS.values(), ids=lambda fmt: fmt.name)
def test_equals_numpy(library: tuple[cffi.FFI, object], fmt: formats.Format) -> None:
    data = blocks_of(fmt, 400, seed=50)
    code, found = run(library, fmt.id, data, 400 * fmt.block)
    assert code == 0
    assert_same_bits(found, formats.dequantize(fmt, data).ravel())


def test_every_half(library: tuple[cffi.FFI, object]) -> None:
    data = np.arange(1 << 16, dtype="<u2")
    code, found = run(library, 1, data.view(np.uint8), 1 << 16)
    assert code == 0
    assert_same_bits(found, data.view(np.float16).astype(np.float32))


@pytest.mark.parametrize("fmt", ["MXFP4", "NVFP4"])
def test_every_byte_as_scale(library: tuple[cffi.FFI, object], fmt: str) -> None:
    info = formats.format_by_name(fmt)
    data = blocks_of(info, 256)
    data[:, : 1 if fmt == "MXFP4" else 4] = np.arange(256)[:, None]
    code, found = run(library, info.id, data, 256 * info.block)
    assert code == 0
    assert_same_bits(found, formats.dequantize(info, data).ravel())


@pytest.mark.parametrize("fmt_id", [-1, 4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, -(1 << 31)])
def test_unknown_formats_write_nothing(library: tuple[cffi.FFI, object], fmt_id: int) -> None:
    code, found = run(library, fmt_id, np.zeros(512, np.uint8), 256)
    assert code == -1
    assert (found == -7.25).all()


@pytest.mark.parametrize("n", [-32, -1, 1, 31, 33])
def test_partial_blocks_write_nothing(library: tuple[cffi.FFI, object], n: int) -> None:
    code, found = run(library, formats.format_by_name("Q4_1").id, np.zeros(64, np.uint8), n)
    assert code == -1
    assert (found == -7.25).all()


def test_nothing_to_do(library: tuple[cffi.FFI, object]) -> None:
    assert run(library, formats.format_by_name("Q4_1").id, np.zeros(64, np.uint8), 0)[0] == 0


@pytest.mark.parametrize(
    "target",
    [
        ["--target=aarch64-linux-gnu"],
        ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-nogpulib"],
        ["--target=nvptx64-nvidia-cuda", "-march=sm_80"],
    ],
    ids=["aarch64", "amdgcn", "nvptx64"],
)
def test_the_decoders_need_no_libc(target: list[str], tmp_path: Path) -> None:
    headers = Path(ziglang.__file__).parent / "lib" / "include"
    freestanding = ["-ffreestanding", "-nostdinc", "-isystem", str(headers), "-x", "c"]
    source = str(KERNELS / "host" / "dequant.c")
    compile_c("clang", *target, *freestanding, *FLAGS, "-S", source, "-o", str(tmp_path / "dequant.s"))
    # libgcc and libc helpers would show as undefined calls
    text = (tmp_path / "dequant.s").read_text()
    assert "ie_dequant" in text
    assert "memcpy" not in text and "memset" not in text and "__floatdisf" not in text
