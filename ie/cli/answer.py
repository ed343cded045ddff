"""One answer: tokens from the engine, text to the console, until something ends it.

Owns: the order of that work (stop texts, incomplete UTF-8, the end tokens), its timing, and Ctrl-C during it. Does not
own where the prompt comes from, nor what is said about the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import ResourceError
from .dump import LogitsDump
from .options import Options
from .session import Logits, Session, forbidden_tokens
from .summary import Timing

DUMP_ROWS = 256  # prompt tokens computed at a time for --dump-logits
ROOM_FOR_ANSWER = 256  # tokens, in the context length that an error message proposes

Reason = Literal["end", "limit", "context", "stop", "interrupt"]


@dataclass
class Answer:
    """What came out."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    reason: Reason = "end"
    timing: Timing = Timing()
    drafts: str = ""

    @property
    def note(self) -> str:
        """For the summary: what became of drafts, and why the text ended, where the reader would wonder."""
        why = {"context": "ended: the context is full (-c)", "interrupt": "interrupted"}.get(self.reason, "")
        return " · ".join(filter(None, (self.drafts, why)))


LONG_TEXT = 1 << 16  # bytes from which it is worth asking, before a text is cut into tokens, whether it can fit


def check_bytes(n: int, session: Session) -> None:
    """ResourceError when a text of n bytes cannot fit into the context whatever its tokens are."""
    if n < LONG_TEXT:
        return
    words = session.tokenizer
    longest = max((len(words.text(i)) for i in range(words.n_vocab)), default=1)
    n_ctx = session.engine.n_ctx
    if n > n_ctx * longest:
        raise ResourceError(
            f"the prompt has {n:,} bytes, a context of {n_ctx:,} tokens holds {n_ctx * longest:,} at most: shorten it"
        )


def check_length(n_prompt: int, session: Session) -> None:
    """ResourceError when the prompt does not fit into the context."""
    n_ctx = session.engine.n_ctx
    if n_prompt <= n_ctx:
        return
    if n_prompt <= session.trained_context:
        hint = f"Give it -c {min(n_prompt + ROOM_FOR_ANSWER, session.trained_context)}, or shorten it"
    else:
        hint = f"This model was made for {session.trained_context:,}: shorten the prompt"
    raise ResourceError(f"the prompt has {n_prompt:,} tokens and the context holds {n_ctx:,}. {hint}")


def feed(session: Session, seq: Any, ids: Sequence[int], dump: LogitsDump) -> None:
    """Computes tokens for their logits alone, a few at a time, so that memory stays bounded."""
    for start in range(0, len(ids), DUMP_ROWS):
        piece = ids[start : start + DUMP_ROWS]
        dump.add(piece, session.engine.forward(seq, piece, "all"))


def _adder(seq: Any, dump: LogitsDump) -> Callable[[Logits], None]:
    """Writes the logits of each step, whose tokens are the next ones of the sequence."""
    return lambda logits: dump.add(seq.tokens[dump.rows : dump.rows + len(logits)], logits)


def answer(
    session: Session,
    seq: Any,
    prompt: Sequence[int],
    chosen: Options,
    seed: int,
    emit: Callable[[str], None],
    *,
    emit_id: Callable[[int], None] | None = None,
    dump: LogitsDump | None = None,
) -> Answer:
    """Feeds `prompt` (at least one token, on top of what `seq` holds) and generates.

    `emit` gets each piece of text as soon as it is certain, `emit_id` each token. Ctrl-C ends it and is reported in
    the result; after that `seq` is in an unknown state. Exceptions of `emit` pass through.
    """
    from ..tokenizer import StopMatcher

    result = Answer()
    engine, tokenizer = session.engine, session.tokenizer
    stream, matcher = tokenizer.stream(), StopMatcher(chosen.stop)
    eog = frozenset[int]() if chosen.ignore_eos else tokenizer.eog_ids
    limit = chosen.n_predict if chosen.n_predict >= 0 else engine.n_ctx
    held = len(seq)
    drafting = session.drafting
    start = first = last = time.monotonic()

    def out(text: str) -> None:
        if text:
            result.text += text
            emit(text)

    try:
        rest = list(prompt)
        if dump is not None:
            whole = (len(rest) - 1) // DUMP_ROWS * DUMP_ROWS
            feed(session, seq, rest[:whole], dump)
            rest = rest[whole:]
        tokens = session.generate(
            engine,
            seq,
            rest,
            session.make_sampler(chosen, seed, forbidden_tokens(chosen, tokenizer, engine.n_vocab)),
            max_tokens=limit,
            eog_ids=eog,
            on_logits=_adder(seq, dump) if dump is not None else None,
            **(drafting.begin() if drafting is not None else {}),
        )
        result.reason = "limit"
        with closing(tokens):  # at once, so that `seq` holds what was seen and no drafts beyond it
            for token in tokens:
                last = time.monotonic()
                first = first if result.ids else last
                result.ids.append(token)
                if emit_id is not None:
                    emit_id(token)
                if token in eog:
                    result.reason = "end"
                    break
                out(matcher.push(stream.push(token)))
                if matcher.stopped:
                    result.reason = "stop"
                    break
            else:
                if len(result.ids) < limit or chosen.n_predict < 0:
                    result.reason = "context"
        if not matcher.stopped:
            out(matcher.push(stream.flush()))
            out(matcher.flush())
    except KeyboardInterrupt:
        result.reason = "interrupt"
    steps = after = max(0, len(result.ids) - 1)
    if drafting is not None:
        drafting.end()
        steps, result.drafts = drafting.last.steps, drafting.last.describe()
    prompt_seconds = (first if result.ids else time.monotonic()) - start
    # Interrupted before the first token, only part of the prompt was computed.
    computed = len(prompt) if result.ids else min(max(0, len(seq) - held), len(prompt))
    result.timing = Timing(computed, prompt_seconds, len(result.ids), steps, last - first, after)
    return result
