"""Builds the training corpus: openly licensed Python code and English prose from Debian packages, as token ids.

Owns: the list of sources with their licences, extraction of text from each kind of file, the filters, the held-out
split, the manifest, and the packed id files. It does not own the tokenizer (`tokenizer.py`) or how ids are batched
(`train.py`).

    python -m tiny_models.train.data --work DIR     # downloads about 320 MB, leaves DIR/ids/*.xz and DIR/manifest.json

Everything is fetched by package name with `apt-get download`; the manifest records what came: package, version,
sha256 of the package file, licence, documents and bytes kept.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import html
import json
import lzma
import re
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

CODE, PROSE = "code", "prose"

#: Packages whose Python files are used, by the licence of the upstream files; EXACT_LICENCE names two more exactly.
EXACT_LICENCE = {"python3-spyder": "MIT", "python3-pil": "MIT-CMU"}
CODE_PACKAGES = {
    "PSF": "libpython3.11-stdlib libpython3.11-minimal libpython3.11-testsuite python3-matplotlib",
    "BSD": (
        "python3-django python3-sympy python3-pandas python3-numpy python3-sklearn python3-networkx python3-astropy "
        "python3-dask python3-distributed python3-flask python3-jinja2 python3-werkzeug python3-httpx python3-click "
        "python3-sphinx python3-pygments python3-ipython python3-notebook python3-celery python3-kombu python3-scrapy "
        "python3-numba python3-babel python3-markdown python3-cherrypy3 python3-torch python3-skbio python3-sunpy "
        "python3-astroquery python3-gammapy python3-vispy python3-djangorestframework python3-nbconvert "
        "python3-dateutil python3-starlette python3-websockets python3-prompt-toolkit python3-seaborn "
        "python3-photutils python3-pint python3-mpmath python3-reportlab python3-whoosh python3-statsmodels "
        "python3-invoke python3-fabric python3-biopython python3-spyder"
    ),
    "MIT": (
        "python3-sqlalchemy python3-twisted python3-urllib3 python3-fastapi python3-pydantic python3-rich "
        "python3-textual python3-pytest python3-setuptools python3-redis mitmproxy python3-bs4 python3-marshmallow "
        "python3-peewee python3-alembic python3-bottle python3-discord python3-jedi python3-parso python3-nibabel "
        "python3-pyqtgraph python3-kivy python3-pymatgen python3-zarr python3-telethon python3-poetry "
        "python3-pendulum python3-pil python3-pydicom python3-thriftpy python3-attr"
    ),
    "Apache-2.0": (
        "python3-nova python3-neutron python3-cinder python3-keystone python3-glance python3-heat python3-swift "
        "python3-ironic python3-xarray python3-tornado python3-aiohttp python3-requests python3-boto3 cython3 "
        "python3-trio python3-openstackclient python3-openstacksdk python3-octavia python3-manila python3-designate "
        "python3-magnum python3-trove python3-tempest python3-libcloud python3-docker python3-coverage "
        "python3-cryptography cwltool python3-rally python3-mistral python3-senlin python3-os-brick "
        "python3-django-horizon"
    ),
}
#: Prose: package, licence, reader, and a pattern of the paths inside the package.
PROSE_PACKAGES = [
    ("r-cran-janeaustenr", "public domain", "austen", "*/data/Rdata.rdb"),
    ("sword-text-web", "public domain", "sword", "*.bzz"),
    ("jargon-text", "public domain", "text", "*/jargon.txt.gz"),
    ("dict-devil", "public domain", "text", "*/devil.dict.dz"),
    ("wordnet-base", "WordNet", "wordnet", "*/wordnet/data.*"),
    ("python3.11-doc", "PSF", "text", "*/_sources/*.rst.txt"),
    ("python-django-doc", "BSD", "html", "*.html"),
    ("postgresql-doc-15", "PostgreSQL", "html", "*.html"),
    ("sqlite3-doc", "public domain", "html", "*.html"),
    ("apache2-doc", "Apache-2.0", "html", "*/en/*.html"),
    ("erlang-doc", "Apache-2.0", "html", "*.html"),
    ("krb5-doc", "MIT", "html", "*.html"),
    ("rust-doc", "MIT or Apache-2.0", "html", "*/html/book/*.html"),
    ("rust-doc", "MIT or Apache-2.0", "html", "*/html/reference/*.html"),
    ("rust-doc", "MIT or Apache-2.0", "html", "*/html/nomicon/*.html"),
    *(
        (name, licence, "text", "*/_sources/*.txt")
        for licence, names in {
            "Apache-2.0": (
                "nova-doc neutron-doc keystone-doc cinder-doc ironic-doc heat-doc glance-doc swift-doc octavia-doc "
                "designate-doc llvm-14-doc clang-14-doc python-xarray-doc python-tornado-doc "
                "python-openstackclient-doc python-openstacksdk-doc cython-doc python-cryptography-doc "
                "python-pymongo-doc"
            ),
            "BSD": (
                "python-sympy-doc python-flask-doc python-celery-doc python-dask-doc python-distributed-doc "
                "sphinx-doc python-werkzeug-doc python-pint-doc varnish-doc"
            ),
            "MIT": "twisted-doc python-pytest-doc",
        }.items()
        for name in names.split()
    ),
]
#: Whole packages kept out of training, so that code is tested on projects the model has never seen.
HELD_OUT_PACKAGES = {"python3-flask", "python3-rich", "python3-httpx", "cwltool", "python3-pint", "python3-seaborn"}
#: Kept out of training because the project measures perplexity on it.
HELD_OUT_NOVEL = "Persuasion"

MAX_PROSE_SOURCE = 6_000_000
MAX_CODE_SOURCE = 7_000_000
SKIP_PATH = re.compile(
    r"/(_vendor|vendored|_vendored|extern|externals|locale|generated|migrations)/|lextab|yacctab|_tables?\.py"
)
EMAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
SPECIAL = re.compile(r"<\|(endoftext|im_start|im_end)\|>")


@dataclass
class Source:
    """One package of the corpus and what was kept of it."""

    package: str
    licence: str
    kind: str
    version: str = ""
    sha256: str = ""
    documents: int = 0
    bytes: int = 0
    held_out_bytes: int = 0
    readers: list[tuple[str, str]] = field(default_factory=list)


def sources() -> list[Source]:
    """All sources; a package with several path patterns is one source."""
    found: dict[str, Source] = {}
    for licence, names in CODE_PACKAGES.items():
        for name in names.split():
            found[name] = Source(name, EXACT_LICENCE.get(name, licence), CODE, readers=[("python", "*.py")])
    for name, licence, reader, pattern in PROSE_PACKAGES:
        found.setdefault(name, Source(name, licence, PROSE)).readers.append((reader, pattern))
    return list(found.values())


def fetch(work: Path, wanted: list[Source]) -> None:
    """Downloads the packages that are not there yet, unpacks them and notes version and digest."""
    debs, unpacked = work / "debs", work / "x"
    debs.mkdir(parents=True, exist_ok=True)
    missing = [s.package for s in wanted if not list(debs.glob(f"{s.package}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", "-q", *missing], cwd=debs, check=True)
    for source in wanted:
        deb = next(debs.glob(f"{source.package}_*.deb"))
        source.sha256 = hashlib.sha256(deb.read_bytes()).hexdigest()
        shown = subprocess.run(["dpkg-deb", "-f", deb, "Version"], capture_output=True, text=True, check=True)
        source.version = shown.stdout.strip()
        target = unpacked / source.package
        if not target.exists():
            target.mkdir(parents=True)
            subprocess.run(["dpkg", "-x", deb, target], check=True)


class _TextOf(HTMLParser):
    """Running text of a page: paragraphs, headings, list items and preformatted blocks, without scripts and menus."""

    BLOCK = {"p", "h1", "h2", "h3", "h4", "li", "dt", "dd", "tr", "pre", "div", "br", "td"}
    SKIP = {"script", "style", "nav", "head", "footer", "svg", "button", "select", "form"}

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self.skipping = 0
        self.pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.skipping += tag in self.SKIP
        self.pre += tag == "pre"
        if tag in self.BLOCK and not self.pre:
            self.out.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.skipping -= tag in self.SKIP and self.skipping > 0
        self.pre -= tag == "pre" and self.pre > 0
        if tag in self.BLOCK:
            self.out.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.out.append(data if self.pre else re.sub(r"\s+", " ", data))

    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self.out).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def read_text(path: Path) -> Iterator[str]:
    raw = path.read_bytes()
    yield _decode(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def read_html(path: Path) -> Iterator[str]:
    parser = _TextOf()
    parser.feed(_decode(path.read_bytes()))
    yield parser.text()


def read_python(path: Path) -> Iterator[str]:
    """A module without its licence header: tens of thousands of copies of one text teach nothing."""
    lines = _decode(path.read_bytes()).split("\n")
    head = 0
    while head < len(lines) and (lines[head].startswith("#") or not lines[head].strip()):
        head += 1
    if re.search(r"licen[cs]e|copyright", "\n".join(lines[:head]), re.I):
        lines = lines[head:]
    yield "\n".join(lines)


def read_wordnet(path: Path) -> Iterator[str]:
    """Definitions, one a line: 'interplay: reciprocal action and reaction', several thousand to a document."""
    entries = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(" ") or "|" not in line:
            continue
        left, gloss = line.split("|", 1)
        words = left.split(" ")
        names = [w.replace("_", " ") for w in words[4 : 4 + 2 * int(words[3], 16) : 2]]
        entries.append(f"{', '.join(names)}: {gloss.strip()}")
    for start in range(0, len(entries), 200):
        yield "\n".join(entries[start : start + 200]) + "\n"


def read_sword(path: Path) -> Iterator[str]:
    """A SWORD compressed text: blocks located by the 12-byte records (offset, size, unpacked size) of the .bzs file."""
    index = np.frombuffer(path.with_suffix(".bzs").read_bytes(), "<u4").reshape(-1, 3)
    packed = path.read_bytes()
    for offset, size, _ in index:
        if size:
            text = zlib.decompress(packed[offset : offset + size]).decode("utf-8", "replace")
            text = re.sub(r"<note.*?</note>|<title.*?</title>", "", text, flags=re.S)
            text = html.unescape(re.sub(r"<[^>]+>", " ", text))
            yield re.sub(r"\s*\n\s*", "\n", re.sub(r"[ \t]+", " ", text)).strip() + "\n"


def read_austen(path: Path) -> Iterator[str]:
    """Novels of an R lazy-load database: a 4-byte size and a zlib stream each, holding big-endian R strings."""
    packed, at = path.read_bytes(), 0
    while at + 4 < len(packed):
        stream = zlib.decompressobj()
        data = stream.decompress(packed[at + 4 :])
        at = len(packed) - len(stream.unused_data)
        lines, pos = [], data.find(b"\x00\x04\x00\x09")
        while pos >= 0:
            size = int.from_bytes(data[pos + 4 : pos + 8], "big")
            lines.append(data[pos + 8 : pos + 8 + size].decode("utf-8", "replace"))
            pos = data.find(b"\x00\x04\x00\x09", pos + 8 + size)
        yield "\n".join(lines) + "\n"


READERS: dict[str, Callable[[Path], Iterator[str]]] = {
    "text": read_text,
    "html": read_html,
    "python": read_python,
    "wordnet": read_wordnet,
    "sword": read_sword,
    "austen": read_austen,
}


def keep(text: str, kind: str) -> bool:
    """Drops what is too short, is data rather than text, or is mostly not ASCII."""
    if len(text) < 400 or (kind == CODE and len(text) > 200_000):
        return False
    lines = text.split("\n")
    if kind == CODE and (max(map(len, lines)) > 600 or len(text) / len(lines) > 80):
        return False
    ascii_part = sum(c < "\x7f" for c in text) / len(text)
    digits = sum(c.isdigit() for c in text) / len(text)
    return ascii_part > 0.95 and digits < 0.12


def clean(text: str) -> str:
    """No addresses of people, no spelled-out special tokens, Unix line ends."""
    text = text.replace("\r\n", "\n").replace("\x00", "")
    return SPECIAL.sub("", EMAIL.sub("user@example.org", text))


def _held_out(source: Source, text: str, digest: bytes) -> bool:
    if source.package in HELD_OUT_PACKAGES:
        return True
    if source.package == "r-cran-janeaustenr":
        return HELD_OUT_NOVEL.lower() in text[:400].lower()
    return digest[0] == 0  # one document in 256


def _files(root: Path, pattern: str) -> list[Path]:
    """Regular files below root that match (`*` crosses folders), in the order of a hash of their path."""
    names = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file() and not p.is_symlink()]
    names = [n for n in names if fnmatchcase(n, pattern) and not SKIP_PATH.search(n)]
    return [root / n for n in sorted(names, key=lambda n: hashlib.sha1(n.encode()).digest())]


def collect(work: Path, source: Source, seen: set[bytes]) -> Iterator[tuple[bool, str]]:
    """(held out, text) of each kept document, in the order of a hash of its path, up to the source's share."""
    root = work / "x" / source.package
    limit = MAX_CODE_SOURCE if source.kind == CODE else MAX_PROSE_SOURCE
    for reader, pattern in source.readers:
        for path in _files(root, pattern):
            for raw in READERS[reader](path):
                text = clean(raw)
                digest = hashlib.sha1(text.encode()).digest()
                if source.bytes > limit or digest in seen or not keep(text, source.kind):
                    continue
                seen.add(digest)
                held = _held_out(source, text, digest)
                source.documents += 1
                if held:
                    source.held_out_bytes += len(text.encode())
                else:
                    source.bytes += len(text.encode())
                yield held, text


def build_texts(work: Path) -> tuple[dict[str, list[str]], list[Source]]:
    """{"train-code" | "train-prose" | "held-code" | "held-prose": documents} and the filled-in sources."""
    wanted = sources()
    fetch(work, wanted)
    texts: dict[str, list[str]] = {f"{part}-{kind}": [] for part in ("train", "held") for kind in (CODE, PROSE)}
    seen: set[bytes] = set()
    for source in wanted:
        for held, text in collect(work, source, seen):
            texts[f"{'held' if held else 'train'}-{source.kind}"].append(text)
    return texts, wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for downloads, texts and ids")
    parser.add_argument("--vocab", type=int, default=8192)
    args = parser.parse_args()
    work: Path = args.work
    from tiny_models.train import tokenizer

    texts, used = build_texts(work)
    manifest: dict[str, object] = {"sources": [{k: v for k, v in vars(s).items() if k != "readers"} for s in used]}
    for name, documents in texts.items():
        print(f"{name}: {len(documents)} documents, {sum(map(len, documents)) / 1e6:.1f} M characters")
    sample = [d for name in ("train-code", "train-prose") for d in texts[name][:: 6 if name == "train-code" else 4]]
    tok = tokenizer.train(sample, args.vocab)
    tok.save(str(work / "tokenizer.json"))
    (work / "ids").mkdir(exist_ok=True)
    for name, documents in texts.items():
        ids = tokenizer.pack(tok, documents)
        (work / "ids" / f"{name}.xz").write_bytes(lzma.compress(ids.tobytes(), preset=6))
        manifest[name] = {
            "documents": len(documents),
            "bytes": sum(len(d.encode()) for d in documents),
            "tokens": len(ids),
        }
        print(name, manifest[name])
    (work / "manifest.json").write_text(json.dumps(manifest, indent=1))
    for name in ("held-code", "held-prose"):
        (work / f"{name}.txt").write_text("\n".join(texts[name]))


if __name__ == "__main__":
    main()
