"""What every block uses to emit commands: buffers, weights by their GGUF names, linear layers.

Owns: checking each tensor's shape and format when it is used, and remembering which were, so that missing and
unused tensors are both errors that name them. Emits plain commands; joining and fusing come later (`program`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import FormatError, ModelError
from ..formats import activation_of
from ..gguf import TensorInfo, TensorSet
from ..program import Buffer, Command, Matrix, Table, Vector, View
from ..program.step import ROWS
from .config import LayerConfig, ModelConfig

QUANTUM = 32  # values along K that share an activation scale: quantised rows are whole blocks of it


class Builder:
    """Collects the commands of one model."""

    def __init__(self, tensors: TensorSet, config: ModelConfig, slots: int = 16, prefix: str = "") -> None:
        self.tensors, self.config, self.slots = tensors, config, slots
        self.commands: list[Command] = []
        self.used: set[str] = set()
        self.layer = -1
        self.domain, self.row, self.skippable = ROWS, 0, False
        self.prefix = prefix  # of buffer names
        self._names: dict[str, int] = {}
        self._quantized: dict[View, View] = {}

    # ---- tensors ----

    def tensor(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        """The tensor `name`, which must have this shape (GGUF order: input dimension first)."""
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(
                f"{self.tensors.named(name)} is missing; {self.config.arch.name} needs it, shape {list(shape)}"
            )
        if info.shape != shape and {info.shape, shape} != {(shape[0],), (shape[0], 1)}:
            raise ModelError(f"{self.tensors.named(name)} has shape {list(info.shape)}, expected {list(shape)}")
        self.used.add(name)
        return info

    def has(self, name: str) -> bool:
        return name in self.tensors

    def spec(self, layer: int) -> LayerConfig:
        """Layer of the trunk, or the MTP block after it."""
        layers = self.config.layers
        if layer == len(layers) and self.config.mtp:
            return self.config.mtp
        return layers[layer]

    def matrix(self, name: str, m: int, k: int, parts: tuple[tuple[int, int], ...] = ()) -> Matrix:
        """A weight of m rows of k values; `parts`: only these (first row, rows), stacked."""
        info = self.tensor(name, (k, m))
        try:
            activation = activation_of(info.format)
        except FormatError as error:
            raise FormatError(f"{self.tensors.named(name)}: {error}") from error
        parts = parts or ((0, m),)
        starts = tuple(first for first, _ in parts)
        rows = tuple(n for _, n in parts)
        return Matrix((name,) * len(parts), rows, k, info.format.name, activation, starts if any(starts) else ())

    def vector(self, name: str, n: int) -> Vector:
        """F32 weights of n values."""
        info = self.tensor(name, (n,))
        if info.format.name not in ("F32", "F16", "BF16"):
            raise FormatError(f"{self.tensors.named(name)} is {info.format.name}, expected F32, F16 or BF16")
        return Vector((name,), n)

    def taps(self, name: str, taps: int, channels: int) -> Vector:
        """Convolution weights: F32 [taps, channels] in the file's order, taps contiguous."""
        info = self.tensor(name, (taps, channels))
        if info.format.name not in ("F32", "F16", "BF16"):
            raise FormatError(f"{self.tensors.named(name)} is {info.format.name}, expected F32, F16 or BF16")
        return Vector((name,), taps * channels)

    def table(self, name: str, rows: int, cols: int) -> Table:
        try:
            activation_of(self.tensor(name, (cols, rows)).format)
        except FormatError as error:
            raise FormatError(f"{self.tensors.named(name)}: {error}") from error
        return Table(name, cols)

    def check_all_used(self) -> None:
        """ModelError naming tensors that no block asked for: they would change the result if they were used."""
        extra = [n for n in self.tensors if n not in self.used]
        if extra:
            shown = ", ".join(extra[:4]) + (f" and {len(extra) - 4} more" if len(extra) > 4 else "")
            raise ModelError(
                f"{self.tensors.path}: tensors that {self.config.arch.name} does not use: {shown}; "
                "this kind of model is not supported, its output would be wrong"
            )

    # ---- commands ----

    def buffer(self, name: str, cols: int, dtype: str = "f32") -> View:
        """A new buffer of the current domain; a repeated name gets a number."""
        n = self._names[name] = self._names.get(name, -1) + 1
        return View.of(Buffer(self.prefix + (f"{name}.{n}" if n else name), dtype, cols, self.domain))

    def emit(self, op: str, domain: int | None = None, **args: Any) -> None:
        kept = {k: v for k, v in args.items() if v is not None}
        where = self.domain if domain is None else domain
        self.commands.append(Command(op, kept, self.layer, where, self.row, self.skippable))

    def rmsnorm(self, x: View, w: Vector, name: str) -> View:
        """Normalise each group of w.n values of x."""
        y = self.buffer(name, x.cols)
        self.emit("rmsnorm", x=x, w=w, y=y, width=w.n, eps=self.config.eps)
        return y

    def quantized(self, x: View) -> View:
        """x as Q8; one command however many layers read it."""
        if x not in self._quantized:
            q = self.buffer(f"{x.buffer.name.removeprefix(self.prefix)}.q8", x.cols, "q8")
            self.emit("quantize", x=x, yq=q)
            self._quantized[x] = q
        return self._quantized[x]

    def linear(
        self, x: View, name: str, m: int, bias: str | None = None, parts: tuple[tuple[int, int], ...] = ()
    ) -> View:
        """x W^T (+ bias when the file has that tensor), in the activation format that the weight's format reads.

        m: rows of the tensor; `parts`: only these (first row, rows) of it, stacked."""
        matrix = self.matrix(name, m, x.cols, parts)
        added = None
        if bias is not None and self.has(bias):
            added = self.vector(bias, m)
            if parts:
                added = replace(added, n=matrix.m, pieces=tuple((bias, first, n) for first, n in parts))
        return self.product(x, matrix, name.removesuffix(".weight"), added)

    def product(self, x: View, matrix: Matrix, name: str, bias: Vector | None = None) -> View:
        """x W^T (+ bias) in the activation format that the matrix reads."""
        source = self.quantized(x) if matrix.activation == "q8" else x
        y = self.buffer(name, matrix.m)
        self.emit("matmul", x=source, w=matrix, y=y, bias=bias)
        return y

    def expert_product(
        self, x: View, name: str, rows: int, part: tuple[int, int], route: View, per_slot: bool = False
    ) -> View:
        """Rows `part` (first, count) of each expert's matrix of `rows` rows, for the experts that `route` names.

        per_slot: x holds an input for each of them, one after the other; else all read the same. [used * count]."""
        moe = self.config.moe
        assert moe is not None
        k = x.cols // moe.n_used if per_slot else x.cols
        info = self.tensor(name, (k, rows, moe.n_expert))
        activation = activation_of(info.format)
        if activation == "q8" and k % QUANTUM:
            raise FormatError(f"{self.tensors.named(name)}: rows of {k} values are not whole blocks of {QUANTUM}")
        starts = tuple(e * rows + part[0] for e in range(moe.n_expert))
        w = Matrix((name,) * moe.n_expert, (part[1],) * moe.n_expert, k, info.format.name, activation, starts, True)
        source = self.quantized(x) if activation == "q8" else x
        y = self.buffer(name.removesuffix(".weight"), moe.n_used * part[1])
        self.emit("experts", x=source, w=w, route=route, y=y, per_slot=int(per_slot), k=k)
        return y

    def add(self, a: View, b: View, name: str) -> View:
        y = self.buffer(name, a.cols)
        self.emit("add", a=a, b=b, y=y)
        return y
