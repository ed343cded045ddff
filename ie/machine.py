"""Facts about the machine this process runs on: cores, CPU flags, memory.

Owns: reading /proc and /sys, and nothing measured. What is chosen from these facts is decided in ie/cli/options.py by
pure functions; which instruction sets the kernels can use here, the compiled library itself knows.
"""

from __future__ import annotations

import math
import os
import platform
import re
import resource
from dataclasses import dataclass
from pathlib import Path

STILL_MAPPED = 64 << 20
"""Addresses set aside for Python's own modules and heap where a limit counts addresses rather than pages in use."""

NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Machine:
    """What a run can count on."""

    arch: str
    cpu_name: str
    cores: int  # physical cores this process may use, a container's quota applied; at least 1
    threads: int  # hardware threads this process may use
    useful: int  # most threads that can run at once: as many, but no more than a container's quota pays for
    flags: frozenset[str]  # as in /proc/cpuinfo


def this_machine() -> Machine:
    """Reads the facts; a fact that cannot be read gets its weakest value."""
    name, flags = _cpuinfo()
    usable = os.sched_getaffinity(0)
    quota = _quota()
    return Machine(
        arch=platform.machine(),
        cpu_name=name,
        cores=max(1, min(_physical(usable), int(quota))),
        threads=len(usable),
        useful=max(1, min(len(usable), math.ceil(quota))),
        flags=flags,
    )


def free_memory() -> int:
    """Bytes that can be allocated without swapping: the kernel's estimate, or less where a control group or a limit of
    this process (RLIMIT_AS, RLIMIT_DATA) allows less.

    Where the kernel gives no estimate: all physical memory.
    """
    return min(_rooms().values())


def memory_limit() -> str:
    """What makes free_memory() as small as it is, where that is not the machine's memory itself; else empty."""
    rooms = _rooms()
    return min(rooms, key=lambda name: rooms[name])


def stack_limit() -> int:
    """Bytes that the stack of the first thread may have, and that others get by default."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def _rooms() -> dict[str, int]:
    """Bytes that may still be allocated, by the name of what sets the bound; the machine's memory has none."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    rooms = {"": free}
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        rooms["the control group"] = max(0, int(limit) - int(used))
    status = _read("/proc/self/status")
    for name, which, line in _PROCESS_LIMITS:
        soft, _ = resource.getrlimit(which)
        found = re.search(rf"^{line}:\s*(\d+) kB$", status, re.M)
        if soft != resource.RLIM_INFINITY and found:
            rooms[name] = max(0, soft - int(found[1]) * 1024 - STILL_MAPPED)
    return rooms


_PROCESS_LIMITS = (
    ("ulimit -v", resource.RLIMIT_AS, "VmSize"),
    ("ulimit -d", resource.RLIMIT_DATA, "VmData"),
)
"""How the shell names a limit, which it is, and the line of /proc/self/status that says how much of it is used."""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _cpuinfo() -> tuple[str, frozenset[str]]:
    name, flags = "unknown CPU", frozenset[str]()
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = frozenset(value.split())
            break
    return name, flags


def _physical(cpus: set[int]) -> int:
    """Number of cores behind these hardware threads: threads that share a core count once."""
    cores = {_read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}
    return len(cores)


def _quota() -> float:
    """Processors' worth of time that the control group grants; a very large number when it sets no limit."""
    words = _read("/sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return 1 << 20
