"""The history of the line editor: messages of earlier conversations, in a file of the cache folder.

Owns: opening, reading and writing that file so that nothing that is wrong with it disturbs a conversation. The format
is prompt_toolkit's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from .. import paths
from ..errors import IeError
from .console import describe


class _KeptHistory(FileHistory):
    """`failure`: why the last message could not be written; empty when it was."""

    failure = ""

    def load_history_strings(self) -> Iterable[str]:
        try:
            os.close(paths.open_regular(self.filename, os.O_RDONLY))  # type: ignore[arg-type]
            return super().load_history_strings()
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        try:
            os.close(paths.open_regular(self.filename, os.O_WRONLY))  # type: ignore[arg-type]
            super().store_string(string)
        except OSError as error:
            self.failure = describe(OSError(error.errno, error.strerror, str(self.filename)))


def open_history() -> tuple[History, str]:
    """The history and why it is not kept in its file, if it is not."""
    try:
        path = paths.history_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Messages are nobody else's business.
        os.close(paths.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        return _KeptHistory(path), ""
    except (IeError, OSError) as error:
        return InMemoryHistory(), describe(error)
