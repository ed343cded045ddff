"""The GGUF loader: what it refuses and says, what it accepts, and that it agrees with the gguf package's reader."""

from __future__ import annotations

import gc
import math
import mmap
import os
import re
import socket
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from ie.errors import GgufError
from ie.formats import get_format
from ie.gguf import GgufArray, GgufFile, TensorInfo
from tests import gguf_bytes as w

ARCH = w.record("general.architecture", w.STRING, "llama")
ONE = [w.tensor("a", [8])]
ONE_DATA = np.arange(8, dtype="<f4").tobytes()


def write(tmp_path: Path, data: bytes, name: str = "m.gguf") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def message(path: Path | str) -> str:
    """The error that opening gives: one line that begins with the path."""
    with pytest.raises(GgufError) as caught:
        GgufFile.open(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text


def declare(n_tensors: int, n_records: int, rest: bytes = b"") -> bytes:
    return w.header(n_tensors, n_records) + rest


# --- what a file must not hold ------------------------------------------------------------------------------------

LONG = "n" * 64
BAD_FILES: dict[str, tuple[bytes, str]] = {
    # 1: magic and version
    "magic": (b"\x01\x02\x03\x04" + bytes(60), "begins with the bytes 01 02 03 04: expected GGUF"),
    "version 0": (w.gguf([ARCH], version=0), "byte offset 4.*version 0: expected 2 or 3"),
    "version 1": (w.gguf([ARCH], version=1), "version 1: expected 2 or 3"),
    "version 4": (w.gguf([ARCH], version=4), "version 4: expected 2 or 3; this program is too old"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian.*gguf-convert-endian"),
    # 2: reads past the end
    "header": (w.gguf([ARCH])[:20], "the header.*24 bytes expected, 20 there"),
    "four bytes": (b"GGUF", "24 bytes expected, 4 there"),
    "two bytes": (b"GG", "24 bytes expected, 2 there"),
    "key length": (w.gguf([ARCH])[:24] + bytes(14)[:7], "records are declared, at least 14 bytes: 7 follow"),
    "key": (declare(0, 1, struct.pack("<Q", 100) + bytes(20)), "metadata record 0 of 1.*100 bytes expected, 20 there"),
    "value": (declare(0, 1, w.string("abc") + struct.pack("<IH", w.U64, 1)), "key abc.*8 bytes expected, 2 there"),
    "value type": (declare(0, 1, w.string("abcdefgh") + b"\0\0"), "key abcdefgh.*4 bytes expected, 2 there"),
    "tensor record": (declare(1, 0, w.tensor("abcdefgh", [8])[:-4]), "tensor abcdefgh.*8 bytes expected, 4 there"),
    # 3: counts
    "negative tensor count": (declare(1 << 63, 0, bytes(64)), "9,223,372,036,854,775,808 tensors.*64 follow"),
    "negative record count": (declare(0, (1 << 64) - 1, bytes(64)), "18,446,744,073,709,551,615 metadata records"),
    "more records than bytes": (declare(0, 2, ARCH[:27]), "2 metadata records are declared, at least 28 bytes: 27"),
    "more tensors than bytes": (declare(2, 0, bytes(65)), "2 tensors .* at least 66 bytes: 65 follow"),
    # 4: keys
    "empty key": (w.gguf([w.record("", w.U32, 1) + b"\0"]), "an empty key"),
    "key twice": (w.gguf([ARCH, w.record("x", w.U8, 1), w.record("x", w.U8, 1)]), "key x .*occurs twice"),
    # 5: types
    "value type 13": (declare(0, 1, w.string("k") + struct.pack("<IQ", 13, 0)), "key k.*value type 13 is unknown"),
    "value type -1": (declare(0, 1, w.string("k") + struct.pack("<iQ", -1, 0)), "value type 4294967295 is unknown"),
    "element type 13": (declare(0, 1, w.string("k") + struct.pack("<IIQ", 9, 13, 0)), "element type 13 is unknown"),
    "nested array": (declare(0, 1, w.string("k") + struct.pack("<IIQIQ", 9, 9, 1, 0, 0)), "array of arrays"),
    # 6: lengths
    "string over the cap": (declare(0, 1, struct.pack("<Q", (1 << 30) + 1) + bytes(9)), "at most 1,073,741,824"),
    "string length -1": (declare(0, 1, struct.pack("<q", -1) + bytes(9)), "at most 1,073,741,824 are allowed"),
    "string value": (declare(0, 1, w.string("k") + struct.pack("<IQ", 8, 99) + b"ab"), "key k.*99 bytes expected, 2"),
    "array over the cap": (
        declare(0, 1, w.string("k") + struct.pack("<IIQ", 9, 0, (1 << 30) + 1)),
        "at most 1,073,741",
    ),
    "array too long": (w.gguf([w.array("k", w.I32, [1, 2], count=3)]), "key k.*12 bytes expected, 8 there"),
    "strings too many": (w.gguf([w.array("k", w.STRING, ["a"], count=2)]), "key k.*16 bytes expected, 9 there"),
    "strings run out": (
        w.gguf([w.array("k", w.STRING, ["a", "b" * 30], count=4)]),
        "ends inside an array of 4 strings",
    ),
    "string in array": (
        declare(0, 1, w.string("k") + struct.pack("<IIQQ", 9, 8, 1, 5) + b"abcd"),
        "key k.*ends inside an array of 1 strings",
    ),
    "string in array over the cap": (
        declare(0, 1, w.string("k") + struct.pack("<IIQQQ", 9, 8, 2, 0, (1 << 64) - 1)),
        "string 1 of 2 has 18,446,744,073,709,551,615 bytes",
    ),
    # 7: alignment
    "alignment 0": (w.gguf([w.record("general.alignment", w.U32, 0)]), "general.alignment.*it is 0: expected a power"),
    "alignment 24": (w.gguf([w.record("general.alignment", w.U32, 24)]), "it is 24: expected a power of two"),
    "alignment 2^21": (w.gguf([w.record("general.alignment", w.U32, 1 << 21)]), "it is 2097152: expected"),
    "alignment u64": (w.gguf([w.record("general.alignment", w.U64, 32)]), "of type u64: expected u32"),
    "alignment bool": (w.gguf([w.record("general.alignment", w.BOOL, 1)]), "of type bool: expected u32"),
    # 8, 9: names
    "tensor twice": (w.gguf([], [*ONE, w.tensor("a", [8], offset=32)], bytes(64)), "tensor a .*occurs twice"),
    "tensor name of 64": (w.gguf([], [w.tensor(LONG, [8])], ONE_DATA), "a tensor name of 64 bytes: expected 1 to 63"),
    "empty tensor name": (w.gguf([], [w.tensor("", [8])], ONE_DATA), "a tensor name of 0 bytes"),
    # 10 to 13: shapes
    "5 dimensions": (w.gguf([], [w.tensor("a", [1] * 5)], ONE_DATA), "tensor a.*5 dimensions: expected 1 to 4"),
    "no dimensions": (w.gguf([], [w.tensor("abcdefgh", [])], ONE_DATA), "0 dimensions: expected 1 to 4"),
    "negative dimension": (w.gguf([], [w.tensor("a", [1 << 63])], ONE_DATA), "shape 9223372036854775808"),
    "zero dimension": (w.gguf([], [w.tensor("a", [8, 0])], ONE_DATA), "shape 8 x 0: expected dimensions of at least 1"),
    "product overflows": (w.gguf([], [w.tensor("a", [1 << 32] * 2)], ONE_DATA), "product fits in 63 bits"),
    "bytes overflow": (w.gguf([], [w.tensor("a", [1 << 62])], ONE_DATA), "bytes do not fit in 63 bits"),
    # 14, 15, 18: types
    **{
        f"tensor type {t}": (w.gguf([], [w.tensor("a", [256], t)], bytes(2048)), f"tensor a.*tensor type {t} ")
        for t in (4, 5, 31, 32, 33, 36, 37, 38, 43, 0xFFFFFFFF)
    },
    "type Q8_1": (w.gguf([], [w.tensor("a", [256], w.TYPE_Q8_1)], bytes(2048)), "Q8_1 is a format of activations"),
    "type Q8_K": (w.gguf([], [w.tensor("a", [256], w.TYPE_Q8_K)], bytes(2048)), "Q8_K is a format of activations"),
    "partial block": (w.gguf([], [w.tensor("a", [48], w.TYPE_Q8_0)], bytes(2048)), "Q8_0 needs a multiple of 32"),
    # 16, 17, 19: places
    "unaligned": (w.gguf([], [w.tensor("a", [8], offset=16)], bytes(64)), "data offset 16 is not a multiple of the al"),
    "past the end": (w.gguf([], ONE, ONE_DATA[:-1]), "ends inside tensor a: 32 bytes expected at offset 64, 31 there"),
    "far past the end": (
        w.gguf([], [w.tensor("a", [8], offset=(1 << 64) - 32)], ONE_DATA),
        "32 bytes expected at .* 0 t",
    ),
    "no data at all": (w.gguf([], ONE), "ends inside tensor a: 32 bytes expected at offset 64, 0 there"),
    "no padding": (declare(1, 0, ONE[0]), "ends inside tensor a: 32 bytes expected at offset 64, 0 there"),
    "overlap": (
        w.gguf([], [*ONE, w.tensor("b", [16], offset=64), w.tensor("c", [8], offset=96)], bytes(128)),
        "tensor c at offset 224 overlaps b, which ends at 256",
    ),
    "same place": (w.gguf([], [*ONE, w.tensor("b", [8])], bytes(64)), "overlaps"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_refused(tmp_path: Path, name: str) -> None:
    data, expected = BAD_FILES[name]
    text = message(write(tmp_path, data))
    assert re.search(expected, text), text


def test_the_missing_bytes_are_counted(tmp_path: Path) -> None:
    tensors = [
        w.tensor("first", [8]),
        w.tensor("second", [1 << 20], offset=32),
        w.tensor("third", [8], offset=(4 << 20) + 32),
    ]
    whole = w.gguf([ARCH], tensors, bytes(32 + (4 << 20) + 32))
    GgufFile.open(write(tmp_path, whole)).close()
    text = message(write(tmp_path, whole[: -(1 << 20)]))
    there = (4 << 20) - (1 << 20) + 32
    start = len(whole) - 32 - (4 << 20)
    assert f"inside tensor second: 4,194,304 bytes expected at offset {start:,}, {there:,} there" in text
    assert "1,048,576 bytes are missing" in text
    assert "Is the download complete?" in text


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = w.gguf([ARCH, w.array("k", w.STRING, ["a", "bc"]), w.array("n", w.F32, [1.0])], ONE, ONE_DATA)
    for size in range(len(whole)):
        with pytest.raises(GgufError):
            GgufFile.open(write(tmp_path, whole[:size]))


# --- usual mistakes -----------------------------------------------------------------------------------------------

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 98362432\n"
HINTS: dict[str, tuple[bytes, str]] = {
    "html": (
        b"\n<!DOCTYPE html>\n<html><body>Sign in</body></html>",
        "looks like a web page, not a model: was the downl",
    ),
    "html in capitals": (b"\xef\xbb\xbf<HTML>", "looks like a web page"),
    "xml": (b"<?xml version='1.0'?><Error/>", "looks like a web page"),
    "git-lfs": (LFS, "git-lfs pointer, not the model of 98,362,432 bytes itself: run git lfs pull"),
    "ggml": (struct.pack("<I", 0x67676D6C) + bytes(64), "unversioned ggml file"),
    "ggmf": (struct.pack("<I", 0x67676D66) + bytes(64), "ggmf file"),
    "ggjt": (struct.pack("<I", 0x67676A74) + bytes(64), "ggjt file"),
    "ggla": (struct.pack("<I", 0x67676C61) + bytes(64), "ggla adapter"),
    "safetensors": (
        struct.pack("<Q", 40) + b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' + bytes(4),
        "safetens",
    ),
    "zip": (b"PK\x03\x04" + bytes(60), "zip archive or PyTorch checkpoint"),
    "pickle": (b"\x80\x02\x8a\nl\xfc" + bytes(60), "PyTorch checkpoint"),
    "gzip": (b"\x1f\x8b\x08" + bytes(60), "gzip-compressed"),
    "zeros": (bytes(4096), "begins with zeros.*interrupted"),
    "text": (b"Entry not found", r"a text \(Entry not found\), not a model"),
    "json": (b'{"error": "Access to model x is restricted"}', "a text .*restricted"),
    "empty": (b"", "the file is empty"),
    "mmproj": (w.gguf([w.record("general.architecture", w.STRING, "clip")]), "mmproj.*Give the model's own file"),
    "mmproj type": (w.gguf([w.record("general.type", w.STRING, "mmproj"), ARCH]), "mmproj.*Give the model's own file"),
    "adapter": (
        w.gguf([ARCH, w.record("general.type", w.STRING, "adapter")]),
        "LoRA adapter.*Give the model's own file",
    ),
    "imatrix": (w.gguf([w.record("general.type", w.STRING, "imatrix")]), "importance matrix"),
}


@pytest.mark.parametrize("name", HINTS)
def test_hints(tmp_path: Path, name: str) -> None:
    data, expected = HINTS[name]
    text = message(write(tmp_path, data))
    assert re.search(expected, text), text


def test_directory(tmp_path: Path) -> None:
    assert "directory: expected a .gguf file. There is none in it" in message(tmp_path)
    write(tmp_path, w.gguf(), "b.gguf")
    write(tmp_path, w.gguf(), "a.gguf")
    write(tmp_path, b"", "notes.txt")
    assert message(tmp_path).endswith("In it: a.gguf, b.gguf")


def test_not_found(tmp_path: Path) -> None:
    write(tmp_path, w.gguf(), "SmolLM2-135M.Q4_1.gguf")
    text = message(tmp_path / "SmolLM2-135M.Q4_0.gguf")
    assert f"no such file. Did you mean {tmp_path}/SmolLM2-135M.Q4_1.gguf?" in text
    assert message(tmp_path / "zzz").endswith("no such file")
    (tmp_path / "link.gguf").symlink_to("no\nwhere")
    assert message(tmp_path / "link.gguf") == f"{tmp_path}/link.gguf: a link to no\\nwhere, which is not there"
    assert "not a directory" in message(tmp_path / "SmolLM2-135M.Q4_1.gguf" / "x").lower()
    assert "name too long" in message(tmp_path / ("x" * 300)).lower()


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(GgufError, match="cannot be opened"):
        GgufFile.open("a\0b")


def test_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, w.gguf([ARCH]))
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read everything: let the system call refuse instead

        def refuse(*_: object) -> int:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "open", refuse)
    assert "may not be read by this user" in message(path)


def test_pipes_devices_and_sockets(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "pipe, socket or device" in message(tmp_path / "fifo")
    assert "pipe, socket or device" in message("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert "pipe, socket or device" in message(tmp_path / "s")


def test_names_from_the_file_cannot_break_the_line(tmp_path: Path) -> None:
    key = "a\nb\x1b[31m" + "c" * 5000
    text = message(write(tmp_path, declare(0, 1, w.string(key) + struct.pack("<IQ", 77, 0))))
    assert "a\\nb\\x1b[31mccc" in text
    assert len(text) < 400


# --- what is accepted ---------------------------------------------------------------------------------------------


def test_values_of_every_type(tmp_path: Path) -> None:
    values = [
        (w.U8, 200), (w.I8, -100), (w.U16, 60000), (w.I16, -30000), (w.U32, 4 << 29), (w.I32, -5), (w.F32, 0.5),
        (w.U64, (1 << 64) - 1), (w.I64, -(1 << 63)), (w.F64, 0.1), (w.STRING, "text"),
    ]  # fmt: skip
    records = [w.record(f"k{t}", t, v) for t, v in values]
    records += [w.record("no", w.BOOL, 0), w.record("yes", w.BOOL, 1), w.record("also", w.BOOL, 77)]
    records += [w.record("raw", w.STRING, b"\xff\0a"), w.record(b"\xfe", w.U8, 1)]
    with GgufFile.open(write(tmp_path, w.gguf(records))) as file:
        for type_id, value in values:
            assert file.metadata[f"k{type_id}"] == value
            assert type(file.metadata[f"k{type_id}"]) is type(value)
        assert file.metadata["no"] is False
        assert file.metadata["yes"] is True is file.metadata["also"]
        assert file.get("raw") == "\ufffd\0a"
        assert file.get("\\xfe") == 1
        assert list(file.metadata)[0] == "k0"
        assert file.get("absent") is None and file.get("absent", 3) == 3
        assert file.tensors == {}


def test_arrays(tmp_path: Path) -> None:
    records = [
        w.array("i32", w.I32, [1, -2, 3]), w.array("f32", w.F32, [0.5, math.inf]), w.array("bool", w.BOOL, [0, 1, 200]),
        w.array("none", w.U64, []), w.array("no strings", w.STRING, []), w.array("u64", w.U64, [(1 << 64) - 1]),
        w.array("strings", w.STRING, [b"a", b"", b"\xff\0", "é".encode()]),
    ]  # fmt: skip
    with GgufFile.open(write(tmp_path, w.gguf(records))) as file:

        def get(key: str) -> GgufArray:
            return file.get_array(key)

        assert get("i32").numpy().tolist() == [1, -2, 3] == list(get("i32"))
        assert (get("i32").type, len(get("i32")), get("i32")[1], get("i32")[-1]) == ("i32", 3, -2, 3)
        assert get("i32").numpy().dtype == np.dtype("<i4") and not get("i32").numpy().flags.owndata
        assert get("f32").numpy().tolist() == [0.5, math.inf]
        assert get("bool").numpy().tolist() == [False, True, True] and get("bool").numpy().dtype == bool
        assert get("bool")[2] is True
        assert get("none").numpy().tolist() == [] and get("none").numpy().dtype == np.dtype("<u8")
        assert get("u64")[0] == (1 << 64) - 1
        assert get("strings").strings() == [b"a", b"", b"\xff\0", "é".encode()] == list(get("strings"))
        assert (get("strings").type, get("strings")[2], get("strings")[-1]) == ("string", b"\xff\0", "é".encode())
        assert get("no strings").strings() == []
        for index in (3, -4):
            with pytest.raises(IndexError):
                get("i32")[index]
        with pytest.raises(GgufError, match="holds i32, not strings"):
            get("i32").strings()
        with pytest.raises(GgufError, match="holds strings, not numbers"):
            get("strings").numpy()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [None, 1, 8, 64, 1 << 20])
def test_versions_and_alignments(tmp_path: Path, version: int, alignment: int | None) -> None:
    records = [] if alignment is None else [w.record("general.alignment", w.U32, alignment)]
    data = w.gguf(records, ONE, ONE_DATA, version=version, alignment=alignment or 32)
    with GgufFile.open(write(tmp_path, data)) as file:
        assert (file.version, file.alignment, file.n_parts, file.file_size) == (version, alignment or 32, 1, len(data))
        assert file.tensors["a"].offset % file.alignment == 0
        assert file.tensors["a"].data().view("<f4").tolist() == list(range(8))


def test_gaps_orders_and_trailing_bytes(tmp_path: Path) -> None:
    data = np.arange(256, dtype=np.uint8).tobytes()
    tensors = [w.tensor("late", [2, 2, 1, 2], offset=128), w.tensor("early", [3], w.TYPE_F16, offset=32)]
    with GgufFile.open(write(tmp_path, w.gguf([], tensors, data))) as file:
        assert list(file.tensors) == ["late", "early"]
        late, early = file.tensors.values()
        assert (late.shape, late.nbytes, late.n_elements, late.format.name, late.part) == (
            (2, 2, 1, 2),
            32,
            8,
            "F32",
            0,
        )
        assert late.data().tobytes() == data[128:160]
        assert early.data().tobytes() == data[32:38]
        assert not early.data().flags.writeable


def test_name_of_63_bytes(tmp_path: Path) -> None:
    with GgufFile.open(write(tmp_path, w.gguf([], [w.tensor("n" * 63, [8])], ONE_DATA))) as file:
        assert list(file.tensors) == ["n" * 63]


def test_release_and_close(tmp_path: Path) -> None:
    content = np.random.default_rng(0).integers(0, 256, 5 << 16, dtype=np.uint8)
    path = write(tmp_path, w.gguf([w.array("k", w.I32, [1])], [w.tensor("a", [5 << 14])], content.tobytes()))
    file = GgufFile.open(path)
    view, numbers = file.tensors["a"].data(), file.get_array("k").numpy()
    file.tensors["a"].release()
    assert np.array_equal(view, content)
    file.close()
    file.close()
    assert np.array_equal(view, content) and numbers.tolist() == [1]
    for call in (file.tensors["a"].data, file.tensors["a"].release, file.get_array("k").numpy):
        with pytest.raises(GgufError, match="has been closed"):
            call()


class AdviceRecorder:
    """Stands for a part and its mapping."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def buffer(self) -> AdviceRecorder:
        return self

    def madvise(self, option: int, start: int, length: int) -> None:
        self.calls.append((option, start, length))


def test_release_leaves_neighbours_alone() -> None:
    page = mmap.PAGESIZE
    for offset, nbytes, expected in (
        (page + 32, 3 * page, [(2 * page, 2 * page)]),
        (2 * page, page, [(2 * page, page)]),
        (page + 32, 2 * page - 64, []),
        (32, 64, []),
    ):
        part = AdviceRecorder()
        TensorInfo("a", (nbytes,), get_format(24), nbytes, offset, 0, part).release()  # type: ignore[arg-type]
        assert part.calls == [(mmap.MADV_DONTNEED, *span) for span in expected]


def open_mappings(path: Path) -> int:
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_nothing_stays_mapped(tmp_path: Path) -> None:
    good = write(tmp_path, w.gguf([ARCH], ONE, ONE_DATA), "good.gguf")
    with GgufFile.open(good):
        assert open_mappings(good) == 1
    assert open_mappings(good) == 0
    bad = write(tmp_path, w.gguf([ARCH], ONE, ONE_DATA)[:-1], "bad.gguf")
    gc.disable()
    try:
        message(bad)
        assert open_mappings(bad) == 0
    finally:
        gc.enable()


def test_declared_sizes_cost_nothing(tmp_path: Path) -> None:
    lies = [
        declare(0, 1, w.string("k") + struct.pack("<IIQ", 9, 8, 1 << 29) + bytes(4096)),
        declare(0, 1, w.string("k") + struct.pack("<IIQ", 9, 10, 1 << 30) + bytes(4096)),
        declare(1 << 40, 1 << 40, bytes(4096)),
        declare(0, 1, struct.pack("<Q", 1 << 30) + bytes(4096)),
    ]
    for lie in lies:
        path = write(tmp_path, lie)
        tracemalloc.start()
        message(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


def test_a_large_vocabulary_is_not_built_at_open(tmp_path: Path) -> None:
    count = 262_144
    payload = b"".join(w.string(b"token%d" % i) for i in range(count))
    record = w.string("tokenizer.ggml.tokens") + struct.pack("<IIQ", w.ARRAY, w.STRING, count) + payload
    path = write(tmp_path, w.gguf([record]))
    tracemalloc.start()
    file = GgufFile.open(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    tokens = file.get_array("tokenizer.ggml.tokens")
    assert (len(tokens), tokens[count - 1]) == (count, b"token262143")
    assert tokens.strings()[1000] == b"token1000"
    file.close()


# --- typed access -------------------------------------------------------------------------------------------------


@pytest.fixture
def typed(tmp_path: Path) -> GgufFile:
    records = [
        w.record("i", w.I8, -3), w.record("u", w.U64, 70), w.record("f", w.F32, 0.5), w.record("nan", w.F32, math.nan),
        w.record("inf", w.F64, math.inf), w.record("b", w.BOOL, 1), w.record("s", w.STRING, "text"),
        w.array("a", w.I32, [1, 2]),
    ]  # fmt: skip
    return GgufFile.open(write(tmp_path, w.gguf(records)))


def test_typed_values(typed: GgufFile) -> None:
    assert (typed.get_int("i"), typed.get_int("u", lo=70, hi=70), typed.get_int("x", 5), typed.get_int("x", None)) == (
        -3, 70, 5, None,
    )  # fmt: skip
    assert (typed.get_float("f"), typed.get_float("u"), typed.get_float("x", 1.5)) == (0.5, 70.0, 1.5)
    assert type(typed.get_float("u")) is float
    assert typed.get_bool("b") is True is typed.get_bool("x", True)
    assert (typed.get_str("s"), typed.get_str("x", "y")) == ("text", "y")
    assert len(typed.get_array("a", types=("i32", "u32"), length=2)) == 2
    assert typed.get_array("x", None) is None


WRONG: dict[str, tuple[Callable[[GgufFile], object], str]] = {
    "missing": (lambda f: f.get_int("llama.block_count"), "the key llama.block_count is missing: expected an integer"),
    "missing string": (lambda f: f.get_str("x"), "key x is missing: expected a string"),
    "bool as int": (lambda f: f.get_int("b"), r"key b \(byte offset \d+\) is True of type bool: expected an integer"),
    "float as int": (lambda f: f.get_int("f"), "is 0.5 of type f32: expected an integer"),
    "too small": (lambda f: f.get_int("i", lo=1, hi=512), "is -3 of type i8: expected 1 to 512"),
    "too small, open": (lambda f: f.get_int("i", lo=1), "expected at least 1"),
    "too large": (lambda f: f.get_int("u", 1, hi=69), "is 70 of type u64: expected at most 69"),
    "bool as float": (lambda f: f.get_float("b"), "of type bool: expected a number"),
    "nan": (lambda f: f.get_float("nan"), "is nan of type f32: expected a finite number"),
    "inf": (lambda f: f.get_float("inf"), "is inf of type f64: expected a finite number"),
    "float range": (lambda f: f.get_float("f", lo=0.6), "is 0.5 of type f32: expected at least 0.6"),
    "int as bool": (lambda f: f.get_bool("i"), "of type i8: expected a bool"),
    "array as string": (lambda f: f.get_str("a"), "is 2 elements of type array of i32: expected a string"),
    "string as array": (lambda f: f.get_array("s"), "is text of type string: expected an array"),
    "array type": (lambda f: f.get_array("a", types=("f32", "f64")), "expected an array of type f32 or f64"),
    "array length": (lambda f: f.get_array("a", length=3), "expected an array of 3 elements"),
}


@pytest.mark.parametrize("name", WRONG)
def test_typed_errors(typed: GgufFile, name: str) -> None:
    call, expected = WRONG[name]
    with pytest.raises(GgufError, match=expected) as caught:
        call(typed)
    assert str(caught.value).startswith(f"{typed.path}: ")


# --- against the package ------------------------------------------------------------------------------------------


def test_agrees_with_the_package(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    rng = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_int8("i8", -1)
    writer.add_float64("f64", 0.1)
    writer.add_bool("flag", True)
    writer.add_string("name", "naïve")
    writer.add_array("tokens", ["a", "b c", "é"])
    writer.add_array("ids", [1, -2, 3])
    writer.add_array("scores", [0.5, -1.5])
    arrays = {
        "f32": rng.standard_normal((3, 5)).astype(np.float32),
        "f16": rng.standard_normal(7).astype(np.float16),
        "i32": rng.integers(-9, 9, (2, 2, 2)).astype(np.int32),
    }
    for name, values in arrays.items():
        writer.add_tensor(name, values)
    for kind in ("Q4_0", "Q4_1", "Q5_1", "Q8_0"):
        quantised = gguf.quants.quantize(
            rng.standard_normal((4, 64)).astype(np.float32), gguf.GGMLQuantizationType[kind]
        )
        writer.add_tensor(kind, quantised, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    reader = gguf.GGUFReader(path)
    with GgufFile.open(path) as file:
        ours = {k: list(v) if isinstance(v, GgufArray) else v for k, v in file.metadata.items()}
        for key, field in reader.fields.items():
            if key.startswith("GGUF."):
                continue
            value, mine = field.contents(), ours.pop(key)
            if isinstance(value, list):
                mine = [x.decode() if isinstance(x, bytes) else x for x in mine]
            assert mine == value, key
        assert ours == {}
        assert list(file.tensors) == [t.name for t in reader.tensors]
        for theirs in reader.tensors:
            info = file.tensors[theirs.name]
            assert info.format.name == theirs.tensor_type.name
            assert info.shape == tuple(int(n) for n in theirs.shape)
            assert (info.offset, info.nbytes) == (theirs.data_offset, theirs.n_bytes)
            assert np.array_equal(info.data(), np.ascontiguousarray(theirs.data).view(np.uint8).ravel())


# --- split models -------------------------------------------------------------------------------------------------


def part(
    number: int, count: int, names: list[str], total: int | None = None, extra: list[bytes] | None = None
) -> bytes:
    """One part with a tensor of 8 floats, all equal to the part's number, for each name."""
    records = [w.record("split.no", w.U16, number), w.record("split.count", w.U16, count)]
    if total is not None:
        records.append(w.record("split.tensors.count", w.I32, total))
    tensors = [w.tensor(name, [8], offset=32 * i) for i, name in enumerate(names)]
    return w.gguf([*(extra or []), *records], tensors, np.full(8 * len(names), number, "<f4").tobytes())


def split(tmp_path: Path, *files: bytes, prefix: str = "m") -> Path:
    """Write the parts under their conventional names; the path of the first."""
    for index, data in enumerate(files, 1):
        write(tmp_path, data, f"{prefix}-{index:05d}-of-{len(files):05d}.gguf")
    return tmp_path / f"{prefix}-00001-of-{len(files):05d}.gguf"


def test_split_model(tmp_path: Path) -> None:
    other = w.record("general.alignment", w.U32, 64)
    third = w.gguf(
        [other, w.record("split.no", w.U16, 2), w.record("split.count", w.U16, 3)],
        [w.tensor("d", [8])],
        np.full(8, 2, "<f4").tobytes(),
        alignment=64,
    )
    files = [part(0, 3, [], 3, [ARCH]), part(1, 3, ["b", "c"], 3), third]
    with GgufFile.open(split(tmp_path, *files, prefix="my-00002-of-00009.gguf\n")) as file:
        assert (file.n_parts, file.file_size) == (3, sum(map(len, files)))
        assert list(file.tensors) == ["b", "c", "d"]
        assert [info.part for info in file.tensors.values()] == [1, 1, 2]
        assert [info.data().view("<f4")[0] for info in file.tensors.values()] == [1.0, 1.0, 2.0]
        assert file.get_str("general.architecture") == "llama"
        assert file.alignment == 32


@pytest.mark.parametrize("count", [0, 1])
def test_counts_that_mean_no_split(tmp_path: Path, count: int) -> None:
    with GgufFile.open(write(tmp_path, part(0, count, ["a"]))) as file:
        assert file.n_parts == 1


def test_a_later_part_first(tmp_path: Path) -> None:
    first = split(tmp_path, part(0, 2, ["a"], 2), part(1, 2, ["b"], 2))
    text = message(tmp_path / "m-00002-of-00002.gguf")
    assert text.endswith(f"this is part 2 of 2 of a split model: give its first part, {first}")
    assert "give its first part, " in message(write(tmp_path, part(1, 2, ["b"], 2), "renamed.gguf"))


def test_missing_parts(tmp_path: Path) -> None:
    first = split(tmp_path, part(0, 6, ["a"], 6), *[part(i, 6, [str(i)], 6) for i in range(1, 6)])
    (tmp_path / "m-00003-of-00006.gguf").unlink()
    assert "1 of 6 parts are missing: expected m-00003-of-00006.gguf beside it" in message(first)
    for index in (2, 4, 5, 6):
        (tmp_path / f"m-{index:05d}-of-00006.gguf").unlink()
    assert "5 of 6 parts are missing" in message(first)
    assert "m-00004-of-00006.gguf and 2 more beside it" in message(first)


def refused_split(tmp_path: Path, *files: bytes) -> str:
    first = split(tmp_path, *files)
    with pytest.raises(GgufError) as caught:
        GgufFile.open(first)
    assert not any(open_mappings(path) for path in tmp_path.iterdir())
    return str(caught.value)


def test_parts_that_do_not_fit(tmp_path: Path) -> None:
    a = part(0, 2, ["a"], 2)
    assert "says it is part 1 of 2: expected part 2 of 2" in refused_split(tmp_path, a, a)
    assert "says it is part 2 of 3: expected part 2 of 2" in refused_split(tmp_path, a, part(1, 3, ["b"]))
    text = refused_split(tmp_path, a, part(1, 2, ["a"]))
    assert "m-00002-of-00002.gguf: tensor a is also in" in text and "m-00001-of-00002.gguf" in text
    assert "2 tensors together: split.tensors.count says 3" in refused_split(
        tmp_path, part(0, 2, ["a"], 3), part(1, 2, ["b"])
    )
    assert "1 tensors together: split.tensors.count says 2" in refused_split(tmp_path, a, part(1, 2, []))
    assert "m-00002-of-00002.gguf: the file ends inside tensor b" in refused_split(tmp_path, a, part(1, 2, ["b"])[:-1])
    assert "m-00002-of-00002.gguf: it looks like a web page" in refused_split(tmp_path, a, b"<html>")


def test_split_keys_missing_or_wrong(tmp_path: Path) -> None:
    assert "split.tensors.count is missing" in refused_split(tmp_path, part(0, 2, ["a"]), part(1, 2, ["b"]))
    only_count = w.gguf([w.record("split.count", w.U16, 2), w.record("split.tensors.count", w.I32, 2)])
    assert "split.no is missing" in refused_split(tmp_path, only_count, part(1, 2, ["b"]))
    assert "split.no is missing" in refused_split(tmp_path, part(0, 2, ["a"], 2), w.gguf([ARCH]))
    wide = w.gguf([w.record("split.count", w.U32, 65536)])
    assert "split.count (byte offset 24) is 65536 of type u32: expected an integer from 0 to 65535" in message(
        write(tmp_path, wide)
    )
    text = w.gguf([w.record("split.count", w.STRING, "two")])
    assert "is two of type string: expected an integer" in message(write(tmp_path, text))


@pytest.mark.parametrize("name", ["m.gguf", "m-00001-of-00003.gguf", "m-00002-of-00002.gguf", "m-1-of-2.gguf"])
def test_a_first_part_under_another_name(tmp_path: Path, name: str) -> None:
    assert "-00001-of-00002.gguf, so that the other parts cannot be found" in message(
        write(tmp_path, part(0, 2, ["a"], 2), name)
    )
