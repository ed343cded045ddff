"""Counters against kernels whose instructions and bytes are counted by hand, and the file they go to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rdna4sim.cache import compile_parts
from rdna4sim.elf import CodeObject
from rdna4sim.translate import Variant, translate, wmma_cycles
from tests.sim.exact import U32
from tests.sim.hip import HipError, library_path, simulator
from tests.sim.samples import CASES, made
from tests.sim.test_faults import faulty
from tests.sim.tiny import tiny

ROOT = Path(__file__).resolve().parent.parent.parent
# Comments: what a full wave adds. 40 of the 64 threads get past v_cmpx.
COUNTED = """
  s_load_b128 s[4:7], s[0:1], 0x0          ; SMEM, 16 bytes
  s_mov_b32 s8, 3
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v4, 4, v0
  s_wait_kmcnt 0x0
  global_load_b32 v2, v1, s[4:5]           ; 4 bytes a lane
  s_wait_loadcnt 0x0
  ds_store_b32 v1, v2                      ; 4 bytes a lane
  s_wait_dscnt 0x0
  s_barrier_signal -1
  s_barrier_wait -1
.Lloop:                                    ; three times
  v_add_f32 v2, v2, v2
  s_sub_co_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 .Lloop
  v_exp_f32 v3, v2
  v_cmpx_gt_u32 40, v0
  scratch_store_b64 off, v[2:3], off       ; 8 bytes a lane
  global_atomic_add_u32 v1, v2, s[6:7]     ; 4 bytes a lane
  global_store_b96 v4, v[1:3], s[6:7]      ; 12 bytes a lane
"""
OTHERS = """
  s_load_b64 s[4:5], s[0:1], 0x0           ; 8 bytes
  v_lshlrev_b32 v1, 2, v0
  s_wait_kmcnt 0x0
  v_mov_b32 v5, s4
  v_mov_b32 v6, s5
  flat_load_b32 v7, v[5:6]                 ; 4 bytes a lane
  flat_load_u8 v8, v[5:6]                  ; 1
  s_wait_loadcnt_dscnt 0x0
  flat_store_b64 v[5:6], v[7:8]            ; 8
  ds_store_2addr_b32 v1, v7, v7 offset1:64 ; LDS: 8
  ds_add_u32 v1, v7                        ; 4
  ds_load_2addr_b32 v[8:9], v1 offset1:64  ; 8
  ds_load_u16 v8, v1                       ; 2
  scratch_load_b32 v8, off, off            ; 4
  s_getpc_b64 s[8:9]
"""
UNEVEN = """
  v_readfirstlane_b32 s2, v0
  s_cmp_eq_u32 s2, 0
  s_cbranch_scc1 .Lend
  v_wmma_f32_16x16x16_f16 v[8:15], v[0:3], v[4:7], v[8:15]
  v_wmma_i32_16x16x16_iu8 v[8:15], v[0:1], v[4:5], v[8:15]
.Lend:
"""
PHASES = "  s_barrier_signal -1\n  s_barrier_wait -1\n" * 2


def counted(path: Path, image: bytes, name: str, grid: int, block: int, coop: bool = False, times: int = 1) -> Any:
    """What the file says about a kernel after some launches, and the file's head."""
    with simulator(counters=path) as hip:
        x, y = hip.buffer(np.zeros(256, U32)), hip.buffer(np.zeros(256, U32))
        for _ in range(times):
            hip.launch(hip.kernel(image, name), [grid], [block], [x, y], coop)
        hip.reset()
        document = json.loads(path.read_text())
    (kernel,) = document["kernels"]
    assert kernel["name"] == name
    return document, kernel


def test_instructions_and_bytes_are_what_a_hand_counts(tmp_path: Path) -> None:
    document, kernel = counted(tmp_path / "c.json", tiny("counted", COUNTED, lds=256), "counted", 2, 64)
    per_wave = {"salu": 1 + 3 * 2, "valu": 2 + 3 + 1 + 1, "smem": 1, "vmem": 4, "lds": 1, "branch": 3, "wmma": 0}
    per_wave |= {"other": 2, "wait": 3, "barrier_wait": 1}
    per_wave["total"] = sum(per_wave.values())
    assert kernel["instructions"] == {name: 4 * n for name, n in per_wave.items()}
    total = per_wave["total"]
    assert kernel["instructions_per_wave"] == {"smallest": total, "greatest": total, "mean": total}
    assert kernel["valu_transcendental"] == 4
    lines = {
        "distinct_read_lines": 128 * (2 + 1),
        "distinct_write_lines": 128 * 5,
    }  # 256 bytes and arguments; 640 bytes
    want = {"load": 4 * 128, "store": 2 * 40 * 12, "atomic": 2 * 40 * 4, "lds": 4 * 128, "scalar": 4 * 16}
    assert kernel["bytes"] == {**want, "scratch": 2 * 40 * 8, **lines}
    assert [kernel[k] for k in ("launches", "cooperative_launches", "faults", "workgroups", "waves")] == [1, 0, 0, 2, 4]
    # Four waves on four SIMDs: the busiest unit has 28 / 4 cycles, so the length of a wave decides.
    assert kernel["estimated_issue_us"] == pytest.approx(total / 2400, abs=2e-6)
    assert kernel["estimated_memory_us"] == pytest.approx(128 * 8 / 612e3, abs=2e-6)
    assert kernel["estimated_us"] == kernel["estimated_issue_us"] == document["estimated_us"]
    assert kernel["estimated_barrier_us"] == 0


def test_flat_lds_and_scratch_bytes_are_what_a_hand_counts(tmp_path: Path) -> None:
    _, kernel = counted(tmp_path / "c.json", tiny("others", OTHERS, lds=512), "others", 1, 32)
    want = {"load": 32 * 5, "store": 32 * 8, "atomic": 0, "lds": 32 * (8 + 4 + 8 + 2), "scalar": 8, "scratch": 32 * 4}
    assert kernel["bytes"] == {**want, "distinct_read_lines": 256, "distinct_write_lines": 128}
    classes = {"salu": 1, "valu": 3, "smem": 1, "vmem": 4, "lds": 4, "branch": 0, "wmma": 0, "other": 1, "wait": 2}
    assert kernel["instructions"] == {**classes, "barrier_wait": 0, "total": 16}


@pytest.mark.parametrize("condition", ["eq", "lg"])
def test_waves_of_different_length(tmp_path: Path, condition: str) -> None:
    body = UNEVEN.replace("s_cmp_eq", f"s_cmp_{condition}")
    _, kernel = counted(tmp_path / "c.json", tiny("uneven", body), "uneven", 3, 64, times=2)
    assert kernel["instructions_per_wave"] == {"smallest": 4, "greatest": 6, "mean": 5}
    assert (kernel["instructions"]["wmma"], kernel["wmma_cycles"]) == (6 * 2, 6 * (16 + 8))
    assert (kernel["launches"], kernel["workgroups"], kernel["waves"]) == (2, 6, 12)
    # Each launch: VALU 6 and 3 * 24 cycles of WMMA over 6 SIMDs.
    assert kernel["estimated_us"] == pytest.approx(2 * (6 + 72) / 6 / 2400, abs=2e-6)


@pytest.mark.parametrize("coop, barriers", [(True, 0.6), (False, 0)])
def test_barriers_of_a_cooperative_launch_cost_time(tmp_path: Path, coop: bool, barriers: float) -> None:
    _, kernel = counted(tmp_path / "c.json", tiny("phases", PHASES), "phases", 3, 64, coop)
    assert kernel["cooperative_launches"] == coop
    assert kernel["estimated_barrier_us"] == barriers
    assert kernel["estimated_us"] == pytest.approx(barriers + kernel["estimated_issue_us"], abs=2e-6)


def test_cycles_of_wmma() -> None:
    want = {"v_wmma_f32_16x16x16_bf16": 16, "v_wmma_f32_16x16x16_fp8_bf8": 8, "v_wmma_i32_16x16x32_iu4": 8}
    want |= {"v_wmma_i32_16x16x16_iu4": 4, "v_swmmac_f32_16x16x32_f16": 16, "v_swmmac_i32_16x16x64_iu4": 8}
    assert {name: wmma_cycles(name) for name in want} == want


SAME = [n for n in CASES if made(n).source in ("atomics", "grid")]


def test_counting_changes_no_result(tmp_path: Path) -> None:
    assert len(SAME) >= 5
    results = []
    for options in ({}, {"counters": tmp_path / "c.json"}, {"counters": tmp_path / "w.json", "weak": 1}):
        with simulator(**options) as hip:
            results.append({name: made(name).run(hip) for name in SAME})
            hip.reset()
    for name in SAME:
        for result in results[1:]:
            made(name).check(result[name])
            if name != "tickets":
                assert [a.tobytes() for a in results[0][name]] == [a.tobytes() for a in result[name]], name
    strong, weak = ({k["name"]: k for k in json.loads((tmp_path / f"{f}.json").read_text())["kernels"]} for f in "cw")
    # How often a wave asks until another has answered depends on the order; the rest does not.
    fixed = [name for name in strong if strong[name]["instructions"] == weak[name]["instructions"]]
    assert len(fixed) >= 4
    assert all(strong[name]["bytes"] == weak[name]["bytes"] for name in fixed)


def test_a_kernel_that_faults_is_counted_as_such(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    with simulator(counters=path) as hip:
        with pytest.raises(HipError):
            faulty("store_past_end").run(hip)
        hip.reset()
        (kernel,) = json.loads(path.read_text())["kernels"]
    assert (kernel["name"], kernel["launches"], kernel["faults"]) == ("store_past_end", 1, 1)


def test_another_file_starts_at_zero_and_the_same_goes_on(tmp_path: Path) -> None:
    one, two = tmp_path / "1.json", tmp_path / "2.json"
    for path, want in ((one, 1), (one, 2), (two, 1)):
        with simulator(counters=path) as hip:
            hip.launch(hip.kernel(tiny("phases", PHASES), "phases"), [1], [32], [np.uint64(0), np.uint64(0)])
            hip.reset()
            assert [k["launches"] for k in json.loads(path.read_text())["kernels"]] == [want]


def test_the_file_is_never_torn(tmp_path: Path) -> None:
    path, stop, read = tmp_path / "c.json", threading.Event(), 0
    wrong: list[str] = []

    def reader() -> None:
        nonlocal read
        while not stop.is_set():
            text = path.read_text() if path.exists() else "{}"
            try:
                json.loads(text)
                read += 1
            except json.JSONDecodeError:
                wrong.append(text)

    thread = threading.Thread(target=reader)
    with simulator(counters=path) as hip:
        thread.start()
        for _ in range(40):
            hip.launch(hip.kernel(tiny("phases", PHASES), "phases"), [1], [32], [np.uint64(0), np.uint64(0)])
            hip.reset()
        stop.set()
        thread.join()
    assert not wrong and read and [p.name for p in tmp_path.iterdir()] == ["c.json"]


CHILD = """
import ctypes, os, sys
lib, image = ctypes.CDLL(sys.argv[1]), open(sys.argv[2], "rb").read()
def call(name, *arguments):
    code = getattr(lib, name)(*arguments)
    assert code == 0, (name, code)
module, function, ms = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float(-1)
first, last = ctypes.c_void_p(), ctypes.c_void_p()
call("hipModuleLoadData", ctypes.byref(module), image)
call("hipModuleGetFunction", ctypes.byref(function), module, b"phases")
call("hipEventCreate", ctypes.byref(first)), call("hipEventCreate", ctypes.byref(last))
zero = ctypes.c_uint64(0)
values = (ctypes.c_void_p * 2)(*[ctypes.addressof(zero)] * 2)
call("hipEventRecord", first, None)
call("hipModuleLaunchCooperativeKernel", function, 5, 1, 1, 64, 1, 1, 0, None, values)
call("hipEventRecord", last, None)
call("hipEventElapsedTime", ctypes.byref(ms), first, last)
print(ms.value)
if os.fork() == 0: sys.exit(0)
os.wait()
if os.path.exists(sys.argv[3]): print("early")
"""


def child(tmp_path: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """A program that launches the kernel once and ends without a reset, under these options."""
    image = tmp_path / "image"
    image.write_bytes(tiny("phases", PHASES))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RDNA4SIM_") or k == "RDNA4SIM_CACHE"}
    environment |= {f"RDNA4SIM_{k.upper()}": str(v) for k, v in options.items()}
    command = [sys.executable, "-c", CHILD, library_path(), str(image), str(options.get("counters", "-"))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return done


def test_a_program_that_ends_leaves_its_counters(tmp_path: Path) -> None:
    """Its forked child, which ends first, does not."""
    done = child(tmp_path, counters=tmp_path / "c.json", estimate=1)
    (kernel,) = json.loads((tmp_path / "c.json").read_text())["kernels"]
    assert (kernel["launches"], kernel["waves"]) == (1, 10)
    assert "early" not in done.stdout
    assert float(done.stdout) == pytest.approx(kernel["estimated_us"] / 1e3, rel=1e-2)


def test_counters_on_standard_error_and_wall_time(tmp_path: Path) -> None:
    done = child(tmp_path, counters="-")
    (kernel,) = json.loads(done.stderr)["kernels"]
    assert kernel["name"] == "phases"
    assert float(done.stdout) != pytest.approx(kernel["estimated_us"] / 1e3, rel=1e-2)


@pytest.mark.parametrize("options", [{"counters": "/no/such/folder/c.json"}, {"counters": "/"}])
def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, options: dict[str, str]) -> None:
    done = child(tmp_path, **options)
    assert done.stderr.count("\n") == 1 and options["counters"] in done.stderr


def test_the_counting_variant_of_weak_memory_compiles(tmp_path: Path) -> None:
    variant = Variant.named("weak-counters")
    assert variant == Variant(True, True)
    code = CodeObject(tiny("counted", COUNTED, lds=256))
    compile_parts(translate(code, variant), variant, tmp_path, tmp_path / "weak.so")
    assert (tmp_path / "weak.so").stat().st_size > 0
