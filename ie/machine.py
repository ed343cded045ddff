"""Facts about the machine this process runs on: cores, CPU flags, memory.

Owns: reading /proc and /sys, and nothing measured. What is chosen from these facts is decided in ie/options.py by pure
functions; which instruction sets the kernels can use here, the compiled library itself knows.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """What a run can count on."""

    arch: str
    cpu_name: str
    cores: int  # physical cores this process may use, a container's quota applied; at least 1
    threads: int  # hardware threads this process may use
    flags: frozenset[str]  # as in /proc/cpuinfo


def this_machine() -> Machine:
    """Reads the facts; a fact that cannot be read gets its weakest value."""
    name, flags = _cpuinfo()
    usable = os.sched_getaffinity(0)
    return Machine(
        arch=platform.machine(),
        cpu_name=name,
        cores=max(1, min(_physical(usable), _quota())),
        threads=len(usable),
        flags=flags,
    )


def free_memory() -> int:
    """Bytes that can be allocated without swapping: the kernel's estimate, or less where a control group allows less.

    Where the kernel gives no estimate: all physical memory.
    """
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        free = min(free, max(0, int(limit) - int(used)))
    return free


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


def _quota() -> int:
    """Whole cores that the control group grants; a very large number when it sets no limit."""
    words = _read("/sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        return max(1, int(words[0]) // int(words[1]))
    return 1 << 20
