"""The exception tree: every problem a user can cause or meet is one of these.

Owns: the classes, nothing else. A message is one line that says what is wrong, where (file, key,
byte offset, tensor), what was expected and what to do next. Commands print it and exit 1.
Programming errors of our own stay ordinary Python exceptions (``AssertionError`` and friends).

    IeError
    ├── OptionError      the command line, or options that contradict each other
    ├── GgufError        the container: header, metadata records, tensor records, split files
    ├── FormatError      a tensor type that cannot be read or computed with
    ├── ModelError       metadata or tensors that do not make up the architecture they name
    ├── TokenizerError   the vocabulary, the pre-tokenizer, the chat template
    ├── ResourceError    it does not fit: memory, context length, threads
    ├── DeviceError      an executor is missing, or failed while running
    └── SampleError      logits no token can be drawn from
"""


class IeError(Exception):
    """Base of all errors that are reported as one line."""


class OptionError(IeError):
    """The command line is wrong, or options contradict each other."""


class GgufError(IeError):
    """The file is not a GGUF container that can be read safely."""


class FormatError(IeError):
    """A tensor format is unknown, unsupported, or its bytes are malformed."""


class ModelError(IeError):
    """Metadata or tensors do not make up the architecture that the file names."""


class TokenizerError(IeError):
    """The vocabulary, pre-tokenizer or chat template cannot be used."""


class ResourceError(IeError):
    """What is asked for does not fit into memory, context or threads."""


class DeviceError(IeError):
    """An executor is not available here, or failed while running."""


class SampleError(IeError):
    """No token can be drawn from these logits."""
