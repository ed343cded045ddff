"""Planted mistakes are caught, and the same kernels without them pass the same check.

A mistake is caught when the simulator refuses a launch, or when some order of waves and workgroups gives a result other
than the right one. `FAULT` (or another macro) plants the mistake at compile time, `patch` in the machine code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sim.build import code_object
from tests.sim.case import Case
from tests.sim.elf import functions, kernel_code, patched
from tests.sim.exact import U32, U64
from tests.sim.hip import ILLEGAL_ADDRESS, LAUNCH_FAILURE, TIME_OUT, Hip, HipError, simulator
from tests.sim.samples import made

Array = np.ndarray[Any, Any]
T = np.arange(64, dtype=U32)
IN = ((np.arange(256) * 2654435761) % 2**32).astype(U32)
SEEDS = range(1, 21)


def _write_before_read() -> Array:
    x, t = IN.copy(), np.arange(256)
    for i in range(5):
        x = x * U32(3) + (x + U32(i))[(t * 33 + 32) % 256]
    return x


def _faults(kernel: str, args: Sequence[Any], out: int, want: Array, groups: int = 1, threads: int = 64) -> Case:
    return Case("faults", kernel, [groups], [threads], args, {out: want})


CASES = {
    "read_before_write": _faults("read_before_write", [IN, np.zeros(256, U32)], 1, IN[::-1], threads=256),
    "write_before_read": _faults("write_before_read", [IN, np.zeros(256, U32)], 1, _write_before_read(), threads=256),
    "store_past_end": _faults("store_past_end", [np.zeros(100, U32), U32(100)], 0, np.arange(0, 300, 3, U32), 2),
    "load_past_end": _faults("load_past_end", [IN[:100], np.zeros(100, U32), U32(100)], 1, IN[:100], 2),
    "load_before_start": _faults("load_before_start", [IN[:64], np.zeros(64, U32)], 1, IN[:64]),
    "uninitialised_lds": _faults(
        "uninitialised_lds", [IN[:64], np.zeros(64, U32)], 1, np.bincount(IN[:64] % 64, minlength=64).astype(U32)
    ),
    "uninitialised_lds_load": _faults("uninitialised_lds_load", [np.zeros(64, U32)], 0, T[::-1]),
    "wild_lds": _faults("wild_lds", [IN[1:65], np.zeros(64, U32)], 1, IN[1:65]),
    "wild_lds_store": _faults("wild_lds_store", [IN[1:65], np.zeros(64, U32)], 1, IN[1:65]),
    "endless_sleep": _faults("endless_sleep", [np.zeros(1, U32), np.zeros(64, U32)], 1, np.ones(64, U32)),
    "endless_loop": _faults("endless_loop", [np.zeros(1, U32), np.zeros(64, U32)], 1, np.ones(64, U32)),
}  # fmt: skip
CASES["endless_sleep"] = replace(CASES["endless_sleep"], expect={0: np.ones(1, U32), 1: np.ones(64, U32)})
CASES["endless_loop"] = replace(CASES["endless_loop"], expect={0: np.ones(1, U32), 1: np.ones(64, U32)})
CASES["far_lanes"] = _faults(
    "far_lanes", [IN[:64], IN[64:128], np.zeros(64, U32)], 2, np.where(T % 2, IN[:64], IN[64:128])
)
CASES["through_memory"] = _faults("through_memory", [IN[:128], np.zeros(128, U32)], 1, np.zeros(0, U32), groups=2)
_other = IN[:128].reshape(2, 64)[:, ::-1]
_kept = _other * U32(2) + T
CASES["through_memory"] = replace(
    CASES["through_memory"], expect={0: _kept.reshape(-1), 1: (_kept[:, ::-1] + _other).reshape(-1)}
)
CASES["endless_chain"] = Case(
    "faults", "endless_chain", [4], [64], [np.zeros(8, U32), np.zeros(4, U32), U32(4)],
    {0: np.array([1, 1, 1, 1, 0, 0, 0, 0], U32), 1: np.array([4, 3, 2, 1], U32)}, coop=True,
)  # fmt: skip


def outcome(case: Case, seeds: Sequence[int], **options: Any) -> HipError | AssertionError | None:
    """The first thing that goes wrong under these seeds, None if nothing does."""
    for seed in seeds:
        with simulator(seed=seed, **options) as hip:
            try:
                case.check(case.run(hip))
            except (HipError, AssertionError) as error:
                return error
    return None


def faulty(name: str) -> Case:
    return replace(CASES[name], defines=("FAULT",))


@pytest.mark.parametrize("name", CASES)
def test_healthy_kernels_pass(name: str) -> None:
    assert outcome(CASES[name], SEEDS, limit=10**7) is None


@pytest.mark.parametrize("name", CASES)
def test_healthy_kernels_pass_with_weak_memory(name: str) -> None:
    assert outcome(CASES[name], range(1, 4), limit=10**7, weak=1) is None


@pytest.mark.parametrize("name", ["read_before_write", "write_before_read"])
def test_a_missing_barrier_is_seen(name: str) -> None:
    assert outcome(faulty(name), SEEDS) is not None


@pytest.mark.parametrize("name", ["uninitialised_lds", "uninitialised_lds_load"])
def test_reading_lds_that_nobody_wrote_is_seen(name: str) -> None:
    assert outcome(faulty(name), [1]) is not None


def _error(case: Case, **options: Any) -> HipError:
    with simulator(**options) as hip, pytest.raises(HipError) as caught:
        case.run(hip)
    return caught.value


def _past(case: Case, argument: int) -> tuple[Case, Callable[[Hip], tuple[HipError, int, int]]]:
    """Runs the case; gives the error, and first and last address of one of its buffers."""

    def run(hip: Hip) -> tuple[HipError, int, int]:
        buffers = [hip.buffer(a) if isinstance(a, np.ndarray) else a for a in case.args]
        with pytest.raises(HipError) as caught:
            hip.launch(hip.kernel(code_object(case.source, *case.defines), case.kernel), case.grid, case.block, buffers)
        start = buffers[argument].address
        return caught.value, start, start + buffers[argument].nbytes

    return case, run


@pytest.mark.parametrize(
    "name, argument, end", [("store_past_end", 0, True), ("load_past_end", 0, True), ("load_before_start", 0, False)]
)
@pytest.mark.parametrize("weak", [0, 1])
def test_an_access_outside_an_allocation_names_kernel_and_address(
    name: str, argument: int, end: bool, weak: int
) -> None:
    with simulator(weak=weak) as hip:
        error, first, last = _past(faulty(name), argument)[1](hip)
    assert error.code == ILLEGAL_ADDRESS
    assert name in error.report
    address = last if end else first - 4
    assert f"{address:x}" in error.report.lower()


def test_a_lane_that_points_far_away_is_named() -> None:
    error = _error(faulty("far_lanes"))
    assert error.code == ILLEGAL_ADDRESS
    assert "lane 5" in error.report and f"{2**45 + 20:x}" in error.report


@pytest.mark.parametrize("name", ["wild_lds", "wild_lds_store"])
def test_an_offset_outside_lds_names_the_kernel(name: str) -> None:
    error = _error(faulty(name))
    assert error.code in (ILLEGAL_ADDRESS, LAUNCH_FAILURE)
    assert name in error.report and "LDS" in error.report


@pytest.mark.parametrize("name", ["endless_sleep", "endless_loop", "endless_chain"])
def test_a_wait_that_cannot_end_is_reported(name: str) -> None:
    error = _error(faulty(name), limit=10**6)
    assert error.code == TIME_OUT
    assert name in error.report and "pc" in error.report


@pytest.mark.parametrize("weak", [0, 1])
def test_much_work_without_a_store_is_no_endless_wait(weak: int) -> None:
    n = 15_000_000 // (10 if weak else 1)
    x = IN[:64].copy()
    for _ in range(50):
        x = x * U32(1664525) + U32(1013904223)
        x ^= x >> U32(7)
    with simulator(weak=weak) as hip:
        kernel, out = hip.kernel(code_object("faults"), "long_sum"), hip.buffer(np.zeros(64, U32))
        hip.launch(kernel, [1], [64], [hip.buffer(IN[:64]), out, U32(50)])
        assert (out.read(U32) == x).all()
        hip.launch(kernel, [1], [64], [hip.buffer(IN[:64]), out, U32(n)])
        assert not (out.read(U32) == x).all()


@pytest.mark.parametrize("weak", [0, 1])
def test_waits_with_sleeps_need_no_limit_to_be_told_apart(weak: int) -> None:
    one = np.ones(64, U32)
    with simulator(weak=weak) as hip:
        time, flag = (hip.kernel(code_object("faults"), name) for name in ("waits_for_time", "late_flag"))
        for kernel, threads, args in ((time, 32, 1), (flag, 64, 2)):
            out = hip.buffer(np.zeros(64, U32))
            hip.launch(kernel, [1], [threads], [*[hip.buffer(np.zeros(1, U32))][: args - 1], out])
            assert (out.read(U32)[:threads] == one[:threads]).all()
    for name in ("late_flag", "endless_sleep"):
        with simulator(weak=weak) as hip, pytest.raises(HipError) as caught:
            kernel = hip.kernel(code_object("faults", "FAULT"), name)
            hip.launch(kernel, [1], [64], [hip.buffer(np.zeros(1, U32)), hip.buffer(np.zeros(64, U32))])
        assert caught.value.code == TIME_OUT and name in caught.value.report


@pytest.mark.parametrize("seed", [0, 3])
def test_as_many_workgroups_as_the_card_holds_may_wait_for_one_another(seed: int) -> None:
    with simulator(seed=seed) as hip:
        out, kernel = hip.buffer(np.zeros(300 * 32, U32)), hip.kernel(code_object("faults"), "last_raises")
        hip.launch(kernel, [300], [32], [hip.buffer(np.zeros(1, U32)), out, U32(300)])
        assert (out.read(U32) == 1).all()


def test_the_limit_is_for_launches_that_go_on() -> None:
    with simulator(limit=1) as hip:
        hip.launch(hip.kernel(code_object("faults"), "add_one"), [1], [64], [hip.buffer(T), hip.buffer(T)])
    with simulator(limit=10**6) as hip, pytest.raises(HipError) as caught:
        hip.launch(hip.kernel(code_object("faults"), "counts_for_ever"), [1], [64], [hip.buffer(T)])
    assert caught.value.code == TIME_OUT and "counts_for_ever" in caught.value.report


def test_a_trap_a_hole_and_a_call_are_named() -> None:
    five = np.full(64, 5, U32)
    with simulator() as hip:
        hip.launch(hip.kernel(code_object("faults"), "trap"), [1], [64], [hip.buffer(T)])
    for name, word in (("trap", "s_trap"), ("never_reached", "s_endpgm")):
        with simulator() as hip, pytest.raises(HipError) as caught:
            hip.launch(hip.kernel(code_object("faults"), name), [1], [64], [hip.buffer(five)])
        assert caught.value.code == LAUNCH_FAILURE and name in caught.value.report and word in caught.value.report
    for define, right in (((), True), (("FAULT",), False)):
        with simulator() as hip:
            out, kernel = hip.buffer(np.zeros(64, U32)), hip.kernel(code_object("faults", *define), "in_a_call")
            if right:
                hip.launch(kernel, [1], [64], [hip.buffer(T), out])
                assert (out.read(U32) == T + 1).all()
                continue
            with pytest.raises(HipError) as caught:
                hip.launch(kernel, [1], [64], [hip.buffer(T), out])
            assert "in_a_call" in caught.value.report and "(reads+0x" in caught.value.report


def test_an_error_sticks_until_reset() -> None:
    with simulator() as hip:
        with pytest.raises(HipError):
            faulty("store_past_end").run(hip)
        with pytest.raises(HipError) as again:
            CASES["store_past_end"].run(hip)
        assert again.value.code == ILLEGAL_ADDRESS
        hip.reset()
        CASES["store_past_end"].check(CASES["store_past_end"].run(hip))


def test_null_and_foreign_pointers_fault() -> None:
    image = code_object("faults")
    for address in (0, 8, 0x1234_5678_0000, 2**64 - 64, id(image)):
        with simulator() as hip:
            out = hip.buffer(np.zeros(64, U32))
            with pytest.raises(HipError) as caught:
                hip.launch(hip.kernel(image, "add_one"), [1], [64], [U64(address), out])
            assert caught.value.code == ILLEGAL_ADDRESS
            assert "add_one" in caught.value.report


def test_memory_that_was_freed_faults() -> None:
    with simulator() as hip:
        kernel = hip.kernel(code_object("faults"), "add_one")
        x, y = hip.buffer(T), hip.buffer(np.zeros(64, U32))
        hip.launch(kernel, [1], [64], [x, y])
        assert (y.read(U32) == T + 1).all()
        x.free()
        with pytest.raises(HipError) as caught:
            hip.launch(kernel, [1], [64], [x, y])
    assert caught.value.code == ILLEGAL_ADDRESS


def test_a_pointer_found_in_memory_is_checked() -> None:
    with simulator() as hip:
        kernel = code_object("faults"), "pointer_chase"
        target, out = hip.buffer(np.array([77], U32)), hip.buffer(np.zeros(64, U32))
        hip.launch(hip.kernel(*kernel), [1], [64], [hip.buffer(np.array([target.address, 64], U64)), out])
        assert (out.read(U32) == 77).all()
        with pytest.raises(HipError) as caught:
            image = code_object("faults", "FAULT")
            hip.launch(hip.kernel(image, kernel[1]), [1], [64], [hip.buffer(np.array([target.address, 64], U64)), out])
    assert caught.value.code == ILLEGAL_ADDRESS


GRID = [("persistent_ring", "NO_RELEASE"), ("persistent_ring", "NO_ACQUIRE"), ("persistent_ring", "NARROW")]
GRID += [
    ("broadcast", "NO_RELEASE"),
    ("broadcast", "NO_ACQUIRE"),
    ("broadcast", "NARROW"),
    ("last_group_sum", "NO_RELEASE"),
]


@pytest.mark.parametrize("name, fault", GRID)
def test_weak_memory_shows_a_missing_release_or_acquire_or_too_narrow_a_scope(name: str, fault: str) -> None:
    assert outcome(made(name), [1], weak=1) is None
    assert outcome(replace(made(name), defines=(fault,)), SEEDS, weak=1, limit=2 * 10**7) is not None


@pytest.mark.parametrize("name", ["persistent_ring", "broadcast", "last_group_sum"])
def test_weak_memory_accepts_the_same_kernels_as_they_should_be(name: str) -> None:
    assert outcome(made(name), SEEDS, weak=1) is None


def test_weak_memory_shows_waves_of_a_workgroup_that_only_meet_at_a_barrier() -> None:
    assert outcome(faulty("through_memory"), SEEDS) is None
    assert outcome(faulty("through_memory"), SEEDS, weak=1) is not None


WAIT_LOAD, WAIT_DS, WAIT_SCALAR, WAIT_LOAD_DS, NOP = 0xBFC0, 0xBFC6, 0xBFC7, 0xBFC8, 0xBF800000


def _waits() -> Case:
    a, b = IN[:128], IN[128:]
    return Case("faults", "waits", [2], [64], [a, b, np.zeros(128, U32)], {2: a[np.arange(128) ^ 1] + b})


class Patched(Case):
    """A case whose image is given, not compiled."""

    image = b""

    def run(self, hip: Hip) -> list[Array]:
        function = hip.kernel(self.image, self.kernel)
        buffers = [hip.buffer(a) for a in self.args]
        hip.launch(function, self.grid, self.block, buffers)
        return [b.read(a.dtype, a.shape) for a, b in zip(self.args, buffers, strict=True)]


def with_image(case: Case, image: bytes) -> Case:
    made = Patched(case.source, case.kernel, case.grid, case.block, case.args, case.expect)
    object.__setattr__(made, "image", image)
    return made


def _places(image: bytes, kernel: str, wait: int) -> list[int]:
    """File offsets of the wait instructions of one kind in a kernel."""
    start, code = kernel_code(image, kernel)
    return [start + i for i in range(0, len(code), 4) if struct.unpack_from("<I", code, i)[0] >> 16 == wait]


@pytest.mark.parametrize("wait", [WAIT_LOAD, WAIT_SCALAR, WAIT_LOAD_DS])
def test_weak_memory_shows_a_register_read_before_its_wait(wait: int) -> None:
    case, image = _waits(), code_object("faults")
    places = _places(image, "waits", wait)
    assert places
    for place in places:
        assert outcome(with_image(case, patched(image, place, struct.pack("<I", NOP))), [1, 2, 3], weak=1) is not None
    assert outcome(with_image(case, image), SEEDS, weak=1) is None


@pytest.mark.parametrize("word", [0x7E01FE00, 0xD7FF0000, 0xEFFFFFFF, 0xBE80FF00, 0x00000000 | 0x3F << 25 | 0xFE << 9])
def test_an_unknown_instruction_is_refused_with_its_address(word: int) -> None:
    image = code_object("faults")
    start, code = kernel_code(image, "add_one")
    place = start + code.index(struct.pack("<I", 0xBFC70000))
    with simulator() as hip:
        with pytest.raises(HipError) as caught:
            bad = patched(image, place, struct.pack("<I", word))
            hip.launch(hip.kernel(bad, "add_one"), [1], [64], [hip.buffer(T), hip.buffer(T)])
        assert caught.value.code != 0
        hip.reset()
        others = hip.kernel(bad, "load_past_end")
        hip.launch(others, [1], [64], [hip.buffer(IN[:64]), hip.buffer(T), U32(64)])
        address = functions(image)["add_one"][0] + place - start
        assert f"{address:#x}" in caught.value.report
