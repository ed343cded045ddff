"""Write the data in ie/formats/iq_grids.py: the lookup grids of the IQ tensor types, packed as text.

Owns: the text of that one table. Does not own the decoding of the packed form, which
stands beside the table, nor the C header made from it.

The grids are data of the file format. They are read from the public ``gguf`` package, a developer's
dependency: the engine itself never imports it. Run: ``python scripts/make_iq_grids.py``.
"""

import base64
import textwrap
from pathlib import Path

import numpy as np

# name, component values in code order. A component is stored as its index in these, 2 or 3 bits wide.
GRIDS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("IQ2_XXS", (8, 25, 43)),
    ("IQ2_XS", (8, 25, 43)),
    ("IQ2_S", (8, 25, 43)),
    ("IQ3_XXS", (4, 12, 20, 28, 36, 44, 52, 62)),
    ("IQ3_S", (1, 3, 5, 7, 9, 11, 13, 15)),
    ("IQ1_S", (-1, 0, 1)),
)

TARGET = Path(__file__).resolve().parent.parent / "ie" / "formats" / "iq_grids.py"
START, END = "_PACKED: dict[str, tuple[int, int, tuple[int, ...], str]] = {\n", "\n}\n"
"""What stands before and behind the data in TARGET; the code around it is written by hand, there alone."""


def read_grid(name: str) -> np.ndarray:
    """The grid of one type from the ``gguf`` package, as integers [rows, columns]."""
    from gguf import quants

    source = getattr(quants, name)
    source.init_grid()
    return source.grid[0, 0].astype(np.int32)


def pack(grid: np.ndarray, values: tuple[int, ...]) -> str:
    """Base64 of the components' codes, 2 or 3 bits each, least significant bit first."""
    width = 2 if len(values) <= 4 else 3
    codes = np.searchsorted(np.array(values), grid.ravel())
    if not (np.array(values)[codes] == grid.ravel()).all():
        raise SystemExit("a grid holds a value that this script does not know")
    bits = (codes[:, None] >> np.arange(width)) & 1
    return base64.b64encode(np.packbits(bits.astype(np.uint8).ravel(), bitorder="little").tobytes()).decode()


def module_text(text: str) -> str:
    """``text``, which is that of ie/formats/iq_grids.py, with its data written anew."""
    body = []
    for name, values in GRIDS:
        grid = read_grid(name)
        body.append(
            f'    "{name}": (\n        {grid.shape[0]},\n        {grid.shape[1]},\n        {values},\n        (\n'
        )
        body += [f'            "{line}"\n' for line in textwrap.wrap(pack(grid, values), 104)]
        body.append("        ),\n    ),\n")
    before, _, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{TARGET.name}: no table of grids in it")
    return before + START + "".join(body).removesuffix("\n") + END + after


def main() -> None:
    """Write the data into the file beside the other modules of ``ie``."""
    TARGET.write_text(module_text(TARGET.read_text()))


if __name__ == "__main__":
    main()
