"""The process that renders templates and encodes texts, from its own point of view.

Owns: the loop that reads a request, answers it and never lets a failure of a library out as anything but a message.
Templates come with the model and the libraries are not ours: here they may take what time and memory they want, the
process that started this one puts an end to it (process.py). Does not own what is done: chat.py, codec.py.

A message is 8 bytes of length and as many bytes. Requests are pickled, from the one who started this process; answers
are plain: a byte for what they are, then UTF-8 text or int32 ids. The first message says that requests may come.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import struct
import time
from typing import Any

LENGTH = struct.Struct("<Q")
READY, TEXT, IDS, REFUSED, BROKEN, NO_MEMORY = b"!", b"t", b"i", b"r", b"b", b"m"
OPEN_FILES = 64
PARENT_DIES = 1  # PR_SET_PDEATHSIG


def read_exactly(fd: int, n: int) -> bytes:
    """n bytes; EOFError when the other side is gone."""
    parts = []
    while n:
        part = os.read(fd, min(n, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _confine(parent: int) -> None:
    """What this process may do no more. A limit that the system lacks is not set.

    It ends when the other side of the socket is gone, which it sees between two requests. With `parent` (not 0) it ends
    with the thread that started it, at once: for one that lives as long as its process."""
    import resource

    for name, value in (("RLIMIT_CORE", 0), ("RLIMIT_FSIZE", 0), ("RLIMIT_NOFILE", OPEN_FILES)):
        if hasattr(resource, name):
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            least = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (least, least))
    if not parent:
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PARENT_DIES, signal.SIGKILL)
    except (ImportError, OSError, AttributeError):
        return
    if os.getppid() != parent:  # it was gone before
        os._exit(0)


def _limit(seconds: float, amount: int) -> None:
    """Set the soft limits of CPU time and address space to what is used so far and so much more."""
    import resource

    cpu = math.ceil(time.process_time() + seconds) + 5  # should nobody be left to end it
    _lower(resource.RLIMIT_CPU, cpu)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _lower(resource.RLIMIT_AS, used + amount)


def _lower(kind: int, value: int) -> None:
    """Set a soft limit, as far as the hard one allows."""
    import resource

    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _send(fd: int, answer: bytes) -> None:
    write_all(fd, LENGTH.pack(len(answer)))
    write_all(fd, answer)


def _answer(tokenizer: Any, kind: str, args: tuple[Any, ...], options: dict[str, Any]) -> bytes:
    from . import chat

    if kind == "encode":
        return IDS + _packed(tokenizer.encode(*args, **options))
    if kind == "encode_chat":
        return IDS + _packed(chat.encode_chat(tokenizer, *args, **options))
    return TEXT + chat.apply_chat_template(tokenizer, *args, **options).encode("utf-8", "surrogatepass")


def _packed(ids: list[int]) -> bytes:
    return struct.pack(f"<{len(ids)}i", *ids)


def serve(fd: int, tokenizer: Any) -> None:
    """Answer requests until the other side closes its end."""
    from ..errors import TokenizerError

    _send(fd, READY)
    while True:
        try:
            request = read_exactly(fd, LENGTH.unpack(read_exactly(fd, LENGTH.size))[0])
        except EOFError:
            return
        try:
            seconds, memory, *what = pickle.loads(request)
            _limit(seconds, memory)
            answer = _answer(tokenizer, *what)
        except TokenizerError as error:
            answer = REFUSED + str(error).encode("utf-8", "replace")
        except MemoryError:
            answer = NO_MEMORY
        except BaseException as error:  # a panic of a library in Rust is no Exception
            answer = BROKEN + (str(error) or type(error).__name__).encode("utf-8", "replace")[:2000]
        del request
        _send(fd, answer)
        del answer


def main(fd: int, vocabulary: int, parent: int) -> None:
    """`fd`: the socket to the parent. `vocabulary`: a file with the pickled vocabulary and template. `parent`: see
    `_confine`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _confine(parent)
    from .codec import VocabTokenizer

    with os.fdopen(vocabulary, "rb") as file:
        vocab, template = pickle.load(file)
    tokenizer = VocabTokenizer(vocab, template)
    try:
        tokenizer.prepare()  # while the weights are loaded: whoever started this is likely to have a text
    except BaseException:
        tokenizer = VocabTokenizer(vocab, template)  # the first request says what is wrong
    try:
        serve(fd, tokenizer)
    finally:
        os._exit(0)
