"""Small random GGUF models of every supported architecture, for tests and experiments.

Owns: shapes, tensor lists, metadata, random weights and toy vocabularies. It does not own the meaning of any of
them: the engine never imports this package, and this package never imports the engine. The `gguf` package does
the writing and is imported only when a file is made.

    from tiny_models import make_tiny
    make_tiny("/tmp/x.gguf", arch="qwen3", formats={"*": "Q4_1", "output*": "Q8_0"}, rope="yarn")
"""

from tiny_models.build import make_tiny
from tiny_models.shape import ARCHS, Shape

__all__ = ["ARCHS", "Shape", "make_tiny"]
