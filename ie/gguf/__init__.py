"""GGUF files: from a path to metadata and tensor views."""

from .container import GgufArray, GgufFile, TensorInfo, part_paths

__all__ = ["GgufArray", "GgufFile", "TensorInfo", "part_paths"]
