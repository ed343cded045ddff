"""Kernel arguments as words of a command line, and their check against a kernel's metadata.

Owns: the notation. A scalar is `u32:7`, `f32:0.5` or `bytes:00ff..`; a buffer is `zeros:f32:1024`, `iota:u32:64`,
`random:f32:1024:SEED` or a .npy file, followed by `=>FILE.npy` or `=>-` where its contents are wanted afterwards. Every
error is one line that names the word.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .elf import Kernel
from .errors import SimError
from .info import explicit_arguments

Array = np.ndarray[Any, Any]
TYPES = {
    "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "u32": np.uint32, "i32": np.int32,
    "u64": np.uint64, "i64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
MOST_BYTES = 1 << 35
"""The card's memory."""
MOST_DIGITS = 20
"""Of a count or seed; no number of 64 bits has more."""
SHOWN = 60
POINTERS = ("global_buffer", "dynamic_shared_pointer")


@dataclass(frozen=True)
class Argument:
    """data: what is passed by value, or the contents of a buffer. save: where that goes afterwards, `-` is stdout."""

    word: str
    data: Array
    buffer: bool
    save: str = ""


def short(word: str) -> str:
    """In quotes, for a message; what is long is cut."""
    return repr(word if len(word) <= SHOWN else word[:SHOWN] + "...")


def regular(name: str | Path) -> bool:
    """Whether the file is there. Raises SimError if it is a pipe or a device: nobody would write or read there."""
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise SimError(f"{name}: a pipe, socket or device, expected a regular file")
    return True


def number_type(name: str, word: str) -> np.dtype[Any]:
    if name not in TYPES:
        raise SimError(f"argument {short(word)}: {short(name)} is no type; the types are {', '.join(TYPES)}")
    return np.dtype(TYPES[name])


def scalar(word: str, kind: str, text: str) -> Argument:
    if kind == "bytes":
        try:
            data = np.frombuffer(bytes.fromhex(text), np.uint8)
        except ValueError:
            raise SimError(f"argument {short(word)}: {short(text)} are no hexadecimal bytes") from None
        return Argument(word, data, False)
    dtype = number_type(kind, word)
    try:
        value: Any = float(text) if dtype.kind == "f" else int(text, 0)
    except ValueError:
        what = "number" if dtype.kind == "f" else "whole number"
        raise SimError(f"argument {short(word)}: {short(text)} is no {what}") from None
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            data = np.array([value], dtype)
        # Infinity has to be named: a number that is too large is a mistake.
        fits = bool(np.isfinite(data[0])) or not any(c.isdecimal() for c in text)
    else:
        limits = np.iinfo(dtype)
        fits = limits.min <= value <= limits.max
        data = np.array([value if fits else 0], dtype)
    if not fits:
        least = 0 if dtype.kind == "u" else -greatest(dtype) - (dtype.kind == "i")
        raise SimError(f"argument {short(word)}: {kind} goes from {least} to {greatest(dtype)}")
    return Argument(word, data, False)


def greatest(dtype: np.dtype[Any]) -> Any:
    """The greatest finite number of a type."""
    return np.finfo(dtype).max.item() if dtype.kind == "f" else np.iinfo(dtype).max


def zeros(count: int, dtype: np.dtype[Any], seed: int) -> Array:
    return np.zeros(count, dtype)


def iota(count: int, dtype: np.dtype[Any], seed: int) -> Array:
    return np.arange(count).astype(dtype)


def random(count: int, dtype: np.dtype[Any], seed: int) -> Array:
    """Floats of a standard normal distribution, integers of every value alike."""
    generator = np.random.default_rng(seed)
    if dtype.kind == "f":
        return generator.standard_normal(count, np.float32).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, count, dtype, endpoint=True)


FILLS: dict[str, Callable[[int, np.dtype[Any], int], Array]] = {"zeros": zeros, "iota": iota, "random": random}


def filled(word: str, kind: str, text: str) -> Array:
    """`f32:1024` after the name of a fill, with a seed after `random`."""
    parts = text.split(":")
    if len(parts) not in ((2, 3) if kind == "random" else (2,)) or not all(
        p.isascii() and p.isdecimal() for p in parts[1:]
    ):
        raise SimError(f"argument {short(word)}: expected {kind}:TYPE:COUNT{'[:SEED]' if kind == 'random' else ''}")
    if len(parts) == 3 and len(parts[2]) > MOST_DIGITS:
        raise SimError(f"argument {short(word)}: a seed has at most {MOST_DIGITS} digits")
    dtype, count = number_type(parts[0], word), int(parts[1][: MOST_DIGITS + 1])
    most = MOST_BYTES // dtype.itemsize
    if not 1 <= count <= most:
        raise SimError(f"argument {short(word)}: a buffer has 1 to {most} elements of this type")
    if kind == "iota" and count - 1 > greatest(dtype):
        raise SimError(f"argument {short(word)}: {parts[0]} goes to {greatest(dtype)}")
    try:
        return FILLS[kind](count, dtype, int(parts[2]) if len(parts) == 3 else 0)
    except MemoryError:
        raise SimError(f"argument {short(word)}: not enough memory") from None


def from_file(word: str, name: str) -> Array:
    try:
        regular(name)
        data = np.load(name, allow_pickle=False)
    except SimError:
        raise
    except OSError as e:
        raise SimError(f"{name}: {e.strerror or 'no .npy file'}") from None
    except MemoryError:
        raise SimError(f"{name}: not enough memory") from None
    except Exception as e:  # numpy reads the header with a parser that raises whatever it likes
        raise SimError(f"{name}: no .npy file that can be read: {str(e).splitlines()[0] if str(e) else e}") from None
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "uif" or not data.size:
        raise SimError(f"{name}: no array of numbers that a buffer can hold")
    return np.ascontiguousarray(data, data.dtype.newbyteorder("="))


def parse(word: str) -> Argument:
    """One argument of the command line. Raises SimError."""
    source, arrow, save = word.partition("=>")
    kind, colon, text = source.partition(":")
    if arrow and not save:
        raise SimError(f"argument {short(word)}: nothing stands behind =>; it takes a .npy file or -")
    if not arrow and source.endswith("="):
        raise SimError(f"argument {short(word)}: put it in quotes, the shell takes > for itself")
    if kind in FILLS:
        return Argument(word, filled(word, kind, text), True, save)
    if source.endswith(".npy"):
        return Argument(word, from_file(word, source), True, save)
    if kind not in TYPES and kind != "bytes" or not colon:
        expected = f"{', '.join((*TYPES, 'bytes'))}:VALUE, {', '.join(FILLS)}:TYPE:COUNT or a .npy file"
        raise SimError(f"argument {short(word)}: expected {expected}")
    if arrow:
        raise SimError(f"argument {short(word)}: only a buffer has contents to save")
    return scalar(word, kind, text)


def writable(argument: Argument) -> None:
    """Raises SimError if the file that a buffer shall go to cannot be made: better before the run than behind it."""
    if argument.save in ("", "-"):
        return
    path = Path(argument.save)
    try:
        fresh = not regular(path)
        with path.open("ab"):
            pass
        if fresh:
            path.unlink()
    except (OSError, ValueError) as e:
        raise SimError(f"{argument.save}: {getattr(e, 'strerror', None) or e}") from None


def same(a: str, b: str) -> bool:
    """Whether two names are one file, by whatever links."""
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):
        return False


def check_targets(given: Sequence[Argument], code: str) -> None:
    """Raises SimError if a file cannot be written, is the code object or what another buffer is read from, or two
    buffers shall go to the same one. A buffer may go back to its own file."""
    seen: dict[str, int] = {}
    for i, argument in enumerate(given):
        writable(argument)
        path = os.path.realpath(argument.save)
        if argument.save not in ("", "-"):
            if same(argument.save, code):
                raise SimError(f"{argument.save}: this is the code object: name another file")
            for k, other in enumerate(given):
                if k != i and same(argument.save, other.word.partition("=>")[0]):
                    raise SimError(f"{argument.save}: argument {k} is read from this file: name another")
            if path in seen:
                raise SimError(f"{argument.save}: arguments {seen[path]} and {i} would go to the same file")
            seen[path] = i


def save(path: str, values: Array) -> None:
    """A .npy file that appears whole or not at all; what is no regular file is written as it is. SimError."""
    try:
        if os.path.lexists(path) and not os.path.isfile(path):
            with open(path, "wb") as target:
                np.save(target, values)
            return
        place = Path(os.path.realpath(path))
        part = place.with_name(f"{place.name[:200]}.{os.getpid()}.part")
        try:
            with open(part, "xb") as target:
                if place.exists():
                    os.fchmod(target.fileno(), place.stat().st_mode & 0o7777)
                np.save(target, values)
            os.replace(part, place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as e:
        raise SimError(f"{path}: {getattr(e, 'strerror', None) or e}") from None


def check(kernel: Kernel, given: Sequence[Argument]) -> None:
    """Raises SimError if number, kinds or sizes are not what the kernel takes."""
    wanted = explicit_arguments(kernel)
    if not kernel.args and kernel.kernarg_bytes:
        raise SimError(f"kernel {kernel.name}: no metadata for its {kernel.kernarg_bytes} bytes of arguments")
    if len(wanted) != len(given):
        kinds = ", ".join("a buffer" if w["kind"] in POINTERS else f"{w['size']} bytes" for w in wanted)
        listed = f": {kinds}" if kinds else ""
        raise SimError(f"kernel {kernel.name} takes {len(wanted)} arguments{listed}; {len(given)} given")
    total = sum(argument.data.nbytes for argument in given if argument.buffer)
    if total > MOST_BYTES:
        raise SimError(f"the buffers have {total} bytes, the card has {MOST_BYTES}")
    for i, (want, have) in enumerate(zip(wanted, given, strict=True)):
        pointer = want["kind"] in POINTERS and want["size"] == 8
        where = f"argument {i} of kernel {kernel.name}, {short(have.word)}"
        if have.buffer and not pointer:
            raise SimError(f"{where}: the kernel takes a value of {want['size']} bytes, no buffer")
        if not have.buffer and have.data.nbytes != want["size"]:
            what = "a buffer" if pointer else f"a value of {want['size']} bytes"
            raise SimError(f"{where}: the kernel takes {what}, this has {have.data.nbytes} bytes")
        if not have.buffer and pointer and have.data.dtype != np.uint64:
            raise SimError(f"{where}: the kernel takes a buffer (or an address, as u64:0)")
