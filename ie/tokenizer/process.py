"""Rendering and encoding in a process that can be killed.

Owns: starting that process (worker.py), what it may take of time and memory, and what is said when it takes more or
dies. A chat template is a program that came with a file, and one operation inside C looks neither at a clock nor at
Ctrl-C; the libraries that encode text abort the process when memory runs out. So both run where they can be ended from
outside. Once it has run a template the process is not believed: its answers are plain numbers and text, and ids are
compared with the vocabulary. Does not own: what is rendered and encoded, nor decoding, which is done here.

The process is started afresh (not forked: the program may have threads by then), with the vocabulary in a file in
memory, as soon as a model is opened; it gets ready while weights are loaded.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import TokenizerError
from . import worker
from .codec import VocabTokenizer
from .vocab import Vocab

TEMPLATE_SECONDS = 10.0  # of CPU time
TEMPLATE_MEMORY = 1 << 30  # bytes beyond what the process takes when it is ready
TEXT_SECONDS, SECONDS_PER_MB = 60.0, 10.0  # of CPU time, for encoding
TEXT_MEMORY, MEMORY_PER_BYTE = 1 << 30, 256
WALL = 3.0  # times the CPU time, on a machine that does other things too
START_SECONDS = 60.0  # of CPU time, until it is ready
MAX_ANSWER = 1 << 30  # bytes


class TextProcess:
    """The process of one vocabulary; one request at a time, from any thread."""

    def __init__(self, vocab: Vocab, template: str | None) -> None:
        self._contents: Any = (vocab, template)
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._ready = False
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes], socket.socket], TextProcess] | None = None

    def start(self) -> None:
        """Begin to get ready; returns at once. TokenizerError when no process can be had."""
        if self._child is not None and self._child.poll() is None:
            return
        self.close()
        code = "import sys; sys.path[:] = {!r}; from ie.tokenizer.worker import main; main({}, {}, {})"
        package = str(Path(__file__).resolve().parents[2])
        ours, theirs = socket.socketpair()
        try:
            with _in_memory(pickle.dumps(self._contents, pickle.HIGHEST_PROTOCOL)) as vocabulary, theirs:
                lasting = threading.current_thread() is threading.main_thread()
                program = code.format([package, *sys.path], theirs.fileno(), vocabulary, os.getpid() if lasting else 0)
                self._child = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", program],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), vocabulary),
                    env={"TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0", "LC_ALL": "C.UTF-8"},
                    start_new_session=True,  # Ctrl-C of the terminal is for the one who asked
                )
        except (OSError, ValueError) as error:
            ours.close()
            raise TokenizerError(f"no process for encoding texts can be started: {error}") from None
        self._socket = ours
        self._finalizer = weakref.finalize(self, _end, self._child, ours)

    def ask(self, what: str, seconds: float, memory: int, kind: str, *args: Any, **options: Any) -> bytes:
        """The answer to a request (see `worker`), which may take so much CPU time and so many bytes more than now.

        `what` the request is about, for messages. TokenizerError: what the process refused, or how it ended.
        Anything else that ends the waiting, Ctrl-C first of all, ends the process too.
        """
        request = pickle.dumps((seconds, memory, kind, args, options), pickle.HIGHEST_PROTOCOL)
        with self._lock:
            try:
                self.start()
                answer = self._exchange(request, what, seconds)
            except BaseException:
                self.close()
                raise
            if answer[:1] in (worker.NO_MEMORY, worker.BROKEN):  # while nobody else's request is on its way
                self.close()
        mark, body = answer[:1], answer[1:]
        if mark == worker.REFUSED:
            raise TokenizerError(body.decode("utf-8", "replace"))
        if mark == worker.NO_MEMORY:
            raise TokenizerError(f"{what}: needs too much memory")
        if mark == worker.BROKEN:
            words = " ".join(body.decode("utf-8", "replace").split())[:300]
            raise TokenizerError(f"{what}: the library that does it failed: {words}")
        return body

    def _exchange(self, request: bytes, what: str, seconds: float) -> bytes:
        """Send a request and take the answer."""
        child, channel = self._child, self._socket
        assert child is not None and channel is not None
        if not self._ready:
            if self._receive(b"", "the vocabulary", START_SECONDS) != worker.READY:
                raise TokenizerError("the vocabulary: the process that encodes texts gave a wrong answer")
            self._ready = True
        return self._receive(worker.LENGTH.pack(len(request)) + request, what, seconds)

    def _receive(self, request: bytes, what: str, seconds: float) -> bytes:
        child, channel = self._child, self._socket
        assert child is not None and channel is not None
        channel.setblocking(False)
        data, got, need = memoryview(request), bytearray(), worker.LENGTH.size
        poll = select.poll()  # descriptors of a large program do not fit into select
        poll.register(channel)
        cpu, end = _cpu_seconds(child.pid) + seconds, time.monotonic() + WALL * seconds
        while data or len(got) < need:
            poll.modify(channel, select.POLLIN | (select.POLLOUT if data else 0))
            events = sum(event for _, event in poll.poll(250))
            try:
                if events & select.POLLOUT:
                    data = data[channel.send(data[: 1 << 20]) :]
                if events & ~select.POLLOUT:
                    part = channel.recv(1 << 20)
                    if not part:
                        raise ConnectionResetError
                    got += part
            except BlockingIOError:
                continue
            except OSError:
                raise TokenizerError(f"{what}: {self._end_of(child)}") from None
            if need == worker.LENGTH.size and len(got) >= need:
                need += worker.LENGTH.unpack(got[:need])[0]
            if not len(got) <= need <= MAX_ANSWER or need == worker.LENGTH.size < len(got):
                raise TokenizerError(f"{what}: the process that does it gave a wrong answer")
            if _cpu_seconds(child.pid) > cpu or time.monotonic() > end:
                raise TokenizerError(f"{what}: not done after {round(seconds) if seconds >= 1 else seconds} s")
        return bytes(got[worker.LENGTH.size :])

    @staticmethod
    def _end_of(child: subprocess.Popen[bytes]) -> str:
        try:
            status = child.wait(5)
        except subprocess.TimeoutExpired:
            return "the process that does it no longer answers"
        if status in (-signal.SIGABRT, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS):
            return f"needs too much memory, or broke the library that does it ({signal.Signals(-status).name})"
        return f"the process that does it ended with status {status}"

    def close(self) -> None:
        """End the process, if there is one. A later request starts another."""
        if self._finalizer is not None:
            self._finalizer()
        self._child = self._socket = self._finalizer = None
        self._ready = False


def _end(child: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.close()
    child.kill()
    child.wait()


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[int]:
    """A descriptor of a file that holds the data and is nowhere in a folder."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("vocabulary")
        worker.write_all(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            yield fd
        finally:
            os.close(fd)
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(0)
        yield file.fileno()


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


class IsolatedTokenizer(VocabTokenizer):
    """A tokenizer whose texts and templates are worked on in a process of their own; ids become text here.

    `start` lets that process get ready; otherwise it starts with the first text. Close it when done.
    """

    def __init__(self, vocab: Vocab, chat_template: str | None, name: str) -> None:
        super().__init__(vocab, chat_template)
        self._process = TextProcess(vocab, chat_template)
        self._name = name

    def start(self) -> None:
        self._process.start()

    def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        size = len(text) if isinstance(text, bytes) else 4 * len(text)
        body = self._process.ask(
            f"{self._name}: the text could not be tokenised",
            TEXT_SECONDS + SECONDS_PER_MB * size / 1e6,
            TEXT_MEMORY + MEMORY_PER_BYTE * size,
            "encode",
            text,
            add_special=add_special,
            parse_special=parse_special,
        )
        return self._ids(body)

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        body = self._process.ask("chat template", TEMPLATE_SECONDS, TEMPLATE_MEMORY, "render", messages, **options)
        return body.decode("utf-8", "surrogatepass")

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        size = len(pickle.dumps(messages))
        seconds = TEMPLATE_SECONDS + SECONDS_PER_MB * size / 1e6
        memory = TEMPLATE_MEMORY + MEMORY_PER_BYTE * size
        return self._ids(self._process.ask("chat template", seconds, memory, "encode_chat", messages, **options))

    def _ids(self, body: bytes) -> list[int]:
        if len(body) % 4:
            raise TokenizerError(f"{self._name}: the process that encodes texts gave a wrong answer")
        ids = np.frombuffer(body, "<i4")
        if ids.size and not (ids.min() >= 0 and ids.max() < self.n_vocab):
            raise TokenizerError(f"{self._name}: the process that encodes texts gave an id outside the vocabulary")
        return list(map(int, ids.tolist()))

    def close(self) -> None:
        self._process.close()
