"""The command `rdna4sim`: what it prints, what it computes, and one line for whatever is wrong."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest

from rdna4sim.cli import main
from rdna4sim.elf import CodeObject
from rdna4sim.info import table
from tests.sim.build import code_object, compile_source
from tests.sim.elf import functions
from tests.sim.hip import bundle

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """#include "gfx.h"
KERNEL(64) scale(const f32 *x, f32 *y, f32 factor, u32 n) {
    u32 i = (u32)__builtin_amdgcn_workgroup_id_x() * 64 + (u32)__builtin_amdgcn_workitem_id_x();
    if (i < n) y[i] = x[i] * factor;
}
"""
VALUES = """#include "gfx.h"
struct Pair { u32 a, b, c; };
KERNEL(32) values(u64 *out, u8 a, i16 b, u64 c, f64 d, struct Pair e) {
    out[0] = a, out[1] = (u64)(i64)b, out[2] = c, out[3] = (u64)(i64)d, out[4] = e.c;
}
KERNEL(32) count(u32 *out) {
    for (u32 i = 0; i < 3; i++) out[i] += 1;
}
extern __attribute__((address_space(3))) u32 shared[];
KERNEL(64) flip(u32 *x) {
    u32 i = (u32)__builtin_amdgcn_workitem_id_x();
    shared[i] = x[i];
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    x[i] = shared[63 - i];
}
"""
Captured = pytest.CaptureFixture[bytes]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("hsaco")
    images = {"scale": compile_source(SOURCE), "values": compile_source(VALUES), "norm": code_object("norm")}
    for name, data in images.items():
        (folder / f"{name}.hsaco").write_bytes(data)
    return {name: str(folder / f"{name}.hsaco") for name in images}


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rdna4sim", *words]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def fails(words: list[str], captured: Captured) -> str:
    """The one line that stderr has to hold when the status is 1."""
    assert main(words) == 1
    out, err = captured.readouterr()
    assert out == b"" and err.count(b"\n") == 1 and err.startswith(b"rdna4sim: "), (out, err)
    assert b"this is a bug" not in err
    return err.decode()


def test_help_names_every_command(capsysbinary: Captured) -> None:
    assert main(["--help"]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert all(f"\n  {name} " in text for name in ("info", "disasm", "run", "libpath"))
    assert main([]) == 1
    assert b"disasm" in capsysbinary.readouterr().err


def test_the_installed_command_and_the_module_are_one(capsysbinary: Captured) -> None:
    # An egg-info of an earlier build may stand in a checkout and know less.
    scripts = [e for d in distributions(name="ie") for e in d.entry_points if e.name == "rdna4sim"]
    assert scripts and all(script.load() is main for script in scripts)
    done = run("--version")
    assert main(["--version"]) == 0
    assert (done.returncode, done.stdout) == (0, capsysbinary.readouterr().out.decode())
    path = run("libpath").stdout.strip()
    assert Path(path).name == "libamdhip64.so.6" and Path(path).is_file()


def test_info_tells_what_a_kernel_needs_and_takes(files: dict[str, str], capsysbinary: Captured) -> None:
    assert main(["info", files["norm"], "--json"]) == 0
    about = json.loads(capsysbinary.readouterr().out)
    kernels = {kernel["name"]: kernel for kernel in about["kernels"]}
    image = Path(files["norm"]).read_bytes()
    assert (about["target"], about["processor"], about["file_bytes"]) == (
        "amdgcn-amd-amdhsa--gfx1201", "gfx1201", len(image)
    )  # fmt: skip
    assert {name: (k["entry"], k["code_bytes"]) for name, k in kernels.items()} == functions(image)
    norm = kernels["rmsnorm"]
    assert (norm["lds_bytes"], norm["scratch_bytes"], norm["max_threads"], norm["wave_size"]) == (32, 0, 256, 32)
    assert [(a["offset"], a["size"], a["kind"]) for a in norm["arguments"]] == [
        (0, 8, "global_buffer"), (8, 8, "global_buffer"), (16, 8, "global_buffer"), (24, 4, "by_value"),
        (28, 4, "by_value"),
    ]  # fmt: skip
    assert main(["disasm", files["norm"], "--kernel", "rmsnorm"]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    counts = norm["instructions"]
    assert sum(counts.values()) == sum(line.startswith("\t") for line in lines)
    assert counts["LDS"] == sum(line.startswith("\tds_") for line in lines) > 0
    assert counts["VMEM"] == sum(line.startswith("\tglobal_") for line in lines) > 0
    assert counts["WAIT"] == sum(line.startswith("\ts_wait") for line in lines) > 0


def test_info_as_text_has_the_same_numbers(files: dict[str, str], capsysbinary: Captured) -> None:
    assert main(["info", files["scale"]]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "amdgcn-amd-amdhsa--gfx1201" in text and "kernel scale\n" in text
    assert "at most 64 a workgroup, 32 a wave" in text and "24 bytes: 4 given by the host, 0 hidden" in text
    assert re.search(r"^ +3 +20 +4  by_value$", text, re.M)


def test_disasm_of_one_kernel_holds_that_kernel(files: dict[str, str], capsysbinary: Captured) -> None:
    assert main(["disasm", files["values"], "--kernel", "flip"]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert re.findall(r"^[0-9a-f]{16} <(\w+)>:$", text, re.M) == ["flip"]
    assert "\tds_store_b32 " in text and text.count("\ts_endpgm ") == 1


def test_an_unknown_instruction_is_listed_and_counted(
    files: dict[str, str], tmp_path: Path, capsysbinary: Captured
) -> None:
    image = bytearray(Path(files["scale"]).read_bytes())
    at = image.index(0xBFB00000.to_bytes(4, "little"))
    image[at : at + 4] = b"\xff" * 4
    path = tmp_path / "unknown.hsaco"
    path.write_bytes(image)
    assert main(["disasm", str(path)]) == 0
    assert b"\t.long 0xffffffff " in capsysbinary.readouterr().out
    assert main(["info", str(path)]) == 0
    assert b"1 unknown" in capsysbinary.readouterr().out
    done = run("run", str(path), "--block", "64", "zeros:f32:64", "zeros:f32:64", "f32:1", "u32:64")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "0xffffffff" in done.stderr


def test_info_names_the_instruction_that_cannot_be_run(
    files: dict[str, str], tmp_path: Path, capsysbinary: Captured
) -> None:
    image = bytearray(Path(files["scale"]).read_bytes())
    at = image.index(0xBFB00000.to_bytes(4, "little"))
    image[at : at + 4] = 0xBF810000.to_bytes(4, "little")  # s_setkill
    path = tmp_path / "trap.hsaco"
    path.write_bytes(image)
    assert main(["disasm", str(path)]) == 0
    place = re.search(r"\ts_setkill .*// 0*([0-9A-F]+):", capsysbinary.readouterr().out.decode())
    assert place
    assert main(["info", str(path)]) == 0
    said = capsysbinary.readouterr().out.decode()
    assert re.search(rf"^  cannot run +s_setkill at 0x{place[1].lower()} is not translated$", said, re.M)
    for name in ("scale", "norm", "values"):
        assert main(["info", files[name], "--json"]) == 0
        assert {k["refused"] for k in json.loads(capsysbinary.readouterr().out)["kernels"]} == {""}


def test_bundles_are_opened(files: dict[str, str], tmp_path: Path, capsysbinary: Captured) -> None:
    image = Path(files["scale"]).read_bytes()
    path = tmp_path / "bundle"
    path.write_bytes(bundle(("host-x86_64--", b""), ("hipv4-amdgcn-amd-amdhsa--gfx1201:xnack-", image)))
    outputs = []
    for file in (files["scale"], str(path)):
        assert main(["info", file]) == 0 and main(["disasm", file]) == 0
        outputs.append(capsysbinary.readouterr().out.decode().replace(file, ""))
    assert outputs[0] == outputs[1]
    done = run("run", str(path), "--block", "64", "iota:f32:64", "zeros:f32:64=>-", "f32:2", "u32:64")
    assert "0.0 2.0 4.0" in done.stdout, done.stderr


def test_help_names_every_option_of_the_environment(capsysbinary: Captured) -> None:
    assert main(["--help"]) == 0
    text = capsysbinary.readouterr().out.decode()
    known = set(re.findall(r'"(RDNA4SIM_\w+)"', (ROOT / "rdna4sim" / "hip" / "settings.c").read_text()))
    assert len(known) == 9 and known == set(re.findall(r"RDNA4SIM_\w+", text))


def test_a_report_is_not_claimed_to_be_where_it_is_not(files: dict[str, str], tmp_path: Path) -> None:
    words = ("run", files["scale"], "--block", "64", "zeros:f32:4", "zeros:f32:4", "f32:1", "u32:64")
    good, lost = tmp_path / "report.txt", "/dev/full"
    done = run(*words, env={**os.environ, "RDNA4SIM_REPORT": str(good)})
    assert done.stderr.endswith(f"(700); the report is in {good}\n") and "global read" in good.read_text()
    done = run(*words, env={**os.environ, "RDNA4SIM_REPORT": lost})
    assert done.returncode == 1 and done.stderr.endswith("hipErrorIllegalAddress (700)\n"), done.stderr


@pytest.mark.parametrize("program", ["/bin/true", "/bin/false", "/bin/echo", "/no/python"])
def test_what_is_no_python_is_named(program: str, files: dict[str, str]) -> None:
    words = ("run", files["scale"], "--block", "64", *GOOD)
    done = run(*words, env={**os.environ, "RDNA4SIM_PYTHON": program})
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert program in done.stderr and "RDNA4SIM_PYTHON names the Python that has rdna4sim" in done.stderr


def test_few_addresses_are_enough_or_named(files: dict[str, str]) -> None:
    def limited(*words: str) -> subprocess.CompletedProcess[str]:
        half = 16 << 30
        return run(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (half, half)))

    words = ("run", files["scale"], "--block", "64")
    assert limited(*words, *GOOD).returncode == 0
    done = limited(*words, "zeros:f32:2000000000", *GOOD[1:])
    assert done.returncode == 1 and "could be reserved: see ulimit -v" in done.stderr, done.stderr


def test_run_computes_and_saves(files: dict[str, str], tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((10, 10)).astype(np.float32)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    words = ["run", files["scale"], "--grid", "2", "--block", "64", "x.npy", "random:f32:100:5=>y.npy"]
    done = run(*words, "f32:-2.5", "u32:90", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"scale: 2 workgroups of 64 threads, 4 waves, \d+\.\d+ s\n", done.stdout)
    y = np.load(tmp_path / "y.npy")
    assert (y[:90] == x.reshape(-1)[:90] * np.float32(-2.5)).all()
    assert (y[90:] == np.random.default_rng(5).standard_normal(100, np.float32)[90:]).all()


def test_run_passes_values_of_every_size(files: dict[str, str]) -> None:
    words = ["u8:0xff", "i16:-2", "u64:18446744073709551615", "f64:-3", "bytes:0000000000000000 2a000000"]
    done = run("run", files["values"], "--kernel", "values", "--block", "1", "zeros:i64:5=>-", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "argument 0, 5 x int64: 255 -2 -1 -3 42"


def test_run_repeats_on_the_same_buffers_and_prints_the_first_values(files: dict[str, str]) -> None:
    words = ["run", files["values"], "--kernel", "count", "--block", "1", "--repeat", "4", "--cooperative"]
    done = run(*words, "iota:u32:20=>-")
    assert (done.returncode, done.stderr) == (0, "")
    shown, summary = done.stdout.splitlines()
    assert shown == "argument 0, 20 x uint32: 4 5 6 3 4 5 6 7 8 9 10 11 12 13 14 15 ..."
    assert summary.startswith("count: 1 workgroup of 1 threads, 1 waves, 4 launches, ")


def test_run_adds_lds(files: dict[str, str]) -> None:
    words = ["run", files["values"], "--kernel", "flip", "--block", "64", "--lds"]
    done = run(*words, "256", "iota:u32:64=>-")
    assert done.stdout.startswith("argument 0, 64 x uint32: 63 62 61 ") and done.returncode == 0
    done = run(*words, "128", "iota:u32:64=>-")
    assert done.returncode == 1 and done.stdout == "" and "LDS" in done.stderr


def test_a_fault_is_the_simulators_report(files: dict[str, str], tmp_path: Path) -> None:
    words = ["run", files["scale"], "--block", "64", "zeros:f32:8", "zeros:f32:64=>y.npy", "f32:1", "u32:64"]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("rdna4sim: kernel scale, pc ") and "global read of 4 bytes" in done.stderr
    assert not (tmp_path / "y.npy").exists()
    named = run(*words, cwd=tmp_path, env={**os.environ, "RDNA4SIM_REPORT": str(tmp_path / "report.txt")})
    assert named.returncode == 1 and named.stderr.count("\n") == 1 and "report.txt" in named.stderr
    assert (tmp_path / "report.txt").read_text().startswith("rdna4sim: kernel scale, pc ")


GOOD = ["zeros:f32:64", "zeros:f32:64", "f32:1", "u32:64"]
WRONG = [
    (GOOD[:3], "takes 4 arguments: a buffer, a buffer, 4 bytes, 4 bytes; 3 given"),
    ([*GOOD, "u32:1"], "takes 4 arguments"),
    (["f32:1", *GOOD[1:]], "takes a buffer, this has 4 bytes"),
    (["f64:1", *GOOD[1:]], "takes a buffer (or an address, as u64:0)"),
    ([*GOOD[:2], "f64:1", "u32:64"], "takes a value of 4 bytes, this has 8 bytes"),
    ([*GOOD[:3], "zeros:u32:1"], "takes a value of 4 bytes, no buffer"),
    ([*GOOD[:3], "u32:-1"], "u32 goes from 0 to 4294967295"),
    ([*GOOD[:3], "u32:1.5"], "'1.5' is no whole number"),
    ([*GOOD[:3], "u32:"], "'' is no whole number"),
    ([*GOOD[:2], "f32:one", "u32:1"], "'one' is no number"),
    ([*GOOD[:3], "bytes:0g"], "no hexadecimal bytes"),
    ([*GOOD[:3], "64"], "argument '64': expected u8, "),
    ([*GOOD[:3], "q4:64"], "argument 'q4:64': expected u8, "),
    (["zeros:f31:64", *GOOD[1:]], "'f31' is no type"),
    (["zeros:f32", *GOOD[1:]], "expected zeros:TYPE:COUNT"),
    (["zeros:f32:0", *GOOD[1:]], "a buffer has 1 to"),
    (["zeros:f32:99999999999999999999", *GOOD[1:]], "a buffer has 1 to"),
    (["iota:f32:-1", *GOOD[1:]], "expected iota:TYPE:COUNT"),
    (["random:f32:64:x", *GOOD[1:]], "expected random:TYPE:COUNT[:SEED]"),
    (["zeros:f32:64=", *GOOD[1:]], "put it in quotes"),
    (["zeros:f32:64=>", *GOOD[1:]], "nothing stands behind =>"),
    ([*GOOD[:3], "u32:64=>-"], "only a buffer has contents"),
    (["missing.npy", *GOOD[1:]], "missing.npy: No such file"),
    (["broken.npy", *GOOD[1:]], "broken.npy: no .npy file that can be read"),
    (["objects.npy", *GOOD[1:]], "objects.npy: no"),
    (["words.npy", *GOOD[1:]], "words.npy: no array of numbers"),
    (["empty.npy", *GOOD[1:]], "empty.npy: no array of numbers"),
    ([".npy", *GOOD[1:]], ".npy: Is a directory"),
    (["zeros:f32:64=>-", "zeros:f32:64=>no/such/folder.npy", *GOOD[2:]], "no/such/folder.npy: No such file"),
    ([*GOOD[:1], "zeros:f32:64=>.", *GOOD[2:]], ".: Is a directory"),
    (["zeros:f32:" + "9" * 5000, *GOOD[1:]], "a buffer has 1 to 8589934592 elements"),
    (["random:f32:64:" + "9" * 5000, *GOOD[1:]], "a seed has at most"),
    (["zeros:f32:5000000000", "zeros:f32:5000000000", *GOOD[2:]], "the card has 34359738368"),
    (["iota:f16:100000", *GOOD[1:]], "f16 goes to 65504"),
    (["iota:u8:1000", *GOOD[1:]], "u8 goes to 255"),
    ([*GOOD[:2], "f32:1e300", "u32:64"], "f32 goes from -3.4028234663852886e+38 to 3.4028234663852886e+38"),
    ([*GOOD[:2], "f64:1e999", "u32:64"], "f64 goes from"),
    ([*GOOD[:2], "f32:2", "u32:" + "9" * 5000], "is no whole number"),
    (["zeros:f32:64=>a.npy", "zeros:f32:64=>./a.npy", *GOOD[2:]], "arguments 0 and 1 would go to the same file"),
    (["fifo.npy", *GOOD[1:]], "rdna4sim: fifo.npy: a pipe, socket or device"),
    (["zeros:f32:64=>fifo.npy", *GOOD[1:]], "fifo.npy: a pipe, socket or device"),
    (["zeros:f32:64=>/dev/full", *GOOD[1:]], "/dev/full: a pipe, socket or device"),
    (["--grid", "1,65537", *GOOD], "numbers from 1 to 2147483647 (X) and 65536 (Y, Z)"),
    (["--grid", "2147483647", *GOOD], "2147483647 workgroups, a launch has at most 1073741824"),
    (["--grid", "1000000000", *GOOD], "at most 4294967295 threads along each axis"),
    (["--grid", "100000", "--cooperative", *GOOD], "at most 1024 at once of 64 threads"),
    (["--block", "0", *GOOD], "'0' is not X, X,Y or X,Y,Z"),
    (["--block", "1,2,3,4", *GOOD], "'1,2,3,4' is not X"),
    (["--block", "65", *GOOD], "65 threads a workgroup, it is built for 64"),
    (["--grid", "x", *GOOD], "'x' is not X"),
    (["--lds", "70000", *GOOD], "--lds"),
    (["--repeat", "0", *GOOD], "--repeat"),
    (["--kernel", "other", *GOOD], "no kernel other; there is scale"),
    (["--colour", *GOOD], "No such option"),
]  # fmt: skip


@pytest.mark.parametrize("words, said", WRONG)
def test_a_wrong_command_line_of_run_is_one_line(
    words: list[str], said: str, files: dict[str, str], tmp_path: Path, capsysbinary: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': broken")
    np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
    np.save(tmp_path / "empty.npy", np.zeros(0, np.float32))
    np.save(tmp_path / "words.npy", np.array(["one"]))
    (tmp_path / ".npy").mkdir()
    os.mkfifo(tmp_path / "fifo.npy")
    before = sorted(tmp_path.iterdir())
    assert said in fails(["run", files["scale"], "--block", "64", *words], capsysbinary)
    assert sorted(tmp_path.iterdir()) == before


def test_run_needs_a_block_and_a_kernels_name(files: dict[str, str], capsysbinary: Captured) -> None:
    assert "--block" in fails(["run", files["scale"]], capsysbinary)
    line = fails(["run", files["values"], "--block", "1"], capsysbinary)
    assert all(name in line for name in ("--kernel", "values", "count", "flip"))


@pytest.mark.parametrize("command", ["info", "disasm", "run"])
def test_a_file_that_is_no_code_object_is_one_line(
    command: str, files: dict[str, str], tmp_path: Path, capsysbinary: Captured
) -> None:
    image = Path(files["norm"]).read_bytes()
    bad = {
        "empty": (b"", "not an ELF file"),
        "text": (b"#!/bin/sh\n" * 99, "not an ELF file"),
        "object": (image[:16] + b"\1" + image[17:], "not linked: ld.lld -shared"),
        "compressed": (b"CCOB" + bytes(99), "unpack it with clang-offload-bundler"),
        "other": (bundle(("hipv4-amdgcn-amd-amdhsa--gfx1100", image)), "without a code object for gfx1201"),
        "short": (bundle(("hipv4-amdgcn-amd-amdhsa--gfx1201", image))[:500], "a bundle that is cut short"),
        "shorter": (bundle(("hipv4-amdgcn-amd-amdhsa--gfx1201", image))[:40], "a bundle that is cut short"),
        "cut": (image[: len(image) // 2], "cut short"),
        "processor": (image[:48] + b"\x4c" + image[49:], "expected gfx1201"),
        "machine": (image[:18] + b"\x3e\0" + image[20:], "expected 224 (AMD GPU)"),
    }
    tail = ["--block", "1"] if command == "run" else []
    for name, (data, said) in bad.items():
        path = tmp_path / name
        path.write_bytes(data)
        line = fails([command, str(path), *tail], capsysbinary)
        assert str(path) in line and said in line
    os.mkfifo(tmp_path / "pipe")
    assert "pipe, socket or device" in fails([command, str(tmp_path / "pipe"), *tail], capsysbinary)
    assert "No such file" in fails([command, str(tmp_path / "missing\n"), *tail], capsysbinary)
    assert "Is a directory" in fails([command, str(tmp_path), *tail], capsysbinary)
    assert "Missing argument 'FILE'" in fails([command], capsysbinary)
    assert "nothing" in fails(["disasm", files["norm"], "--kernel", "nothing"], capsysbinary)


def test_damage_never_is_more_than_one_line(files: dict[str, str], tmp_path: Path, capsysbinary: Captured) -> None:
    image, rng, refused = Path(files["norm"]).read_bytes(), random.Random(3), 0
    notes = image.index(b"amdhsa.kernels")
    for i in range(150):
        data = bytearray(image)
        for _ in range(rng.choice((1, 3))):
            near = (rng.randrange(64), notes + rng.randrange(1200), rng.randrange(len(image) - 1500, len(image)))
            data[rng.choice((*near, rng.randrange(len(image))))] = rng.randrange(256)
        path = tmp_path / "damaged"
        path.write_bytes(data)
        for command in ("info", "disasm"):
            status = main([command, str(path)])
            err = capsysbinary.readouterr().err
            assert status in (0, 1) and err.count(b"\n") == status and b"this is a bug" not in err, (i, err)
            refused += status
    assert refused > 20


@pytest.mark.parametrize("command", ["disasm norm.hsaco", "info norm.hsaco --json"])
def test_a_reader_that_leaves_early_is_no_error(command: str, files: dict[str, str]) -> None:
    script = f"{{ {sys.executable} -m rdna4sim {command}; echo status $? >&2; }} | :"
    folder = Path(files["norm"]).parent
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.stderr == "status 0\n"


def test_a_full_disk_is_one_line(files: dict[str, str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rdna4sim", "info", files["norm"]], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "rdna4sim: cannot write to stdout: No space left on device\n")


def test_the_readmes_declaration_of_lds_is_one() -> None:
    (line,) = re.findall(r"`(static __attribute__.*;)`", (ROOT / "rdna4sim" / "README.md").read_text())
    kernel = "KERNEL(64) flip(f32 *x) { u32 i = thread(); a[i] = x[i]; barrier(); x[i] = a[63 - i]; }\n"
    image = compile_source(f'#include "gfx.h"\n{line}\n{kernel}')
    assert [kernel.lds_bytes for kernel in CodeObject(image).kernels] == [1024]


def test_the_readmes_example_does_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "rdna4sim" / "README.md").read_text().split("## The parts")[0]
    source = re.search(r"^```c\n(.*?)^```", text, re.M | re.S)
    assert source
    (tmp_path / "scale.c").write_text(source[1])
    shown = [line[4:] for line in text.replace(source[0], "").splitlines() if line.startswith("    ")]
    commands = [line for line in shown if line.startswith(("python ", "rdna4sim "))]
    assert len(commands) == 7
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = ["sh", "-c", "\n".join(commands)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PATH": path})
    assert done.returncode == 1

    def plain(line: str) -> str:
        return re.sub(r"\d\.\d{6} s|0x7[ef][0-9a-f]{10}", "N", line)

    said = {plain(line) for line in (done.stdout + done.stderr).splitlines()}
    assert [line for line in shown if line and line not in commands and plain(line) not in said] == []


def test_what_is_read_is_not_written_over(files: dict[str, str], tmp_path: Path) -> None:
    """The code object, also by a link, and what another buffer is read from; a buffer may go back to its own file."""
    code = tmp_path / "code.hsaco"
    code.write_bytes(Path(files["scale"]).read_bytes())
    (tmp_path / "link").symlink_to("code.hsaco")
    np.save(tmp_path / "x.npy", np.ones(64, np.float32))
    words = ["run", "code.hsaco", "--block", "64"]
    held = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for given, said in (
        (["zeros:f32:64=>code.hsaco", *GOOD[1:]], "code.hsaco: this is the code object: name another file"),
        (["zeros:f32:64=>link", *GOOD[1:]], "link: this is the code object: name another file"),
        (["x.npy", "zeros:f32:64=>x.npy", *GOOD[2:]], "x.npy: argument 0 is read from this file: name another"),
    ):
        done = run(*words, *given, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"rdna4sim: {said}\n")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == held
    done = run(*words, "x.npy", "x.npy=>x.npy", *GOOD[2:], cwd=tmp_path)
    assert done.returncode == 1 and "argument 0 is read from this file" in done.stderr
    (tmp_path / "y.npy").write_bytes((tmp_path / "x.npy").read_bytes())
    (tmp_path / "y.npy").chmod(0o640)
    done = run(*words, "x.npy", "y.npy=>y.npy", "f32:3", "u32:64", cwd=tmp_path)
    assert done.returncode == 0 and (np.load(tmp_path / "y.npy") == 3).all()
    assert (tmp_path / "y.npy").stat().st_mode & 0o777 == 0o640 and not list(tmp_path.glob("*.part"))


def test_a_long_word_of_a_file_makes_no_flood() -> None:
    lines = table([["a", "b"], ["x" * 5000, "1"], ["y", "2"]], 0)
    assert len(lines[1]) < 5100 and max(map(len, (lines[0], lines[2]))) < 60
