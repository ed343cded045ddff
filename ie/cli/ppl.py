"""`ie-ppl`: how well a model predicts a text, and how its predictions differ from another model's.

Owns: which measurement is asked for, and the wording of results. Does not own how anything is computed
(ie/measure/ppl.py). Results go to stdout as they come.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

import numpy as np

from ..errors import OptionError, TokenizerError
from ..measure.ppl import (
    QUANTILES,
    Divergence,
    Estimate,
    Perplexity,
    Scores,
    Windows,
    disjoint,
    divergence,
    perplexity,
    quantiles,
    strided,
)
from ..measure.ppl_file import Reader, Shape, Writer
from . import console as console_module
from .console import OK, Console
from .dump import AtomicFile
from .inputs import check_outputs, read_bytes
from .options import Options
from .session import Loader, Session

COMMAND = "ie-ppl"


def main(argv: Sequence[str] | None = None, loader: Loader | None = None) -> int:
    """Entry point; returns the exit status. Tests give a loader of their own."""
    words = sys.argv[1:] if argv is None else argv
    return console_module.run(COMMAND, words, lambda console, chosen: _main(console, chosen, loader))


def _main(console: Console, chosen: Options, loader: Loader | None) -> int:
    check(chosen)
    data = None if chosen.text_file is None else read_bytes(chosen.text_file).removesuffix(b"\n")
    if chosen.kl_divergence:
        assert chosen.kl_base is not None
        with Reader(chosen.kl_base) as base:
            session = _load(console, chosen, base.shape.n, loader)
            try:
                return _compare(console, session, base, data, chosen)
            finally:
                session.engine.close()
    assert data is not None
    check_outputs({"--kl-divergence-base": chosen.kl_base}, chosen)
    session = _load(console, chosen, chosen.window + chosen.stride // 2, loader)
    try:
        return _measure(console, session, data, chosen)
    finally:
        session.engine.close()


def check(chosen: Options) -> None:
    """OptionError for options that are missing or exclude each other."""
    if chosen.model is None:
        raise OptionError("no model: name a GGUF file, as in: ie-ppl model.gguf -f text.txt")
    if chosen.chunks == 0:
        raise OptionError("--chunks 0 measures nothing: give a number of windows, or -1 for all")
    if chosen.kl_divergence:
        if chosen.kl_base is None:
            raise OptionError("--kl-divergence needs the file to compare with: --kl-divergence-base FILE")
        for name, flag in (("stride", "--stride"), ("first", "--first"), ("window", "-c")):
            if name in chosen.given:
                raise OptionError(f"{flag} cannot be given with --kl-divergence: the base file says what is compared")
    elif chosen.text_file is None:
        raise OptionError("no text: name a file with -f")
    elif chosen.kl_base is not None and (chosen.stride or chosen.first >= 0):
        raise OptionError("--kl-divergence-base: its format has no place for --stride or --first")
    elif chosen.stride and chosen.first >= 0:
        raise OptionError("--first cannot be given with --stride, which says what counts")


def _default_loader() -> Loader:
    from .load import load

    return load


def _load(console: Console, chosen: Options, n_ctx: int, loader: Loader | None) -> Session:
    session = (loader or _default_loader())(dataclasses.replace(chosen, ctx_size=n_ctx))
    for warning in session.warnings:
        console.line(warning)
    for note in session.notes:
        console.note(note)
    if n_ctx > session.trained_context:
        console.line(f"note: the model was made for a context of {session.trained_context:,} tokens, not more")
    if session.tokenizer.add_eos:
        session.engine.close()
        raise TokenizerError(f"{chosen.model}: its texts end with an end token, for which perplexity is not defined")
    return session


def _bos(session: Session) -> int | None:
    return session.tokenizer.bos_id if session.tokenizer.add_bos else None


def _tokens(session: Session, data: bytes) -> list[int]:
    return session.tokenizer.encode(data, add_special=True, parse_special=False)


# -- perplexity --------------------------------------------------------------------------------------------------------


def _measure(console: Console, session: Session, data: bytes, chosen: Options) -> int:
    text = _tokens(session, data)
    if chosen.stride:
        windows = strided(len(text), chosen.window, chosen.stride)
    else:
        first = None if chosen.first < 0 else chosen.first
        windows = disjoint(len(text), chosen.window, first, _bos(session))
    windows = windows.limited(chosen.chunks)
    console.note(f"{len(text):,} tokens, {len(windows.starts):,} windows, {windows.predictions:,} predictions in each")
    if chosen.kl_base is None:
        _estimate(console, session, text, windows, None)
        return OK
    with AtomicFile(chosen.kl_base) as target:
        shape = Shape(windows.size, session.engine.n_vocab, len(windows.starts))
        _estimate(console, session, text, windows, Writer(target.file, shape, np.array(text[: shape.chunks * shape.n])))
        target.commit()
    return OK


def _estimate(console: Console, session: Session, text: list[int], windows: Windows, writer: Writer | None) -> None:
    def keep(scores: Scores) -> None:
        if writer is not None:
            writer.add(scores.logits)

    found = Perplexity()
    for number, found in enumerate(perplexity(session.engine, text, windows, keep), 1):
        console.text(f"[{number}]{found.value:.4f},")
    console.text(f"\nFinal estimate: PPL = {found.value:.4f} +/- {found.error:.5f}\n")


# -- divergence --------------------------------------------------------------------------------------------------------

_COLUMNS = ("window", "PPL", "ln(PPL/base)", "KL divergence", "Δp RMS", "same top")


def _compare(console: Console, session: Session, base: Reader, data: bytes | None, chosen: Options) -> int:
    if data is not None:
        text = np.array(_tokens(session, data)[: base.tokens.size])
        if not np.array_equal(text, base.tokens.reshape(-1)):
            raise OptionError(
                f"{chosen.kl_base}: was not made from the text of {chosen.text_file}, or with other tokens"
            )
    found = Divergence()
    for number, found in enumerate(divergence(session.engine, base, _bos(session), chosen.chunks), 1):
        if number == 1:
            console.text("  ".join([f"{_COLUMNS[0]:>6}", *(f"{name:>20}" for name in _COLUMNS[1:])]) + "\n")
        ppl = Estimate(found.q.value, found.q.error)
        cells = [_pm(ppl, 4), _pm(found.log_ratio, 5), _pm(found.kl_mean, 5)]
        cells += [_pm(found.delta_rms, 3, 100) + " %", _pm(found.same_top_share, 3, 100) + " %"]
        console.text("  ".join([f"{number:>6}", *(f"{cell:>20}" for cell in cells)]) + "\n")
    for line in report(found):
        console.text(line + "\n")
    return OK


def _pm(value: Estimate, digits: int, scale: float = 1) -> str:
    return f"{scale * value.value:.{digits}f} ± {scale * value.error:.{digits}f}"


def report(found: Divergence) -> list[str]:
    """Every statistic, a line each."""
    rows = [
        ("perplexity", ""),
        ("mean PPL(Q)", _pm(Estimate(found.q.value, found.q.error), 6)),
        ("mean PPL(base)", _pm(Estimate(found.base.value, found.base.error), 6)),
        ("correlation of ln PPL", f"{100 * found.correlation:.2f} %"),
        ("mean ln(PPL(Q)/PPL(base))", _pm(found.log_ratio, 6)),
        ("mean PPL(Q)/PPL(base)", _pm(found.ratio, 6)),
        ("mean PPL(Q)-PPL(base)", _pm(found.difference, 6)),
        ("KL divergence (nats)", ""),
        ("mean KLD", _pm(found.kl_mean, 6)),
    ]
    rows += _spread("KLD", found.kl_values(), 1, 6, "", (0.25, 0.75))
    rows += [("probability of the token that came", ""), ("mean Δp", _pm(found.delta_mean, 3, 100) + " %")]
    rows += _spread("Δp", found.delta_values(), 100, 3, " %", ())
    rows += [
        ("RMS Δp", _pm(found.delta_rms, 3, 100) + " %"),
        ("same top token", _pm(found.same_top_share, 3, 100) + " %"),
    ]
    lines = []
    for name, value in rows:
        lines += ["", f"{name}:"] if not value else [f"  {name:<26} {value}"]
    return lines


def _spread(
    name: str, values: np.ndarray, scale: float, digits: int, unit: str, without: tuple[float, ...]
) -> list[tuple[str, str]]:
    """Largest, quantiles and smallest."""
    chosen = [q for q in QUANTILES if q not in without]
    labels = [f"largest {name}", *(f"median {name}" if q == 0.5 else f"{100 * q:.1f} % {name}" for q in chosen)]
    found = quantiles(values, [1.0, *chosen, 0.0])
    return [
        (label, f"{scale * value:.{digits}f}{unit}")
        for label, value in zip([*labels, f"smallest {name}"], found, strict=True)
    ]
