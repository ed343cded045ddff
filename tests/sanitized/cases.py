"""What runs under the sanitizers: groups of named cases, each a walk through code whose every access is looked at.

Owns: the lists. Results are not compared here, other tests do that; a case ends in order or the process ends at the
first byte that may not be touched. Import after the library was chosen (`ie.native.LIB_DIR`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ie import formats, native
from ie.draft.mtp import chain_of
from ie.engine import Engine
from ie.engine.kv import BLOCK
from ie.errors import IeError
from ie.formats import LAYOUTS
from ie.program import Buffer, Cache, Command, Partials, Program, RopeTable, View
from ie.program.step import ROW, Run
from ie.sample.params import SamplerParams
from ie.sample.sampler import Sampler
from ie.settings import DraftOptions, EngineOptions
from tests import rig, variants
from tests.drafters import chain, mtp
from tests.op_cases import SWEPT, draw, weight_formats
from tests.rig import ISAS, Case, CaseRun
from tests.sanitized.poison import SanitizedExecutor, allow, folder, forbid

Named = tuple[str, Callable[[], None]]
HEADS = range(1, 301)
THREADS = 2


# ---- ops, one command at a time ----


def run_op(case: Case, isa: str) -> None:
    """A case of the test rig, with everything around its items out of bounds."""
    executor = SanitizedExecutor(THREADS, isa)
    try:
        executor.run(0, CaseRun(case, executor).case.step())
    finally:
        executor.close()


def drawn(op: str, seed: int, fmt: str | None, isa: str) -> None:
    run_op(draw(op, seed, fmt), isa)


def ops() -> Iterator[Named]:
    """Every op with random ragged sizes; those with a matrix for every format."""
    for isa in ISAS:
        for op in SWEPT:
            matrix = op in ("matmul", "experts")
            for fmt in weight_formats() if matrix else [None]:
                for seed in range(4 if matrix else 25):
                    yield f"{op} {fmt or ''} {seed}, {isa}", partial(drawn, op, seed, fmt, isa)
        for n in (1, 2, 15, 16, 17, 61):
            yield f"pick of {n}, {isa}", lambda n=n, isa=isa: run_op(_pick(n), isa)


def _pick(n: int) -> Case:
    x, token, prob = Buffer("x", "f32", n, ROW), Buffer("id", "i32", 1, ROW), Buffer("prob", "f32", 1, ROW)
    args = {"x": View.of(x), "id": View.of(token), "prob": View.of(prob), "split": n, "shift": 0, "p_min": 0.0}
    logits = np.random.default_rng(n).standard_normal((1, n)).astype(np.float32)
    return Case(Program((Command("pick", args, -1, ROW, 0),), (0,)), {x: logits}, [Run(0, 0, [7, 8])])


# ---- head sizes ----


def head_case(op: str, dim: int, rows: int, kv_heads: int, group: int) -> Case:
    """rope or attention of heads of `dim`, so many rows at the end of a context that fills its last chunk."""
    rng = np.random.default_rng(dim)
    n_blocks = 16
    last = n_blocks * BLOCK
    tables = rng.permutation(n_blocks).astype(np.int32)[None]
    shape = (n_blocks, BLOCK, kv_heads, dim)
    pools = tuple(rng.standard_normal(shape).astype(np.float16) for _ in "kv")
    q = Buffer("q", "f32", kv_heads * group * dim)
    k, v = (Buffer(name, "f32", kv_heads * dim) for name in "kv")
    inputs = {b: rng.standard_normal((rows, b.cols)).astype(np.float32) for b in (q, k, v)}
    caches: dict[str, Any] = {f"{w}_cache": Cache(0, w, kv_heads, dim) for w in "kv"}
    ropes = []
    if op == "rope":
        n_rot = dim // 2 * 2
        ropes = [rng.uniform(-1, 1, (last, n_rot // 2, 2)).astype(np.float32)]
        args = {
            "q": View.of(q),
            "k": View.of(k),
            "v": View.of(v),
            "head_dim": dim,
            "n_rot": n_rot,
            "neox": dim // 2 % 2,
        }
        args |= {"rope": RopeTable(0)} if n_rot else {}
    else:
        y = Buffer("y", "f32", q.cols)
        inputs = {q: inputs[q]}
        args = {"q": View.of(q), "y": View.of(y), "parts": Partials(kv_heads * group, dim), "head_dim": dim}
        args |= {"heads": kv_heads * group, "kv_heads": kv_heads, "window": 0, "scale": 0.1}
    program = rig.one_command(op, {**args, **caches})
    runs = [Run(0, last - rows, [0] * rows)]
    return Case(program, inputs, runs, (), caches={0: (pools[0], pools[1])}, ropes=ropes, tables=tables)


def head(op: str, dim: int, rows: int, kv_heads: int, group: int, isa: str) -> None:
    run_op(head_case(op, dim, rows, kv_heads, group), isa)


def heads() -> Iterator[Named]:
    """Every head size: steps of one row, of as many as share keys, and of more."""
    for dim in HEADS:
        isas = ISAS if dim % 4 == 1 or dim in (2, 8, 20, 24, 40, 100, 300) else (ISAS[dim % len(ISAS)],)
        for isa in isas:
            for op, rows, kv, group in (
                ("rope", 3, 2, 1),
                ("attention", 1, 1, 2),
                ("attention", 5, 2, 1),
                ("attention", 18, 1, 1),
            ):
                yield f"{op}, {rows} rows, heads of {dim}, {isa}", partial(head, op, dim, rows, kv, group, isa)


# ---- whole models ----


def run_model(path: Path, isa: str, n_ctx: int, draft: DraftOptions | None = None, prompt: int = 40) -> None:
    """A prompt in chunks, tokens, a verification, drafts, steps back; the last positions of the context."""
    executor = SanitizedExecutor(THREADS, isa)
    options = EngineOptions(n_ctx=n_ctx, chunk=19, threads=THREADS, cpu_isa=isa)
    with Engine.open(str(path), options, executor, draft=mtp(draft)) as engine:
        ids = [(7 * i + 3) % engine.n_vocab for i in range(n_ctx)]
        seq = engine.new_sequence()
        engine.forward(seq, ids[:prompt])
        engine.forward(seq, ids[:2])
        engine.forward(seq, ids[:1])
        engine.verify(seq, ids[:5])
        seq.truncate(len(seq) - 3)
        engine.forward(seq, ids[:3], "all")
        if chain_of(engine) is not None:
            drafts = [token for token, _ in chain(engine, seq, ids[0], 4)]
            engine.verify(seq, [ids[0], *drafts])
        engine.forward(seq, ids[: n_ctx - len(seq) - 1])
        engine.forward(seq, ids[:1])


def made(where: Path, name: str, **options: Any) -> Path:
    return Path(variants.make(where / f"{name}.gguf", **options))


def models() -> Iterator[Named]:
    """Every architecture with every option of it, every weight format, and odd shapes."""
    here = folder()
    for a, arch in enumerate(variants.NAMES):
        for i, (name, options) in enumerate(variants.options_of(arch).items()):
            ragged = {"formats": "F16"} if name == "ragged" else {}
            path = made(here, f"{arch}-{i}", **{**options, **ragged, "n_ctx": 512})
            for isa in ISAS if name == "plain" else (ISAS[(a + i) % len(ISAS)],):
                yield f"{arch}, {name}, {isa}", lambda path=path, isa=isa: run_model(path, isa, 96)
    for i, fmt in enumerate(weight_formats()):
        path = made(here, f"format-{i}", arch="llama", formats=fmt, n_layer=1, **variants.shape_for(fmt))
        for isa in ISAS:
            yield f"llama of {fmt}, {isa}", lambda path=path, isa=isa: run_model(path, isa, 64, prompt=20)
    for i, arch in enumerate(a for a in variants.NAMES if a.startswith("qwen35")):
        path = made(here, f"draft-{i}", arch=arch, n_mtp=1)
        drafts = DraftOptions(depth=4, p_min=0.0, vocabulary=0)
        for isa in ISAS:
            yield (
                f"{arch} with drafts, {isa}",
                lambda path=path, isa=isa, drafts=drafts: run_model(path, isa, 96, drafts),
            )
    for i, shape in enumerate(ODD):
        path = made(
            here,
            f"odd-{i}",
            **{"arch": "llama", "formats": "F32", "n_layer": 1, "n_ctx": 512, "tokenizer": "none", **shape},
        )
        for isa in ISAS:
            yield f"{shape}, {isa}", lambda path=path, isa=isa: run_model(path, isa, 64)


ODD: list[dict[str, Any]] = [
    {"n_embd": 1, "head_dim": 2, "n_head": 1, "n_kv": 1, "n_ff": 1, "n_vocab": 1},
    {"n_embd": 7, "head_dim": 6, "n_head": 3, "n_kv": 1, "n_ff": 3, "n_vocab": 2},
    {"n_embd": 33, "head_dim": 10, "n_head": 3, "n_kv": 3, "n_ff": 45, "n_vocab": 15},
    {"n_embd": 47, "head_dim": 34, "n_head": 2, "n_kv": 1, "n_ff": 17, "n_vocab": 17},
    {"n_embd": 95, "head_dim": 46, "n_head": 5, "n_kv": 5, "n_ff": 101, "n_vocab": 131, "formats": "BF16"},
    {
        "n_embd": 96,
        "head_dim": 40,
        "n_head": 4,
        "n_kv": 2,
        "n_ff": 33,
        "n_vocab": 129,
        "formats": {"*": "Q8_0", "*ffn_down*": "F16"},
    },
    {"n_embd": 160, "head_dim": 32, "n_head": 5, "n_kv": 1, "n_ff": 96, "n_vocab": 33, "formats": "Q4_0"},
    {
        "n_embd": 1056,
        "head_dim": 16,
        "n_head": 2,
        "n_kv": 1,
        "n_ff": 1057,
        "n_vocab": 31,
        "formats": {"*": "Q5_1", "*ffn_down*": "F16"},
    },
    {
        "arch": "gemma3",
        "n_embd": 21,
        "head_dim": 14,
        "n_head": 3,
        "n_kv": 1,
        "n_ff": 19,
        "n_vocab": 5,
        "sliding_window": 1,
    },
]


# ---- decoding, repacking, sampling ----


def bytes_of() -> Iterator[Named]:
    """Decoding and repacking of random bytes: whatever a file may hold, in buffers that end where the data does."""
    ffi, library = native.lib()

    def decode(f: Any, n: int) -> None:
        data = np.random.default_rng(n).integers(0, 256, n * f.size, np.uint8)
        out = np.empty(n * f.block, np.float32)
        ends = [np.append(a.view(np.uint8), np.zeros(64, np.uint8)) for a in (data, out)]
        for a, size in zip(ends, (data.nbytes, out.nbytes), strict=True):
            forbid(a.ctypes.data + size, 64)
        pointers = [native.pointer(a, t) for a, t in zip(ends, ("uint8_t *", "float *"), strict=True)]
        assert library.ie_dequant(f.id, *pointers, n * f.block) == 0
        for a in ends:
            allow(a.ctypes.data, a.nbytes)

    def repacked(layout: Any, rows: int, blocks: int, isa: str) -> None:
        size = layout.size_per_row_block * rows * blocks
        data = np.random.default_rng(rows).integers(0, 256, size, np.uint8)
        out = np.zeros(layout.nbytes(rows, blocks * layout.block), np.uint8)
        pointers = [native.pointer(a, "uint8_t *") for a in (data, out)]
        assert library.ie_repack(rig.guarded(THREADS, isa).pool, layout.id, *pointers, rows, blocks * layout.block) >= 0

    for f in formats.FORMATS.values():
        for n in (1, 2, 3, 17):
            yield f"{n} blocks of {f.name}", lambda f=f, n=n: decode(f, n)
    for layout in LAYOUTS:
        for rows, blocks in ((1, 1), (15, 3), (16, 1), (37, 2)):
            yield f"{rows} rows to {layout.name}", lambda args=(layout, rows, blocks, ISAS[0]): repacked(*args)


def sampling() -> Iterator[Named]:
    """Every sampler with random parameters over vocabularies of every size modulo a block."""
    library = native.lib()[1]

    def passes(n: int, isa: int) -> None:
        row = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        w, sums = np.empty(n, np.float32), np.zeros(4)
        pointers = [native.pointer(a, t) for a, t in ((row, "float *"), (w, "float *"))]
        library.ie_logit_passes(isa, pointers[0], n, 3.0, 0.7, pointers[1], native.pointer(sums, "double *"))

    def sample(n: int, seed: int, isa: int) -> None:
        rng = np.random.default_rng([n, seed])
        logits = np.round(4 * rng.standard_normal(n), int(rng.integers(0, 4))).astype(np.float32)
        logits[rng.random(n) < 0.1] = -np.inf
        logits[rng.integers(n)] = 1.0

        def one(*values: Any) -> Any:
            return values[int(rng.integers(len(values)))]

        params = SamplerParams(
            temp=one(0.0, 0.1, 0.8, 5.0),
            top_k=one(0, 1, 5, 40, n, 10 * n),
            top_p=one(0.01, 0.5, 0.95, 1.0),
            min_p=one(0.0, 0.05, 1.0),
            typical_p=one(0.1, 0.9, 1.0),
            top_n_sigma=one(-1.0, 0.5, 2.0),
            xtc_probability=one(0.0, 1.0),
            xtc_threshold=one(0.01, 0.2),
            repeat_last_n=one(-1, 0, 5, 64),
            repeat_penalty=one(1.0, 1.3),
            frequency_penalty=one(0.0, 0.5),
            dry_multiplier=one(0.0, 0.9),
            dry_allowed_length=one(0, 1, 2),
            dry_penalty_last_n=one(-1, 0, 9),
            dynatemp_range=one(0.0, 0.5),
            min_keep=one(0, 1, 3, 2 * n),
        )
        history = rng.integers(0, n, int(rng.integers(0, 80))).tolist()
        Sampler(params, n, isa=isa).sample(logits, int(rng.integers(100)), history)

    which = [native.ISAS.index(isa) for isa in ISAS]
    for isa in which:
        for n in range(1, 129):
            yield f"passes over {n} logits, {native.ISAS[isa]}", lambda n=n, isa=isa: passes(n, isa)
    for n in (*range(1, 40), 127, 128, 129, 255, 256, 257, 1000, 5000, 33000, 40001):
        for seed in range(12 if n < 6000 else 20):
            isa = which[(n + seed) % len(which)]
            yield f"sample {seed} of {n}", lambda n=n, seed=seed, isa=isa: sample(n, seed, isa)


# ---- files ----


def files() -> Iterator[Named]:
    """Files with a few bytes changed: refused in words, or run."""
    here = folder()

    def mutated(path: Path, seed: int) -> None:
        rng, data = np.random.default_rng(seed), np.fromfile(path, np.uint8)
        head = int(len(data) if seed % 3 == 0 else min(len(data), 2500))
        for at in rng.integers(0, head, int(rng.integers(1, 4))):
            data[at] = rng.integers(0, 256) if seed % 2 else data[at] ^ (1 << rng.integers(0, 8))
        bad = path.with_name("mutated.gguf")
        (data if seed % 7 else data[: rng.integers(1, len(data))]).tofile(bad)
        try:
            run_model(bad, ISAS[seed % len(ISAS)], 32, prompt=8)
        except IeError:
            pass

    for arch in variants.NAMES:
        path = made(
            here, arch, arch=arch, n_layer=2 if not arch.startswith("qwen35") else 4, tokenizer="none", n_vocab=40
        )
        for seed in range(60):
            yield f"{arch} changed by seed {seed}", lambda path=path, seed=seed: mutated(path, seed)


GROUPS: dict[str, Callable[[], Iterator[Named]]] = {
    "ops": ops,
    "heads": heads,
    "models": models,
    "bytes": bytes_of,
    "sampling": sampling,
    "files": files,
}
