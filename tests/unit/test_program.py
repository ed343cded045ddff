"""Programs: checks of commands, stages, and that joining and fusing change no number."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ie.program import Buffer, Cache, Command, Matrix, Program, Vector, View, finish
from ie.program.passes import JOINED_ROWS, fuse, join
from ie.program.stages import Access, accesses, check_stages, stages
from ie.program.step import OUTS, Run
from tests.graphs import N_TOKENS, Graph
from tests.rig import Case, Recorder, run_cpu

SEEDS = range(60)


def _case(graph: Graph, program: Program) -> Case:
    tokens = np.random.default_rng(1).integers(0, N_TOKENS, 5).tolist()
    return Case(program, {}, [Run(0, 0, tokens)], file=graph.file)


def _plain(graph: Graph, outputs: dict[str, View]) -> Program:
    commands = tuple(graph.commands)
    return Program(commands, stages(commands), outputs)


@pytest.mark.parametrize("seed", SEEDS)
def test_join_and_fuse_change_no_number_in_the_reference(seed: int) -> None:
    graph = Graph(seed)
    outputs = graph.outputs()
    before = _case(graph, _plain(graph, outputs))
    after = _case(graph, finish(graph.commands, outputs))
    results = []
    for case in (before, after):
        ref = Recorder(case, exact=True)
        ref.run(0, case.step())
        results.append([ref.get(v) for v in case.program.outputs.values()])
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape and np.isfinite(a).all()
        assert np.abs(a - b).max() <= 1e-9 * np.abs(a).max()


@pytest.mark.parametrize("seed", SEEDS)
def test_join_and_fuse_change_no_bit_on_the_cpu(seed: int) -> None:
    graph = Graph(seed)
    outputs = graph.outputs()
    before, after = (_case(graph, p) for p in (_plain(graph, outputs), finish(graph.commands, outputs)))
    a, b = run_cpu(before), run_cpu(after, threads=2)
    for x, y in zip(before.program.outputs.values(), after.program.outputs.values(), strict=True):
        assert a.floats(x).tobytes() == b.floats(y).tobytes()


def test_the_graphs_exercise_every_pass() -> None:
    """Products of several tensors, Q8 straight from producers with and without F32, residuals, sums left alone."""
    finished = [c for s in SEEDS for c in finish(Graph(s).commands, Graph(s).outputs()).commands]
    products = [c for c in finished if c.op == "matmul"]
    assert any(len(c.args["w"].names) > 2 for c in products) and any(len(c.args["w"].names) == 1 for c in products)
    assert any("res" in c.args and "bias" in c.args for c in products)
    assert any("res" in c.args and c.args["res"] == c.args["y"] for c in products)
    for op in ("rmsnorm", "glu"):
        kinds = {("y" in c.args, "yq" in c.args) for c in finished if c.op == op}
        assert kinds == {(True, False), (False, True), (True, True)}
    assert any(c.op == "quantize" for c in finished) and any(c.op == "add" for c in finished)


# ---- stages ----


def _conflict(a: Command, b: Command) -> bool:
    """Written anew: some column of some buffer or some cache is touched by both and written by one."""

    def touched(c: Command) -> tuple[set[object], set[object]]:
        reads, writes = set[object](), set[object]()
        for arg, view in c.views():
            cells = {(view.buffer.name, i) for i in range(view.offset, view.offset + view.cols)}
            reads |= cells if "r" in arg.access else set()
            writes |= cells if "w" in arg.access else set()
        for name, value in c.args.items():
            if isinstance(value, Cache):
                (writes if c.op == "rope" else reads).add((value.layer, value.which))
            assert name
        return reads, writes

    (ra, wa), (rb, wb) = touched(a), touched(b)
    return bool(wa & (rb | wb) or wb & (ra | wa))


@pytest.mark.parametrize("seed", range(40))
def test_stages_are_free_of_conflicts_and_as_few_as_a_greedy_walk_gives(seed: int) -> None:
    commands = tuple(Graph(seed).commands) if seed % 2 else finish(Graph(seed).commands, {}).commands
    stage = stages(commands)
    assert stage[0] == 0 and all(b - a in (0, 1) for a, b in itertools.pairwise(stage))
    for i, j in itertools.combinations(range(len(commands)), 2):
        assert stage[i] != stage[j] or not _conflict(commands[i], commands[j])
    for j in range(1, len(commands)):
        if stage[j] != stage[j - 1]:
            before = [c for c, s in zip(commands, stage, strict=True) if s == stage[j - 1]]
            assert any(_conflict(commands[j], c) for c in before), "a barrier without need"
    starts = Program(commands, stage).stage_starts()
    assert [stage[i] for i in starts[:-1]] == list(range(stage[-1] + 1)) and starts[-1] == len(commands)


@pytest.mark.parametrize("seed", range(20))
def test_merged_stages_are_refused_exactly_when_they_conflict(seed: int) -> None:
    commands = tuple(Graph(seed).commands)
    stage, acc = stages(commands), accesses(commands)
    for cut in range(1, stage[-1] + 1):
        merged = tuple(s - (s >= cut) for s in stage)
        pairs = itertools.combinations(range(len(commands)), 2)
        bad = any(merged[i] == merged[j] and _conflict(commands[i], commands[j]) for i, j in pairs)
        assert bad, "greedy stages cannot be merged"
        with pytest.raises(AssertionError, match="stage check refused access"):
            check_stages(merged, acc)
    split = tuple(range(len(commands)))  # a stage of its own for each command is always right
    check_stages(split, acc)
    with pytest.raises(AssertionError, match="refused"):
        check_stages(tuple(reversed(split)), acc)


def test_programs_without_commands_have_no_stages() -> None:
    assert stages(()) == () and Program((), ()).stage_starts() == [0]


def test_cache_writes_and_reads_conflict() -> None:
    q = View.of(Buffer("q", "f32", 64))
    k = View.of(Buffer("k", "f32", 32))
    y = View.of(Buffer("y", "f32", 64))
    caches = {"k_cache": Cache(0, "k", 1, 32), "v_cache": Cache(0, "v", 1, 32)}
    other = {"k_cache": Cache(1, "k", 1, 32), "v_cache": Cache(1, "v", 1, 32)}
    rope = Command("rope", {"q": q, "k": k, "v": k, **caches, "head_dim": 32, "n_rot": 0, "neox": 0})
    q2 = View.of(Buffer("q2", "f32", 64))
    scalars = {"head_dim": 32, "heads": 2, "kv_heads": 1, "window": 0, "scale": 1.0}
    attend = Command("attention", {"q": q2, **caches, "y": y, **scalars})
    apart = replace(attend, args={**attend.args, **other})
    assert stages((rope, attend)) == (0, 1) and stages((rope, apart)) == (0, 0)
    modes = {(a.space, a.write) for a in accesses((rope,)) if isinstance(a.space, tuple)}
    assert modes == {((0, "k"), True), ((0, "v"), True)}


def test_reads_and_writes_of_one_argument_are_both_accesses() -> None:
    x = View.of(Buffer("x", "f32", 8))
    assert accesses((Command("softcap", {"x": x, "cap": 1.0}),)) == [
        Access(0, x.buffer, 0, 8, False),
        Access(0, x.buffer, 0, 8, True),
    ]


# ---- checks of commands ----

F32, Q8 = ("F32", "f32"), ("Q8_0", "q8")


def _view(name: str, cols: int, dtype: str = "f32") -> View:
    return View.of(Buffer(name, dtype, cols))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (Command("add", {"a": _view("a", 8), "b": _view("b", 9), "y": _view("y", 8)}), "add .*b: N is 9, but 8 at .*a"),
        (Command("add", {"a": _view("a", 8), "b": _view("b", 8)}), "add .*y is missing"),
        (Command("quantize", {"x": _view("x", 32), "yq": _view("y", 32)}), "quantize .*yq is f32"),
        (Command("quantize", {"x": _view("x", 32, "q8"), "yq": _view("y", 32, "q8")}), "quantize .*x is q8"),
        (Command("add", {**{n: _view(n, 8) for n in "aby"}, "z": 1}), "add: no argument {'z'}"),
        (
            Command("matmul", {"x": _view("x", 32), "w": Matrix(("w",), (8,), 64, *F32), "y": _view("y", 8)}),
            "matmul .*w: K is 64, but 32",
        ),
        (
            Command(
                "matmul",
                {
                    "x": _view("x", 64),
                    "w": Matrix(("w",), (8,), 64, *F32),
                    "y": _view("y", 8),
                    "bias": Vector(("b",), 9),
                },
            ),
            "matmul .*bias: M is 9, but 8",
        ),
    ],
)
def test_commands_name_what_does_not_fit(command: Command, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        command.check()


def test_slices_stay_inside() -> None:
    v = _view("x", 96).slice(32, 64)
    assert v.slice(32, 32) == View(v.buffer, 64, 32)
    for offset, cols in ((-1, 8), (60, 5), (0, 65)):
        with pytest.raises(AssertionError):
            v.slice(offset, cols)
    with pytest.raises(AssertionError):
        _view("q", 32, "q8").slice(0, 32)


# ---- passes on small programs ----


def _product(name: str, x: View, m: int, kind: tuple[str, str] = F32, domain: int = 0, **more: object) -> Command:
    y = View.of(Buffer("y" + name, "f32", m, domain))
    return Command("matmul", {"x": x, "w": Matrix((name,), (m,), x.cols, *kind), "y": y, **more}, domain=domain)


def _names(commands: Sequence[Command]) -> list[tuple[str, ...]]:
    return [c.args["w"].names for c in commands if c.op == "matmul"]


def test_join_stacks_products_of_one_input() -> None:
    x = _view("x", 64)
    q, k, v = (_product(n, x, m) for n, m in (("q", 64), ("k", 32), ("v", 40)))
    assert _names(join([q, k, v])) == [("q", "k", "v")]
    assert _names(join([q, v, k])) == [("q", "v"), ("k",)]  # 104 rows do not end a group of 32
    short = _product("s", x, 16)
    assert _names(join([short, q])) == [("s",), ("q",)] and JOINED_ROWS == 32
    after = Command("add", {"a": k.args["y"], "b": _view("z", 32), "y": _view("s", 32)})
    (joined, add) = join([q, k, after])
    assert add.args["a"] == View(joined.args["y"].buffer, 64, 32)


def test_join_leaves_alone_what_differs() -> None:
    x, z = _view("x", 64), _view("z", 64)
    first = _product("a", x, 32)
    bias = Vector(("b",), 32)
    for other in (
        _product("b", z, 32),
        _product("b", _view("x", 64, "q8"), 32, Q8),
        _product("b", x, 32, bias=bias),
        _product("b", x, 32, res=z.slice(0, 32)),
        _product("b", x, 32, domain=OUTS),
    ):
        assert join([first, other]) == [first, other]


def test_an_output_is_still_there_after_joining() -> None:
    """Two heads of one input, both read at the end."""
    x = _view("x", 64)
    a, b = _product("a", x, 32), _product("b", x, 32)
    program = finish([a, b], {"a": a.args["y"], "b": b.args["y"]})
    assert {v.buffer for v in program.outputs.values()} <= set(program.buffers)


def test_an_output_is_still_written_after_fusing() -> None:
    x, y, z = _view("x", 64), _view("y", 64), _view("z", 64)
    q, w = _view("q", 64, "q8"), Vector(("w",), 64)
    norm = Command("rmsnorm", {"x": x, "w": w, "y": y, "width": 64, "eps": 1e-5})
    quantise = Command("quantize", {"x": y, "yq": q})
    (fused,) = fuse([norm, quantise])
    assert fused.args["yq"] == q and "y" not in fused.args
    (kept,) = fuse([norm, quantise], frozenset({y.buffer}))
    assert kept.args["yq"] == q and kept.args["y"] == y
    product = _product("a", x, 64)
    add = Command("add", {"a": product.args["y"], "b": z, "y": _view("s", 64)})
    (one,) = fuse([product, add])
    assert one.args["res"] == z and one.args["y"] == add.args["y"]
    assert fuse([product, add], frozenset({product.args["y"].buffer})) == [product, add]


def test_heads_that_do_not_fill_blocks_are_quantised_apart() -> None:
    x, y, q = _view("x", 96), _view("y", 96), _view("q", 96, "q8")
    quantise = Command("quantize", {"x": y, "yq": q})
    for width, n in ((48, 2), (32, 1)):
        w = Vector(("w",), width)
        norm = Command("rmsnorm", {"x": x, "w": w, "y": y, "width": width, "eps": 1e-5})
        assert len(fuse([norm, quantise])) == n


def test_a_product_is_not_fused_into_its_own_input() -> None:
    """x + x W into x: tiles of one command must not read what others of it overwrite."""
    x = _view("x", 64)
    product = _product("a", x, 64)
    add = Command("add", {"a": x, "b": product.args["y"], "y": x})
    assert fuse([product, add]) == [product, add]


def test_a_product_added_to_itself_is_left_alone() -> None:
    product = _product("a", _view("x", 64), 64)
    y = product.args["y"]
    add = Command("add", {"a": y, "b": y, "y": _view("s", 64)})
    assert fuse([product, add]) == [product, add]
