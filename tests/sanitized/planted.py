"""Faults that the sanitizers must notice: each is planted in a process of its own, which has to end with these words.

Owns: the faults. A harness whose redzones do not bite would pass everything.
"""

from __future__ import annotations

from collections.abc import Callable

from ie import native
from ie.engine import Engine
from ie.settings import EngineOptions
from tests import variants
from tests.sanitized.poison import SanitizedExecutor, folder, patched

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
        with patched():
            executor = SanitizedExecutor(1, "portable")
            with Engine.open(str(path), EngineOptions(n_ctx=512, chunk=19), executor) as engine:
                for bound in executor.bound:
                    bound.struct.limits = 0
                spoil(executor)
                for bound in executor.bound:
                    executor._pack(bound)
                    bound.struct.limits = 0
                engine.forward(engine.new_sequence(), [1, 2])

    return run


def _weights(executor: SanitizedExecutor) -> None:
    executor.weight_address = {w: at + 16 for w, at in executor.weight_address.items()}


def _cache(executor: SanitizedExecutor) -> None:
    last = 15 * 1024  # the last block of 32 positions of 16 values; its last position is 31 * 32 bytes on
    executor.cache_address = {key: at + last + 31 * 32 + 2 for key, at in executor.cache_address.items()}


def _arena(executor: SanitizedExecutor) -> None:
    for bound in executor.bound:
        bound.offsets = dict(bound.offsets)
        for buffer in bound.offsets:
            if buffer.cols % 16:
                bound.offsets[buffer] += 4
    executor._only_live_rows = _as_planned(executor)  # type: ignore[method-assign]


def _as_planned(executor: SanitizedExecutor) -> Callable[..., None]:
    """The redzones of the places before they were moved."""
    watch = SanitizedExecutor._only_live_rows

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
    with patched():
        executor = SanitizedExecutor(1, "portable")
        with Engine.open(str(path), EngineOptions(n_ctx=64, chunk=19), executor) as engine:
            seq = engine.new_sequence()
            engine.forward(seq, [1])
            for bound in executor.bound:
                bound.struct.limits = 0
            seq.extend([engine.n_vocab])
            engine._step(seq, [engine.n_vocab], [0])


FAULTS: dict[str, tuple[Callable[[], None], str]] = {
    "a block that ends a byte early": (_decode_one_byte_more, "heap-buffer-overflow"),
    "an index that overflows": (_overflow, "signed integer overflow"),
    "weights 16 bytes further": (_model(_weights), POISON),
    "keys and values behind the chunk": (_model(_cache), POISON),
    "buffers 4 bytes further": (_model(_arena), POISON),
    "a token id past the vocabulary": (_id, POISON),
}
