"""Random one-command cases of every op, drawn from the op table; and how close results must be.

Owns: the rules by which dimensions and scalars are drawn (`DIMS`, `SCALARS`: by name, so an op made of known names
is swept without a line here), random contents, and for each output the bound that its op's tolerance class means.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ie import formats
from ie.ops import OPS
from ie.ops.conv import RING
from ie.ops.glu import GELU, SILU
from ie.ops.table import VIEW_KINDS, Arg, Op
from ie.program import Buffer, Cache, Matrix, Partials, RopeTable, State, Table, Vector, View
from ie.program.step import OUTS, ROW, ROWS, SEGS, Run
from tests import compare, rig
from tests.rig import BLOCK, Array, Case, CaseRun, MemoryTensor, Recorder, memory_file
from tiny_models.weights import encode, format_names

MAX_BLOCKS = 20
N_BLOCKS = 2 * MAX_BLOCKS + 3
N_TOKENS = 37

PRODUCTS_ONLY = {"embed", "rope"}
"""Element-wise ops of products and sums alone, without exp: numpy's float32 gives the same bits."""


SWEPT = [name for name in OPS if name != "pick"]
"""Ops whose result is what they write to their arguments; pick changes the step inputs and has a test of its own."""

DOMAINS = {"gather": OUTS, "conv": SEGS, "deltanet": SEGS, "pick": ROW}
"""What a command of an op runs over, where it is neither rows nor a free choice."""

TOGETHER = {"combine": ("shared", "gate")}
"""Optional arguments that are given both or not at all."""


def weight_formats() -> list[str]:
    """Formats that a matrix may have here: those that random contents can be made of."""
    return [f.name for f in formats.FORMATS.values() if f.name in format_names()]


class Draw:
    """One random case of an op: geometry first, then arguments in the table's order."""

    def __init__(self, op: Op, seed: int, fmt: str | None = None, few: bool = False) -> None:
        self.op, self.few = op, few
        self.rng = np.random.default_rng([zlib.crc32(f"{op.name} {fmt}".encode()), seed])
        self.names = {a.name for a in op.args}
        self.head_dim = int(self.rng.choice([16, 32, 48, 64, 80, 96, 128, 256]))
        self.kv_heads = self.integer(1, 3)
        self.heads = self.kv_heads * self.integer(1, 4)
        self.format = formats.format_by_name(fmt or self.choice(weight_formats()))
        self.layout = formats.layout_for(self.format)
        reads_step = {a.kind for a in op.args} & {"cache", "table", "rope", "state"}
        self.domain = DOMAINS.get(op.name, ROWS if reads_step or self.coin(0.7) else OUTS)
        self.n_expert = self.choice([2, 5, 16, 40])
        self.used = self.integer(1, min(8, self.n_expert))
        self.per_slot, self.size = self.integer(0, 1), self.choice([41, 64])
        self.width = self.n_rot = 0
        self.key_heads, self.dim_state = self.integer(1, 2), self.choice([16, 32, 64])
        self.value_heads = self.key_heads * self.integer(1, 3)
        self.slots, self.taps = self.integer(1, 20), self.integer(1, 5)
        self.dims: dict[str, int] = {}
        self.inputs: dict[Buffer, Array] = {}
        self.tensors: list[MemoryTensor] = []
        self.caches: dict[int, tuple[Array, Array]] = {}
        self.states: dict[State, Array] = {}
        self.ropes: list[Array] = []
        self.draw_step()

    # ---- small draws ----

    def integer(self, lo: int, hi: int) -> int:
        return int(self.rng.integers(lo, hi + 1))

    def coin(self, p: float = 0.5) -> bool:
        return bool(self.rng.random() < p)

    def choice(self, options: list[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def normal(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def activations(self, rows: int, cols: int) -> Array:
        """Values of varying size; some blocks are zero, so that their Q8 scale is."""
        x = self.normal(rows, cols) * np.exp2(self.rng.integers(-6, 4, (rows, 1))).astype(np.float32)
        x[self.rng.random(x.shape) < 0.02] *= 20
        if cols >= BLOCK and self.coin(0.3):
            at = self.integer(0, cols // BLOCK - 1) * BLOCK
            x[self.integer(0, rows - 1), at : at + BLOCK] = 0
        return x

    # ---- the step ----

    def draw_step(self) -> None:
        """Two sequences at random places, one with positions beyond a segment of 256; blocks in random order."""
        blocks = self.rng.permutation(N_BLOCKS)[: 2 * MAX_BLOCKS].reshape(2, MAX_BLOCKS)
        self.tables = blocks.astype(np.int32)
        first = [self.integer(0, 70), self.choice([0, 31, 32, 255, 256, 300, 511, 540])]
        counts = [self.integer(1, 20), self.integer(0, 20)]
        if self.coin(0.2):
            counts = [1, 0]
        if self.few:
            first[1], counts = self.choice([255, 256, 300, 511, 540, 620]), [self.integer(0, 6), self.integer(1, 10)]
        if self.domain == SEGS and self.coin(0.3):
            first[0] = 0
        self.runs = []
        for slot, n in enumerate(counts):
            state = -1 if first[slot] == 0 else self.integer(0, self.slots - 1)
            keep = self.integer(1, max(1, min(n, self.slots)))
            if n:
                self.runs.append(Run(slot, first[slot], self.rng.integers(0, N_TOKENS, n).tolist(), state, keep))
        n = sum(counts)
        self.outs = sorted(self.rng.permutation(n)[: self.integer(1, n)].tolist())

    def rows(self, domain: int) -> int:
        return len(self.outs) if domain == OUTS else sum(len(run.tokens) for run in self.runs)

    # ---- names of the table ----

    def dim(self, name: str) -> int:
        if name not in self.dims:
            assert name in DIMS, f"{self.op.name}: no rule to draw the dimension {name}; add it to DIMS"
            self.dims[name] = DIMS[name](self)
        return self.dims[name]

    def ragged(self) -> int:
        """Columns: any number, but whole blocks where the command reads or may write Q8."""
        if any(a.kind == "q8v" and not a.optional for a in self.op.args) or self.coin(0.4):
            return BLOCK * self.integer(1, 5) if self.coin(0.8) else BLOCK * 33
        return self.integer(1, 200) if self.coin(0.8) else self.integer(1025, 2100)

    def inner(self) -> int:
        """K of a matrix: whole blocks of its format, any number for floats."""
        unit = math.lcm(self.layout.block, self.format.block)
        return self.integer(1, 150) if unit == 1 else unit * self.integer(1, 6 if unit <= BLOCK else 2)

    def bind_width(self) -> int:
        self.width = BLOCK * self.integer(1, 5) if self.coin() else self.integer(1, 150)
        return self.width

    # ---- arguments ----

    def case(self) -> Case:
        args: dict[str, Any] = {}
        tensors = ("table", "vector", "matrix", "matrices")  # first: their formats decide which columns there may be
        for arg in sorted(self.op.args, key=lambda a: tensors.index(a.kind) if a.kind in tensors else 3):
            if arg.kind not in ("i32", "f32"):
                args[arg.name] = self.argument(arg)
        for arg in self.op.args:
            if arg.kind in ("i32", "f32"):
                assert arg.name in SCALARS, f"{self.op.name}: no rule to draw the scalar {arg.name}; add it to SCALARS"
                args[arg.name] = SCALARS[arg.name](self)
        if not args.get("n_rot", 1):
            args["rope"] = None
        self.choose_outputs(args)
        program = rig.one_command(self.op.name, args, self.domain)
        kept = set(program.buffers)
        return Case(
            program,
            {b: v for b, v in self.inputs.items() if b in kept},
            self.runs,
            self.outs,
            memory_file(self.tensors),
            self.caches,
            self.states,
            self.ropes,
            self.tables,
            spare=self.integer(0, 3),
        )

    def choose_outputs(self, args: dict[str, Any]) -> None:
        """Drop optional arguments at random; one output stays, and Q8 only where shares are whole blocks."""
        written = [a.name for a in self.op.args if a.optional and a.access == "w"]
        unit = args.get("width") or args.get("head_dim") or (args[written[0]].cols if written else 0)
        for arg in self.op.args:
            if arg.optional and arg.kind == "q8v" and unit % BLOCK:
                args[arg.name] = None
        for arg in self.op.args:
            if arg.optional and arg.kind != "rope" and self.coin():
                others = [n for n in written if n != arg.name and args.get(n) is not None]
                if arg.name not in written or others:
                    args[arg.name] = None
        both = TOGETHER.get(self.op.name, ())
        if any(args.get(n) is None for n in both):
            args |= dict.fromkeys(both)

    def argument(self, arg: Arg) -> Any:
        if arg.kind in ("matrix", "matrices"):
            return self.matrix(arg)
        if arg.kind == "vector":
            n = self.cols(arg)
            values = self.normal(n) if arg.name != "decay" else -np.abs(self.normal(n)) - np.float32(0.01)
            self.tensor("v." + arg.name, (n,), formats.format_by_name("F32"), values)
            return Vector(("v." + arg.name,), n)
        if arg.kind == "table":
            return self.table(arg)
        if arg.kind == "rope":
            positions, half = MAX_BLOCKS * BLOCK, self.head_dim // 2
            self.n_rot = 0 if self.coin(0.15) else 2 * self.integer(1, half)
            angle = self.rng.uniform(-np.pi, np.pi, (positions, self.n_rot // 2))
            self.ropes.append(np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32))
            return RopeTable(0)
        if arg.kind == "cache":
            return self.cache(arg)
        if arg.kind == "partials":
            return Partials(self.heads, self.head_dim)
        if arg.kind == "state":
            state = State(0, arg.name, STATES[self.op.name, arg.name](self))
            self.states[state] = 0.5 * self.normal(2, *state.shape)
            return state
        assert arg.kind in VIEW_KINDS, f"{self.op.name}.{arg.name}: no rule to draw a {arg.kind}"
        return self.view(arg)

    def view(self, arg: Arg) -> View:
        """A whole buffer, or for F32 some columns of a wider one."""
        cols = self.cols(arg)
        q8 = arg.kind == "q8v" or (arg.kind == "act" and self.layout.activation == "q8")
        before, after = (self.integer(0, 20), self.integer(0, 20)) if not q8 and self.coin() else (0, 0)
        if arg.kind == "i32v":
            return self.ids(arg)
        domain = ROWS if self.domain == SEGS or (self.op.name == "gather" and arg.name == "x") else self.domain
        buffer = Buffer(arg.name, "q8" if q8 else "f32", before + cols + after, domain)
        if "r" in arg.access:
            self.inputs[buffer] = self.activations(self.rows(domain), buffer.cols)
            if self.op.name == "route":  # many equal ones, none so unlikely that its probability vanishes
                self.inputs[buffer] = np.round(2 * self.normal(self.rows(domain), buffer.cols))
            if arg.name == "route":
                self.inputs[buffer][:, before : before + cols] = self.routes(self.rows(domain))
        return View(buffer, before, cols)

    def ids(self, arg: Arg) -> View:
        """Token ids, in a row of their own."""
        buffer = Buffer(arg.name, "i32", self.cols(arg), self.domain)
        self.inputs[buffer] = self.rng.integers(0, N_TOKENS, (self.rows(self.domain), buffer.cols)).astype(np.int32)
        return View.of(buffer)

    def cols(self, arg: Arg) -> int:
        """Columns of a view, or the length of a vector."""
        if arg.dim:
            return self.dim(arg.dim)
        key = self.op.name, arg.name
        assert key in LENGTHS, f"{key[0]}.{key[1]}: no rule to draw its length; add it to LENGTHS"
        return LENGTHS[key](self)

    def routes(self, rows: int) -> Array:
        """Distinct expert ids, then weights that add up to 1."""
        ids = np.argsort(self.rng.random((rows, self.n_expert)), axis=1)[:, : self.used]
        w = self.rng.random((rows, self.used)) + 0.01
        return np.concatenate([ids, w / w.sum(axis=1, keepdims=True)], axis=1).astype(np.float32)

    def tensor(self, name: str, shape: tuple[int, ...], fmt: formats.Format, data: Array) -> None:
        self.tensors.append(MemoryTensor(name, shape, fmt, np.ascontiguousarray(data).reshape(-1).view(np.uint8)))

    def matrix(self, arg: Arg) -> Matrix:
        if not arg.dim:
            return self.expert_matrices(arg)
        m, k = (self.dim(d) for d in arg.dim.split(","))
        rows = (m,) if m == 1 or self.coin() else (self.integer(1, m - 1),)
        rows = rows if rows[0] == m else (rows[0], m - rows[0])
        names = tuple(f"{arg.name}{i}" for i in range(len(rows)))
        for name, n in zip(names, rows, strict=True):
            data = encode(self.integer(0, 1 << 30), name, n, k, self.format.name, 0.02, 0.2)
            self.tensor(name, (k, n), self.format, data)
        return Matrix(names, rows, k, self.format.name, self.layout.activation)

    def expert_matrices(self, arg: Arg) -> Matrix:
        """Some rows of each expert's matrix, all of them in one tensor."""
        m, k, more = self.dim("M"), self.dim("K"), self.integer(0, 20)
        data = encode(self.integer(0, 1 << 30), arg.name, self.n_expert * (m + more), k, self.format.name, 0.02, 0.2)
        self.tensor(arg.name, (k, m + more, self.n_expert), self.format, data)
        starts = tuple(e * (m + more) + more // 2 for e in range(self.n_expert))
        fmt, names, rows = self.format.name, (arg.name,) * self.n_expert, (m,) * self.n_expert
        return Matrix(names, rows, k, fmt, self.layout.activation, starts, separate=True)

    def table(self, arg: Arg) -> Table:
        """The embedding may have any format; its rows decide the columns."""
        fmt = formats.format_by_name(self.choice(["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q6_K"]))
        cols = self.dims[arg.dim] = self.integer(1, 90) if fmt.block == 1 else fmt.block * self.integer(1, 3)
        self.tensor(arg.name, (cols, N_TOKENS), fmt, encode(7, arg.name, N_TOKENS, cols, fmt.name, 0.0, 0.3))
        return Table(arg.name, cols)

    def cache(self, arg: Arg) -> Cache:
        """Live positions are random; everything else in a pool is as large as can be, which nobody may see."""
        which = arg.name[0]
        if 0 not in self.caches:
            shape = (N_BLOCKS, BLOCK, self.kv_heads, self.head_dim)
            pools = tuple(np.full(shape, 65504, np.float16) for _ in "kv")
            reads = arg.access == "r"
            for run in self.runs:
                for pos in range(run.first + len(run.tokens) if reads else 0):
                    for p in pools:
                        p[self.tables[run.seq, pos // BLOCK], pos % BLOCK] = self.normal(*shape[2:])
            self.caches[0] = pools[0], pools[1]
        return Cache(0, which, self.kv_heads, self.head_dim)


DIMS: Mapping[str, Callable[[Draw], int]] = {
    "N": lambda d: d.width * d.integer(1, 4) if "width" in d.names else d.ragged(),
    "W": Draw.bind_width,
    "K": Draw.inner,
    "M": lambda d: d.integer(1, 70),
    "HD": lambda d: d.value_heads * d.dim_state if "value_heads" in d.names else d.heads * d.head_dim,
    "GD": lambda d: d.kv_heads * d.head_dim,
    "H": lambda d: d.value_heads,
    "E": lambda d: d.n_expert,
    "P": lambda d: 1,
    "R": lambda d: 2 * d.used,
    "C": lambda d: (2 * d.key_heads + d.value_heads) * d.dim_state if "value_heads" in d.names else d.ragged(),
}

LENGTHS: Mapping[tuple[str, str], Callable[[Draw], int]] = {
    ("conv", "w"): lambda d: d.dim("C") * d.taps,
    ("experts", "x"): lambda d: d.dim("K") * (d.used if d.per_slot else 1),
    ("experts", "y"): lambda d: d.dim("M") * d.used,
    ("combine", "x"): lambda d: d.dim("N") * d.used,
    ("combine", "gate"): lambda d: 1,
}
"""Columns and lengths that are no dimension of the table."""

STATES: Mapping[tuple[str, str], Callable[[Draw], tuple[int, ...]]] = {
    ("conv", "ring"): lambda d: (RING, d.dim("C")),
    ("deltanet", "state"): lambda d: (d.slots, d.value_heads, d.dim_state, d.dim_state),
    ("ring_put", "ring"): lambda d: (d.size, d.dim("N")),
    ("ring_get", "ring"): lambda d: (d.size, d.dim("N")),
}


def _f32(x: float) -> float:
    return float(np.float32(x))


SCALARS: Mapping[str, Callable[[Draw], float]] = {
    "head_dim": lambda d: d.head_dim,
    "heads": lambda d: d.heads,
    "kv_heads": lambda d: d.kv_heads,
    "window": lambda d: d.choice([0, 0, 1, 2, 16, 31, 32, 33, 100, 256, 300, 4000]),
    "n_rot": lambda d: d.n_rot,
    "neox": lambda d: d.integer(0, 1),
    "width": lambda d: d.width,
    "act": lambda d: d.choice([SILU, GELU]),
    "key_heads": lambda d: d.key_heads,
    "value_heads": lambda d: d.value_heads,
    "dim": lambda d: d.dim_state,
    "slots": lambda d: d.slots,
    "taps": lambda d: d.taps,
    "size": lambda d: d.size,
    "per_slot": lambda d: d.per_slot,
    "k": lambda d: d.dim("K"),
    "cap": lambda d: d.choice([30.0, 1.0, 50.0]),
    "eps": lambda d: _f32(d.choice([1e-5, 1e-6, 0.01])),
    "scale": lambda d: _f32(1.3 / math.sqrt(d.head_dim)) if "heads" in d.names else d.choice([1.0, _f32(5.7)]),
}


def draw(op: str, seed: int, fmt: str | None = None, few: bool = False) -> Case:
    """Case `seed` of an op; `fmt` names the file format of its matrix, which decides the device layout. `few`: no more
    rows than a step of decode has, some of them deep in their sequence."""
    return Draw(OPS[op], seed, fmt, few).case()


# ---- how close ----


def _attention_terms(case: Case, args: Mapping[str, Any], want: Array) -> tuple[Array, float]:
    """Sum of weight * |value|, enlarged by what errors of the scores do to the weights."""
    k, v = case.caches[0]
    ref = Recorder(case, exact=True)
    ref.cache[0, "v"] = np.abs(v)
    ref.run(0, case.step())
    view = args["y"] if args.get("y") is not None else args["yq"]
    terms, keys, group = ref.get(view).copy(), 1, args["heads"] // args["kv_heads"]
    q = np.abs(case.inputs[args["q"].buffer].astype(np.float64))[:, args["q"].offset :][:, : args["q"].cols]
    for r, (slot, pos, _) in enumerate(case.positions()):
        at = case.tables[slot, np.arange(pos + 1) // BLOCK], np.arange(pos + 1) % BLOCK
        largest = np.abs(k[at].astype(np.float64)).max(axis=0).repeat(group, axis=0)  # [heads, dim]
        size = args["scale"] * (q[r].reshape(largest.shape) * largest).sum(axis=-1)
        terms[r] *= np.repeat(1 + 2 * size, args["head_dim"])
        keys = max(keys, pos + 1)
    return terms, 4 * math.sqrt(max(keys, args["head_dim"])) + 16


def _glu_terms(case: Case, args: Mapping[str, Any], want: Array) -> tuple[Array, float]:
    """An error of exp's argument counts as often as the argument is large."""
    gate = case.inputs[args["gate"].buffer].astype(np.float64)[:, args["gate"].offset :][:, : args["gate"].cols]
    u = gate if args["act"] == SILU else 1.6 * (gate + 0.0448 * gate**3)
    return np.abs(want) * (1 + np.minimum(np.abs(u), 90)) + 1e-30, 16  # below 1e-36 a result may be 0


def _norm_terms(case: Case, args: Mapping[str, Any], want: Array) -> tuple[Array, float]:
    return np.abs(want), 16 + args["width"] / 16


Terms = Callable[[Case, Mapping[str, Any], Array], tuple[Array, float]]
TERMS: Mapping[str, Terms] = {
    "attention": _attention_terms,
    "glu": _glu_terms,
    "rmsnorm": _norm_terms,
}
"""Bounds of our own, from the formulas: sum of |terms| of each output, and c (see `ie.compare.reduction`)."""


def terms_of(case: Case, arg: Arg, want: Array) -> tuple[Array, float] | None:
    """Bound of one output: ours where there is one, else what the op itself declares; None: the same bits."""
    command = case.program.commands[0]
    if command.op in TERMS:
        return TERMS[command.op](case, command.args, want)
    magnitude = OPS[command.op].magnitude
    assert magnitude is not None, f"{command.op}: no bound is declared"
    return magnitude(Recorder(case, exact=True), command.args, arg.name)


def check_against_reference(case: Case, got: CaseRun) -> None:
    """Every output of a one-command case within its op's tolerance class; caches bit for bit."""
    (command,) = case.program.commands
    op = OPS[command.op]
    bitwise = op.tolerance in ("exact", "q8") or op.name in PRODUCTS_ONLY
    ref = rig.run_reference(case, exact=not bitwise)
    for arg in op.args:
        value = command.args.get(arg.name)
        if value is None or "w" not in arg.access or isinstance(value, Partials):
            continue
        name = f"{op.name}.{arg.name}"
        if isinstance(value, Cache):
            _same_bits(got.cache(value), ref.cache[0, value.which], name)
            continue
        bound = (
            None if bitwise else terms_of(case, arg, ref.get(value) if isinstance(value, View) else ref.state(value))
        )
        if isinstance(value, State):
            _check_state(case, got.state(value), ref.state(value), case.states[value], bound, name)
        elif value.buffer.dtype == "q8":
            ours, theirs = got.q8(value), ref.q8[value.buffer]
            if bound is None:
                compare.assert_exact(ours.codes, theirs.codes, name)
                compare.assert_exact(ours.d, theirs.scales, name)
            else:
                c = max(1.0, bound[1] * _spread(bound[0], theirs.scales))
                compare.assert_q8(ours.codes, theirs.codes, ours.d, theirs.scales, name, d_eps=c)
            derived = rig.Q8.of(ours.codes, ours.d)
            compare.assert_exact(ours.sums, derived.sums, name + " sums")
            compare.assert_exact(ours.dsum, derived.dsum, name + " scaled sums")
        elif bound is None:
            compare.assert_exact(got.floats(value), ref.get(value).astype(np.float32), name)
        else:
            compare.assert_reduction(got.floats(value), ref.get(value), *bound, name)


def _same_bits(got: Array, want: Array, name: str) -> None:
    same = np.ascontiguousarray(got).view(f"u{got.itemsize}") == np.ascontiguousarray(want).view(f"u{got.itemsize}")
    assert same.all(), f"{name}: {np.argwhere(~same)[0].tolist()} differs"


def _check_state(
    case: Case, got: Array, want: Array, before: Array, bound: tuple[Array, float] | None, name: str
) -> None:
    """What the reference left alone has its bits of before; the rest is within the bound."""
    if bound is None:
        _same_bits(got, want.astype(np.float32), name)
        return
    kept = want == before
    _same_bits(got[kept], before[kept], name + " elsewhere")
    seqs = sorted({run.seq for run in case.runs})
    assert bound[0].shape == want[seqs].shape
    compare.assert_reduction(got[seqs], want[seqs], *bound, name)


def _spread(terms: Array, d: Array) -> float:
    """How many times larger a block's terms are than its largest value: the scale's error grows by as much."""
    largest = terms.reshape(*d.shape, BLOCK).max(axis=-1)
    return float((largest / np.maximum(d.astype(np.float64) * 127, 1e-30))[d > 0].max(initial=1.0))
