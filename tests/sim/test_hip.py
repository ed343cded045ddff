"""The HIP calls: what a host may ask, hand over and hold, and the errors that HIP gives for what it may not."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# The layout of HIP's structures and its numbers, from HIP's headers, as tinygrad generated them.
from tinygrad.runtime.autogen import hip as header

from tests.sim.build import code_object, compile_source
from tests.sim.elf import symbols
from tests.sim.exact import U32, U64
from tests.sim.hip import Hip, bundle, library_path, simulator
from tests.sim.tiny import tiny

ROOT = Path(__file__).resolve().parent.parent.parent
VALUE, MEMORY, CONFIGURATION, DIRECTION, FUNCTION, DEVICE, IMAGE, NO_BINARY = 1, 2, 9, 21, 98, 101, 200, 209
HANDLE, NOT_FOUND, ILLEGAL, DESTROYED, REGISTERED, NOT_REGISTERED, FAILURE, TOO_LARGE = (
    400,
    500,
    700,
    709,
    712,
    713,
    719,
    720,
)
SOURCE = """
#include "gfx.h"
__attribute__((visibility("default"))) u32 table[4] = {5, 6, 7, 8};
KERNEL(64) scaled(const u32 *x, u32 *y, u32 factor, unsigned char small, u64 plus) {
    u32 t = group() * 64 + thread();
    y[t] = x[t] * factor + small + (u32)plus + table[t & 3];
}
"""
X = np.arange(128, dtype=U32)


@pytest.fixture
def hip() -> Iterator[Hip]:
    with simulator() as opened:
        yield opened


def p(address: int | None = 0) -> c_void_p:
    return c_void_p(address)


def new(hip: Hip, call: str, *arguments: Any) -> c_void_p:
    """A handle or address that a call gives back through its first argument."""
    out = c_void_p()
    hip.call(call, byref(out), *arguments)
    return out


def scaled(x: np.ndarray[Any, Any], factor: int = 3, small: int = 2, plus: int = 1000) -> np.ndarray[Any, Any]:
    return x * U32(factor) + U32(small + plus) + np.resize(np.array([5, 6, 7, 8], U32), x.size)


@cache
def image() -> bytes:
    return compile_source(SOURCE)


# Device.


def test_properties_lie_where_the_header_has_them(hip: Hip) -> None:
    raw = ctypes.create_string_buffer(b"\xaa" * 1500, 1500)
    hip.call("hipGetDevicePropertiesR0600", raw, 0)
    assert raw.raw[1472:] == b"\xaa" * 28
    got = header.hipDeviceProp_tR0600()
    hip.call("hipGetDevicePropertiesR0600", byref(got), 0)
    assert ctypes.sizeof(got) == 1472 and got.gcnArchName == b"gfx1201" and got.name.startswith(b"Radeon")
    assert bytes(got.uuid.bytes) == b"rdna4sim-gfx1201"
    want = {"totalGlobalMem": 32 << 30, "sharedMemPerBlock": 65536, "regsPerBlock": 196608, "warpSize": 32}
    want |= {"maxThreadsPerBlock": 1024, "clockRate": 2400000, "major": 12, "minor": 0, "multiProcessorCount": 32}
    want |= {"memoryClockRate": 1250000, "memoryBusWidth": 256, "l2CacheSize": 8 << 20, "cooperativeLaunch": 1}
    want |= {"maxThreadsPerMultiProcessor": 2048, "sharedMemPerMultiprocessor": 65536, "regsPerMultiprocessor": 196608}
    want |= {"maxSharedMemoryPerMultiProcessor": 65536, "clockInstructionRate": 100000, "concurrentKernels": 1}
    want |= {"canMapHostMemory": 1, "managedMemory": 1, "unifiedAddressing": 1, "integrated": 0, "ECCEnabled": 0}
    assert {name: getattr(got, name) for name in want} == want
    assert (list(got.maxThreadsDim), list(got.maxGridSize)) == ([1024] * 3, [2**31 - 1, 65536, 65536])
    assert (got.arch.hasDoubles, got.arch.hasWarpShuffle, got.arch.has3dGrid, got.arch.hasDynamicParallelism) == (
        1,
        1,
        1,
        0,
    )
    # 16 transfers a cycle: at least what the estimate reckons with.
    assert got.memoryClockRate * 16 * got.memoryBusWidth / 8 / 1e6 >= 612


def test_the_plain_symbol_fills_in_the_older_structure(hip: Hip) -> None:
    raw = ctypes.create_string_buffer(b"\xaa" * 800, 800)
    hip.call("hipGetDeviceProperties", raw, 0)
    assert raw.raw[792:] == b"\xaa" * 8
    # Offsets by the C compiler's rules, from the order of members: 256 bytes of name, two sizes, integers ...
    assert struct.unpack_from("<2Q4i", raw, 256) == (32 << 30, 65536, 196608, 32, 1024, 1024)
    assert struct.unpack_from("<3i", raw, 308) == (2400000, 1250000, 256)
    assert struct.unpack_from("<5i", raw, 328) == (12, 0, 32, 8 << 20, 2048)
    assert struct.unpack_from("<i8s", raw, 392) == (1201, b"gfx1201\0")
    assert struct.unpack_from("<2i", raw, 652) == (0, 1)


ATTRIBUTES = {
    "MultiprocessorCount": 32, "WarpSize": 32, "MaxThreadsPerBlock": 1024, "MaxThreadsPerMultiProcessor": 2048,
    "MaxSharedMemoryPerBlock": 65536, "MaxSharedMemoryPerMultiprocessor": 65536, "SharedMemPerMultiprocessor": 65536,
    "MaxRegistersPerBlock": 196608, "MaxRegistersPerMultiprocessor": 196608, "ClockRate": 2400000,
    "MemoryClockRate": 1250000, "MemoryBusWidth": 256, "L2CacheSize": 8 << 20, "CooperativeLaunch": 1,
    "CooperativeMultiDeviceLaunch": 0, "ComputeCapabilityMajor": 12, "ComputeCapabilityMinor": 0, "MaxBlockDimX": 1024,
    "MaxBlockDimZ": 1024, "MaxGridDimX": 2**31 - 1, "MaxGridDimY": 65536, "ConcurrentKernels": 1, "Integrated": 0,
    "ManagedMemory": 1, "UnifiedAddressing": 1, "CanMapHostMemory": 1, "EccEnabled": 0, "AsyncEngineCount": 2,
    "WallClockRate": 100000, "PhysicalMultiProcessorCount": 64, "MaxBlocksPerMultiProcessor": 2, "IsLargeBar": 1,
    "MemoryPoolsSupported": 0, "VirtualMemoryManagementSupported": 0, "PciBusId": 3, "TotalConstantMemory": 2**31 - 1,
}  # fmt: skip


def test_attributes(hip: Hip) -> None:
    value = c_int()
    for name, want in ATTRIBUTES.items():
        hip.call("hipDeviceGetAttribute", byref(value), getattr(header, f"hipDeviceAttribute{name}"), 0)
        assert value.value == want, name
    for unknown in (-1, 64, 86, 92, 5000, 9999, 10001, 20000, 2**31 - 1):
        assert hip.raw("hipDeviceGetAttribute", byref(value), unknown, 0) == VALUE, unknown
    assert hip.raw("hipDeviceGetAttribute", None, 63, 0) == VALUE
    assert hip.raw("hipDeviceGetAttribute", byref(value), 63, 1) == DEVICE


def test_questions_about_the_device(hip: Hip) -> None:
    n, size, other = c_int(-1), c_size_t(), c_int(-1)
    for call, want in (("hipGetDeviceCount", 1), ("hipGetDevice", 0), ("hipRuntimeGetVersion", 60400000)):
        hip.call(call, byref(n))
        assert n.value == want and hip.raw(call, None) == VALUE
    hip.call("hipDeviceGet", byref(n), 0)
    hip.call("hipDeviceTotalMem", byref(size), 0)
    assert size.value == 32 << 30
    hip.call("hipDeviceComputeCapability", byref(n), byref(other), 0)
    assert (n.value, other.value) == (12, 0)
    hip.call("hipDeviceCanAccessPeer", byref(n), 0, 0)
    assert n.value == 0
    hip.call("hipDriverGetVersion", byref(n))
    name = ctypes.create_string_buffer(b"x" * 99, 99)
    hip.call("hipDeviceGetName", name, 7, 0)
    assert name.raw[:8] == b"Radeon\0x"
    for call, *arguments in (
        ("hipSetDevice", 1), ("hipSetDevice", -1), ("hipDeviceGet", byref(n), 1), ("hipDeviceTotalMem", byref(size), 2),
        ("hipDeviceGetName", name, 9, 1), ("hipGetDevicePropertiesR0600", name, 1),
        ("hipDeviceCanAccessPeer", byref(n), 0, 1),
    ):  # fmt: skip
        assert hip.raw(call, *arguments) == DEVICE, call
    assert hip.raw("hipInit", 1) == VALUE and hip.raw("hipGetDevicePropertiesR0600", None, 0) == VALUE
    context = new(hip, "hipCtxCreate", 0, 0)
    hip.call("hipCtxSetCurrent", context)
    assert hip.raw("hipCtxSetCurrent", p(77)) == 201


def test_names_and_texts_of_errors(hip: Hip) -> None:
    for call in ("hipGetErrorName", "hipGetErrorString"):
        getattr(hip.lib, call).restype = c_char_p
    known = 0
    for code, name in header.hipError_t.items():
        got, text = hip.lib.hipGetErrorName(code), c_char_p()
        if got == b"hipErrorUnknown" and code != 999:
            assert hip.raw("hipDrvGetErrorName", code, byref(text)) == VALUE
            continue
        known += 1
        assert getattr(header, got.decode()) == code, name
        hip.call("hipDrvGetErrorString", code, byref(text))
        assert text.value == hip.lib.hipGetErrorString(code) and text.value
    assert known >= 35
    assert hip.lib.hipGetErrorString(700) == b"an illegal memory access was encountered"
    assert hip.lib.hipGetErrorName(-5) == b"hipErrorUnknown"


def test_the_last_error_is_of_this_thread_and_asked_once(hip: Hip) -> None:
    seen: list[int] = []
    assert hip.raw("hipSetDevice", 3) == DEVICE
    thread = threading.Thread(target=lambda: seen.append(hip.raw("hipGetLastError")))
    thread.start(), thread.join()
    assert seen == [0]
    assert [hip.raw(c) for c in ("hipPeekAtLastError", "hipGetLastError", "hipGetLastError")] == [DEVICE, DEVICE, 0]


# Memory.


def free_bytes(hip: Hip) -> int:
    left, total = c_size_t(), c_size_t()
    hip.call("hipMemGetInfo", byref(left), byref(total))
    assert total.value == 32 << 30
    return left.value


@pytest.mark.parametrize(
    "take, more, give",
    [
        ("hipMalloc", (), "hipFree"), ("hipMallocAsync", (None,), "hipFree"), ("hipMallocManaged", (1,), "hipFree"),
        ("hipHostMalloc", (0,), "hipHostFree"), ("hipMallocHost", (), "hipFreeHost"),
    ],
)  # fmt: skip
def test_allocations(hip: Hip, take: str, more: tuple[Any, ...], give: str) -> None:
    before, on_card = free_bytes(hip), "Host" not in take
    address = new(hip, take, c_size_t(1000), *more)
    assert free_bytes(hip) == before - 1000 * on_card
    for bad in (int(address.value or 0) + 1, 8, id(hip), 2**64 - 8):
        assert hip.raw(give, p(bad)) == VALUE
    assert hip.raw("hipHostFree" if on_card else "hipFree", address) == VALUE
    hip.call(give, address)
    assert hip.raw(give, address) == VALUE and free_bytes(hip) == before
    hip.call(give, None)
    out = p(5)
    for size in (2**35 + 1, 2**63, 2**64 - 1):
        assert hip.raw(take, byref(out), c_size_t(size), *more) == MEMORY
    assert hip.raw(take, None, c_size_t(8), *more) == VALUE
    if take != "hipMallocManaged":
        hip.call(take, byref(out), c_size_t(0), *more)
        assert not out.value


def test_the_card_can_be_full(hip: Hip) -> None:
    held, out = [new(hip, "hipMalloc", c_size_t(12 << 30)) for _ in range(2)], c_void_p()
    assert hip.raw("hipMalloc", byref(out), c_size_t(12 << 30)) == MEMORY
    hip.call("hipFree", held[0])
    hip.call("hipMalloc", byref(out), c_size_t(12 << 30))


def test_copies(hip: Hip) -> None:
    a, b, host = hip.buffer(X), hip.buffer(np.zeros(128, U32)), np.zeros(128, U32)
    size, source, target, out = c_size_t(512), p(a.address), p(b.address), p(host.ctypes.data)
    for call, *arguments in (
        ("hipMemcpyDtoD", target, source, size), ("hipMemcpyDtoH", out, target, size),
        ("hipMemcpyHtoDAsync", target, out, size, None), ("hipMemcpyDtoHAsync", out, source, size, None),
        ("hipMemcpyAsync", target, source, size, 3, None), ("hipMemcpyPeer", target, 0, source, 0, size),
        ("hipMemcpyWithStream", out, target, size, 4, p(2)), ("hipMemcpy", target, source, size, 1024),
    ):  # fmt: skip
        hip.call("hipMemset", target, 0, size)
        host[:] = 0 if "Dto" in call or "Stream" in call else X
        if call in ("hipMemcpyDtoH", "hipMemcpyWithStream"):
            hip.call("hipMemcpy", target, source, size, 3)
        hip.call(call, *arguments)
        got = b.read(U32) if arguments[0] is target else host
        assert (got == X).all(), call
    wrong = [
        (out, source, 513, 2),
        (target, out, 513, 1),
        (p(b.address + 4), source, 512, 3),
        (target, out, 2**64 - 8, 4),
    ]
    wrong += [
        (out, out, 4, 1),
        (out, out, 4, 2),
        (None, source, 4, 2),
        (target, None, 4, 1),
        (out, p(b.address + 4096), 4, 4),
    ]
    for to, start, count, kind in wrong:
        assert hip.raw("hipMemcpy", to, start, c_size_t(count), kind) == VALUE, (count, kind)
    assert hip.raw("hipMemcpy", out, source, c_size_t(4), 5) == DIRECTION
    assert hip.raw("hipMemcpyPeer", target, 1, source, 0, size) == DEVICE
    hip.call("hipMemcpy", None, None, c_size_t(0), 1)


def test_filling(hip: Hip) -> None:
    x = hip.buffer(np.zeros(64, np.uint8))
    hip.call("hipMemsetD32", p(x.address), c_int(-2), c_size_t(16))
    hip.call("hipMemsetD16Async", p(x.address + 2), c_uint(0x1234), c_size_t(3), None)
    hip.call("hipMemsetD8", p(x.address + 1), c_uint(0xAB), c_size_t(1))
    hip.call("hipMemset", p(x.address + 63), c_int(0x1FF), c_size_t(1))
    want = np.full(16, -2, np.int32).view(np.uint8).copy()
    want[1], want[2:8], want[63] = 0xAB, [0x34, 0x12] * 3, 0xFF
    assert (x.read(np.uint8) == want).all()
    for call, address, count in (
        ("hipMemsetD32", x.address, 17), ("hipMemsetD32", x.address + 2, 1), ("hipMemsetD16", x.address, 2**63),
        ("hipMemset", id(hip), 4), ("hipMemset", 0, 4), ("hipMemsetD8", x.address + 64, 1),
    ):  # fmt: skip
        assert hip.raw(call, p(address), 0, c_size_t(count)) == VALUE, call
    hip.call("hipMemset", None, 0, c_size_t(0))


def test_kernels_use_memory_of_the_host(hip: Hip) -> None:
    kernel = hip.kernel(image(), "scaled")
    pinned = new(hip, "hipHostMalloc", c_size_t(512), 0)
    ctypes.memmove(pinned, X.ctypes.data, 512)
    managed, own = new(hip, "hipMallocManaged", c_size_t(512), 1), np.zeros(1024, U32)
    values = [U32(3), np.uint8(2), U64(1000)]
    hip.launch(kernel, [2], [64], [U64(pinned.value or 0), U64(managed.value or 0), *values])
    assert bytes((ctypes.c_char * 512).from_address(managed.value or 0)) == scaled(X).tobytes()
    hip.call("hipHostRegister", p(own.ctypes.data), c_size_t(512), 0)
    assert hip.raw("hipHostRegister", p(own.ctypes.data + 256), c_size_t(512), 0) == REGISTERED
    same = new(hip, "hipHostGetDevicePointer", p(own.ctypes.data + 4), 0)
    assert same.value == own.ctypes.data + 4
    hip.launch(kernel, [2], [64], [U64(managed.value or 0), U64(own.ctypes.data), *values])
    assert (own[:128] == scaled(scaled(X))).all() and not own[128:].any()
    hip.call("hipHostUnregister", p(own.ctypes.data))
    assert hip.raw("hipHostUnregister", p(own.ctypes.data)) == NOT_REGISTERED
    assert hip.raw("hipHostGetDevicePointer", byref(same), p(own.ctypes.data), 0) == VALUE
    assert hip.raw("hipHostRegister", p(8), c_size_t(2**64 - 1), 0) == VALUE


def test_what_a_pointer_is(hip: Hip) -> None:
    got = header.hipPointerAttribute_t()
    device, host = new(hip, "hipMalloc", c_size_t(64)), new(hip, "hipHostMalloc", c_size_t(64), 0)
    managed, own = new(hip, "hipMallocManaged", c_size_t(64), 1), np.zeros(4, U32)
    for address, kind in ((device.value, 2), (host.value, 1), (managed.value, 3), (own.ctypes.data, 0)):
        hip.call("hipPointerGetAttributes", byref(got), p((address or 0) + 8))
        assert (got.type, got.isManaged) == (kind, kind == 3)
        assert got.devicePointer == ((address or 0) + 8 if kind else None)
        assert got.hostPointer == ((address or 0) + 8 if kind in (1, 3) else None)
    assert hip.raw("hipPointerGetAttributes", None, device) == VALUE
    base, size = c_void_p(), c_size_t()
    hip.call("hipMemGetAddressRange", byref(base), byref(size), p((device.value or 0) + 63))
    assert (base.value, size.value) == (device.value, 64)
    assert hip.raw("hipMemGetAddressRange", byref(base), byref(size), p((device.value or 0) + 64)) == NOT_FOUND


# Streams and events.


def test_streams(hip: Hip) -> None:
    one, two = new(hip, "hipStreamCreate"), new(hip, "hipStreamCreateWithFlags", 1)
    three, value = new(hip, "hipStreamCreateWithPriority", 0, -9), c_int()
    assert len({one.value, two.value, three.value}) == 3
    hip.call("hipStreamGetPriority", three, byref(value))
    assert value.value == -1
    hip.call("hipStreamGetFlags", two, byref(value))
    assert value.value == 1
    a = hip.buffer(X)
    for stream in (None, p(1), p(2), one, two, three):
        for call in ("hipStreamSynchronize", "hipStreamQuery"):
            hip.call(call, stream)
        hip.call("hipMemsetAsync", p(a.address), 0, c_size_t(4), stream)
    hip.call("hipStreamDestroy", one)
    for stream in (one, p(12345), p(id(hip)), p((two.value or 0) + 1)):
        for call in ("hipStreamSynchronize", "hipStreamQuery", "hipStreamDestroy"):
            assert hip.raw(call, stream) == DESTROYED
        assert hip.raw("hipMemsetAsync", p(a.address), 0, c_size_t(4), stream) == DESTROYED
        assert hip.raw("hipMallocAsync", byref(c_void_p()), c_size_t(4), stream) == DESTROYED
    for stream in (None, p(1), p(2)):
        assert hip.raw("hipStreamDestroy", stream) == HANDLE
    assert hip.raw("hipStreamCreate", None) == VALUE
    assert hip.raw("hipStreamCreateWithFlags", byref(one), 2) == VALUE
    hip.call("hipDeviceReset")
    assert hip.raw("hipStreamQuery", two) == DESTROYED


def test_events(hip: Hip) -> None:
    a, b, silent = (
        new(hip, "hipEventCreate"),
        new(hip, "hipEventCreateWithFlags", 1),
        new(hip, "hipEventCreateWithFlags", 2),
    )
    ms, stream = c_float(-1), new(hip, "hipStreamCreate")
    recorded = new(hip, "hipEventCreate")
    hip.call("hipEventRecord", recorded, None)
    for pair in ((a, b), (a, recorded), (recorded, a)):
        assert hip.raw("hipEventElapsedTime", byref(ms), *pair) == HANDLE  # not both were recorded
    for event in (a, b, silent):
        hip.call("hipEventRecord", event, stream)
        hip.call("hipEventSynchronize", event)
        hip.call("hipEventQuery", event)
        hip.call("hipStreamWaitEvent", None, event, 0)
    hip.call("hipEventElapsedTime", byref(ms), a, b)
    forth = ms.value
    assert forth >= 0
    hip.call("hipEventElapsedTime", byref(ms), b, a)
    assert ms.value == -forth
    assert hip.raw("hipEventElapsedTime", byref(ms), a, silent) == HANDLE
    assert hip.raw("hipEventElapsedTime", None, a, b) == VALUE
    hip.call("hipEventDestroy", b)
    for event in (b, p(99), None, p(id(hip)), stream):
        assert hip.raw("hipEventRecord", event, None) == HANDLE
        assert hip.raw("hipEventSynchronize", event) == HANDLE
        assert hip.raw("hipEventQuery", event) == HANDLE
        assert hip.raw("hipStreamWaitEvent", stream, event, 0) == HANDLE
        assert hip.raw("hipEventElapsedTime", byref(ms), a, event) == HANDLE
        assert hip.raw("hipEventDestroy", event) == (DESTROYED if event else HANDLE)
    assert hip.raw("hipEventRecord", a, p(4711)) == DESTROYED
    for flags in (8, 4, 0x60000000):
        assert hip.raw("hipEventCreateWithFlags", byref(b), flags) == VALUE


def test_callbacks_may_call_hip(hip: Hip) -> None:
    seen: list[int] = []
    plain = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: seen.append((data or 0) + hip.raw("hipDeviceSynchronize")))
    with_status = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)(
        lambda s, code, data: seen.append(code + (data or 0))
    )
    hip.call("hipLaunchHostFunc", None, plain, p(5))
    hip.call("hipStreamAddCallback", None, with_status, p(6), 0)
    assert seen == [5, 6]


# Modules and launches.


def packed(x: int, y: int) -> tuple[bytes, Any]:
    """The arguments of `scaled` in one buffer, and the `extra` list that hands it over."""
    data = ctypes.create_string_buffer(struct.pack("<QQIB3xQ", x, y, 3, 2, 1000))
    size = c_size_t(32)
    extra = (c_void_p * 5)(1, ctypes.addressof(data), 2, ctypes.addressof(size), 3)
    return data.raw, (extra, data, size)


def test_arguments_in_a_buffer_and_sizes_in_threads(hip: Hip) -> None:
    kernel, x, y = hip.kernel(image(), "scaled"), hip.buffer(X), hip.buffer(X)
    _, (extra, _data, size) = packed(x.address, y.address)
    hip.call("hipModuleLaunchKernel", kernel, 2, 1, 1, 64, 1, 1, 0, None, None, extra)
    assert (y.read(U32) == scaled(X)).all()
    start, stop, ms = new(hip, "hipEventCreate"), new(hip, "hipEventCreate"), c_float()
    hip.call("hipMemset", p(y.address), 0, c_size_t(512))
    ext = ("hipExtModuleLaunchKernel", kernel, 128, 1, 1, 64, 1, 1, c_size_t(0), None, None, extra)
    hip.call(*ext, start, stop, 0)
    assert (y.read(U32) == scaled(X)).all()
    hip.call("hipEventElapsedTime", byref(ms), start, stop)
    assert hip.raw("hipExtModuleLaunchKernel", kernel, 100, 1, 1, 64, *ext[6:], start, stop, 0) == VALUE
    assert hip.raw(*ext, p(8), stop, 0) == HANDLE
    size.value = 31
    assert hip.raw("hipModuleLaunchKernel", kernel, 2, 1, 1, 64, 1, 1, 0, None, None, extra) == VALUE
    extra[2] = 77
    assert hip.raw("hipModuleLaunchKernel", kernel, 2, 1, 1, 64, 1, 1, 0, None, None, extra) == VALUE


def test_shapes_that_cannot_be(hip: Hip) -> None:
    kernel, x = hip.kernel(image(), "scaled"), hip.buffer(X)
    _, (extra, *_held) = packed(x.address, x.address)
    values = (c_void_p * 5)()

    def code(
        *shape: int, lds: int = 0, given: Any = None, more: Any = extra, stream: Any = None, f: Any = kernel
    ) -> int:
        return hip.raw("hipModuleLaunchKernel", f, *map(c_uint, shape), c_uint(lds), stream, given, more)

    assert code(0, 1, 1, 64, 1, 1) == VALUE
    assert code(1, 1, 1, 64, 0, 1) == CONFIGURATION
    assert code(1, 1, 1, 1025, 1, 1) == VALUE
    assert code(1, 1, 1, 32, 32, 2) == VALUE
    assert code(1, 1, 1, 2**16, 2**16, 1) == VALUE
    assert code(1, 1, 1, 128, 1, 1) == FAILURE  # compiled for 64
    assert code(2**31, 1, 1, 64, 1, 1) == VALUE
    assert code(2**31 - 1, 1, 1, 64, 1, 1) == CONFIGURATION
    assert code(1, 65537, 1, 64, 1, 1) == VALUE
    assert code(1, 1, 1, 64, 1, 1, lds=65537) == VALUE
    assert code(1, 1, 1, 64, 1, 1, more=None) == VALUE
    assert code(1, 1, 1, 64, 1, 1, given=values) == VALUE  # both
    assert code(1, 1, 1, 64, 1, 1, given=values, more=None) == VALUE  # null pointers
    assert code(1, 1, 1, 64, 1, 1, stream=p(4711)) == VALUE
    for foreign in (None, p(8), p(id(hip)), p((kernel.value or 0) + 8)):
        assert code(1, 1, 1, 64, 1, 1, f=foreign) == HANDLE
    assert code(1, 1, 1, 64, 1, 1) == 0
    hip.call("hipDeviceSynchronize")


def test_modules(hip: Hip, tmp_path: Path) -> None:
    path = tmp_path / "kernel.hsaco"
    path.write_bytes(image())
    module, function, address, size = new(hip, "hipModuleLoad", bytes(path)), c_void_p(), c_void_p(), c_size_t()
    hip.call("hipModuleGetFunction", byref(function), module, b"scaled")
    hip.call("hipModuleGetGlobal", byref(address), byref(size), module, b"table")
    assert size.value == 16
    # A kernel sees what the host writes there.
    hip.call("hipMemcpyHtoD", address, p(np.array([50, 60, 70, 80], U32).ctypes.data), size)
    x, y = hip.buffer(X), hip.buffer(X)
    hip.launch(function, [2], [64], [x, y, U32(3), np.uint8(2), U64(1000)])
    assert (y.read(U32) == X * 3 + 1002 + np.resize(np.array([50, 60, 70, 80], U32), 128)).all()
    assert hip.raw("hipModuleGetGlobal", byref(address), None, module, b"nothing") == NOT_FOUND
    assert hip.raw("hipModuleGetGlobal", None, None, module, b"table") == VALUE
    assert hip.raw("hipModuleGetFunction", byref(function), module, b"") == VALUE
    assert hip.raw("hipModuleGetFunction", byref(c_void_p()), p(8), b"scaled") == HANDLE
    hip.call("hipModuleUnload", module)
    for foreign in (module, None, p(8), p(id(hip))):
        assert hip.raw("hipModuleUnload", foreign) == HANDLE
        assert hip.raw("hipModuleGetGlobal", byref(address), byref(size), foreign, b"table") == HANDLE
        assert hip.raw("hipModuleGetFunction", byref(c_void_p()), foreign, b"scaled") == HANDLE
    _, (extra, *_held) = packed(x.address, y.address)
    assert hip.raw("hipModuleLaunchKernel", function, 2, 1, 1, 64, 1, 1, 0, None, None, extra) == HANDLE
    assert hip.raw("hipModuleLoad", byref(module), b"/no/such/file") == 301
    assert hip.raw("hipModuleLoadData", byref(module), None) == VALUE
    new(hip, "hipModuleLoadDataEx", image(), 0, None, None)


def test_bundles(hip: Hip) -> None:
    host, other = ("host-x86_64-unknown-linux--", b""), ("hipv4-amdgcn-amd-amdhsa--gfx1200", b"\x7fELF nothing")
    ours = ("hipv4-amdgcn-amd-amdhsa--gfx1201", image())
    assert hip.kernel(bundle(host, other, ours), "scaled")
    module = c_void_p()
    assert hip.raw("hipModuleLoadData", byref(module), bundle(host, other)) == NO_BINARY
    for image_, said in (
        (b"CCOB" + bytes(99), "unpack it with clang-offload-bundler"),
        (image()[:16] + b"\1" + image()[17:], "not linked: ld.lld -shared"),
    ):
        assert hip.raw("hipModuleLoadData", byref(module), image_) == IMAGE
        assert said in hip.report.read_text().splitlines()[-1]
    for damaged in (b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 64, bundle(("x-gfx1201", b"short"))):
        assert hip.raw("hipModuleLoadData", byref(module), damaged + bytes(64)) == IMAGE


def test_images_that_end_in_no_memory(hip: Hip) -> None:
    """A page, and behind it one that cannot be read; the image fills the end of the first."""
    libc, page = ctypes.CDLL(None, use_errno=True), 4096
    libc.mmap.restype = c_void_p
    base = libc.mmap(None, c_size_t(2 * page), 3, 0x22, -1, c_size_t(0))
    assert libc.mprotect(p(base + page), c_size_t(page), 0) == 0
    endless = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 2**40) + bytes(240)
    beyond = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<4Q", 1, page + 8, 4096, 9) + b"x-gfx1201"
    long_name = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<4Q", 1, 0, 0, 200) + bytes(10)
    for data in (endless, beyond, long_name, image()[:200], b"\x7fELF"):
        ctypes.memmove(base + page - len(data), data, len(data))
        assert hip.raw("hipModuleLoadData", byref(c_void_p()), p(base + page - len(data))) == IMAGE
    for nowhere in (8, base + page, 2**47):
        assert hip.raw("hipModuleLoadData", byref(c_void_p()), p(nowhere)) == IMAGE


def test_an_old_handle_never_means_a_new_module(hip: Hip) -> None:
    old = []
    for _ in range(20):
        module, function = new(hip, "hipModuleLoadData", image()), c_void_p()
        hip.call("hipModuleGetFunction", byref(function), module, b"scaled")
        for stale_module, stale_function in old:
            assert hip.raw("hipModuleUnload", stale_module) == HANDLE
            assert hip.raw("hipFuncGetAttribute", byref(c_int()), 0, stale_function) == HANDLE
        hip.call("hipModuleUnload", module)
        old.append((module, function))


def test_what_is_known_of_a_function(hip: Hip) -> None:
    f, value = hip.kernel(tiny("big", "", vgprs=96, lds=40960, threads=256), "big"), c_int()
    answers = []
    for what in range(10):
        hip.call("hipFuncGetAttribute", byref(value), what, f)
        answers.append(value.value)
    assert answers == [256, 40960, 0, 16, 96, 120, 120, 0, 65536 - 40960, 0]
    assert hip.raw("hipFuncGetAttribute", byref(value), 10, f) == VALUE
    assert hip.raw("hipFuncGetAttribute", byref(value), 0, p(8)) == HANDLE
    hip.call("hipFuncSetAttribute", f, 8, 65536 - 40960)
    assert hip.raw("hipFuncSetAttribute", f, 8, 65536) == VALUE
    assert hip.raw("hipFuncSetAttribute", p(8), 8, 0) == FUNCTION


# Registers, LDS, threads -> workgroups on a processor: 4 SIMDs of 16 waves, 1536 registers in steps of 24, 64 KiB.
@pytest.mark.parametrize(
    "vgprs, lds, threads, dynamic, want",
    [
        (24, 0, 1024, 0, 2), (24, 0, 32, 0, 64), (24, 0, 33, 0, 32), (96, 0, 256, 0, 8), (97, 0, 256, 0, 6),
        (256, 0, 1024, 0, 0), (256, 0, 256, 0, 2), (24, 40960, 64, 0, 1), (24, 16384, 64, 0, 4),
        (24, 1024, 64, 31744, 2),
    ],
)  # fmt: skip
def test_occupancy_and_cooperative_launches(
    hip: Hip, vgprs: int, lds: int, threads: int, dynamic: int, want: int
) -> None:
    f, value = hip.kernel(tiny("kernel", "", vgprs=vgprs, lds=lds), "kernel"), c_int(-1)
    query = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
    hip.call(query, byref(value), f, threads, c_size_t(dynamic))
    assert value.value == want
    hip.call(f"{query}WithFlags", byref(value), f, threads, c_size_t(dynamic), 0)
    assert value.value == want
    pointers = (c_void_p * 2)(*[np.zeros(1, U64).ctypes.data] * 2)

    def code(groups: int) -> int:
        shape = [c_uint(n) for n in (groups, 1, 1, threads, 1, 1, dynamic)]
        return hip.raw("hipModuleLaunchCooperativeKernel", f, *shape, None, pointers)

    if want:
        assert code(32 * want) == 0
    assert code(32 * want + 1) == TOO_LARGE
    hip.call("hipDeviceSynchronize")


def test_the_best_size_of_a_workgroup(hip: Hip) -> None:
    call, grid, block = "hipModuleOccupancyMaxPotentialBlockSize", c_int(), c_int()
    for vgprs, threads, limit, want in (
        (24, 1024, 0, (64, 1024)),
        (24, 1024, 300, (32 * 8, 256)),  # 9 waves leave one place free
        (256, 1024, 0, (32, 640)),  # all 20 waves
        (24, 20, 0, (2048, 20)),
    ):
        f = hip.kernel(tiny("kernel", "", vgprs=vgprs, threads=threads), "kernel")
        hip.call(call, byref(grid), byref(block), f, c_size_t(0), limit)
        assert (grid.value, block.value) == want
    assert hip.raw(call, None, byref(block), f, c_size_t(0), 0) == VALUE
    assert hip.raw(call, byref(grid), byref(block), p(8), c_size_t(0), 0) == HANDLE


def test_a_fault_shows_at_the_next_call_and_stays(hip: Hip) -> None:
    kernel, stream, event = hip.kernel(image(), "scaled"), new(hip, "hipStreamCreate"), new(hip, "hipEventCreate")
    _, (extra, *_held) = packed(8, 8)
    assert hip.raw("hipModuleLaunchKernel", kernel, 2, 1, 1, 64, 1, 1, 0, None, None, extra) == 0
    value = c_int()
    for call, *arguments in (
        ("hipDeviceSynchronize",), ("hipStreamSynchronize", None), ("hipEventRecord", event, None),
        ("hipGetLastError",), ("hipPeekAtLastError",), ("hipGetLastError",),
        ("hipMalloc", byref(c_void_p()), c_size_t(8)),
    ):  # fmt: skip
        assert hip.raw(call, *arguments) == ILLEGAL, call
    # Questions and cleaning up still work.
    hip.call("hipGetDeviceCount", byref(value))
    hip.call("hipEventDestroy", event)
    hip.call("hipStreamDestroy", stream)
    hip.call("hipDeviceReset")
    hip.call("hipDeviceSynchronize")


def test_threads_at_one_time(hip: Hip) -> None:
    kernel, wrong = hip.kernel(image(), "scaled"), []

    def work(number: int) -> None:
        for i in range(20):
            data = X + U32(1000 * number + i)
            x, y = hip.buffer(data), hip.buffer(np.zeros(128, U32))
            stream = new(hip, "hipStreamCreate")
            hip.launch(kernel, [2], [64], [x, y, U32(3), np.uint8(2), U64(1000)])
            if not (y.read(U32) == scaled(data)).all():
                wrong.append((number, i))
            x.free(), y.free(), hip.call("hipStreamDestroy", stream)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and free_bytes(hip) == 32 << 30


# The library and its options.


def test_the_library_is_named_like_hips() -> None:
    path = Path(library_path())
    assert path.name == "libamdhip64.so.6"
    assert b"\0libamdhip64.so.6\0" in path.read_bytes()
    assert len([name for name in symbols(path.read_bytes()) if name.startswith("hip")]) >= 100


OPTIONS = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.hipModuleLoadData(ctypes.byref(ctypes.c_void_p()), b"x" * 99)
"""


@pytest.mark.parametrize(
    "name, value, lines",
    [
        ("SEED", "abc", 1), ("SEED", "-1", 1), ("SEED", "4294967296", 1), ("SEED", "12 ", 1), ("SEED", "0x10", 0),
        ("WEAK", "yes", 1), ("WEAK", "2", 1), ("LIMIT", "-1", 1), ("LIMIT", "99999999999999999999", 1),
        ("LIMIT", "18446744073709551615", 0), ("ESTIMATE", "on", 1), ("UNDEFINED", "no", 1), ("COUNTERS", "x" * 600, 1),
        ("REPORT", "/no/such/folder/r.txt", 1), ("SEED", "", 0),
    ],
)  # fmt: skip
def test_an_option_that_means_nothing_is_one_line(name: str, value: str, lines: int) -> None:
    """Behind it comes the report on the image, which is no image."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RDNA4SIM_")} | {f"RDNA4SIM_{name}": value}
    done = subprocess.run(
        [sys.executable, "-c", OPTIONS, library_path()], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0
    said = done.stderr.splitlines()
    assert len(said) == lines + 1 and "no complete 64-bit ELF file" in said[-1], said
    if lines:
        assert (value if name == "REPORT" else f"RDNA4SIM_{name}") in said[0]


# tinygrad's HIP runtime, which knows nothing of this simulator: it takes the library that HIP_PATH names.
FOREIGN = """
import sys, types
import numpy as np
from tinygrad.device import BufferSpec
from tinygrad.runtime.ops_hip import HIPDevice, HIPProgram
device, x = HIPDevice(""), np.arange(64, dtype=np.uint32)
assert (device.arch, device.count()) == ("gfx1201", 1)
memory = device.allocator
a, b = memory._alloc(256, BufferSpec()), memory._alloc(256, BufferSpec())
memory._copyin(a, memoryview(x).cast("B"))
program = HIPProgram(device, types.SimpleNamespace(name="add_one", lib=open(sys.argv[1], "rb").read(), signature=()))
assert program(a, b, global_size=(1, 1, 1), local_size=(64, 1, 1), wait=True) >= 0
out = bytearray(256)
memory._copyout(memoryview(out), b)
assert (np.frombuffer(out, np.uint32) == x + 1).all()
"""


def test_a_foreign_host_program_runs(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(code_object("faults"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RDNA4SIM_") or k == "RDNA4SIM_CACHE"}
    command = [sys.executable, "-c", FOREIGN, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment | {"HIP_PATH": library_path()})
    assert done.returncode == 0, done.stderr[-2000:]
