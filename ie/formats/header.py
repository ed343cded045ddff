"""The C header made from the tables of formats and layouts."""

from .table import FORMATS, LAYOUTS, ROWS_LAYOUT


def c_header() -> str:
    """The text of kernels_c/include/formats.h: format ids and sizes, layout ids, sizes and field offsets."""
    lines = [
        "/* Tensor formats and device layouts. Written from ie/formats/ (header.py): do not edit. */",
        "#ifndef IE_FORMATS_H",
        "#define IE_FORMATS_H",
        "#include <stdint.h>",
        "",
        "enum ie_format {",
        *(f"    IE_FMT_{fmt.name} = {fmt.id}," for fmt in FORMATS.values()),
        f"    IE_FMT_COUNT = {max(FORMATS) + 1}",
        "};",
        "",
        "/* elements and bytes of a block, by format id; 0, 0 where no format has the id */",
        "typedef struct { uint16_t block, size; } ie_format_row;",
        "static const ie_format_row ie_formats[IE_FMT_COUNT] = {",
        *(f"    [IE_FMT_{fmt.name}] = {{{fmt.block}, {fmt.size}}}," for fmt in FORMATS.values()),
        "};",
        "",
        "/* X(NAME, name, elements, bytes) for each format: a decoder ie_decode_<name> exists for every one */",
        "#define IE_FOR_EACH_FORMAT(X) \\",
        *(f"    X({fmt.name}, {fmt.name.lower()}, {fmt.block}, {fmt.size}) \\" for fmt in FORMATS.values()),
        "",
        "/* layouts: a tile of _ROWS rows by _BLOCK elements takes _SIZE bytes; a field starts at its offset */",
        "enum ie_layout {",
        *(f"    IE_L_{layout.name.upper()} = {layout.id}," for layout in LAYOUTS),
        f"    IE_L_COUNT = {max(layout.id for layout in LAYOUTS) + 1}",
        "};",
    ]
    for layout in LAYOUTS:
        prefix = f"#define IE_L_{layout.name.upper()}"
        lines += [
            "",
            f"{prefix}_ROWS {layout.rows}",
            f"{prefix}_BLOCK {layout.block}",
            f"{prefix}_SIZE {layout.size}",
            *(f"{prefix}_{f.name.upper()} {layout.offset(f.name)}" for f in layout.fields),
        ]
    most = max(len(layout.fields) for layout in LAYOUTS)
    lines += [
        "",
        f"#define IE_L_ROWS {ROWS_LAYOUT} /* ids from here on: a file format kept as it is, its id added */",
        "",
        "/* how a lane's fields come from its file block; unit 0 ends the list */",
        "enum { IE_FIELD_COPY, IE_FIELD_BIAS, IE_FIELD_SPREAD, IE_FIELD_NIBBLES, IE_FIELD_PAIRS };",
        "typedef struct { uint16_t source, offset; uint8_t unit, count, transform; } ie_field;",
        f"typedef struct {{ uint16_t block, size, arranged, format; ie_field field[{most + 1}]; }} ie_layout_row;",
        "static const ie_layout_row ie_layouts[IE_L_COUNT] = {",
    ]
    for layout in LAYOUTS:
        fields = ", ".join(
            f"{{{f.source}, {layout.offset(f.name)}, {f.unit}, {f.count}, IE_FIELD_{f.transform.upper()}}}"
            for f in layout.fields
        )
        facts = f"{layout.block}, {layout.size}, {int(layout.arranged)}, IE_FMT_{layout.format_name}"
        lines.append(f"    [IE_L_{layout.name.upper()}] = {{{facts}, {{{fields}}}}},")
    lines.append("};")
    lines += ["", "#endif"]
    return "\n".join(lines) + "\n"
