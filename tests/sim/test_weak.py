"""Weak memory mode, one mechanism at a time: what may lag does so under some seed, what is promised holds under all.

Each kernel of `kernels/weak.c` is launched right and, by other values of the same arguments, with one step left out.
The right one must give its result under every seed. The wrong one must not under at least one of them, so that a
simulator that is kinder than the card fails here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.sim.build import code_object
from tests.sim.case import Case
from tests.sim.exact import U32
from tests.sim.hip import LAUNCH_FAILURE, Hip, HipError, simulator

Array = np.ndarray[Any, Any]
SEEDS = range(1, 41)
PAIRS, BOX = 8, 256
LANES = np.arange(32, dtype=U32)
VALUE = U32(0x81020304) + LANES * U32(0x01010101)
TOLD = np.tile(VALUE, PAIRS)
IN = ((np.arange(512) * 2654435761) % 2**32).astype(U32)


def _zeros(words: int) -> Array:
    return np.zeros(words, U32)


class Loose(Case):
    """A case that says nothing of buffers it does not name."""

    def check(self, outputs: Sequence[Array]) -> None:
        every = {i: self.expect.get(i, got) for i, got in zip(self.buffers(), outputs, strict=True)}
        Case(self.source, self.kernel, self.grid, self.block, self.args, every).check(outputs)


def _case(kernel: str, groups: int, threads: int, args: Sequence[Any], expect: Mapping[int, Array]) -> Case:
    return Loose("weak", kernel, [groups], [threads], args, expect, coop=True)


def wrong_under(case: Case, seeds: Sequence[int] = SEEDS) -> int | None:
    """The first of these seeds under which the result is not the right one, None if there is none."""
    for seed in seeds:
        with simulator(seed=seed, weak=1, limit=2 * 10**7) as hip:
            try:
                case.check(case.run(hip))
            except AssertionError:
                return seed
    return None


def check(case: Case, right: bool) -> None:
    seed = wrong_under(case)
    assert right == (seed is None), f"seed {seed}"


DATA = {name: i for i, name in enumerate(("cu", "se", "dev", "se atomic", "dev atomic"))}
PUBLISH = {name: i for i, name in enumerate(("", "wait", "wb", "load", "atomic"))}
FLAG = {name: i for i, name in enumerate(("cu", "dev", "atomic"))}
ACQUIRE = {name: i for i, name in enumerate(("", "se", "dev", "scalar"))}
READ = {name: i for i, name in enumerate(("cu", "se", "dev", "scalar"))}


def message(
    data: str, publish: str, flag: str, acquire: str = "dev", read: str = "cu", delay: int = 0, touch: int = 0
) -> Case:
    """A line from one workgroup to another. How it is written, made public and announced; acquired and read."""
    modes = DATA[data], PUBLISH[publish], FLAG[flag], delay, ACQUIRE[acquire], READ[read], touch
    args = [_zeros(PAIRS * BOX), _zeros(PAIRS * 32), *map(U32, modes)]
    return _case("message", 2 * PAIRS, 32, args, {1: TOLD})


RIGHT_MESSAGES = [
    message("dev", "wait", "dev"),
    message("cu", "wait", "dev", delay=60),
    message("cu", "wait", "atomic", delay=60),
    message("cu", "wait", "cu", touch=1),
    message("dev", "wait", "dev", read="se"),
    message("cu", "wait", "dev", read="dev"),
    message("cu", "wait", "dev", "scalar", "scalar"),
    message("cu", "wait", "dev", "scalar", "scalar", touch=1),
    # What has SCOPE_SE becomes public by the workgroup's next access of SCOPE_DEV, whatever it is, or by global_wb.
    message("se", "wait", "dev"),
    message("se", "wait", "atomic"),
    message("se", "load", "cu"),
    message("se", "atomic", "cu"),
    message("se", "wb", "cu"),
    message("se atomic", "wb", "cu"),
    message("se atomic", "wait", "dev"),
    message("dev atomic", "wait", "cu"),
]
WRONG_MESSAGES = {
    "a later store overtakes": message("dev", "", "dev"),
    "a store is long under way": message("dev", "", "dev", delay=60),
    "a store is long under way while an atomic acts": message("cu", "", "atomic", delay=60),
    "a line that was never loaded is old": message("dev", "wait", "dev", ""),
    "the workgroup's copy of it is old": message("dev", "wait", "dev", "", "se"),
    "the workgroup's copy stays old after an acquire of its scope": message("dev", "wait", "dev", "se"),
    "a scalar load is old": message("cu", "wait", "dev", "dev", "scalar"),
    "a scalar load of what was loaded before is old": message("cu", "wait", "dev", "dev", "scalar", touch=1),
    "a store of the workgroup's scope stays there": message("se", "wait", "cu"),
    "an atomic of the workgroup's scope stays there": message("se atomic", "wait", "cu"),
}


@pytest.mark.parametrize("number", range(len(RIGHT_MESSAGES)))
def test_a_message_arrives(number: int) -> None:
    check(RIGHT_MESSAGES[number], True)


@pytest.mark.parametrize("name", WRONG_MESSAGES)
def test_a_message_may_come_too_late(name: str) -> None:
    check(WRONG_MESSAGES[name], False)


def test_a_store_may_overtake_an_atomic_that_returns_nothing() -> None:
    check(message("dev atomic", "", "dev"), False)


@pytest.mark.parametrize("wait", [1, 0])
def test_a_load_may_overtake_one_that_is_under_way(wait: int) -> None:
    args = [_zeros(PAIRS * BOX), _zeros(PAIRS * 32), U32(wait)]
    check(_case("two_loads", 2 * PAIRS, 32, args, {1: TOLD}), bool(wait))


def halves(data: str, wait: int, touch: int, inv: str, read: str = "cu", cu_mode: bool = False) -> Case:
    """A line from wave 1 to wave 0 of a workgroup. inv: which of them invalidates its L0, r(eader) or w(riter)."""
    modes = DATA[data], wait, touch, "w" in inv, "r" in inv, READ[read]
    args = [_zeros(PAIRS * BOX), _zeros(PAIRS * 32), *map(U32, modes)]
    return _case("halves_cu" if cu_mode else "halves", PAIRS, 64, args, {1: TOLD})


RIGHT_HALVES = [
    halves("cu", 1, 1, "r"),
    halves("se", 1, 1, "r"),
    halves("se", 1, 0, "r"),
    halves("se atomic", 1, 1, "r"),
    halves("se", 1, 1, "r", "se"),
    halves("cu", 1, 1, "", cu_mode=True),
    halves("se", 1, 1, "", cu_mode=True),
]
WRONG_HALVES = {
    "each half has an L0": halves("cu", 1, 1, ""),
    "an invalidation reaches the own half only": halves("cu", 1, 1, "w"),
    "an L0 takes in an old line": halves("se", 1, 0, ""),
    "a store is under way": halves("se", 0, 1, "r"),
}


@pytest.mark.parametrize("number", range(len(RIGHT_HALVES)))
def test_waves_of_a_workgroup_meet(number: int) -> None:
    check(RIGHT_HALVES[number], True)


@pytest.mark.parametrize("name", WRONG_HALVES)
def test_waves_of_a_workgroup_may_miss_each_other(name: str) -> None:
    check(WRONG_HALVES[name], False)


def test_loads_of_the_workgroups_scope_pass_by_the_l0() -> None:
    case = _case(
        "polls_workgroup", PAIRS, 64, [_zeros(PAIRS * BOX), _zeros(PAIRS * 32)], {1: np.full(PAIRS * 32, 7, U32)}
    )
    check(case, True)


@pytest.mark.parametrize("right", [True, False])
def test_an_acquire_is_of_the_wave_that_does_it(right: bool) -> None:
    args = [_zeros(PAIRS * BOX), _zeros(PAIRS * 32), U32(right)]
    check(_case("acquired_by_other", 2 * PAIRS, 64, args, {1: TOLD}), right)


@pytest.mark.parametrize("published", [0, 1])
def test_a_wave_sees_its_own_stores(published: int) -> None:
    other = VALUE[LANES ^ 1]
    rows = [other + U32(i) for i in range(7)] + [other + U32(8)]
    rows += [(other + U32(9)) & U32(0xFFFFFF) | (LANES ^ U32(1)) << U32(24)]
    args = [_zeros(PAIRS * BOX), _zeros(PAIRS * 9 * 32), U32(published)]
    check(_case("own_stores", PAIRS, 32, args, {1: np.tile(np.concatenate(rows), PAIRS)}), True)


def test_a_load_under_way_does_not_see_its_waves_later_stores() -> None:
    rows = [VALUE * U32(0), VALUE, VALUE + U32(1), VALUE + U32(2), VALUE, VALUE + U32(1)]
    rows += [VALUE * U32(2) + U32(1), VALUE * U32(2) + U32(2)]
    args = [_zeros(PAIRS * BOX), _zeros(PAIRS * 8 * 32)]
    check(_case("own_loads", PAIRS, 32, args, {1: np.tile(np.concatenate(rows), PAIRS)}), True)


def test_the_last_of_overlapping_stores_stays() -> None:
    box = np.zeros((PAIRS, BOX * 4), np.uint8)
    for i in range(4):
        for t in range(32):
            box[:, 4 * t : 4 * t + 4] = (VALUE[t : t + 1] + U32(i)).view(np.uint8)
        for t in range(32):
            box[:, 4 * (t ^ 1) + 2 : 4 * (t ^ 1) + 4] = np.array([t + i], np.uint16).view(np.uint8)
            box[:, 4 * (t ^ 2) + 1] = t * 3 + i
    check(_case("overlapping", PAIRS, 32, [_zeros(PAIRS * BOX)], {0: box.view(U32).reshape(-1)}), True)


def test_the_end_publishes_what_the_workgroup_keeps() -> None:
    want = _zeros(PAIRS * BOX).reshape(PAIRS, BOX)
    want[:, :32] = want[:, 64:96] = VALUE
    check(_case("kept", PAIRS, 32, [_zeros(PAIRS * BOX)], {0: want.reshape(-1)}), True)


def test_a_store_takes_bytes_from_what_the_workgroup_must_publish() -> None:
    want = _zeros(PAIRS * BOX).reshape(PAIRS, BOX)
    want[:, :32], want[:, 64] = VALUE + U32(2), 1
    check(_case("overwritten", 2 * PAIRS, 32, [_zeros(PAIRS * BOX)], {0: want.reshape(-1)}), True)


def test_an_old_line_may_be_as_old_as_the_acquire_and_not_older() -> None:
    seen = set()
    for seed in SEEDS:
        with simulator(seed=seed, weak=1) as hip:
            case = _case("old_versions", 8, 32, [_zeros(4 * BOX), _zeros(4 * 32)], {})
            seen.update(np.unique(case.run(hip)[1]).tolist())
    assert min(seen) == 3 and max(seen) == 8 and len(seen) > 3, seen


LDS = {name: i for i, name in enumerate(("store", "add", "flat store"))}


def lds(by: str, wait: int, early: int = 0) -> Case:
    args = [_zeros(PAIRS * 32), U32(LDS[by]), U32(wait), U32(early)]
    return _case("through_lds", PAIRS, 64, args, {0: np.full(PAIRS * 32, 1, U32) if early else TOLD})


@pytest.mark.parametrize("by, early", [("store", 0), ("add", 0), ("flat store", 0), ("store", 1)])
def test_lds_that_was_waited_for(by: str, early: int) -> None:
    check(lds(by, 1, early), True)


@pytest.mark.parametrize(
    "by, early",
    [
        ("store", 0),
        ("flat store", 0),
        ("add", 0),
        ("store", 1),
    ],
)
def test_lds_that_was_not_waited_for(by: str, early: int) -> None:
    check(lds(by, 0, early), False)


def test_a_waves_instructions_for_lds_act_in_order() -> None:
    rows = [VALUE + U32(i) for i in range(4)] + [(VALUE + U32(3)) * U32(2) + U32(i) for i in (1, 2)]
    want = np.tile(np.concatenate(rows), PAIRS)
    check(_case("own_lds", PAIRS, 32, [_zeros(len(want))], {0: want}), True)


def test_what_a_wave_has_seen_does_not_go_back() -> None:
    args = [_zeros(PAIRS * BOX), _zeros(PAIRS * 32), U32(20)]
    check(_case("never_back", 2 * PAIRS, 32, args, {1: args[1]}), True)


LATE_READERS = [(1, 0), (2, 0), (4, 0), (3, 0), (3, 30)]


@pytest.mark.parametrize("mode, delay", [(0, 0), (0, 30), *LATE_READERS])
def test_a_slot_goes_back_when_all_have_read_it(mode: int, delay: int) -> None:
    args = [IN[:256], _zeros(PAIRS * BOX), _zeros(PAIRS * 256), U32(4), U32(mode), U32(delay)]
    check(_case("ring", 2 * PAIRS, 64, args, {2: np.tile(IN[:256], PAIRS)}), mode == 0)


# Mode to the words of the input that the kernel must give, None if it must be refused.
SECOND = IN[32:64]
LANDING: dict[int, Array | None] = {
    0: SECOND, 1: None, 2: None, 3: SECOND,
    4: SECOND, 5: None, 6: None, 7: SECOND,
    8: None, 9: None, 10: None, 11: np.full(32, IN[32]),
    12: SECOND, 13: None, 14: SECOND, 15: None, 16: None,
}  # fmt: skip


def _landed(hip: Hip, mode: int) -> Array:
    out = hip.buffer(_zeros(32))
    hip.launch(hip.kernel(code_object("weak"), "landing"), [1], [32], [hip.buffer(IN[:64]), out, U32(mode)])
    return out.read(U32)


@pytest.mark.parametrize("mode", LANDING)
def test_a_register_holds_its_value_from_the_wait_that_counts_it(mode: int) -> None:
    want = LANDING[mode]
    for seed in (1, 2, 3):
        with simulator(seed=seed, weak=1) as hip:
            if want is not None:
                assert (_landed(hip, mode) == want).all()
                continue
            with pytest.raises(HipError) as caught:
                _landed(hip, mode)
        assert caught.value.code == LAUNCH_FAILURE and "landing" in caught.value.report
