"""Mutated GGUF files: each gives GgufError, or a file whose every value and tensor can be read.

Bounded memory is asserted through the allocations that Python and numpy make; bounded time through the sizes
of the files: a loader that believed a declared count would loop far beyond the patience of whoever runs this.
"""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ie.errors import GgufError
from ie.gguf import GgufArray, GgufFile
from tests import gguf_bytes as w

BOUNDED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=500,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MEMORY = 2 << 20


def seed_file(version: int, alignment: int) -> bytes:
    """A small file with a value of every type, arrays, and tensors of several formats."""
    records = [
        w.record("general.architecture", w.STRING, "llama"),
        w.record("general.alignment", w.U32, alignment),
        *(
            w.record(f"k{t}", t, 1)
            for t in (w.U8, w.I8, w.U16, w.I16, w.U32, w.I32, w.F32, w.BOOL, w.U64, w.I64, w.F64)
        ),
        w.array("tokens", w.STRING, ["a", "", "bcd", "é" * 5]),
        w.array("scores", w.F32, [0.5, 1.5, -1.0]),
        w.array("flags", w.BOOL, [0, 1]),
        w.array("empty", w.I32, []),
    ]
    sizes = (
        (w.TYPE_F32, [3, 2], 24),
        (w.TYPE_Q4_0, [64], 36),
        (w.TYPE_Q4_K, [256], 144),
        (w.TYPE_F16, [1, 1, 2, 2], 8),
    )
    tensors, data = [], b""
    for number, (type_id, dims, nbytes) in enumerate(sizes):
        tensors.append(w.tensor(f"blk.{number}.weight", dims, type_id, len(data)))
        data += bytes(range(nbytes)) + b"\0" * (-nbytes % alignment)
    return w.gguf(records, tensors, data, version=version, alignment=alignment)


SEEDS = [seed_file(3, 32), seed_file(2, 8), seed_file(3, 64)]
# Values that tend to go wrong as lengths, counts, dimensions, offsets and types.
NUMBERS = [0, 1, 2, 8, 9, 12, 13, 31, 32, 255, 1 << 16, 1 << 30, (1 << 30) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
           1 << 32, 1 << 40, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 32, (1 << 64) - 1]  # fmt: skip


def read_everything(path: Path) -> bool:
    """Open and use all of a file. False when it was refused."""
    try:
        with GgufFile.open(path) as file:
            assert sum(int(info.data().sum()) for info in file.tensors.values()) >= 0
            for info in file.tensors.values():
                assert info.data().size == info.nbytes == info.n_elements // info.format.block * info.format.size
                assert 0 < info.offset <= info.offset + info.nbytes <= file.file_size
                info.release()
            for value in file.metadata.values():
                if isinstance(value, GgufArray):
                    assert len(list(value)) == len(value)
            file.get("general.architecture")
        return True
    except GgufError as error:
        assert str(error).startswith(str(path))
        assert "\n" not in str(error)
        return False


def check(path: Path, data: bytes) -> bool:
    """``read_everything`` within the memory that a file of this size may take."""
    path.write_bytes(data)
    tracemalloc.start()
    try:
        accepted = read_everything(path)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    return accepted


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_the_seeds_are_accepted(tmp_path: Path, seed: int) -> None:
    assert check(tmp_path / "m.gguf", SEEDS[seed])


seeds = st.sampled_from(SEEDS)


@given(seeds, st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 7)), min_size=1, max_size=8))
@BOUNDED
def test_bit_flips(tmp_path: Path, seed: bytes, flips: list[tuple[int, int]]) -> None:
    data = bytearray(seed)
    for place, bit in flips:
        data[place % len(data)] ^= 1 << bit
    check(tmp_path / "m.gguf", bytes(data))


@given(seeds, st.integers(0, 1 << 20), st.binary(max_size=40))
@BOUNDED
def test_truncation_and_other_tails(tmp_path: Path, seed: bytes, size: int, tail: bytes) -> None:
    check(tmp_path / "m.gguf", seed[: size % len(seed)] + tail)


@given(seeds, st.integers(0, 1 << 20), st.sampled_from(NUMBERS), st.sampled_from("<I <Q".split()))
@BOUNDED
def test_overwritten_numbers(tmp_path: Path, seed: bytes, place: int, number: int, code: str) -> None:
    packed = struct.pack(code, number & ((1 << 8 * struct.calcsize(code)) - 1))
    at = place % len(seed)
    check(tmp_path / "m.gguf", (seed[:at] + packed + seed[at + len(packed) :]))


def length_fields(seed: bytes) -> list[int]:
    """Where an 8-byte number of the metadata stands that is small: lengths, counts, dimensions, offsets."""
    values = [(at, struct.unpack_from("<Q", seed, at)[0]) for at in range(8, len(seed) - 400)]
    return [at for at, value in values if value < 300]


@given(st.data())
@BOUNDED
def test_changed_length_fields(tmp_path: Path, data: st.DataObject) -> None:
    seed = data.draw(seeds)
    at = data.draw(st.sampled_from(length_fields(seed)))
    value = data.draw(st.integers(0, 600) | st.sampled_from(NUMBERS))
    check(tmp_path / "m.gguf", seed[:at] + struct.pack("<Q", value) + seed[at + 8 :])


@given(seeds, seeds, *[st.integers(0, 1 << 20)] * 3)
@BOUNDED
def test_splices(tmp_path: Path, one: bytes, two: bytes, cut: int, start: int, end: int) -> None:
    start, end = sorted((start % len(two), end % len(two)))
    at = cut % len(one)
    check(tmp_path / "m.gguf", one[:at] + two[start:end] + one[at:])


@given(st.binary(max_size=300), st.integers(0, 5), st.integers(0, 5))
@BOUNDED
def test_random_bytes_after_a_header(tmp_path: Path, rest: bytes, n_tensors: int, n_records: int) -> None:
    check(tmp_path / "m.gguf", w.header(n_tensors, n_records) + rest)


@given(st.binary(max_size=80))
@BOUNDED
def test_random_bytes(tmp_path: Path, data: bytes) -> None:
    assert not check(tmp_path / "m.gguf", data) or data.startswith(b"GGUF")


@given(
    st.sampled_from(["split.no", "split.count", "split.tensors.count"]),
    st.sampled_from([w.U16, w.I16, w.I32, w.U64, w.F32, w.BOOL]),
    st.integers(0, 4),
    st.integers(1, 3),
)
@BOUNDED
def test_split_keys(tmp_path: Path, key: str, type_id: int, value: int, broken: int) -> None:
    keys = {"split.no": 0, "split.count": 3, "split.tensors.count": 3}
    changed = False
    for number in range(1, 4):
        values = keys | {"split.no": number - 1}
        records = [w.record(k, w.U16, v) for k, v in values.items()]
        if number == broken:
            records = [w.record(key, type_id, value) if k == key else w.record(k, w.U16, v) for k, v in values.items()]
            changed = type_id in (w.F32, w.BOOL) or value != values[key]
        data = w.gguf(records, [w.tensor(f"t{number}", [8])], np.zeros(8, "<f4").tobytes())
        (tmp_path / f"m-{number:05d}-of-00003.gguf").write_bytes(data)
    try:
        with GgufFile.open(tmp_path / "m-00001-of-00003.gguf") as file:
            # the total is read from the first part alone; a count of 0 or 1 there means no split
            alone = broken == 1 and key == "split.count" and value < 2
            assert file.n_parts == (1 if alone else 3)
            assert not changed or alone or (key == "split.tensors.count" and broken != 1)
    except GgufError as error:
        assert changed, error
