"""mtp: drafts by the model's multi-token prediction block.

Owns: what the block needs of an engine before it is opened (`Mtp`), and chains of drafts (`MtpChain`): one run of the
block's program drafts several tokens, each fed the one before. Does not own the block's commands (`model.mtp`) nor how
many drafts are worth while (`choose`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..engine import Engine
from ..engine.kv import KvSequence
from ..gguf import GgufFile, TensorSet
from ..model import mtp
from ..model.config import ModelConfig
from ..program import Program
from ..settings import DraftOptions

CHAIN = "mtp"
"""Name of the program."""


class Mtp:
    """The MTP block as a `DraftModel`, in the model's own file or the one that the options name. Without such a block
    nothing is drafted."""

    def __init__(self, options: DraftOptions | None = None) -> None:
        self.options = options or DraftOptions()
        self._file: GgufFile | None = None

    def adopt(self, tensors: TensorSet, config: ModelConfig) -> tuple[TensorSet, ModelConfig]:
        if self.options.file is None:
            return tensors, config
        self._file = GgufFile.open(self.options.file)
        return mtp.adopt(tensors, config, self._file)

    def taps(self, config: ModelConfig) -> bool:
        return config.mtp is not None

    def programs(self, tensors: TensorSet, config: ModelConfig, ring: int) -> Mapping[str, Program]:
        if config.mtp is None:
            return {}
        o = self.options
        return {CHAIN: mtp.build_chain(tensors, config, ring, o.depth, o.p_min, o.vocabulary, o.q4_head)}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class MtpChain:
    """Chains of drafts on an engine that was opened with `Mtp`; see `chain_of`."""

    def __init__(self, engine: Engine, p_min: float) -> None:
        self.engine, self.p_min = engine, p_min
        self.depth = len(engine.programs[CHAIN].outputs) // 2

    def draft(self, seq: KvSequence, token: int, n: int) -> list[tuple[int, float]]:
        """Up to `n` drafts after `token`, which follows the sequence but has not run: (token, probability) each.

        The last one may be below p_min. The sequence keeps its tokens."""
        n = min(n, self.depth, self.engine.n_ctx - len(seq))
        if n < 1:
            return []
        output = self.engine.run(CHAIN, seq, [token] + [0] * (n - 1))
        out: list[tuple[int, float]] = []
        for i in range(n):
            drafted, prob = output(f"id.{i}").item(), output(f"prob.{i}").item()
            out.append((drafted, prob))
            if not prob >= self.p_min:
                break
        return out


def chain_of(engine: Engine) -> MtpChain | None:
    """None for an engine without the block's program."""
    model = engine.draft_model
    return MtpChain(engine, model.options.p_min) if isinstance(model, Mtp) and CHAIN in engine.programs else None
