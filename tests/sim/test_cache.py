"""What the simulator keeps on disk and how it is left: the cache's folder, its files' health, Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rdna4sim.cache import sealed
from tests.sim.build import compile_source
from tests.sim.hip import library_path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """#include "gfx.h"
KERNEL(64) add(u32 *x) { x[__builtin_amdgcn_workitem_id_x()] += 1; }
"""
ENDLESS = """#include "gfx.h"
KERNEL(1) endless(volatile u32 *x) { for (;;) x[0] += 1; }
"""
WORDS = ["--block", "64", "zeros:u32:64=>-"]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with the stand-in and nothing else."""
    here = Path(library_path()).parent
    shutil.copytree(here, tmp_path / "cache" / here.name)
    return tmp_path / "cache"


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "add.hsaco"
    path.write_bytes(compile_source(SOURCE))
    return str(path)


def start(*words: str, cache: Path | str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("RDNA4SIM_")}
    env |= {"RDNA4SIM_CACHE": str(cache), "PYTHONPATH": str(ROOT), **environment}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "rdna4sim", *words]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=env, start_new_session=True)


def run(*words: str, cache: Path | str, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
    process = start(*words, cache=cache, cwd=cwd, **environment)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def wait_for(condition: Callable[[], object]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def translations(cache: Path) -> list[Path]:
    return list(cache.glob("*.so"))


def loaded(process: subprocess.Popen[str], library: Path) -> bool:
    return str(library) in Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.parametrize("everybody", [False, True])
def test_ctrl_c_ends_a_launch(everybody: bool, cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "endless.hsaco"
    path.write_bytes(compile_source(ENDLESS))
    words = ["run", str(path), "--block", "1", "zeros:u32:1"]
    status, _, err = run(*words, cache=cache, RDNA4SIM_LIMIT="1000")
    assert status == 1 and "limit of instructions" in err
    (library,) = translations(cache)
    process = start(*words, cache=cache)
    wait_for(lambda: loaded(process, library))
    time.sleep(0.1)
    (os.killpg if everybody else os.kill)(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "rdna4sim: interrupted")


@pytest.mark.parametrize(
    "loop",
    [
        "1: s_call_b64 s[40:41], 1b",
        "s_call_b64 s[40:41], 1f\\n1: s_setpc_b64 s[40:41]",
        "s_call_b64 s[44:45], 2f\\n2: s_swappc_b64 s[46:47], s[44:45]",
        "1: s_branch 1b",
        "s_mov_b32 s40, 0\\n1: s_cmp_eq_u32 s40, 0\\n s_cbranch_scc1 1b",
    ],
)
def test_every_loop_has_a_limit(loop: str, cache: Path, tmp_path: Path) -> None:
    """Loops made of calls and returns too."""
    source = (
        f'#include "gfx.h"\nKERNEL(1) spin(u32 *out) {{ out[0] = 1; __asm__ volatile("{loop}" ::: {CLOBBERED}); }}\n'
    )
    path = tmp_path / "spin.hsaco"
    path.write_bytes(compile_source(source))
    status, _, err = run("run", str(path), "--block", "1", "zeros:u32:1", cache=cache, RDNA4SIM_LIMIT="100000")
    assert status == 1 and "limit of instructions" in err, err


CLOBBERED = ", ".join(f'"s{n}"' for n in range(40, 48))


def test_ctrl_c_ends_the_translator_without_a_word(cache: Path, kernel: str) -> None:
    process = start("run", kernel, *WORDS, cache=cache)
    wait_for(lambda: list(cache.glob("build-*/*.c")))
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)  # The translator has the same stderr: it has ended too.
    assert (process.returncode, err.strip()) == (130, "rdna4sim: interrupted")
    assert not list(cache.glob("build-*")) and not translations(cache)


def test_a_damaged_translation_is_made_anew(cache: Path, kernel: str) -> None:
    status, good, _ = run("run", kernel, *WORDS, cache=cache)
    (library,) = translations(cache)
    data = library.read_bytes()
    assert status == 0
    for bad in (data[: len(data) // 2], b"", data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]):
        library.write_bytes(bad)
        status, out, err = run("run", kernel, *WORDS, cache=cache)
        assert (status, out.splitlines()[0]) == (0, good.splitlines()[0]), err
        assert sealed(library)


def test_a_damaged_stand_in_is_built_without_a_home_or_modules_of_the_working_folder(
    cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "ziglang.py").write_text("open('was-here', 'w')\n")
    (library,) = cache.glob("hip-*/*")
    library.write_bytes(library.read_bytes()[:1000])
    status, out, err = run("libpath", cache="cache", cwd=tmp_path, HOME="/proc", XDG_CACHE_HOME="")
    assert (status, out, err) == (0, f"{library}\n", "") and sealed(library)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "ziglang.py"]
    assert list(cache.iterdir()) == [library.parent]


HOST = """
import ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
for image in sys.argv[2:]:
    print(lib.hipModuleLoadData(ctypes.byref(ctypes.c_void_p()), open(image, "rb").read()))
    os.chdir("elsewhere")
    lib.hipDeviceReset()
"""


def host(cache: str, *images: str, cwd: Path) -> tuple[str, str]:
    env = {**os.environ, "RDNA4SIM_CACHE": cache}
    command = [sys.executable, "-c", HOST, library_path(), *images]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)
    return done.stdout, done.stderr


def test_a_relative_cache_stays_where_it_is(kernel: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "elsewhere").mkdir(parents=True)
    other = tmp_path / "other.hsaco"
    other.write_bytes(compile_source(ENDLESS))
    assert host("kept", kernel, str(other), cwd=tmp_path) == ("0\n0\n", "")
    assert len(translations(tmp_path / "kept")) == 2 and not list((tmp_path / "elsewhere").rglob("*.so"))


def test_a_cache_with_too_long_a_path_is_one_line(kernel: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    said = "rdna4sim: RDNA4SIM_CACHE is a path of more than 3500 bytes\n"
    for name in ("x/" * 2000, "/" + "x/" * 2000):
        for words in (["libpath"], ["run", kernel, *WORDS]):
            assert run(*words, cache=name) == (1, "", said)
        assert host(name, kernel, cwd=tmp_path) == ("200\n", said)
    long = tmp_path.joinpath(*["y" * 200] * 10)
    assert host(str(long), kernel, cwd=tmp_path) == ("0\n", "")
    assert len(translations(long)) == 1


def test_what_killed_compilers_left_goes_when_it_is_old(cache: Path) -> None:
    old, inner, fresh = cache / "build-old", next(cache.glob("hip-*")) / "build-x", cache / "build-fresh"
    for folder in (old, inner, fresh):
        folder.mkdir()
        (folder / "part0.c").write_text("x")
    hours_ago = time.time() - 2 * 3600
    for folder in (old, inner):
        os.utime(folder, (hours_ago, hours_ago))
    assert run("libpath", cache=cache)[0] == 0
    assert (old.exists(), inner.exists(), fresh.exists()) == (False, False, True)
