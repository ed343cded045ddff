"""The tensors that a model is made of, by name, wherever they lie: in one file, or some of them in another.

Owns: which file each name comes from. Nothing is changed in a file that is open: what is taken from elsewhere makes a
new set. Does not own the files, which must stay open as long as the set is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .container import GgufFile, TensorInfo


class TensorSet(Mapping[str, TensorInfo]):
    """Read-only mapping of names to tensors. `path`: the model's file, which messages name; `elsewhere`: the file of
    each tensor that lies in another one."""

    def __init__(
        self, path: str, tensors: Mapping[str, TensorInfo], elsewhere: Mapping[str, str] | None = None
    ) -> None:
        self.path, self._tensors, self._elsewhere = path, dict(tensors), dict(elsewhere or {})

    @staticmethod
    def of(gguf: GgufFile) -> TensorSet:
        """All tensors of a file."""
        return TensorSet(gguf.path, gguf.tensors)

    def with_block(self, prefix: str, other: GgufFile) -> TensorSet:
        """The tensors whose names begin with `prefix` from another file, in place of those that are here."""
        theirs = {name: info for name, info in other.tensors.items() if name.startswith(prefix)}
        ours = {name: info for name, info in self._tensors.items() if not name.startswith(prefix)}
        kept = {name: path for name, path in self._elsewhere.items() if name in ours}
        return TensorSet(self.path, ours | theirs, kept | dict.fromkeys(theirs, other.path))

    def file_of(self, name: str) -> str:
        """The path of the file that a tensor lies in, or would."""
        return self._elsewhere.get(name, self.path)

    def named(self, name: str) -> str:
        """The file and the tensor, as messages begin."""
        return f"{self.file_of(name)}: tensor {name}"

    def __getitem__(self, name: str) -> TensorInfo:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
