"""Random programs of many commands, for the passes that shape programs: join, fuse, stages, arena.

Owns: drawing command lists that a builder could emit and some it does not: chains, shared inputs, slices, sums in
place, values read long after. They start from `embed`, so a program needs no input but tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ie import formats
from ie.gguf import TensorSet
from ie.program import Buffer, Command, Matrix, Table, Vector, View
from tests.rig import BLOCK, Array, MemoryTensor, memory_file
from tiny_models.weights import encode

N_TOKENS = 11
WIDTHS = (32, 64, 96)
FORMATS = ("F32", "Q8_0", "Q4_1", "F16")


class Graph:
    """`commands` and what they need: `file`. `values` are the views that hold a result."""

    def __init__(self, seed: int, steps: int = 14) -> None:
        self.rng = np.random.default_rng([seed, 77])
        self.commands: list[Command] = []
        self.tensors: list[MemoryTensor] = []
        self.values: list[View] = []
        self.quantised: dict[View, View] = {}
        width = self.pick(WIDTHS)
        x = self.buffer(width)
        self.tensor("table", (width, N_TOKENS), "F32", self.normal(N_TOKENS, width))
        self.emit("embed", y=x, table=Table("table", width))
        self.values.append(x)
        for _ in range(steps):
            self.pick((self.product, self.product, self.norm, self.glu, self.add, self.add, self.residual, self.cut))()

    @property
    def file(self) -> TensorSet:
        return memory_file(self.tensors)

    # ---- draws ----

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def coin(self, p: float = 0.5) -> bool:
        return bool(self.rng.random() < p)

    def normal(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def value(self, cols: int = 0) -> View:
        """A recent value more often than an old one; of that many columns if there is one."""
        fitting = [v for v in self.values if not cols or v.cols == cols]
        return self.pick(fitting[-3:] if self.coin(0.7) else fitting)

    # ---- emitting ----

    def buffer(self, cols: int, dtype: str = "f32") -> View:
        return View.of(Buffer(f"b{len(self.commands)}.{dtype}", dtype, cols))

    def tensor(self, name: str, shape: tuple[int, ...], fmt: str, data: Array) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.tensors.append(MemoryTensor(name, shape, formats.format_by_name(fmt), raw))

    def vector(self, n: int, mean: float = 0.0) -> Vector:
        name = f"v{len(self.tensors)}"
        self.tensor(name, (n,), "F32", mean + 0.2 * self.normal(n))
        return Vector((name,), n)

    def emit(self, op: str, **args: Any) -> None:
        command = Command(op, {k: v for k, v in args.items() if v is not None}, len(self.commands))
        command.check()
        self.commands.append(command)
        for view in [v for a, v in command.views() if "w" in a.access]:
            self.quantised = {k: q for k, q in self.quantised.items() if k.buffer != view.buffer}

    def source(self, x: View, q8: bool) -> View:
        if not q8:
            return x
        if x not in self.quantised:
            q = self.buffer(x.cols, "q8")
            self.emit("quantize", x=x, yq=q)
            self.quantised[x] = q
        return self.quantised[x]

    # ---- pieces ----

    def product(self) -> None:
        """One to three matrix products, often of one input and one format, as q, k, v are."""
        x, fmt, bias = self.value(), self.pick(FORMATS), self.coin(0.3)
        for _ in range(int(self.rng.integers(1, 4))):
            fmt = fmt if self.coin(0.8) else self.pick(FORMATS)
            self.linear(x, fmt, self.pick(WIDTHS) if self.coin(0.8) else 40, bias)

    def linear(self, x: View, fmt: str, m: int, bias: bool) -> View:
        name = f"w{len(self.tensors)}"
        activation = formats.activation_of(formats.format_by_name(fmt))
        self.tensor(name, (x.cols, m), fmt, encode(len(self.tensors), name, m, x.cols, fmt, 0.0, x.cols**-0.5))
        source, y = self.source(x, activation == "q8"), self.buffer(m)
        w = Matrix((name,), (m,), x.cols, fmt, activation)
        self.emit("matmul", x=source, w=w, y=y, bias=self.vector(m) if bias else None)
        if m % BLOCK == 0:
            self.values.append(y)
        return y

    def norm(self) -> None:
        x = self.value()
        width = x.cols if self.coin() else self.pick([w for w in (16, 32, x.cols) if x.cols % w == 0])
        y = self.buffer(x.cols)
        self.emit("rmsnorm", x=x, w=self.vector(width, 1.0), y=y, width=width, eps=1e-5)
        self.values.append(y)
        if self.coin():
            self.linear(y, "Q8_0", x.cols, False)

    def glu(self) -> None:
        gate = self.value()
        y = self.buffer(gate.cols)
        self.emit("glu", gate=gate, up=self.value(gate.cols), y=y, act=int(self.coin()))
        self.values.append(y)
        if self.coin():
            self.source(y, True)

    def add(self) -> None:
        """A sum, sometimes into one of its terms."""
        a = self.value()
        b = self.value(a.cols)
        y = self.pick((a, b)) if self.coin(0.3) else self.buffer(a.cols)
        self.emit("add", a=a, b=b, y=y)
        self.values.append(y)

    def residual(self) -> None:
        """x + x W: the new sum, or x itself."""
        x = self.value()
        y = self.linear(x, self.pick(FORMATS), x.cols, self.coin(0.3))
        out = x if self.coin(0.3) else self.buffer(x.cols)
        self.emit("add", a=x, b=y, y=out) if self.coin() else self.emit("add", a=y, b=x, y=out)
        self.values.append(out)

    def cut(self) -> None:
        """Columns of a wider value."""
        x = self.value()
        if x.cols > BLOCK:
            self.values.append(x.slice(BLOCK * int(self.rng.integers(0, x.cols // BLOCK)), BLOCK))

    def outputs(self, n: int = 2) -> dict[str, View]:
        """Some values to be read at the end, the last one among them."""
        return {f"o{i}": v for i, v in enumerate([self.values[-1], *(self.value() for _ in range(n - 1))])}
