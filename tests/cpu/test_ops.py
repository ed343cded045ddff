"""Every op on the CPU against the numpy reference; and what never changes a bit: instruction set, threads, batch.

Cases are drawn from the op table (tests/op_cases.py). Each run stands between guard bands, and a byte that the command
has no right to write must stay as it was.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ie import native
from ie.formats import LAYOUTS
from ie.ops import OPS
from ie.program import Buffer, Command, Partials, Program, View
from ie.program.step import OUTS, ROW, Run
from tests.op_cases import SWEPT, check_against_reference, draw, weight_formats
from tests.rig import ISAS, Array, Case, CaseRun, Recorder, on_cpu, run_cpu, run_reference, used_bytes

SEEDS = range(14)
WEIGHTED = [op.name for op in OPS.values() if any(a.kind in ("matrix", "matrices") for a in op.args)]
PLAIN = [(name, seed, None) for name in SWEPT if name not in WEIGHTED for seed in SEEDS]
FAST = {layout.format_name for layout in LAYOUTS}
PRODUCTS = [(op, s, fmt) for op in WEIGHTED for fmt in weight_formats() for s in (SEEDS if fmt in FAST else SEEDS[:3])]

sweep = pytest.mark.parametrize(("op", "seed", "fmt"), PLAIN + PRODUCTS)


def _written(case: Case, run: CaseRun, rows: slice) -> dict[str, bytes]:
    """Bytes of some rows of every buffer that the command writes."""
    out = {}
    for arg, view in case.program.commands[0].views():
        if "w" in arg.access:
            out[arg.name] = run.rows(view.buffer, run.capacity(view.buffer))[rows, : used_bytes(view.buffer)].tobytes()
    return out


@sweep
def test_equals_the_reference(op: str, seed: int, fmt: str | None) -> None:
    case = draw(op, seed, fmt)
    check_against_reference(case, run_cpu(case))


@sweep
def test_bits_do_not_depend_on_isa_or_threads(op: str, seed: int, fmt: str | None) -> None:
    case = draw(op, seed, fmt)
    first = run_cpu(case, isa=ISAS[0]).bits()
    for isa in ISAS[1:]:
        assert run_cpu(case, isa=isa).bits() == first, isa
    for threads in (2, 3):
        assert run_cpu(case, threads, isa=ISAS[0]).bits() == first, threads


@sweep
def test_a_row_does_not_depend_on_its_neighbours(op: str, seed: int, fmt: str | None) -> None:
    case = draw(op, seed, fmt)
    domain = case.program.commands[0].domain
    together = run_cpu(case)
    kept = together.kept()
    for i in sorted({0, case.live(domain) // 2, case.live(domain) - 1}):
        alone, rows = case.single(i)
        run = run_cpu(alone)
        assert _written(alone, run, slice(0, rows.stop - rows.start)) == _written(case, together, rows), i
        untouched = on_cpu(alone).kept()
        for key, one in run.kept().items():
            word = f"u{one.itemsize}"
            changed = one.view(word) != untouched[key].view(word)
            assert (kept[key].view(word)[changed] == one.view(word)[changed]).all(), i


@pytest.mark.parametrize("op", SWEPT)
def test_nothing_runs_without_rows_or_when_skipped(op: str) -> None:
    case = draw(op, 1)
    untouched = on_cpu(case).bits()
    assert run_cpu(replace(case, skip=True), skippable=True).bits() == untouched
    assert run_cpu(replace(case, skip=True)).bits() != untouched
    assert run_cpu(case, skippable=True).bits() != untouched
    if case.program.commands[0].domain == OUTS:
        none = replace(case, outs=[])
        assert run_cpu(none, threads=2).bits() == on_cpu(none).bits()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("op", SWEPT)
def test_the_reference_itself_is_close_to_its_evaluation_in_float64(op: str, seed: int) -> None:
    """The q8 reference works in float32: its own rounding must be far below what a wrong kernel would do."""
    case = draw(op, seed)
    plain, exact = run_reference(case), run_reference(case, exact=True)
    for arg, view in case.program.commands[0].views():
        if "w" in arg.access and view.buffer.dtype == "f32":
            a, b = plain.get(view).astype(np.float64), exact.get(view)
            assert np.abs(a - b).max() <= 1e-4 * (np.abs(b).max() + 1e-6), arg.name


def test_the_sweep_covers_what_it_claims() -> None:
    """Ragged columns, partial row groups, windows, one row, many rows, both domains, every optional argument."""
    cases = [draw(op, seed, fmt) for op, seed, fmt in PLAIN + PRODUCTS]
    commands = [c.program.commands[0] for c in cases]
    assert {c.op for c in commands} == set(SWEPT)
    assert min(c.n_rows for c in cases) == 1 and max(c.n_rows for c in cases) > 32
    for op in map(OPS.__getitem__, SWEPT):
        for arg in (a for a in op.args if a.name != "tokens"):
            present = [arg.name in c.args for c in commands if c.op == op.name]
            assert any(present), f"{op.name}.{arg.name} is never given"
            assert not arg.optional or not all(present), f"{op.name}.{arg.name} is always given"
    matrices = [c.args["w"] for c in commands if c.op == "matmul"]
    assert any(w.m % 16 for w in matrices) and any(len(w.rows) > 1 for w in matrices)
    assert {w.format for w in matrices} == set(weight_formats())
    for name, few, many in (("attention", 16, 256), ("rope", 16, 256)):
        dims = [c.args["head_dim"] for c in commands if c.op == name]
        assert min(dims) == few and max(dims) == many
    windows = [c.args["window"] for c in commands if c.op == "attention"]
    assert 0 in windows and any(0 < w < 32 for w in windows) and any(w > 32 for w in windows)


# ---- the written order of a matrix product ----


def _fma(a: Array, b: Array, c: Array) -> Array:
    """Float32, rounded once: the library's software form, which test_formula.py holds against exact arithmetic."""
    parts = [np.ascontiguousarray(np.broadcast_to(x, c.shape), np.float32) for x in (a, b, c)]
    out = np.empty(c.shape, np.float32)
    pointers = [native.pointer(x, "float *") for x in (*parts, out)]
    native.lib()[1].ie_formula_fma_soft(*pointers, out.size)
    return out


def _blocks(fmt: str, raw: Array, m: int) -> tuple[Array, Array, Array | None]:
    """Codes int [m, blocks, 32], scales and minima float32 [m, blocks] of 32-value formats."""
    blocks = raw.reshape(m, -1, {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}[fmt])
    halves = np.ascontiguousarray(blocks[..., :4]).view("<f2").astype(np.float32)
    if fmt == "Q8_0":
        return blocks[..., 2:].view(np.int8).astype(np.int64), halves[..., 0], None
    nibbles = blocks[..., 4:] if fmt == "Q4_1" else blocks[..., 2:]
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).astype(np.int64)
    return (codes, halves[..., 0], halves[..., 1]) if fmt == "Q4_1" else (codes - 8, halves[..., 0], None)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fmt", ["Q8_0", "Q4_0", "Q4_1", "F32", "F16"])
def test_products_follow_the_written_order_bit_for_bit(fmt: str, seed: int) -> None:
    """One accumulator an output, ascending K, each step fused; then bias, then the residual. A sum in another order
    would be as near to the truth, but another instruction set or a GPU would not find the same bits."""
    case = draw("matmul", seed, fmt)
    args = case.program.commands[0].args
    w, ref = args["w"], Recorder(case)
    raw = np.concatenate([case.file[name].data() for name in w.names])
    acc = np.zeros((len(ref.get(args["x"])), w.m), np.float32)
    if fmt in ("F32", "F16"):
        values, x = raw.view("<f4" if fmt == "F32" else "<f2").astype(np.float32).reshape(w.m, -1), ref.get(args["x"])
        for k in range(w.k):
            acc = _fma(values[None, :, k], x[:, k, None], acc)
    else:
        codes, d, least = _blocks(fmt, raw, w.m)
        rows = ref.q8[args["x"].buffer]
        a = rows.codes.astype(np.int64).reshape(len(acc), -1, 32)
        for b in range(w.k // 32):
            da = rows.scales[: len(acc), b, None]
            acc = _fma((a[:, b] @ codes[:, b].T).astype(np.float32), d[None, :, b] * da, acc)
            if least is not None:
                acc = _fma(least[None, :, b], da * a[:, b].sum(axis=-1)[:, None].astype(np.float32), acc)
    if "bias" in args:
        acc = acc + ref.vector(args["bias"])
    if "res" in args:
        acc = acc + ref.get(args["res"])
    got = run_cpu(case, threads=2).floats(args["y"])
    assert got.dtype == acc.dtype == np.float32 and got.tobytes() == acc.tobytes()


# ---- pick, which may end a chain ----


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("seed", range(8))
def test_pick(seed: int, isa: str) -> None:
    """The likeliest token; the chain ends when it is not likely enough or there is no next row."""
    rng = np.random.default_rng(seed)
    n, row, rows = int(rng.integers(1, 90)), int(rng.integers(0, 3)), 3
    x = Buffer("x", "f32", n, ROW)
    logits = (3 * rng.standard_normal((1, n))).astype(np.float32)
    if seed % 2:
        logits[0, rng.integers(0, n, 2)] = 9  # two are equally likely: the lower id wins
    best = int(logits[0].argmax())
    prob = float(1 / np.exp(logits[0].astype(np.float64) - logits[0, best]).sum())
    shift = 1000 if seed % 3 else (1 << 24) + 3  # a float32 would lose the last bits of such an id
    for p_min in (0.0, prob * 0.9, min(1.0, prob * 1.1 + 1e-6)):
        picked, likely = View.of(Buffer("id", "i32", 1, ROW)), View.of(Buffer("prob", "f32", 1, ROW))
        args = {"x": View.of(x), "id": picked, "prob": likely, "split": n // 2, "shift": shift, "p_min": p_min}
        program = Program((Command("pick", args, -1, ROW, row),), (0,))
        case = Case(program, {x: logits}, [Run(0, 0, [7, 8, 9])])
        step = case.step()
        run = run_cpu(case, isa=isa, step=step)
        token = best + (shift if best >= n // 2 else 0)
        ends = prob < p_min or row + 1 == rows
        assert run.ids(picked).item() == token and abs(run.floats(likely).item() / prob - 1) < 1e-5
        assert step.token.tolist() == [7, 8, 9] and step.skip == ends
        ref = Recorder(case)
        ref.run(0, ref.step)
        assert ref.get(picked).item() == token and ref.get(picked).dtype == np.int32
        assert ref.step.token.tolist() == [7, 8, 9] and ref.step.skip == ends


# ---- threads that share the keys of a row ----


@pytest.mark.parametrize("seed", range(40))
def test_shared_keys_give_the_same_bits(seed: int) -> None:
    case = draw("attention", seed, few=True)
    command = case.program.commands[0]
    given = {k: v for k, v in command.args.items() if k != "parts"}
    assert case.n_rows <= 16
    both = []
    for args in (given, {**given, "parts": Partials(given["heads"], given["head_dim"])}):
        program = replace(case.program, commands=(replace(command, args=args),))
        both.append(replace(case, program=program))
    first = run_cpu(both[0]).bits()
    check_against_reference(both[1], run_cpu(both[1]))
    for threads in (1, 2, 3):
        assert run_cpu(both[1], threads).bits() == first, threads
