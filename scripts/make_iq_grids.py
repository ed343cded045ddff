"""Write ie/iq_grids.py: the lookup grids of the IQ tensor types, packed as text.

Owns: the text of that one file. Does not own the decoding of the packed form, which the written file
carries with it, nor the C header made from it (``ie.iq_grids.c_header``).

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

HEAD = '''"""The lookup grids of the IQ tensor types. Written by scripts/make_iq_grids.py: do not edit.

Owns: the six grids (IQ1_M shares that of IQ1_S), packed 2 or 3 bits a component, and their C form.
Does not own what an index into a grid means: that is ``ie/formats.py``.
"""

import base64
from functools import cache

import numpy as np
import numpy.typing as npt

# name: (rows, columns, component values in code order, packed codes: base64, least significant bit first)
_PACKED: dict[str, tuple[int, int, tuple[int, ...], str]] = {
'''

TAIL = '''}

NAMES: tuple[str, ...] = tuple(_PACKED)


@cache
def grid(name: str) -> npt.NDArray[np.int8]:
    """The grid of one type as int8 [rows, columns], read-only. ``name`` is one of ``NAMES``."""
    rows, columns, values, text = _PACKED[name]
    width = 2 if len(values) <= 4 else 3
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8), bitorder="little")
    places = np.left_shift(1, np.arange(width)).astype(np.uint8)
    codes = (bits[: rows * columns * width].reshape(-1, width) * places).sum(axis=-1)
    out: npt.NDArray[np.int8] = np.array(values, dtype=np.int8)[codes].reshape(rows, columns)
    out.flags.writeable = False
    return out


def c_header() -> str:
    """The text of kernels_c/include/iq_grids.h: each grid as ``ie_grid_<name>[rows][columns]``."""
    lines = [
        "/* The lookup grids of the IQ tensor types. Written from ie/iq_grids.py (c_header): do not edit. */",
        "#ifndef IE_IQ_GRIDS_H",
        "#define IE_IQ_GRIDS_H",
        "#include <stdint.h>",
        "",
    ]
    for name in NAMES:
        values = grid(name)
        lines.append(f"static const int8_t ie_grid_{name.lower()}[{values.shape[0]}][{values.shape[1]}] = {{")
        per_line = 48 // values.shape[1]
        for start in range(0, len(values), per_line):
            rows = ("{" + ",".join(str(int(v)) for v in row) + "}" for row in values[start : start + per_line])
            lines.append("    " + ", ".join(rows) + ",")
        lines += ["};", ""]
    lines.append("#endif")
    return "\\n".join(lines) + "\\n"
'''


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


def module_text() -> str:
    """The whole text of ie/iq_grids.py."""
    body = []
    for name, values in GRIDS:
        grid = read_grid(name)
        body.append(
            f'    "{name}": (\n        {grid.shape[0]},\n        {grid.shape[1]},\n        {values},\n        (\n'
        )
        body += [f'            "{line}"\n' for line in textwrap.wrap(pack(grid, values), 104)]
        body.append("        ),\n    ),\n")
    return HEAD + "".join(body) + TAIL


def main() -> None:
    """Write the file beside the other modules of ``ie``."""
    (Path(__file__).resolve().parent.parent / "ie" / "iq_grids.py").write_text(module_text())


if __name__ == "__main__":
    main()
