"""Faults that the sanitizers must notice: each is planted in a process of its own, which has to end with these words.

Owns: the faults. A harness whose redzones do not bite would pass everything.
"""

from __future__ import annotations

from collections.abc import Callable

from ie import native
from ie.engine import Engine
from ie.program import Cache, Matrix
from ie.program.step import Limits
from ie.settings import EngineOptions
from tests import variants
from tests.sanitized.poison import SanitizedExecutor, folder

POISON = "use-after-poison"


def _decode_one_byte_more() -> None:
    import numpy as np

    library = native.lib()[1]
    data, out = np.zeros(3 * 18 - 1, np.uint8), np.empty(96, np.float32)
    library.ie_dequant(2, native.pointer(data, "uint8_t *"), native.pointer(out, "float *"), 96)


def _overflow() -> None:
    native.lib()[1].ie_core_k_index(1 << 62, 1 << 40, 64, 0, 0, 0)


def _model(spoil: Callable[[SanitizedExecutor], None]) -> Callable[[], None]:
    """Run one token after `spoil` has moved something by as little as there is to notice."""

    def run() -> None:
        path = variants.make(
            folder() / "m.gguf", arch="llama", n_layer=1, head_dim=16, formats="F32", n_embd=48,
            n_ff=7, n_head=3, n_kv=1, n_ctx=512,
        )  # fmt: skip
        executor = SanitizedExecutor(1, "portable")
        with Engine.open(str(path), EngineOptions(n_ctx=512, chunk=19), executor) as engine:
            spoil(executor)
            again(executor)
            engine.forward(engine.new_sequence(), [1, 2])

    return run


NO_LIMITS = Limits(*[(1 << 31) - 1] * len(Limits._fields))


def again(executor: SanitizedExecutor) -> None:
    """Every program packed with the addresses as they now are; nobody checks its steps."""
    executor.bound = [executor.bind(b.program, b.offsets, NO_LIMITS) for b in executor.bound]


def _moved(kind: type, by: int) -> Callable[[SanitizedExecutor], None]:
    def spoil(executor: SanitizedExecutor) -> None:
        moved = {item: (region, at + by) for item, (region, at) in executor.at.items() if isinstance(item, kind)}
        executor.at |= moved

    return spoil


_weights = _moved(Matrix, 16)
_cache = _moved(Cache, 15 * 1024 + 31 * 32 + 2)
"""The last block of 32 positions of 16 values; its last position is 31 * 32 bytes on."""


def _arena(executor: SanitizedExecutor) -> None:
    for bound in executor.bound:
        bound.offsets = {b: at + 4 if b.cols % 16 else at for b, at in bound.offsets.items()}
    executor.only_live_rows = _as_planned(executor)  # type: ignore[method-assign]


def _as_planned(executor: SanitizedExecutor) -> Callable[..., None]:
    """The redzones of the places before they were moved."""
    watch = SanitizedExecutor.only_live_rows

    def only(handle: int, step: object) -> None:
        bound = executor.bound[handle]
        moved = bound.offsets
        bound.offsets = {b: at - 4 if b.cols % 16 else at for b, at in moved.items()}
        watch(executor, handle, step)  # type: ignore[arg-type]
        bound.offsets = moved

    return only


def _id() -> None:
    """A token id past the vocabulary, in a step that nobody checks: the file's next tensor begins there."""
    path = variants.make(folder() / "m.gguf", arch="llama", n_layer=1, formats="F32")
    executor = SanitizedExecutor(1, "portable")
    with Engine.open(str(path), EngineOptions(n_ctx=64, chunk=19), executor) as engine:
        seq = engine.new_sequence()
        engine.forward(seq, [1])
        again(executor)
        seq.extend([engine.n_vocab])
        engine.steps.settle(seq)


FAULTS: dict[str, tuple[Callable[[], None], str]] = {
    "a block that ends a byte early": (_decode_one_byte_more, "heap-buffer-overflow"),
    "an index that overflows": (_overflow, "signed integer overflow"),
    "weights 16 bytes further": (_model(_weights), POISON),
    "keys and values behind the chunk": (_model(_cache), POISON),
    "buffers 4 bytes further": (_model(_arena), POISON),
    "a token id past the vocabulary": (_id, POISON),
}
