"""`ie-tokenize`: the tokens of a text, as a file's vocabulary defines them.

Owns: the forms of the list. Needs no model: a file with a vocabulary alone is enough.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .. import tokenizer
from ..errors import OptionError
from ..gguf import GgufFile
from ..tokenizer.codec import NoTokenizer
from . import console as console_module
from .console import OK, Console
from .inputs import read_bytes
from .options import Options
from .visible import one_line

COMMAND = "ie-tokenize"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return console_module.run(COMMAND, words, _main)


def _main(console: Console, chosen: Options) -> int:
    if chosen.model is None:
        raise OptionError("no vocabulary: name a GGUF file, as in: ie-tokenize model.gguf -p TEXT")
    if (chosen.tokenize_text is None) == (chosen.tokenize_file is None):
        raise OptionError("give the text either with -p or with -f")
    with GgufFile.open(chosen.model) as gguf:
        words = tokenizer.load(gguf)
    if isinstance(words, NoTokenizer):
        raise OptionError(f"{chosen.model}: the file has no vocabulary")
    if chosen.tokenize_file is not None:
        data = read_bytes(chosen.tokenize_file)
    else:
        data = (chosen.tokenize_text or "").encode("utf-8", "surrogateescape")
    ids = words.encode(data, add_special=chosen.bos, parse_special=chosen.parse_special is not False)
    if chosen.ids:
        console.text(f"[{', '.join(map(str, ids))}]\n")
    else:
        width = len(str(max(ids, default=0)))
        console.text(
            "".join(f"{token:>{width}} -> '{piece_text(words.piece(token, special=True))}'\n" for token in ids)
        )
    if chosen.show_count:
        console.text(f"{len(ids)} tokens\n")
    return OK


def piece_text(piece: bytes) -> str:
    r"""A piece on one line: control characters and bytes that are not UTF-8 by themselves as \n and \xe2."""
    return one_line(piece.decode("utf-8", "backslashreplace"))
