"""`ie-run --info`: what is in a GGUF file, as text.

Owns: the wording. Everything printed that comes from the file is made safe for a terminal.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import IeError
from .summary import number
from .visible import one_line

if TYPE_CHECKING:
    from ..gguf import GgufFile

MAX_VALUE_CHARS = 100


def size(n_bytes: int) -> str:
    """Bytes in the unit that suits them: 98.4 MB."""
    value, unit = float(n_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{n_bytes} B" if unit == "B" else f"{number(value)} {unit}"


def _value(value: object) -> str:
    if isinstance(value, str):
        text = one_line(value)
        return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}… ({len(value):,} characters)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:g}"
    return f"[{getattr(value, 'type', '?')} × {len(value):,}]"  # type: ignore[arg-type]


def _columns(rows: Sequence[tuple[str, ...]], right: frozenset[int] = frozenset()) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        padded = zip(row, widths, range(len(row)), strict=True)
        cells = (cell.rjust(width) if i in right else cell.ljust(width) for cell, width, i in padded)
        yield ("  " + "  ".join(cells)).rstrip()


def lines(gguf: GgufFile) -> Iterator[str]:
    """The description of a file, line by line."""
    from ..gguf.mapped import show
    from ..model.config import ModelConfig

    parts = f", {gguf.n_parts} parts" if gguf.n_parts > 1 else ""
    yield f"file      {one_line(str(gguf.path))}"
    yield f"          GGUF version {gguf.version}, {size(gguf.file_size)}{parts}, alignment {gguf.alignment}"
    by_format: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for tensor in gguf.tensors.values():
        entry = by_format[tensor.format.name]
        elements = 1
        for dim in tensor.shape:
            elements *= dim
        entry[0] += 1
        entry[1] += elements
        entry[2] += tensor.nbytes
    total = sum(entry[1] for entry in by_format.values())
    yield f"          {len(gguf.tensors):,} tensors, {total:,} parameters"
    yield ""
    yield "tensors by format"
    ordered = sorted(by_format.items(), key=lambda item: -item[1][2])
    yield from _columns(
        [("format", "tensors", "parameters", "size")]
        + [(name, f"{n:,}", f"{elements:,}", size(nbytes)) for name, (n, elements, nbytes) in ordered],
        right=frozenset({1, 2, 3}),
    )
    yield ""
    yield "model"
    try:
        config = ModelConfig.from_gguf(gguf)
        yield from _columns([(f.name, _config_value(getattr(config, f.name))) for f in dataclasses.fields(config)])
    except IeError as error:
        yield f"  cannot be run: {one_line(str(error))}"
    yield ""
    yield "metadata"
    yield from _columns([(show(key), _value(value)) for key, value in gguf.metadata.items()])


def _config_value(value: object) -> str:
    """A field of the configuration: layers that are alike are described once."""
    if dataclasses.is_dataclass(value):
        # A switch is named where it is on; what is off or absent needs no mention.
        text = ", ".join(
            name if item is True else item if name == "name" else f"{name} {_config_value(item)}"
            for name, item in ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
            if item is not None and item is not False and item != ()
        )
    elif isinstance(value, tuple) and value:
        same = all(item == value[0] for item in value)
        text = f"{len(value)} × ({_config_value(value[0])})" if same else f"{len(value)}, not all alike"
    elif value is None:
        text = "none"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    text = one_line(text)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"
