"""ie-run as a process of its own: pipes that close, Ctrl-C, redirection. With the model that spells the alphabet."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = [sys.executable, "-m", "tests.cli.fake"]
ENDLESS = ["fake.gguf", "-p", "a", "--ignore-eos"]


def environment(delay: float = 0.0) -> dict[str, str]:
    return {**os.environ, "FAKE_DELAY": str(delay), "PYTHONDONTWRITEBYTECODE": "1"}


def start(*argv: str, delay: float = 0.0, **streams: object) -> subprocess.Popen[bytes]:
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen([*FAKE, *argv], cwd=ROOT, env=environment(delay), **given)  # type: ignore[call-overload]


def test_a_reader_that_leaves_is_a_quiet_end() -> None:
    child = start(*ENDLESS, "-n", "200000")
    assert child.stdout and child.stdout.read(3) == b"abc"
    child.stdout.close()
    assert child.stderr and child.stderr.read() == b""
    assert child.wait() == 0


def test_head() -> None:
    command = f"{shlex.join([*FAKE, *ENDLESS])} -n 200000 --print-ids | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment(), capture_output=True,
                          stdin=subprocess.DEVNULL)  # fmt: skip
    assert (done.stdout, done.stderr) == (b"97\n0\n", b"")


def test_text_comes_piece_by_piece() -> None:
    child = start(*ENDLESS, "-n", "1000000", delay=0.01)
    assert child.stdout
    for expected in b"abcde":
        assert child.stdout.read(1) == bytes([expected])
    child.kill()
    child.communicate()


@pytest.mark.parametrize("argv", [ENDLESS, [*ENDLESS, "-cnv"]])
def test_ctrl_c_ends_with_the_summary(argv: list[str]) -> None:
    child = start(*argv, "-n", "1000000", delay=0.01)
    assert child.stdout
    begin = child.stdout.read(4)
    child.send_signal(signal.SIGINT)
    rest, err = child.communicate()
    assert child.returncode == 130
    lines = err.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("load ") and lines[0].endswith("· interrupted"), err
    assert (begin + rest).isalpha()


@pytest.mark.parametrize(
    ("argv", "presses", "both"),
    [(ENDLESS, 1, True), (ENDLESS, 1, False), ([*ENDLESS, "-cnv"], 2, True), ([*ENDLESS, "--print-ids"], 2, True)],
)
def test_ctrl_c_while_nobody_reads(argv: list[str], presses: int, both: bool) -> None:
    """stdout, and maybe stderr, are a pipe that is full: there is nobody to hear the last words."""
    read, write = small_pipe()
    child = start(*argv, "-n", "100000000", stdout=write, stderr=write if both else subprocess.PIPE)
    os.close(write)
    try:
        wait_until_full(read, child)
        for _ in range(presses):
            child.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert child.wait(20) == 130
    finally:
        child.kill()
        os.close(read)


def small_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    return read, write


def wait_until_full(read: int, child: subprocess.Popen[bytes]) -> None:
    """Until no more comes into a pipe that nobody reads."""
    held = -1
    while True:
        before, held = held, int.from_bytes(fcntl.ioctl(read, termios.FIONREAD, bytes(4)), sys.byteorder)
        if held == before and held > 0:
            return
        assert child.poll() is None
        time.sleep(0.2)


def test_last_words_after_the_end_wait_for_a_reader(tmp_path: Path) -> None:
    """Without Ctrl-C a slow reader gets everything."""
    read, write = small_pipe()
    child = start(*ENDLESS, "-n", "20000", stdout=write, stderr=write)
    os.close(write)
    wait_until_full(read, child)
    time.sleep(1.2)
    with open(read, "rb") as reader:
        got = reader.read()
    assert child.wait() == 0 and got[:20000].isalpha() and b"\nload " in got[20000:]


def test_ctrl_c_leaves_no_dump(tmp_path: Path) -> None:
    child = start(*ENDLESS, "-n", "1000000", "--dump-logits", str(tmp_path / "l.npy"), delay=0.01)
    assert child.stdout and child.stdout.read(4)
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert child.returncode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_leaves_no_dump(number: signal.Signals, tmp_path: Path) -> None:
    child = start(*ENDLESS, "-n", "1000000", "--dump-logits", str(tmp_path / "l.npy"), delay=0.01)
    assert child.stdout and child.stdout.read(4)
    assert [file.suffix for file in tmp_path.iterdir()] == [".part"]
    child.send_signal(number)
    _, err = child.communicate()
    assert (child.returncode, err) == (-number, b"")
    assert list(tmp_path.iterdir()) == []


def test_killed_run_leaves_no_dump_under_the_name(tmp_path: Path) -> None:
    child = start(*ENDLESS, "-n", "1000000", "--dump-logits", str(tmp_path / "l.npy"), delay=0.01)
    assert child.stdout and child.stdout.read(4)
    child.kill()
    child.communicate()
    assert not (tmp_path / "l.npy").exists()


def test_messages_survive_redirection(tmp_path: Path) -> None:
    with (tmp_path / "both").open("wb") as both:
        child = start("nothing.gguf", "-p", "a", stdout=both, stderr=subprocess.STDOUT)
        assert child.wait() == 1
    assert (tmp_path / "both").read_bytes() == b"ie-run: nothing.gguf: not the fake model\n"


def test_summary_starts_a_line_where_both_streams_are_one() -> None:
    out, _ = start("fake.gguf", "-p", "w", stderr=subprocess.STDOUT).communicate()
    assert out.startswith(b"wxyz\nload ")
    out, err = start("fake.gguf", "-p", "w").communicate()
    assert out == b"wxyz" and err.startswith(b"load ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is not there")
def test_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        child = start(*ENDLESS, "-n", "10", stdout=full)
        _, err = child.communicate()
    assert (child.returncode, err) == (1, b"ie-run: cannot write to stdout: No space left on device\n")


@pytest.mark.parametrize(
    ("closing", "argv", "status", "err"),
    [
        (">&-", "-p y", 1, b"ie-run: stdout is closed: there is nowhere to print the result\n"),
        ("<&-", "", 1, b"ie-run: the standard input is closed: give a prompt with -p or -f\n"),
        ("2>&-", "-p y", 0, b""),
        ("2>&-", "--tempo", 1, b""),
    ],
)
def test_closed_streams(closing: str, argv: str, status: int, err: bytes) -> None:
    command = f"{shlex.join(FAKE)} fake.gguf {argv} {closing}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (status, err)


def test_undecodable_argument() -> None:
    child = subprocess.Popen([*[os.fsencode(word) for word in FAKE], b"fake.gguf", b"-p", b"\xffw"], cwd=ROOT,
                             env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # fmt: skip
    assert child.communicate()[0] == b"\xffwxyz"


def test_undecodable_file_name_in_a_message() -> None:
    child = subprocess.Popen([*[os.fsencode(word) for word in FAKE], b"\xff.gguf", b"-p", b"w"], cwd=ROOT,
                             env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
    assert child.communicate()[1] == b"ie-run: \\udcff.gguf: not the fake model\n"
    assert child.returncode == 1


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_text_is_utf8_in_every_locale(locale: str) -> None:
    done = subprocess.run([*FAKE, "fake.gguf", "-p", "Zé", "-n", "1"], cwd=ROOT, capture_output=True,
                          stdin=subprocess.DEVNULL, env={**environment(), "LC_ALL": locale})  # fmt: skip
    assert done.returncode == 0 and done.stdout == "Zé!".encode()
