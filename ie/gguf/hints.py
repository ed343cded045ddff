"""Words for files that are not what their user thinks they are.

Owns: guessing from a file's first bytes or its declared kind what it is. Text only: nothing is mapped, and nothing
here decides whether a file is accepted.
"""

import re

from .mapped import show

MAGIC = b"GGUF"
HEADER_SIZE = 24

_PROJECTOR = "a multimodal projector (mmproj), the companion of a model"
_OTHER_KINDS = {
    "mmproj": _PROJECTOR,
    "clip": _PROJECTOR,
    "adapter": "a LoRA adapter (not supported), not a model",
    "imatrix": "an importance matrix for quantising, not a model",
    "controlvector": "a control vector, not a model",
}


def other_kind(value: object) -> str:
    """What a file of this general.type or general.architecture is, when it is no model; empty when it may be one."""
    return _OTHER_KINDS.get(value, "") if isinstance(value, str) else ""


# first bytes, what such a file is
_OTHER_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"lmgg", "an unversioned ggml file of before GGUF (2023): convert the original model again"),
    (b"fmgg", "a ggmf file of before GGUF (2023): convert the original model again"),
    (b"tjgg", "a ggjt file of before GGUF (2023): convert the original model again"),
    (b"algg", "a ggla adapter of before GGUF (2023): convert the original again"),
    (b"PK\x03\x04", "a zip archive or PyTorch checkpoint: unpack it, or convert it to GGUF"),
    (b"\x80\x02", "a pickled PyTorch checkpoint: convert it to GGUF"),
    (b"\x1f\x8b", "gzip-compressed: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed: unpack it first"),
    (b"\xfd7zXZ", "xz-compressed: unpack it first"),
)


def describe(head: bytes, size: int) -> str:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    lower = text.lower()
    if lower.startswith((b"<!doctype", b"<html", b"<head", b"<?xml", b"<!--")):
        return "it looks like a web page, not a model: was the download link a page?"
    if text.startswith(b"version https://git-lfs"):
        stated = re.search(rb"\nsize ([0-9]{1,20})\n", head)
        amount = f" of {int(stated[1]):,} bytes" if stated else ""
        return f"it is a git-lfs pointer, not the model{amount} itself: run git lfs pull, or download the file directly"
    if MAGIC.startswith(head):
        return f"the file ends inside the header: {HEADER_SIZE} bytes expected, {size} there. Is the download complete?"
    for magic, kind in _OTHER_MAGICS:
        if head.startswith(magic):
            return f"it is {kind}"
    if len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < size:
        return "it is a safetensors file: convert it to GGUF, or download a GGUF version of the model"
    if not any(head):
        return "it begins with zeros: expected GGUF. Was its download interrupted?"
    start = head[:60].decode("utf-8", "replace")
    if all(c.isprintable() or c in "\r\n\t" for c in start):
        return f"it is a text ({show(' '.join(start.split()), 50)}), not a model: what did the download link lead to?"
    return f"it begins with the bytes {head[:4].hex(' ')}: expected GGUF (47 47 55 46). This is not a GGUF file"
