"""The two environment variables, and the facts about the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ie import machine, paths
from ie.errors import ResourceError


@pytest.mark.parametrize(
    ("ie_cache", "xdg", "expected"),
    [
        ("/a/b", "/x", "/a/b"),
        ("~/b", "/x", "/home/u/b"),
        ("", "/x", "/x/ie"),
        (None, "/x", "/x/ie"),
        (None, "relative", "/home/u/.cache/ie"),
        (None, "", "/home/u/.cache/ie"),
        (None, None, "/home/u/.cache/ie"),
    ],
)
def test_cache(monkeypatch: pytest.MonkeyPatch, ie_cache: str | None, xdg: str | None, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    for name, value in (("IE_CACHE", ie_cache), ("XDG_CACHE_HOME", xdg)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert paths.cache_dir() == Path(expected)
    assert paths.models_dir() == Path(expected) / "models"


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("IE_CACHE", "~nobody-of-that-name/x")
    with pytest.raises(ResourceError, match="Set IE_CACHE"):
        paths.cache_dir()


def test_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths.log_file() is None
    monkeypatch.setenv("IE_LOG", "")
    assert paths.log_file() is None
    monkeypatch.setenv("IE_LOG", "/tmp/x.log")
    assert paths.log_file() == Path("/tmp/x.log")


def test_machine_facts() -> None:
    here = machine.this_machine()
    assert 1 <= here.cores <= here.threads == len(os.sched_getaffinity(0))
    assert here.arch and here.cpu_name
    assert machine.free_memory() > 0


@pytest.mark.parametrize(
    ("available", "limit", "used", "free"),
    [
        ("MemAvailable:  1000 kB", "max", "5", 1000 * 1024),
        ("MemAvailable:  1000 kB", "600000", "100000", 500000),
        ("MemAvailable:  1000 kB", "5", "600000", 0),
        ("MemAvailable:  1000 kB", "", "", 1000 * 1024),
    ],
)
def test_free_memory(monkeypatch: pytest.MonkeyPatch, available: str, limit: str, used: str, free: int) -> None:
    files = {"/proc/meminfo": available, "/sys/fs/cgroup/memory.max": limit, "/sys/fs/cgroup/memory.current": used}
    monkeypatch.setattr(machine, "_read", lambda path: files[path])
    assert machine.free_memory() == free


def test_free_memory_without_an_estimate_is_the_physical_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda path: "")
    assert machine.free_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", 1 << 20), ("200000 100000", 2), ("50000 100000", 1), ("", 1 << 20), ("junk", 1 << 20)],
)
def test_a_containers_quota(monkeypatch: pytest.MonkeyPatch, text: str, cores: int) -> None:
    monkeypatch.setattr(machine, "_read", lambda path: text if "cpu.max" in path else "")
    assert machine._quota() == cores


def test_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    monkeypatch.setattr(machine, "_read", lambda path: siblings[int(path.split("/cpu")[-1].split("/")[0])])
    assert machine._physical({0, 1, 2, 3}) == 2
    assert machine._physical({0, 2}) == 1
    monkeypatch.setattr(machine, "_read", lambda path: "")
    assert machine._physical({0, 1, 2}) == 3
