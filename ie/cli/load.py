"""Loading a model for the commands: engine, tokenizer, and what was chosen automatically.

Owns: putting the two together, with their timing. Stands apart from session.py so that the parts of a run can be
tested without an engine.
"""

from __future__ import annotations

import dataclasses
import time

from .. import options, tokenizer
from ..engine import Engine, measured_bandwidth
from ..generate import generate
from ..machine import this_machine
from ..options import Options
from ..sample import Sampler, SamplerParams
from .session import SamplerLike, Session


def load(chosen: Options) -> Session:
    """Opens the model that the options name. IeError for whatever is wrong with it."""
    assert chosen.model is not None
    start = time.monotonic()
    here = this_machine()
    asked = chosen.engine()
    wanted = dataclasses.replace(asked, threads=options.resolve_threads(asked.threads, here.cores))
    engine = Engine.open(chosen.model, wanted)
    try:
        words = tokenizer.load(engine.gguf)
    except BaseException:
        engine.close()
        raise

    def make_sampler(chosen: Options, seed: int) -> SamplerLike:
        params = SamplerParams(chosen.temp, chosen.top_k, chosen.top_p, chosen.min_p, seed)
        return Sampler(params, engine.n_vocab)

    return Session(
        engine=engine,
        tokenizer=words,
        generate=generate,
        make_sampler=make_sampler,
        load_seconds=time.monotonic() - start,
        weight_bytes=engine.stats.weight_bytes,
        bandwidth=measured_bandwidth,
        trained_context=engine.config.n_ctx_train,
        notes=(
            f"executor {wanted.executor}" + (f", {engine.stats.isa}" if wanted.executor == "cpu" else ""),
            f"threads {wanted.threads}" + (" (auto: one for each core)" if asked.threads == 0 else ""),
            f"context {engine.n_ctx:,} tokens" + (" (auto)" if asked.n_ctx == 0 else ""),
        ),
    )
