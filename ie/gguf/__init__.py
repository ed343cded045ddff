"""GGUF files: from a path to metadata and tensor views."""

from .container import GgufArray, GgufFile, TensorInfo, part_paths
from .tensors import TensorSet

__all__ = ["GgufArray", "GgufFile", "TensorInfo", "TensorSet", "part_paths"]
