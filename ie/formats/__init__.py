"""Tensor formats of GGUF files and the layouts that weights take on a device."""

from .dequant import dequantize
from .table import FORMATS, LAYOUTS, Field, Format, Layout, activation_of, format_by_name, get_format, layout_for

__all__ = [
    "FORMATS",
    "LAYOUTS",
    "Field",
    "Format",
    "Layout",
    "activation_of",
    "dequantize",
    "format_by_name",
    "get_format",
    "layout_for",
]
