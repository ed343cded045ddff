"""Files that commands write, log to and refuse: nothing waits, nothing that is in use is written over."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ie import paths
from ie.cli import ppl, run
from ie.cli.chat import Conversation, talk
from ie.cli.console import Console
from ie.cli.dump import AtomicFile
from ie.cli.options import parse
from ie.errors import OptionError
from tests.cli.fake import FakeEngine, FakeLoader

ROOT = Path(__file__).resolve().parents[2]
RUN = "import sys; from ie.cli.run import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in two parts, texts, links to them, and things that are no files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IE_LOG", str(tmp_path / "log"))
    for name in ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "text", "mtp", "log", "stays"):
        Path(name).write_text(name)
    Path("cache").mkdir()
    Path("cache/history").write_text("history")
    Path("link").symlink_to("a-00002-of-00002.gguf")
    os.link("text", "hard")
    Path("dangling").symlink_to("log2")
    Path("folder").mkdir()
    os.mkfifo("pipe")


REFUSED = {
    "a-00001-of-00002.gguf": "is the model, which is read: name another file",
    "./a-00002-of-00002.gguf": "is the model, which is read: name another file",
    "link": "is the model, which is read: name another file",
    "hard": "is --file, which is read: name another file",
    "mtp": "is --mtp, which is read: name another file",
    "log": "is the log, which is written: name another file",
    "cache/history": "is the history, which is written: name another file",
    "folder": "this is a folder: name a file in it",
    "pipe": "this is a pipe, socket or device: name a file that may be replaced",
    "/dev/null": "this is a pipe, socket or device: name a file that may be replaced",
    "none/x": "there is no folder none: make it, or name another file",
    "text/x": "Not a directory",
}
WORDS = ["a-00001-of-00002.gguf", "-f", "text", "--draft", "3", "--mtp", "mtp"]


@pytest.mark.parametrize("name", REFUSED)
def test_save(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    chosen = parse("ie-run", WORDS)
    loader = FakeLoader(FakeEngine(n_ctx=200))
    chat = Conversation(loader(parse("ie-run", ["fake.gguf"])), chosen, 7, Console("ie-run"))
    before = {path: path.read_bytes() for path in Path(".").rglob("*") if path.is_file()}
    lines = [f"/save {name}", "/save ok", "/exit"]
    talk(chat, Console("ie-run"), lambda prompt: lines.pop(0))
    assert capfd.readouterr().err == f"ie-run: /save {name}: {REFUSED[name]}\nsaved to ok\n"
    assert {path: path.read_bytes() for path in before if path != Path("log")} == {
        path: data for path, data in before.items() if path != Path("log")
    }
    with pytest.raises(OptionError, match="NUL"):
        chat.save("a\0b")


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("flag", ["--dump-logits", "--trace"])
def test_options(flag: str, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = [word for word in WORDS if flag != "--dump-logits" or word not in ("--draft", "3", "--mtp", "mtp")]
    if name == "mtp" and words != WORDS:
        return
    assert run.main([*words, flag, name], FakeLoader()) == 1
    assert capfd.readouterr().err.splitlines()[0] == f"ie-run: {flag} {name}: {REFUSED[name]}"


def test_the_base_file_of_ppl(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("link", "hard", "log", "folder", "pipe", "none/x"):
        assert ppl.main([WORDS[0], "-f", "text", "--kl-divergence-base", name], FakeLoader()) == 1
        expected = f"ie-ppl: --kl-divergence-base {name}: {REFUSED[name]}"
        assert capfd.readouterr().err.splitlines()[0] == expected
    assert ppl.main([WORDS[0], "--kl-divergence", "--kl-divergence-base", "pipe"], FakeLoader()) == 1
    assert capfd.readouterr().err == "ie-ppl: pipe: not a regular file\n"


def test_the_standard_input_is_a_file_too() -> None:
    code = "import sys; from ie.cli.ppl import main; sys.exit(main())"
    words = ["a-00001-of-00002.gguf", "-f", "-", "--kl-divergence-base", "text"]
    with open("text", "rb") as text:
        done = subprocess.run([sys.executable, "-c", code, *words], stdin=text, capture_output=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    expected = b"ie-ppl: --kl-divergence-base text: is --file, which is read: name another file\n"
    assert (done.returncode, done.stderr) == (1, expected)


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("pipe", "pipe: not a regular file"),
        ("folder", "folder: not a regular file"),
        ("/dev/full", "/dev/full: not a regular file"),
        ("none/x", "none/x: No such file or directory"),
        ("~nobody-of-that-name/x", "~nobody-of-that-name/x: there is no such home directory. Set IE_LOG to a file that"
         " can be written"),
        ("stays", "stays: this file is read, or named on the command line"),
    ],
)  # fmt: skip
def test_a_log_that_is_none(
    log: str, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IE_LOG", log)
    assert run.main(["fake.gguf", "-p", "z", "--stop=stays", "-s", "7"], FakeLoader()) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == f"note: IE_LOG: {said}: nothing is logged" and len(lines) == 2
    assert run.main(["fake.gguf", "--tempo=stays"], FakeLoader()) == 1
    assert capfd.readouterr().err.splitlines()[1:] == [lines[0]]
    assert Path("stays").read_text() == "stays"


def test_an_entry_is_a_line() -> None:
    Console("ie-run").log("a\n2026-01-01T00:00:00+0000 ie-run[1] fine\x1b[31m\udcff é")
    assert (
        Path("log")
        .read_text()
        .removeprefix("log")
        .splitlines()[0]
        .endswith(r"] a\n2026-01-01T00:00:00+0000 ie-run[1] fine\x1b[31m\udcff é")
    )


# -- files that appear whole -------------------------------------------------------------------------------------------


def test_a_file_keeps_its_permissions() -> None:
    os.chmod("stays", 0o600)
    with AtomicFile("stays") as target:
        target.file.write(b"new")
        target.commit()
    assert Path("stays").read_bytes() == b"new" and stat.S_IMODE(os.stat("stays").st_mode) == 0o600


def test_what_is_in_the_way_of_an_unfinished_file_is_left_alone() -> None:
    Path(f"x.{os.getpid()}.part").symlink_to("stays")
    with AtomicFile("x") as target:
        target.file.write(b"new")
        target.commit()
    assert Path("x").read_bytes() == b"new" and Path("stays").read_text() == "stays"


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127])
def test_the_longest_name(name: str) -> None:
    with AtomicFile(name) as target:
        target.commit()
    assert Path(name).exists()


def test_a_closed_stream_takes_no_file() -> None:
    """With stderr closed, the next file that is opened would have its number, and get what C writes there."""
    code = (
        "import os, sys; from ie.cli import console\n"
        "def body(c, chosen):\n"
        "    fd = os.open('x', os.O_WRONLY | os.O_CREAT)\n"
        "    os.write(2, b'lost')\n"
        "    return 0 if fd > 2 else 3\n"
        "sys.exit(console.run('ie-doctor', [], body))"
    )
    done = subprocess.run(["bash", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, code],
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 0 and Path("x").read_bytes() == b""


def test_open_regular() -> None:
    for name in ("pipe", "folder", "/dev/null"):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
            with pytest.raises(OSError, match="not a regular file"):
                paths.open_regular(name, flags)
    with pytest.raises(OSError, match="not a file name"):
        paths.open_regular("a\0", os.O_RDONLY)
    with pytest.raises(FileNotFoundError):
        paths.open_regular("none", os.O_RDONLY)
    os.close(paths.open_regular("new", os.O_WRONLY | os.O_CREAT, 0o600))
    assert stat.S_IMODE(os.stat("new").st_mode) == 0o600


def test_the_log_is_never_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another part of a split model, by the name of the first; the file that the standard input comes from."""
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    text = tmp_path / "text"
    for file in (first, second, text):
        file.write_bytes(b"kept")
    for log, words in ((second, [str(first)]), (second, [f"--model={first}"]), (text, ["m.gguf"])):
        monkeypatch.setenv("IE_LOG", str(log))
        with text.open("rb") as given:
            done = subprocess.run(
                [sys.executable, "-c", RUN, *words, "-n", "1"],
                stdin=given, cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
        assert done.returncode == 1
        assert f"note: IE_LOG: {log}: this file is read, or named on the command line: nothing is logged" in done.stderr
        assert log.read_bytes() == b"kept"
