"""A code object is data: nothing of it is compiled but numbers, nothing of it reaches a terminal but text, and what is
built from it is kept where only its user can write."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rdna4sim import cache as cache_module
from rdna4sim import translate as translate_module
from rdna4sim.cache import Tools, c_string, keep, private_folder, sealed, workshop
from rdna4sim.disasm import printable
from rdna4sim.elf import (
    MOST_BUNDLED,
    MOST_NAME,
    MOST_NOTES,
    MOST_SECTIONS,
    MOST_VALUES,
    CodeObject,
    Unpacker,
    encoded,
    unbundled,
)  # fmt: skip
from rdna4sim.errors import BadFile, SimError
from rdna4sim.translate import Variant, reason_text, translate, whole_numbers
from tests.sim.build import code_object
from tests.sim.hip import HipError, simulator
from tests.sim.mutants import headers, launched, mutant, put, read_all, sections
from tests.sim.test_cache import WORDS, cache, kernel, run, start, translations, wait_for
from tests.sim.tiny import tiny

__all__ = ["cache", "kernel"]  # fixtures
LONG = "k" * 120
HOSTILE = (
    b"*\\\n/ __attribute__((constructor)) void f(void) { __builtin_trap(); } /",
    b'"}; __attribute__((constructor)) void f(void) { __builtin_trap(); } //',
    b"*/ #error\n#error\r\n#error",
    b"\x1b]52;c;UFdORUQ=\x07\x1b[31m",
    b"\xff\xfe\xc2\x9b31m\xe2\x80\xae\xed\xa0\x80\xf5",
    b"%s%n%n%n%100000d\\x1b",
    "Ω–名 \u200b\u2028\t".encode(),
)


def named(name: bytes, body: str = "s_nop 0") -> bytes:
    """A code object of one kernel with this name, of at most 120 bytes."""
    return tiny(LONG, body).replace(LONG.encode(), name + b"k" * (len(LONG) - len(name)))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("variant", ["plain", "weak-counters"])
def test_no_name_is_in_the_program(name: bytes, variant: str) -> None:
    assert translate(CodeObject(named(name)), Variant.named(variant)) == translate(
        CodeObject(tiny(LONG, "s_nop 0")), Variant.named(variant)
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_kernel_of_any_name_runs_and_is_reported_as_text(name: bytes, tmp_path: Path) -> None:
    image = named(name, "s_trap 3")
    whole = CodeObject(image).kernels[0].name
    assert encoded(whole) == name + b"k" * (len(LONG) - len(name))
    function, module = ctypes.c_void_p(), ctypes.c_void_p()
    with simulator() as hip, pytest.raises(HipError) as caught:
        hip.call("hipModuleLoadData", ctypes.byref(module), image)
        hip.call("hipModuleGetFunction", ctypes.byref(function), module, encoded(whole))
        hip.launch(function, [1], [32], [hip.buffer(bytes(64)), hip.buffer(bytes(64))])
    shown = printable(whole)
    assert shown.isprintable()
    line = f"rdna4sim: kernel {shown}, pc 0x"
    assert caught.value.report.startswith(line), caught.value.report
    assert f"({shown}+0" in caught.value.report and "s_trap 3" in caught.value.report


def test_names_are_text_in_all_that_a_command_prints(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(named(HOSTILE[3]))
    shown = r"\x1b]52;c;UFdORUQ=\x07\x1b[31m"
    buffers = ["zeros:u32:64", "zeros:u32:64"]
    for words in (
        ["info", str(path)], ["disasm", str(path)], ["run", str(path), "--block", "32", *buffers],
        ["run", str(path), "--kernel", "x", "--block", "32"], ["disasm", str(path), "--kernel", "x"],
        ["run", str(path), "--block", "32"],
    ):  # fmt: skip
        status, out, err = run(*words, cache=cache)
        assert shown in out + err, words
        assert all(c in "\n\t" or c.isprintable() for c in out + err), (words, out, err)
        assert status == (1 if err else 0)


def test_only_numbers_and_plain_reasons_become_c() -> None:
    assert whole_numbers(0, 17, 2**64 - 1) == "0x0ull, 0x11ull, 0xffffffffffffffffull"
    for bad in (True, -1, 2**64, 1.5, "1", None):
        with pytest.raises(BadFile, match="whole numbers"):
            whole_numbers(bad)  # type: ignore[arg-type]
    assert reason_text('"; \\ */ ??/\n') == '"_; _ _/ __/_"'.replace("/", "_")
    assert reason_text("") == "0"
    assert c_string('a"\n') == r'"\141\042\012"'


def changed(image: bytes, *changes: tuple[int, str, int]) -> bytes:
    data = bytearray(image)
    for at, layout, value in changes:
        put(data, at, layout, value)
    return bytes(data)


def two_tables(image: bytes) -> bytes:
    """The first section becomes a second table of dynamic symbols."""
    return changed(image, (headers(image)[0] + 4, "<I", 11))


def many_sections(image: bytes) -> bytes:
    return changed(image, (60, "<H", MOST_SECTIONS + 1))


def endless_name(image: bytes) -> bytes:
    """The table of names becomes a long text without an end."""
    start, count = headers(image)
    (index,) = (i for i in range(count) if struct.unpack_from("<I", image, start + 64 * i + 4)[0] == 11)
    (link,) = struct.unpack_from("<I", image, start + 64 * index + 40)
    at, size = start + 64 * link, MOST_NAME + 100
    return changed(image, (at + 24, "<Q", len(image)), (at + 32, "<Q", size)) + b"k" * size


def endless_functions(image: bytes) -> bytes:
    """Each function reaches over all that follow."""
    functions = [
        at + i for at, size in sections(image, 2, 11) for i in range(0, size, 24) if image[at + i + 4] & 15 == 2
    ]
    return changed(image, *((place + 16, "<Q", len(image)) for place in functions))


def many_notes(image: bytes) -> bytes:
    start, count = headers(image)
    (index,) = (i for i in range(count) if struct.unpack_from("<I", image, start + 64 * i + 4)[0] == 7)
    size = 12 * (MOST_NOTES + 1)
    return changed(image, (start + 64 * index + 24, "<Q", len(image)), (start + 64 * index + 32, "<Q", size)) + bytes(
        size
    )


def one_upon_another(image: bytes) -> bytes:
    """The second loaded segment stands where the first one does."""
    (start,), (count,) = struct.unpack_from("<Q", image, 32), struct.unpack_from("<H", image, 56)
    loaded = [start + 56 * i for i in range(count) if struct.unpack_from("<I", image, start + 56 * i)[0] == 1]
    return changed(image, (loaded[1] + 16, "<Q", struct.unpack_from("<Q", image, loaded[0] + 16)[0]))


@pytest.mark.parametrize(
    "damage, said",
    [
        (two_tables, "several symbol tables"),
        (many_sections, "sections, expected at most"),
        (endless_name, "a symbol's name at offset"),
        (endless_functions, "they overlap"),
        (many_notes, "more than 1024 notes"),
        (one_upon_another, "the segments at"),
        (lambda image: changed(image, (54, "<H", 0)), "program headers of 0 bytes each"),
        (lambda image: changed(image, (58, "<H", 0)), "sections of 0 bytes each"),
    ],
)
def test_what_would_cost_much_is_refused(damage: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(BadFile, match=said):
        CodeObject(damage(code_object("grid")))


def test_metadata_has_bounds() -> None:
    with pytest.raises(BadFile, match="values"):
        Unpacker(b"\xdd" + struct.pack(">I", MOST_VALUES) + bytes(MOST_VALUES)).value()
    for key in (b"\x90", b"\x80", b"\xc0", b"\xca\0\0\0\0"):
        with pytest.raises(BadFile, match="key"):
            Unpacker(b"\x81" + key + b"\x01").value()
    with pytest.raises(BadFile, match="entries"):
        unbundled(b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", MOST_BUNDLED + 1) + bytes(40000))


def test_truth_is_no_number() -> None:
    """`.vgpr_count: true` and an argument at offset true, which MessagePack can say."""
    image = tiny("scale", "s_nop 0")
    at = image.index(b".vgpr_count") + len(b".vgpr_count")
    assert CodeObject(image).kernels[0].vgprs == 24
    assert CodeObject(changed(image, (at, "<B", 0xC3))).kernels[0].vgprs == 0
    at = image.index(b".offset") + len(b".offset")
    with pytest.raises(BadFile, match="an argument lies outside"):
        translate(CodeObject(changed(image, (at, "<B", 0xC3))), Variant())


def symbol_places(image: bytes) -> dict[str, list[tuple[int, int]]]:
    """Name to (place of the symbol, place of its name in the table of names), one for each symbol table."""
    start, count = headers(image)
    found: dict[str, list[tuple[int, int]]] = {}
    for i in range(count):
        _, kind, _, _, at, size, link = struct.unpack_from("<IIQQQQI", image, start + 64 * i)
        (names,) = struct.unpack_from("<Q", image, start + 64 * link + 24)
        for place in range(at, at + size, 24) if kind in (2, 11) else ():
            (name,) = struct.unpack_from("<I", image, place)
            found.setdefault(image[names + name :].partition(b"\0")[0].decode(), []).append((place, name))
    return found


def test_one_name_is_one_kernel() -> None:
    image = code_object("grid")
    code, places = CodeObject(image), symbol_places(image)
    first, second = code.kernels[:2]
    (descriptor,) = (s.address for s in code.symbols if s.name == f"{second.name}.kd")
    pairs = zip(places[f"{second.name}.kd"], places[f"{first.name}.kd"], strict=True)
    changes = [(place, "<I", name) for (place, _), (_, name) in pairs]
    changes.append((code.file_offset(descriptor, 64) + 16, "<Q", first.entry - descriptor))
    with pytest.raises(BadFile, match=f"kernel {first.name}: defined twice"):
        CodeObject(changed(image, *changes))


def test_more_code_than_one_may_translate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate_module.Budget.__init__, "__defaults__", (100,))
    with pytest.raises(BadFile, match="too much for one file"):
        translate(CodeObject(code_object("norm")), Variant())


def test_the_compiler_has_a_bound_of_time(tmp_path: Path) -> None:
    with Tools("it", tmp_path, 0.0) as tools, pytest.raises(SimError, match="it: the C compiler took more than 0 s"):
        tools.run(["clang", "--version"])
    with Tools("it", tmp_path) as tools, pytest.raises(SimError, match="it: the C compiler failed: .*error"):
        tools.run(["clang", "-c", str(tmp_path / "nothing.c")])


def test_a_frame_that_a_wave_has_no_room_for_is_refused(tmp_path: Path) -> None:
    text = "void kernel_0(Wave *w) { volatile char c[3 << 20]; c[w->id] = 1; }\n"
    with pytest.raises(SimError, match="stack frame"):
        cache_module.compile_parts([text, ""], Variant(), tmp_path, tmp_path / "x.so")
    assert not (tmp_path / "x.so").exists()


def test_a_folder_that_others_may_write_to_is_refused(cache: Path, kernel: str, tmp_path: Path) -> None:
    for mode in (0o777, 0o1777, 0o770):
        cache.chmod(mode)
        for words in (["libpath"], ["run", kernel, *WORDS]):
            status, out, err = run(*words, cache=cache)
            assert (status, out) == (1, "") and "others may write to it" in err and err.count("\n") == 1
    cache.chmod(0o700)
    (library,) = cache.glob("hip-*/*")
    for path in (library.parent, library):
        before = path.stat().st_mode
        path.chmod(0o777)
        assert "others may write to it" in run("libpath", cache=cache)[2]
        path.chmod(before)
    tmp_path.chmod(0o777)
    assert f"everybody may write to {tmp_path}" in run("libpath", cache=cache)[2]
    tmp_path.chmod(0o1777)
    assert run("libpath", cache=cache)[0] == 0


def test_a_library_that_is_a_link_or_another_users_is_refused(cache: Path, kernel: str, tmp_path: Path) -> None:
    assert run("run", kernel, *WORDS, cache=cache)[0] == 0
    (library,) = translations(cache)
    library.rename(tmp_path / "elsewhere.so")
    library.symlink_to(tmp_path / "elsewhere.so")
    status, _, err = run("run", kernel, *WORDS, cache=cache)
    assert status == 1 and "remove it" in err and err.count("\n") == 1
    library.unlink()
    os.mkfifo(library, 0o600)
    assert "not a regular file" in run("run", kernel, *WORDS, cache=cache)[2]
    library.unlink()
    if os.geteuid() == 0:
        for path in (cache, next(cache.glob("hip-*"))):
            os.chown(path, 12345, -1)
            assert "belongs to user 12345" in run("libpath", cache=cache)[2]
            os.chown(path, 0, -1)


def test_a_new_cache_is_its_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = private_folder(tmp_path / "deep" / "new")
        with workshop(folder) as work:
            (work / "x").write_bytes(b"library")
            keep(work / "x", folder / "x.so")
    finally:
        os.umask(before)
    assert sealed(folder / "x.so") and [path.name for path in folder.iterdir()] == ["x.so"]
    assert all(path.stat().st_mode & 0o77 == 0 for path in (folder, folder / "x.so"))


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_compiler_that_is_terminated_leaves_nothing(
    everybody: bool, number: signal.Signals, cache: Path, kernel: str
) -> None:
    process = start("run", kernel, *WORDS, cache=cache)
    wait_for(lambda: list(cache.glob("build-*/*.c")))
    (os.killpg if everybody else os.kill)(process.pid, number)
    _, err = process.communicate(timeout=60)  # The translator has the same stderr: it has ended too.
    assert (process.returncode, err.strip()) == (143, "rdna4sim: terminated")
    assert not list(cache.glob("build-*")) and not translations(cache)


def test_terminating_libpath_ends_the_compiler_too(tmp_path: Path) -> None:
    process = start("libpath", cache=tmp_path / "cache")
    wait_for(lambda: list(tmp_path.glob("cache/build-*/zig")) or process.poll() is not None)
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (143, "rdna4sim: terminated")
    assert not list((tmp_path / "cache").glob("build-*"))


@pytest.mark.parametrize("stem", ["norm", "grid"])
def test_a_damaged_file_is_refused_in_one_line_or_read(stem: str) -> None:
    image = code_object(stem)
    accepted = sum(read_all(mutant(image, number)) for number in range(60))
    assert 10 < accepted < 59


@pytest.mark.parametrize("weak", [False, True])
def test_a_damaged_file_harms_no_host_program(weak: bool, tmp_path: Path) -> None:
    names = [kernel.name for kernel in CodeObject(code_object("norm")).kernels]
    status, said = launched("norm", list(range(4)), names, tmp_path / "cache", weak)
    assert status == 0, said


def test_a_dpp_word_in_place_of_a_constant_is_refused() -> None:
    """v_fmaak and v_fmamk have a constant behind them; a mutated word has lane controls there."""
    assert isinstance(read_all(mutant(code_object("norm"), 14199)), int)
