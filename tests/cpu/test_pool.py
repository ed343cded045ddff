"""The thread pool and memory of the library: starting, sleeping, ending; no allocation once a model runs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ie import native
from ie.devices import CpuExecutor
from ie.devices.cpu import available_isas
from ie.devices.repack import repack, repack_reference
from ie.engine import Engine
from ie.errors import DeviceError, IeError, ResourceError
from ie.formats import LAYOUTS
from ie.machine import this_machine
from ie.settings import EngineOptions
from tests.op_cases import draw
from tests.rig import run_cpu
from tests.variants import NAMES, make, tokens

FFI, LIB = native.lib()
ROOT = Path(__file__).resolve().parents[2]
PORTABLE = native.ISAS.index("portable")


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("threads", [0, -1, 1025, 1 << 30])
def test_thread_counts_that_cannot_be_are_refused(threads: int) -> None:
    before = _threads()
    assert LIB.ie_pool_create(threads, PORTABLE) == FFI.NULL
    with pytest.raises(ResourceError, match=f"cannot start {threads} threads; ask for fewer with -t"):
        CpuExecutor(threads)
    assert _threads() == before


@pytest.mark.parametrize("isa", [-1, len(native.ISAS), 77])
def test_unknown_instruction_sets_are_refused(isa: int) -> None:
    assert not LIB.ie_isa_available(isa)
    assert LIB.ie_pool_create(1, isa) == FFI.NULL


FLAGS = {
    "x86_64": {
        "avx2": {"avx2", "fma", "f16c", "bmi1", "abm"},
        "avxvnni": {"avx2", "fma", "f16c", "bmi1", "abm", "avx_vnni"},
        "avx512": {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl", "avx512_vnni", "avx2", "fma", "f16c"},
    },
    "aarch64": {"neon": {"asimddp"}, "i8mm": {"asimddp", "i8mm"}},
}
"""What /proc/cpuinfo must name for an instruction set to be there."""


def test_what_is_available_is_what_the_system_says_of_the_processor() -> None:
    here = this_machine()
    flags = FLAGS.get(here.arch, {})
    want = ["portable"] + [name for name in native.ISAS if name in flags and flags[name] <= here.flags]
    assert [name for i, name in enumerate(native.ISAS) if LIB.ie_isa_available(i)] == want
    assert native.ISAS[LIB.ie_isa_best()] == want[-1]
    assert available_isas() == want[::-1]


def test_an_instruction_set_of_another_architecture_is_refused_in_one_line() -> None:
    other = "avx2" if this_machine().arch == "aarch64" else "neon"
    with pytest.raises(DeviceError, match=f"^this processor or build has no {other}; available: .*portable$"):
        CpuExecutor(1, other)


def test_a_missing_instruction_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoAvx:
        def __getattr__(self, name: str) -> object:
            return (lambda i: int(i == PORTABLE)) if name == "ie_isa_available" else getattr(LIB, name)

    monkeypatch.setattr(native, "lib", lambda: (FFI, NoAvx()))
    with pytest.raises(DeviceError, match="this processor or build has no avx2; available: portable"):
        CpuExecutor(1, "avx2")


def _child(code: str, stack: int) -> subprocess.CompletedProcess[str]:
    """A Python of its own whose stack is limited to so many bytes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))

    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, preexec_fn=limit, capture_output=True, text=True, timeout=120)


def test_workers_have_a_stack_of_their_own_size() -> None:
    """In the list of mappings a thread's stack follows a guard page. The limit, which is the default size, is less."""
    done = _child(
        "import re\n"
        "from ie import native\n"
        "ffi, lib = native.lib()\n"
        "before = open('/proc/self/maps').readlines()\n"
        "pool = lib.ie_pool_create(5, 0)\n"
        "new = [line for line in open('/proc/self/maps') if line not in before]\n"
        "sizes = [(int(m[2], 16) - int(m[1], 16), m[3]) for m in (re.match(r'(\\w+)-(\\w+) (\\S+)', n) for n in new)]\n"
        "pairs = list(zip(sizes, sizes[1:]))\n"
        "print(sum(a == (4096, '---p') and b[0] >= lib.ie_stack_bytes() for a, b in pairs))\n",
        LIB.ie_stack_bytes() // 2,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


def test_kernels_leave_half_of_that_stack_free() -> None:
    """The deepest ones, run by a caller whose stack has half the size of a worker's, Python's part of it included."""
    done = _child(
        "from ie.devices import cpu\n"
        "from tests.op_cases import draw\n"
        "from tests.rig import ISAS, run_cpu\n"
        "cpu.machine.stack_limit = lambda: 1 << 30\n"
        "for op in ('attention', 'deltanet', 'matmul'):\n"
        "    for few in (False, True):\n"
        "        for isa in ISAS:\n"
        "            run_cpu(draw(op, 3, few=few), isa=isa)\n"
        "print('done')\n",
        LIB.ie_stack_bytes() // 2,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_fifty_pools_come_and_go() -> None:
    before = _threads()
    layout = LAYOUTS[0]
    data = np.random.default_rng(0).integers(0, 256, 40 * layout.size_per_row_block, dtype=np.uint8)
    want = repack_reference(layout, data, 40, layout.block).reshape(-1)
    for i in range(50):
        pool = LIB.ie_pool_create(1 + i % 5, PORTABLE)
        assert pool != FFI.NULL and _threads() == before + i % 5
        for _ in range(i % 3):
            out = np.zeros(want.size, np.uint8)
            repack(pool, layout, data, out, 40, layout.block)
            assert np.array_equal(out, want)
        LIB.ie_pool_destroy(pool)
        assert _threads() == before
    LIB.ie_pool_destroy(FFI.NULL)


def test_idle_threads_sleep() -> None:
    """Processor time, not wall time, over an idle wait after work; spinning threads would take all of three cores."""
    executor = CpuExecutor(4)
    try:
        out = np.zeros(LAYOUTS[0].size, np.uint8)
        for _ in range(20):
            repack(executor.device.pool, LAYOUTS[0], out.copy(), out, 16, LAYOUTS[0].block)
        time.sleep(0.05)
        begin, wall = time.process_time(), time.monotonic()
        time.sleep(0.3)
        assert time.process_time() - begin < 0.5 * (time.monotonic() - wall)
    finally:
        executor.close()


def test_workers_do_not_take_signals() -> None:
    """Ctrl-C belongs to Python's thread: a worker blocks every signal."""
    executor = CpuExecutor(3)
    try:
        own = {str(threading.get_native_id())}
        blocked = []
        for task in set(os.listdir("/proc/self/task")) - own:
            for line in Path(f"/proc/self/task/{task}/status").read_text().splitlines():
                if line.startswith("SigBlk:"):
                    blocked.append(int(line.split()[1], 16))
        assert sum(bool(mask & (1 << 1)) for mask in blocked) >= 2  # SIGINT is bit 1
    finally:
        executor.close()


@pytest.mark.parametrize("op", ["quantize", "add", "matmul"])
def test_more_threads_than_tiles(op: str) -> None:
    case = draw(op, 5)
    one, _ = case.single(0)
    for threads in (2, 9, 16):
        assert run_cpu(one, threads).bits() == run_cpu(one, 1).bits()
        assert run_cpu(replace(case, spare=0), threads).bits() == run_cpu(replace(case, spare=0), 1).bits()


def test_many_short_programs_in_a_row() -> None:
    """Start, barrier and end of tasks follow each other as fast as they can."""
    case = draw("add", 2)
    want = run_cpu(case).bits()
    for _ in range(60):
        assert run_cpu(case, 3).bits() == want


# ---- memory ----


def test_memory_is_zeroed_counted_and_given_back() -> None:
    before = LIB.ie_alloc_count()
    memory = native.Memory(1 << 20, "a test")
    assert LIB.ie_alloc_count() == before + 1 and memory.address % 4096 == 0
    assert memory.array.size == 1 << 20 and not memory.array.any()
    memory.array[:] = 1
    memory.close()
    memory.close()
    assert memory.array.size == 0
    del memory
    assert LIB.ie_alloc(0) == FFI.NULL and LIB.ie_alloc(-5) == FFI.NULL
    assert LIB.ie_alloc_count() == before + 1


def test_memory_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ResourceError, match=r"cannot allocate 4,611,686,018,427,387,904 bytes for the KV cache.*-c"):
        native.Memory(1 << 62, "the KV cache")


def test_weights_for_which_there_is_no_memory_do_not_blame_the_context(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Full:
        def __getattr__(self, name: str) -> object:
            return (lambda size: FFI.NULL) if name == "ie_alloc" else getattr(LIB, name)

    monkeypatch.setattr(native, "lib", lambda: (FFI, Full()))
    with pytest.raises(ResourceError, match=r"bytes for weights; a smaller model or quantisation needs less$"):
        Engine.open(make(tmp_path / "m.gguf"), EngineOptions(threads=1))


@pytest.mark.parametrize("arch", NAMES)
def test_steps_allocate_nothing(arch: str, tmp_path: Path) -> None:
    """Once a model is open, decode steps and prompts of all lengths take no memory and no thread."""
    with Engine.open(make(tmp_path / "m.gguf", arch=arch), EngineOptions(threads=2, chunk=32, n_ctx=256)) as engine:
        seq = engine.new_sequence()
        counted, threads = LIB.ie_alloc_count(), _threads()
        engine.forward(seq, tokens(90))
        for i in range(100):
            engine.forward(seq, [i % 96])
        for n in (1, 4, 16, 31):
            seq.truncate(40)
            engine.forward(seq, tokens(n), "all")
        assert (LIB.ie_alloc_count(), _threads()) == (counted, threads)


def test_closing_ends_threads_and_a_failed_opening_leaves_none(tmp_path: Path) -> None:
    before = _threads()
    path = make(tmp_path / "m.gguf")
    for _ in range(3):
        engine = Engine.open(path, EngineOptions(threads=3))
        assert _threads() == before + 2
        engine.close()
        engine.close()
        assert _threads() == before
    Path(path).write_bytes(Path(path).read_bytes().replace(b"output_norm", b"outpuk_norm"))
    with pytest.raises(IeError):
        Engine.open(path, EngineOptions(threads=3))
    assert _threads() == before
