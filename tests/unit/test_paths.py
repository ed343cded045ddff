"""The two environment variables, and the facts about the machine."""

from __future__ import annotations

import os
import resource
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
    assert 1 <= here.useful <= here.threads
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
    monkeypatch.setattr(machine, "_read", lambda path: files.get(path, ""))
    assert machine.free_memory() == free
    assert machine.memory_limit() == ("the control group" if free < 1000 * 1024 else "")


@pytest.mark.parametrize(("which", "name"), [("RLIMIT_AS", "ulimit -v"), ("RLIMIT_DATA", "ulimit -d")])
def test_limits_of_the_process_count_less_what_it_has(monkeypatch: pytest.MonkeyPatch, which: str, name: str) -> None:
    files = {"/proc/meminfo": "MemAvailable: 4194304 kB", "/proc/self/status": "VmSize:\t 1024 kB\nVmData:\t 1024 kB\n"}
    limits = {getattr(resource, which): 1 << 30}
    monkeypatch.setattr(machine, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits.get(kind, resource.RLIM_INFINITY), -1))
    assert machine.free_memory() == (1 << 30) - (1 << 20) - machine.STILL_MAPPED
    assert machine.memory_limit() == name
    limits[getattr(resource, which)] = 1000
    assert machine.free_memory() == 0
    limits.clear()
    assert (machine.free_memory(), machine.memory_limit()) == (4 << 30, "")


def test_the_limit_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, want in ((256 << 10, 256 << 10), (resource.RLIM_INFINITY, machine.NO_LIMIT)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, soft=soft: (soft, -1))
        assert machine.stack_limit() == want


def test_free_memory_without_an_estimate_is_the_physical_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda path: "")
    assert machine.free_memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", 1 << 20), ("200000 100000", 2), ("50000 100000", 0.5), ("", 1 << 20), ("junk", 1 << 20)],
)
def test_a_containers_quota(monkeypatch: pytest.MonkeyPatch, text: str, cores: float) -> None:
    monkeypatch.setattr(machine, "_read", lambda path: text if "cpu.max" in path else "")
    assert machine._quota() == cores


@pytest.mark.parametrize(
    ("quota", "cores", "useful"), [("max 100000", 4, 4), ("150000 100000", 1, 2), ("50000 100000", 1, 1)]
)
def test_threads_that_can_run_at_once(monkeypatch: pytest.MonkeyPatch, quota: str, cores: int, useful: int) -> None:
    """The default takes whole cores alone; what is asked for may use the rest of a quota too."""
    monkeypatch.setattr(machine, "_read", lambda path: quota if "cpu.max" in path else "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    here = machine.this_machine()
    assert (here.cores, here.useful, here.threads) == (cores, useful, 4)


def test_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    monkeypatch.setattr(machine, "_read", lambda path: siblings[int(path.split("/cpu")[-1].split("/")[0])])
    assert machine._physical({0, 1, 2, 3}) == 2
    assert machine._physical({0, 2}) == 1
    monkeypatch.setattr(machine, "_read", lambda path: "")
    assert machine._physical({0, 1, 2}) == 3
