"""Faults while running: a file that shrinks, numbers that are none, a text that never fits, an early Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ie.cli import entry
from ie.engine import Engine
from ie.errors import ModelError
from ie.settings import EngineOptions
from tiny_models import make_tiny

RUN = "import sys; from ie.cli.entry import run; sys.exit(run())"


def run(*words: str, stdin: bytes = b"", code: str = RUN) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", code, *words], input=stdin, capture_output=True, timeout=60)


LOST = b"the file became shorter while it was in use, or its disk failed\n"
# Shortens the file whose name ends as the first argument says, as soon as it is mapped; then runs a command.
SHORTENED = """
import os, sys
from ie.gguf import container, mapped
ending, command = sys.argv[1:3]
def shortened(path):
    found = mapped.map_file(path)
    if path.endswith(ending):
        os.truncate(path, 0)
    return found
container.map_file = shortened
del sys.argv[1:3]
from ie.cli import entry
sys.exit(getattr(entry, command)())
"""
STRICT = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_file_that_shrinks_ends_the_run_with_one_line(tmp_path: Path) -> None:
    """In the kernels' threads, with an unfinished file, which goes."""
    path = make_tiny(tmp_path / "m.gguf", n_vocab=4096, n_embd=256, tokenizer="none", n_ctx=4096)
    code = (
        "import sys, os\n"
        "from ie import native\n"
        "from ie.cli.dump import AtomicFile\n"
        "from ie.engine import Engine\n"
        "native.on_lost_pages('ie: ')\n"
        "with AtomicFile(sys.argv[1] + '.committed') as done: done.commit()\n"
        "with Engine.open(sys.argv[1]) as engine, AtomicFile(sys.argv[1] + '.npy'):\n"
        "    os.truncate(sys.argv[1], 4096)\n"
        "    engine.forward(engine.new_sequence(), [4000])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"ie: {path}: ".encode() + LOST)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.gguf", "m.gguf.committed"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("tokenize", ["-p", "a"]),
        ("run", ["--info"]),
        ("run", ["-p", "a"]),
        ("bench", ["-p", "4", "-n", "0"]),
        ("ppl", ["-f", "-"]),
    ],
)
def test_a_file_that_shrinks_while_its_tables_are_read(command: str, words: list[str], tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf")
    done = run("m.gguf", command, str(path), *words, code=SHORTENED)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", f"ie-{command}: {path}: ".encode() + LOST)


def test_the_file_that_shrinks_is_the_one_that_is_named(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", arch="qwen35")
    draft = make_tiny(tmp_path / "draft\x1b.gguf", arch="qwen35")
    done = run("\x1b.gguf", "run", str(path), "-p", "a", "--draft", "3", "--mtp", str(draft), code=SHORTENED)
    assert (done.returncode, done.stderr) == (1, f"ie-run: {tmp_path}/draft\\x1b.gguf: ".encode() + LOST)


@pytest.mark.parametrize("env", [{}, STRICT])
def test_a_path_in_no_encoding(env: dict[str, str], tmp_path: Path) -> None:
    make_tiny(tmp_path / "m.gguf")
    path = os.fsencode(tmp_path) + b"/m\xff\xc3\xa9\n.gguf"
    os.rename(tmp_path / "m.gguf", path)

    def start(*words: bytes) -> subprocess.CompletedProcess[bytes]:
        argv = [sys.executable.encode(), b"-c", SHORTENED.encode(), *words]
        return subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, **env}, timeout=60
        )

    for words in ([b"run", path, b"-p", b"a", b"-n", b"1"], [b"bench", path, b"-p", b"4", b"-n", b"0", b"-r", b"1"]):
        done = start(b"no file", *words)
        assert done.returncode == 0 and b"bug" not in done.stderr, done.stderr
    done = start(b".gguf", b"tokenize", path, b"-p", b"a")
    assert done.returncode == 1 and done.stderr.endswith(b"\\n.gguf: " + LOST) and done.stderr.count(b"\n") == 1


def test_lost_pages_of_others_are_their_own_affair(tmp_path: Path) -> None:
    """Not asked for, nothing is changed; asked for, a SIGBUS elsewhere does what it did before."""
    path = make_tiny(tmp_path / "m.gguf")
    other = tmp_path / "other"
    opened = "import os, sys, mmap\nfrom ie import native\nfrom ie.gguf import GgufFile\n"
    theirs = (
        "m = mmap.mmap(os.open(sys.argv[2], os.O_RDWR | os.O_CREAT), 0)\n"
        "g = GgufFile.open(sys.argv[1])\nos.truncate(sys.argv[2], 0)\nm[0]"
    )
    ours = "g = GgufFile.open(sys.argv[1])\nos.truncate(sys.argv[1], 0)\ng.tensors['output_norm.weight'].data()[0]"
    for code in (ours, "native.on_lost_pages('x: ')\n" + theirs, theirs):
        other.write_bytes(bytes(5000))
        kept = path.read_bytes()
        argv = [sys.executable, "-c", opened + code, str(path), str(other)]
        done = subprocess.run(argv, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (-signal.SIGBUS, b"")
        path.write_bytes(kept)
    closed = (
        "native.on_lost_pages('x: ')\nfor _ in range(300):\n    with GgufFile.open(sys.argv[1]): pass\n"
        "os.kill(os.getpid(), 7)"
    )
    done = subprocess.run([sys.executable, "-c", opened + closed, str(path)], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGBUS, "one that a process sends ends as it would have"


@pytest.mark.parametrize(
    "name", ["blk.0.attn_v.weight", "blk.1.attn_k.weight", "blk.1.ffn_down.weight", "blk.0.ffn_up.weight"]
)
@pytest.mark.parametrize("executor", ["cpu", "reference"])
def test_weights_that_are_no_numbers_give_no_text(name: str, executor: str, tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", tokenizer="none", formats="Q8_0")
    with Engine.open(str(path)) as engine:
        info = engine.gguf.tensors[name]
        place, size = info.offset, info.nbytes
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(b"\xff" * size)
    with pytest.raises(ModelError, match=f"tensor {name} holds NaN"):
        Engine.open(str(path), EngineOptions(executor=executor))


def test_a_text_that_can_never_fit_is_refused_before_it_is_cut_into_tokens(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf")
    done = run(str(path), "-c", "64", "-n", "1", stdin=b"x" * 3_000_000)
    assert done.returncode == 1 and done.stdout == b""
    assert b"3,000,000 bytes" in done.stderr and done.stderr.count(b"\n") == 1


def test_a_stack_too_small_for_the_kernels_is_refused(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", tokenizer="none")
    limited = "import resource; resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, 256 << 10)); " + RUN
    done = run(str(path), "--tokens", "1,2,3", "--print-ids", "-n", "2", code=limited)
    assert done.returncode == 1 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"ie-run: the stack is limited to 256 KB") and b"`ulimit -s " in done.stderr


def test_addresses_that_are_limited_count_as_memory(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", tokenizer="none")
    limited = (
        "import resource, sys; from ie.cli import load; from ie.cli.entry import run\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), resource.RLIM_INFINITY))\n"
        "sys.exit(run())"
    )
    done = run(str(path), "--tokens", "1,2,3", "--print-ids", "-n", "2", code=limited)
    assert done.returncode == 1 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert b"m.gguf: does not fit: " in done.stderr and b"(limited by ulimit -v)" in done.stderr


def test_a_trace_that_could_not_be_written_whole_is_no_file(tmp_path: Path) -> None:
    """Some steps were written when the file reached its largest size."""
    path, trace = make_tiny(tmp_path / "m.gguf", tokenizer="none"), tmp_path / "trace.csv"
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); " + RUN
    done = run(str(path), "--tokens", "1,2,3", "--print-ids", "-n", "40", "--trace", str(trace), code=limited)
    assert (done.returncode, done.stderr) == (1, f"ie-run: {trace}: File too large\n".encode())
    assert len(done.stdout.splitlines()) > 4
    assert [file.name for file in tmp_path.iterdir()] == ["m.gguf"]


def test_ctrl_c_during_the_imports(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(entry.importlib, "import_module", interrupted)
    try:
        assert entry.run() == entry.doctor() == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "once more while the process ends"
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "ie-run: interrupted\nie-doctor: interrupted\n"


def test_ctrl_c_that_a_library_makes_an_import_error_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("IMPORTANT: PLEASE READ THIS") from error

    monkeypatch.setattr(entry.importlib, "import_module", interrupted)
    assert entry.run() == 130 and capsys.readouterr().err == "ie-run: interrupted\n"


def test_numpy_starts_no_threads_of_its_own() -> None:
    """A process that may start none would be told so by a SIGINT. Who wants them asks for them."""
    code = "import os; from ie.cli import entry; entry.run(); print(len(os.listdir('/proc/self/task')))"
    for given, threads in (({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, min(2, os.cpu_count() or 1))):
        done = subprocess.run(
            [sys.executable, "-c", code, "nothing.gguf", "-p", "a"],
            env={**os.environ, **given}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert int(done.stdout) == threads, done
