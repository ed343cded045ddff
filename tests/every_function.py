"""Every exported function of the C library on fixed inputs: a digest of what each computes.

    python -c "from tests.every_function import main; main()" [FOLDER]

Owns: the inputs, and that every function of host.cdef is called or is said to have no result to compare. With a FOLDER
the library in it is opened in place of the package's; prints one JSON object, digests by name. Which NaN a result is
does not count. Does not own: how libraries are built and compared (tests/cpu/test_compiler_builds.py).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ie import formats, native

Array = np.ndarray[Any, Any]
FORMULAS = ("exp", "silu", "gelu", "fma_soft")
NO_RESULT = {
    "ie_alloc", "ie_huge_pages", "ie_free", "ie_alloc_count", "ie_on_lost_pages", "ie_watch_pages", "ie_unwatch",
    "ie_watch_unfinished", "ie_step_check", "ie_isa_available", "ie_isa_best",
    "ie_pool_create", "ie_pool_destroy", "ie_stack_bytes", "ie_read_bandwidth", "ie_read_seconds", "ie_run_timed",
}  # fmt: skip
"""Memory, threads, clocks and what the processor has: nothing is computed."""
SAMPLES = 250


def _canonical(x: Array) -> bytes:
    """The bytes, with every NaN the same."""
    x = np.ascontiguousarray(x)
    return np.where(np.isnan(x), np.float32("nan"), x).tobytes() if x.dtype.kind == "f" else x.tobytes()


def _formulas() -> Iterator[tuple[str, bytes]]:
    _, lib = native.lib()
    rng = np.random.default_rng(1)
    for name in FORMULAS:
        count = 3 if name == "fma_soft" else 1
        any_bits = rng.integers(0, 1 << 32, (count, 20_000), dtype=np.uint32).view(np.float32)
        usual = (rng.standard_normal((count, 20_000)) * 8).astype(np.float32)
        x = np.concatenate([any_bits, usual], axis=1)
        out = np.empty(x.shape[1], np.float32)
        getattr(lib, f"ie_formula_{name}")(*(native.pointer(a, "float *") for a in (*x, out)), out.size)
        yield f"ie_formula_{name}", _canonical(out)


def _decoders() -> Iterator[tuple[str, bytes]]:
    from tests.unit.test_formats import blocks_of

    _, lib = native.lib()
    for fmt in formats.FORMATS.values():
        data = np.ascontiguousarray(blocks_of(fmt, 97, seed=3)).reshape(-1)
        out = np.zeros(97 * fmt.block, np.float32)
        status = lib.ie_dequant(fmt.id, native.pointer(data, "uint8_t *"), native.pointer(out, "float *"), out.size)
        yield f"ie_dequant {fmt.name}", bytes([status & 255]) + _canonical(out)


def _repacking() -> Iterator[tuple[str, bytes]]:
    from ie.devices.repack import repack
    from tests.rig import guarded

    rng = np.random.default_rng(4)
    for layout in formats.LAYOUTS:
        for rows, blocks in ((17, 3), (32, 2)):
            data = rng.integers(0, 256, rows * blocks * layout.size_per_row_block, dtype=np.uint8)
            out = np.zeros(layout.nbytes(rows, blocks * layout.block), np.uint8)
            repack(guarded(2).pool, layout, data, out, rows, blocks * layout.block)
            yield f"ie_repack {layout.name} {rows}x{blocks}", out.tobytes()


def _core() -> Iterator[tuple[str, bytes]]:
    """ie_core.h: scalars of a natural size for each parameter, and the two checks on random plans."""
    _, lib = native.lib()
    rng = np.random.default_rng(5)
    names = ("lanes", "q8_block", "kv_block", "kv_chunk", "attn_segment", "align", "decode_rows", "read_past", "none")
    yield "ie_core_constant", native.int64s([lib.ie_core_constant(name.encode()) for name in names]).tobytes()
    counts = {"q8_row_bytes": 1, "q8_scale_offset": 1, "q8_dsum_offset": 1, "q8_sums_offset": 1}
    counts |= {"f32_row_bytes": 1, "matrix_bytes": 3, "kv_chunk_elems": 2, "attn_parts_bytes": 3}
    counts |= {"k_index": 6, "v_index": 6}
    for name, count in counts.items():
        found = [getattr(lib, f"ie_core_{name}")(*map(int, rng.integers(0, 512, count))) for _ in range(200)]
        yield f"ie_core_{name}", native.int64s(found).tobytes()
    found = []
    for _ in range(300):
        n = int(rng.integers(0, 9))
        plan = [256 * rng.integers(0, 12, n), 1 + rng.integers(0, 900, n), *np.sort(rng.integers(0, 5, (2, n)), axis=0)]
        arrays = [native.int64s(a) for a in plan]
        found.append(
            lib.ie_core_plan_check(n, *(native.pointer(a, "int64_t *") for a in arrays), int(rng.integers(1, 6000)))
        )
    yield "ie_core_plan_check", native.int64s(found).tobytes()
    found = []
    for _ in range(300):
        commands, n = int(rng.integers(1, 6)), int(rng.integers(0, 12))
        stage = native.int64s(np.sort(rng.integers(0, 4, commands)))
        lo = rng.integers(0, 30, n)
        uses = [
            np.sort(rng.integers(0, commands, n)),
            rng.integers(0, 3, n),
            lo,
            lo + rng.integers(1, 9, n),
            rng.integers(0, 2, n),
        ]
        arrays = [native.int64s(a) for a in uses]
        pointers = [native.pointer(a, "int64_t *") for a in arrays]
        found.append(lib.ie_core_stage_check(commands, native.pointer(stage, "int64_t *"), n, *pointers))
    yield "ie_core_stage_check", native.int64s(found).tobytes()


def _sampler() -> Iterator[tuple[str, bytes]]:
    from ie.errors import SampleError
    from ie.sample import Breakers, Sampler
    from tests.cpu.test_sample import random_breakers, random_history, random_params

    rng = np.random.default_rng(6)
    made: list[int] = []
    for _ in range(SAMPLES):
        n = int(rng.choice([1, 7, 127, 128, 129, 300, 1000]))
        row = (rng.normal(size=n) * float(rng.choice([0.01, 1, 5, 40]))).astype(np.float32)
        row[rng.random(n) < 0.1] = -np.inf
        row[int(rng.integers(n))] = 1.0
        params, breakers = random_params(rng, n), Breakers.from_pairs(random_breakers(rng))
        sampler, history = Sampler(params, n, breakers), random_history(rng, n)
        for index in range(4):
            try:
                made.append(sampler.sample(row, index, history))
            except SampleError:
                made.append(-1)
    yield "ie_sample", native.int64s(made).tobytes()
    _, lib = native.lib()
    yield "ie_sample_work_bytes", native.int64s([lib.ie_sample_work_bytes(n, n % 77) for n in range(1, 900)]).tobytes()
    yield "ie_uniform", np.array([lib.ie_uniform(7 * i, i, i % 2) for i in range(200)]).tobytes()


def _passes() -> Iterator[tuple[str, bytes]]:
    _, lib = native.lib()
    rng = np.random.default_rng(7)
    isa = native.ISAS.index("portable")
    for n in (1, 15, 16, 17, 100, 127, 128):
        row = (rng.normal(size=n) * 9).astype(np.float32)
        row[rng.random(n) < 0.2] = -np.inf
        row[int(rng.integers(n))] = 30
        weights, sums = np.zeros(n, np.float32), np.zeros(4)
        arrays = native.pointer(weights, "float *"), native.pointer(sums, "double *")
        lib.ie_logit_passes(isa, native.pointer(row, "float *"), n, 30.0, 0.7, *arrays)
        yield f"ie_logit_passes {n}", weights.tobytes() + sums.tobytes()


def _programs() -> Iterator[tuple[str, bytes]]:
    """Every op, and matmul with every weight format, by the walker: portable code, whose bits all others share."""
    from ie.devices.trace import Costs
    from tests.op_cases import SWEPT, draw, weight_formats
    from tests.rig import run_cpu

    costs = []
    cases = [(op, None, seed) for op in SWEPT for seed in (1, 2)] + [("matmul", fmt, 3) for fmt in weight_formats()]
    for op, fmt, seed in cases:
        case = draw(op, seed, fmt, few=True)
        bits = run_cpu(case, isa="portable").bits()
        yield f"ie_run {op} {fmt} {seed}", b"".join(key.encode() + bits[key] for key in sorted(bits))
        costs.append(Costs(case.program).of(0, case.step()))
    for name, values in zip(("tiles", "bytes", "flops"), zip(*costs, strict=True), strict=True):
        yield f"ie_core_command_{name}", native.int64s(values).tobytes()


def digests() -> dict[str, str]:
    parts = (_formulas, _decoders, _repacking, _core, _sampler, _passes, _programs)
    return {name: hashlib.sha256(data).hexdigest() for part in parts for name, data in part()}


def main() -> None:
    if len(sys.argv) > 1:
        native.LIB_DIR = Path(sys.argv[1])
    json.dump(digests(), sys.stdout)
